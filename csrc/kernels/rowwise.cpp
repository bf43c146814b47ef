#include "rowwise.h"

#include "elementary.h"
#include "loops.h"
#include "memory.h"

namespace mb {
namespace MB_ISA {
namespace {

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
    GeluParts parts = gelu_parts_of<float, tanh_form>(x);
    return parts.cdf + x * parts.slope;
}

} // namespace

void gelu(Pool &pool, int64_t n, const float *x, float *y, bool tanh_form) {
    tanh_form ? map(pool, n, x, y, [](vf v) { return v * gelu_parts_of<float, true>(v).cdf; })
              : map(pool, n, x, y, [](vf v) { return v * gelu_parts_of<float, false>(v).cdf; });
}

void gelu_backward(Pool &pool, int64_t n, const float *dy, const float *x, float *dx, bool tanh_form) {
    tanh_form ? map(pool, n, dy, x, dx, [](vf d, vf v) { return d * gelu_slope_of<true>(v); })
              : map(pool, n, dy, x, dx, [](vf d, vf v) { return d * gelu_slope_of<false>(v); });
}

void tanh(Pool &pool, int64_t n, const float *x, float *y) {
    map(pool, n, x, y, [](vf v) { return tanh(v); });
}

void tanh_backward(Pool &pool, int64_t n, const float *dy, const float *y, float *dx) {
    map(pool, n, dy, y, dx, [](vf d, vf v) { return d * (1.0f - v * v); });
}

void dropout(Pool &pool, int64_t T, int64_t N, const float *x, float *y, Drop drop) {
    each_row(pool, T, N, [&](int64_t t) {
        const float *from = x + t * N;
        float *to = y + t * N, scale = drop.scale;
        each_pair<true>(N, row_key(drop, t), drop.threshold, [=](int, int64_t c, int m, Kept kept) {
            store_some(to + c, only(kept, load_some(from + c, m), scale), m);
        });
    });
}

namespace {

constexpr int64_t kStrip = 1 << 15; // columns whose sums stay in L2

// sums (n,) += R rows
template <int R, typename X>
void add_rows(int64_t n, const X *x, int64_t ld, const float *weights, float *sums) {
    each_vector(0, n, [&](int64_t c, int m) {
        vf total = load_some(sums + c, m);
        for (int i = 0; i < R; ++i) {
            total += load_some(x + i * ld + c, m) * (weights ? weights[i] : 1.0f);
        }
        store_some(sums + c, total, m);
    });
}

// sums (n,) = sum of `count` rows. Short rows one by one, as memory is read ahead along a page; of long rows
// eight together, which have a page each, so that the sums are less often fetched from L2.
template <typename X>
void sum_rows(int64_t count, int64_t n, const X *x, int64_t ld, const float *weights, float *sums) {
    for (int64_t c = 0; c < n; ++c) {
        sums[c] = 0;
    }
    for (int64_t t = 0; t < count;) {
        bool many = n > 4096 && t + 8 <= count;
        (many ? add_rows<8, X> : add_rows<1, X>)(n, x + t * ld, ld, weights ? weights + t : nullptr, sums);
        t += many ? 8 : 1;
    }
}

} // namespace

template <typename X>
void column_sums(Pool &pool, int64_t T, int64_t N, const X *x, int64_t ld, const float *weights, float *sums,
                 bool add) {
    int64_t rows = larger(64, parts(T, 16)), n_rows = parts(T, rows), n_strips = parts(N, kStrip);
    auto *partial = scratch<float>(Slot::sums, n_rows * N);
    pool.run(n_rows * n_strips, [&](int64_t part) {
        int64_t t = part / n_strips * rows, c = part % n_strips * kStrip;
        sum_rows(smaller(rows, T - t), smaller(kStrip, N - c), x + t * ld + c, ld,
                 weights ? weights + t : nullptr, partial + part / n_strips * N + c);
    });
    add_partial_sums(pool, n_rows, N, partial, sums, add);
}

template decltype(column_sums<float>) column_sums<float>;
template decltype(column_sums<bf16>) column_sums<bf16>;

void scale_rows(Pool &pool, int64_t T, int64_t N, float *x, int64_t ld, const float *weights) {
    each_row(pool, T, N, [&](int64_t t) {
        float *row = x + t * ld, weight = weights[t];
        each_vector(0, N, [&](int64_t c, int m) { store_some(row + c, load_some(row + c, m) * weight, m); });
    });
}

template <typename X>
void gather(Pool &pool, int64_t T, int64_t H, const int32_t *ids, const X *table, float *out) {
    each_row(pool, T, H, [&](int64_t t) {
        const X *from = table + ids[t] * H;
        float *to = out + t * H;
        each_vector(0, H, [&](int64_t c, int m) { store_some(to + c, load_some(from + c, m), m); });
    });
}

template decltype(gather<float>) gather<float>;
template decltype(gather<bf16>) gather<bf16>;

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
