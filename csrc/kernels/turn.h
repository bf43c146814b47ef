// A square of as many vectors as a vector has lanes, turned in registers.
#pragma once

#include <utility>

#include "simd.h"

namespace mb {
namespace MB_ISA {

// Lanes of a, and from VL on of b.
template <int... lane> MB_INLINE vf pick(vf a, vf b) {
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(a, b, lane...);
#else // GCC before 12
    return __builtin_shuffle(a, b, vi{lane...});
#endif
}

// Lanes of two vectors exchanged, so that in blocks of `step` lanes  a0 a1  become  a0 b0,
//                                                                     b0 b1          a1 b1.
template <int step, int... lane> MB_INLINE void exchange(vf &a, vf &b, std::integer_sequence<int, lane...>) {
    vf upper = pick<(lane & step ? lane - step + VL : lane)...>(a, b);
    b = pick<(lane & step ? lane + VL : lane + step)...>(a, b);
    a = upper;
}

template <int step> MB_INLINE void exchange_all(vf *rows) {
#pragma GCC unroll 16
    for (int i = 0; i < VL; ++i) {
        if (!(i & step)) {
            exchange<step>(rows[i], rows[i + step], std::make_integer_sequence<int, VL>());
        }
    }
}

// VL vectors as a square matrix, rows to columns
MB_INLINE void turn(vf *rows) {
    exchange_all<1>(rows);
    exchange_all<2>(rows);
    if constexpr (VL > 4) {
        exchange_all<4>(rows);
    }
    if constexpr (VL > 8) {
        exchange_all<8>(rows);
    }
}

} // namespace MB_ISA
} // namespace mb
