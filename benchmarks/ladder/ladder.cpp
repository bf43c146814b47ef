// Checks every rung against double precision, then times it: best of several runs, as a share of what this core can do.
//
//   ladder [THREADS]     threads of the last two rungs; 1 if nothing is said
#include "ladder.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "simd.h"

using namespace mb::MB_ISA;

#define MB_STRING(name) #name
#define MB_NAME(name) MB_STRING(name)

namespace {

struct Rung {
    const char *name;
    Gemm *gemm;
};

const Rung kRungs[] = {{"1 naive", naive},
                       {"2 loop order", loop_order},
                       {"3 cache blocks", cache_blocks},
                       {"4 register tile", register_tile},
                       {"5 packed", packed},
                       {"6 threads", threads},
                       {"7 product", product}};

struct Shape {
    int64_t M, N, K;
};

// A batch of 1,024 tokens through the projections and the feed-forward layer of BERT-base; a large power of two.
const Shape kTimed[] = {{1024, 768, 768}, {1024, 3072, 768}, {1024, 1024, 1024}};
const Shape kUgly[] = {{1, 1, 1}, {13, 7, 37}, {61, 99, 24}, {29, 64, 400}, {3, 33, 1}, {0, 5, 3}, {5, 3, 0}};

using Floats = std::vector<float>;

// Numbers between -1 and 1 that are the same everywhere.
Floats numbers(int64_t n) {
    Floats x(static_cast<size_t>(n));
    uint32_t state = 1;
    for (float &one : x) {
        state = state * 1664525u + 1013904223u,
        one = static_cast<float>(static_cast<int32_t>(state)) / 2147483648.0f;
    }
    return x;
}

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Whether each element is as near to the true sum as a float32 sum of K terms of size up to 1 can be expected to be.
bool right(const Rung &rung, Shape s) {
    Floats A = numbers(s.M * s.K), B = numbers(s.K * s.N), C(static_cast<size_t>(s.M * s.N), NAN);
    rung.gemm(s.M, s.N, s.K, A.data(), B.data(), C.data());
    double bound = 4 * std::ldexp(1.0, -24) * static_cast<double>(s.K + 1);
    int64_t step = s.M * s.N > 100000 ? 997 : 1; // of a large one, some elements
    for (int64_t at = 0; at < s.M * s.N; at += step) {
        double sum = 0;
        for (int64_t k = 0; k < s.K; ++k) {
            sum += static_cast<double>(A[static_cast<size_t>(at / s.N * s.K + k)]) *
                   B[static_cast<size_t>(k * s.N + at % s.N)];
        }
        if (!(std::fabs(C[static_cast<size_t>(at)] - sum) <= bound)) {
            std::printf("%s is wrong at M=%d N=%d K=%d: element %d is %.9g, should be %.9g\n", rung.name,
                        static_cast<int>(s.M), static_cast<int>(s.N), static_cast<int>(s.K),
                        static_cast<int>(at), static_cast<double>(C[static_cast<size_t>(at)]), sum);
            return false;
        }
    }
    return true;
}

// Floating-point operations a second, in 10^9.
double rate(const Rung &rung, Shape s) {
    Floats A = numbers(s.M * s.K), B = numbers(s.K * s.N), C(static_cast<size_t>(s.M * s.N));
    double best = HUGE_VAL, end = seconds() + 0.5;
    for (int run = 0; run < 2 || seconds() < end; ++run) {
        double begin = seconds();
        rung.gemm(s.M, s.N, s.K, A.data(), B.data(), C.data());
        best = std::min(best, seconds() - begin);
    }
    return 2e-9 * static_cast<double>(s.M * s.N * s.K) / best;
}

// The same for multiply-adds that never leave the registers: what one core can do at most.
double peak() {
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

} // namespace

int main(int count, char **arguments) {
    thread_count = count > 1 ? std::max(1, std::atoi(arguments[1])) : 1;
    for (const Rung &rung : kRungs) {
        for (Shape s : kUgly) {
            if (!right(rung, s)) {
                return 1;
            }
        }
        if (!right(rung, kTimed[0])) {
            return 1;
        }
    }
    double limit = peak();
    std::printf("%s, float32; multiply-adds from registers: %.0f GFLOP/s on one thread\n", MB_NAME(MB_ISA),
                limit);
    std::printf("%-16s", "M,N,K");
    for (Shape s : kTimed) {
        std::printf("%6d,%4d,%4d      ", static_cast<int>(s.M), static_cast<int>(s.N), static_cast<int>(s.K));
    }
    std::printf("\n");
    for (const Rung &rung : kRungs) {
        std::printf("%-16s", rung.name);
        for (Shape s : kTimed) {
            double here = rate(rung, s);
            std::printf("%8.1f (%3.0f%%)      ", here, 100 * here / limit);
            std::fflush(stdout);
        }
        std::printf("\n");
    }
}
