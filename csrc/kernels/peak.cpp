#include "peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <numeric>
#include <vector>

#include "simd.h"

namespace mb {
namespace MB_ISA {
namespace {

// Independent sums: the four cycles of a multiply-add times the two units that begin one each are eight on today's
// cores, and sixteen registers, the fewest that an instruction set here has, hold twelve beside the two factors.
constexpr int kSums = 12;
constexpr int64_t kTimes = 50000; // near a tenth of a millisecond between two looks at the clock
constexpr int kRounds = 20;       // of which the best counts
constexpr double kPatience = 5;   // times as long as asked for, where other programs are busy

struct Wide {
    static constexpr int operations = 2 * VL;
    vf factor = all(0.75f), term = all(0.25f);
    MB_INLINE vf add(vf s) const { return s * factor + term; } // tends to 1: neither grows nor dies out
};

#if defined(__AVX512BF16__)
struct Narrow {
    static constexpr int operations = 4 * VL; // two products in each lane
    __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1e-3f), _mm512_set1_ps(1e-3f));
    __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f));
    MB_INLINE vf add(vf s) const { return (vf)_mm512_dpbf16_ps((__m512)s, a, b); }
};
#else
using Narrow = Wide;
#endif

template <typename Unit> float multiply_adds(float start) {
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

// Seconds that the calling thread has computed: those that other programs had the core for do not count.
double computed() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

template <typename Unit> double rate_of(Pool &pool, double seconds) {
    using Clock = std::chrono::steady_clock;
    auto first = Clock::now();
    auto since = [first] { return std::chrono::duration<double>(Clock::now() - first).count(); };
    std::vector<double> rates(pool.threads());
    std::atomic<float> sink{0}; // what nobody reads is not computed
    double best = 0;
    for (int round = 0; round < kRounds && since() < kPatience * seconds; ++round) {
        pool.run(pool.threads(), [&](int64_t part) {
            double began = computed(), took = 0;
            int64_t done = 0;
            while (took < seconds / kRounds) { // from another number each time, or it would be computed once
                sink.store(multiply_adds<Unit>((float)(done++ % 8)), std::memory_order_relaxed);
                took = computed() - began;
            }
            rates[part] = (double)done * kTimes * kSums * Unit::operations / took;
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
