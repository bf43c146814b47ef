// Step: A and B are copied into the order in which the tile reads them; the loops are those of BLIS (Van Zee and van de
// Geijn 2015).
//
// A panel of B (KC x NR) is one piece in L1, a block of A (MC x KC) one piece in L2, a block of B (KC x NC) in L3. The
// copies cost MK + NK + ... moves against MNK multiply-adds, and zeros behind the edges make every tile a whole one.
#include "gemm_rungs.h"

#include <algorithm>
#include <vector>

#include "simd.h"

using namespace mb::MB_ISA;

namespace {

constexpr int NV = 2, NR = NV * VL, MR = VL == 16 ? 14 : 6;
constexpr int64_t KC = 384, MC = 12 * MR, NC = 128 * NR;

// a (K,MR) b (K,NR) in one piece each -> C (rows,columns), a tile or its part that is there
void tile(int64_t K, const float *a, const float *b, float *C, int64_t N, int64_t rows, int64_t columns,
          bool add) {
    vf sums[MR][NV] = {};
    for (int64_t k = 0; k < K; ++k) {
        vf right[NV];
#pragma GCC unroll 2
        for (int j = 0; j < NV; ++j) {
            right[j] = load(b + k * NR + j * VL);
        }
#pragma GCC unroll 14
        for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                sums[i][j] += a[k * MR + i] * right[j];
            }
    }
    if (rows == MR && columns == NR) {
#pragma GCC unroll 14
        for (int i = 0; i < MR; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < NV; ++j) {
                float *c = C + i * N + j * VL;
                store(c, add ? load(c) + sums[i][j] : sums[i][j]);
            }
        return;
    }
    float whole[MR * NR];
    std::memcpy(whole, sums, sizeof whole);
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
            C[i * N + j] = (add ? C[i * N + j] : 0) + whole[i * NR + j];
        }
    }
}

// Panels of `width` rows (columns), each (K,width) and filled up with zeros.
void pack(const float *from, int64_t stride, int64_t k_stride, int64_t count, int64_t K, int64_t width,
          float *to) {
    for (int64_t first = 0; first < count; first += width, to += width * K) {
        int64_t here = std::min(width, count - first);
        for (int64_t k = 0; k < K; ++k) {
            for (int64_t i = 0; i < width; ++i) {
                to[k * width + i] = i < here ? from[(first + i) * stride + k * k_stride] : 0;
            }
        }
    }
}

} // namespace

void packed(int64_t M, int64_t N, int64_t K, const float *A, const float *B, float *C) {
    if (K == 0) {
        std::fill(C, C + M * N, 0.0f);
    }
    std::vector<float> a(static_cast<size_t>((MC + MR) * KC)), b(static_cast<size_t>((NC + NR) * KC));
    for (int64_t jc = 0; jc < N; jc += NC) {     // 5th loop: a block of columns of C
        for (int64_t pc = 0; pc < K; pc += KC) { // 4th loop: a stretch of the sum
            int64_t nc = std::min(NC, N - jc), kc = std::min(KC, K - pc);
            pack(B + pc * N + jc, 1, N, nc, kc, NR, b.data());
            for (int64_t ic = 0; ic < M; ic += MC) { // 3rd loop: a block of rows of C
                int64_t mc = std::min(MC, M - ic);
                pack(A + ic * K + pc, K, 1, mc, kc, MR, a.data());
                for (int64_t jr = 0; jr < nc; jr += NR) {     // 2nd loop: a panel of B
                    for (int64_t ir = 0; ir < mc; ir += MR) { // 1st loop: a panel of A
                        tile(kc, a.data() + ir * kc, b.data() + jr * kc, C + (ic + ir) * N + jc + jr, N,
                             std::min<int64_t>(MR, mc - ir), std::min<int64_t>(NR, nc - jr), pc > 0);
                    }
                }
            } // ic
        } // pc
    } // jc
}
