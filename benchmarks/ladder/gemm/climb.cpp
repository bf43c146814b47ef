// Checks every rung against double precision, then times it, as a share of what this core can do.
//
//   gemm [check | THREADS]     only check them; threads of the last two rungs; 1 if nothing is said
#include "gemm_rungs.h"
#include "measure.h"

namespace {

const Rung<Gemm> kRungs[] = {{"1 naive", naive},
                             {"2 loop order", loop_order},
                             {"3 cache blocks", cache_blocks},
                             {"4 register tile", register_tile},
                             {"5 packed", packed},
                             {"6 in place", in_place},
                             {"7 threads", threads},
                             {"8 product", product}};

struct Shape {
    int64_t M, N, K;
};

// A batch of 1,024 tokens through the projections and the feed-forward layer of BERT-base; a large power of two.
const Shape kTimed[] = {{1024, 768, 768}, {1024, 3072, 768}, {1024, 1024, 1024}};
const Shape kUgly[] = {{1, 1, 1}, {13, 7, 37}, {61, 99, 24}, {29, 64, 400}, {3, 33, 1}, {0, 5, 3}, {5, 3, 0}};

// Whether each element is as near to the true sum as a float32 sum of K terms of size up to 1 can be expected to be.
bool right(const Rung<Gemm> &rung, Shape s) {
    Floats A = numbers(s.M * s.K), B = numbers(s.K * s.N), C(static_cast<size_t>(s.M * s.N), NAN);
    rung.run(s.M, s.N, s.K, A.data(), B.data(), C.data());
    double bound = 4 * kRounding * static_cast<double>(s.K + 1);
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
double rate(const Rung<Gemm> &rung, Shape s) {
    Floats A = numbers(s.M * s.K), B = numbers(s.K * s.N), C(static_cast<size_t>(s.M * s.N));
    double once = best_seconds([&] { rung.run(s.M, s.N, s.K, A.data(), B.data(), C.data()); });
    return 2e-9 * static_cast<double>(s.M * s.N * s.K) / once;
}

} // namespace

int main(int count, char **arguments) {
    thread_count = threads_of(count, arguments);
    for (const auto &rung : kRungs) {
        for (Shape s : kUgly) {
            if (!right(rung, s)) {
                return 1;
            }
        }
        if (!right(rung, kTimed[0])) {
            return 1;
        }
    }
    if (only_check(count, arguments)) {
        return 0;
    }
    double limit = peak();
    std::printf("Matrix product, %s, float32: GFLOP/s, and share of multiply-adds from registers (%.0f "
                "GFLOP/s on one thread)\n",
                MB_NAME(MB_ISA), limit);
    std::printf("%-16s", "M,N,K");
    for (Shape s : kTimed) {
        std::printf("%6d,%4d,%4d      ", static_cast<int>(s.M), static_cast<int>(s.N), static_cast<int>(s.K));
    }
    std::printf("\n");
    for (const auto &rung : kRungs) {
        std::printf("%-16s", rung.name);
        for (Shape s : kTimed) {
            double here = rate(rung, s);
            std::printf("%8.1f (%3.0f%%)      ", here, 100 * here / limit);
            std::fflush(stdout);
        }
        std::printf("\n");
    }
}
