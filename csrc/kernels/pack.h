// How operands of a matrix product are laid out for its register tile: panels of `width` rows (or columns), for each
// step of k the `width` numbers side by side; for AMX the left ones otherwise (pack_tiles). A part of gemm.cpp.
#pragma once

#include <algorithm>

#include "amx.h"
#include "loops.h"
#include "pairs.h"
#include "threads.h"
#include "turn.h"

namespace mb {
namespace MB_ISA {
namespace {

// A tile is made of units of 32 bits, which hold kDepth neighbours along k. Each way of multiplying has units of its own.

struct Exact { // floats as they are
    static constexpr int64_t kDepth = 1;
    static constexpr int64_t kStep = 1;    // units at a time: K is filled up to a multiple with zeros
    static constexpr bool kInPlace = true; // a row of a matrix in its own type is a row of units

    // Units of VL columns, from their elements at k (and k + 1, where a unit has two).
    template <typename X> static MB_INLINE vf unit(vf first, vf) { return first; }

    // VL units, or the first of them, from `n` elements of one row.
    template <typename X> static MB_INLINE vf units(const X *p, int64_t n) { return load_some(p, (int)n); }

    static MB_INLINE vf multiply_add(vf sums, const float *left, vf right) { return sums + *left * right; }
};

struct Rounded : Exact { // floats of the precision of bfloat16, where there is no instruction for pairs
    static constexpr bool kInPlace = false;

    template <typename X> static MB_INLINE vf unit(vf first, vf) {
        return sizeof(X) == 2 ? first : (vf)rounded_bits(first);
    }
    template <typename X> static MB_INLINE vf units(const X *p, int64_t n) {
        return unit<X>(load_some(p, (int)n), vf{});
    }
};

#if defined(__AVX512BF16__)
struct Pairs { // two bfloat16, for the instruction that multiplies and adds both
    static constexpr int64_t kDepth = 2;
    static constexpr int64_t kStep = 1;
    static constexpr bool kInPlace = true;

    template <typename X> static MB_INLINE vf unit(vf first, vf second) {
        if constexpr (sizeof(X) == 2) {
            return (vf)(((vu)first >> 16) | (vu)second); // the lower halves of both are 0
        }
        return paired(rounded(first, second));
    }
    static MB_INLINE vf units(const float *p, int64_t n) {
        vf first = load_some(p, (int)smaller(VL, n));
        return (vf)rounded(first, n > VL ? load_some(p + VL, (int)smaller(VL, n - VL)) : vf{});
    }
    static MB_INLINE vf units(const bf16 *p, int64_t n) {
        if (n >= 2 * VL) {
            return load((const float *)p);
        }
        bf16 whole[2 * VL] = {};
        std::memcpy(whole, p, sizeof(bf16) * (size_t)n);
        return load((const float *)whole);
    }

    static MB_INLINE vf multiply_add(vf sums, const float *left, vf right) {
        Pair both;
        std::memcpy(&both, left, sizeof both);
        return add_product(sums, both, right);
    }
};
#if defined(__AMX_BF16__)
struct Narrow : Pairs { // as many as a row of a tile has
    static constexpr int64_t kStep = kTile;
    static constexpr bool kInPlace = false;
};
#else
using Narrow = Pairs;
#endif
#else
using Narrow = Rounded;
#endif

// The first n of VL numbers that lie `stride` apart.
template <typename X> MB_INLINE vf load_apart(const X *p, int64_t stride, int64_t n) {
    if (stride == 1) {
        return load_some(p, (int)n);
    }
    vf v = {};
    for (int64_t i = 0; i < n; ++i) {
        v[i] = load(p + i * stride, 1)[0];
    }
    return v;
}

// A vector of which the panel has `n` units left. What is written beyond a panel narrower than a vector is overwritten
// by the next k; past the end there is room for it, unless `exact`.
template <int width> MB_INLINE void store_units(float *p, vf units, int n, bool exact = false) {
    if (n >= VL || (width < VL && !exact)) {
        store(p, units);
    } else {
        store(p, units, n % VL); // which is n; GCC 12 warns of more than VL otherwise
    }
}

// VL units along k (fewer where !whole: `left` elements are left) of `count` rows, each of which lies in one piece.
template <int width, typename How, bool whole, typename X>
MB_INLINE void pack_square(const X *panel, int64_t stride, int64_t count, int64_t left, float *packed) {
    constexpr int64_t kElements = VL * How::kDepth;
    int64_t steps = whole ? VL : parts(left, How::kDepth);
#pragma GCC unroll 8
    for (int first = 0; first < width; first += VL) {
        int here = std::min(VL, width - first); // the last vector may hold fewer than VL
        vf rows[VL] = {};
#pragma GCC unroll 16
        for (int i = 0; i < VL; ++i) {
            if (i < here) {
                const X *row = panel + smaller(first + i, count - 1) * stride;
                rows[i] = How::units(row, whole ? kElements : left);
            }
        }
        turn(rows);
#pragma GCC unroll 16
        for (int k = 0; k < VL; ++k) {
            if (whole || k < steps) {
                store_units<width>(packed + k * width + first, rows[k], here);
            }
        }
    }
}

// One step of k of `count` columns that lie side by side.
template <int width, typename How, typename X>
MB_INLINE void pack_row(const X *first, const X *second, int64_t count, float *packed, bool exact) {
#if defined(__AVX512BF16__)
    if constexpr (How::kDepth == 2 && sizeof(X) == 2 && width == 2 * VL) {
        if (count == width && second) {
            vf upper = load((const float *)first), lower = load((const float *)second);
            store(packed, interleaved(upper, lower, 0));
            store(packed + VL, interleaved(upper, lower, VL));
            return;
        }
    }
#endif
#pragma GCC unroll 8
    for (int c = 0; c < width; c += VL) {
        int n = (int)smaller(std::min(VL, width - c), count - c);
        if (n > 0) {
            vf below = second ? load_some(second + c, n) : vf{};
            store_units<width>(packed + c, How::template unit<X>(load_some(first + c, n), below), width - c,
                               exact);
        }
    }
}

// `count` rows (or columns) of a matrix and K of its columns (rows) as panels: packed[panel][k][width]. What stands in
// the last panel behind the last row is some number or other, which no result contains.
template <int width, typename How, typename X>
void pack(const void *data, int64_t stride, int64_t k_stride, int64_t count, int64_t K, float *packed) {
    constexpr int64_t kElements = VL * How::kDepth;
    auto *from = static_cast<const X *>(data);
    int64_t units = parts(K, How::kDepth), filled = whole(units, How::kStep);
    for (int64_t i = 0; i < count && units < filled; i += width) {
        std::memset(packed + i * filled + width * units, 0,
                    sizeof(float) * (size_t)(width * (filled - units)));
    }
    if (stride == 1) { // all panels at a time: memory is read along its rows
        for (int64_t u = 0; u < units; ++u) {
            const X *first = from + u * How::kDepth * k_stride;
            const X *second = How::kDepth > 1 && 2 * u + 1 < K ? first + k_stride : nullptr;
            const bool inside = u * width + whole(width, VL) <= units * width; // of its panel, whole vectors
            for (int64_t i = 0; i < count; i += width) {
                float *to = packed + i * filled + u * width;
                const X *below = second ? second + i : nullptr;
                if (i + width <= count && inside) {
                    pack_row<width, How>(first + i, below, width, to, false);
                } else {
                    pack_row<width, How>(first + i, below, smaller(width, count - i), to, !inside);
                }
            }
        }
        return;
    }
    for (; count > 0; count -= width, from += width * stride, packed += width * filled) {
        int64_t here = smaller(width, count);
        if (k_stride == 1) {
            int64_t k = 0;
            for (; k + kElements <= K; k += kElements) {
                pack_square<width, How, true>(from + k, stride, here, K - k,
                                              packed + k / How::kDepth * width);
            }
            if (k < K) {
                pack_square<width, How, false>(from + k, stride, here, K - k,
                                               packed + k / How::kDepth * width);
            }
            continue;
        }
        for (int64_t u = 0; u < units; ++u) { // a matrix with both strides: one by one
            const X *first = from + u * How::kDepth * k_stride;
            const X *second = How::kDepth > 1 && 2 * u + 1 < K ? first + k_stride : nullptr;
            for (int64_t i = 0; i < here; ++i) {
                vf below = second ? load(second + i * stride, 1) : vf{};
                store(packed + u * width + i, How::template unit<X>(load(first + i * stride, 1), below), 1);
            }
        }
    }
}

#if defined(__AMX_BF16__)
// A square of 16 rows (of which `n` count) and 16 units along k (of which there are K elements), k down the rows of memory.
template <typename How, typename X>
MB_INLINE void turn_square(const X *first, int64_t stride, int64_t k_stride, int64_t n, int64_t K,
                           float *packed) {
    vf square[kTile];
    if (stride == 1 && n == kTile && K >= kTile * How::kDepth) {
#pragma GCC unroll 16
        for (int u = 0; u < kTile; ++u) {
            const X *row = first + 2 * u * k_stride;
            if constexpr (sizeof(X) == 2) {
                square[u] = (vf)(load_bits(row) | load_bits(row + k_stride) << 16);
            } else {
                square[u] = How::template unit<X>(load(row), load(row + k_stride));
            }
        }
    } else {
        for (int64_t u = 0; u < kTile; ++u) {
            const X *row = first + 2 * u * k_stride;
            vf upper = 2 * u < K ? load_apart(row, stride, n) : vf{};
            square[u] =
                How::template unit<X>(upper, 2 * u + 1 < K ? load_apart(row + k_stride, stride, n) : vf{});
        }
    }
    turn(square);
#pragma GCC unroll 16
    for (int r = 0; r < kTile; ++r) {
        store(packed + r * kTile, square[r]);
    }
}

// `count` rows and K of their columns as tiles of AMX: packed[panel][step of 16 units][row][unit]. Memory is read along
// its rows.
template <int width, typename How, typename X>
void pack_tiles(const void *data, int64_t stride, int64_t k_stride, int64_t count, int64_t K, float *packed) {
    constexpr int64_t kElements = kTile * How::kDepth;
    auto *from = static_cast<const X *>(data);
    int64_t panel = width * kTile * parts(K, kElements);
    if (k_stride == 1) {
        for (int64_t i = 0; i < count; ++i) {
            float *to = packed + i / width * panel + i % width * kTile;
            for (int64_t k = 0; k < K; k += kElements, to += width * kTile) {
                store(to, How::units(from + i * stride + k, smaller(kElements, K - k)));
            }
        }
        return;
    }
    for (int64_t k = 0; k < K; k += kElements, packed += width * kTile) {
        for (int64_t i = 0; i < count; i += kTile) {
            turn_square<How>(from + i * stride + k * k_stride, stride, k_stride, smaller(kTile, count - i),
                             K - k, packed + i / width * panel + i % width * kTile);
        }
    }
}
#endif

} // namespace
} // namespace MB_ISA
} // namespace mb
