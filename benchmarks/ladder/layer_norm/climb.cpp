// Checks every rung against double precision, then times it, as a share of what a copy of as many bytes reaches.
//
//   layer_norm [check | THREADS]     only check them; threads of the last rung; 1 if nothing is said
#include "layer_norm_rungs.h"
#include "measure.h"

namespace {

const Rung<LayerNorm> kRungs[] = {{"1 naive", naive}, {"2 row by row", row_by_row}, {"3 vectors", vectors},
                                  {"4 fused", fused}, {"5 one pass", one_pass},     {"6 product", product}};

struct Shape {
    int64_t T, H;
};

// 4,096 tokens of BERT-base, in memory; 32 of them, in the second-level cache; 4,096 of BERT-tiny.
const Shape kTimed[] = {{4096, 768}, {32, 768}, {4096, 128}};
const Shape kUgly[] = {{1, 1}, {3, 2}, {61, 24}, {5, 37}, {7, 33}, {2, 1000}, {0, 5}};

struct Arrays {
    Floats x, out, bias, gamma, beta, sum, y, mean, inverse;
    std::vector<uint32_t> keys;
    Norm norm;

    // level: what all of x lies about
    Arrays(Shape s, float level) {
        auto room = [](int64_t n) { return Floats(static_cast<size_t>(n), NAN); };
        x = numbers(s.T * s.H, 1), out = numbers(s.T * s.H, 2), bias = numbers(s.H, 3);
        gamma = numbers(s.H, 4), beta = numbers(s.H, 5);
        sum = room(s.T * s.H), y = room(s.T * s.H), mean = room(s.T), inverse = room(s.T);
        for (float &one : x) {
            one += level;
        }
        for (int64_t t = 0; t < s.T; ++t) {
            auto number = static_cast<uint32_t>(t);
            keys.push_back(number * 2654435761u), keys.push_back(~number * 2246822519u);
        }
        norm = {s.T,           s.H,         x.data(),
                out.data(),    bias.data(), gamma.data(),
                beta.data(),   1e-5f,       {keys.data(), 7, 6554, 65536.0f / (65536 - 6554)},
                sum.data(),    y.data(),    mean.data(),
                inverse.data()};
    }
};

bool near(const Rung<LayerNorm> &rung, const Norm &n, const char *what, int64_t at, double found,
          double right, double bound) {
    if (std::fabs(found - right) <= bound) {
        return true;
    }
    std::printf("%s is wrong at T=%d H=%d: %s %d is %.9g, should be %.9g\n", rung.name, static_cast<int>(n.T),
                static_cast<int>(n.H), what, static_cast<int>(at), found, right);
    return false;
}

// The sums are compared with those of double precision, what is made of them with what double precision makes of them.
// Bounds are a few roundings of the largest number that goes into each.
bool right(const Rung<LayerNorm> &rung, Shape s, float level) {
    Arrays arrays(s, level);
    const Norm &n = arrays.norm;
    rung.run(n);
    for (int64_t t = 0; t < n.T; ++t) {
        mb::MB_ISA::Key key = mb::MB_ISA::row_key(n.drop, t);
        double mean = 0, variance = 0, H = static_cast<double>(n.H);
        for (int64_t i = t * n.H; i < (t + 1) * n.H; ++i) {
            double through = static_cast<double>(n.out[i]) + n.bias[i - t * n.H];
            double both = n.x[i] + (survives(n.drop, key, i - t * n.H) ? through * n.drop.scale : 0);
            if (!near(rung, n, "sum", i, n.sum[i], both, 4 * kRounding * (std::fabs(both) + 3))) {
                return false;
            }
            mean += n.sum[i] / H;
        }
        double largest = std::fabs(level) + 4;
        for (int64_t i = t * n.H; i < (t + 1) * n.H; ++i) {
            variance += (n.sum[i] - mean) * (n.sum[i] - mean) / H;
        }
        double inverse = 1 / std::sqrt(variance + n.eps), error = kRounding * (largest + std::sqrt(H));
        if (!near(rung, n, "mean", t, n.mean[t], mean, 4 * error)) {
            return false;
        }
        for (int64_t i = t * n.H; i < (t + 1) * n.H; ++i) {
            double normal = (n.sum[i] - mean) * inverse, gamma = n.gamma[i - t * n.H],
                   beta = n.beta[i - t * n.H];
            double bound =
                4 * error * inverse * (1 + std::fabs(normal)) + 16 * kRounding * (std::fabs(normal) + 1);
            if (!near(rung, n, "y", i, n.y[i], normal * gamma + beta, bound)) {
                return false;
            }
        }
    }
    return true;
}

} // namespace

int main(int count, char **arguments) {
    thread_count = threads_of(count, arguments);
    for (const auto &rung : kRungs) {
        // One chain of H additions, as the first two have, loses too much of numbers about 1,000 to be checked with.
        bool chained = rung.run == naive || rung.run == row_by_row;
        for (float level : {0.0f, chained ? 3.0f : 1000.0f}) {
            for (Shape s : kUgly) {
                if (!right(rung, s, level)) {
                    return 1;
                }
            }
            if (!right(rung, {64, 768}, level)) {
                return 1;
            }
        }
    }
    if (only_check(count, arguments)) {
        return 0;
    }
    std::printf("LayerNorm(x + dropout(out + bias)), %s, float32: GB/s of x, out, sum and y, and share of a "
                "copy of as "
                "many bytes\n%-16s",
                MB_NAME(MB_ISA), "T,H");
    double limits[3];
    for (int i = 0; i < 3; ++i) {
        limits[i] = copy_rate(16 * kTimed[i].T * kTimed[i].H);
        std::printf("%8d,%4d      ", static_cast<int>(kTimed[i].T), static_cast<int>(kTimed[i].H));
    }
    std::printf("\n");
    for (const auto &rung : kRungs) {
        std::printf("%-16s", rung.name);
        for (int i = 0; i < 3; ++i) {
            Arrays arrays(kTimed[i], 0);
            double once = best_seconds([&] { rung.run(arrays.norm); });
            double here = 16e-9 * static_cast<double>(kTimed[i].T * kTimed[i].H) / once;
            std::printf("%8.1f (%3.0f%%)    ", here, 100 * here / limits[i]);
            std::fflush(stdout);
        }
        std::printf("\n");
    }
}
