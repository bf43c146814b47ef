// The memory that arrays are made of: what is given back is kept for the next array of about the same size, within a
// limit.
#include "test_kernels.h"

#include <algorithm>
#include <cstdio>
#if defined(__linux__)
#include <unistd.h>
#endif

#include "memory.h"

namespace {

// The bytes of address space that this process has; 0 where the system does not tell.
size_t mapped() {
    unsigned long pages = 0;
#if defined(__linux__)
    if (FILE *file = std::fopen("/proc/self/statm", "r")) {
        CHECK(std::fscanf(file, "%lu", &pages) == 1);
        std::fclose(file);
    }
    return pages * (size_t)sysconf(_SC_PAGESIZE);
#endif
    return pages;
}

} // namespace

void test_memory(mb::Pool &, Digest &) {
    constexpr size_t kMiB = size_t{1} << 20;
    mb::release();
    // Small and large, all of it may be written to, and starts at a cache line.
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{65536}, 3 * kMiB + 1, 9 * kMiB + 5}) {
        void *block = mb::take(bytes);
        CHECK((uintptr_t)block % 64 == 0);
        std::memset(block, 7, bytes);
        mb::give(block, bytes);
        CHECK(mb::take(bytes) == block); // the same again
        mb::give(block, bytes);
    }
    mb::release();
    // Sizes that differ by less than an eighth find each other's memory; a larger one does not fit.
    void *block = mb::take(16 * kMiB);
    mb::give(block, 16 * kMiB);
    void *shorter = mb::take(15 * kMiB + 1);
    CHECK(shorter == block);
    void *other = mb::take(16 * kMiB);
    CHECK(other != shorter);
    std::memset(other, 1, 16 * kMiB), std::memset(shorter, 2, 15 * kMiB + 1);
    CHECK(*static_cast<unsigned char *>(other) == 1);
    mb::give(shorter, 15 * kMiB + 1);
    mb::give(other, 16 * kMiB);
    CHECK(mb::take(16 * kMiB) != mb::take(16 * kMiB)); // both are kept, as both have been in use at once
    mb::give(block, 16 * kMiB);
    mb::give(other, 16 * kMiB);
    mb::release();
    // What is kept is no more than a quarter above what was ever in use at once, although in all it was ten times that.
    size_t before = mapped();
    for (size_t number = 1; number <= 20; ++number) {
        void *larger = mb::take(8 * number * kMiB);
        mb::give(larger, 8 * number * kMiB);
    }
    CHECK(mapped() < before + 1000 * kMiB); // a sanitizer, too, keeps some of what is freed
    mb::release();
    // What a thread works with is its own by slot, grows, and is not made anew for less.
    float *left = mb::scratch<float>(mb::Slot::left, 1000);
    CHECK(left != mb::scratch<float>(mb::Slot::right, 1000) &&
          left == mb::scratch<float>(mb::Slot::left, 999));
    float *longer = mb::scratch<float>(mb::Slot::left, 1 << 21);
    std::fill(longer, longer + (1 << 21), 1.0f);
    CHECK(longer == mb::scratch<float>(mb::Slot::left, 10));
}
