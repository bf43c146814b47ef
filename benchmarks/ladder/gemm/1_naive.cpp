// The definition: each element of C is a row of A times a column of B.
//
// A column of B is read across its rows: every step touches another cache line for the sake of four bytes, and each
// addition waits for the one before. The sum can't be reordered by the compiler, so there are no vectors either.
#include "gemm_rungs.h"

void naive(int64_t M, int64_t N, int64_t K, const float *A, const float *B, float *C) {
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t j = 0; j < N; ++j) {
            float sum = 0;
            for (int64_t k = 0; k < K; ++k) {
                sum += A[i * K + k] * B[k * N + j];
            }
            C[i * N + j] = sum;
        }
    }
}
