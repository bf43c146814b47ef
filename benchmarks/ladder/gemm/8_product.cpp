// The product's own kernel, csrc/kernels/gemm.cpp, compiled in here so that the ladder can't drift away from it.
//
// What it adds to the rungs: any strides (so that transposes cost nothing; an A without rows in one piece is packed as
// in rung 5), blocks of equal depth, packing that copies whole vectors, one packed B for all threads, threads and
// buffers that stay, edges apart from whole tiles, and an epilogue on each strip of C while it is in cache.
#include "gemm.h"
#include "gemm_rungs.h"

void product(int64_t M, int64_t N, int64_t K, const float *A, const float *B, float *C) {
    static mb::Pool pool(thread_count);
    mb::MB_ISA::gemm(pool, M, N, K, {A, K, 1}, {B, N, 1}, C, N);
}
