// Stands in for csrc/kernels/threads.cpp: a loop is cut as for many threads and runs on one, and how long each of its
// parts took is kept for `benchmarks/cores.py`.
#include <chrono>
#include <cstdint>
#include <vector>

#include "subnormals.h"
#include "threads.h"

#define MB_SEEN extern "C" __attribute__((visibility("default")))

namespace {

using Clock = std::chrono::steady_clock;

bool in_loop = false;
std::vector<int64_t> kept; // of each loop: ns since the one before it, its number of parts, ns of each
Clock::time_point last = Clock::now();

int64_t nanoseconds(Clock::duration time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

} // namespace

namespace mb {

Pool::~Pool() = default;

void Pool::run(int64_t count, Task task) {
    NoSubnormals here;
    if (in_loop || count <= 1) {
        for (int64_t i = 0; i < count; ++i) {
            task(i);
        }
        return;
    }
    in_loop = true;
    auto before = Clock::now();
    kept.push_back(nanoseconds(before - last));
    kept.push_back(count);
    for (int64_t i = 0; i < count; ++i) {
        task(i);
        auto now = Clock::now();
        kept.push_back(nanoseconds(now - before));
        before = now;
    }
    last = before;
    in_loop = false;
}

} // namespace mb

// What is kept; how many numbers there are goes to `size`.
MB_SEEN const int64_t *mb_loops(int64_t *size) {
    *size = static_cast<int64_t>(kept.size());
    return kept.data();
}

MB_SEEN void mb_forget() {
    kept.clear();
    last = Clock::now();
}
