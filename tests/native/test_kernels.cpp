#include "test_kernels.h"

#include <algorithm>

#include "elementary.h"
#include "processor.h"
#include "rowwise.h"

using namespace mb::MB_ISA;

#define STRING(name) #name
#define NAME(name) STRING(name)

namespace {

// |y - expected| in units of the last place of a float at `expected`
double ulps(float y, double expected) {
    if (std::isinf((float)expected) || std::isnan(expected)) {
        return std::isnan(expected) ? (std::isnan(y) ? 0 : HUGE_VAL) : y == (float)expected ? 0 : HUGE_VAL;
    }
    int exponent;
    std::frexp(expected, &exponent);
    return std::fabs(y - expected) / std::ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

template <typename F> double worst_ulps(float low, float high, F f, double (*expected)(double)) {
    Floats x;
    constexpr int kPoints = 1 << 18;
    for (int i = 0; i <= kPoints; ++i) {
        x.push_back(low + (high - low) * ((float)i / kPoints));
    }
    for (float tiny = 1e-38f; tiny < high; tiny *= 1.003f) {
        x.push_back(tiny);
        if (-tiny > low) {
            x.push_back(-tiny);
        }
    }
    x.resize(x.size() / VL * VL);
    double worst = 0;
    for (size_t i = 0; i < x.size(); i += VL) {
        vf y = f(load(&x[i]));
        for (int lane = 0; lane < VL; ++lane) {
            worst = std::max(worst, ulps(y[lane], expected(x[i + (size_t)lane])));
        }
    }
    return worst;
}

double normal_cdf_of(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double tanh_gelu_cdf_of(double x) {
    // (1 + tanh u) / 2 without the cancellation of its left tail
    return 1 / (1 + std::exp(-2 * std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}
double bell_of(double x) { return std::exp(-x * x / 2); }

void test_special_values() {
    const float infinity = INFINITY, none = NAN;
    auto at = [](vf (*f)(vf), float x) { return (float)f(all(x))[VL - 1]; };
    auto exp_at = [&](float x) { return at([](vf v) { return exp(v); }, x); };
    auto tanh_at = [&](float x) { return at([](vf v) { return tanh(v); }, x); };
    auto cdf_at = [&](float x) {
        return at(
            [](vf v) {
                vf bell;
                return normal_cdf(v, &bell);
            },
            x);
    };
    CHECK(exp_at(0) == 1 && exp_at(-infinity) == 0 && exp_at(infinity) == infinity && exp_at(-1000) == 0);
    CHECK(exp_at(88.8f) == infinity && exp_at(88.7f) < infinity && exp_at(-103) > 0);
    CHECK(tanh_at(infinity) == 1 && tanh_at(-infinity) == -1 && std::signbit(tanh_at(-0.0f)));
    CHECK(cdf_at(infinity) == 1 && cdf_at(-infinity) == 0);
    CHECK(std::isnan(exp_at(none)) && std::isnan(tanh_at(none)) && std::isnan(cdf_at(none)));
}

void test_vectors() {
    Floats x(VL);
    for (int i = 0; i < VL; ++i) {
        x[(size_t)i] = (float)(i * i + 1);
    }
    for (int n = 0; n <= VL; ++n) {
        Floats few(x.begin(), x.begin() + n), copy((size_t)n, -1.0f);
        vf v = load(few.data(), n);
        for (int i = 0; i < VL; ++i) {
            CHECK(v[i] == (i < n ? x[(size_t)i] : 0));
        }
        store(copy.data(), v + 1.0f, n);
        for (int i = 0; i < n; ++i) {
            CHECK(copy[(size_t)i] == x[(size_t)i] + 1);
        }
        vf rest = first(n, load(x.data()), all(-3.0f));
        for (int i = 0; i < VL; ++i) {
            CHECK(rest[i] == (i < n ? x[(size_t)i] : -3));
        }
    }
    float total = 0;
    for (float one : x) {
        total += one;
    }
    CHECK(sum(load(x.data())) == total);
    CHECK(max(load(x.data())) == x.back() && max(-load(x.data())) == -1);
    CHECK(sqrt(all(2.0f))[VL - 1] == 1.41421356f && abs(all(-2.0f))[0] == 2);
    CHECK(max(all(1.0f), all(2.0f))[0] == 2 && min(all(1.0f), all(2.0f))[0] == 1);
    for (int n = -150; n <= 127; ++n) {
        CHECK(times_power_of_two(all(1.0f), all((float)n))[0] == std::ldexp(1.0f, n));
    }
}

// Elementwise functions on arrays of every ragged length, in place or not.
void test_maps(mb::Pool &pool, Digest &digest) {
    Random random;
    for (int64_t n : {0, 1, 2, 3, 5, 15, 16, 17, 33, 1000, 40003}) {
        Floats x = random.normals(n, 2), dy = random.normals(n), y((size_t)n), dx((size_t)n);
        for (bool tanh_form : {false, true}) {
            gelu(pool, n, x.data(), y.data(), tanh_form);
            gelu_backward(pool, n, dy.data(), x.data(), dx.data(), tanh_form);
            digest.add(y), digest.add(dx);
            for (size_t i = 0; i < (size_t)n; ++i) {
                double a = x[i], cdf = tanh_form ? tanh_gelu_cdf_of(a) : normal_cdf_of(a);
                // The tail of the tanh form is an exponential, which magnifies the rounding of its argument.
                double magnified = tanh_form ? 8 + 2 * std::fabs(1.6 * a + 0.0714 * a * a * a) : 16;
                CHECK_AT_MOST(std::fabs(y[i] - a * cdf), magnified * kEps * std::fabs(a * cdf) + 1e-40);
                double h = 1e-5, above = tanh_form ? tanh_gelu_cdf_of(a + h) : normal_cdf_of(a + h);
                double below = tanh_form ? tanh_gelu_cdf_of(a - h) : normal_cdf_of(a - h);
                double slope = ((a + h) * above - (a - h) * below) / (2 * h);
                CHECK_AT_MOST(std::fabs(dx[i] - dy[i] * slope), 24 * kEps * std::fabs(dy[i]));
            }
            Floats same = x;
            gelu(pool, n, same.data(), same.data(), tanh_form);
            CHECK(same == y);
        }
        tanh(pool, n, x.data(), y.data());
        tanh_backward(pool, n, dy.data(), y.data(), dx.data());
        digest.add(y), digest.add(dx);
        for (size_t i = 0; i < (size_t)n; ++i) {
            CHECK_AT_MOST(ulps(y[i], std::tanh((double)x[i])), 3);
            CHECK_AT_MOST(std::fabs(dx[i] - dy[i] * (1 - (double)y[i] * y[i])), 4 * kEps * std::fabs(dy[i]));
        }
    }
}

} // namespace

void test_elementary(mb::Pool &pool, Digest &digest) {
    test_vectors();
    test_special_values();
    auto natural = [](double x) { return std::exp(x); };
    CHECK_AT_MOST(worst_ulps(-104, 89, [](vf x) { return exp(x); }, natural), 1);
    CHECK_AT_MOST(worst_ulps(-1, 1, [](vf x) { return exp(x); }, natural), 1);
    auto hyperbolic = [](double x) { return std::tanh(x); };
    CHECK_AT_MOST(worst_ulps(-20, 20, [](vf x) { return tanh(x); }, hyperbolic), 3);
    CHECK_AT_MOST(worst_ulps(-1, 1, [](vf x) { return tanh(x); }, hyperbolic), 3);
    vf bell;
    auto cdf = [&](vf x) { return normal_cdf(x, &bell); };
    CHECK_AT_MOST(worst_ulps(-12.9f, 12.9f, cdf, normal_cdf_of), 7);
    CHECK_AT_MOST(worst_ulps(-1, 1, cdf, normal_cdf_of), 7);
    auto bell_alone = [&](vf x) { return cdf(x), bell; };
    CHECK_AT_MOST(worst_ulps(-12.9f, 12.9f, bell_alone, bell_of), 2);
#if defined(__AVX512BF16__)
    // As relative errors, of floats of the usual 24 bits; half a unit of a bfloat16 is 2^-9 to 2^-8.
    const double coarse = 1e-4 / kEps;
    auto coarse_cdf = [&](vf x) { return coarse_normal_cdf(x, &bell); };
    CHECK_AT_MOST(worst_ulps(-12.9f, 12.9f, coarse_cdf, normal_cdf_of), coarse);
    auto coarse_bell = [&](vf x) { return coarse_cdf(x), bell; };
    CHECK_AT_MOST(worst_ulps(-12.9f, 12.9f, coarse_bell, bell_of), coarse);
    auto power = [](vf x) { return coarse_exp2(x); };
    CHECK_AT_MOST(worst_ulps(-125, 125, power, [](double x) { return std::exp2(x); }), coarse);
    CHECK(std::isnan(coarse_cdf(all(NAN))[0]) && coarse_cdf(all(INFINITY))[0] == 1);
    CHECK(coarse_cdf(all(-INFINITY))[0] == 0);
#endif
    test_maps(pool, digest);
}

namespace {

uint32_t mixed(uint32_t x, uint32_t between = 0) {
    x = ((x ^ (x >> 16)) * 0x7FEB352Du) ^ between;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16);
}

uint32_t folded(uint32_t half, uint32_t word) { return mixed(mixed(half ^ word) + 0x9E3779B9u); }

} // namespace

Survives::Survives(uint32_t row_first, uint32_t row_second, uint32_t site)
    : first(folded(row_first, site)), second(folded(row_second, site)) {}

bool Survives::operator()(int64_t column, uint32_t threshold) const {
    uint32_t hashed = mixed(first + (uint32_t)(column / 2) * 0x9E3779B9u, second);
    return (column % 2 ? hashed >> 16 : hashed & 0xFFFF) >= threshold;
}

void test_dropout(mb::Pool &pool, Digest &digest) {
    // From tests/golden/dropout.json: row key, site, rate, which columns survive.
    struct {
        uint32_t key[2], site, threshold;
        const char *bits;
    } golden[] = {
        {{1337065703u, 1236139696u},
         0,
         6554,
         "10111110111111111111111001111111011111111111111110111110101111111"},
        {{1337065703u, 1236139696u}, 3, 32768, "011000101000101111110011011100000"},
        {{1748171017u, 680267731u}, 36, 58982, "00010001000000010000110000001000"},
        {{196798010u, 2460278491u},
         0,
         6554,
         "11111111111111111111111010111111101111111011111111111111111011111"},
        {{3978097407u, 1990281899u},
         0,
         6554,
         "11111111110111101111111111111011011111111111111111011111110111111"},
        {{1558403090u, 1345806576u},
         0,
         6554,
         "11111111111111111111111011111111111111100111111111111010111110111"},
    };
    for (const auto &one : golden) {
        auto N = (int64_t)std::strlen(one.bits);
        Floats x((size_t)N, 1.0f), y((size_t)N, -1.0f);
        mb::Drop drop{one.key, one.site, one.threshold, 2.0f};
        dropout(pool, 1, N, x.data(), y.data(), drop);
        for (int64_t c = 0; c < N; ++c) {
            CHECK(y[(size_t)c] == (one.bits[c] == '1' ? 2 : 0));
        }
    }
    Random random;
    for (int64_t N : {0, 1, 2, 3, 7, 16, 24, 31, 32, 33, 63, 65, 768}) {
        for (int64_t T : {0, 1, 61}) {
            for (uint32_t threshold : {0u, 1u, 6554u, 65535u}) {
                std::vector<uint32_t> keys = random.keys(T);
                Floats x = random.normals(T * N), y((size_t)(T * N));
                float scale = 65536.0f / (65536.0f - (float)threshold);
                mb::Drop drop{keys.data(), 17, threshold, scale};
                dropout(pool, T, N, x.data(), y.data(), drop);
                digest.add(y);
                for (int64_t t = 0; t < T; ++t) {
                    Survives kept(keys[(size_t)(2 * t)], keys[(size_t)(2 * t + 1)], 17);
                    for (int64_t c = 0; c < N; ++c) {
                        auto i = (size_t)(t * N + c);
                        CHECK(y[i] == (kept(c, threshold) ? x[i] * scale : 0));
                    }
                }
                dropout(pool, T, N, x.data(), x.data(), drop);
                CHECK(x == y);
            }
        }
    }
}

// Runs the tests that are named, or all.
int main(int n_words, char **words) {
    if (!mb::runs(kNeeds)) {
        std::puts(NAME(MB_ISA) ": not on this machine");
        return 0;
    }
    const struct {
        const char *name;
        void (*run)(mb::Pool &, Digest &);
        bool by_threads; // whether how something is cut depends on the number of threads
    } tests[] = {
        {"elementary functions", test_elementary, false},
        {"dropout", test_dropout, false},
        {"LayerNorm", test_layer_norm, false},
        {"rows and losses", test_rows, true},
        {"updates", test_updates, false},
        {"memory", test_memory, false},
        {"threads", test_threads, true},
        {"peak", test_peak, false},
        {"matrix products", test_gemm, true},
        {"attention", test_attention, true},
    };
    for (const auto &test : tests) {
        auto is_it = [&](const char *word) { return std::strcmp(word, test.name) == 0; };
        if (n_words > 1 && std::none_of(words + 1, words + n_words, is_it)) {
            continue;
        }
        uint64_t expected = 0;
        for (int threads : {1, 3, 16}) { // some of which wait for a core
            if (threads == 16 && !test.by_threads) {
                continue;
            }
            mb::Pool pool(threads);
            Digest digest;
            test.run(pool, digest);
            if (threads == 1) {
                expected = digest.value;
            }
            CHECK(digest.value == expected); // the same bits on any number of threads
        }
        std::printf("%s: %s\n", NAME(MB_ISA), test.name);
    }
}
