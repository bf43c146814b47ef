// Checks every rung against double precision, then times it, as a share of what this core can do.
//
//   attention [check | THREADS]     only check them; threads of the last rung; 1 if nothing is said
#include "attention_rungs.h"
#include "measure.h"

namespace {

const Rung<Attention> kRungs[] = {{"1 naive", naive},
                                  {"2 no padding", no_padding},
                                  {"3 rows in cache", rows_in_cache},
                                  {"4 vectors", vectors},
                                  {"5 online", online},
                                  {"6 register tiles", register_tiles},
                                  {"7 queries across", queries_across},
                                  {"8 product", product}};

// Sequences of these lengths, and what they are timed as.
struct Work {
    const char *name;
    std::vector<int32_t> lengths;
    int64_t A, D;

    int64_t tokens() const {
        int64_t T = 0;
        for (int32_t n : lengths) {
            T += n;
        }
        return T;
    }
    std::vector<int32_t> begins() const {
        std::vector<int32_t> found{0};
        for (int32_t n : lengths) {
            found.push_back(found.back() + n);
        }
        return found;
    }
    // Useful multiply-adds, two operations each, in 10^9.
    double operations() const {
        double squares = 0;
        for (int32_t n : lengths) {
            squares += static_cast<double>(n) * n;
        }
        return 4e-9 * squares * static_cast<double>(A * D);
    }
};

// The last: phrases of films' reviews, whose lengths in pieces these are (SST-2).
const Work kTimed[] = {
    {"16 of 128", std::vector<int32_t>(16, 128), 4, 64},
    {"4 of 512", std::vector<int32_t>(4, 512), 4, 64},
    {"64 phrases",
     {3,  3,  4,  4,  4,  4,  4,  5,  5,  5,  5,  5,  5,  6,  6,  6,  6,  6,  7,  7,  7,  7,
      8,  8,  8,  8,  9,  9,  9,  9,  10, 10, 10, 11, 11, 11, 12, 12, 13, 13, 14, 14, 14, 15,
      16, 16, 17, 17, 18, 19, 20, 20, 21, 22, 23, 24, 26, 27, 29, 30, 33, 35, 39, 46},
     4,
     64}};
const Work kUgly[] = {
    {"", {1}, 1, 1}, {"", {1, 2, 7, 61}, 3, 8}, {"", {17, 1, 130, 64}, 2, 37}, {"", {65}, 1, 64}};

struct Arrays {
    Floats q, k, v, y;
    // Scores of some size, so that softmax is neither flat nor a single one.
    explicit Arrays(const Work &work) {
        int64_t n = work.tokens() * work.A * work.D;
        q = numbers(n, 1), k = numbers(n, 2), v = numbers(n, 3), y = Floats(static_cast<size_t>(n), NAN);
        for (float &one : q) {
            one *= 6;
        }
    }
};

// Whether each element is as near to the true value as float32 can be expected to be. A score errs by some roundings of
// the sum of |q_d k_d|, which makes a relative error of the same size in its probability.
bool right(const Rung<Attention> &rung, const Work &work) {
    Arrays x(work);
    std::vector<int32_t> begins = work.begins();
    int64_t D = work.D, step = work.A * D;
    Batch batch{static_cast<int64_t>(work.lengths.size()), begins.data(), work.A, D};
    rung.run(batch, x.q.data(), x.k.data(), x.v.data(), x.y.data());
    for (int64_t s = 0; s < batch.S; ++s) {
        for (int64_t a = 0; a < work.A; ++a) {
            int64_t n = batch.length(s);
            const float *Q = &x.q[0] + batch.at(s, a), *K = &x.k[0] + batch.at(s, a),
                        *V = &x.v[0] + batch.at(s, a);
            std::vector<double> p(static_cast<size_t>(n));
            for (int64_t i = 0; i < n; i += n > 100 ? 7 : 1) { // of a long one, some queries
                double top = -HUGE_VAL, sum = 0, size = 0;
                for (int64_t j = 0; j < n; ++j) {
                    double score = 0, sizes = 0;
                    for (int64_t d = 0; d < D; ++d) {
                        double term = static_cast<double>(Q[i * step + d]) * K[j * step + d];
                        score += term, sizes += std::fabs(term);
                    }
                    p[static_cast<size_t>(j)] = score / std::sqrt(static_cast<double>(D));
                    size = std::max(size, sizes / std::sqrt(static_cast<double>(D)));
                    top = std::max(top, p[static_cast<size_t>(j)]);
                }
                for (double &one : p) {
                    one = std::exp(one - top), sum += one;
                }
                double bound = kRounding * (16 + 4 * size + std::sqrt(static_cast<double>(n)));
                for (int64_t d = 0; d < D; ++d) {
                    double answer = 0;
                    for (int64_t j = 0; j < n; ++j) {
                        answer += p[static_cast<size_t>(j)] / sum * V[j * step + d];
                    }
                    double found = x.y[static_cast<size_t>(batch.at(s, a) + i * step + d)];
                    if (!(std::fabs(found - answer) <= bound)) {
                        std::printf(
                            "%s is wrong in sequence %d of %d tokens, head %d: element (%d, %d) is %.9g, "
                            "should be %.9g\n",
                            rung.name, static_cast<int>(s), static_cast<int>(n), static_cast<int>(a),
                            static_cast<int>(i), static_cast<int>(d), found, answer);
                        return false;
                    }
                }
            }
        }
    }
    return true;
}

} // namespace

int main(int count, char **arguments) {
    thread_count = threads_of(count, arguments);
    for (const auto &rung : kRungs) {
        for (const Work &work : kUgly) {
            if (!right(rung, work)) {
                return 1;
            }
        }
        for (const Work &work : kTimed) {
            if (!right(rung, work)) {
                return 1;
            }
        }
    }
    if (only_check(count, arguments)) {
        return 0;
    }
    double limit = peak();
    std::printf(
        "Attention, 4 heads of 64, %s, float32: useful GFLOP/s, and share of multiply-adds from registers "
        "(%.0f GFLOP/s on one thread)\n%-18s",
        MB_NAME(MB_ISA), limit, "sequences");
    for (const Work &work : kTimed) {
        std::printf("%14s", work.name);
    }
    std::printf("\n");
    for (const auto &rung : kRungs) {
        std::printf("%-18s", rung.name);
        for (const Work &work : kTimed) {
            Arrays x(work);
            std::vector<int32_t> begins = work.begins();
            Batch batch{static_cast<int64_t>(work.lengths.size()), begins.data(), work.A, work.D};
            double once = best_seconds([&] { rung.run(batch, &x.q[0], &x.k[0], &x.v[0], &x.y[0]); });
            double here = work.operations() / once;
            std::printf("%8.1f (%2.0f%%)", here, 100 * here / limit);
            std::fflush(stdout);
        }
        std::printf("\n");
    }
}
