// How fast this processor multiplies and adds at most: what the speed of everything else is a share of.
#pragma once

#include "threads.h"

namespace mb {
namespace MB_ISA {

// Giga floating-point operations a second of all threads together, a multiply-add being two, from registers, while
// they have a core each: what other programs take of the cores does not count. It takes about so many seconds.
// `narrow`: products of bfloat16 added to float32, where the instruction set has them; float32 elsewhere.
double multiply_add_rate(Pool &pool, double seconds, bool narrow);

} // namespace MB_ISA
} // namespace mb
