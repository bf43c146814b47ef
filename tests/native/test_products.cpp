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
    CHECK_AT_MOST(distance(active, activated), 8 * kEps);
    CHECK_AT_MOST(difference(du, slopes), 2 * bound * size);
}

} // namespace

void test_gemm(mb::Pool &pool, Digest &digest) {
    Random random;
    for (int64_t M : {0, 1, 2, 13, 61, 200}) {
        for (int64_t N : {1, 24, 37, 99}) {
            for (int64_t K : {0, 1, 8, 37, 400}) {
                test_product(M, N, K, pool, digest, random);
            }
        }
    }
}
