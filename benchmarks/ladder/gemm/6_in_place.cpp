// Step: A is read where it lies, B is packed once, and K is not cut: each element of C is written once.
//
// Few rows and many columns, instead of many rows and few columns, as far as there are registers: 6 x 4 vectors of sums
// with AVX-512. The tile then needs only six numbers of A for 24 multiply-adds, and six rows stay in L1 whatever lies
// between them, even a power of two: a set of L1 has at least eight places. So the copy of A, MK moves, is spared. With
// 16 registers (AVX2) the tile is no wider than before, and reading in place gains nothing.
#include "gemm_rungs.h"

#include <algorithm>
#include <vector>

#include "simd.h"

using namespace mb::MB_ISA;

namespace {

constexpr int MR = 6, NV = VL == 16 ? 4 : 2, NR = NV * VL;
constexpr int64_t MC = 28 * MR;

// a: `rows` rows (K), lda apart; b (K,NR) in one piece -> C (rows,columns)
template <int rows>
void tile(int64_t K, const float *a, int64_t lda, const float *b, float *C, int64_t N, int64_t columns) {
    vf sums[rows][NV] = {};
    for (int64_t k = 0; k < K; ++k) {
        vf right[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            right[j] = load(b + k * NR + j * VL);
        }
#pragma GCC unroll 6
        for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) {
                sums[i][j] += a[i * lda + k] * right[j];
            }
    }
    if (columns == NR) {
#pragma GCC unroll 6
        for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) {
                store(C + i * N + j * VL, sums[i][j]);
            }
        return;
    }
    for (int i = 0; i < rows; ++i) {
        std::memcpy(C + i * N, sums[i], sizeof(float) * static_cast<size_t>(columns));
    }
}

} // namespace

void in_place(int64_t M, int64_t N, int64_t K, const float *A, const float *B, float *C) {
    std::vector<float> b(static_cast<size_t>((N + NR) * K)); // panels (K,NR), zeros behind N
    for (int64_t k = 0; k < K; ++k) {
        for (int64_t j = 0; j < N; ++j) {
            b[static_cast<size_t>((j / NR * K + k) * NR + j % NR)] = B[k * N + j];
        }
    }
    constexpr decltype(&tile<1>) kTiles[MR] = {tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>};
    for (int64_t ic = 0; ic < M; ic += MC) {     // rows of A that stay in L2
        for (int64_t jr = 0; jr < N; jr += NR) { // a panel of B
            for (int64_t ir = ic; ir < std::min(M, ic + MC); ir += MR) {
                int64_t rows = std::min<int64_t>(MR, M - ir);
                kTiles[rows - 1](K, A + ir * K, K, b.data() + jr * K, C + ir * N + jr, N,
                                 std::min<int64_t>(NR, N - jr));
            }
        }
    }
}
