// All kernels of one instruction set in one table.
#pragma once

#include <vector>

#include "attention.h"
#include "blocks.h"
#include "cross_entropy.h"
#include "gemm.h"
#include "peak.h"
#include "processor.h"
#include "rowwise.h"
#include "updates.h"

namespace mb {

// Those that are there for activations of float and of bf16.
template <typename X> struct Typed {
#define MB_TYPED(name, ...) decltype(&MB_ISA::name<X>) name;
#include "kernels.def"
};

struct Kernels {
    const char *name;
    unsigned needs; // of the processor (processor.h)
    Typed<float> on_floats;
    Typed<bf16> on_bf16;
#define MB_KERNEL(name, ...) decltype(&MB_ISA::name) name;
#include "kernels.def"
    decltype(&MB_ISA::laid_out_size) laid_out_size; // what Engine::keep needs
    decltype(&MB_ISA::lay_out) lay_out;
    decltype(&MB_ISA::bytes_size) bytes_size;
    decltype(&MB_ISA::lay_out_bytes) lay_out_bytes;

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
