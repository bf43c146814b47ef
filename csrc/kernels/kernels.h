// All kernels of one instruction set in one table.
#pragma once

#include <vector>

#include "attention.h"
#include "blocks.h"
#include "cross_entropy.h"
#include "gemm.h"
#include "peak.h"
#include "rowwise.h"
#include "updates.h"

namespace mb {

// Those that are there for activations of float and of bf16.
template <typename X> struct Typed {
    decltype(&MB_ISA::linear<X>) linear;
    decltype(&MB_ISA::linear_gelu<X>) linear_gelu;
    decltype(&MB_ISA::linear_gelu_backward<X>) linear_gelu_backward;
    decltype(&MB_ISA::attention<X>) attention;
    decltype(&MB_ISA::attention_backward<X>) attention_backward;
    decltype(&MB_ISA::column_sums<X>) column_sums;
    decltype(&MB_ISA::dropout_residual_layer_norm<X>) dropout_residual_layer_norm;
    decltype(&MB_ISA::dropout_residual_layer_norm_backward<X>) dropout_residual_layer_norm_backward;
    decltype(&MB_ISA::embedding_layer_norm<X>) embedding_layer_norm;
    decltype(&MB_ISA::embedding_layer_norm_backward<X>) embedding_layer_norm_backward;
    decltype(&MB_ISA::linear_softmax_cross_entropy<X>) linear_softmax_cross_entropy;
    decltype(&MB_ISA::gather<X>) gather;
};

struct Kernels {
    const char *name;
    Typed<float> on_floats;
    Typed<bf16> on_bf16;
    decltype(&MB_ISA::gemm) gemm;
    decltype(&MB_ISA::gelu) gelu;
    decltype(&MB_ISA::gelu_backward) gelu_backward;
    decltype(&MB_ISA::tanh_forward) tanh;
    decltype(&MB_ISA::tanh_backward) tanh_backward;
    decltype(&MB_ISA::dropout) dropout;
    decltype(&MB_ISA::layer_norm) layer_norm;
    decltype(&MB_ISA::layer_norm_backward) layer_norm_backward;
    decltype(&MB_ISA::softmax_cross_entropy) softmax_cross_entropy;
    decltype(&MB_ISA::scale_rows) scale_rows;
    decltype(&MB_ISA::scatter_add) scatter_add;
    decltype(&MB_ISA::accumulate) accumulate;
    decltype(&MB_ISA::clear) clear;
    decltype(&MB_ISA::global_norm) global_norm;
    decltype(&MB_ISA::adamw) adamw;
    decltype(&MB_ISA::multiply_add_rate) multiply_add_rate;

    template <typename X> const Typed<X> &on() const {
        if constexpr (sizeof(X) == sizeof(bf16)) {
            return on_bf16;
        } else {
            return on_floats;
        }
    }
};

// Tables that this processor can run, the fastest first.
std::vector<const Kernels *> available();

// The table of that name, the fastest for an empty name; null when there is none.
const Kernels *find(const char *name);

} // namespace mb
