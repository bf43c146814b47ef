// The product's own kernel, csrc/kernels/layer_norm.cpp, compiled in here so that the ladder can't drift away from it.
//
// What it adds to the fourth rung: no dropout where there is none, activations in bfloat16, rows shared out
// to threads, and the same building blocks for the embeddings and for backward.
#include "layer_norm_rungs.h"
#include "rowwise.h"

void product(const Norm &n) {
    static mb::Pool pool(thread_count);
    mb::MB_ISA::dropout_residual_layer_norm<float>(pool, n.T, n.H, n.x, n.out, n.bias, n.drop, n.gamma,
                                                   n.beta, n.eps, n.sum, n.y, n.mean, n.inverse);
}
