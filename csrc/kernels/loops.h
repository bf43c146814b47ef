// Loops over elements and rows, cut into parts by the shapes alone.
#pragma once

#include <cstdint>

#include "random.h"
#include "threads.h"

namespace mb {
namespace MB_ISA {

constexpr int64_t kChunk = 1 << 14; // elements that one thread takes at a time

MB_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
MB_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// visit(begin, end) for pieces of [0, n), in parallel
template <typename Visit> void each_piece(Pool &pool, int64_t n, int64_t size, Visit visit) {
    pool.run(parts(n, size), [&](int64_t part) { visit(part * size, smaller(n, (part + 1) * size)); });
}

// visit(row) for T rows of N, in parallel
template <typename Visit> void each_row(Pool &pool, int64_t T, int64_t N, Visit visit) {
    each_piece(pool, T, larger(1, kChunk / larger(1, N)), [&](int64_t t, int64_t end) {
        for (; t < end; ++t) {
            visit(t);
        }
    });
}

// visit(i, m) for [begin, end), m of VL elements at a time
template <typename Visit> MB_INLINE void each_vector(int64_t begin, int64_t end, Visit visit) {
    for (; begin + VL <= end; begin += VL) {
        visit(begin, VL);
    }
    if (begin < end) {
        visit(begin, (int)(end - begin));
    }
}

// X: float or bf16
template <typename X> MB_INLINE vf load_some(const X *p, int m) { return m == VL ? load(p) : load(p, m); }
template <typename X> MB_INLINE void store_some(X *p, vf v, int m) { m == VL ? store(p, v) : store(p, v, m); }

// Prefetch n elements for writing.
template <typename X> MB_INLINE void ask_for(const X *p, int64_t n) {
    constexpr int64_t kLine = 64 / sizeof(X);
    for (int64_t i = 0; i < n; i += kLine) {
        __builtin_prefetch(p + i, 1);
    }
}

// What is done to a row of N, two vectors at a time as one hash serves them: visit(half, c, m, kept) for m
// columns from c on. `kept` means something where `drops`.
template <bool drops, typename Visit>
MB_INLINE void each_pair(int64_t N, Key key, uint32_t threshold, Visit visit) {
    Kept kept[2] = {};
    int64_t c = 0;
    for (; c + 2 * VL <= N; c += 2 * VL) {
        if (drops) {
            keep(key, c, threshold, &kept[0], &kept[1]);
        }
        visit(0, c, VL, kept[0]);
        visit(1, c + VL, VL, kept[1]);
    }
    if (c == N) {
        return;
    }
    if (drops) {
        keep(key, c, threshold, &kept[0], &kept[1]);
    }
    visit(0, c, (int)smaller(VL, N - c), kept[0]);
    if (c + VL < N) {
        visit(1, c + VL, (int)(N - c - VL), kept[1]);
    }
}

// sums (N,) = or += the rows of partial (count,N) in order
inline void add_partial_sums(Pool &pool, int64_t count, int64_t N, const float *partial, float *sums,
                             bool add) {
    each_piece(pool, N, 512, [&](int64_t begin, int64_t end) {
        each_vector(begin, end, [&](int64_t c, int m) {
            vf total = {};
            for (int64_t part = 0; part < count; ++part) {
                total += load_some(partial + part * N + c, m);
            }
            store_some(sums + c, add ? load_some(sums + c, m) + total : total, m);
        });
    });
}

} // namespace MB_ISA
} // namespace mb
