// Everything between the matrix products: functions of one element, of one row, sums over rows. Arrays are
// float32, rows one after another, `ld` floats apart where it is given. Results have the same bits on any
// number of threads, and may take the place of an argument of the same shape.
#pragma once

#include <cstdint>

#include "random.h"
#include "threads.h"

namespace mb {
namespace MB_ISA {

// x y dy dx (n,)
void gelu(Pool &pool, int64_t n, const float *x, float *y, bool tanh_form);
void gelu_backward(Pool &pool, int64_t n, const float *dy, const float *x, float *dx, bool tanh_form);
void tanh_forward(Pool &pool, int64_t n, const float *x, float *y);
void tanh_backward(Pool &pool, int64_t n, const float *dy, const float *y, float *dx);

// x y (T,N): kept elements times drop.scale, the others 0. Its backward is the same call with dy.
void dropout(Pool &pool, int64_t T, int64_t N, const float *x, float *y, Drop drop);

// sums (N,) = or += sum over t of weights[t] x[t]      x (T,N) weights (T,), all 1 where null
void column_sums(Pool &pool, int64_t T, int64_t N, const float *x, int64_t ld, const float *weights,
                 float *sums, bool add);

// x y (T,H)  gamma beta (H,)  mean inverse (T,), which backward needs along with x
void layer_norm(Pool &pool, int64_t T, int64_t H, const float *x, const float *gamma, const float *beta,
                float eps, float *y, float *mean, float *inverse);
// dy x dx (T,H)  dgamma dbeta (H,), which are added to where `add` says so
void layer_norm_backward(Pool &pool, int64_t T, int64_t H, const float *dy, const float *x, const float *mean,
                         const float *inverse, const float *gamma, float *dx, float *dgamma, float *dbeta,
                         bool add);

// y = LayerNorm(x + dropout(out + bias)): the end of a sublayer. sum (T,H) = x + dropout(out + bias) is what
// backward needs; it may take the place of out. bias (H,) may be null.
void dropout_residual_layer_norm(Pool &pool, int64_t T, int64_t H, const float *x, const float *out,
                                 const float *bias, Drop drop, const float *gamma, const float *beta,
                                 float eps, float *sum, float *y, float *mean, float *inverse);
// dsum (T,H): with respect to x. dout (T,H): with respect to out, null where there is no dropout, since it is
// dsum then. dbias (H,) or null.
void dropout_residual_layer_norm_backward(Pool &pool, int64_t T, int64_t H, const float *dy, const float *sum,
                                          const float *mean, const float *inverse, const float *gamma,
                                          Drop drop, float *dsum, float *dout, float *dgamma, float *dbeta,
                                          float *dbias, bool add);

// y = dropout(LayerNorm(word[ids] + position[positions] + segment[segments])): the embeddings. sum (T,H) is
// what backward needs.
void embedding_layer_norm(Pool &pool, int64_t T, int64_t H, const int32_t *ids, const float *word,
                          const int32_t *positions, const float *position, const int32_t *segments,
                          const float *segment, const float *gamma, const float *beta, float eps, Drop drop,
                          float *sum, float *y, float *mean, float *inverse);
// dsum (T,H) is the gradient of all three; scatter_add takes it to the tables.
void embedding_layer_norm_backward(Pool &pool, int64_t T, int64_t H, const float *dy, const float *sum,
                                   const float *mean, const float *inverse, const float *gamma, Drop drop,
                                   float *dsum, float *dgamma, float *dbeta, bool add);

// logits (N,K) become probabilities, nll (N,) = -log of that of the label; best (N,): the first largest
void softmax_cross_entropy(Pool &pool, int64_t N, int64_t K, float *logits, int64_t ld, const int32_t *labels,
                           float *nll, int32_t *best);
// (p - one-hot(label)) dnll in the place of the probabilities      dnll (N,)
void softmax_cross_entropy_backward(Pool &pool, int64_t N, int64_t K, float *probabilities, int64_t ld,
                                    const int32_t *labels, const float *dnll);

// Whether all of ids (n,) are in [0, limit): gather and scatter_add take that for granted.
bool in_range(int64_t n, const int32_t *ids, int64_t limit);

// out (T,H) = table[ids]      ids (T,)  table (V,H)
void gather(Pool &pool, int64_t T, int64_t H, const int32_t *ids, const float *table, float *out);
// table[ids[t]] += rows[t], in the order of t
void scatter_add(Pool &pool, int64_t T, int64_t H, const int32_t *ids, const float *rows, float *table);

} // namespace MB_ISA
} // namespace mb
