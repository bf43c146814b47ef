#include "loops.h"
#include "memory.h"
#include "rowwise.h"

namespace mb {
namespace MB_ISA {
namespace {

struct Norm {
    int64_t H;
    const float *gamma, *beta;
    float eps;
    float *mean, *inverse; // of this row
};

// Whether rows of X are rounded: then what is made of them is made of their floats, in memory of the thread's own.
template <typename X> constexpr bool kRounds = sizeof(X) < sizeof(float);

MB_INLINE float *floats_of(float *row, int64_t) { return row; }
MB_INLINE float *floats_of(bf16 *, int64_t H) { return scratch<float>(Slot::scratch, H); }

// y (H,) = dropout(gamma (x - mean) inverse + beta) of a row whose sum is known
template <bool drops, typename X>
MB_INLINE void normalise(const Norm &norm, const float *x, float sum_of_row, X *y, Key key,
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
template <typename X, bool drops>
void residual_rows(Pool &pool, int64_t T, int64_t H, const X *x, const float *out, const float *bias,
                   const Drop &drop, const float *gamma, const float *beta, float eps, X *sums, X *y,
                   float *mean, float *inverse) {
    each_row(pool, T, H, [&](int64_t t) {
        Key key = drops ? row_key(drop, t) : Key{};
        const X *past = x + t * H;
        const float *through = out + t * H;
        X *kept_sums = sums + t * H;
        float *both = floats_of(kept_sums, H);
        vf totals[2] = {};
        each_pair<drops>(H, key, drop.threshold, [&](int half, int64_t c, int m, Kept kept) {
            vf value = load_some(through + c, m) + load_some(bias + c, m);
            if (drops) {
                value = only(kept, value, drop.scale);
            }
            value += load_some(past + c, m);
            store_some(both + c, value, m);
            if (kRounds<X>) {
                store_some(kept_sums + c, value, m);
            }
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

template <typename X>
void dropout_residual_layer_norm(Pool &pool, int64_t T, int64_t H, const X *x, const float *out,
                                 const float *bias, Drop drop, const float *gamma, const float *beta,
                                 float eps, X *sum, X *y, float *mean, float *inverse) {
    auto rows = drop.row_keys ? residual_rows<X, true> : residual_rows<X, false>;
    rows(pool, T, H, x, out, bias, drop, gamma, beta, eps, sum, y, mean, inverse);
}

template <typename X>
void embedding_layer_norm(Pool &pool, int64_t T, int64_t H, const int32_t *ids, const float *word,
                          const int32_t *positions, const float *position, const int32_t *segments,
                          const float *segment, const float *gamma, const float *beta, float eps, Drop drop,
                          X *sums, X *y, float *mean, float *inverse) {
    each_row(pool, T, H, [&](int64_t t) {
        if (t + 4 < T) {
            __builtin_prefetch(word + ids[t + 4] * H); // rows of the table are anywhere in memory
        }
        const float *a = word + ids[t] * H, *b = position + positions[t] * H, *c = segment + segments[t] * H;
        X *kept_sums = sums + t * H;
        float *total = floats_of(kept_sums, H);
        vf totals[2] = {};
        each_pair<false>(H, {}, 0, [&](int half, int64_t i, int m, Kept) {
            vf value = load_some(a + i, m) + load_some(b + i, m) + load_some(c + i, m);
            store_some(total + i, value, m);
            if (kRounds<X>) {
                store_some(kept_sums + i, value, m);
            }
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

// With n = (x - mean) r, r = inverse, and g = dy gamma the gradient of n. Mean and variance both depend on x:
// the first takes out the mean of g, the second the part of g along n:
//   dx = r (g - mean(g) - n mean(g n)),   dgamma = sum over t of dy n,   dbeta = sum over t of dy
// Rows come in parts that the shapes alone decide on; each part sums by itself, then they are added in order.
namespace {

enum Sums { kGamma, kBeta, kBias, kSums };

// drops_in: dy is that of dropout(y). drops_out: dout = dropout(dx), else dx; null: not wanted. biased: its sums
// as well.
template <typename X, bool drops_in, bool drops_out, bool biased>
void backward_rows(Pool &pool, int64_t T, int64_t H, const float *dy, const X *x, const float *mean,
                   const float *inverse, const float *gamma, const Drop &drop, float *dx, X *dout,
                   float *const (&totals)[kSums], bool add) {
    int64_t rows = larger(larger(16, smaller(64, T / 16)), parts(T, 128)), count = parts(T, rows);
    constexpr int n_sums = biased ? kSums : kBias;
    auto *partial = scratch<float>(Slot::sums, n_sums * count * H);
    pool.run(count, [&](int64_t part) {
        float *dgamma = partial + part * H, *dbeta = dgamma + count * H, *dbias = dbeta + count * H;
        for (int i = 0; i < n_sums; ++i) {
            for (int64_t c = 0; c < H; ++c) {
                dgamma[i * count * H + c] = 0;
            }
        }
        for (int64_t t = part * rows, end = smaller(T, t + rows); t < end; ++t) {
            Key key = drops_in || drops_out ? row_key(drop, t) : Key{};
            const float *d = dy + t * H;
            const X *from = x + t * H;
            float *to = dx + t * H, centre = mean[t], r = inverse[t];
            vf along[2] = {}, level[2] = {};
            each_pair<drops_in>(H, key, drop.threshold, [&](int half, int64_t c, int m, Kept kept) {
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
                }
                if (drops_out || dout) {
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
    backward_rows<float, false, false, false>(pool, T, H, dy, x, mean, inverse, gamma, {}, dx, nullptr,
                                              {dgamma, dbeta, nullptr}, add);
}

template <typename X>
void dropout_residual_layer_norm_backward(Pool &pool, int64_t T, int64_t H, const float *dy, const X *sum,
                                          const float *mean, const float *inverse, const float *gamma,
                                          Drop drop, float *dsum, X *dout, float *dgamma, float *dbeta,
                                          float *dbias, bool add) {
    auto rows = drop.row_keys ? backward_rows<X, false, true, true> : backward_rows<X, false, false, true>;
    rows(pool, T, H, dy, sum, mean, inverse, gamma, drop, dsum, dout, {dgamma, dbeta, dbias}, add);
}

template <typename X>
void embedding_layer_norm_backward(Pool &pool, int64_t T, int64_t H, const float *dy, const X *sum,
                                   const float *mean, const float *inverse, const float *gamma, Drop drop,
                                   float *dsum, float *dgamma, float *dbeta, bool add) {
    auto rows = drop.row_keys ? backward_rows<X, true, false, false> : backward_rows<X, false, false, false>;
    rows(pool, T, H, dy, sum, mean, inverse, gamma, drop, dsum, nullptr, {dgamma, dbeta, nullptr}, add);
}

template decltype(dropout_residual_layer_norm<float>) dropout_residual_layer_norm<float>;
template decltype(dropout_residual_layer_norm<bf16>) dropout_residual_layer_norm<bf16>;
template decltype(dropout_residual_layer_norm_backward<float>) dropout_residual_layer_norm_backward<float>;
template decltype(dropout_residual_layer_norm_backward<bf16>) dropout_residual_layer_norm_backward<bf16>;
template decltype(embedding_layer_norm<float>) embedding_layer_norm<float>;
template decltype(embedding_layer_norm<bf16>) embedding_layer_norm<bf16>;
template decltype(embedding_layer_norm_backward<float>) embedding_layer_norm_backward<float>;
template decltype(embedding_layer_norm_backward<bf16>) embedding_layer_norm_backward<bf16>;

} // namespace MB_ISA
} // namespace mb
