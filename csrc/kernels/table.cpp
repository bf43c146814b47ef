#include "kernels.h"

#define MB_STRING(name) #name
#define MB_NAME(name) MB_STRING(name)

namespace mb {
namespace MB_ISA {

extern const Kernels kernels;

template <typename X>
constexpr Typed<X> typed = {
#define MB_TYPED(name, ...) name<X>,
#include "kernels.def"
};

const Kernels kernels = {
    MB_NAME(MB_ISA), kNeeds,  typed<float>, typed<bf16>,
#define MB_KERNEL(name, ...) name,
#include "kernels.def"
    laid_out_size,   lay_out, bytes_size,   lay_out_bytes,
};

} // namespace MB_ISA
} // namespace mb
