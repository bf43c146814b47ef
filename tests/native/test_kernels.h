// What the files of the kernels' test program share. It knows no Python and none of the code that it tests:
// right values come from closed formulas in double precision, right gradients from differences of those.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "simd.h"
#include "threads.h"

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                     \
            std::abort();                                                                                    \
        }                                                                                                    \
    } while (0)

// CHECK(value <= bound), which prints both when it fails.
#define CHECK_AT_MOST(value, bound)                                                                          \
    do {                                                                                                     \
        double value_ = (value), bound_ = (bound);                                                           \
        if (!(value_ <= bound_)) {                                                                           \
            std::fprintf(stderr, "%s:%d: %s is %g, more than %g\n", __FILE__, __LINE__, #value, value_,      \
                         bound_);                                                                            \
            std::abort();                                                                                    \
        }                                                                                                    \
    } while (0)

constexpr double kEps = 1.0 / (1 << 24); // half a unit in the last place of 1

// Arrays have not a byte to spare, so that AddressSanitizer sees whoever goes beyond them.
using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Ints = std::vector<int32_t>;

// Numbers that look random and are the same on every machine.
struct Random {
    uint64_t state = 0x9E3779B97F4A7C15;

    uint32_t below(uint32_t limit) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return (uint32_t)(state >> 33) % limit;
    }
    // About normal, of standard deviation 1.
    float normal() {
        double total = -6;
        for (int i = 0; i < 12; ++i) {
            total += below(1 << 20) / (double)(1 << 20);
        }
        return (float)total;
    }
    Floats normals(int64_t n, float scale = 1, float shift = 0) {
        Floats x((size_t)n);
        for (float &one : x) {
            one = normal() * scale + shift;
        }
        return x;
    }
    Ints ints(int64_t n, int32_t limit) {
        Ints x((size_t)n);
        for (int32_t &one : x) {
            one = (int32_t)below((uint32_t)limit);
        }
        return x;
    }
    // A key for each of T rows.
    std::vector<uint32_t> keys(int64_t T) {
        std::vector<uint32_t> x((size_t)(2 * T));
        for (uint32_t &one : x) {
            one = below(1u << 31) * 2 + below(2);
        }
        return x;
    }
};

// What a test computed, as one number: the same on every number of threads.
struct Digest {
    uint64_t value = 0xCBF29CE484222325;

    void add(const void *data, size_t bytes) {
        for (size_t i = 0; i < bytes; ++i) {
            value = (value ^ static_cast<const unsigned char *>(data)[i]) * 0x100000001B3;
        }
    }
    void add(const Floats &x) { add(x.data(), x.size() * sizeof(float)); }
    void add(double x) { add(&x, sizeof x); }
};

// What a bfloat16 may be off by at x: half a unit in its last place, of 8 bits.
inline double half_unit(double x) {
    int exponent;
    std::frexp(x, &exponent);
    return std::ldexp(1.0, (exponent < -125 ? -125 : exponent) - 9);
}

// The nearest bfloat16, by arithmetic instead of bits.
inline mb::bf16 rounded(float x) {
    double unit = 2 * half_unit(x);
    auto nearest = std::isfinite(x) ? (float)(std::nearbyint(x / unit) * unit) : x; // ties to even
    uint32_t bits;
    std::memcpy(&bits, &nearest, sizeof bits);
    return {(uint16_t)(bits >> 16)};
}

inline float value(float x) { return x; }
inline float value(mb::bf16 x) {
    uint32_t bits = (uint32_t)x.bits << 16;
    float y;
    std::memcpy(&y, &bits, sizeof y);
    return y;
}

// Activations of either type.
template <typename X> using Many = std::vector<X>;

template <typename X> constexpr bool kIsFloat = sizeof(X) == sizeof(float);

template <typename X> X stored(float x) {
    if constexpr (kIsFloat<X>) {
        return x;
    } else {
        return rounded(x);
    }
}

template <typename X> Many<X> activations(const Floats &x) {
    Many<X> y;
    for (float one : x) {
        y.push_back(stored<X>(one));
    }
    return y;
}

template <typename X> Doubles doubles(const Many<X> &x) {
    Doubles y;
    for (X one : x) {
        y.push_back(value(one));
    }
    return y;
}

// |x|, over all elements
inline double size(const Doubles &x) {
    double total = 0;
    for (double one : x) {
        total += one * one;
    }
    return std::sqrt(total);
}

// |x - expected|
inline double difference(Doubles x, const Doubles &expected) {
    CHECK(x.size() == expected.size());
    for (size_t i = 0; i < x.size(); ++i) {
        x[i] -= expected[i];
    }
    return size(x);
}
inline double difference(const Floats &x, const Doubles &expected) {
    return difference(doubles(x), expected);
}

// the same relative to |expected|; what should be zero has to be
inline double distance(const Floats &x, const Doubles &expected) {
    double far = difference(x, expected);
    return far == 0 ? 0 : far / size(expected);
}

inline double dot(const Floats &x, const Doubles &y) {
    CHECK(x.size() == y.size());
    double total = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        total += x[i] * y[i];
    }
    return total;
}

// A gradient against differences: f takes the arguments moved by h times `direction`, each by its own.
struct Argument {
    const Floats &at;
    const Floats &gradient;
};

using Loss = std::function<double(const std::vector<Doubles> &)>;

// | <gradient, v> - df/dv | / (|gradient| |v|) of all arguments together, for a random direction v
inline double gradient_error(const std::vector<Argument> &arguments, const Loss &f, Random &random) {
    constexpr double h = 1e-5;
    std::vector<Doubles> forward, backward;
    double along = 0, gradient = 0, direction = 0;
    for (const Argument &one : arguments) {
        Floats v = random.normals((int64_t)one.at.size());
        Doubles plus = doubles(one.at), minus = plus;
        for (size_t i = 0; i < v.size(); ++i) {
            plus[i] += h * v[i], minus[i] -= h * v[i];
            along += (double)one.gradient[i] * v[i];
            gradient += (double)one.gradient[i] * one.gradient[i];
            direction += (double)v[i] * v[i];
        }
        forward.push_back(plus), backward.push_back(minus);
    }
    double difference = std::fabs(along - (f(forward) - f(backward)) / (2 * h));
    return difference == 0 ? 0 : difference / std::sqrt(gradient * direction);
}

constexpr uint32_t kThreshold = 13107, kSite = 5; // dropout at 0.2
constexpr float kScale = 65536.0f / (65536.0f - 13107.0f);

// Whether columns of a row survive dropout, from the description in tests/golden/make_dropout.py.
struct Survives {
    uint32_t first, second; // the key of row and site

    Survives(uint32_t row_first, uint32_t row_second, uint32_t site);
    bool operator()(int64_t column, uint32_t threshold) const;
};

void test_elementary(mb::Pool &pool, Digest &digest);
void test_dropout(mb::Pool &pool, Digest &digest);
void test_layer_norm(mb::Pool &pool, Digest &digest);
void test_rows(mb::Pool &pool, Digest &digest);
void test_updates(mb::Pool &pool, Digest &digest);
void test_memory(mb::Pool &pool, Digest &digest);
void test_threads(mb::Pool &pool, Digest &digest);
void test_peak(mb::Pool &pool, Digest &digest);
void test_gemm(mb::Pool &pool, Digest &digest);
void test_attention(mb::Pool &pool, Digest &digest);
