// Step: a tile of C, MR rows and NR columns, stays in registers for the whole sum over k.
//
// A step of k loads NR elements of B and MR of A and does MR x NR multiply-adds with them: C costs nothing any more, and
// each load serves many multiply-adds. MR x NR has to fill the registers, which also makes enough independent sums to
// hide the latency of the multiply-add. This is the step that changes the order of magnitude.
//
// What limits it now: the rows of B are N floats apart, so a strip of B lies scattered over pages and over few sets of
// L1. The faster the tile, the more that hurts, and most where N is a large power of two.
#include "gemm_rungs.h"

#include <algorithm>

#include "simd.h"

using namespace mb::MB_ISA;

namespace {

constexpr int NV = 2, NR = NV * VL, MR = VL == 16 ? 14 : 6; // as many as 32 or 16 registers hold

void tile(int64_t N, int64_t K, const float *A, const float *B, float *C) {
    vf sums[MR][NV] = {};
    for (int64_t k = 0; k < K; ++k) {
        vf b[NV];
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            b[j] = load(B + k * N + j * VL);
        }
#pragma GCC unroll 14
        for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                sums[i][j] += A[i * K + k] * b[j];
            }
    }
#pragma GCC unroll 14
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            store(C + i * N + j * VL, sums[i][j]);
        }
}

// What is left at the edges, the slow way.
void rest(int64_t i, int64_t i_end, int64_t j, int64_t j_end, int64_t N, int64_t K, const float *A,
          const float *B, float *C) {
    for (; i < i_end; ++i) {
        std::fill(C + i * N + j, C + i * N + j_end, 0.0f);
        for (int64_t k = 0; k < K; ++k) {
            for (int64_t jj = j; jj < j_end; ++jj) {
                C[i * N + jj] += A[i * K + k] * B[k * N + jj];
            }
        }
    }
}

} // namespace

void register_tile(int64_t M, int64_t N, int64_t K, const float *A, const float *B, float *C) {
    int64_t M_whole = M / MR * MR, N_whole = N / NR * NR;
    for (int64_t j = 0; j < N_whole; j += NR) {
        for (int64_t i = 0; i < M_whole; i += MR) {
            tile(N, K, A + i * K, B + j, C + i * N + j);
        }
    }
    rest(0, M_whole, N_whole, N, N, K, A, B, C);
    rest(M_whole, M, 0, N, N, K, A, B, C);
}
