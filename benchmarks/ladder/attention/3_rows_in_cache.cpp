// Step: one query from scores to answer before the next; loops in the order in which memory lies.
//
// Softmax looks at one row of scores, so one row is all there ever is: n floats, in L1, instead of a matrix (n,n). The
// keys are turned once a head. Then a row of scores grows by a row of k^T times one element of q, the answer by a row
// of v times one probability, and the compiler makes vectors of both by itself (loop order, second rung of the matrix
// product). The division moves behind the last sum: D of them instead of n.
#include "attention_rungs.h"

#include <algorithm>
#include <cmath>
#include <vector>

void rows_in_cache(const Batch &b, const float *q, const float *k, const float *v, float *y) {
    std::vector<float> turned, scores;
    int64_t D = b.D, step = b.A * b.D;
    float root = 1 / std::sqrt(static_cast<float>(D));
    for (int64_t s = 0; s < b.S; ++s) {
        int64_t n = b.length(s);
        turned.resize(static_cast<size_t>(D * n)), scores.resize(static_cast<size_t>(n));
        float *p = scores.data();
        for (int64_t a = 0; a < b.A; ++a) {
            const float *Q = q + b.at(s, a), *K = k + b.at(s, a), *V = v + b.at(s, a);
            float *Y = y + b.at(s, a);
            for (int64_t j = 0; j < n; ++j) {
                for (int64_t d = 0; d < D; ++d) {
                    turned[static_cast<size_t>(d * n + j)] = K[j * step + d];
                }
            }
            for (int64_t i = 0; i < n; ++i) {
                std::fill(p, p + n, 0.0f);
                for (int64_t d = 0; d < D; ++d) {
                    float one = Q[i * step + d] * root;
                    const float *keys = turned.data() + d * n;
                    for (int64_t j = 0; j < n; ++j) {
                        p[j] += one * keys[j];
                    }
                }
                float top = *std::max_element(p, p + n), sum = 0, *answer = Y + i * step;
                std::fill(answer, answer + D, 0.0f);
                for (int64_t j = 0; j < n; ++j) {
                    float one = std::exp(p[j] - top);
                    const float *value = V + j * step;
                    sum += one;
                    for (int64_t d = 0; d < D; ++d) {
                        answer[d] += one * value[d];
                    }
                }
                for (int64_t d = 0; d < D; ++d) {
                    answer[d] /= sum;
                }
            }
        }
    }
}
