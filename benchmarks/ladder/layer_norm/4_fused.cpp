// Step: bias, dropout, residual and the sum of the row in one sweep, dropout drawn in vectors.
//
// The bits of dropout are a hash of row and column: 32-bit multiplications, shifts and exclusive ors, which vectors do
// as well as anything. `keep` (csrc/kernels/random.h) hashes once for two columns and compares 16-bit halves. Nothing is
// stored: backward draws the same bits again. Three sweeps over a row that stays in L1; what is left is the speed of
// memory.
#include "layer_norm_rungs.h"

#include <algorithm>

#include "loops.h"

using namespace mb::MB_ISA;

void fused(const Norm &n) {
    int64_t H = n.H;
    for (int64_t t = 0; t < n.T; ++t) {
        const float *x = n.x + t * H, *out = n.out + t * H;
        float *both = n.sum + t * H, *y = n.y + t * H;
        vf totals[2] = {}, squares[2] = {};
        each_pair<true>(H, row_key(n.drop, t), n.drop.threshold, [&](int half, int64_t c, int m, Kept kept) {
            vf through = load_some(out + c, m) + load_some(n.bias + c, m);
            vf value = load_some(x + c, m) + only(kept, through, n.drop.scale);
            store_some(both + c, value, m);
            totals[half] += first(m, value, vf{});
        });
        float mean = sum(totals[0] + totals[1]) / static_cast<float>(H);
        each_pair<false>(H, {}, 0, [&](int half, int64_t c, int m, Kept) {
            vf centred = first(m, load_some(both + c, m) - mean, vf{});
            squares[half] += centred * centred;
        });
        float inverse = 1 / __builtin_sqrtf(sum(squares[0] + squares[1]) / static_cast<float>(H) + n.eps);
        each_vector(0, H, [&](int64_t c, int m) {
            vf normal = (load_some(both + c, m) - mean) * inverse;
            store_some(y + c, normal * load_some(n.gamma + c, m) + load_some(n.beta + c, m), m);
        });
        n.mean[t] = mean, n.inverse[t] = inverse;
    }
}
