#include "test_kernels.h"

#include <algorithm>

#include "attention.h"

using namespace mb::MB_ISA;

namespace {

struct Results {
    Doubles y, dq, dk, dv;
};

// A batch, and its attention by the formulas: in double precision, or as bfloat16 is to be had without thinking.
struct Attention {
    std::vector<int32_t> cu_seqlens;
    int64_t A, D;
    bool causal, drops;
    std::vector<uint32_t> keys; // (T,2)

    // q k v (T,A,D) -> (T,A,D)
    Doubles operator()(const std::vector<Doubles> &at) const {
        return results<double>(at[0], at[1], at[2], Doubles(at[0].size())).y;
    }

    // R: double, or float for operands and results that are bfloat16 and sums that are not
    template <typename R>
    Results results(const Doubles &q, const Doubles &k, const Doubles &v, const Doubles &dy) const {
        Results all{Doubles(q.size()), Doubles(q.size()), Doubles(q.size()), Doubles(q.size())};
        for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
            for (int64_t a = 0; a < A; ++a) {
                head<R>(cu_seqlens[s], cu_seqlens[s + 1] - cu_seqlens[s], a, q, k, v, dy, all);
            }
        }
        return all;
    }

    bool kept(int64_t row, int64_t a, int64_t column) const {
        Survives of_site(keys[(size_t)(2 * row)], keys[(size_t)(2 * row + 1)], kSite);
        return !drops || Survives(of_site.first, of_site.second, (uint32_t)a)(column, kThreshold);
    }

  private:
    static double rounded(double x) { return x; }
    static float rounded(float x) { return value(::rounded(x)); }

    template <typename R>
    void head(int64_t begin, int64_t n, int64_t a, const Doubles &q, const Doubles &k, const Doubles &v,
              const Doubles &dy, Results &all) const {
        auto at = [&](int64_t i, int64_t d) { return (size_t)(((begin + i) * A + a) * D + d); };
        std::vector<R> y((size_t)D), dq(y), dk((size_t)(n * D)), dv(dk), p((size_t)n), m(p), dp(p);
        R root = 1 / std::sqrt((R)D);
        for (int64_t i = 0; i < n; ++i) {
            int64_t end = causal ? i + 1 : n;
            R highest = -INFINITY, total = 0, delta = 0;
            for (int64_t j = 0; j < end; ++j) {
                R score = 0, slope = 0;
                for (int64_t d = 0; d < D; ++d) {
                    score += (R)q[at(i, d)] * (R)k[at(j, d)], slope += (R)dy[at(i, d)] * (R)v[at(j, d)];
                }
                p[(size_t)j] = score * root, dp[(size_t)j] = slope;
                m[(size_t)j] = !drops ? 1 : kept(begin + i, a, j) ? kScale : 0;
                highest = std::max(highest, p[(size_t)j]);
            }
            for (int64_t j = 0; j < end; ++j) {
                p[(size_t)j] = std::exp(p[(size_t)j] - highest), total += p[(size_t)j];
            }
            y.assign((size_t)D, 0), dq.assign((size_t)D, 0);
            for (int64_t j = 0; j < end; ++j) {
                p[(size_t)j] /= total;
                for (int64_t d = 0; d < D; ++d) {
                    R share = rounded(p[(size_t)j] * m[(size_t)j]);
                    y[(size_t)d] += share * (R)v[at(j, d)],
                        dv[(size_t)(j * D + d)] += share * (R)dy[at(i, d)];
                }
            }
            for (int64_t d = 0; d < D; ++d) {
                R one = rounded(y[(size_t)d]);
                all.y[at(i, d)] = one, delta += (R)dy[at(i, d)] * one;
            }
            for (int64_t j = 0; j < end; ++j) {
                R ds = rounded(p[(size_t)j] * (dp[(size_t)j] * m[(size_t)j] - delta) * root);
                for (int64_t d = 0; d < D; ++d) {
                    dq[(size_t)d] += ds * (R)k[at(j, d)], dk[(size_t)(j * D + d)] += ds * (R)q[at(i, d)];
                }
            }
            for (int64_t d = 0; d < D; ++d) {
                all.dq[at(i, d)] = rounded(dq[(size_t)d]);
            }
        }
        for (int64_t j = 0; j < n; ++j) {
            for (int64_t d = 0; d < D; ++d) {
                all.dk[at(j, d)] = rounded(dk[(size_t)(j * D + d)]);
                all.dv[at(j, d)] = rounded(dv[(size_t)(j * D + d)]);
            }
        }
    }
};

// q k v dy as a model holds them: side by side, `gap` elements behind each token.
template <typename X> struct Call {
    const Attention &of;
    int64_t T = of.cu_seqlens.back(), width = of.A * of.D, stride;
    std::vector<X> in, out; // (T,4,A,D) q k v dy, y dq dk dv
    Floats softmax;

    Call(const Attention &attention, int64_t gap)
        : of(attention), stride(4 * width + gap), in((size_t)(T * stride - gap)), out(in),
          softmax((size_t)(2 * T * of.A)) {}

    void run(mb::Pool &pool) {
        mb::Drop drop{of.drops ? of.keys.data() : nullptr, kSite, kThreshold, kScale};
        int64_t S = (int64_t)of.cu_seqlens.size() - 1;
        auto from = [&](int i) { return mb::ConstHeads<X>{in.data() + i * width, stride}; };
        auto to = [&](int i) { return mb::Heads<X>{out.data() + i * width, stride}; };
        attention(pool, S, of.cu_seqlens.data(), of.cu_seqlens.data(), of.A, of.D, from(0), from(1), from(2),
                  of.causal, drop, to(0), softmax.data());
        mb::ConstHeads<X> y{out.data(), stride};
        attention_backward(pool, S, of.cu_seqlens.data(), of.cu_seqlens.data(), of.A, of.D, from(0), from(1),
                           from(2), of.causal, drop, from(3), y, softmax.data(), to(1), to(2), to(3));
    }

    // One of the four, (T,A,D) in memory.
    std::vector<X> piece(const std::vector<X> &all, int64_t i) const {
        std::vector<X> x;
        for (int64_t t = 0; t < T; ++t) {
            auto row = all.begin() + t * stride + i * width;
            x.insert(x.end(), row, row + width);
        }
        return x;
    }
};

void test_float(const Attention &exact, mb::Pool &pool, Digest &digest, Random &random) {
    Call<float> call(exact, 0);
    call.in = random.normals((int64_t)call.in.size());
    call.run(pool);
    digest.add(call.out);
    Floats q = call.piece(call.in, 0), k = call.piece(call.in, 1), v = call.piece(call.in, 2);
    Floats dy = call.piece(call.in, 3);
    CHECK_AT_MOST(distance(call.piece(call.out, 0), exact({doubles(q), doubles(k), doubles(v)})), 16 * kEps);
    double error = gradient_error(
        {{q, call.piece(call.out, 1)}, {k, call.piece(call.out, 2)}, {v, call.piece(call.out, 3)}},
        [&](const std::vector<Doubles> &at) { return dot(dy, exact(at)); }, random);
    CHECK_AT_MOST(error, 1e-6);
}

// q and k are of order `loud`, so that scores go to its square.
void test_bf16(const Attention &of, float loud, mb::Pool &pool, Digest &digest, Random &random) {
    // Between the rows lie numbers that are none: whoever counts them in is found out.
    Call<mb::bf16> call(of, of.causal ? 3 : 4);
    std::fill(call.in.begin(), call.in.end(), rounded(NAN));
    for (int64_t t = 0; t < call.T; ++t) {
        for (int64_t i = 0; i < 4 * call.width; ++i) {
            float of_order = i < 2 * call.width ? loud : 1;
            call.in[(size_t)(t * call.stride + i)] = rounded(random.normal() * of_order);
        }
    }
    call.run(pool);
    Doubles q = doubles(call.piece(call.in, 0)), k = doubles(call.piece(call.in, 1)),
            v = doubles(call.piece(call.in, 2)), dy = doubles(call.piece(call.in, 3));
    Results exact = of.results<double>(q, k, v, dy), plain = of.results<float>(q, k, v, dy);
    Doubles *right[] = {&exact.y, &exact.dq, &exact.dk, &exact.dv};
    Doubles *simple[] = {&plain.y, &plain.dq, &plain.dk, &plain.dv};
    for (int i = 0; i < 4; ++i) {
        Many<mb::bf16> piece = call.piece(call.out, i);
        digest.add(piece.data(), piece.size() * sizeof(mb::bf16));
        // Gradients of scores are differences of numbers of order one, whose last bits stay when they cancel.
        double floor = 16 * kEps * loud * std::sqrt((double)q.size());
        // Where all cancels, what is left is the rounding of the y that is multiplied by dy.
        if (call.T == 1 && (i == 1 || i == 2)) {
            floor += size(exact.y) * size(dy) / 512 * size(i == 1 ? k : q) / std::sqrt(of.D);
        }
        CHECK_AT_MOST(difference(*simple[i], *right[i]), 0.02 * loud * std::sqrt((double)q.size()));
        CHECK_AT_MOST(difference(doubles(piece), *right[i]), 2 * difference(*simple[i], *right[i]) + floor);
    }
}

// With v the identity, y is what became of the probabilities; with dy the identity, dv is the same turned. Dropout hits
// the same ones in both types.
void test_bits_of_dropout(mb::Pool &pool, Random &random) {
    int32_t n = 61;
    Attention of{{0, n}, 3, 64, false, true, random.keys(n)};
    for (bool causal : {false, true}) {
        of.causal = causal;
        Call<float> full(of, 0);
        Call<mb::bf16> half(of, 0);
        auto at = [&](int64_t t, int i, int64_t a, int64_t d) {
            return (size_t)(t * full.stride + i * full.width + a * of.D + d);
        };
        for (int64_t t = 0; t < n; ++t) {
            for (int64_t a = 0; a < of.A; ++a) {
                for (int64_t d = 0; d < of.D; ++d) {
                    full.in[at(t, 0, a, d)] = random.normal(), full.in[at(t, 1, a, d)] = random.normal();
                    full.in[at(t, 2, a, d)] = full.in[at(t, 3, a, d)] = d == t;
                }
            }
        }
        half.in = activations<mb::bf16>(full.in);
        full.run(pool), half.run(pool);
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t j = 0; j < n; ++j) {
                for (int64_t a = 0; a < of.A; ++a) {
                    bool there = of.kept(i, a, j) && (!causal || j <= i);
                    CHECK((full.out[at(i, 0, a, j)] != 0) == there);
                    CHECK((value(half.out[at(i, 0, a, j)]) != 0) == there);
                    CHECK((full.out[at(j, 3, a, i)] != 0) == there);
                    CHECK((value(half.out[at(j, 3, a, i)]) != 0) == there);
                }
            }
        }
    }
}

// Where only some tokens ask, they get what they get among all, and keys and values what they get where dy is 0 elsewhere.
template <typename X> void test_some(const Attention &of, mb::Pool &pool, Digest &digest, Random &random) {
    Call<X> all(of, 0);
    int64_t R = 0, S = (int64_t)of.cu_seqlens.size() - 1, width = all.width;
    std::vector<int32_t> rows, queries{0};
    // Of every other sequence a fifth ask, of the others in turn all and none.
    for (int64_t s = 0; s < S; ++s) {
        for (int32_t t = of.cu_seqlens[(size_t)s]; t < of.cu_seqlens[(size_t)s + 1]; ++t) {
            if (s % 2 ? s % 4 == 1 : random.below(5) == 0) {
                rows.push_back(t), ++R;
            }
        }
        queries.push_back((int32_t)R);
    }
    for (auto &x : all.in) {
        x = stored<X>(random.normal());
    }
    for (int64_t t = 0; t < all.T; ++t) {
        if (!std::binary_search(rows.begin(), rows.end(), (int32_t)t)) {
            std::fill_n(all.in.begin() + t * all.stride + 3 * width, width, X{});
        }
    }
    all.run(pool);

    std::vector<X> asked((size_t)(R * 4 * width), stored<X>(NAN)),
        by_key((size_t)(all.T * 2 * width), stored<X>(NAN));
    std::vector<uint32_t> keys;
    for (int64_t r = 0; r < R; ++r) { // q dy, and what comes of them: y dq
        auto *from = all.in.data() + rows[(size_t)r] * all.stride;
        std::copy_n(from, width, asked.data() + r * 4 * width);
        std::copy_n(from + 3 * width, width, asked.data() + (r * 4 + 1) * width);
        keys.insert(keys.end(), of.keys.begin() + 2 * rows[(size_t)r],
                    of.keys.begin() + 2 * rows[(size_t)r] + 2);
    }
    Floats softmax((size_t)(2 * R * of.A));
    mb::Drop drop{of.drops ? keys.data() : nullptr, kSite, kThreshold, kScale};
    auto part = [&](int64_t i) { return mb::Heads<X>{asked.data() + i * width, 4 * width}; };
    auto read = [&](int64_t i) { return mb::ConstHeads<X>{asked.data() + i * width, 4 * width}; };
    mb::ConstHeads<X> k{all.in.data() + width, all.stride}, v{all.in.data() + 2 * width, all.stride};
    const int32_t *begins = of.cu_seqlens.data();
    attention(pool, S, begins, queries.data(), of.A, of.D, read(0), k, v, false, drop, part(2),
              softmax.data());
    attention_backward(pool, S, begins, queries.data(), of.A, of.D, read(0), k, v, false, drop, read(1),
                       read(2), softmax.data(), part(3), mb::Heads<X>{by_key.data(), 2 * width},
                       mb::Heads<X>{by_key.data() + width, 2 * width});
    digest.add(asked.data(), asked.size() * sizeof(X));
    for (int64_t r = 0; r < R; ++r) {
        auto *among_all = all.out.data() + rows[(size_t)r] * all.stride;
        CHECK(std::memcmp(among_all, asked.data() + (r * 4 + 2) * width, (size_t)width * sizeof(X)) == 0);
        CHECK(std::memcmp(among_all + width, asked.data() + (r * 4 + 3) * width, (size_t)width * sizeof(X)) ==
              0);
    }
    // Nothing is added to sums of floats in another order; to pairs of bfloat16 it is.
    Doubles some, whole;
    for (int64_t t = 0; t < all.T; ++t) {
        for (int64_t i = 0; i < 2 * width; ++i) {
            some.push_back(value(by_key[(size_t)(t * 2 * width + i)]));
            whole.push_back(value(all.out[(size_t)(t * all.stride + 2 * width + i)]));
        }
    }
    CHECK_AT_MOST(difference(some, whole), sizeof(X) == sizeof(float) ? 0 : size(whole) / 256);
}

} // namespace

void test_attention(mb::Pool &pool, Digest &digest) {
    Random random;
    for (const auto &lengths : {std::vector<int>{1, 2, 7, 13, 7, 31}, {1}, {64, 65}, {129}}) {
        Attention exact{{0}, 0, 0, false, false, {}};
        for (int length : lengths) {
            exact.cu_seqlens.push_back(exact.cu_seqlens.back() + length);
        }
        exact.keys = random.keys(exact.cu_seqlens.back());
        for (int64_t D : {1, 5, 8, 24, 37, 64}) {
            for (bool causal : {false, true}) {
                for (bool drops : {false, true}) {
                    exact.A = D == 64 ? 1 : 3, exact.D = D, exact.causal = causal, exact.drops = drops;
                    test_float(exact, pool, digest, random);
                    test_bf16(exact, 1, pool, digest, random);
                    test_bf16(exact, 8, pool, digest, random); // scores whose exponentials would be infinite
                    if (!causal) {
                        test_some<float>(exact, pool, digest, random);
                        test_some<mb::bf16>(exact, pool, digest, random);
                    }
                }
            }
        }
    }
    test_bits_of_dropout(pool, random);
}
