// Matrix products with what comes right behind them, done while a strip of the result is still in cache.
#pragma once

#include "gemm.h"

namespace mb {
namespace MB_ISA {

// y (M,N) = x (M,K) weight (K,N) + bias (N); ldy floats between rows of y. Without a bias where it is null.
void linear(Pool &pool, int64_t M, int64_t N, int64_t K, View x, View weight, const float *bias, float *y,
            int64_t ldy);

// u (M,N) = x (M,K) weight (K,N) + bias (N), which backward needs, and y (M,N) = gelu(u), rows of N floats.
void linear_gelu(Pool &pool, int64_t M, int64_t N, int64_t K, View x, View weight, const float *bias,
                 bool tanh_form, float *u, float *y);

// Of y = gelu(u) out with weight out^T (K,N) and dy (M,K): du (M,N) = (dy weight) gelu'(u), and u becomes gelu(u),
// which the gradient of the other weight needs. So y needs no memory between forward and backward.
void linear_gelu_backward(Pool &pool, int64_t M, int64_t N, int64_t K, View dy, View weight, bool tanh_form,
                          float *u, float *du);

} // namespace MB_ISA
} // namespace mb
