// Step: queries along the vectors, keys down the rows: a panel of scores is S^T (keys, queries).
//
// Softmax runs down the rows now. A maximum, a sum and its inverse are vectors with a query in each lane; nothing goes
// across a vector, and no vector is partly used because a sequence is short of keys. The queries of a panel are turned
// instead of all keys. It also makes dropout cheap, which this ladder leaves out: one hash serves two rows.
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

void queries_across(const Batch &b, const float *q, const float *k, const float *v, float *y) {
    std::vector<float> turned, scores, values, answers;
    int64_t D = b.D, step = b.A * b.D, columns = mb::whole(D, VL);
    float root = 1 / std::sqrt(static_cast<float>(D));
    turned.resize(static_cast<size_t>(kQueries * D)), answers.resize(static_cast<size_t>(kQueries * columns));
    for (int64_t s = 0; s < b.S; ++s) {
        int64_t n = b.length(s);
        scores.resize(static_cast<size_t>(kQueries * n)), values.resize(static_cast<size_t>(n * columns));
        float *p = scores.data();
        for (int64_t a = 0; a < b.A; ++a) {
            Rows<float> K{k + b.at(s, a), step};
            Rows<float> V = widened(Rows<float>{v + b.at(s, a), step}, n, D, values.data());
            for (int64_t i = 0; i < n; i += kQueries) {
                int64_t count = std::min(kQueries, n - i), wide = mb::whole(count, VL);
                turn_rows({q + b.at(s, a) + i * step, step}, count, D, root, turned.data(), wide);
                product(n, wide, D, K, {turned.data(), wide}, {p, wide});
                float share[kQueries];
                for (int64_t c = 0; c < wide; c += VL) {
                    vf top = all(-HUGE_VALF), sums = {};
                    for (int64_t j = 0; j < n; ++j) {
                        top = max(load(p + j * wide + c), top);
                    }
                    for (int64_t j = 0; j < n; ++j) {
                        vf one = exp(load(p + j * wide + c) - top);
                        sums += one;
                        store(p + j * wide + c, one);
                    }
                    store(share + c, 1.0f / sums);
                }
                product<true>(count, columns, n, {p, wide}, V, {answers.data(), columns}); // P^T turned: P
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
