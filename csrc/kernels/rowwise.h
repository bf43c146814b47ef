// Everything between the matrix products: functions of one element, of one row, sums over rows. Arrays are
// float32, rows one after another, `ld` elements apart where it is given. Activations of type X are float or
// bf16; all arithmetic is that of floats, rounded where it is stored. Results have the same bits on any number
// of threads, and may take the place of an argument of the same shape and type.
#pragma once

#include <cstdint>

#include "random.h"
#include "threads.h"

namespace mb {
namespace MB_ISA {

// x y dy dx (n,)
void gelu(Pool &pool, int64_t n, const float *x, float *y, bool tanh_form);
void gelu_backward(Pool &pool, int64_t n, const float *dy, const float *x, float *dx, bool tanh_form);
void tanh(Pool &pool, int64_t n, const float *x, float *y);
void tanh_backward(Pool &pool, int64_t n, const float *dy, const float *y, float *dx);

// x y (T,N): kept elements times drop.scale, the others 0. Its backward is the same call with dy.
void dropout(Pool &pool, int64_t T, int64_t N, const float *x, float *y, Drop drop);

// sums (N,) = or += sum over t of weights[t] x[t]      x (T,N) weights (T,), all 1 where null
template <typename X>
void column_sums(Pool &pool, int64_t T, int64_t N, const X *x, int64_t ld, const float *weights, float *sums,
                 bool add);
// x[t] *= weights[t], in place      x (T,N) weights (T,)
void scale_rows(Pool &pool, int64_t T, int64_t N, float *x, int64_t ld, const float *weights);

// x y (T,H)  gamma beta (H,)  mean inverse (T,), which backward needs along with x
void layer_norm(Pool &pool, int64_t T, int64_t H, const float *x, const float *gamma, const float *beta,
                float eps, float *y, float *mean, float *inverse);
// dy x dx (T,H)  dgamma dbeta (H,), which are added to where `add` says so
void layer_norm_backward(Pool &pool, int64_t T, int64_t H, const float *dy, const float *x, const float *mean,
                         const float *inverse, const float *gamma, float *dx, float *dgamma, float *dbeta,
                         bool add);

// y = LayerNorm(x + dropout(out + bias)): the end of a sublayer. sum (T,H) = x + dropout(out + bias) is what
// backward needs; where X is float it may take the place of out. y, mean and inverse are those of the sums
// before they are rounded. bias (H,)
template <typename X>
void dropout_residual_layer_norm(Pool &pool, int64_t T, int64_t H, const X *x, const float *out,
                                 const float *bias, Drop drop, const float *gamma, const float *beta,
                                 float eps, X *sum, X *y, float *mean, float *inverse);
// dsum (T,H): with respect to x. dout (T,H): with respect to out, null where dsum will do for it, which it is
// without dropout. dbias (H,)
template <typename X>
void dropout_residual_layer_norm_backward(Pool &pool, int64_t T, int64_t H, const float *dy, const X *sum,
                                          const float *mean, const float *inverse, const float *gamma,
                                          Drop drop, float *dsum, X *dout, float *dgamma, float *dbeta,
                                          float *dbias, bool add);

// y = dropout(LayerNorm(word[ids] + position[positions] + segment[segments])): the embeddings. sum (T,H) is
// what backward needs.
template <typename X>
void embedding_layer_norm(Pool &pool, int64_t T, int64_t H, const int32_t *ids, const float *word,
                          const int32_t *positions, const float *position, const int32_t *segments,
                          const float *segment, const float *gamma, const float *beta, float eps, Drop drop,
                          X *sum, X *y, float *mean, float *inverse);
// dsum (T,H) is the gradient of all three; scatter_add takes it to the tables. With dropout it may not take
// the place of sum.
template <typename X>
void embedding_layer_norm_backward(Pool &pool, int64_t T, int64_t H, const float *dy, const X *sum,
                                   const float *mean, const float *inverse, const float *gamma, Drop drop,
                                   float *dsum, float *dgamma, float *dbeta, bool add);

// out (T,H) = table[ids]      ids (T,)  table (V,H), the caller has checked the range
template <typename X>
void gather(Pool &pool, int64_t T, int64_t H, const int32_t *ids, const X *table, float *out);
// table[ids[t]] += rows[t], in the order of t
void scatter_add(Pool &pool, int64_t T, int64_t H, const int32_t *ids, const float *rows, float *table);

} // namespace MB_ISA
} // namespace mb
