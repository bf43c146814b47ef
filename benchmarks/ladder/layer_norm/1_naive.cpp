// The definition, one operation after another over whole arrays, as a framework runs it that fuses nothing.
//
// Arrays of this size live in memory, not in cache, and each of the seven passes reads and writes them anew: 15 times
// (T,H) floats go over the bus, where x, out, sum and y are 4. The mask of dropout is drawn one element at a time and
// kept.
#include "layer_norm_rungs.h"

#include <cmath>
#include <vector>

void naive(const Norm &n) {
    int64_t size = n.T * n.H;
    std::vector<float> mask(static_cast<size_t>(size)), through(mask.size());
    for (int64_t t = 0; t < n.T; ++t) { // mask
        mb::MB_ISA::Key key = mb::MB_ISA::row_key(n.drop, t);
        for (int64_t c = 0; c < n.H; ++c) {
            mask[static_cast<size_t>(t * n.H + c)] = survives(n.drop, key, c) ? n.drop.scale : 0;
        }
    }
    for (int64_t i = 0; i < size; ++i) { // bias
        through[static_cast<size_t>(i)] = n.out[i] + n.bias[i % n.H];
    }
    for (int64_t i = 0; i < size; ++i) { // dropout
        through[static_cast<size_t>(i)] *= mask[static_cast<size_t>(i)];
    }
    for (int64_t i = 0; i < size; ++i) { // residual
        n.sum[i] = n.x[i] + through[static_cast<size_t>(i)];
    }
    for (int64_t t = 0; t < n.T; ++t) { // mean
        float total = 0;
        for (int64_t c = 0; c < n.H; ++c) {
            total += n.sum[t * n.H + c];
        }
        n.mean[t] = total / static_cast<float>(n.H);
    }
    for (int64_t t = 0; t < n.T; ++t) { // variance
        float total = 0;
        for (int64_t c = 0; c < n.H; ++c) {
            float centred = n.sum[t * n.H + c] - n.mean[t];
            total += centred * centred;
        }
        n.inverse[t] = 1 / std::sqrt(total / static_cast<float>(n.H) + n.eps);
    }
    for (int64_t t = 0; t < n.T; ++t) { // normalise, scale and shift
        for (int64_t c = 0; c < n.H; ++c) {
            float normal = (n.sum[t * n.H + c] - n.mean[t]) * n.inverse[t];
            n.y[t * n.H + c] = normal * n.gamma[c] + n.beta[c];
        }
    }
}
