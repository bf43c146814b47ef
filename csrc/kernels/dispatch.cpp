#include "kernels.h"

#include <cstring>

#if defined(MB_AMX)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mb {

namespace portable {
extern const Kernels kernels;
}
#if defined(MB_X86)
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}
namespace avx512_bf16 {
extern const Kernels kernels;
}
#endif
#if defined(MB_AMX)
namespace amx {
extern const Kernels kernels;
}

namespace {

// Whether there are tiles for bfloat16, and the system lets this process have them: it saves their 8 KB only for those who
// ask.
bool tiles() {
    constexpr unsigned kTiles = 1u << 24, kOfBfloat16 = 1u << 22; // of EDX
    constexpr long kAskFor = 0x1023, kTileData = 18;              // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTiles) && (d & kOfBfloat16) &&
           syscall(SYS_arch_prctl, kAskFor, kTileData) == 0;
}

} // namespace
#endif

std::vector<const Kernels *> available() {
    std::vector<const Kernels *> found;
#if defined(MB_X86)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    bool avx512_bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
#if defined(MB_AMX)
    static const bool amx = avx512_bf16 && tiles();
    if (amx) {
        found.push_back(&mb::amx::kernels);
    }
#endif
    if (avx512_bf16) {
        found.push_back(&mb::avx512_bf16::kernels);
    }
    if (avx512) {
        found.push_back(&mb::avx512::kernels);
    }
    if (avx2) {
        found.push_back(&mb::avx2::kernels);
    }
#endif
    found.push_back(&portable::kernels);
    return found;
}

const Kernels *find(const char *name) {
    for (const Kernels *one : available()) {
        if (*name == '\0' || std::strcmp(name, one->name) == 0) {
            return one;
        }
    }
    return nullptr;
}

} // namespace mb
