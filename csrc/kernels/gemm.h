// Matrix products in the shape of BLIS (Van Zee and van de Geijn 2015): five loops around a register tile.
#pragma once

#include <cstdint>

#include "simd.h"
#include "threads.h"

// Whether there are products of bytes here. Not with AMX, whose tiles for them are not used: by count, bfloat16 is faster.
#if defined(__AVX512VNNI__) && defined(__AVX512BF16__) && !defined(__AMX_BF16__)
#define MB_BYTES
#endif

namespace mb {

// A matrix as it lies in memory, of floats or of bf16: element (i, j) is number i * row + j * column of `data`.
// Transposing is exchanging strides.
struct View {
    const void *data;
    int64_t row, column;
    bool narrow = false;           // bf16
    const float *panels = nullptr; // of a right operand: the same, laid out beforehand (lay_out)
    bool bytes = false;            // whether these panels are quantized, of 8-bit integers

    const void *at(int64_t i, int64_t j) const {
        return static_cast<const char *>(data) + (i * row + j * column) * (narrow ? 2 : 4);
    }
};

// What to do with rows [i, i_end) and columns [j, j_end) of C once they are final and still in cache. `sums` is where
// (i, j) stands, in rows of ld floats.
struct Epilogue {
    void (*finish)(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end, float *sums,
                   int64_t ld) = nullptr;
    const void *self = nullptr;
};

namespace MB_ISA {

// Columns that an epilogue gets at a time, from a multiple of it on, or those that are left.
#if defined(__aarch64__)
constexpr int64_t kStrip = 12 * VL;
#else
constexpr int64_t kStrip = 8 * VL;
#endif

// Where sums of float32 may stand before an epilogue finishes them: in a result of their own type.
inline float *place_for_sums(float *y) { return y; }
inline float *place_for_sums(bf16 *) { return nullptr; }

// C (M,N) = A (M,K) B (K,N), or C += A B. C has rows of ldc floats; where it is null, nobody but the epilogue sees the
// sums. `narrow` multiplies in bfloat16, to which floats are rounded, and adds up in float32. Bits do not depend on the
// number of threads.
void gemm(Pool &pool, int64_t M, int64_t N, int64_t K, View A, View B, float *C, int64_t ldc,
          bool add = false, Epilogue epilogue = {}, bool narrow = false);

// How many floats a right operand B (K,N) takes in the order in which gemm reads it, and B in that order. Few rows of A
// are multiplied in a fraction of the time then; bits are the same.
int64_t laid_out_size(int64_t N, int64_t K, bool narrow);
void lay_out(Pool &pool, int64_t N, int64_t K, View B, float *panels, bool narrow);

// The same for B quantized to 8-bit integers, with a scale for each column, of at most kDeepest rows; 0 floats where the
// instruction set has no products of bytes. gemm quantizes A on the way, with a scale for each row. It multiplies B itself,
// exactly, where it adds to C or where rows of A are not in one piece.
constexpr int64_t kDeepest = 1 << 16; // sums of so many products fit in 32 bits: 2^16 x 255 x 127 < 2^31
int64_t bytes_size(int64_t N, int64_t K);
void lay_out_bytes(Pool &pool, int64_t N, int64_t K, View B, float *panels);

} // namespace MB_ISA
} // namespace mb
