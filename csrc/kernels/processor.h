// What compiled code takes for granted of a processor, and what the one here has.
#pragma once

#include "simd.h"

#if defined(__linux__) && defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mb {

// Each with those before it. kBfloat16 has VNNI as well, which no processor with bfloat16 lacks.
constexpr unsigned kAvx2 = 1, kAvx512 = 2, kBfloat16 = 4, kTiles = 8;

#if defined(__x86_64__)
// Whether there are tiles for bfloat16, and the system lets this process have them: it saves their 8 KB only for those
// who ask.
static inline bool may_use_tiles() {
#if defined(__linux__)
    constexpr unsigned kTile = 1u << 24, kOfBfloat16 = 1u << 22; // of EDX
    constexpr long kAskFor = 0x1023, kTileData = 18;             // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTile) && (d & kOfBfloat16) &&
           syscall(SYS_arch_prctl, kAskFor, kTileData) == 0;
#else
    return false;
#endif
}
#endif

static inline unsigned features() {
    unsigned found = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        found |= kAvx2;
    }
    if (found && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
        found |= kAvx512;
    }
    if ((found & kAvx512) && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) {
        found |= kBfloat16;
    }
    if ((found & kBfloat16) && may_use_tiles()) {
        found |= kTiles;
    }
#endif
    return found;
}

// Whether this processor runs code that needs those features.
static inline bool runs(unsigned needs) {
    static const unsigned found = features();
    return (needs & ~found) == 0;
}

namespace MB_ISA {

// What the flags let the compiler use.
constexpr unsigned kNeeds = 0
#if defined(__AVX2__)
                            | kAvx2
#endif
#if defined(__AVX512F__)
                            | kAvx512
#endif
#if defined(__AVX512BF16__)
                            | kBfloat16
#endif
#if defined(__AMX_BF16__)
                            | kTiles
#endif
    ;

} // namespace MB_ISA
} // namespace mb
