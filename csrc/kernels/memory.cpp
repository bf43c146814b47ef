#include "memory.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#elif defined(_WIN32)
#include <malloc.h>
#endif

namespace mb {
namespace {

// Large pages: a fresh megabyte costs its first reader 256 faults otherwise.
constexpr size_t kHuge = size_t{1} << 21;

// Fresh memory at a multiple of `alignment`; free_aligned gives it back.
void *aligned(size_t alignment, size_t bytes) {
    void *data = nullptr;
#if defined(_WIN32)
    data = _aligned_malloc(bytes, alignment);
    const bool failed = data == nullptr;
#else
    const bool failed = posix_memalign(&data, alignment, bytes) != 0;
#endif
    if (failed) {
        throw std::bad_alloc();
    }
    return data;
}

void free_aligned(void *data) {
#if defined(_WIN32)
    _aligned_free(data);
#else
    std::free(data);
#endif
}

// Fresh memory in large pages where the system has them, aligned to them.
void *large_pages(size_t bytes) {
    void *data = aligned(kHuge, (bytes + kHuge - 1) / kHuge * kHuge);
#if defined(__linux__)
    madvise(data, (bytes + kHuge - 1) / kHuge * kHuge, MADV_HUGEPAGE);
#endif
    return data;
}

struct Buffer {
    void *data = nullptr;
    size_t bytes = 0;
    ~Buffer() { free_aligned(data); }
};

std::mutex mutex;
std::multimap<size_t, void *> kept;                   // by size
size_t kept_bytes = 0, used_bytes = 0, most_used = 0; // most_used: the highest that used_bytes has been

// Eight sizes to a doubling, so that batches of about the same size find each other's memory.
size_t rounded(size_t bytes) {
    size_t step = size_t{1} << 16;
    while (step * 16 < bytes) {
        step *= 2;
    }
    return (bytes + step - 1) / step * step;
}

// A large page for a small array would waste most of it.
constexpr size_t kLarge = size_t{1} << 22;

void *fresh(size_t bytes) {
    if (bytes >= kLarge) {
        return large_pages(bytes);
    }
    return aligned(64, bytes);
}

void free_largest() {
    auto largest = std::prev(kept.end());
    free_aligned(largest->second);
    kept_bytes -= largest->first;
    kept.erase(largest);
}

// Kept blocks of other sizes are freed before memory counts as exhausted.
void *fresh_or_freed(size_t bytes) {
    for (;;) {
        try {
            return fresh(bytes);
        } catch (const std::bad_alloc &) {
            if (kept.empty()) {
                throw;
            }
            free_largest();
        }
    }
}

} // namespace

void *take(size_t bytes) {
    bytes = rounded(std::max<size_t>(bytes, 1));
    std::lock_guard<std::mutex> lock(mutex);
    size_t used = used_bytes + bytes, most = std::max(most_used, used);
    void *data;
    auto found = kept.find(bytes);
    if (found != kept.end()) {
        data = found->second;
        kept.erase(found);
        kept_bytes -= bytes;
    } else {
        // In all no more than a quarter above what was ever in use at once.
        while (!kept.empty() && kept_bytes + used > most + most / 4) {
            free_largest();
        }
        data = fresh_or_freed(bytes);
    }
    used_bytes = used, most_used = most;
    return data;
}

void give(void *data, size_t bytes) {
    bytes = rounded(std::max<size_t>(bytes, 1));
    std::lock_guard<std::mutex> lock(mutex);
    used_bytes -= bytes;
    try {
        kept.emplace(bytes, data);
        kept_bytes += bytes;
    } catch (const std::bad_alloc &) { // the destructor of an array calls, which can't pass it on
        free_aligned(data);
    }
}

void release() {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto &one : kept) {
        free_aligned(one.second);
    }
    kept.clear();
    kept_bytes = 0;
    most_used = used_bytes;
}

void *scratch_bytes(Slot slot, size_t bytes) {
    thread_local Buffer buffers[static_cast<int>(Slot::count)];
    Buffer &buffer = buffers[static_cast<int>(slot)];
    if (buffer.bytes < bytes) {
        free_aligned(buffer.data);
        buffer.data = nullptr;
        buffer.bytes = 0;
        buffer.data = large_pages(bytes + bytes / 4);
        buffer.bytes = bytes + bytes / 4;
    }
    return buffer.data;
}

} // namespace mb
