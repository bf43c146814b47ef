#include "kernels.h"

#define MB_STRING(name) #name
#define MB_NAME(name) MB_STRING(name)

namespace mb {
namespace MB_ISA {

extern const Kernels kernels;

const Kernels kernels = {
    MB_NAME(MB_ISA),
    gemm,
    linear,
    linear_gelu,
    linear_gelu_backward,
    attention,
    attention_backward,
    gelu,
    gelu_backward,
    tanh_forward,
    tanh_backward,
    dropout,
    column_sums,
    layer_norm,
    layer_norm_backward,
    dropout_residual_layer_norm,
    dropout_residual_layer_norm_backward,
    embedding_layer_norm,
    embedding_layer_norm_backward,
    softmax_cross_entropy,
    softmax_cross_entropy_backward,
    gather,
    scatter_add,
    accumulate,
    global_norm,
    adamw,
};

} // namespace MB_ISA
} // namespace mb
