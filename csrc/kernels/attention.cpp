#include "attention_blocks.h"

namespace mb {
namespace MB_ISA {
namespace {

// s (keys,width) -> highest (width), the maximum so far; four at once, since one alone waits for itself.
void raise_maxima(const Block &block, const float *s, float *highest) {
    constexpr int kAtOnce = 4;
    for (int64_t c = 0; c < block.width; c += VL) {
        vf top = load(highest + c), tops[kAtOnce] = {top, top, top, top};
        auto raise = [&](int64_t r, vf &here) {
            vf x = load(s + r * block.width + c);
            here = max(block.diagonal ? select(sees(block.i + c, block.j + r), x, here) : x, here);
        };
        int64_t r = 0;
        for (; r + kAtOnce <= block.keys; r += kAtOnce) {
            for (int i = 0; i < kAtOnce; ++i) {
                raise(r + i, tops[i]);
            }
        }
        for (; r < block.keys; ++r) {
            raise(r, tops[0]);
        }
        store(highest + c, max(max(tops[0], tops[1]), max(tops[2], tops[3])));
    }
}

// s (keys,width) -> p = exp(s - highest), 0 where dropped or hidden; sums (width) grow by what was there before dropout.
template <typename E, bool dropout, bool diagonal>
void exponentiate(const Block &block, const float *s, E *p, float root, const float *highest, float *sums,
                  const PanelKeys &keys, uint32_t threshold) {
    for (int64_t c = 0; c < block.width; c += VL) {
        Exponential<E> of_score(load(highest + c), root);
        vf sum = {};
        each_two_keys<dropout>(block, c, keys, [&](int64_t r, bool two, vu draws) {
            auto probability = [&](int64_t row) {
                vf one = of_score(load(s + row * block.width + c));
                if (diagonal) {
                    one = masked(sees(block.i + c, block.j + row), one);
                }
                sum += one;
                return one;
            };
            vf even = probability(r), odd = two ? probability(r + 1) : vf{};
            if (dropout) {
                put_kept_keys(p, block, r, c, two, even, odd, draws, threshold);
            } else {
                put_keys(p, block, r, c, two, even, odd);
            }
        });
        store(sums + c, load(sums + c) + sum);
    }
}

template <typename X> struct Forward : Problem<X> {
    using typename Problem<X>::E;
    using Problem<X>::A, Problem<X>::D, Problem<X>::drop, Problem<X>::begins, Problem<X>::asks;
    using Problem<X>::width, Problem<X>::depth, Problem<X>::root, Problem<X>::rows, Problem<X>::block;
    ConstHeads<X> q, k, v;
    Heads<X> y;
    float *softmax;

    // Long sequences get narrower panels, so that a panel of scores stays in L2.
    static int64_t panel(int64_t n) { return n <= 1024 ? 64 : n <= 2048 ? 32 : 16; }

    // One share of the panels of one head of one sequence.
    void head(int64_t sequence, int64_t a, int64_t share, int64_t shares) const {
        int64_t begin = begins[sequence], n = begins[sequence + 1] - begin;
        int64_t first = asks[sequence], asking = asks[sequence + 1] - first;
        int64_t panels = parts(asking, panel(n)), p = panels * share / shares,
                last = panels * (share + 1) / shares;
        if (p == last) {
            return;
        }
        int64_t left = left_space<X>(n, D), right = right_space<X>(n, D);
        int64_t of_scores = panel(n) * filled<E>(n);
        int64_t filled_left = filled_space<E>(n, depth()), of_turned = kQueries * filled<E>(depth());
        Space space(of_turned + kQueries * width() + kQueries * kKeys + of_scores + 2 * left + filled_left +
                    right + left_space<X>(kQueries, D));
        auto *turned = reinterpret_cast<E *>(space.take(of_turned));
        float *out = space.take(kQueries * width()), *scores = space.take(of_scores);
        Rows<E> keys = filled_rows(left_side(rows(k, begin, a), n, D, space.take(left)), n, depth(),
                                   space.take(filled_left));
        Rows<E> values = right_side(rows(v, begin, a), left_side(rows(v, begin, a), n, D, space.take(left)),
                                    n, D, space.take(right));
        float *of_panel = space.take(left_space<X>(kQueries, D)), *rounded = space.take(kQueries * kKeys);
        for (; p < last; ++p) {
            int64_t i = p * panel(n), queries = std::min(panel(n), asking - i);
            float *kept = softmax + 2 * ((first + i) * A + a);
            PanelKeys bits;
            this->draw_keys(first + i, queries, a, bits);
            turn_rows(left_side(rows(q, first + i, a), queries, D, of_panel), queries, depth(), root(),
                      turned, whole(queries, VL));
            one_panel(i, queries, this->visible(i, queries, n), turned, keys, values, bits, scores,
                      reinterpret_cast<E *>(rounded), {out, width()}, rows(y, first + i, a), kept);
        }
    }

    // turned (D,width), q^T / sqrt(D)  keys values (end,D) -> y (queries,D), kept (queries,2) with rows 2 A apart; in sums
    // (queries,width) is y before it is divided
    void one_panel(int64_t i, int64_t queries, int64_t end, const E *turned, Rows<E> keys, Rows<E> values,
                   const PanelKeys &bits, float *scores, E *rounded, OutRows<float> sums, OutRows<X> y,
                   float *kept) const {
        constexpr decltype(&exponentiate<E, false, false>) forms[2][2] = {
            {exponentiate<E, false, false>, exponentiate<E, false, true>},
            {exponentiate<E, true, false>, exponentiate<E, true, true>}};
        alignas(64) float highest[kQueries], totals[kQueries];
        int64_t columns = whole(queries, VL);
        std::fill(highest, highest + columns, -__builtin_inff());
        std::fill(totals, totals + columns, 0.0f);
        for (int64_t j = 0; j < end; j += kKeys) {
            Block b = block(i, queries, j, end);
            OutRows<float> s{scores + j * columns, columns};
            product(b.keys, columns, depth(), keys.from(j), {turned, columns}, s);
            raise_maxima(b, s.data, highest);
        }
        for (int64_t c = 0; kTogether<E> == 2 && c < columns; c += VL) {
            store(highest + c, load(highest + c) * root());
        }
        for (int64_t j = 0; j < end; j += kKeys) {
            Block b = block(i, queries, j, end);
            float *s = scores + j * columns;
            E *p = rounded;
            if constexpr (kTogether<E> == 1) {
                p = s;
            }
            forms[drop.row_keys != nullptr][b.diagonal](b, s, p, root(), highest, totals, bits,
                                                        drop.threshold);
            fill_keys(p, b);
            product<true>(queries, width(), parts(b.keys, kTogether<E>), Rows<E>{p, columns},
                          values.from(j / kTogether<E>), sums, j > 0);
        }
        for (int64_t r = 0; r < queries; ++r, kept += 2 * A) {
            kept[0] = highest[r], kept[1] = 1 / totals[r];
            float share = drop.row_keys ? kept[1] * drop.scale : kept[1];
            const float *from = sums.data + r * sums.stride;
            X *to = y.data + r * y.stride;
            each_vector(0, D, [&](int64_t d, int m) { store_some(to + d, load(from + d) * share, m); });
        }
    }
};

} // namespace

template <typename X>
void attention(Pool &pool, int64_t S, const int32_t *cu_seqlens, const int32_t *queries, int64_t A, int64_t D,
               ConstHeads<X> q, ConstHeads<X> k, ConstHeads<X> v, bool causal, const Drop &drop, Heads<X> y,
               float *softmax) {
    Forward<X> forward{{cu_seqlens, queries, A, D, causal, drop}, q, k, v, y, softmax};
    // Where heads are too few for all threads to be busy to the end, their panels are shared out as well.
    int64_t heads = S * A, shares = heads > 0 && pool.threads() > 1 ? parts(4 * pool.threads(), heads) : 1;
    forward.each_head(pool, heads * shares, [&](int64_t part) {
        if (shares == 1) {
            forward.ask_for(part + 1, heads, cu_seqlens, k, v);
            forward.ask_for(part + 1, heads, queries, q, y);
        }
        forward.head(part / shares / A, part / shares % A, part % shares, shares);
    });
}

template decltype(attention<float>) attention<float>;
template decltype(attention<bf16>) attention<bf16>;

} // namespace MB_ISA
} // namespace mb
