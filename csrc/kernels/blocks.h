// Matrix products with what comes right behind them, done while a strip of the result is still in cache.
#pragma once

#include "gemm.h"

namespace mb {
namespace MB_ISA {

// y (M,N) = x (M,K) weight (K,N) + bias (N); ldy floats between rows of y. Without a bias where it is null.
void linear(Pool &pool, int64_t M, int64_t N, int64_t K, View x, View weight, const float *bias, float *y,
            int64_t ldy);

} // namespace MB_ISA
} // namespace mb
