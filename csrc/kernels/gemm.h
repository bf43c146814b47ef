// Matrix products in the shape of BLIS (Van Zee and van de Geijn 2015): five loops around a register tile.
#pragma once

#include <cstdint>

#include "simd.h"
#include "threads.h"

namespace mb {

// A matrix as it lies in memory: element (i, j) at data[i * row + j * column]. Transposing is exchanging strides.
struct View {
    const float *data;
    int64_t row, column;
};

// What to do with rows [i, i_end) and columns [j, j_end) of C once they are final and still in cache.
struct Epilogue {
    void (*finish)(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end) = nullptr;
    const void *self = nullptr;
};

namespace MB_ISA {

// C (M,N) = A (M,K) B (K,N), or C += A B. C has rows of ldc floats. Bits do not depend on the number of threads.
void gemm(Pool &pool, int64_t M, int64_t N, int64_t K, View A, View B, float *C, int64_t ldc,
          bool add = false, Epilogue epilogue = {});

} // namespace MB_ISA
} // namespace mb
