#include "kernels.h"

#define MB_STRING(name) #name
#define MB_NAME(name) MB_STRING(name)

namespace mb {
namespace MB_ISA {

extern const Kernels kernels;

template <typename X>
constexpr Typed<X> typed = {
    linear<X>,
    linear_gelu<X>,
    linear_gelu_backward<X>,
    attention<X>,
    attention_backward<X>,
    column_sums<X>,
    dropout_residual_layer_norm<X>,
    dropout_residual_layer_norm_backward<X>,
    embedding_layer_norm<X>,
    embedding_layer_norm_backward<X>,
    linear_softmax_cross_entropy<X>,
    gather<X>,
};

const Kernels kernels = {
    MB_NAME(MB_ISA),
    typed<float>,
    typed<bf16>,
    gemm,
    gelu,
    gelu_backward,
    tanh_forward,
    tanh_backward,
    dropout,
    layer_norm,
    layer_norm_backward,
    softmax_cross_entropy,
    scale_rows,
    scatter_add,
    accumulate,
    clear,
    global_norm,
    adamw,
    multiply_add_rate,
};

} // namespace MB_ISA
} // namespace mb
