// Attention within each sequence of a flat batch: minibert/core/ops/attention.py without the (n,n) matrices in memory.
#pragma once

#include <cstdint>

#include "random.h"
#include "simd.h"
#include "threads.h"

namespace mb {

// A tensor (T,A,D) inside something larger, such as the queries in (T,3,A,D): the heads of a token lie side by side,
// tokens `stride` elements apart. X: float or bf16.
template <typename X> struct Heads {
    X *data;
    int64_t stride;
};
template <typename X> using ConstHeads = Heads<const X>;

namespace MB_ISA {

// y (T,A,D) = dropout(softmax(q k^T / sqrt(D))) v, sequence by sequence and head by head, and of each softmax (T,A,2)
// the highest score and 1 / sum_j exp(score_j - highest). Backward needs nothing else that forward has computed. As one
// number, their log-sum-exp would carry its rounding into every probability: 4e-6 where scores reach 80.
// cu_seqlens (S+1) says where sequences begin; dropout's key is (query row key, head, key position); `causal` hides what
// stands behind a token.
// Where only R of the T tokens ask, q, y, dy, dq and dropout's keys are those of these, softmax is (R,A,2), and queries
// (S+1) says where those of each sequence begin; else it is cu_seqlens. It does not go with `causal`.
// Bits do not depend on the number of threads.
// Of bfloat16 only what is stored is rounded, and the operands of products where the processor multiplies bfloat16: there
// probabilities and the gradients of scores as well. Everything else is float32.
template <typename X>
void attention(Pool &pool, int64_t S, const int32_t *cu_seqlens, const int32_t *queries, int64_t A, int64_t D,
               ConstHeads<X> q, ConstHeads<X> k, ConstHeads<X> v, bool causal, const Drop &drop, Heads<X> y,
               float *softmax);

// dq dk dv (T,A,D), each written once and whole, from dy; y and softmax are those of the forward.
template <typename X>
void attention_backward(Pool &pool, int64_t S, const int32_t *cu_seqlens, const int32_t *queries, int64_t A,
                        int64_t D, ConstHeads<X> q, ConstHeads<X> k, ConstHeads<X> v, bool causal,
                        const Drop &drop, ConstHeads<X> dy, ConstHeads<X> y, const float *softmax,
                        Heads<X> dq, Heads<X> dk, Heads<X> dv);

} // namespace MB_ISA
} // namespace mb
