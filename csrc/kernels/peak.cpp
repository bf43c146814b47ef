#include "peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "simd.h"

namespace mb {
namespace MB_ISA {
namespace {

// Independent sums: the four cycles of a multiply-add times the two units that begin one each are eight on today's
// cores, and sixteen registers, the fewest that an instruction set here has, hold twelve beside the two factors.
constexpr int kSums = 12;
constexpr int64_t kTimes = 5000;   // some microseconds between two looks at the clock
constexpr int kRounds = 50;        // at most, and short: in one of them no other program wants a core
constexpr double kPatience = 0.02; // seconds to wait for a thread that is still asleep

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

template <typename Unit> double rate_of(Pool &pool, double seconds) {
    using Clock = std::chrono::steady_clock;
    auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
    const int threads = pool.threads();
    const double each = seconds / kRounds;
    std::vector<Clock::time_point> begins(threads), ends(threads);
    std::atomic<float> sink{0}; // what nobody reads is not computed
    double best = 0;
    for (auto first = Clock::now(); since(first) < seconds;) {
        std::atomic<int> here{0};
        std::atomic<int64_t> done{0};
        pool.run(threads, [&](int64_t part) {
            begins[part] = Clock::now();
            for (++here; here < threads && since(begins[part]) < kPatience;) {
                std::this_thread::yield(); // all begin together
            }
            begins[part] = Clock::now();
            do { // from another number each time, or the compiler would compute it once
                sink.store(multiply_adds<Unit>((float)(done++ % 8)), std::memory_order_relaxed);
            } while (since(begins[part]) < each);
            ends[part] = Clock::now();
        });
        std::chrono::duration<double> took =
            *std::max_element(ends.begin(), ends.end()) - *std::min_element(begins.begin(), begins.end());
        best = std::max(best, (double)done * kTimes * kSums * Unit::operations / took.count() / 1e9);
    }
    return best;
}

} // namespace

double multiply_add_rate(Pool &pool, double seconds, bool narrow) {
    return narrow ? rate_of<Narrow>(pool, seconds) : rate_of<Wide>(pool, seconds);
}

} // namespace MB_ISA
} // namespace mb
