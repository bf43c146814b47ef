#include "rowwise.h"

#include <cmath>

#include "elementary.h"

namespace mb {
namespace MB_ISA {
namespace {

constexpr int64_t kChunk = 1 << 14; // elements that one thread takes at a time

MB_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
MB_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// visit(begin, end) for pieces of [0, n), in parallel
template <typename Visit> void each_piece(Pool &pool, int64_t n, int64_t size, Visit visit) {
    pool.run(parts(n, size), [&](int64_t part) { visit(part * size, smaller(n, (part + 1) * size)); });
}

// visit(row) for T rows of N, in parallel
template <typename Visit> void each_row(Pool &pool, int64_t T, int64_t N, Visit visit) {
    each_piece(pool, T, larger(1, kChunk / larger(1, N)), [&](int64_t t, int64_t end) {
        for (; t < end; ++t) {
            visit(t);
        }
    });
}

// visit(i, m) for [begin, end), m of VL elements at a time
template <typename Visit> MB_INLINE void each_vector(int64_t begin, int64_t end, Visit visit) {
    for (; begin + VL <= end; begin += VL) {
        visit(begin, VL);
    }
    if (begin < end) {
        visit(begin, (int)(end - begin));
    }
}

MB_INLINE vf load_some(const float *p, int m) { return m == VL ? load(p) : load(p, m); }
MB_INLINE void store_some(float *p, vf v, int m) { m == VL ? store(p, v) : store(p, v, m); }

// y (n,) = f(x)
template <typename F> void map(Pool &pool, int64_t n, const float *x, float *y, F f) {
    each_piece(pool, n, kChunk, [&](int64_t begin, int64_t end) {
        each_vector(begin, end, [&](int64_t i, int m) { store_some(y + i, f(load_some(x + i, m)), m); });
    });
}

// z (n,) = f(x, y)
template <typename F> void map(Pool &pool, int64_t n, const float *x, const float *y, float *z, F f) {
    each_piece(pool, n, kChunk, [&](int64_t begin, int64_t end) {
        each_vector(begin, end, [&](int64_t i, int m) {
            store_some(z + i, f(load_some(x + i, m), load_some(y + i, m)), m);
        });
    });
}

template <bool tanh_form> MB_INLINE vf gelu_slope_of(vf x) {
    GeluParts parts = gelu_parts_of<tanh_form>(x);
    return parts.cdf + x * parts.slope;
}

} // namespace

void gelu(Pool &pool, int64_t n, const float *x, float *y, bool tanh_form) {
    tanh_form ? map(pool, n, x, y, [](vf v) { return v * gelu_parts_of<true>(v).cdf; })
              : map(pool, n, x, y, [](vf v) { return v * gelu_parts_of<false>(v).cdf; });
}

void gelu_backward(Pool &pool, int64_t n, const float *dy, const float *x, float *dx, bool tanh_form) {
    tanh_form ? map(pool, n, dy, x, dx, [](vf d, vf v) { return d * gelu_slope_of<true>(v); })
              : map(pool, n, dy, x, dx, [](vf d, vf v) { return d * gelu_slope_of<false>(v); });
}

void tanh_forward(Pool &pool, int64_t n, const float *x, float *y) {
    map(pool, n, x, y, [](vf v) { return tanh(v); });
}

void tanh_backward(Pool &pool, int64_t n, const float *dy, const float *y, float *dx) {
    map(pool, n, dy, y, dx, [](vf d, vf v) { return d * (1.0f - v * v); });
}

void dropout(Pool &pool, int64_t T, int64_t N, const float *x, float *y, Drop drop) {
    each_row(pool, T, N, [&](int64_t t) {
        Key key = row_key(drop, t);
        const float *from = x + t * N;
        float *to = y + t * N;
        for (int64_t c = 0; c < N; c += 2 * VL) {
            Kept kept[2];
            keep(key, c, drop.threshold, &kept[0], &kept[1]);
            if (c + 2 * VL <= N) {
                store(to + c, only(kept[0], load(from + c), drop.scale));
                store(to + c + VL, only(kept[1], load(from + c + VL), drop.scale));
                continue;
            }
            for (int64_t half = 0; half < 2 && c + half * VL < N; ++half) {
                int64_t i = c + half * VL, m = smaller(VL, N - i);
                store(to + i, only(kept[half], load(from + i, m), drop.scale), m);
            }
        }
    });
}

namespace {

constexpr int64_t kStrip = 1 << 15; // columns whose sums stay in L2

// sums (n,) += R rows
template <int R> void add_rows(int64_t n, const float *x, int64_t ld, const float *weights, float *sums) {
    each_vector(0, n, [&](int64_t c, int m) {
        vf total = load_some(sums + c, m);
        for (int i = 0; i < R; ++i) {
            total += load_some(x + i * ld + c, m) * (weights ? weights[i] : 1.0f);
        }
        store_some(sums + c, total, m);
    });
}

// sums (n,) = sum of `count` rows. Short rows one by one, as memory is read ahead along a page; of long rows eight
// together, which have a page each, so that the sums are less often fetched from L2.
void sum_rows(int64_t count, int64_t n, const float *x, int64_t ld, const float *weights, float *sums) {
    for (int64_t c = 0; c < n; ++c) {
        sums[c] = 0;
    }
    for (int64_t t = 0; t < count;) {
        bool many = n > 4096 && t + 8 <= count;
        (many ? add_rows<8> : add_rows<1>)(n, x + t * ld, ld, weights ? weights + t : nullptr, sums);
        t += many ? 8 : 1;
    }
}

// sums (N,) = or += the rows of partial (count,N) in order
void add_partial_sums(Pool &pool, int64_t count, int64_t N, const float *partial, float *sums, bool add) {
    each_piece(pool, N, 512, [&](int64_t begin, int64_t end) {
        each_vector(begin, end, [&](int64_t c, int m) {
            vf total = {};
            for (int64_t part = 0; part < count; ++part) {
                total += load_some(partial + part * N + c, m);
            }
            store_some(sums + c, add ? load_some(sums + c, m) + total : total, m);
        });
    });
}

} // namespace

void column_sums(Pool &pool, int64_t T, int64_t N, const float *x, int64_t ld, const float *weights,
                 float *sums, bool add) {
    int64_t rows = larger(64, parts(T, 16)), n_rows = parts(T, rows), n_strips = parts(N, kStrip);
    auto *partial = static_cast<float *>(scratch(Slot::sums, sizeof(float) * (size_t)(n_rows * N)));
    pool.run(n_rows * n_strips, [&](int64_t part) {
        int64_t t = part / n_strips * rows, c = part % n_strips * kStrip;
        sum_rows(smaller(rows, T - t), smaller(kStrip, N - c), x + t * ld + c, ld,
                 weights ? weights + t : nullptr, partial + part / n_strips * N + c);
    });
    add_partial_sums(pool, n_rows, N, partial, sums, add);
}

namespace {

// What is done to a row of N, two vectors at a time as one hash serves them: visit(half, c, m, kept) for m columns
// from c on. `kept` means something where `drops`.
template <bool drops, typename Visit>
MB_INLINE void each_pair(int64_t N, Key key, uint32_t threshold, Visit visit) {
    Kept kept[2] = {};
    int64_t c = 0;
    for (; c + 2 * VL <= N; c += 2 * VL) {
        if (drops) {
            keep(key, c, threshold, &kept[0], &kept[1]);
        }
        visit(0, c, VL, kept[0]);
        visit(1, c + VL, VL, kept[1]);
    }
    if (c == N) {
        return;
    }
    if (drops) {
        keep(key, c, threshold, &kept[0], &kept[1]);
    }
    visit(0, c, (int)smaller(VL, N - c), kept[0]);
    if (c + VL < N) {
        visit(1, c + VL, (int)(N - c - VL), kept[1]);
    }
}

struct Norm {
    int64_t H;
    const float *gamma, *beta;
    float eps;
    float *mean, *inverse; // of this row
};

// y (H,) = dropout(gamma (x - mean) inverse + beta) of a row whose sum is known
template <bool drops>
MB_INLINE void normalise(const Norm &norm, const float *x, float sum_of_row, float *y, Key key,
                         const Drop &drop) {
    int64_t H = norm.H;
    float mean = sum_of_row / (float)H;
    vf squares[2] = {};
    each_pair<false>(H, key, 0, [&](int half, int64_t c, int m, Kept) {
        vf centred = load_some(x + c, m) - mean;
        if (m < VL) {
            centred = first(m, centred, vf{});
        }
        squares[half] += centred * centred;
    });
    float inverse = 1.0f / __builtin_sqrtf(sum(squares[0] + squares[1]) / (float)H + norm.eps);
    *norm.mean = mean;
    *norm.inverse = inverse;
    each_pair<drops>(H, key, drop.threshold, [&](int, int64_t c, int m, Kept kept) {
        vf normal = (load_some(x + c, m) - mean) * inverse;
        vf value = normal * load_some(norm.gamma + c, m) + load_some(norm.beta + c, m);
        store_some(y + c, drops ? only(kept, value, drop.scale) : value, m);
    });
}

// sum = x + dropout(out + bias), y = LayerNorm(sum)
template <bool drops, bool biased>
void residual_rows(Pool &pool, int64_t T, int64_t H, const float *x, const float *out, const float *bias,
                   const Drop &drop, const float *gamma, const float *beta, float eps, float *sums, float *y,
                   float *mean, float *inverse) {
    each_row(pool, T, H, [&](int64_t t) {
        Key key = drops ? row_key(drop, t) : Key{};
        const float *past = x + t * H, *through = out + t * H;
        float *both = sums + t * H;
        vf totals[2] = {};
        each_pair<drops>(H, key, drop.threshold, [&](int half, int64_t c, int m, Kept kept) {
            vf value = load_some(through + c, m);
            if (biased) {
                value += load_some(bias + c, m);
            }
            if (drops) {
                value = only(kept, value, drop.scale);
            }
            value += load_some(past + c, m);
            store_some(both + c, value, m);
            totals[half] += m < VL ? first(m, value, vf{}) : value;
        });
        normalise<false>({H, gamma, beta, eps, mean + t, inverse + t}, both, sum(totals[0] + totals[1]),
                         y + t * H, key, drop);
    });
}

} // namespace

void layer_norm(Pool &pool, int64_t T, int64_t H, const float *x, const float *gamma, const float *beta,
                float eps, float *y, float *mean, float *inverse) {
    each_row(pool, T, H, [&](int64_t t) {
        vf totals[2] = {};
        each_pair<false>(
            H, {}, 0, [&](int half, int64_t c, int m, Kept) { totals[half] += load_some(x + t * H + c, m); });
        normalise<false>({H, gamma, beta, eps, mean + t, inverse + t}, x + t * H, sum(totals[0] + totals[1]),
                         y + t * H, {}, {});
    });
}

void dropout_residual_layer_norm(Pool &pool, int64_t T, int64_t H, const float *x, const float *out,
                                 const float *bias, Drop drop, const float *gamma, const float *beta,
                                 float eps, float *sum, float *y, float *mean, float *inverse) {
    auto rows = drop.row_keys ? (bias ? residual_rows<true, true> : residual_rows<true, false>)
                              : (bias ? residual_rows<false, true> : residual_rows<false, false>);
    rows(pool, T, H, x, out, bias, drop, gamma, beta, eps, sum, y, mean, inverse);
}

void embedding_layer_norm(Pool &pool, int64_t T, int64_t H, const int32_t *ids, const float *word,
                          const int32_t *positions, const float *position, const int32_t *segments,
                          const float *segment, const float *gamma, const float *beta, float eps, Drop drop,
                          float *sums, float *y, float *mean, float *inverse) {
    each_row(pool, T, H, [&](int64_t t) {
        if (t + 4 < T) {
            __builtin_prefetch(word + ids[t + 4] * H);
        }
        const float *a = word + ids[t] * H, *b = position + positions[t] * H, *c = segment + segments[t] * H;
        float *total = sums + t * H;
        vf totals[2] = {};
        each_pair<false>(H, {}, 0, [&](int half, int64_t i, int m, Kept) {
            vf value = load_some(a + i, m) + load_some(b + i, m) + load_some(c + i, m);
            store_some(total + i, value, m);
            totals[half] += value;
        });
        Norm norm{H, gamma, beta, eps, mean + t, inverse + t};
        float of_row = sum(totals[0] + totals[1]);
        if (drop.row_keys) {
            normalise<true>(norm, total, of_row, y + t * H, row_key(drop, t), drop);
        } else {
            normalise<false>(norm, total, of_row, y + t * H, {}, drop);
        }
    });
}

// With n = (x - mean) r, r = inverse, and g = dy gamma the gradient of n. Mean and variance both depend on x: the
// first takes out the mean of g, the second the part of g along n:
//   dx = r (g - mean(g) - n mean(g n)),   dgamma = sum over t of dy n,   dbeta = sum over t of dy
// Rows come in parts that the shapes alone decide on; each part sums by itself, and then parts are added in order.
namespace {

enum Sums { kGamma, kBeta, kBias, kSums };

// drops_in: dy is that of dropout(y). drops_out: dout = dropout(dx) too. biased: its sums as well.
template <bool drops_in, bool drops_out, bool biased>
void backward_rows(Pool &pool, int64_t T, int64_t H, const float *dy, const float *x, const float *mean,
                   const float *inverse, const float *gamma, const Drop &drop, float *dx, float *dout,
                   float *const (&totals)[kSums], bool add) {
    int64_t rows = larger(larger(16, smaller(64, T / 16)), parts(T, 128)), count = parts(T, rows);
    constexpr int n_sums = biased ? kSums : kBias;
    auto *partial = static_cast<float *>(scratch(Slot::sums, sizeof(float) * (size_t)(n_sums * count * H)));
    pool.run(count, [&](int64_t part) {
        float *dgamma = partial + part * H, *dbeta = dgamma + count * H, *dbias = dbeta + count * H;
        for (int i = 0; i < n_sums; ++i) {
            for (int64_t c = 0; c < H; ++c) {
                dgamma[i * count * H + c] = 0;
            }
        }
        for (int64_t t = part * rows, end = smaller(T, t + rows); t < end; ++t) {
            Key key = drops_in || drops_out ? row_key(drop, t) : Key{};
            const float *d = dy + t * H, *from = x + t * H;
            float *to = dx + t * H, centre = mean[t], r = inverse[t];
            vf along[2] = {}, level[2] = {};
            each_pair<drops_in>(H, key, drop.threshold, [&](int half, int64_t c, int m, Kept kept) {
                __builtin_prefetch(d + 2 * H + c);
                __builtin_prefetch(from + 2 * H + c);
                vf v = load_some(d + c, m);
                if (drops_in) {
                    v = only(kept, v, drop.scale);
                    store_some(to + c, v, m);
                }
                vf n = (load_some(from + c, m) - centre) * r, g = v * load_some(gamma + c, m);
                level[half] += g;
                along[half] += g * n;
                store_some(dgamma + c, load_some(dgamma + c, m) + v * n, m);
                store_some(dbeta + c, load_some(dbeta + c, m) + v, m);
            });
            float mean_g = sum(level[0] + level[1]) / (float)H, mean_gn = sum(along[0] + along[1]) / (float)H;
            if (drops_in) {
                d = to;
            }
            each_pair<drops_out>(H, key, drop.threshold, [&](int, int64_t c, int m, Kept kept) {
                vf n = (load_some(from + c, m) - centre) * r,
                   g = load_some(d + c, m) * load_some(gamma + c, m);
                vf v = (g - mean_g - n * mean_gn) * r;
                store_some(to + c, v, m);
                if (drops_out) {
                    v = only(kept, v, drop.scale);
                    store_some(dout + t * H + c, v, m);
                }
                if (biased) {
                    store_some(dbias + c, load_some(dbias + c, m) + v, m);
                }
            });
        }
    });
    for (int i = 0; i < n_sums; ++i) {
        add_partial_sums(pool, count, H, partial + i * count * H, totals[i], add);
    }
}

} // namespace

void layer_norm_backward(Pool &pool, int64_t T, int64_t H, const float *dy, const float *x, const float *mean,
                         const float *inverse, const float *gamma, float *dx, float *dgamma, float *dbeta,
                         bool add) {
    backward_rows<false, false, false>(pool, T, H, dy, x, mean, inverse, gamma, {}, dx, nullptr,
                                       {dgamma, dbeta, nullptr}, add);
}

void dropout_residual_layer_norm_backward(Pool &pool, int64_t T, int64_t H, const float *dy, const float *sum,
                                          const float *mean, const float *inverse, const float *gamma,
                                          Drop drop, float *dsum, float *dout, float *dgamma, float *dbeta,
                                          float *dbias, bool add) {
    auto rows = drop.row_keys
                    ? (dbias ? backward_rows<false, true, true> : backward_rows<false, true, false>)
                    : (dbias ? backward_rows<false, false, true> : backward_rows<false, false, false>);
    rows(pool, T, H, dy, sum, mean, inverse, gamma, drop, dsum, dout, {dgamma, dbeta, dbias}, add);
}

void embedding_layer_norm_backward(Pool &pool, int64_t T, int64_t H, const float *dy, const float *sum,
                                   const float *mean, const float *inverse, const float *gamma, Drop drop,
                                   float *dsum, float *dgamma, float *dbeta, bool add) {
    auto rows = drop.row_keys ? backward_rows<true, false, false> : backward_rows<false, false, false>;
    rows(pool, T, H, dy, sum, mean, inverse, gamma, drop, dsum, nullptr, {dgamma, dbeta, nullptr}, add);
}

// nll = log(sum of e^(x - m)) - (x[label] - m) with m the largest x
void softmax_cross_entropy(Pool &pool, int64_t N, int64_t K, float *logits, int64_t ld, const int32_t *labels,
                           float *nll, int32_t *best) {
    constexpr int64_t kBlock = 64 * VL; // whose sum is a float; sums of blocks are added in double precision
    const vf nothing = all(-__builtin_inff());
    each_row(pool, N, K, [&](int64_t row) {
        float *x = logits + row * ld;
        // The largest, and the block that it is in, which is searched afterwards.
        float top = -__builtin_inff();
        int64_t found = 0;
        for (int64_t c = 0; c < K; c += kBlock) {
            vf largest[2] = {nothing, nothing};
            each_pair<false>(smaller(kBlock, K - c), {}, 0, [&](int half, int64_t i, int m, Kept) {
                vf v = load_some(x + c + i, m);
                largest[half] = max(largest[half], m < VL ? first(m, v, nothing) : v);
            });
            float here = max(max(largest[0], largest[1]));
            if (here > top) {
                top = here, found = c;
            }
        }
        for (int64_t c = found; c < smaller(K, found + kBlock); ++c) {
            if (x[c] == top) {
                found = c;
                break;
            }
        }
        best[row] = (int32_t)found;
        float shifted = x[labels[row]] - top;
        double total = 0;
        for (int64_t c = 0; c < K; c += kBlock) {
            vf sums[2] = {};
            each_pair<false>(smaller(kBlock, K - c), {}, 0, [&](int half, int64_t i, int m, Kept) {
                vf v = exp(load_some(x + c + i, m) - top);
                store_some(x + c + i, v, m);
                sums[half] += m < VL ? first(m, v, vf{}) : v;
            });
            total += (double)sum(sums[0] + sums[1]);
        }
        nll[row] = (float)(::log(total) - (double)shifted);
        float inverse = (float)(1 / total);
        each_vector(0, K, [&](int64_t c, int m) { store_some(x + c, load_some(x + c, m) * inverse, m); });
    });
}

// d nll / d logits = softmax - one-hot(label)
void softmax_cross_entropy_backward(Pool &pool, int64_t N, int64_t K, float *probabilities, int64_t ld,
                                    const int32_t *labels, const float *dnll) {
    each_row(pool, N, K, [&](int64_t row) {
        float *p = probabilities + row * ld, d = dnll[row];
        p[labels[row]] -= 1;
        each_vector(0, K, [&](int64_t c, int m) { store_some(p + c, load_some(p + c, m) * d, m); });
    });
}

bool in_range(int64_t n, const int32_t *ids, int64_t limit) {
    bool all_are = true;
    for (int64_t i = 0; i < n; ++i) {
        all_are &= (int64_t)(uint32_t)ids[i] < limit;
    }
    return all_are;
}

void gather(Pool &pool, int64_t T, int64_t H, const int32_t *ids, const float *table, float *out) {
    each_row(pool, T, H,
             [&](int64_t t) { std::memcpy(out + t * H, table + ids[t] * H, sizeof(float) * (size_t)H); });
}

// Every thread has columns of its own and takes the rows in order, so that no sum depends on who is first.
void scatter_add(Pool &pool, int64_t T, int64_t H, const int32_t *ids, const float *rows, float *table) {
    int64_t width = larger(32, parts(parts(H, pool.threads()), 16) * 16);
    each_piece(pool, H, width, [&](int64_t begin, int64_t end) {
        for (int64_t t = 0; t < T; ++t) {
            if (t + 4 < T) {
                __builtin_prefetch(table + ids[t + 4] * H + begin, 1);
            }
            const float *from = rows + t * H;
            float *to = table + ids[t] * H;
            each_vector(begin, end, [&](int64_t c, int m) {
                store_some(to + c, load_some(to + c, m) + load_some(from + c, m), m);
            });
        }
    });
}

} // namespace MB_ISA
} // namespace mb
