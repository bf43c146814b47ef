// Vectors of floats, as wide as the instruction set that this file is compiled for. Arithmetic is that of GCC's and
// Clang's vector types, so one source serves all of them.
#pragma once

#include <cstdint>
#include <cstring>

// The build compiles every kernel once for each instruction set, with its name as MB_ISA.
#ifndef MB_ISA
#define MB_ISA portable
#endif

#define MB_INLINE inline __attribute__((always_inline))

namespace mb {
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

// The first n of VL floats; the others are 0.
MB_INLINE vf load(const float *p, int64_t n) {
    vf v = {};
    for (int64_t i = 0; i < n; ++i)
        v[i] = p[i];
    return v;
}

MB_INLINE void store(float *p, vf v, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
        p[i] = v[i];
}

MB_INLINE vf all(float x) { return x - vf{}; }

} // namespace MB_ISA
} // namespace mb
