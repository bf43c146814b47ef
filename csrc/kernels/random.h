// Dropout as a function of the place: the same bits as minibert/core/ops/dropout_bits.py, which explains it.
#pragma once

#include "simd.h"

namespace mb {

// Dropout at one place of the network; without row keys there is none.
struct Drop {
    const uint32_t *row_keys = nullptr; // (T,2) of (seed, step, sequence, position)
    uint32_t site = 0;
    uint32_t threshold = 0; // draws of 16 bits below it are dropped
    float scale = 1;        // of what is kept
};

namespace MB_ISA {

constexpr uint32_t kGolden = 0x9E3779B9u; // 2^32 / golden ratio

struct Key {
    uint32_t first, second;
};

// The bits of a word, or of a vector of them, mixed; `between` the two steps another word comes in.
template <typename Word> MB_INLINE Word mix(Word x, Word between = {}) {
    x = ((x ^ (x >> 16)) * 0x7FEB352Du) ^ between;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16);
}

// A key that also depends on one more word.
MB_INLINE Key fold(Key key, uint32_t word) {
    return {mix(mix(key.first ^ word) + kGolden), mix(mix(key.second ^ word) + kGolden)};
}

MB_INLINE Key row_key(const Drop &drop, int64_t row) {
    return fold({drop.row_keys[2 * row], drop.row_keys[2 * row + 1]}, drop.site);
}

// Which of VL columns survive dropout, and those of x times `scale`, the others 0.
#if defined(__AVX512BW__)
typedef __mmask16 Kept;

MB_INLINE vf only(Kept kept, vf x, float scale) {
    return (vf)_mm512_maskz_mul_ps(kept, (__m512)x, (__m512)all(scale));
}
#else
typedef vi Kept; // -1 or 0

MB_INLINE vf only(Kept kept, vf x, float scale) { return (vf)((vi)(x * scale) & kept); }
#endif

// For 2 VL columns from an even `column` on. The halves of one hash serve neighbouring columns, the lower
// half the first; so the draws lie in memory in the order of the columns.
MB_INLINE void keep(Key key, int64_t column, uint32_t threshold, Kept *first, Kept *second) {
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lower half of a word comes first");
    vu x = (vu)lanes() * kGolden + (key.first + (uint32_t)(column / 2) * kGolden);
    x = mix(x, vu{} + key.second);
#if defined(__AVX512BW__)
    __mmask32 both = _mm512_cmpge_epu16_mask((__m512i)x, _mm512_set1_epi16((short)threshold));
    *first = (Kept)both, *second = (Kept)(both >> 16);
#else
    typedef uint16_t draws __attribute__((vector_size(2 * VL)));
    draws halves[2];
    std::memcpy(halves, &x, sizeof x);
    *first = __builtin_convertvector(halves[0], vi) >= (int32_t)threshold;
    *second = __builtin_convertvector(halves[1], vi) >= (int32_t)threshold;
#endif
}

} // namespace MB_ISA
} // namespace mb
