#include "test_kernels.h"

#include "blocks.h"
#include "gemm.h"

using namespace mb::MB_ISA;

namespace {

double gelu_of(double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// x (M,K) y (K,N), the first of them transposed in memory where `turned`
Doubles product(int64_t M, int64_t N, int64_t K, const Doubles &x, const Doubles &y, bool turned = false) {
    Doubles z((size_t)(M * N));
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t k = 0; k < K; ++k) {
            double one = x[(size_t)(turned ? k * M + i : i * K + k)];
            for (int64_t j = 0; j < N; ++j) {
                z[(size_t)(i * N + j)] += one * y[(size_t)(k * N + j)];
            }
        }
    }
    return z;
}

void test_product(int64_t M, int64_t N, int64_t K, mb::Pool &pool, Digest &digest, Random &random) {
    Floats x = random.normals(M * K), y = random.normals(K * N), turned((size_t)(M * K));
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t k = 0; k < K; ++k) {
            turned[(size_t)(k * M + i)] = x[(size_t)(i * K + k)];
        }
    }
    int64_t ld = N + 3;
    Floats wide((size_t)(M * ld), 5.0f), z((size_t)(M * N), NAN), same((size_t)(M * N));
    Doubles expected = product(M, N, K, doubles(x), doubles(y));
    gemm(pool, M, N, K, {x.data(), K, 1}, {y.data(), N, 1}, z.data(), N);
    gemm(pool, M, N, K, {turned.data(), 1, M}, {y.data(), N, 1}, same.data(), N);
    gemm(pool, M, N, K, {x.data(), K, 1}, {y.data(), N, 1}, wide.data(), ld, true);
    CHECK(z == same);
    digest.add(z), digest.add(wide);
    // Laid out beforehand the right operand gives the same bits, however both lie.
    Floats panels((size_t)laid_out_size(N, K, false), NAN), y_turned((size_t)(K * N));
    for (int64_t at = 0; at < K * N; ++at) {
        y_turned[(size_t)(at % N * K + at / N)] = y[(size_t)at];
    }
    for (mb::View right : {mb::View{y.data(), N, 1}, mb::View{y_turned.data(), 1, K}}) {
        lay_out(pool, N, K, right, panels.data(), false);
        right = {nullptr, 0, 0, false, panels.data()};
        for (mb::View left : {mb::View{x.data(), K, 1}, mb::View{turned.data(), 1, M}}) {
            std::fill(same.begin(), same.end(), NAN);
            gemm(pool, M, N, K, left, right, same.data(), N);
            CHECK(z == same);
        }
    }
    // Sums of K products of order one are of order sqrt(K), and so is the growth of their rounding.
    double size = std::sqrt((double)(M * N * (K + 1))), bound = (4 + std::sqrt((double)K)) * kEps;
    CHECK_AT_MOST(difference(z, expected), bound * size);
    for (int64_t i = 0; i < M * ld; ++i) {
        double was = i % ld < N ? 5 + (double)z[(size_t)(i / ld * N + i % ld)] : 5;
        CHECK_AT_MOST(std::fabs(wide[(size_t)i] - was), 8 * bound * std::sqrt(K + 25.0));
    }

    Floats bias = random.normals(N), dense((size_t)(M * N)), u((size_t)(M * N)), active((size_t)(M * N));
    linear(pool, M, N, K, {x.data(), K, 1}, {y.data(), N, 1}, bias.data(), dense.data(), N);
    linear_gelu(pool, M, N, K, {x.data(), K, 1}, {y.data(), N, 1}, bias.data(), false, u.data(),
                active.data());
    CHECK(u == dense);
    Floats du((size_t)(M * N)), again = u;
    linear_gelu_backward(pool, M, N, K, {x.data(), K, 1}, {y.data(), N, 1}, false, again.data(), du.data());
    digest.add(dense), digest.add(active), digest.add(du), digest.add(again);
    CHECK(again == active);
    Doubles sums = expected, activated = expected, slopes = expected;
    for (size_t i = 0; i < sums.size(); ++i) {
        double h = 1e-5;
        sums[i] += bias[i % (size_t)N];
        activated[i] = gelu_of(u[i]);
        slopes[i] *= (gelu_of(u[i] + h) - gelu_of(u[i] - h)) / (2 * h);
    }
    CHECK_AT_MOST(difference(dense, sums), bound * size);
    // Far below zero the right value is smaller than the smallest float, and all that there may be is zero.
    CHECK_AT_MOST(difference(active, activated), 8 * kEps * ::size(activated) + 1e-40);
    CHECK_AT_MOST(difference(du, slopes), 2 * bound * size);
}

// A matrix (M,N) as floats and as bfloat16, each as it is and transposed.
struct Stored {
    Floats exact, turned;
    std::vector<mb::bf16> narrow, narrow_turned;
    int64_t M, N;

    Stored(int64_t M, int64_t N, Random &random)
        : exact(random.normals(M * N)), turned(exact.size()), narrow(exact.size()),
          narrow_turned(exact.size()), M(M), N(N) {
        for (int64_t i = 0; i < M * N; ++i) {
            auto at = (size_t)i, there = (size_t)(i % N * M + i / N);
            narrow[at] = narrow_turned[there] = rounded(exact[at]);
            turned[there] = exact[at];
        }
    }
    mb::View view(bool turns, bool narrows) const {
        const void *data = narrows ? (const void *)(turns ? narrow_turned : narrow).data()
                                   : (const void *)(turns ? turned : exact).data();
        return {data, turns ? 1 : N, turns ? M : 1, narrows};
    }
};

// Products of bfloat16, whatever operands are stored as and however they lie: all are those of the rounded numbers.
void test_narrow_product(int64_t M, int64_t N, int64_t K, mb::Pool &pool, Digest &digest, Random &random) {
    Stored x(M, K, random), y(K, N, random);
    Doubles expected = product(M, N, K, doubles(x.narrow), doubles(y.narrow));
    double size = std::sqrt((double)(M * N * (K + 1))), bound = (4 + std::sqrt((double)K)) * kEps;
    Floats first;
    for (int way = 0; way < 16; ++way) {
        Floats z((size_t)(M * N), NAN);
        gemm(pool, M, N, K, x.view(way & 1, way & 2), y.view(way & 4, way & 8), z.data(), N, false, {}, true);
        CHECK_AT_MOST(difference(z, expected), bound * size);
        first = way == 0 ? z : first;
        CHECK(z == first);
        Floats panels((size_t)laid_out_size(N, K, true), NAN), again(z.size(), NAN);
        lay_out(pool, N, K, y.view(way & 4, way & 8), panels.data(), true);
        mb::View right{nullptr, 0, 0, false, panels.data()};
        gemm(pool, M, N, K, x.view(way & 1, way & 2), right, again.data(), N, false, {}, true);
        CHECK(again == first);
    }
    digest.add(first);
    // What is stored as bfloat16 is exact as a float: nothing is rounded without being told to.
    Floats mixed((size_t)(M * N), NAN);
    gemm(pool, M, N, K, x.view(false, true), y.view(true, false), mixed.data(), N);
    CHECK_AT_MOST(difference(mixed, product(M, N, K, doubles(x.narrow), doubles(y.exact))), bound * size);

    Floats bias = random.normals(N);
    std::vector<mb::bf16> z((size_t)(M * N)), u(z.size()), active(z.size()), du(z.size());
    linear(pool, M, N, K, x.view(false, true), y.view(false, false), bias.data(), z.data(), N, true);
    linear_gelu(pool, M, N, K, x.view(false, true), y.view(false, false), bias.data(), false, u.data(),
                active.data(), true);
    std::vector<mb::bf16> again = u;
    linear_gelu_backward(pool, M, N, K, x.view(false, true), y.view(false, false), false, again.data(),
                         du.data(), true);
    for (size_t i = 0; i < z.size(); ++i) {
        // Half a unit in the last of eight places, and the rounding of the sum.
        double sum = expected[i] + bias[i % (size_t)N], near = 1.01 / 256,
               noise = 8 * bound * std::sqrt(K + 2.0);
        CHECK_AT_MOST(std::fabs((double)value(z[i]) - sum), std::fabs(sum) * near + noise);
        CHECK(z[i].bits == u[i].bits);
        CHECK_AT_MOST(std::fabs((double)value(active[i]) - gelu_of(sum)),
                      std::fabs(gelu_of(sum)) * near + 2 * noise);
        double stored = (double)value(u[i]), h = 1e-5;
        double slope = (gelu_of(stored + h) - gelu_of(stored - h)) / (2 * h);
        CHECK_AT_MOST(std::fabs((double)value(du[i]) - expected[i] * slope),
                      std::fabs(expected[i] * slope) * near + 2 * noise + 1e-8);
        CHECK_AT_MOST(std::fabs((double)value(again[i]) - gelu_of(stored)),
                      std::fabs(gelu_of(stored)) * near + 1e-8);
    }
    digest.add(z.data(), z.size() * sizeof z[0]), digest.add(active.data(), z.size() * sizeof z[0]);
    digest.add(du.data(), z.size() * sizeof z[0]);
}

// x (M,N) as whole numbers of 8 bits, with a scale for each row, or for each column.
struct Whole {
    Doubles numbers, scales;

    Whole(const Floats &x, int64_t M, int64_t N, bool columns)
        : numbers(x.size()), scales((size_t)(columns ? N : M)) {
        for (size_t line = 0; line < scales.size(); ++line) {
            float most = 0;
            for (size_t pass = 0; pass < 2; ++pass) {
                for (size_t i = 0; i < x.size(); ++i) {
                    if ((columns ? i % (size_t)N : i / (size_t)N) == line) {
                        most = pass ? most : std::max(most, std::fabs(x[i]));
                        numbers[i] = std::nearbyint(x[i] * (127 / most));
                    }
                }
            }
            scales[line] = most / 127;
        }
    }
};

// Products with a right operand of bytes, whatever it was stored as and however it lay, are those of whole numbers. Its
// numbers are drawn aside (`random` is a copy), so that the other tests have the same ones where this has no products.
void test_product_of_bytes(int64_t M, int64_t N, int64_t K, mb::Pool &pool, Digest &digest, Random random) {
    if (bytes_size(N, K) == 0) {
        return;
    }
    Stored x(M, K, random), y(K, N, random);
    for (int way = 0; way < 8; ++way) {
        auto of = [](const Stored &one, bool narrow) {
            Floats values = one.exact;
            for (size_t i = 0; narrow && i < values.size(); ++i) {
                values[i] = value(one.narrow[i]);
            }
            return values;
        };
        Whole left(of(x, way & 1), M, K, false), right(of(y, way & 4), K, N, true);
        Doubles expected = product(M, N, K, left.numbers, right.numbers);
        Floats panels((size_t)bytes_size(N, K), NAN), z((size_t)(M * N), NAN);
        lay_out_bytes(pool, N, K, y.view(way & 2, way & 4), panels.data());
        gemm(pool, M, N, K, x.view(false, way & 1), {nullptr, 0, 0, false, panels.data(), true}, z.data(), N);
        for (size_t i = 0; i < z.size(); ++i) {
            double right_one = expected[i] * left.scales[i / (size_t)N] * right.scales[i % (size_t)N];
            CHECK_AT_MOST(std::fabs((double)z[i] - right_one), 4 * kEps * std::fabs(right_one));
        }
        digest.add(z);
    }
}

} // namespace

void test_gemm(mb::Pool &pool, Digest &digest) {
    Random random;
    // More strips than three threads, more than sixteen, and fewer with many rows: each is cut in its own way.
    const int64_t few = 5 * kStrip + 3, many = 17 * kStrip + 3, two = 2 * kStrip + 3;
    for (auto [M, N] : {std::pair{int64_t{61}, few}, {9, many}, {61, many}, {165, few}, {200, two}}) {
        test_narrow_product(M, N, 37, pool, digest, random);
        test_product(M, N, 37, pool, digest, random);
        test_product_of_bytes(M, N, 37, pool, digest, random);
    }
    for (auto [M, N, K] : {std::tuple{1, 1, 1}, {2, 64, 4}, {13, 65, 7}, {61, 37, 1500}, {180, 99, 10}}) {
        test_product_of_bytes(M, N, K, pool, digest, random);
    }
    for (int64_t M : {0, 1, 13, 61, 180}) {
        for (int64_t N : {1, 37, 99}) {
            for (int64_t K : {0, 1, 8, 37, 1500}) {
                test_narrow_product(M, N, K, pool, digest, random);
            }
        }
    }
    for (int64_t M : {0, 1, 2, 13, 61, 200}) {
        for (int64_t N : {1, 24, 37, 99}) {
            for (int64_t K : {0, 1, 8, 37, 400}) {
                test_product(M, N, K, pool, digest, random);
            }
        }
    }
}
