// Matrix products with what comes right behind them, done while a strip of the result is still in cache.
#pragma once

#include "gemm.h"

namespace mb {
namespace MB_ISA {

// Where a result is float or bf16, X. `narrow` as in gemm.

// y (M,N) = x (M,K) weight (K,N) + bias (N); ldy elements between rows of y. Without a bias where it is null.
template <typename X>
void linear(Pool &pool, int64_t M, int64_t N, int64_t K, View x, View weight, const float *bias, X *y,
            int64_t ldy, bool narrow = false);

// u (M,N) = x (M,K) weight (K,N) + bias (N), which backward needs, and y (M,N) = gelu(u), rows of N elements.
template <typename X>
void linear_gelu(Pool &pool, int64_t M, int64_t N, int64_t K, View x, View weight, const float *bias,
                 bool tanh_form, X *u, X *y, bool narrow = false);

// Of y = gelu(u) out with weight out^T (K,N) and dy (M,K): du (M,N) = (dy weight) gelu'(u), and u becomes gelu(u),
// which the gradient of the other weight needs. So y needs no memory between forward and backward.
template <typename X>
void linear_gelu_backward(Pool &pool, int64_t M, int64_t N, int64_t K, View dy, View weight, bool tanh_form,
                          X *u, X *du, bool narrow = false);

} // namespace MB_ISA
} // namespace mb
