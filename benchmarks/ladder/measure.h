// What all ladders share: numbers to compute with, a clock, and what one core can do at most.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "simd.h"

#define MB_STRING(name) #name
#define MB_NAME(name) MB_STRING(name)

using Floats = std::vector<float>;

// Half a unit in the last place of 1: what a rounding of float32 errs by.
constexpr double kRounding = 1.0 / (1 << 24);

// Numbers between -1 and 1 that are the same everywhere.
inline Floats numbers(int64_t n, uint32_t seed = 1) {
    Floats x(static_cast<size_t>(n));
    uint32_t state = seed;
    for (float &one : x) {
        state = state * 1664525u + 1013904223u;
        one = static_cast<float>(static_cast<int32_t>(state)) / 2147483648.0f;
    }
    return x;
}

inline double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The fastest of the runs of half a second, or one that takes longer: others who use the machine only make it slower.
template <typename Run> double best_seconds(const Run &run) {
    double best = HUGE_VAL, end = seconds() + 0.5;
    for (int times = 0; times < 1 || seconds() < end; ++times) {
        double begin = seconds();
        run();
        best = std::min(best, seconds() - begin);
    }
    return best;
}

// GFLOP/s of multiply-adds that never leave the registers: what one core can do at most.
inline double peak() {
    using namespace mb::MB_ISA;
    constexpr int kSums = 12, kTimes = 1000000; // enough to hide the latency, few enough for 16 registers
    double best = HUGE_VAL;
    for (int run = 0; run < 20; ++run) {
        vf sums[kSums], factor = all(0.75f), term = all(0.25f); // tend to 1
        for (int i = 0; i < kSums; ++i) {
            sums[i] = all(static_cast<float>(i));
        }
        double begin = seconds();
        for (int n = 0; n < kTimes; ++n)
#pragma GCC unroll 12
            for (int i = 0; i < kSums; ++i) {
                sums[i] = sums[i] * factor + term;
            }
        best = std::min(best, seconds() - begin);
        volatile float sink = 0;
        for (const vf &sum : sums) {
            sink = sink + sum[0];
        }
    }
    return 2e-9 * kSums * VL * kTimes / best;
}

// GB/s read and written by a copy that moves so many bytes in all.
inline double copy_rate(int64_t bytes) {
    std::vector<char> from(static_cast<size_t>(bytes / 2), 1), to(from.size(), 2);
    return 1e-9 * static_cast<double>(bytes) / best_seconds([&] {
               std::memcpy(to.data(), from.data(), from.size());
               __asm__ volatile("" ::: "memory");
           });
}

// Rungs are functions of one signature, with a name.
template <typename Function> struct Rung {
    const char *name;
    Function *run;
};

inline int threads_of(int count, char **arguments) {
    return count > 1 ? std::max(1, std::atoi(arguments[1])) : 1;
}

inline bool only_check(int count, char **arguments) {
    return count > 1 && std::strcmp(arguments[1], "check") == 0;
}
