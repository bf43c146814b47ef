// The ladder of LayerNorm where BERT has it, at the end of a sublayer: y = LayerNorm(x + dropout(out + bias)).
#pragma once

#include <cstdint>

#include "random.h"

// Rows x, out, sum, y (T,H); bias, gamma, beta (H,). Backward needs the sum x + dropout(out + bias), and of each row its
// mean and inverse = 1 / sqrt(variance + eps). `drop` says which elements are dropped: those of which
// hash(row, column / 2) has a half below drop.threshold (csrc/kernels/random.h).
struct Norm {
    int64_t T, H;
    const float *x, *out, *bias, *gamma, *beta;
    float eps;
    mb::Drop drop;
    float *sum, *y, *mean, *inverse;
};

using LayerNorm = void(const Norm &n);

LayerNorm naive, row_by_row, vectors, fused, one_pass, product;

// One element's dropout, the slow way.
inline bool survives(const mb::Drop &drop, mb::MB_ISA::Key row, int64_t column) {
    using namespace mb::MB_ISA;
    uint32_t x = mix(row.first + static_cast<uint32_t>(column / 2) * kGolden, row.second);
    return (column % 2 ? x >> 16 : x & 0xFFFF) >= drop.threshold;
}

inline int thread_count = 1; // of the last
