// Tiles of AMX: eight registers of 16 rows of 64 bytes. One instruction multiplies a tile of rows of 16 pairs of bfloat16
// with a tile of 16 rows of pairs that are neighbours down the columns, and adds the products to a tile of 16 x 16
// floats. Here tiles 0 to 3 are sums, 4 and 5 left operands, 6 and 7 right ones.
#pragma once

#if defined(__AMX_BF16__)

#include <algorithm>
#include <cstdint>

#include <immintrin.h>

#include "simd.h"

namespace mb {
namespace MB_ISA {

constexpr int kTile = 16; // rows, and units of 32 bits in a row

// Have what was written before in memory: GCC does not know that tiles and their shapes are loaded from there.
MB_INLINE void settle() { __asm__ volatile("" ::: "memory"); }

// The tiles of this thread are ours, all of them whole, and their numbers are 0, until the end of the block.
class Tiles {
  public:
    Tiles() {
        struct alignas(64) {
            uint8_t palette = 1, start = 0, reserved[14] = {};
            uint16_t bytes[16] = {}; // in a row
            uint8_t rows[16] = {};
        } shape;
        for (int i = 0; i < 8; ++i) {
            shape.bytes[i] = 4 * kTile;
            shape.rows[i] = kTile;
        }
        settle();
        _tile_loadconfig(&shape);
    }
    ~Tiles() { _tile_release(); }
    Tiles(const Tiles &) = delete;
    Tiles &operator=(const Tiles &) = delete;
};

// `lower` `right` tiles of sums, 16 x 16 each: C = or += A B over `steps` steps of 16 units. Distances between rows are in
// units, those from step to step too.
template <bool lower, bool right>
MB_INLINE void multiply_tiles(int64_t steps, const void *A, int64_t a_row, int64_t a_lower, int64_t a_step,
                              const void *B, int64_t b_row, int64_t b_step, float *C, int64_t ldc, bool add) {
    auto *a = static_cast<const float *>(A), *b = static_cast<const float *>(B);
    float *below = C + kTile * ldc;
    settle();
    if (add) {
        _tile_loadd(0, C, 4 * ldc);
        if (right) {
            _tile_loadd(1, C + kTile, 4 * ldc);
        }
        if (lower) {
            _tile_loadd(2, below, 4 * ldc);
        }
        if (lower && right) {
            _tile_loadd(3, below + kTile, 4 * ldc);
        }
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (; steps > 0; --steps, a += a_step, b += b_step) {
        _tile_loadd(6, b, 4 * b_row);
        _tile_loadd(4, a, 4 * a_row);
        _tile_dpbf16ps(0, 4, 6);
        if (right) {
            _tile_loadd(7, b + kTile, 4 * b_row);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (lower) {
            _tile_loadd(5, a + a_lower, 4 * a_row);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (lower && right) {
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, C, 4 * ldc);
    if (right) {
        _tile_stored(1, C + kTile, 4 * ldc);
    }
    if (lower) {
        _tile_stored(2, below, 4 * ldc);
    }
    if (lower && right) {
        _tile_stored(3, below + kTile, 4 * ldc);
    }
}

} // namespace MB_ISA
} // namespace mb

#endif
