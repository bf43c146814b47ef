#include "gemm.h"

#include <algorithm>
#include <array>
#include <utility>

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

// Blocks: a block of A (MC x KC) stays in L2, a block of B (KC x NC) in L3. MC is a multiple of every MR.
constexpr int64_t KC = 640, MC = 168, NC = 128 * NR;
constexpr int64_t kStrip = 4 * NR; // columns between two calls of the epilogue

// C (rows,NR) = or += sum over k of a[k] (rows of MR) outer b[k] (NR)
template <int rows, bool add>
__attribute__((noinline)) void tile(int64_t K, const float *__restrict a, const float *__restrict b, float *c,
                                    int64_t ldc) {
    vf sums[rows][NV] = {};
    for (int64_t k = 0; k < K; ++k) {
        vf right[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            right[j] = load(b + k * NR + j * VL);
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) {
                sums[i][j] += a[k * MR + i] * right[j];
            }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            float *here = c + i * ldc + j * VL;
            store(here, add ? load(here) + sums[i][j] : sums[i][j]);
        }
}

// By the number of rows, so that the last rows of a matrix cost no more than their share.
using Tile = decltype(&tile<MR, false>);
template <bool add, int... i> constexpr std::array<Tile, MR> all_tiles(std::integer_sequence<int, i...>) {
    return {tile<i + 1, add>...};
}
constexpr auto kTiles = all_tiles<false>(std::make_integer_sequence<int, MR>());
constexpr auto kAddingTiles = all_tiles<true>(std::make_integer_sequence<int, MR>());

// The tile at the right edge of C: whole, beside it, then the part that is there.
__attribute__((noinline)) void edge_tile(int64_t K, const float *a, const float *b, float *c, int64_t ldc,
                                         int64_t rows, int64_t columns, bool add) {
    alignas(64) float whole[MR * NR];
    kTiles[rows - 1](K, a, b, whole, NR);
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
            c[i * ldc + j] = (add ? c[i * ldc + j] : 0) + whole[i * NR + j];
        }
    }
}

// Lanes of two vectors exchanged, so that in blocks of `step` lanes  a0 a1  become  a0 b0,
//                                                                     b0 b1          a1 b1.
template <int step, int... lane> MB_INLINE void exchange(vf &a, vf &b, std::integer_sequence<int, lane...>) {
    vf upper = __builtin_shufflevector(a, b, (lane & step ? lane - step + VL : lane)...);
    b = __builtin_shufflevector(a, b, (lane & step ? lane + VL : lane + step)...);
    a = upper;
}

template <int step> MB_INLINE void exchange_all(vf *rows) {
#pragma GCC unroll 16
    for (int i = 0; i < VL; ++i) {
        if (!(i & step)) {
            exchange<step>(rows[i], rows[i + step], std::make_integer_sequence<int, VL>());
        }
    }
}

// VL vectors of VL floats, rows to columns
MB_INLINE void transpose(vf *rows) {
    exchange_all<1>(rows);
    exchange_all<2>(rows);
    if constexpr (VL > 4) {
        exchange_all<4>(rows);
    }
    if constexpr (VL > 8) {
        exchange_all<8>(rows);
    }
}

// VL steps of k of `width` rows, each of which lies in one piece: packed[k][width]. Where the rows do not fill whole
// vectors, what is written beyond the last is overwritten by the next k; past the end there is room for it.
template <int width> MB_INLINE void pack_square(const float *panel, int64_t stride, float *packed) {
#pragma GCC unroll 8
    for (int first = 0; first < width; first += VL) {
        constexpr int kRest = width % VL;
        int here = std::min(VL, width - first);
        vf rows[VL] = {};
#pragma GCC unroll 16
        for (int i = 0; i < VL; ++i) {
            if (i < here) {
                rows[i] = load(panel + (first + i) * stride);
            }
        }
        transpose(rows);
#pragma GCC unroll 16
        for (int k = 0; k < VL; ++k) {
            if (here == VL || width == kRest) {
                store(packed + k * width + first, rows[k]);
            } else {
                store(packed + k * width + first, rows[k], kRest);
            }
        }
    }
}

// `count` rows (or columns) of a matrix and K of its columns (rows) as panels of `width`, the last filled with zeros:
// packed[panel][k][width].
template <int width>
void pack(const float *from, int64_t stride, int64_t k_stride, int64_t count, int64_t K, float *packed) {
    for (int64_t first = 0; first < count; first += width, packed += width * K) {
        const float *panel = from + first * stride;
        int64_t here = std::min<int64_t>(width, count - first), k = 0;
        if (here < width) {
            std::fill(packed, packed + width * K, 0.0f);
        } else if (stride == 1) {
            for (; k < K; ++k) {
                std::memcpy(packed + k * width, panel + k * k_stride, width * sizeof(float));
            }
        } else if (k_stride == 1) {
            for (; k + VL <= K; k += VL) {
                pack_square<width>(panel + k, stride, packed + k * width);
            }
        }
        for (; k < K; ++k) {
            for (int64_t i = 0; i < here; ++i) {
                packed[k * width + i] = panel[i * stride + k * k_stride];
            }
        }
    }
}

} // namespace

void gemm(Pool &pool, int64_t M, int64_t N, int64_t K, View A, View B, float *C, int64_t ldc, bool add,
          Epilogue epilogue) {
    if (M == 0 || N == 0) {
        return;
    }
    if (K == 0 && !add) {
        for (int64_t i = 0; i < M; ++i) {
            std::fill(C + i * ldc, C + i * ldc + N, 0.0f);
        }
    }
    if (K == 0 && epilogue.finish) {
        epilogue.finish(epilogue.self, 0, M, 0, N);
    }
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
            while (n_rows * n_columns < 4 * pool.threads() && n_columns * 4 * NR < nc) {
                n_columns *= 2;
            }
            int64_t mc = parts(parts(M, n_rows), MR) * MR, width = parts(parts(nc, n_columns), NR) * NR;
            n_rows = parts(M, mc), n_columns = parts(nc, width);
            pool.run(n_rows * n_columns, [&](int64_t part) {
                int64_t i = part / n_columns * mc, i_end = std::min(M, i + mc);
                int64_t j = part % n_columns * width, j_end = std::min(nc, j + width);
                auto *left = static_cast<float *>(scratch(
                    Slot::left, sizeof(float) * static_cast<size_t>(parts(i_end - i, MR) * MR * depth + VL)));
                pack<MR>(A.data + i * A.row + pc * A.column, A.row, A.column, i_end - i, depth, left);
                // What is finished is still in L2 when the epilogue comes to it, strip by strip.
                for (int64_t js = j; js < j_end; js += kStrip) {
                    int64_t js_end = std::min(j_end, js + kStrip);
                    for (int64_t jr = js; jr < js_end; jr += NR) {
                        for (int64_t ir = i; ir < i_end; ir += MR) {
                            const float *a = left + (ir - i) * depth, *panel = right + jr * depth;
                            float *c = C + ir * ldc + jc + jr;
                            int64_t here = std::min<int64_t>(MR, i_end - ir);
                            if (jr + NR <= j_end) {
                                (adds ? kAddingTiles : kTiles)[here - 1](depth, a, panel, c, ldc);
                            } else {
                                edge_tile(depth, a, panel, c, ldc, here, j_end - jr, adds);
                            }
                        }
                    }
                    if (last && epilogue.finish) {
                        epilogue.finish(epilogue.self, i, i_end, jc + js, jc + js_end);
                    }
                }
            });
        }
    }
}

} // namespace MB_ISA
} // namespace mb
