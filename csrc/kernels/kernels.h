// All kernels of one instruction set in one table.
#pragma once

#include <vector>

#include "blocks.h"
#include "gemm.h"

namespace mb {

struct Kernels {
    const char *name;
    decltype(&MB_ISA::gemm) gemm;
    decltype(&MB_ISA::linear) linear;
};

// Tables that this processor can run, the fastest first.
std::vector<const Kernels *> available();

// The table of that name, the fastest for an empty name; null when there is none.
const Kernels *find(const char *name);

} // namespace mb
