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
};

} // namespace MB_ISA
} // namespace mb
