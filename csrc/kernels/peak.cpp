#include "peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <numeric>
#include <vector>

#include "amx.h"
#include "simd.h"

namespace mb {
namespace MB_ISA {
namespace {

// Independent sums: more than an instruction's latency times the units that can begin one each cycle. For a multiply-add
// that product is eight on today's cores; for a product of bfloat16 pairs it is twelve, and with just twelve sums a Zen 5
// stays 7 to 9% under its true rate. AVX2 has registers for twelve beside the two factors; g++ unrolls sixteen at most.
constexpr int kSums = VL == 16 ? 16 : 12;
constexpr int64_t kTimes = 50000; // near a tenth of a millisecond between two looks at the clock
constexpr int kRounds = 20;       // of which the best counts
constexpr double kPatience = 5;   // times as long as asked for, where other programs are busy

template <typename Unit> struct Vectors {
    static constexpr double operations = double(kTimes) * kSums * Unit::operations; // of one run
    static float run(float start) {
        const Unit unit;
        vf s[kSums];
        for (int i = 0; i < kSums; ++i) {
            s[i] = all(start + 0.1f * (float)i);
        }
        for (int64_t n = 0; n < kTimes; ++n) {
            for (int i = 0; i < kSums; ++i) {
                s[i] = unit.add(s[i]);
            }
        }
        for (int i = 1; i < kSums; ++i) {
            s[0] += s[i];
        }
        return sum(s[0]);
    }
};

struct Floats {
    static constexpr int operations = 2 * VL;
    vf factor = all(0.75f), term = all(0.25f);
    MB_INLINE vf add(vf s) const { return s * factor + term; } // tends to 1: neither grows nor dies out
};
using Wide = Vectors<Floats>;

#if defined(__AMX_BF16__)
struct Narrow { // four tiles of sums, the operands loaded anew for each four
    static constexpr int64_t kSteps = kTimes / 25;
    static constexpr double operations = double(kSteps) * 4 * (2 * kTile * kTile * 2 * kTile);
    static float run(float start) {
        alignas(64) float pairs[2 * kTile * kTile], sums[4 * kTile * kTile];
        std::fill(std::begin(pairs), std::end(pairs), start);
        Tiles tiles;
        multiply_tiles<true, true>(kSteps, pairs, kTile, kTile * kTile, 0, pairs, 2 * kTile, 0, sums,
                                   2 * kTile, false);
        return sums[0];
    }
};
#elif defined(__AVX512BF16__)
struct Products {
    static constexpr int operations = 4 * VL; // two products in each lane
    __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1e-3f), _mm512_set1_ps(1e-3f));
    __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f));
    MB_INLINE vf add(vf s) const { return (vf)_mm512_dpbf16_ps((__m512)s, a, b); }
};
using Narrow = Vectors<Products>;
#else
using Narrow = Wide;
#endif

// Seconds that the calling thread has computed: those that other programs had the core for do not count.
double computed() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

template <typename How> double rate_of(Pool &pool, double seconds) {
    using Clock = std::chrono::steady_clock;
    auto first = Clock::now();
    auto since = [first] { return std::chrono::duration<double>(Clock::now() - first).count(); };
    std::vector<double> rates(pool.threads());
    std::atomic<float> sink{0}; // an unread result would be optimised away
    double best = 0;
    for (int round = 0; round < kRounds && (round == 0 || since() < kPatience * seconds); ++round) {
        pool.run(pool.threads(), [&](int64_t part) {
            double began = computed(), took = 0;
            int64_t done = 0;
            while (took < seconds / kRounds) { // from another number each time, or it would be computed once
                sink.store(How::run((float)(done++ % 8)), std::memory_order_relaxed);
                took = computed() - began;
            }
            rates[part] = (double)done * How::operations / took;
        });
        best = std::max(best, std::accumulate(rates.begin(), rates.end(), 0.0));
    }
    return best / 1e9;
}

} // namespace

double multiply_add_rate(Pool &pool, double seconds, bool narrow) {
    return narrow ? rate_of<Narrow>(pool, seconds) : rate_of<Wide>(pool, seconds);
}

} // namespace MB_ISA
} // namespace mb
