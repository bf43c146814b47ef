#include "kernels.h"

#include <cstring>

// What there are kernels for, the fastest first; the build passes the list, as it knows what the compiler can do.
#ifndef MB_SETS
#define MB_SETS MB_SET(portable)
#endif

namespace mb {

#define MB_SET(name)                                                                                         \
    namespace name {                                                                                         \
    extern const Kernels kernels;                                                                            \
    }
MB_SETS
#undef MB_SET

std::vector<const Kernels *> available() {
#define MB_SET(name) &name::kernels,
    std::vector<const Kernels *> found;
    for (const Kernels *one : {MB_SETS}) {
        if (runs(one->needs)) {
            found.push_back(one);
        }
    }
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
