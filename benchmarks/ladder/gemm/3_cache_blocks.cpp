// Step: a block of B that fits into L1 is used for all rows of A before the next one is fetched.
//
// By itself it wins where rows of B are long (N = 3072: 25 instead of 19 GFLOP/s on a Zen 4 core) and loses where B came
// from L2 fast enough (N = 768: 22 instead of 28), because the inner loop is the same and became shorter. It pays with
// what follows, once the registers are no longer the narrow place.
#include "gemm_rungs.h"

#include <algorithm>

namespace {
constexpr int64_t KC = 32, NC = 192; // 24 KB of B
}

void cache_blocks(int64_t M, int64_t N, int64_t K, const float *A, const float *B, float *C) {
    std::fill(C, C + M * N, 0.0f);
    for (int64_t jc = 0; jc < N; jc += NC) {
        for (int64_t pc = 0; pc < K; pc += KC) {
            int64_t j_end = std::min(N, jc + NC), k_end = std::min(K, pc + KC);
            for (int64_t i = 0; i < M; ++i) {
                for (int64_t k = pc; k < k_end; ++k) {
                    float a = A[i * K + k];
                    const float *b = B + k * N;
                    float *c = C + i * N;
                    for (int64_t j = jc; j < j_end; ++j) {
                        c[j] += a * b[j];
                    }
                }
            }
        }
    }
}
