// What the machine can do at most: fused multiply-adds a second from registers, and bytes copied a second.
//
//   rates list                         the vector units there are, one "dtype name" a line
//   rates fma DTYPE NAME THREADS MS    giga floating-point operations a second (a multiply-add is two)
//   rates copy BYTES THREADS MS        gigabytes read and written a second; each thread has arrays of its own

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__)
#define MB_X86 1
#include <immintrin.h>
#if defined(__linux__)
#define MB_AMX 1
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace {

// Independent sums: latency of a multiply-add times units that start one in each cycle is at most 4 x 2 on
// today's cores, and the registers of AVX2 hold 12 sums beside the two factors.
constexpr int SUMS = 12;

// What is added up must be used, or the compiler drops the loop.
volatile float sink;

// No sum grows without bound and none dies out: s = 0.75 s + 0.25 tends to 1.
#define MB_FMA_LOOP(NAME, ATTRIBUTES, BYTES)                                                                 \
    ATTRIBUTES void NAME(long times) {                                                                       \
        typedef float Vector __attribute__((vector_size(BYTES)));                                            \
        Vector s[SUMS], factor = Vector{} + 0.75f, term = Vector{} + 0.25f;                                  \
        for (int i = 0; i < SUMS; i++)                                                                       \
            s[i] = Vector{} + 0.1f * (float)i;                                                               \
        for (long n = 0; n < times; n++) {                                                                   \
            for (int i = 0; i < SUMS; i++)                                                                   \
                s[i] = s[i] * factor + term;                                                                 \
        }                                                                                                    \
        float sum = 0;                                                                                       \
        for (int i = 0; i < SUMS; i++)                                                                       \
            sum += s[i][0];                                                                                  \
        sink = sum;                                                                                          \
    }

#ifdef MB_X86
MB_FMA_LOOP(fma_avx2, __attribute__((target("avx2,fma"))), 32)
MB_FMA_LOOP(fma_avx512, __attribute__((target("avx512f"))), 64)

// VDPBF16PS: two products of bfloat16 added to each of sixteen float32 sums. Its latency times the units that start
// one in each cycle is SUMS, and more are needed to reach the full rate; g++ unrolls 16 at most.
constexpr int MORE_SUMS = 16;

__attribute__((target("avx512f,avx512bf16"))) void fma_bf16(long times) {
    __m512 s[MORE_SUMS];
    const __m512 small = _mm512_set1_ps(1e-3f), one = _mm512_set1_ps(1.0f);
    const __m512bh a = _mm512_cvtne2ps_pbh(small, small), b = _mm512_cvtne2ps_pbh(one, one);
    for (int i = 0; i < MORE_SUMS; i++) {
        s[i] = _mm512_set1_ps(0.1f * (float)i);
    }
    for (long n = 0; n < times * SUMS / MORE_SUMS; n++) {
        for (int i = 0; i < MORE_SUMS; i++) {
            s[i] = _mm512_dpbf16_ps(s[i], a, b);
        }
    }
    float sum = 0;
    for (int i = 0; i < MORE_SUMS; i++) {
        sum += _mm512_cvtss_f32(s[i]);
    }
    sink = sum;
}
#else
MB_FMA_LOOP(fma_portable, , 16)
#endif

#ifdef MB_AMX
// TDPBF16PS: the product of 16 rows of 32 bfloat16 and 32 rows of 16, added to a tile of 16 x 16 float32 sums. Four such
// tiles, whose operands are loaded again from the nearest cache, as every product has to.
static_assert(SUMS % 4 == 0, "four tiles at a time");

__attribute__((target("amx-tile,amx-bf16"))) void fma_amx(long times) {
    struct alignas(64) {
        unsigned char palette = 1, start = 0, reserved[14] = {};
        unsigned short bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } shape;
    alignas(64) static thread_local char operands[4][1024], sums[1024];
    __asm__ volatile("" ::: "memory");
    _tile_loadconfig(&shape);
    for (long n = 0; n < times * (SUMS / 4); n++) {
        _tile_loadd(4, operands[0], 64);
        _tile_loadd(5, operands[1], 64);
        _tile_loadd(6, operands[2], 64);
        _tile_loadd(7, operands[3], 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 64);
    _tile_release();
    sink = sums[0];
}

// Whether the processor has tiles, and the system lets this program use them.
bool has_amx() {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 24 & 1 && d >> 22 & 1 &&
           syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* XFEATURE_XTILEDATA */) == 0;
}
#endif

struct Unit {
    const char *dtype, *name;
    bool there;
    int operations; // of one instruction
    void (*loop)(long times);
};

std::vector<Unit> units() {
#ifdef MB_X86
    __builtin_cpu_init();
    return {
        {"float32", "avx2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), 16, fma_avx2},
        {"float32", "avx512", (bool)__builtin_cpu_supports("avx512f"), 32, fma_avx512},
        {"bfloat16", "avx512-bf16", (bool)__builtin_cpu_supports("avx512bf16"), 64, fma_bf16},
#ifdef MB_AMX
        {"bfloat16", "amx", has_amx(), 2 * 16 * 16 * 32, fma_amx},
#endif
    };
#else
    return {{"float32", "portable", true, 8, fma_portable}};
#endif
}

// Runs work(thread, times) on all threads at once, as often as fits into the milliseconds; how many times a
// second, all threads together.
template <class Work> double rate(int threads, double milliseconds, long times, const Work &work) {
    using Clock = std::chrono::steady_clock;
    std::atomic<int> ready{0};
    std::vector<double> done(threads), took(threads);
    auto body = [&](int thread) {
        work(thread, times); // pages, caches and the clock of the core
        ready++;
        while (ready < threads) { // all begin together
            std::this_thread::yield();
        }
        auto began = Clock::now();
        double seconds = 0;
        while (seconds * 1000 < milliseconds) {
            work(thread, times);
            done[thread] += (double)times;
            seconds = std::chrono::duration<double>(Clock::now() - began).count();
        }
        took[thread] = seconds;
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads; i++) {
        others.emplace_back(body, i);
    }
    body(0);
    for (std::thread &other : others) {
        other.join();
    }
    double total = 0;
    for (int i = 0; i < threads; i++) {
        total += done[i] / took[i];
    }
    return total;
}

double copy_rate(size_t bytes, int threads, double milliseconds) {
    std::vector<std::vector<char>> from(threads), to(threads);
    for (int i = 0; i < threads; i++) {
        from[i].assign(bytes, 1), to[i].assign(bytes, 2);
    }
    long times = std::max<long>(1, (long)(1e7 / (double)bytes));
    double copies = rate(threads, milliseconds, times, [&](int thread, long n) {
        for (long i = 0; i < n; i++) {
            std::memcpy(to[thread].data(), from[thread].data(), bytes);
            __asm__ volatile("" ::: "memory");
        }
    });
    return copies * 2.0 * (double)bytes / 1e9;
}

} // namespace

int main(int count, char **words) {
    std::string what = count > 1 ? words[1] : "";
    if (what == "list" && count == 2) {
        for (const Unit &unit : units()) {
            if (unit.there) {
                std::printf("%s %s\n", unit.dtype, unit.name);
            }
        }
        return 0;
    }
    if (what == "fma" && count == 6) {
        for (const Unit &unit : units()) {
            if (unit.there && words[2] == std::string(unit.dtype) && words[3] == std::string(unit.name)) {
                double rounds = rate(std::max(1, std::atoi(words[4])), std::atof(words[5]), 100000,
                                     [&](int, long times) { unit.loop(times); });
                std::printf("%.3f\n", rounds * SUMS * unit.operations / 1e9);
                return 0;
            }
        }
    }
    if (what == "copy" && count == 5) {
        double found = copy_rate((size_t)std::max(1LL, std::atoll(words[2])),
                                 std::max(1, std::atoi(words[3])), std::atof(words[4]));
        std::printf("%.3f\n", found);
        return 0;
    }
    std::fprintf(stderr, "usage: rates list | fma DTYPE NAME THREADS MS | copy BYTES THREADS MS\n");
    return 2;
}
