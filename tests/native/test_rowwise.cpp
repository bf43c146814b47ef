#include "test_kernels.h"

#include <algorithm>

#include "cross_entropy.h"
#include "rowwise.h"
#include "updates.h"

using namespace mb::MB_ISA;
using mb::bf16;

namespace {

template <typename X> bool same(const Many<X> &x, const Many<X> &y) {
    return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), sizeof(X) * x.size()) == 0);
}

template <typename X> void add_to(Digest &digest, const Many<X> &x) {
    digest.add(x.data(), sizeof(X) * x.size());
}

// Within `bound` of what is expected, in norms over all; bfloat16 each within half a unit more.
template <typename X> void check_near(const Many<X> &x, const Doubles &expected, double bound) {
    if constexpr (kIsFloat<X>) {
        CHECK_AT_MOST(distance(x, expected), bound);
    } else {
        CHECK(x.size() == expected.size());
        for (size_t i = 0; i < x.size(); ++i) {
            double e = expected[i];
            CHECK_AT_MOST(std::fabs(value(x[i]) - e), half_unit(e) + bound * (1 + std::fabs(e)));
        }
    }
}

constexpr double kNormEps = 1e-12, kGradient = 1e-6; // a wrong term shows as 1e-3 or more

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

// dsum (T,H) of LayerNorm(sum) from dy, and what dgamma and dbeta sum up, in double precision.
struct NormGradient {
    Doubles dsum, dgamma, dbeta;
};

NormGradient norm_gradient(const Doubles &dy, const Doubles &sum, const Floats &mean, const Floats &inverse,
                           const Floats &gamma) {
    size_t H = gamma.size();
    NormGradient d{Doubles(sum.size()), Doubles(H), Doubles(H)};
    for (size_t t = 0; t < mean.size(); ++t) {
        double along = 0, level = 0;
        auto normal = [&](size_t c) { return (sum[t * H + c] - mean[t]) * inverse[t]; };
        for (size_t c = 0; c < H; ++c) {
            double g = dy[t * H + c] * gamma[c];
            level += g / (double)H, along += g * normal(c) / (double)H;
            d.dgamma[c] += dy[t * H + c] * normal(c), d.dbeta[c] += dy[t * H + c];
        }
        for (size_t c = 0; c < H; ++c) {
            d.dsum[t * H + c] = inverse[t] * (dy[t * H + c] * gamma[c] - level - normal(c) * along);
        }
    }
    return d;
}

// What LayerNorm tests share: a batch of rows and where its results go.
template <typename X> struct Rows {
    int64_t T, H;
    Floats gamma, beta, mean, inverse, dy, dsum, dgamma, dbeta;
    Many<X> y;

    Rows(int64_t T_, int64_t H_, Random &random)
        : T(T_), H(H_), gamma(random.normals(H, 0.5f, 1)), beta(random.normals(H)), mean((size_t)T),
          inverse((size_t)T), dy(random.normals(T * H)), dsum((size_t)(T * H)), dgamma((size_t)H, 1.0f),
          dbeta((size_t)H, 1.0f), y(activations<X>(random.normals(T * H))) {}

    // Rounding of a row is magnified by its spread, at most so many times here. Statistics are those of the
    // sums before they are rounded.
    void check_forward(const Doubles &sum, const Doubles &expected) const {
        Doubles means, inverses;
        normed(sum, doubles(gamma), doubles(beta), &means, &inverses);
        check_near(y, expected, 32 * kEps);
        CHECK_AT_MOST(distance(inverse, inverses), 32 * kEps);
        for (size_t t = 0; t < means.size(); ++t) {
            CHECK_AT_MOST(std::fabs(mean[t] - means[t]), 8 * kEps * (1 + std::fabs(means[t])));
        }
    }
    // Against the formula, from the sums that were stored and the gradient of LayerNorm's own result; dgamma and
    // dbeta were added to `before`.
    void check_backward(const Many<X> &sum, const Doubles &dnormed, float before) const {
        NormGradient d = norm_gradient(dnormed, doubles(sum), mean, inverse, gamma);
        CHECK_AT_MOST(distance(dsum, d.dsum), 32 * kEps);
        auto H_ = (size_t)H;
        for (size_t c = 0; c < H_; ++c) {
            double along = before, level = before;
            for (size_t i = c; i < dnormed.size(); i += H_) {
                along += std::fabs(dnormed[i] * (value(sum[i]) - mean[i / H_]) * inverse[i / H_]);
                level += std::fabs(dnormed[i]);
            }
            CHECK_AT_MOST(std::fabs(dgamma[c] - before - d.dgamma[c]), 8 * kEps * along);
            CHECK_AT_MOST(std::fabs(dbeta[c] - before - d.dbeta[c]), 8 * kEps * level);
        }
    }
    void add_to(Digest &digest) const {
        ::add_to(digest, y);
        for (const Floats *one : {&mean, &inverse, &dsum, &dgamma, &dbeta}) {
            digest.add(*one);
        }
    }
};

void test_plain(int64_t T, int64_t H, mb::Pool &pool, Digest &digest, Random &random) {
    Rows<float> rows(T, H, random);
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

template <typename X>
void test_residual(int64_t T, int64_t H, bool drops, mb::Pool &pool, Digest &digest, Random &random) {
    Rows<X> rows(T, H, random);
    Many<X> x = activations<X>(random.normals(T * H)), sum((size_t)(T * H));
    Floats out = random.normals(T * H), bias = random.normals(H);
    std::vector<uint32_t> keys = drops ? random.keys(T) : std::vector<uint32_t>();
    mb::Drop drop{drops ? keys.data() : nullptr, kSite, kThreshold, kScale};
    if (drops && T == 0) {
        return;
    }
    auto forward = [&](const X *from, const float *through, X *into, X *y) {
        dropout_residual_layer_norm(pool, T, H, from, through, bias.data(), drop, rows.gamma.data(),
                                    rows.beta.data(), kNormEps, into, y, rows.mean.data(),
                                    rows.inverse.data());
    };
    auto sums = [&](const Doubles &past, const Doubles &through, const Doubles &b) {
        return sum_of(past, dropped(sum_of(through, b), H, keys));
    };
    forward(x.data(), out.data(), sum.data(), rows.y.data());
    Doubles expected = sums(doubles(x), doubles(out), doubles(bias));
    check_near(sum, expected, 2 * kEps);
    rows.check_forward(expected, normed(expected, doubles(rows.gamma), doubles(rows.beta)));
    // In place: the sum in that of out or of x, y in that of x.
    Many<X> in_place = x, y = x;
    forward(y.data(), out.data(), in_place.data(), y.data());
    CHECK(same(in_place, sum) && same(y, rows.y));
    in_place = x;
    forward(in_place.data(), out.data(), in_place.data(), y.data());
    CHECK(same(in_place, sum) && same(y, rows.y));
    if constexpr (kIsFloat<X>) {
        in_place = out;
        forward(x.data(), in_place.data(), in_place.data(), y.data());
        CHECK(same(in_place, sum) && same(y, rows.y));
    }

    bool gives = drops || !kIsFloat<X>;
    Many<X> dout((size_t)(T * H)), same_dout = dout;
    Floats dbias((size_t)H, 1.0f), over = rows.dy, dgamma = rows.dgamma, dbeta = dgamma, same_dbias = dbias;
    dropout_residual_layer_norm_backward(pool, T, H, rows.dy.data(), sum.data(), rows.mean.data(),
                                         rows.inverse.data(), rows.gamma.data(), drop, rows.dsum.data(),
                                         gives ? dout.data() : nullptr, rows.dgamma.data(), rows.dbeta.data(),
                                         dbias.data(), true);
    rows.add_to(digest), digest.add(dbias), add_to(digest, sum), add_to(digest, dout);
    rows.check_backward(sum, doubles(rows.dy), 1);
    // out's gradient is that of the sum where it was kept, rounded only now.
    Doubles through = dropped(doubles(rows.dsum), H, keys);
    if (gives) {
        CHECK(doubles(dout) == doubles(activations<X>(Floats(through.begin(), through.end()))));
    }
    for (size_t c = 0; c < (size_t)H; ++c) {
        double total = 1, size = 1;
        for (size_t i = c; i < through.size(); i += (size_t)H) {
            total += through[i], size += std::fabs(through[i]);
        }
        CHECK_AT_MOST(std::fabs(dbias[c] - total), 8 * kEps * size);
    }
    dropout_residual_layer_norm_backward(pool, T, H, over.data(), sum.data(), rows.mean.data(),
                                         rows.inverse.data(), rows.gamma.data(), drop, over.data(),
                                         gives ? same_dout.data() : nullptr, dgamma.data(), dbeta.data(),
                                         same_dbias.data(), false);
    CHECK(over == rows.dsum && same(same_dout, dout));
    for (size_t c = 0; c < (size_t)H; ++c) { // with nothing to add to
        CHECK(rows.dgamma[c] == 1 + dgamma[c] && rows.dbeta[c] == 1 + dbeta[c]);
        CHECK(dbias[c] == 1 + same_dbias[c]);
    }
    if constexpr (kIsFloat<X>) { // differences of the loss tell whether the formula is right
        double error = gradient_error(
            {{x, rows.dsum},
             {out, drops ? dout : rows.dsum},
             {rows.gamma, dgamma},
             {rows.beta, dbeta},
             {bias, same_dbias}},
            [&](const std::vector<Doubles> &at) {
                return dot(rows.dy, normed(sums(at[0], at[1], at[4]), at[2], at[3]));
            },
            random);
        CHECK_AT_MOST(error, kGradient);
    }
}

template <typename X>
void test_embedding(int64_t T, int64_t H, bool drops, mb::Pool &pool, Digest &digest, Random &random) {
    constexpr int V = 99, P = 31, S = 2;
    Rows<X> rows(T, H, random);
    Floats word = random.normals(V * H), position = random.normals(P * H), segment = random.normals(S * H);
    Ints ids = random.ints(T, V), positions = random.ints(T, P), segments = random.ints(T, S);
    std::vector<uint32_t> keys = drops ? random.keys(T) : std::vector<uint32_t>();
    mb::Drop drop{drops ? keys.data() : nullptr, kSite, kThreshold, kScale};
    Many<X> sum((size_t)(T * H));
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
    Doubles expected = sums(here[0], here[1], here[2]);
    check_near(sum, expected, 4 * kEps);
    rows.check_forward(expected, result(here));

    embedding_layer_norm_backward(pool, T, H, rows.dy.data(), sum.data(), rows.mean.data(),
                                  rows.inverse.data(), rows.gamma.data(), drop, rows.dsum.data(),
                                  rows.dgamma.data(), rows.dbeta.data(), false);
    rows.check_backward(sum, dropped(doubles(rows.dy), H, keys), 0);
    Floats over = rows.dy, dgamma((size_t)H), dbeta((size_t)H);
    embedding_layer_norm_backward(pool, T, H, over.data(), sum.data(), rows.mean.data(), rows.inverse.data(),
                                  rows.gamma.data(), drop, over.data(), dgamma.data(), dbeta.data(), false);
    CHECK(over == rows.dsum);
    rows.add_to(digest), add_to(digest, sum);
    if constexpr (kIsFloat<X>) {
        Floats dword((size_t)(V * H)), dposition((size_t)(P * H)), dsegment((size_t)(S * H));
        scatter_add(pool, T, H, ids.data(), rows.dsum.data(), dword.data());
        scatter_add(pool, T, H, positions.data(), rows.dsum.data(), dposition.data());
        scatter_add(pool, T, H, segments.data(), rows.dsum.data(), dsegment.data());
        digest.add(dword), digest.add(dsegment);
        double error = gradient_error(
            {{word, dword},
             {position, dposition},
             {segment, dsegment},
             {rows.gamma, rows.dgamma},
             {rows.beta, rows.dbeta}},
            [&](const std::vector<Doubles> &at) { return dot(rows.dy, result(at)); }, random);
        CHECK_AT_MOST(error, kGradient);
    }
}

template <typename X>
void test_column_sums(int64_t T, int64_t N, bool weighted, mb::Pool &pool, Digest &digest, Random &random) {
    int64_t ld = N + 3;
    Many<X> x = activations<X>(random.normals(T * ld));
    Floats weights = random.normals(T), sums((size_t)N, 1.0f);
    Doubles expected((size_t)N, 1.0), sizes((size_t)N, 1.0);
    for (size_t i = 0; i < x.size(); ++i) {
        if (i % (size_t)ld < (size_t)N) {
            double term = value(x[i]) * (weighted ? (double)weights[i / (size_t)ld] : 1);
            expected[i % (size_t)ld] += term;
            sizes[i % (size_t)ld] += std::fabs(term);
        }
    }
    column_sums(pool, T, N, x.data(), ld, weighted ? weights.data() : nullptr, sums.data(), true);
    for (size_t c = 0; c < (size_t)N; ++c) {
        CHECK_AT_MOST(std::fabs(sums[c] - expected[c]), 4 * kEps * sizes[c]);
    }
    Floats fresh((size_t)N, NAN);
    column_sums(pool, T, N, x.data(), ld, weighted ? weights.data() : nullptr, fresh.data(), false);
    for (size_t c = 0; c < (size_t)N; ++c) {
        CHECK(sums[c] == 1 + fresh[c]);
    }
    digest.add(sums);
}

// Rows of logits of which the largest stands there twice, and counts where it stands first; in every third row once, at the
// label, which is nearly certain where `scale` is large. The bias is the same at both.
struct Logits {
    Floats all, bias;
    Ints labels;

    Logits(int64_t N, int64_t K, float scale, Random &random)
        : all(random.normals(N * K, scale)), bias((size_t)K), labels(random.ints(N, (int32_t)K)) {
        for (int64_t c = 0; c < K; ++c) {
            bias[(size_t)c] = (float)(c % 3) - 1;
        }
        for (int64_t row = 0; row < N; ++row) {
            auto one = (int64_t)random.below((uint32_t)K),
                 other = one + 3 * (int64_t)random.below((uint32_t)((K - one + 2) / 3));
            if (row % 3 == 0) {
                labels[(size_t)row] = (int32_t)(other = one);
            }
            all[(size_t)(row * K + one)] = all[(size_t)(row * K + other)] = 7 * scale + 4;
        }
    }
};

// What the kernels made of logits (N,K): d in rows of ldg elements, nll and the first largest of each row.
template <typename G>
void check_softmax(int64_t N, int64_t K, const Floats &logits, const Ints &labels, const Many<G> &d,
                   int64_t ldg, const Floats &nll, const Ints &found) {
    for (int64_t row = 0; row < N; ++row) {
        const float *x = &logits[(size_t)(row * K)], *top = std::max_element(x, x + K);
        CHECK(found[(size_t)row] == top - x);
        int32_t label = labels[(size_t)row];
        double total = 0, others = 0, spread = 0;
        for (int64_t c = 0; c < K; ++c) {
            double e = std::exp((double)x[c] - *top);
            total += e, others += c == label ? 0 : e, spread = std::fmax(spread, (double)*top - x[c]);
        }
        // Shifts of logits are rounded before they are exponents. Of a label that is nearly certain, both results
        // are what the others have, and precise however little that is.
        double shift = (double)*top - x[label];
        double expected = shift == 0 ? std::log1p(others) : std::log(total) + shift;
        CHECK_AT_MOST(std::fabs(nll[(size_t)row] - expected),
                      (shift == 0 ? 8 + spread : 4) * kEps * expected);
        for (int64_t c = 0; c < K; ++c) {
            double result = value(d[(size_t)(row * ldg + c)]);
            double exact = c == label ? -others / total : std::exp((double)x[c] - *top) / total;
            double bound = (8 + (c == label ? spread : (double)*top - x[c])) * kEps * std::fabs(exact);
            if (!kIsFloat<G>) { // rounded, and but for the label's before it was divided by the sum
                bound += half_unit(exact) + (c == label ? 0 : std::fabs(exact) * 1.01 / 256);
            }
            CHECK_AT_MOST(std::fabs(result - exact), bound + 1.2e-38); // denormals may be 0
        }
    }
}

void test_softmax(int64_t N, int64_t K, float scale, mb::Pool &pool, Digest &digest, Random &random) {
    Logits given(N, K, scale, random);
    int64_t ld = K + 2;
    Floats x((size_t)(N * ld), 1e30f), nll((size_t)N);
    for (int64_t i = 0; i < N * K; ++i) {
        x[(size_t)(i / K * ld + i % K)] = given.all[(size_t)i];
    }
    Ints found((size_t)N);
    softmax_cross_entropy(pool, N, K, x.data(), ld, given.labels.data(), nll.data(), found.data());
    check_softmax(N, K, given.all, given.labels, x, ld, nll, found);
    for (int64_t row = 0; row < N; ++row) {
        CHECK(x[(size_t)(row * ld + K)] == 1e30f && x[(size_t)(row * ld + K + 1)] == 1e30f);
    }
    digest.add(x), digest.add(nll);
}

// The same behind a product with the identity, which leaves the logits as they are, or rounds them to bfloat16.
template <typename G>
void test_linear_softmax(int64_t M, int64_t N, float scale, bool narrow, mb::Pool &pool, Digest &digest,
                         Random &random) {
    Logits given(M, N, scale, random);
    Floats identity((size_t)(M * M)), turned((size_t)(M * N)), logits((size_t)(M * N)), nll((size_t)M);
    for (int64_t i = 0; i < M * N; ++i) {
        float one = given.all[(size_t)i];
        turned[(size_t)(i % N * M + i / N)] = one;
        logits[(size_t)i] = (narrow ? value(rounded(one)) : one) + given.bias[(size_t)(i % N)];
    }
    for (int64_t i = 0; i < M; ++i) {
        identity[(size_t)(i * M + i)] = 1;
    }
    int64_t ldg = N + 1;
    Many<G> d((size_t)(M * ldg), G{});
    Ints found((size_t)M);
    linear_softmax_cross_entropy(pool, M, N, M, {identity.data(), M, 1}, {turned.data(), 1, M},
                                 given.bias.data(), given.labels.data(), d.data(), ldg, nll.data(),
                                 found.data(), narrow);
    check_softmax(M, N, logits, given.labels, d, ldg, nll, found);
    for (int64_t row = 0; row < M; ++row) {
        CHECK(value(d[(size_t)(row * ldg + N)]) == 0);
    }
    add_to(digest, d), digest.add(nll);
}

void test_scale_rows(mb::Pool &pool, Digest &digest, Random &random) {
    for (int64_t T : {0, 1, 61}) {
        for (int64_t N : {1, 24, 37, 99, 2051}) {
            int64_t ld = N + 2;
            Floats x = random.normals(T * ld), weights = random.normals(T), y = x;
            scale_rows(pool, T, N, y.data(), ld, weights.data());
            for (size_t i = 0; i < x.size(); ++i) {
                CHECK(y[i] == (i % (size_t)ld < (size_t)N ? x[i] * weights[i / (size_t)ld] : x[i]));
            }
            digest.add(y);
        }
    }
}

template <typename X> void test_gather(mb::Pool &pool, Random &random) {
    for (int64_t T : {0, 1, 61, 300}) {
        for (int64_t H : {1, 24, 37, 64, 128}) {
            constexpr int V = 99;
            Many<X> table = activations<X>(random.normals(V * H));
            Floats rows((size_t)(T * H), NAN);
            Ints ids = random.ints(T, V);
            gather(pool, T, H, ids.data(), table.data(), rows.data());
            for (int64_t i = 0; i < T * H; ++i) {
                CHECK(rows[(size_t)i] == value(table[(size_t)(ids[(size_t)(i / H)] * H + i % H)]));
            }
        }
    }
}

void test_scatter_add(mb::Pool &pool, Digest &digest, Random &random) {
    for (int64_t T : {0, 1, 61, 300}) {
        for (int64_t H : {1, 24, 64, 100}) {
            constexpr int V = 13;
            Floats table = random.normals(V * H), rows = random.normals(T * H), expected = table;
            Ints ids = random.ints(T, V);
            for (int64_t i = 0; i < T * H; ++i) {
                expected[(size_t)(ids[(size_t)(i / H)] * H + i % H)] += rows[(size_t)i];
            }
            scatter_add(pool, T, H, ids.data(), rows.data(), table.data());
            CHECK(table == expected); // equal ids in the order of rows, to the bit
            digest.add(table);
        }
    }
}

// Every bfloat16 is loaded as itself. Floats are stored as the nearest one: those around each of them, in the
// middle between it and the next, and a bit to either side. AVX-512's own instruction makes small ones 0.
void test_bf16() {
    for (uint32_t upper = 0; upper < 0x10000; upper += VL) {
        bf16 from[VL], back[VL];
        for (int i = 0; i < VL; ++i) {
            from[i].bits = (uint16_t)(upper + (uint32_t)i);
        }
        vi bits = (vi)load(from);
        for (int i = 0; i < VL; ++i) {
            CHECK((uint32_t)bits[i] == (upper + (uint32_t)i) << 16);
        }
        for (uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
            vf x = (vf)(bits | (int32_t)lower);
            store(back, x);
            for (int i = 0; i < VL; ++i) {
                float exact = x[i], got = value(back[i]);
                if (std::isnan(exact)) {
                    CHECK(std::isnan(got) && std::signbit(got) == std::signbit(exact));
#if defined(__AVX512BF16__)
                } else if (std::fpclassify(exact) == FP_SUBNORMAL) {
                    CHECK(got == 0 && std::signbit(got) == std::signbit(exact));
#endif
                } else {
                    CHECK(back[i].bits == rounded(exact).bits);
                }
            }
        }
    }
    CHECK(rounded(1 + 1.0f / 256).bits == 0x3F80 && rounded(1 + 3.0f / 256).bits == 0x3F82); // ties to even
    CHECK(rounded(3.4028235e38f).bits == 0x7F80 && rounded(-INFINITY).bits == 0xFF80);
    for (int n = 1; n <= VL; ++n) {
        Many<bf16> few((size_t)n), copy((size_t)n + 1, bf16{0xFFFF});
        for (int i = 0; i < n; ++i) {
            few[(size_t)i] = rounded((float)(i + 1));
        }
        vf v = load(few.data(), n);
        for (int i = 0; i < VL; ++i) {
            CHECK(v[i] == (float)(i < n ? i + 1 : 0));
        }
        store(copy.data(), v + 0.5f, n);
        for (int i = 0; i < n; ++i) {
            CHECK(value(copy[(size_t)i]) == (float)i + 1.5f);
        }
        CHECK(copy.back().bits == 0xFFFF);
    }
}

} // namespace

void test_layer_norm(mb::Pool &pool, Digest &digest) {
    Random random;
    for (int64_t T : {0, 1, 61, 300}) {
        for (int64_t H : {5, 7, 16, 24, 37, 100, 256}) {
            test_plain(T, H, pool, digest, random);
            for (bool drops : {false, true}) {
                test_embedding<float>(T, H, drops, pool, digest, random);
                test_residual<float>(T, H, drops, pool, digest, random);
            }
        }
        for (int64_t H : {1, 24, 37, 128}) {
            for (bool drops : {false, true}) {
                test_embedding<bf16>(T, H, drops, pool, digest, random);
                test_residual<bf16>(T, H, drops, pool, digest, random);
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
    test_bf16();
    for (int64_t T : {0, 1, 3, 4, 61, 64, 65, 500}) {
        for (int64_t N : {1, 2, 24, 37, 99, 2048, 2051}) {
            for (bool weighted : {false, true}) {
                test_column_sums<float>(T, N, weighted, pool, digest, random);
                test_column_sums<bf16>(T, N, weighted, pool, digest, random);
            }
        }
    }
    for (int64_t N : {4099, 33001}) { // rows that are taken eight together, and those cut into strips
        test_column_sums<float>(19, N, true, pool, digest, random);
        test_column_sums<bf16>(19, N, true, pool, digest, random);
    }
    test_scale_rows(pool, digest, random);
    test_gather<float>(pool, random);
    test_gather<bf16>(pool, random);
    test_scatter_add(pool, digest, random);
    for (int64_t N : {0, 1, 9}) {
        for (int64_t K : {1, 2, 3, 15, 16, 17, 99, 1023, 1024, 1025, 5000}) {
            for (float scale : {0.5f, 6.0f, 1000.0f}) {
                test_softmax(N, K, scale, pool, digest, random);
                for (bool narrow : {false, true}) {
                    test_linear_softmax<float>(N, K, scale, narrow, pool, digest, random);
                    test_linear_softmax<bf16>(N, K, scale, narrow, pool, digest, random);
                }
            }
        }
    }
    // Several blocks of rows and of columns.
    test_linear_softmax<bf16>(200, 9001, 6, true, pool, digest, random);
    // What is infinitely unlikely, all of a strip too, and what is not a number.
    Floats x{-INFINITY, 0, 0, NAN, 0, 1}, nll(2);
    Ints labels{1, 1}, best(2);
    softmax_cross_entropy(pool, 2, 3, x.data(), 3, labels.data(), nll.data(), best.data());
    CHECK(x[0] == 0 && x[1] == -0.5f && x[2] == 0.5f && nll[0] == (float)std::log(2.0) && best[0] == 1);
    CHECK(std::isnan(x[3]) && std::isnan(x[4]) && std::isnan(x[5]) && std::isnan(nll[1]));
    Floats far((size_t)(3 * kStrip), -INFINITY);
    far.front() = -300, far.back() = -300, labels = {0};
    softmax_cross_entropy(pool, 1, 3 * kStrip, far.data(), 3 * kStrip, labels.data(), nll.data(),
                          best.data());
    CHECK(far.front() == -0.5f && far[1] == 0 && far[(size_t)(2 * kStrip - 1)] == 0 && far.back() == 0.5f);
    CHECK(nll[0] == (float)std::log(2.0) && best[0] == 0);
}

// Five times X <- (a + b S + c S S) X with S = X X^T, in double precision.
std::vector<double> orthogonal(int64_t M, int64_t N, const Floats &given) {
    std::vector<double> x(given.begin(), given.end());
    double squares = 0;
    for (double one : x) {
        squares += one * one;
    }
    for (double &one : x) {
        one /= std::max(std::sqrt(squares), 1e-7);
    }
    auto product = [](int64_t rows, int64_t columns, int64_t depth, auto left, auto right) {
        std::vector<double> sums((size_t)(rows * columns));
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < columns; ++j) {
                for (int64_t k = 0; k < depth; ++k) {
                    sums[(size_t)(i * columns + j)] += left(i, k) * right(k, j);
                }
            }
        }
        return sums;
    };
    for (int iteration = 0; iteration < 5; ++iteration) {
        auto X = [&](int64_t i, int64_t j) { return x[(size_t)(i * N + j)]; };
        auto square = product(M, M, N, X, [&](int64_t k, int64_t j) { return X(j, k); });
        auto S = [&](int64_t i, int64_t j) { return square[(size_t)(i * M + j)]; };
        auto fourth = product(M, M, M, S, S);
        auto factor = [&](int64_t i, int64_t j) {
            return (i == j ? 3.4445 : 0) - 4.775 * S(i, j) + 2.0315 * fourth[(size_t)(i * M + j)];
        };
        x = product(M, N, M, factor, X);
    }
    return x;
}

void test_orthogonalise(mb::Pool &pool, Digest &digest, Random &random) {
    for (auto [M, N] : {std::pair<int64_t, int64_t>{1, 1}, {1, 9}, {3, 5}, {17, 40}, {64, 64}, {33, 200}}) {
        for (float size : {0.0f, 1e-6f, 1.0f, 1e6f}) {
            Floats x = random.normals(M * N, size), found = x, rounded = x;
            std::vector<double> expected = orthogonal(M, N, x);
            orthogonalise(pool, M, N, found.data(), false);
            orthogonalise(pool, M, N, rounded.data(), true);
            digest.add(found), digest.add(rounded);
            double distance = 0, whole = 0;
            for (size_t i = 0; i < x.size(); ++i) {
                CHECK_AT_MOST(std::fabs(found[i] - expected[i]), 500 * kEps); // rounding grows by 3.4445^5
                distance += (rounded[i] - expected[i]) * (rounded[i] - expected[i]);
                whole += expected[i] * expected[i];
            }
            CHECK_AT_MOST(std::sqrt(distance), 0.15 * std::sqrt(whole)); // in bfloat16: 0.06 was seen
        }
    }
}

void test_updates(mb::Pool &pool, Digest &digest) {
    Random random;
    test_orthogonalise(pool, digest, random);
    for (int64_t n : {0, 1, 15, 16, 17, 1000, 65535, 65537, 200001}) {
        Floats x = random.normals(n, 3), total = random.normals(n), expected = total;
        double squares = 0;
        for (size_t i = 0; i < x.size(); ++i) {
            squares += (double)x[i] * x[i];
            expected[i] += x[i];
        }
        accumulate(pool, n, total.data(), x.data());
        CHECK(total == expected);
        clear(pool, n, total.data());
        CHECK(total == Floats((size_t)n, 0.0f));
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
        Floats same_params = params, same_m = m, same_v = v, gone = x;
        step.clears = true;
        adamw(pool, n, same_params.data(), gone.data(), same_m.data(), same_v.data(), 3, decayed.data(),
              step);
        CHECK(same_params == new_params && same_m == new_m && same_v == new_v);
        CHECK(gone == Floats((size_t)n, 0.0f));
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
