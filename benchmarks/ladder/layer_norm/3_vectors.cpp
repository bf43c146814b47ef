// Step: sums in vectors, a partial sum in each lane and two of them by turns.
//
// An addition waits four cycles for the one before it; with 2 x 16 partial sums 32 of them are under way. It is also
// nearer to the truth: each partial sum is of 24 numbers instead of 768. Dropout is still drawn element by element, and
// now takes almost all of the time.
#include "layer_norm_rungs.h"

#include <algorithm>

#include "loops.h"

using namespace mb::MB_ISA;

void vectors(const Norm &n) {
    int64_t H = n.H;
    for (int64_t t = 0; t < n.T; ++t) {
        Key key = row_key(n.drop, t);
        const float *x = n.x + t * H, *out = n.out + t * H;
        float *both = n.sum + t * H, *y = n.y + t * H;
        for (int64_t c = 0; c < H; ++c) {
            both[c] = x[c] + (survives(n.drop, key, c) ? (out[c] + n.bias[c]) * n.drop.scale : 0);
        }
        vf totals[2] = {}, squares[2] = {};
        int turn = 0;
        each_vector(0, H, [&](int64_t c, int m) {
            totals[turn] += load_some(both + c, m); // behind the end of a row there are zeros
            turn = 1 - turn;
        });
        float mean = sum(totals[0] + totals[1]) / static_cast<float>(H);
        each_vector(0, H, [&](int64_t c, int m) {
            vf centred = first(m, load_some(both + c, m) - mean, vf{});
            squares[turn] += centred * centred;
            turn = 1 - turn;
        });
        float inverse = 1 / __builtin_sqrtf(sum(squares[0] + squares[1]) / static_cast<float>(H) + n.eps);
        each_vector(0, H, [&](int64_t c, int m) {
            vf normal = (load_some(both + c, m) - mean) * inverse;
            store_some(y + c, normal * load_some(n.gamma + c, m) + load_some(n.beta + c, m), m);
        });
        n.mean[t] = mean, n.inverse[t] = inverse;
    }
}
