// The rate of multiply-adds. How fast the machine is, nobody knows here: what is checked is that it is a rate, and that
// it comes of as much computing as was asked for, in seconds of the processor, which other programs do not change.
#include "test_kernels.h"

#include <ctime>

#include "peak.h"

using namespace mb::MB_ISA;

namespace {

constexpr int kRounds = 20; // at least one of which is measured, however busy the machine

double processor_seconds() { return (double)std::clock() / CLOCKS_PER_SEC; }

} // namespace

void test_peak(mb::Pool &pool, Digest &) {
    for (bool narrow : {false, true}) {
        double before = processor_seconds(), seconds = 0.1;
        double rate = multiply_add_rate(pool, seconds, narrow);
        CHECK(std::isfinite(rate) && rate > 0);
        CHECK_AT_MOST(rate, 1e5 * pool.threads()); // times 10^9: a core has some 100, or 3,000 by tiles
        CHECK_AT_MOST(pool.threads() * seconds / kRounds, processor_seconds() - before + 1e-3);
    }
}
