// Vectors of floats, as wide as the instruction set that this file is compiled for. Arithmetic is that of
// GCC's and Clang's vector types, so one source serves all of them.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// The build compiles every kernel once for each instruction set, with its name as MB_ISA.
#ifndef MB_ISA
#define MB_ISA portable
#endif

#define MB_INLINE inline __attribute__((always_inline))

namespace mb {

// A number of 16 bits, bfloat16: the upper half of a float.
struct bf16 {
    uint16_t bits;
};

namespace MB_ISA {

#if defined(__AVX512F__)
constexpr int VL = 16;
#elif defined(__AVX2__)
constexpr int VL = 8;
#else
constexpr int VL = 4; // SSE2, NEON
#endif

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef uint32_t vu __attribute__((vector_size(4 * VL)));

MB_INLINE vf load(const float *p) {
    vf v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

MB_INLINE void store(float *p, vf v) { std::memcpy(p, &v, sizeof v); }

// The first n of VL floats; the others are 0 and are not touched.
MB_INLINE vf load(const float *p, int64_t n) {
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#elif defined(__AVX2__)
    return (vf)_mm256_maskload_ps(p, (__m256i)(vi{0, 1, 2, 3, 4, 5, 6, 7} < (int32_t)n));
#else
    vf v = {};
    for (int64_t i = 0; i < n; ++i) {
        v[i] = p[i];
    }
    return v;
#endif
}

MB_INLINE void store(float *p, vf v, int64_t n) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#elif defined(__AVX2__)
    _mm256_maskstore_ps(p, (__m256i)(vi{0, 1, 2, 3, 4, 5, 6, 7} < (int32_t)n), (__m256)v);
#else
    for (int64_t i = 0; i < n; ++i) {
        p[i] = v[i];
    }
#endif
}

// Floats as the nearest bfloat16, ties to even, in the upper halves of their bits; what is not a number stays so.
// AVX-512 has an instruction for it (avx512_bf16 below), which differs where a float is denormal: it makes it 0.
MB_INLINE vu rounded_bits(vf x) {
    vu bits = (vu)x, up = bits + (0x7FFFu + ((bits >> 16) & 1u));
    vi number = (vi)(bits & 0x7FFFFFFFu) <= 0x7F800000;
    return ((up & (vu)number) | ((bits | 0x400000u) & ~(vu)number)) & 0xFFFF0000u;
}

// VL numbers of 16 bits.
typedef uint16_t vh __attribute__((vector_size(2 * VL)));

// VL numbers of 16 bits as the lower halves of lanes.
MB_INLINE vu spread(vh v) {
#if defined(__AVX512F__) // which GCC 12 does in two halves
    return (vu)_mm512_maskz_cvtepu16_epi32(0xFFFF, (__m256i)v);
#else
    return __builtin_convertvector(v, vu);
#endif
}

MB_INLINE vu load_bits(const bf16 *p) {
    vh v;
    std::memcpy(&v, p, sizeof v);
    return spread(v);
}

MB_INLINE vf load(const bf16 *p) { return (vf)(load_bits(p) << 16); }

MB_INLINE void store(bf16 *p, vf x) {
#if defined(__AVX512BF16__)
    __m256bh v = _mm512_cvtneps_pbh((__m512)x);
#else
    vh v = __builtin_convertvector(rounded_bits(x) >> 16, vh);
#endif
    std::memcpy(p, &v, sizeof v);
}

MB_INLINE vf load(const bf16 *p, int64_t n) {
#if defined(__AVX512BW__)
    vh v = (vh)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
    return (vf)(spread(v) << 16);
#else
    bf16 whole[VL] = {};
    std::memcpy(whole, p, sizeof(bf16) * (size_t)n);
    return load(whole);
#endif
}

MB_INLINE void store(bf16 *p, vf x, int64_t n) {
    bf16 whole[VL];
    store(whole, x);
#if defined(__AVX512BW__)
    __m256i v;
    std::memcpy(&v, whole, sizeof v);
    _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), v);
#else
    std::memcpy(p, whole, sizeof(bf16) * (size_t)n);
#endif
}

MB_INLINE vf all(float x) { return x - vf{}; }

// 0 1 2 .. VL - 1
MB_INLINE vi lanes() {
    vi v;
    for (int i = 0; i < VL; ++i) {
        v[i] = i;
    }
    return v;
}

// Comparisons give -1 where they hold and 0 elsewhere.
MB_INLINE vf select(vi where, vf a, vf b) { return where ? a : b; }
MB_INLINE vi select(vi where, vi a, vi b) { return where ? a : b; }

// The second, where either is NaN.
#if defined(__AVX512F__) // for which GCC 12 does not see that these are single instructions
MB_INLINE vf max(vf a, vf b) { return (vf)_mm512_maskz_max_ps(0xFFFF, (__m512)a, (__m512)b); }
MB_INLINE vf min(vf a, vf b) { return (vf)_mm512_maskz_min_ps(0xFFFF, (__m512)a, (__m512)b); }
#else
MB_INLINE vf max(vf a, vf b) { return a > b ? a : b; }
MB_INLINE vf min(vf a, vf b) { return a < b ? a : b; }
#endif

// The first n of x, the others as in `rest`.
MB_INLINE vf first(int64_t n, vf x, vf rest) { return select(lanes() < (int32_t)n, x, rest); }

constexpr int32_t kSign = INT32_MIN;

MB_INLINE vf abs(vf x) { return (vf)((vi)x & ~kSign); }

MB_INLINE vf sqrt(vf x) {
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_sqrt_ps(0xFFFF, (__m512)x);
#elif defined(__AVX2__)
    return (vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__x86_64__)
    return (vf)_mm_sqrt_ps((__m128)x);
#elif defined(__aarch64__)
    return (vf)vsqrtq_f32((float32x4_t)x);
#else
    for (int i = 0; i < VL; ++i) {
        x[i] = __builtin_sqrtf(x[i]);
    }
    return x;
#endif
}

// x 2^n for whole n from -252 to 254
MB_INLINE vf times_power_of_two(vf x, vf n) {
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_scalef_ps(0xFFFF, (__m512)x, (__m512)n);
#else
    // n stands in the last bits of n + 1.5 2^23. In two steps, as some of these powers are no floats.
    vi exponent = (vi)(n + 12582912.0f) - 0x4B400000, half = exponent >> 1;
    return x * (vf)((half + 127) << 23) * (vf)((exponent - half + 127) << 23);
#endif
}

// Sums and maxima over the lanes, always in the same order.
typedef float quarter __attribute__((vector_size(16)));

MB_INLINE float sum(vf v) {
    quarter q[VL / 4];
    std::memcpy(q, &v, sizeof v);
    for (int step = VL / 8; step > 0; step /= 2) {
        for (int i = 0; i < step; ++i) {
            q[i] += q[i + step];
        }
    }
    return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
}

MB_INLINE float max(vf v) {
    quarter q[VL / 4];
    std::memcpy(q, &v, sizeof v);
    for (int step = VL / 8; step > 0; step /= 2) {
        for (int i = 0; i < step; ++i) {
            q[i] = q[i] > q[i + step] ? q[i] : q[i + step];
        }
    }
    float a = q[0][0] > q[0][2] ? q[0][0] : q[0][2], b = q[0][1] > q[0][3] ? q[0][1] : q[0][3];
    return a > b ? a : b;
}

MB_INLINE int32_t min(vi v) {
    typedef int32_t numbers __attribute__((vector_size(16)));
    numbers q[VL / 4];
    std::memcpy(q, &v, sizeof v);
    for (int step = VL / 8; step > 0; step /= 2) {
        for (int i = 0; i < step; ++i) {
            q[i] = q[i] < q[i + step] ? q[i] : q[i + step];
        }
    }
    int32_t a = q[0][0] < q[0][2] ? q[0][0] : q[0][2], b = q[0][1] < q[0][3] ? q[0][1] : q[0][3];
    return a < b ? a : b;
}

} // namespace MB_ISA
} // namespace mb
