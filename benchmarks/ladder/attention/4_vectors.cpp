// Step: softmax in vectors.
//
// What is left of the rung below is mostly the exponential function of the C library, one number at a time, and sums
// and maxima whose order the compiler may not change. Ours takes a vector at a time (csrc/kernels/elementary.h: a
// polynomial of degree six, one unit in the last place), and maxima and sums are kept for each lane.
#include "attention_rungs.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "elementary.h"

using namespace mb::MB_ISA;

void vectors(const Batch &b, const float *q, const float *k, const float *v, float *y) {
    std::vector<float> turned, scores;
    int64_t D = b.D, step = b.A * b.D;
    float root = 1 / std::sqrt(static_cast<float>(D));
    for (int64_t s = 0; s < b.S; ++s) {
        int64_t n = b.length(s), wide = (n + VL - 1) / VL * VL; // rows in whole vectors
        turned.assign(static_cast<size_t>(D * wide), 0.0f), scores.resize(static_cast<size_t>(wide));
        float *p = scores.data();
        for (int64_t a = 0; a < b.A; ++a) {
            const float *Q = q + b.at(s, a), *K = k + b.at(s, a), *V = v + b.at(s, a);
            float *Y = y + b.at(s, a);
            for (int64_t j = 0; j < n; ++j) {
                for (int64_t d = 0; d < D; ++d) {
                    turned[static_cast<size_t>(d * wide + j)] = K[j * step + d];
                }
            }
            for (int64_t i = 0; i < n; ++i) {
                std::fill(p, p + wide, 0.0f);
                for (int64_t d = 0; d < D; ++d) {
                    float one = Q[i * step + d] * root;
                    const float *keys = turned.data() + d * wide;
                    for (int64_t j = 0; j < wide; ++j) {
                        p[j] += one * keys[j];
                    }
                }
                vf highest = all(-HUGE_VALF), sums = {};
                for (int64_t j = 0; j < n; j += VL) {
                    highest = max(first(n - j, load(p + j), highest), highest);
                }
                float top = max(highest), *answer = Y + i * step;
                for (int64_t j = 0; j < n; j += VL) {
                    vf one = first(n - j, exp(load(p + j) - top), vf{});
                    sums += one;
                    store(p + j, one);
                }
                std::fill(answer, answer + D, 0.0f);
                for (int64_t j = 0; j < n; ++j) {
                    const float *value = V + j * step;
                    for (int64_t d = 0; d < D; ++d) {
                        answer[d] += p[j] * value[d];
                    }
                }
                float share = 1 / sum(sums);
                for (int64_t d = 0; d < D; ++d) {
                    answer[d] *= share;
                }
            }
        }
    }
}
