#include "test_kernels.h"

#include "attention.h"
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

struct Attention {
    std::vector<int32_t> cu_seqlens;
    int64_t A, D;
    bool causal, drops;
    std::vector<uint32_t> keys; // (T,2)

    // q k v (T,A,D) -> (T,A,D)
    Doubles operator()(const std::vector<Doubles> &at) const {
        const Doubles &q = at[0], &k = at[1], &v = at[2];
        Doubles y(q.size());
        for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
            for (int64_t head = 0; head < A; ++head) {
                for (int64_t t = cu_seqlens[s]; t < cu_seqlens[s + 1]; ++t) {
                    row(cu_seqlens[s], causal ? t + 1 : cu_seqlens[s + 1], t, head, q, k, v, y);
                }
            }
        }
        return y;
    }

    void row(int64_t begin, int64_t end, int64_t t, int64_t head, const Doubles &q, const Doubles &k,
             const Doubles &v, Doubles &y) const {
        auto at = [&](int64_t token, int64_t d) { return (size_t)((token * A + head) * D + d); };
        Doubles p;
        double total = 0;
        for (int64_t j = begin; j < end; ++j) {
            double score = 0;
            for (int64_t d = 0; d < D; ++d) {
                score += q[at(t, d)] * k[at(j, d)];
            }
            p.push_back(std::exp(score / std::sqrt((double)D)));
            total += p.back();
        }
        for (int64_t j = begin; j < end; ++j) {
            double share = p[(size_t)(j - begin)] / total;
            if (drops) {
                Survives of_site(keys[(size_t)(2 * t)], keys[(size_t)(2 * t + 1)], kSite);
                Survives kept(of_site.first, of_site.second, (uint32_t)head);
                share *= kept(j - begin, kThreshold) ? (double)kScale : 0;
            }
            for (int64_t d = 0; d < D; ++d) {
                y[at(t, d)] += share * v[at(j, d)];
            }
        }
    }

    static constexpr uint32_t kThreshold = 13107, kSite = 4;
    static constexpr float kScale = 65536.0f / (65536.0f - 13107.0f);
};

void test_attention_of(const Attention &exact, mb::Pool &pool, Digest &digest, Random &random) {
    int64_t A = exact.A, D = exact.D, T = exact.cu_seqlens.back(), S = (int64_t)exact.cu_seqlens.size() - 1;
    Floats q = random.normals(T * A * D), k = random.normals(T * A * D), v = random.normals(T * A * D);
    Floats dy = random.normals(T * A * D), y((size_t)(T * A * D)), softmax((size_t)(2 * T * A));
    Floats dq = y, dk = y, dv = y;
    mb::Drop drop;
    if (exact.drops) {
        drop = {exact.keys.data(), Attention::kSite, Attention::kThreshold, Attention::kScale};
    }
    mb::ConstHeads from_q{q.data(), A * D}, from_k{k.data(), A * D}, from_v{v.data(), A * D};
    attention(pool, S, exact.cu_seqlens.data(), A, D, from_q, from_k, from_v, exact.causal, drop,
              {y.data(), A * D}, softmax.data());
    attention_backward(pool, S, exact.cu_seqlens.data(), A, D, from_q, from_k, from_v, exact.causal, drop,
                       {dy.data(), A * D}, {y.data(), A * D}, softmax.data(), {dq.data(), A * D},
                       {dk.data(), A * D}, {dv.data(), A * D});
    for (const Floats *one : {&y, &dq, &dk, &dv}) {
        digest.add(*one);
    }
    CHECK_AT_MOST(distance(y, exact({doubles(q), doubles(k), doubles(v)})), 16 * kEps);
    double error = gradient_error(
        {{q, dq}, {k, dk}, {v, dv}}, [&](const std::vector<Doubles> &at) { return dot(dy, exact(at)); },
        random);
    CHECK_AT_MOST(error, 1e-6);
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

void test_attention(mb::Pool &pool, Digest &digest) {
    Random random;
    for (const auto &lengths : {std::vector<int>{1, 2, 7, 13, 7, 31}, {1}, {64, 65}, {129}}) {
        Attention exact{{0}, 0, 0, false, false, {}};
        for (int length : lengths) {
            exact.cu_seqlens.push_back(exact.cu_seqlens.back() + length);
        }
        for (int i = 0; i < 2 * exact.cu_seqlens.back(); ++i) {
            exact.keys.push_back(random.below(1u << 31) * 2 + random.below(2));
        }
        for (int64_t D : {1, 8, 37, 64}) {
            for (bool causal : {false, true}) {
                for (bool drops : {false, true}) {
                    exact.A = D == 64 ? 1 : 3, exact.D = D, exact.causal = causal, exact.drops = drops;
                    test_attention_of(exact, pool, digest, random);
                }
            }
        }
    }
}
