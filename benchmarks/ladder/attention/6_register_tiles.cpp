// Step: queries in panels of 64, and both products by register tiles.
//
// One query at a time is a product of a vector and a matrix: for each multiply-add a vector is loaded. 64 queries
// together make it a product of matrices, and `product` (csrc/kernels/tiles.h) keeps tiles of it in registers, as the
// fourth rung of the matrix product does; nothing is packed, since all of it is in cache. The scores of a panel are
// 64 n floats, in L2. Softmax still runs along the rows: a maximum and a sum across the lanes for each query.
#include "attention_rungs.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "elementary.h"
#include "tiles.h"

using namespace mb::MB_ISA;

namespace {
constexpr int64_t kQueries = 64;
}

void register_tiles(const Batch &b, const float *q, const float *k, const float *v, float *y) {
    std::vector<float> turned, scores, queries, values, answers;
    int64_t D = b.D, step = b.A * b.D, columns = mb::whole(D, VL);
    float root = 1 / std::sqrt(static_cast<float>(D));
    queries.resize(static_cast<size_t>(kQueries * D)),
        answers.resize(static_cast<size_t>(kQueries * columns));
    for (int64_t s = 0; s < b.S; ++s) {
        int64_t n = b.length(s), wide = mb::whole(n, VL);
        turned.resize(static_cast<size_t>(D * wide)), scores.resize(static_cast<size_t>(kQueries * wide));
        values.resize(static_cast<size_t>(n * columns));
        float *p = scores.data();
        for (int64_t a = 0; a < b.A; ++a) {
            Rows<float> V = widened(Rows<float>{v + b.at(s, a), step}, n, D, values.data());
            turn_rows({k + b.at(s, a), step}, n, D, root, turned.data(), wide);
            for (int64_t i = 0; i < n; i += kQueries) {
                int64_t count = std::min(kQueries, n - i);
                Rows<float> Q{q + b.at(s, a) + i * step, step};
                product(count, wide, D, Q, {turned.data(), wide}, {p, wide});
                float share[kQueries];
                for (int64_t r = 0; r < count; ++r) {
                    float *row = p + r * wide;
                    vf highest = all(-HUGE_VALF), sums = {};
                    for (int64_t j = 0; j < n; j += VL) {
                        highest = max(first(n - j, load(row + j), highest), highest);
                    }
                    float top = max(highest);
                    for (int64_t j = 0; j < n; j += VL) {
                        vf one = first(n - j, exp(load(row + j) - top), vf{});
                        sums += one;
                        store(row + j, one);
                    }
                    share[r] = 1 / sum(sums);
                }
                product(count, columns, n, {p, wide}, V, {answers.data(), columns});
                for (int64_t r = 0; r < count; ++r) {
                    for (int64_t d = 0; d < D; ++d) {
                        y[b.at(s, a) + (i + r) * step + d] =
                            answers[static_cast<size_t>(r * columns + d)] * share[r];
                    }
                }
            }
        }
    }
}
