// Aside: softmax that never sees a whole row (Milakov and Gimelshein 2018; what FlashAttention is built on).
//
// Keys come in blocks of 64. The maximum so far may rise with each block; then the sum and the answer so far, which
// belong to the old maximum, are scaled by exp(old - new). Nothing longer than a block is ever kept, which is what a
// GPU with little fast memory needs. On a CPU a row of scores is 2 KB at n = 512 and fits into L1 anyway, so this is
// the rung below with more to do. The product keeps whole rows.
#include "attention_rungs.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "elementary.h"

using namespace mb::MB_ISA;

namespace {
constexpr int64_t kKeys = 64;
}

void online(const Batch &b, const float *q, const float *k, const float *v, float *y) {
    std::vector<float> turned;
    int64_t D = b.D, step = b.A * b.D;
    float root = 1 / std::sqrt(static_cast<float>(D));
    for (int64_t s = 0; s < b.S; ++s) {
        int64_t n = b.length(s), wide = (n + kKeys - 1) / kKeys * kKeys;
        turned.assign(static_cast<size_t>(D * wide), 0.0f);
        for (int64_t a = 0; a < b.A; ++a) {
            const float *Q = q + b.at(s, a), *K = k + b.at(s, a), *V = v + b.at(s, a);
            float *Y = y + b.at(s, a);
            for (int64_t j = 0; j < n; ++j) {
                for (int64_t d = 0; d < D; ++d) {
                    turned[static_cast<size_t>(d * wide + j)] = K[j * step + d];
                }
            }
            for (int64_t i = 0; i < n; ++i) {
                float top = -HUGE_VALF, total = 0, *answer = Y + i * step;
                std::fill(answer, answer + D, 0.0f);
                for (int64_t block = 0; block < n; block += kKeys) {
                    float p[kKeys] = {};
                    int64_t keys = std::min(kKeys, n - block);
                    for (int64_t d = 0; d < D; ++d) {
                        float one = Q[i * step + d] * root;
                        const float *row = turned.data() + d * wide + block;
                        for (int64_t j = 0; j < kKeys; ++j) {
                            p[j] += one * row[j];
                        }
                    }
                    vf highest = all(top), sums = {};
                    for (int64_t j = 0; j < keys; j += VL) {
                        highest = max(first(keys - j, load(p + j), highest), highest);
                    }
                    float risen = max(highest), scale = exp(all(top - risen))[0];
                    top = risen;
                    for (int64_t j = 0; j < keys; j += VL) {
                        vf one = first(keys - j, exp(load(p + j) - top), vf{});
                        sums += one;
                        store(p + j, one);
                    }
                    total = total * scale + sum(sums);
                    for (int64_t d = 0; d < D; ++d) {
                        answer[d] *= scale;
                    }
                    for (int64_t j = 0; j < keys; ++j) {
                        const float *value = V + (block + j) * step;
                        for (int64_t d = 0; d < D; ++d) {
                            answer[d] += p[j] * value[d];
                        }
                    }
                }
                for (int64_t d = 0; d < D; ++d) {
                    answer[d] /= total;
                }
            }
        }
    }
}
