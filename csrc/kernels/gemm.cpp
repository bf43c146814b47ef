#include "gemm.h"

#include <algorithm>

namespace mb {
namespace MB_ISA {
namespace {

// The register tile: MR x NR sums, NV vectors of B, one broadcast of A. 14 x 2 + 2 + 1 of 32 registers, and
// 6 x 2 + 2 + 1 of 16.
#if defined(__AVX512F__)
constexpr int MR = 14, NV = 2;
#elif defined(__aarch64__)
constexpr int MR = 8, NV = 3;
#else
constexpr int MR = 6, NV = 2;
#endif
constexpr int NR = NV * VL;

// Blocks: a panel of B (KC x NR) stays in L1, a block of A (MC x KC) in L2, a block of B (KC x NC) in L3.
constexpr int64_t KC = 384, MC = 12 * MR, NC = 128 * NR;
constexpr int64_t kStrip = 4 * NR; // columns between two calls of the epilogue

// C (MR,NR) = or += sum over k of a[k] (MR) outer b[k] (NR)
template <bool add>
MB_INLINE void tile(int64_t K, const float *__restrict a, const float *__restrict b, float *c, int64_t ldc) {
    vf sums[MR][NV] = {};
    for (int64_t k = 0; k < K; ++k) {
        vf right[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j)
            right[j] = load(b + k * NR + j * VL);
#pragma GCC unroll 16
        for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j)
                sums[i][j] += a[k * MR + i] * right[j];
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            float *here = c + i * ldc + j * VL;
            store(here, add ? load(here) + sums[i][j] : sums[i][j]);
        }
}

// The tile at the edge of C: whole, beside it, then the part that is there.
__attribute__((noinline)) void edge_tile(int64_t K, const float *a, const float *b, float *c, int64_t ldc,
                                         int64_t rows, int64_t columns, bool add) {
    alignas(64) float whole[MR * NR];
    tile<false>(K, a, b, whole, NR);
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
            c[i * ldc + j] = (add ? c[i * ldc + j] : 0) + whole[i * NR + j];
}

__attribute__((noinline)) void full_tile(int64_t K, const float *a, const float *b, float *c, int64_t ldc,
                                         bool add) {
    add ? tile<true>(K, a, b, c, ldc) : tile<false>(K, a, b, c, ldc);
}

// `count` rows (or columns) of a matrix and K of its columns (rows) as panels of `width`, the last filled with zeros:
// packed[panel][k][width].
template <int width>
void pack(const float *from, int64_t stride, int64_t k_stride, int64_t count, int64_t K, float *packed) {
    for (int64_t first = 0; first < count; first += width, packed += width * K) {
        const float *panel = from + first * stride;
        int64_t here = std::min<int64_t>(width, count - first);
        if (here < width)
            std::fill(packed, packed + width * K, 0.0f);
        if (stride == 1 && here == width) {
            for (int64_t k = 0; k < K; ++k)
                std::memcpy(packed + k * width, panel + k * k_stride, width * sizeof(float));
        } else {
            // Along k in small steps: reads stay within a few lines, and so do writes.
            constexpr int64_t kStep = 16;
            for (int64_t k = 0; k < K; k += kStep) {
                int64_t k_end = std::min(K, k + kStep);
                for (int64_t i = 0; i < here; ++i)
                    for (int64_t kk = k; kk < k_end; ++kk)
                        packed[kk * width + i] = panel[i * stride + kk * k_stride];
            }
        }
    }
}

} // namespace

void gemm(Pool &pool, int64_t M, int64_t N, int64_t K, View A, View B, float *C, int64_t ldc, bool add,
          Epilogue epilogue) {
    if (M == 0 || N == 0)
        return;
    if (K == 0 && !add)
        for (int64_t i = 0; i < M; ++i)
            std::fill(C + i * ldc, C + i * ldc + N, 0.0f);
    if (K == 0 && epilogue.finish)
        epilogue.finish(epilogue.self, 0, M, 0, N);
    int64_t n_k = parts(K, KC), kc = n_k ? parts(K, n_k) : 0; // blocks of equal depth
    for (int64_t jc = 0; jc < N; jc += NC) {
        int64_t nc = std::min(NC, N - jc);
        for (int64_t pc = 0; pc < K; pc += kc) {
            int64_t depth = std::min(kc, K - pc);
            bool last = pc + depth == K, adds = add || pc > 0;
            auto *right = static_cast<float *>(
                scratch(Slot::right, sizeof(float) * static_cast<size_t>(parts(nc, NR) * NR * depth)));
            const float *b = B.data + pc * B.row + jc * B.column;
            pool.run(parts(nc, 8 * NR), [&](int64_t part) {
                int64_t j = part * 8 * NR;
                pack<NR>(b + j * B.column, B.column, B.row, std::min<int64_t>(8 * NR, nc - j), depth,
                         right + j * depth);
            });
            // Blocks of rows, and where those are too few for all threads to be busy to the end, columns too.
            int64_t n_rows = parts(M, MC), n_columns = 1;
            while (n_rows * n_columns < 4 * pool.threads() && n_columns * 4 * NR < nc)
                n_columns *= 2;
            int64_t mc = parts(parts(M, n_rows), MR) * MR, width = parts(parts(nc, n_columns), NR) * NR;
            n_rows = parts(M, mc), n_columns = parts(nc, width);
            pool.run(n_rows * n_columns, [&](int64_t part) {
                int64_t i = part / n_columns * mc, i_end = std::min(M, i + mc);
                int64_t j = part % n_columns * width, j_end = std::min(nc, j + width);
                auto *left = static_cast<float *>(scratch(
                    Slot::left, sizeof(float) * static_cast<size_t>(parts(i_end - i, MR) * MR * depth)));
                pack<MR>(A.data + i * A.row + pc * A.column, A.row, A.column, i_end - i, depth, left);
                // What is finished is still in L2 when the epilogue comes to it, strip by strip.
                for (int64_t js = j; js < j_end; js += kStrip) {
                    int64_t js_end = std::min(j_end, js + kStrip);
                    for (int64_t jr = js; jr < js_end; jr += NR)
                        for (int64_t ir = i; ir < i_end; ir += MR) {
                            const float *a = left + (ir - i) * depth, *panel = right + jr * depth;
                            float *c = C + ir * ldc + jc + jr;
                            if (ir + MR <= i_end && jr + NR <= j_end)
                                full_tile(depth, a, panel, c, ldc, adds);
                            else
                                edge_tile(depth, a, panel, c, ldc, std::min<int64_t>(MR, i_end - ir),
                                          std::min<int64_t>(NR, j_end - jr), adds);
                        }
                    if (last && epilogue.finish)
                        epilogue.finish(epilogue.self, i, i_end, jc + js, jc + js_end);
                }
            });
        }
    }
}

} // namespace MB_ISA
} // namespace mb
