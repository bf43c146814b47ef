// Aside: mean and variance in the same sweep.
//
// The textbook's variance, mean of squares less square of the mean, cancels: for numbers about 1,000 that spread by 1 it
// is the difference of two millions, and float32 has seven digits. The check finds that. Taking the first element of the
// row off everything saves it, since the sums are then of numbers about as large as they spread; two sweeps instead of
// three are a tenth faster. But a row whose first element is an outlier loses digits again, and BERT has such columns.
// The product keeps the sweep.
#include "layer_norm_rungs.h"

#include <algorithm>

#include "loops.h"

using namespace mb::MB_ISA;

void one_pass(const Norm &n) {
    int64_t H = n.H;
    for (int64_t t = 0; t < n.T; ++t) {
        Key key = row_key(n.drop, t);
        const float *x = n.x + t * H, *out = n.out + t * H;
        float *both = n.sum + t * H, *y = n.y + t * H;
        float shift = x[0] + (survives(n.drop, key, 0) ? (out[0] + n.bias[0]) * n.drop.scale : 0);
        vf totals[2] = {}, squares[2] = {};
        each_pair<true>(H, key, n.drop.threshold, [&](int half, int64_t c, int m, Kept kept) {
            vf through = load_some(out + c, m) + load_some(n.bias + c, m);
            vf value = load_some(x + c, m) + only(kept, through, n.drop.scale);
            store_some(both + c, value, m);
            vf moved = first(m, value - shift, vf{});
            totals[half] += moved;
            squares[half] += moved * moved;
        });
        float moved = sum(totals[0] + totals[1]) / static_cast<float>(H), mean = shift + moved;
        float variance = sum(squares[0] + squares[1]) / static_cast<float>(H) - moved * moved;
        float inverse = 1 / __builtin_sqrtf(std::max(variance, 0.0f) + n.eps);
        each_vector(0, H, [&](int64_t c, int m) {
            vf normal = (load_some(both + c, m) - mean) * inverse;
            store_some(y + c, normal * load_some(n.gamma + c, m) + load_some(n.beta + c, m), m);
        });
        n.mean[t] = mean, n.inverse[t] = inverse;
    }
}
