// Step: all passes over one row before the next row.
//
// A row of 768 floats is 3 KB and stays in L1 between the passes, so memory is read and written once; neither the mask
// nor out + bias is ever an array. Still one number at a time: the compiler may not reorder the sums, and sees no
// vectors in the hash.
#include "layer_norm_rungs.h"

#include <cmath>

void row_by_row(const Norm &n) {
    for (int64_t t = 0; t < n.T; ++t) {
        mb::MB_ISA::Key key = mb::MB_ISA::row_key(n.drop, t);
        const float *x = n.x + t * n.H, *out = n.out + t * n.H;
        float *sum = n.sum + t * n.H, *y = n.y + t * n.H;
        for (int64_t c = 0; c < n.H; ++c) {
            sum[c] = x[c] + (survives(n.drop, key, c) ? (out[c] + n.bias[c]) * n.drop.scale : 0);
        }
        float total = 0, squares = 0;
        for (int64_t c = 0; c < n.H; ++c) {
            total += sum[c];
        }
        float mean = total / static_cast<float>(n.H);
        for (int64_t c = 0; c < n.H; ++c) {
            squares += (sum[c] - mean) * (sum[c] - mean);
        }
        float inverse = 1 / std::sqrt(squares / static_cast<float>(n.H) + n.eps);
        for (int64_t c = 0; c < n.H; ++c) {
            y[c] = (sum[c] - mean) * inverse * n.gamma[c] + n.beta[c];
        }
        n.mean[t] = mean, n.inverse[t] = inverse;
    }
}
