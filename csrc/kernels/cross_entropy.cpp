#include "cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "elementary.h"
#include "loops.h"
#include "memory.h"

namespace mb {
namespace MB_ISA {
namespace {

constexpr float kLeast = -__builtin_inff();

// The state between the two passes over N rows of K logits.
struct Softmax {
    int64_t K, n_strips;
    const int32_t *labels;
    float *nll;
    int32_t *best;
    // What the strips of a row leave behind, beside e^(x - top): (N,n_strips) the largest x, and the sum of what is not
    // the label's; the column of the largest; (N,) the logits of the labels.
    float *tops, *sums;
    int32_t *firsts;
    float *own;

    Softmax(int64_t N, int64_t K, const int32_t *labels, float *nll, int32_t *best)
        : K(K), n_strips(parts(K, kStrip)), labels(labels), nll(nll), best(best) {
        int64_t count = N * n_strips;
        tops = scratch<float>(Slot::sums, 3 * count + N);
        sums = tops + count, own = sums + count;
        firsts = reinterpret_cast<int32_t *>(own + N);
    }

    // Columns [j, j_end) of a row, at most kStrip of them: e (..) = e^(x - top), which may lie where x (..) does; x is
    // used up. `bias` belongs to these columns, or is null.
    //
    // The label is left out of the sum and added last. Where nearly all of the probability is its own, top is x[label]:
    // what the others sum to is what matters, and 1 + that would round it away.
    template <typename G>
    void first_pass(int64_t row, int64_t j, int64_t j_end, float *x, const float *bias, G *e) const {
        vf largest[2] = {all(kLeast), all(kLeast)};
        int64_t n = j_end - j, label = labels[row] - j;
        each_pair<false>(n, {}, 0, [&](int half, int64_t c, int m, Kept) {
            vf v = load_some(x + c, m);
            if (bias) {
                v += load_some(bias + c, m);
                store_some(x + c, v, m);
            }
            largest[half] = max(largest[half], m < VL ? first(m, v, all(kLeast)) : v);
        });
        float top = max(max(largest[0], largest[1]));
        int32_t where = INT32_MAX;
        if (0 <= label && label < n) {
            own[row] = x[label];
            where = x[label] == top ? (int32_t)label : where;
            x[label] = kLeast;
        }
        float shift = top > kLeast ? top : 0; // a strip may have nothing but minus infinity
        vf total[2] = {};
        vi columns[2] = {lanes(), lanes() + VL}, found[2] = {vi{} + where, vi{} + where};
        each_pair<false>(n, {}, 0, [&](int half, int64_t c, int m, Kept) {
            vf v = load_some(x + c, m), power = exp(v - shift);
            store_some(e + c, power, m);
            total[half] += m < VL ? first(m, power, vf{}) : power;
            vi here = m < VL ? select(lanes() < m, columns[half], vi{} + INT32_MAX) : columns[half];
            found[half] = select((v == top) & (here < found[half]), here, found[half]);
            columns[half] += 2 * VL;
        });
        where = min(select(found[1] < found[0], found[1], found[0]));
        int64_t strip = row * n_strips + j / kStrip;
        tops[strip] = top, sums[strip] = sum(total[0] + total[1]);
        firsts[strip] = (int32_t)j + (where < n ? where : 0);
    }

    // nll and best of a row; what the first pass left in e (K,) becomes the gradient. With `most` the largest logit x,
    // `label` = e^(x[label] - most), and `others` the sum of e^(x - most) over all other columns:
    //   nll = log(others + label) - (x[label] - most),   gradient = softmax - one-hot(label),
    // which is -others / (others + label) at the label. Where `label` is near 1, log1p keeps the digits of `others`.
    template <typename G> void second_pass(int64_t row, G *e) const {
        float *scales = tops + row * n_strips;
        int64_t highest = std::max_element(scales, scales + n_strips) - scales;
        float most = scales[highest];
        best[row] = firsts[row * n_strips + highest];
        each_vector(0, n_strips, [&](int64_t s, int m) { // e^(x - most) = e^(x - top) times this
            store_some(scales + s, exp(load_some(scales + s, m) - most), m);
        });
        double others = 0, shifted = (double)own[row] - (double)most, label = ::exp(shifted);
        for (int64_t s = 0; s < n_strips; ++s) {
            others += (double)sums[row * n_strips + s] * (double)scales[s];
        }
        double total = others + label;
        nll[row] = (float)(::log1p(others + (label - 1)) - shifted);
        float inverse = (float)(1 / total);
        for (int64_t s = 0; s < n_strips; ++s) {
            float factor = scales[s] * inverse;
            each_vector(s * kStrip, smaller(K, (s + 1) * kStrip),
                        [&](int64_t c, int m) { store_some(e + c, load_some(e + c, m) * factor, m); });
        }
        store(e + labels[row], all((float)(-others / total)), 1);
    }
};

// A strip of logits as it comes out of the product.
template <typename G> struct FirstPass {
    const Softmax *softmax;
    const float *bias;
    G *gradient;
    int64_t ldg;

    static void finish(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end, float *sums,
                       int64_t ld) {
        auto &s = *static_cast<const FirstPass *>(self);
        for (int64_t row = i; row < i_end; ++row) {
            s.softmax->first_pass(row, j, j_end, sums + (row - i) * ld, s.bias + j,
                                  s.gradient + row * s.ldg + j);
        }
    }
};

} // namespace

void softmax_cross_entropy(Pool &pool, int64_t N, int64_t K, float *logits, int64_t ld, const int32_t *labels,
                           float *nll, int32_t *best) {
    Softmax softmax(N, K, labels, nll, best);
    each_row(pool, N, K, [&](int64_t row) {
        float *x = logits + row * ld;
        for (int64_t j = 0; j < K; j += kStrip) {
            softmax.first_pass(row, j, smaller(K, j + kStrip), x + j, nullptr, x + j);
        }
        softmax.second_pass(row, x);
    });
}

template <typename G>
void linear_softmax_cross_entropy(Pool &pool, int64_t M, int64_t N, int64_t K, View x, View weight,
                                  const float *bias, const int32_t *labels, G *gradient, int64_t ldg,
                                  float *nll, int32_t *best, bool narrow) {
    Softmax softmax(M, N, labels, nll, best);
    FirstPass<G> behind{&softmax, bias, gradient, ldg};
    gemm(pool, M, N, K, x, weight, place_for_sums(gradient), ldg, false, {behind.finish, &behind}, narrow);
    each_row(pool, M, N, [&](int64_t row) { softmax.second_pass(row, gradient + row * ldg); });
}

template decltype(linear_softmax_cross_entropy<float>) linear_softmax_cross_entropy<float>;
template decltype(linear_softmax_cross_entropy<bf16>) linear_softmax_cross_entropy<bf16>;

} // namespace MB_ISA
} // namespace mb
