// Softmax cross-entropy in one pass over strips of logits, and a second one that makes all strips of a row agree. Bits do
// not depend on the number of threads.
#pragma once

#include "gemm.h"

namespace mb {
namespace MB_ISA {

// nll (N,) = -log of the label's probability under the softmax of logits (N,K), in rows of `ld` floats; best (N,): the
// first largest. The logits become the gradient of nll, softmax - one-hot(label).
void softmax_cross_entropy(Pool &pool, int64_t N, int64_t K, float *logits, int64_t ld, const int32_t *labels,
                           float *nll, int32_t *best);

// The same of logits (M,N) = x (M,K) weight (K,N) + bias (N), whose gradient (M,N), float or bf16, is all of that size
// that goes to memory. ldg elements between its rows; `narrow` as in gemm.
template <typename G>
void linear_softmax_cross_entropy(Pool &pool, int64_t M, int64_t N, int64_t K, View x, View weight,
                                  const float *bias, const int32_t *labels, G *gradient, int64_t ldg,
                                  float *nll, int32_t *best, bool narrow = false);

} // namespace MB_ISA
} // namespace mb
