// Products of matrices that lie in cache, such as those of one head of attention: operands are read where they are,
// without the packing that gemm.h does for large ones. Sums are float32, rows in one piece, any number of rows.
#pragma once

#include <algorithm>
#include <type_traits>

#include "amx.h"
#include "loops.h"
#include "pairs.h"
#include "simd.h"
#include "threads.h"
#include "turn.h"

namespace mb {
namespace MB_ISA {

template <typename X> struct Rows {
    const X *data;
    int64_t stride; // elements from row to row
    Rows from(int64_t row) const { return {data + row * stride, stride}; }
};

template <typename X> struct OutRows {
    X *data;
    int64_t stride;
    OutRows from(int64_t row) const { return {data + row * stride, stride}; }
    operator Rows<X>() const { return {data, stride}; }
};

// Rows, and operands along K, that a product of E takes at a time. What is no whole number of them is filled up: along K
// with zeros, rows with anything.
template <typename E> constexpr int64_t kRound = 1;

// What has to stand while products of E are computed.
template <typename E> struct Registers {};

#if defined(__AMX_BF16__)
template <> inline constexpr int64_t kRound<Pair> = kTile;
template <> struct Registers<Pair> : Tiles {};
#endif

template <typename E> constexpr int64_t filled(int64_t n) { return whole(n, kRound<E>); }

// The register tile: up to kTileVectors vectors of columns; kTileRows[vectors] rows then fill the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileVectors = 4;
constexpr int kTileRows[] = {0, 8, 8, 8, 6};
#else
constexpr int kTileVectors = 2;
constexpr int kTileRows[] = {0, 8, 6};
#endif

// C (R, NV VL) = or += A B with B (K, NV VL), and A (R,K), or A^T (K,R) where `turned`; K counts floats, or pairs. Every
// element of C is one chain of additions in the order of k, however the matrix is cut into tiles and K into blocks: bits
// do not depend on that.
template <bool turned, int NV, int R, typename E>
__attribute__((noinline)) void tile(int64_t K, Rows<E> A, Rows<E> B, OutRows<float> C, bool add) {
    vf sums[R][NV];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            sums[r][j] = add ? load(C.data + r * C.stride + j * VL) : vf{};
        }
    for (int64_t k = 0; k < K; ++k) {
        vf right[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            right[j] = load(B.data + k * B.stride + j * VL);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) {
                sums[r][j] =
                    add_product(sums[r][j], A.data[turned ? k * A.stride + r : r * A.stride + k], right[j]);
            }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            store(C.data + r * C.stride + j * VL, sums[r][j]);
        }
}

template <bool turned, int NV, int R, typename E>
MB_INLINE void tile_of(int64_t rows, int64_t K, Rows<E> A, Rows<E> B, OutRows<float> C, bool add) {
    if (rows >= R) {
        tile<turned, NV, R>(K, A, B, C, add);
    } else if constexpr (R > 1) {
        tile_of<turned, NV, R - 1>(rows, K, A, B, C, add);
    }
}

template <bool turned, int NV, typename E>
MB_INLINE void columns(int64_t M, int64_t K, Rows<E> A, Rows<E> B, OutRows<float> C, bool add) {
    constexpr int R = kTileRows[NV];
    for (int64_t groups = parts(M, R), i = 0; groups > 0; --groups) {
        int64_t rows = parts(M - i, groups); // tiles of equal height
        tile_of<turned, NV, R>(rows, K, turned ? Rows<E>{A.data + i, A.stride} : A.from(i), B, C.from(i),
                               add);
        i += rows;
    }
}

// C (M,N) = or += A (M,K) B (K,N), or A^T (K,M) in the place of A. N is a multiple of VL; K counts floats, or pairs.
template <bool turned = false, typename E>
void product(int64_t M, int64_t N, int64_t K, Rows<E> A, Rows<E> B, OutRows<float> C, bool add = false) {
    int64_t vectors = N / VL;
    for (int64_t groups = parts(vectors, kTileVectors); groups > 0; --groups) {
        int64_t here = parts(vectors, groups); // columns of equal width
        if (here == 1) {
            columns<turned, 1>(M, K, A, B, C, add);
        } else if (here == 2) {
            columns<turned, 2>(M, K, A, B, C, add);
        } else if constexpr (kTileVectors > 2) {
            here == 3 ? columns<turned, 3>(M, K, A, B, C, add) : columns<turned, 4>(M, K, A, B, C, add);
        }
        vectors -= here, B.data += here * VL, C.data += here * VL;
    }
}

// x (n,D), a left side in whole steps: x itself, or a copy in `space`.
template <typename E> Rows<E> filled_rows(Rows<E> x, int64_t n, int64_t D, float *space) {
    int64_t width = filled<E>(D);
    if (n == filled<E>(n) && D == width) {
        return x;
    }
    auto *to = reinterpret_cast<E *>(space);
    for (int64_t i = 0; i < n; ++i) {
        each_vector(0, D,
                    [&](int64_t d, int m) { store(to + i * width + d, load_some(x.from(i).data + d, m)); });
    }
    return {to, width};
}
template <typename E> constexpr int64_t filled_space(int64_t n, int64_t D) {
    return kRound<E> == 1 ? 0 : filled<E>(n) * filled<E>(D);
}

// x (n,D) -> scale x^T (D,width), n > 0, in whole steps; pairs are turned as they are. Columns behind n repeat the last
// row: nothing that counts may read them.
template <typename E> void turn_rows(Rows<E> x, int64_t n, int64_t D, float scale, E *to, int64_t width) {
    for (int64_t i = 0; i < width; i += VL, to += VL) {
        const E *rows[VL];
        for (int r = 0; r < VL; ++r) {
            rows[r] = x.data + std::min(i + r, n - 1) * x.stride;
        }
        vf block[VL];
        int64_t d = 0;
        for (; d + VL <= D; d += VL) {
#pragma GCC unroll 16
            for (int r = 0; r < VL; ++r) {
                block[r] = scaled<E>(load(rows[r] + d), scale);
            }
            turn(block);
#pragma GCC unroll 16
            for (int r = 0; r < VL; ++r) {
                store(to + (d + r) * width, block[r]);
            }
        }
        if (d < D) {
#pragma GCC unroll 16
            for (int r = 0; r < VL; ++r) {
                block[r] = scaled<E>(load(rows[r] + d, D - d), scale);
            }
            turn(block);
            for (int64_t r = 0; r < filled<E>(D) - d; ++r) {
                store(to + (d + r) * width, block[r]);
            }
        }
    }
}

#if defined(__AMX_BF16__)
// The same products with tiles. M and K are filled up, N is a multiple of kTile.
inline void product_of_tiles(int64_t M, int64_t N, int64_t K, Rows<Pair> A, Rows<Pair> B, OutRows<float> C,
                             bool add) {
    constexpr decltype(&multiply_tiles<false, false>) forms[2][2] = {
        {multiply_tiles<false, false>, multiply_tiles<false, true>},
        {multiply_tiles<true, false>, multiply_tiles<true, true>}};
    for (int64_t j = 0; j < N; j += 2 * kTile) {
        for (int64_t i = 0; i < M; i += 2 * kTile) {
            auto *multiply = forms[i + kTile < M][j + kTile < N];
            multiply(K / kTile, A.from(i).data, A.stride, kTile * A.stride, kTile, B.data + j, B.stride,
                     kTile * B.stride, C.from(i).data + j, C.stride, add);
        }
    }
}

template <bool turned = false>
void product(int64_t M, int64_t N, int64_t K, Rows<Pair> A, Rows<Pair> B, OutRows<float> C,
             bool add = false) {
    M = filled<Pair>(M), K = filled<Pair>(K);
    if constexpr (!turned) {
        return product_of_tiles(M, N, K, A, B, C, add);
    }
    constexpr int64_t kRows = 2 * kTile, kDepth = 2 * kTile; // of A^T at a time
    alignas(64) Pair part[kRows * kDepth];
    for (int64_t k = 0; k < K; k += kDepth) {
        for (int64_t i = 0; i < M; i += kRows) {
            int64_t rows = std::min(kRows, M - i), depth = std::min(kDepth, K - k);
            turn_rows(Rows<Pair>{A.from(k).data + i, A.stride}, depth, rows, 1, part, depth);
            product_of_tiles(rows, N, depth, {part, depth}, B.from(k), C.from(i), add || k > 0);
        }
    }
}
#endif

// x y (n,D) -> sum_d x y (width); behind n as above
template <typename X>
void row_products(Rows<X> x, Rows<X> y, int64_t n, int64_t D, float *sums, int64_t width) {
    for (int64_t i = 0; i < width; i += VL) {
        vf block[VL];
#pragma GCC unroll 16
        for (int r = 0; r < VL; ++r) {
            int64_t row = std::min(i + r, n - 1);
            const X *a = x.from(row).data, *b = y.from(row).data;
            vf sum = {};
            int64_t d = 0;
            for (; d + VL <= D; d += VL) {
                sum += load(a + d) * load(b + d);
            }
            block[r] = d < D ? sum + load(a + d, D - d) * load(b + d, D - d) : sum;
        }
        turn(block);
        vf total = block[0];
#pragma GCC unroll 16
        for (int r = 1; r < VL; ++r) {
            total += block[r];
        }
        store(sums + i, total);
    }
}

#if defined(__AVX512BF16__)
// x (n,D) -> pairs of neighbours in a row (n,D/2): x itself, or a copy in `space` with zeros behind each row where D or
// the distance of rows is odd.
inline Rows<Pair> pairs_along(Rows<bf16> x, int64_t n, int64_t D, float *space) {
    if (D % 2 == 0 && x.stride % 2 == 0) {
        return {reinterpret_cast<const Pair *>(x.data), x.stride / 2};
    }
    int64_t width = whole(D, 2);
    auto *to = reinterpret_cast<bf16 *>(space);
    for (int64_t i = 0; i < n; ++i) {
        std::memcpy(to + i * width, x.from(i).data, sizeof(bf16) * static_cast<size_t>(D));
        if (D < width) {
            to[i * width + D] = {0};
        }
    }
    return {reinterpret_cast<const Pair *>(to), width / 2};
}

// x as above -> pairs of neighbours in a column (n/2,width), zeros behind n and D
inline Rows<Pair> pairs_down(Rows<Pair> x, int64_t n, int64_t D, float *space) {
    int64_t width = whole(D, VL), words = parts(D, 2);
    auto *to = reinterpret_cast<Pair *>(space);
    for (int64_t i = 0; i < n; i += 2) {
        const Pair *even = x.from(i).data, *odd = even + x.stride;
        Pair *row = to + i / 2 * width;
        for (int64_t w = 0; w < words; w += VL) {
            int64_t m = std::min<int64_t>(VL, words - w);
            vf a = load(even + w, m), b = i + 1 < n ? load(odd + w, m) : vf{};
            store(row + 2 * w, interleaved(a, b, 0));
            if (2 * w + VL < width) {
                store(row + 2 * w + VL, interleaved(a, b, VL));
            }
        }
    }
    std::fill(to + parts(n, 2) * width, to + filled<Pair>(parts(n, 2)) * width, Pair{});
    return {to, width};
}
#endif

// x (n,D) as floats in rows that may be read in whole vectors: x itself, or a copy in `space` with zeros behind each
// row.
template <typename X> Rows<float> widened(Rows<X> x, int64_t n, int64_t D, float *space) {
    int64_t width = whole(D, VL);
    if constexpr (std::is_same_v<X, float>) {
        if (D == width) {
            return x;
        }
    }
    for (int64_t i = 0; i < n; ++i) {
        each_vector(0, D, [&](int64_t d, int m) {
            store(space + i * width + d, load_some(x.data + i * x.stride + d, m));
        });
    }
    return {space, width};
}

// The way back: the first D columns of x (n,..) to y, rounded where y is bfloat16.
template <typename X> void narrow(Rows<float> x, int64_t n, int64_t D, OutRows<X> y) {
    for (int64_t i = 0; i < n; ++i) {
        const float *from = x.data + i * x.stride;
        X *to = y.data + i * y.stride;
        each_vector(0, D, [&](int64_t d, int m) { store_some(to + d, load_some(from + d, m), m); });
    }
}

// The two sides of a product of activations. On the left they are read operand by operand, K along the rows; on the right
// in whole vectors, K down the rows. Each takes `space` of so many floats, where it cannot read x as it is.
template <typename X> constexpr int64_t left_space(int64_t n, int64_t D) {
    return std::is_same_v<X, float> ? 0 : n * whole(D, VL) / kTogether<Operand<X>>;
}
template <typename X> constexpr int64_t right_space(int64_t n, int64_t D) {
    int64_t width = whole(D, VL);
    return kTogether<Operand<X>> == 2               ? filled<Operand<X>>(parts(n, 2)) * width
           : std::is_same_v<X, float> && D != width ? n * width
                                                    : 0;
}

// x (n,D) -> (n,D), floats or pairs
template <typename X> Rows<Operand<X>> left_side(Rows<X> x, int64_t n, int64_t D, float *space) {
    if constexpr (std::is_same_v<X, float>) {
        return x;
    } else if constexpr (kTogether<Operand<X>> == 1) {
        return widened(x, n, D, space);
    } else {
        return pairs_along(x, n, D, space);
    }
}

// x (n,D), of which `left` is the other side -> (n,whole(D,VL)), floats or pairs
template <typename X, typename E>
Rows<E> right_side(Rows<X> x, Rows<E> left, int64_t n, int64_t D, float *space) {
    if constexpr (std::is_same_v<X, float>) {
        return widened(x, n, D, space);
    } else if constexpr (kTogether<E> == 1) {
        return left;
    } else {
        return pairs_down(left, n, D, space);
    }
}

} // namespace MB_ISA
} // namespace mb
