// All kernels of one instruction set in one table.
#pragma once

#include <vector>

#include "attention.h"
#include "blocks.h"
#include "gemm.h"
#include "rowwise.h"
#include "updates.h"

namespace mb {

struct Kernels {
    const char *name;
    decltype(&MB_ISA::gemm) gemm;
    decltype(&MB_ISA::linear) linear;
    decltype(&MB_ISA::linear_gelu) linear_gelu;
    decltype(&MB_ISA::linear_gelu_backward) linear_gelu_backward;
    decltype(&MB_ISA::attention) attention;
    decltype(&MB_ISA::attention_backward) attention_backward;
    decltype(&MB_ISA::gelu) gelu;
    decltype(&MB_ISA::gelu_backward) gelu_backward;
    decltype(&MB_ISA::tanh_forward) tanh;
    decltype(&MB_ISA::tanh_backward) tanh_backward;
    decltype(&MB_ISA::dropout) dropout;
    decltype(&MB_ISA::column_sums) column_sums;
    decltype(&MB_ISA::layer_norm) layer_norm;
    decltype(&MB_ISA::layer_norm_backward) layer_norm_backward;
    decltype(&MB_ISA::dropout_residual_layer_norm) dropout_residual_layer_norm;
    decltype(&MB_ISA::dropout_residual_layer_norm_backward) dropout_residual_layer_norm_backward;
    decltype(&MB_ISA::embedding_layer_norm) embedding_layer_norm;
    decltype(&MB_ISA::embedding_layer_norm_backward) embedding_layer_norm_backward;
    decltype(&MB_ISA::softmax_cross_entropy) softmax_cross_entropy;
    decltype(&MB_ISA::softmax_cross_entropy_backward) softmax_cross_entropy_backward;
    decltype(&MB_ISA::gather) gather;
    decltype(&MB_ISA::scatter_add) scatter_add;
    decltype(&MB_ISA::accumulate) accumulate;
    decltype(&MB_ISA::global_norm) global_norm;
    decltype(&MB_ISA::adamw) adamw;
};

// Tables that this processor can run, the fastest first.
std::vector<const Kernels *> available();

// The table of that name, the fastest for an empty name; null when there is none.
const Kernels *find(const char *name);

} // namespace mb
