#include "kernels.h"

#include <cstring>

#if defined(MB_AMX)
#include "amx.h"
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
    static const bool amx = avx512_bf16 && may_use_tiles();
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
