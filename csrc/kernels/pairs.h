// What the products of tiles.h multiply: floats, or pairs of bfloat16 where the processor has VDPBF16PS. That adds both
// products of two pairs to a float at once, so K is taken two at a time: neighbours along K lie side by side in 32 bits,
// which are moved about like a float.
#pragma once

#include <type_traits>

#include "simd.h"

namespace mb {
namespace MB_ISA {

MB_INLINE vf add_product(vf sum, float a, vf b) { return sum + a * b; }

#if defined(__AVX512BF16__)

struct Pair {
    bf16 first, second;
};

// The bits of VL pairs.
MB_INLINE vf load(const Pair *p) {
    vf v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
MB_INLINE vf load(const Pair *p, int64_t n) {
    return (vf)_mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), p);
}
MB_INLINE void store(Pair *p, vf v) { std::memcpy(p, &v, sizeof v); }

MB_INLINE vf add_product(vf sum, const Pair &a, vf b) {
    int32_t both;
    std::memcpy(&both, &a, sizeof both);
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(both), (__m512bh)b);
}

// One bfloat16 after the other: those of `first`, then those of `second`.
MB_INLINE __m512i rounded(vf first, vf second) {
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
}

typedef uint16_t vh2 __attribute__((vector_size(4 * VL)));

// 32 numbers a0 a1 .. b0 b1 .. -> pairs a0 b0, a1 b1, ..
MB_INLINE vf paired(__m512i x) {
    const vh2 order = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return (vf)_mm512_permutexvar_epi16((__m512i)order, x);
}

// Numbers [from, from + VL) of a and of b, 32 each -> pairs a b
MB_INLINE vf interleaved(vf a, vf b, int from) {
    vh2 order;
    for (int i = 0; i < 2 * VL; ++i) {
        order[i] = (uint16_t)(from + i / 2 + i % 2 * 2 * VL);
    }
    return (vf)_mm512_permutex2var_epi16((__m512i)a, (__m512i)order, (__m512i)b);
}

template <typename X> using Operand = std::conditional_t<std::is_same_v<X, bf16>, Pair, float>;
#else
template <typename X> using Operand = float;
#endif

template <typename E> constexpr int kTogether = std::is_same_v<E, float> ? 1 : 2; // numbers in one operand

template <typename E> MB_INLINE vf scaled(vf x, float scale) {
    return std::is_same_v<E, float> ? x * scale : x;
}

} // namespace MB_ISA
} // namespace mb
