#include "test_kernels.h"

#include "rowwise.h"
#include "updates.h"

using namespace mb::MB_ISA;

namespace {

constexpr double kNormEps = 1e-12, kGradient = 1e-6; // a wrong term shows as 1e-3 or more
constexpr uint32_t kThreshold = 13107, kSite = 5;    // dropout at 0.2
constexpr float kScale = 65536.0f / (65536.0f - 13107.0f);

std::vector<uint32_t> some_keys(int64_t T, Random &random) {
    std::vector<uint32_t> keys((size_t)(2 * T));
    for (uint32_t &key : keys) {
        key = random.below(1u << 31) * 2 + random.below(2);
    }
    return keys;
}

// x (T,H) times the multipliers of dropout, none without keys
Doubles dropped(const Doubles &x, int64_t H, const std::vector<uint32_t> &keys) {
    Doubles y = x;
    for (size_t t = 0; t < keys.size() / 2; ++t) {
        Survives kept(keys[2 * t], keys[2 * t + 1], kSite);
        for (int64_t c = 0; c < H; ++c) {
            y[t * (size_t)H + (size_t)c] *= kept(c, kThreshold) ? (double)kScale : 0;
        }
    }
    return y;
}

Doubles normed(const Doubles &x, const Doubles &gamma, const Doubles &beta, Doubles *means = nullptr,
               Doubles *inverses = nullptr) {
    size_t H = gamma.size();
    Doubles y(x.size());
    for (size_t t = 0; t < x.size() / H; ++t) {
        double mean = 0, variance = 0;
        for (size_t c = 0; c < H; ++c) {
            mean += x[t * H + c] / (double)H;
        }
        for (size_t c = 0; c < H; ++c) {
            variance += (x[t * H + c] - mean) * (x[t * H + c] - mean) / (double)H;
        }
        double inverse = 1 / std::sqrt(variance + kNormEps);
        for (size_t c = 0; c < H; ++c) {
            y[t * H + c] = (x[t * H + c] - mean) * inverse * gamma[c] + beta[c];
        }
        if (means) {
            means->push_back(mean), inverses->push_back(inverse);
        }
    }
    return y;
}

Doubles sum_of(const Doubles &x, const Doubles &y) {
    Doubles z = x;
    for (size_t i = 0; i < z.size(); ++i) {
        z[i] += y[i % y.size()];
    }
    return z;
}

// What LayerNorm tests share: a batch of rows and where its results go.
struct Rows {
    int64_t T, H;
    Floats gamma, beta, y, mean, inverse, dy, dsum, dgamma, dbeta;

    Rows(int64_t T_, int64_t H_, Random &random)
        : T(T_), H(H_), gamma(random.normals(H, 0.5f, 1)), beta(random.normals(H)), y(random.normals(T * H)),
          mean((size_t)T), inverse((size_t)T), dy(random.normals(T * H)), dsum((size_t)(T * H)),
          dgamma((size_t)H, 1.0f), dbeta((size_t)H, 1.0f) {}

    // Rounding of a row is magnified by its spread, at most so many times here.
    void check_forward(const Doubles &sum, const Doubles &expected) const {
        Doubles means, inverses;
        normed(sum, doubles(gamma), doubles(beta), &means, &inverses);
        CHECK_AT_MOST(distance(y, expected), 32 * kEps);
        CHECK_AT_MOST(distance(inverse, inverses), 32 * kEps);
        for (size_t t = 0; t < means.size(); ++t) {
            CHECK_AT_MOST(std::fabs(mean[t] - means[t]), 8 * kEps * (std::fabs(means[t]) + 1 / inverses[t]));
        }
    }
    void add_to(Digest &digest) const {
        for (const Floats *one : {&y, &mean, &inverse, &dsum, &dgamma, &dbeta}) {
            digest.add(*one);
        }
    }
};

// Sums added to what was there (1), which is then taken out; exact, as far as float32 goes.
Floats less_one(const Floats &x) {
    Floats y = x;
    for (float &one : y) {
        one -= 1;
    }
    return y;
}

void test_plain(int64_t T, int64_t H, mb::Pool &pool, Digest &digest, Random &random) {
    Rows rows(T, H, random);
    Floats x = random.normals(T * H, 2, 0.5f);
    layer_norm(pool, T, H, x.data(), rows.gamma.data(), rows.beta.data(), kNormEps, rows.y.data(),
               rows.mean.data(), rows.inverse.data());
    rows.check_forward(doubles(x), normed(doubles(x), doubles(rows.gamma), doubles(rows.beta)));
    layer_norm_backward(pool, T, H, rows.dy.data(), x.data(), rows.mean.data(), rows.inverse.data(),
                        rows.gamma.data(), rows.dsum.data(), rows.dgamma.data(), rows.dbeta.data(), false);
    rows.add_to(digest);
    double error = gradient_error(
        {{x, rows.dsum}, {rows.gamma, rows.dgamma}, {rows.beta, rows.dbeta}},
        [&](const std::vector<Doubles> &at) { return dot(rows.dy, normed(at[0], at[1], at[2])); }, random);
    CHECK_AT_MOST(error, kGradient);
    Floats again = rows.dgamma, over = rows.dy;
    layer_norm_backward(pool, T, H, over.data(), x.data(), rows.mean.data(), rows.inverse.data(),
                        rows.gamma.data(), over.data(), rows.dgamma.data(), rows.dbeta.data(), true);
    CHECK(over == rows.dsum);
    for (size_t c = 0; c < again.size(); ++c) {
        CHECK(rows.dgamma[c] == again[c] + again[c]);
    }
}

void test_residual(int64_t T, int64_t H, bool drops, bool biased, mb::Pool &pool, Digest &digest,
                   Random &random) {
    Rows rows(T, H, random);
    Floats x = random.normals(T * H), out = random.normals(T * H), bias = random.normals(H),
           sum((size_t)(T * H));
    std::vector<uint32_t> keys = drops ? some_keys(T, random) : std::vector<uint32_t>();
    mb::Drop drop{drops ? keys.data() : nullptr, kSite, kThreshold, kScale};
    if (drops && T == 0) {
        return;
    }
    auto forward = [&](float *into) {
        dropout_residual_layer_norm(pool, T, H, x.data(), into == sum.data() ? out.data() : into,
                                    biased ? bias.data() : nullptr, drop, rows.gamma.data(), rows.beta.data(),
                                    kNormEps, into, rows.y.data(), rows.mean.data(), rows.inverse.data());
    };
    auto sums = [&](const Doubles &past, const Doubles &through, const Doubles &b) {
        return sum_of(past, dropped(biased && T ? sum_of(through, b) : through, H, keys));
    };
    forward(sum.data());
    Doubles expected = sums(doubles(x), doubles(out), doubles(bias));
    CHECK_AT_MOST(distance(sum, expected), 2 * kEps);
    rows.check_forward(expected, normed(expected, doubles(rows.gamma), doubles(rows.beta)));
    Floats in_place = out, y = rows.y;
    forward(in_place.data());
    CHECK(in_place == sum && rows.y == y);

    Floats dout((size_t)(T * H)), dbias((size_t)H, 1.0f);
    dropout_residual_layer_norm_backward<float>(
        pool, T, H, rows.dy.data(), sum.data(), rows.mean.data(), rows.inverse.data(), rows.gamma.data(),
        drop, rows.dsum.data(), drops ? dout.data() : nullptr, rows.dgamma.data(), rows.dbeta.data(),
        biased ? dbias.data() : nullptr, true);
    rows.add_to(digest), digest.add(sum), digest.add(dout), digest.add(dbias);
    Floats dgamma = less_one(rows.dgamma), dbeta = less_one(rows.dbeta), db = less_one(dbias);
    double error = gradient_error(
        {{x, rows.dsum},
         {out, drops ? dout : rows.dsum},
         {rows.gamma, dgamma},
         {rows.beta, dbeta},
         {bias, db}},
        [&](const std::vector<Doubles> &at) {
            return dot(rows.dy, normed(sums(at[0], at[1], at[4]), at[2], at[3]));
        },
        random);
    CHECK_AT_MOST(error, kGradient);
}

void test_embedding(int64_t T, int64_t H, bool drops, mb::Pool &pool, Digest &digest, Random &random) {
    constexpr int V = 99, P = 31, S = 2;
    Rows rows(T, H, random);
    Floats word = random.normals(V * H), position = random.normals(P * H), segment = random.normals(S * H);
    Ints ids = random.ints(T, V), positions = random.ints(T, P), segments = random.ints(T, S);
    std::vector<uint32_t> keys = drops ? some_keys(T, random) : std::vector<uint32_t>();
    mb::Drop drop{drops ? keys.data() : nullptr, kSite, kThreshold, kScale};
    Floats sum((size_t)(T * H));
    embedding_layer_norm(pool, T, H, ids.data(), word.data(), positions.data(), position.data(),
                         segments.data(), segment.data(), rows.gamma.data(), rows.beta.data(), kNormEps, drop,
                         sum.data(), rows.y.data(), rows.mean.data(), rows.inverse.data());
    auto sums = [&](const Doubles &w, const Doubles &p, const Doubles &s) {
        Doubles total((size_t)(T * H));
        for (size_t i = 0; i < total.size(); ++i) {
            size_t t = i / (size_t)H, c = i % (size_t)H;
            auto at = [&](const Ints &numbers) { return (size_t)numbers[t] * (size_t)H + c; };
            total[i] = w[at(ids)] + p[at(positions)] + s[at(segments)];
        }
        return total;
    };
    auto result = [&](const std::vector<Doubles> &at) {
        return dropped(normed(sums(at[0], at[1], at[2]), at[3], at[4]), H, keys);
    };
    std::vector<Doubles> here{doubles(word), doubles(position), doubles(segment), doubles(rows.gamma),
                              doubles(rows.beta)};
    rows.check_forward(sums(here[0], here[1], here[2]), result(here));

    embedding_layer_norm_backward(pool, T, H, rows.dy.data(), sum.data(), rows.mean.data(),
                                  rows.inverse.data(), rows.gamma.data(), drop, rows.dsum.data(),
                                  rows.dgamma.data(), rows.dbeta.data(), false);
    Floats dword((size_t)(V * H)), dposition((size_t)(P * H)), dsegment((size_t)(S * H));
    scatter_add(pool, T, H, ids.data(), rows.dsum.data(), dword.data());
    scatter_add(pool, T, H, positions.data(), rows.dsum.data(), dposition.data());
    scatter_add(pool, T, H, segments.data(), rows.dsum.data(), dsegment.data());
    rows.add_to(digest), digest.add(dword), digest.add(dsegment);
    double error = gradient_error(
        {{word, dword},
         {position, dposition},
         {segment, dsegment},
         {rows.gamma, rows.dgamma},
         {rows.beta, rows.dbeta}},
        [&](const std::vector<Doubles> &at) { return dot(rows.dy, result(at)); }, random);
    CHECK_AT_MOST(error, kGradient);
}

void test_column_sums(mb::Pool &pool, Digest &digest, Random &random) {
    for (int64_t T : {0, 1, 3, 4, 61, 64, 65, 500}) {
        for (int64_t N : {1, 2, 24, 37, 2048, 2051}) {
            for (bool weighted : {false, true}) {
                int64_t ld = N + 3;
                Floats x = random.normals(T * ld), weights = random.normals(T), sums((size_t)N, 1.0f);
                Doubles expected((size_t)N, 1.0), sizes((size_t)N, 1.0);
                for (size_t i = 0; i < x.size(); ++i) {
                    if (i % (size_t)ld < (size_t)N) {
                        double term = x[i] * (weighted ? (double)weights[i / (size_t)ld] : 1);
                        expected[i % (size_t)ld] += term;
                        sizes[i % (size_t)ld] += std::fabs(term);
                    }
                }
                column_sums(pool, T, N, x.data(), ld, weighted ? weights.data() : nullptr, sums.data(), true);
                for (size_t c = 0; c < (size_t)N; ++c) {
                    CHECK_AT_MOST(std::fabs(sums[c] - expected[c]), 4 * kEps * sizes[c]);
                }
                Floats fresh((size_t)N, NAN);
                column_sums(pool, T, N, x.data(), ld, weighted ? weights.data() : nullptr, fresh.data(),
                            false);
                for (size_t c = 0; c < (size_t)N; ++c) {
                    CHECK(sums[c] == 1 + fresh[c]);
                }
                digest.add(sums);
            }
        }
    }
}

void test_softmax(int64_t N, int64_t K, float scale, mb::Pool &pool, Digest &digest, Random &random) {
    int64_t ld = K + 2;
    Floats logits = random.normals(N * ld, scale), nll((size_t)N), dnll = random.normals(N);
    Ints labels = random.ints(N, (int32_t)K), best((size_t)N);
    for (int64_t row = 0; row < N; ++row) { // the largest twice: the first of them counts
        auto first = (int64_t)random.below((uint32_t)K),
             second = first + (int64_t)random.below((uint32_t)(K - first));
        logits[(size_t)(row * ld + first)] = logits[(size_t)(row * ld + second)] = 7 * scale;
        logits[(size_t)(row * ld + K)] = logits[(size_t)(row * ld + K + 1)] = 1e30f; // no column of it
        best[(size_t)row] = (int32_t)first;
    }
    Floats d = logits;
    Ints found((size_t)N);
    softmax_cross_entropy(pool, N, K, d.data(), ld, labels.data(), d.data(), ld, nll.data(), found.data());
    CHECK(found == best);
    digest.add(d), digest.add(nll);
    Floats scaled = d;
    scale_rows(pool, N, K, scaled.data(), ld, dnll.data());
    for (int64_t row = 0; row < N; ++row) {
        const float *x = &logits[(size_t)(row * ld)];
        int32_t label = labels[(size_t)row];
        double total = 0, others = 0;
        for (int64_t c = 0; c < K; ++c) {
            double e = std::exp((double)x[c] - 7.0 * scale);
            total += e, others += c == label ? 0 : e;
        }
        double expected = std::log(total) - (x[label] - 7.0 * scale);
        // The shift of a large logit is itself rounded.
        CHECK_AT_MOST(std::fabs(nll[(size_t)row] - expected),
                      4 * kEps * (1 + expected) + 16 * kEps * (scale > 100));
        for (int64_t c = 0; c < K; ++c) {
            double exact = std::exp((double)x[c] - 7.0 * scale) / total, shift = 7.0 * scale - x[c];
            auto i = (size_t)(row * ld + c);
            // The label's is what the others have: precise too where that is little.
            double expected_d = c == label ? -others / total : exact;
            CHECK_AT_MOST(std::fabs(d[i] - expected_d), (8 + shift) * kEps * std::fabs(expected_d) + 1e-38);
            CHECK(scaled[i] == d[i] * dnll[(size_t)row]);
        }
        for (const Floats *one : {&d, &scaled}) {
            CHECK((*one)[(size_t)(row * ld + K)] == 1e30f && (*one)[(size_t)(row * ld + K + 1)] == 1e30f);
        }
    }
}

void test_gather(mb::Pool &pool, Digest &digest, Random &random) {
    for (int64_t T : {0, 1, 61, 300}) {
        for (int64_t H : {1, 24, 64, 100}) {
            constexpr int V = 13;
            Floats table = random.normals(V * H), rows((size_t)(T * H));
            Ints ids = random.ints(T, V);
            CHECK(in_range(T, ids.data(), V));
            gather(pool, T, H, ids.data(), table.data(), rows.data());
            Floats expected = table;
            for (int64_t i = 0; i < T * H; ++i) {
                size_t at = (size_t)ids[(size_t)(i / H)] * (size_t)H + (size_t)(i % H);
                CHECK(rows[(size_t)i] == table[at]);
                expected[at] += rows[(size_t)i];
            }
            scatter_add(pool, T, H, ids.data(), rows.data(), table.data());
            CHECK(table == expected); // equal ids in the order of rows, to the bit
            digest.add(table);
            if (T == 0) {
                continue;
            }
            for (int32_t wrong : {-1, V, INT32_MAX, INT32_MIN}) {
                Ints bad = ids;
                bad[random.below((uint32_t)T)] = wrong;
                CHECK(!in_range(T, bad.data(), V));
            }
        }
    }
}

} // namespace

void test_layer_norm(mb::Pool &pool, Digest &digest) {
    Random random;
    for (int64_t T : {0, 1, 61, 300}) {
        for (int64_t H : {5, 7, 16, 24, 37, 100, 256}) {
            test_plain(T, H, pool, digest, random);
            for (bool drops : {false, true}) {
                test_embedding(T, H, drops, pool, digest, random);
                for (bool biased : {false, true}) {
                    test_residual(T, H, drops, biased, pool, digest, random);
                }
            }
        }
    }
    // A row without spread: every element is the mean, and nothing comes back.
    Floats x(24, 3.0f), gamma(24, 2.0f), beta(24, 0.5f), y(24), mean(1), inverse(1);
    layer_norm(pool, 1, 24, x.data(), gamma.data(), beta.data(), 1e-12f, y.data(), mean.data(),
               inverse.data());
    CHECK(y == beta && mean[0] == 3 && std::fabs(inverse[0] - 1e6) < 1);
}

void test_rows(mb::Pool &pool, Digest &digest) {
    Random random;
    test_column_sums(pool, digest, random);
    test_gather(pool, digest, random);
    for (int64_t N : {0, 1, 9}) {
        for (int64_t K : {1, 2, 3, 15, 16, 17, 99, 1023, 1024, 1025, 5000}) {
            for (float scale : {0.5f, 1000.0f}) {
                test_softmax(N, K, scale, pool, digest, random);
            }
        }
    }
    // What is infinitely unlikely, and what is not a number.
    Floats logits{-INFINITY, 0, 0, NAN, 0, 1}, nll(2);
    Ints labels{1, 1}, best(2);
    softmax_cross_entropy(pool, 2, 3, logits.data(), 3, labels.data(), logits.data(), 3, nll.data(),
                          best.data());
    CHECK(logits[0] == 0 && logits[1] == -0.5f && logits[2] == 0.5f && nll[0] == (float)std::log(2.0) &&
          std::isnan(nll[1]));
}

void test_updates(mb::Pool &pool, Digest &digest) {
    Random random;
    for (int64_t n : {0, 1, 15, 16, 17, 1000, 65535, 65537, 200001}) {
        Floats x = random.normals(n, 3), total = random.normals(n), expected = total;
        double squares = 0;
        for (size_t i = 0; i < x.size(); ++i) {
            squares += (double)x[i] * x[i];
            expected[i] += x[i];
        }
        accumulate(pool, n, total.data(), x.data());
        CHECK(total == expected);
        double norm = global_norm(pool, n, x.data());
        CHECK_AT_MOST(std::fabs(norm - std::sqrt(squares)), 1e-12 * norm);
        digest.add(norm);

        Floats params = random.normals(n), m = random.normals(n, 0.1f), v = random.normals(n);
        for (float &one : v) {
            one *= one;
        }
        std::vector<int64_t> decayed{n / 7, n / 7, n / 5, n / 2, n / 2, n / 2 + n / 3};
        mb::AdamW step{1e-3, 0.9, 0.999, 1e-6, 0.01, 1 / (1 - 0.9), 1 / (1 - 0.999), 0.5};
        Floats new_params = params, new_m = m, new_v = v;
        adamw(pool, n, new_params.data(), x.data(), new_m.data(), new_v.data(), 3, decayed.data(), step);
        digest.add(new_params), digest.add(new_m), digest.add(new_v);
        for (int64_t i = 0; i < n; ++i) {
            auto at = (size_t)i;
            bool decays = i >= n / 5 && i < n / 2 + n / 3;
            double g = x[at] * 0.5, first = 0.9 * m[at] + 0.1 * g, second = 0.999 * v[at] + 0.001 * g * g;
            double direction =
                first * 10 / (std::sqrt(second * 1000) + 1e-6) + (decays ? 0.01 * params[at] : 0);
            double p = params[at] - 1e-3 * direction;
            CHECK_AT_MOST(std::fabs(new_m[at] - first),
                          4 * kEps * (std::fabs(0.9 * m[at]) + std::fabs(0.1 * g)));
            CHECK_AT_MOST(std::fabs(new_v[at] - second), 4 * kEps * second);
            CHECK_AT_MOST(std::fabs(new_params[at] - p), 2 * kEps * std::fabs(p) + 1e-8);
        }
    }
}
