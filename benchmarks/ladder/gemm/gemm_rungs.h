// The ladder of the matrix product: made fast in steps. Every numbered file is complete and changes one thing.
#pragma once

#include <cstdint>

// C (M,N) = A (M,K) B (K,N), rows in one piece, of any size.
using Gemm = void(int64_t M, int64_t N, int64_t K, const float *A, const float *B, float *C);

Gemm naive, loop_order, cache_blocks, register_tile, packed, in_place, threads, product;

inline int thread_count = 1; // of the last two
