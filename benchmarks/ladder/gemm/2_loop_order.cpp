// Step: the loop over k and the loop over j change places.
//
// A row of C grows by a row of B times one element of A. Everything is read and written along rows, elements of C don't
// depend on each other, and the compiler makes vectors of it by itself. What limits it now: for each multiply-add a
// vector of B and one of C are loaded and one of C is stored.
#include "gemm_rungs.h"

#include <algorithm>

void loop_order(int64_t M, int64_t N, int64_t K, const float *A, const float *B, float *C) {
    std::fill(C, C + M * N, 0.0f);
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t k = 0; k < K; ++k) {
            float a = A[i * K + k];
            const float *b = B + k * N;
            float *c = C + i * N;
            for (int64_t j = 0; j < N; ++j) {
                c[j] += a * b[j];
            }
        }
    }
}
