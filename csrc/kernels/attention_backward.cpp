#include "attention_blocks.h"

// With s = q k^T / sqrt(D), p = softmax(s), m the dropout multipliers and y = (p m) v:
//   dv = (p m)^T dy,  dp = (dy v^T) m,  ds = p (dp - delta),  delta_i = sum_j dp_ij p_ij,
//   dq = ds k / sqrt(D),  dk = ds^T q / sqrt(D)
// delta needs no probabilities: sum_j dp_ij p_ij = sum_j sum_d dy_id v_jd m_ij p_ij = sum_d dy_id y_id.
// Blocks are turned here as well: s^T, p^T, dp^T and ds^T, all (keys, queries).

namespace mb {
namespace MB_ISA {
namespace {

// What backward knows of each query of a panel.
struct Statistics {
    alignas(64) float highest[kQueries], inverse[kQueries], delta[kQueries];
};

// Where the blocks of backward go as the left sides of its products: over queries as they lie, over keys turned. Floats
// stay where s and dp were.
template <typename E> struct Gradients {
    E *p, *ds, *ds_by_keys;
};

// p and ds of rows r and r + 1 of a block, to where they belong.
MB_INLINE void put(const Gradients<float> &to, const Block &block, int64_t r, int64_t c, bool two,
                   const vf *p, const vf *ds) {
    put_keys(to.p, block, r, c, two, p[0], p[1]);
    put_keys(to.ds, block, r, c, two, ds[0], ds[1]);
}
#if defined(__AVX512BF16__)
// Two rows of numbers, one after the other in x, as the left side of a product over queries.
MB_INLINE void put_queries(Pair *to, const Block &block, int64_t r, int64_t c, bool two, __m512i x) {
    int64_t stride = filled<Pair>(block.width / 2);
    Pair *row = to + r * stride + c / 2;
#if __has_builtin(__builtin_shufflevector)
    auto first = __builtin_shufflevector(x, x, 0, 1, 2, 3),
         second = __builtin_shufflevector(x, x, 4, 5, 6, 7);
#else // GCC before 12, which, unlike 12, has no warnings for these
    __m256i first = _mm512_castsi512_si256(x), second = _mm512_extracti64x4_epi64(x, 1);
#endif
    std::memcpy(row, &first, sizeof first);
    if (two) {
        std::memcpy(row + stride, &second, sizeof second);
    }
}
MB_INLINE void put(const Gradients<Pair> &to, const Block &block, int64_t r, int64_t c, bool two, const vf *p,
                   const vf *ds) {
    __m512i both = rounded(ds[0], ds[1]);
    store(to.ds_by_keys + r / 2 * block.width + c, paired(both));
    put_queries(to.ds, block, r, c, two, both);
    put_queries(to.p, block, r, c, two, rounded(p[0], p[1]));
}
#endif

// What a product over queries takes of a block beyond them is 0.
inline void fill_queries(float *, int64_t) {}
#if defined(__AVX512BF16__)
inline void fill_queries(Pair *to, int64_t columns) {
    int64_t pairs = columns / 2, stride = filled<Pair>(pairs);
    for (int64_t r = 0; pairs < stride && r < kKeys; ++r) {
        std::fill(to + r * stride + pairs, to + (r + 1) * stride, Pair{});
    }
}
#endif

// s dp (keys,width) -> p m, ds / sqrt(D)
template <typename E, bool dropout, bool diagonal>
void score_gradients(const Block &block, const float *s, const float *dp, const Gradients<E> &to,
                     const Statistics &of, float root, const PanelKeys &keys, const Drop &drop) {
    for (int64_t c = 0; c < block.width; c += VL) {
        Exponential<E> of_score(load(of.highest + c), root);
        vf inverse = load(of.inverse + c), share = inverse * (dropout ? drop.scale : 1);
        vf slope = share * root, shift = -load(of.delta + c) * (inverse * root);
        each_two_keys<dropout>(block, c, keys, [&](int64_t r, bool two, vu draws) {
            vf p[2] = {}, ds[2] = {};
            auto row = [&](int h, vi kept) {
                int64_t at = (r + h) * block.width + c;
                vf one = of_score(load(s + at)), d = load(dp + at);
                if (diagonal) {
                    vi seen = sees(block.i + c, block.j + r + h);
                    one = masked(seen, one), d = masked(seen, d);
                }
                vf factor = d * slope + shift;
                ds[h] = one * (dropout ? select(kept, factor, shift) : factor);
                p[h] = dropout ? masked(kept, one * share) : one * share;
            };
            row(0, keep_even(draws, drop.threshold));
            if (two) {
                row(1, keep_odd(draws, drop.threshold));
            }
            put(to, block, r, c, two, p, ds);
        });
    }
}

template <typename X> struct Backward : Problem<X> {
    using typename Problem<X>::E;
    using Problem<X>::A, Problem<X>::D, Problem<X>::causal, Problem<X>::drop, Problem<X>::begins,
        Problem<X>::asks;
    using Problem<X>::width, Problem<X>::depth, Problem<X>::in_place, Problem<X>::root, Problem<X>::rows,
        Problem<X>::block;
    ConstHeads<X> q, k, v, dy, y;
    const float *softmax;
    Heads<X> dq, dk, dv;

    // What a sweep over the blocks of a head covers, and what it computes of it.
    struct Sweep {
        int64_t i, i_end; // queries
        int64_t j, j_end; // keys
        bool queries, keys;
    };

    // One share of one head of one sequence. Shares compute scores twice, once for the gradients of their queries and
    // once for those of their keys; every sum has the same order as in one sweep.
    void head(int64_t sequence, int64_t a, int64_t share, int64_t shares) const {
        int64_t begin = begins[sequence], n = begins[sequence + 1] - begin;
        int64_t first = asks[sequence], asking = asks[sequence + 1] - first;
        // Whole panels; what is left of `count` belongs to the last share.
        auto border = [&](int64_t count, int64_t part) {
            return std::min(count, parts(count, kQueries) * part / shares * kQueries);
        };
        Sweep of_queries{border(asking, share), border(asking, share + 1), 0, n, true, shares == 1};
        Sweep of_keys{0, asking, border(n, share), border(n, share + 1), false, true};
        if (asking == 0) {
            unasked(begin + of_keys.j, begin + of_keys.j_end, a);
            return;
        }
        if (of_queries.i < of_queries.i_end) {
            sweep(begin, n, first, asking, a, of_queries);
        }
        if (shares > 1 && of_keys.j < of_keys.j_end) {
            sweep(begin, n, first, asking, a, of_keys);
        }
    }

    // Keys and values of a sequence in which nobody asks.
    void unasked(int64_t row, int64_t end, int64_t a) const {
        for (; row < end; ++row) {
            std::fill_n(rows(dk, row, a).data, D, X{});
            std::fill_n(rows(dv, row, a).data, D, X{});
        }
    }

    // n keys from row `begin` on, `asking` queries from row `first` of theirs on
    void sweep(int64_t begin, int64_t n, int64_t first, int64_t asking, int64_t a, Sweep over) const {
        constexpr decltype(&score_gradients<E, false, false>) forms[2][2] = {
            {score_gradients<E, false, false>, score_gradients<E, false, true>},
            {score_gradients<E, true, false>, score_gradients<E, true, true>}};
        constexpr int64_t kBlock = kKeys * kQueries;
        int64_t W = width(), sums = in_place() ? 0 : filled<E>(n) * W;
        int64_t most = std::max(n, asking), left = left_space<X>(most, D), right = right_space<X>(most, D);
        int64_t filled_left = filled_space<E>(n, depth()), of_turned = kQueries * filled<E>(depth());
        Space space(2 * of_turned + kQueries * W + 2 * filled_left + 4 * kBlock + 2 * sums + 4 * left +
                    3 * right);
        auto *turned_q = reinterpret_cast<E *>(space.take(of_turned));
        auto *turned_dy = reinterpret_cast<E *>(space.take(of_turned));
        float *s = space.take(kBlock), *dp = space.take(kBlock);
        Gradients<E> blocks;
        if constexpr (kTogether<E> == 1) {
            blocks = {s, dp, dp};
        } else {
            blocks.p = reinterpret_cast<E *>(space.take(kBlock / 2));
            blocks.ds = reinterpret_cast<E *>(space.take(kBlock / 2));
            blocks.ds_by_keys = reinterpret_cast<E *>(space.take(kBlock / 2));
        }
        auto on_left = [&](ConstHeads<X> x, int64_t row, int64_t count) {
            return left_side(rows(x, row, a), count, D, space.take(left));
        };
        auto on_right = [&](ConstHeads<X> x, Rows<E> other, int64_t row, int64_t count) {
            return right_side(rows(x, row, a), other, count, D, space.take(right));
        };
        Rows<E> left_q = on_left(q, first, asking), left_dy = on_left(dy, first, asking);
        Rows<E> left_k = on_left(k, begin, n), left_v = on_left(v, begin, n);
        Rows<E> right_q = on_right(q, left_q, first, asking), right_dy = on_right(dy, left_dy, first, asking);
        Rows<E> right_k = on_right(k, left_k, begin, n);
        Rows<E> filled_k = filled_rows(left_k, n, depth(), space.take(filled_left)),
                filled_v = filled_rows(left_v, n, depth(), space.take(filled_left));
        // Sums of x from a row on: in x itself, or in a place of their own.
        auto out = [&](Heads<X> x, int64_t row, float *place) {
            if constexpr (std::is_same_v<X, float>) {
                if (in_place()) {
                    return rows(x, row, a);
                }
            }
            return OutRows<float>{place, W};
        };
        OutRows<float> d_keys = out(dk, begin, space.take(sums)), d_values = out(dv, begin, space.take(sums));
        float *of_panel = space.take(kQueries * W);
        Statistics of;
        PanelKeys bits;

        for (int64_t i = over.i; i < over.i_end; i += kQueries) {
            int64_t count = std::min(kQueries, asking - i), columns = whole(count, VL);
            OutRows<float> d_queries = out(dq, first + i, of_panel);
            this->draw_keys(first + i, count, a, bits);
            turn_rows(left_q.from(i), count, depth(), root(), turned_q, columns);
            turn_rows(left_dy.from(i), count, depth(), 1, turned_dy, columns);
            row_products(rows(dy, first + i, a), rows(y, first + i, a), count, D, of.delta, columns);
            for (int64_t r = 0; r < count; ++r) {
                const float *kept = softmax + 2 * ((first + i + r) * A + a);
                of.highest[r] = kept[0], of.inverse[r] = kept[1];
            }
            // A pair may hold one query too many: its p and ds are 0.
            std::fill(of.highest + count, of.highest + columns, __builtin_inff());
            std::fill(of.inverse + count, of.inverse + columns, 0.0f);
            fill_queries(blocks.p, columns);
            fill_queries(blocks.ds, columns);
            int64_t end = std::min(over.j_end, this->visible(i, count, n));
            for (int64_t j = over.j; j < end; j += kKeys) {
                Block b = block(i, count, j, end);
                product(b.keys, columns, depth(), filled_k.from(j), {turned_q, columns},
                        OutRows<float>{s, columns});
                product(b.keys, columns, depth(), filled_v.from(j), {turned_dy, columns},
                        OutRows<float>{dp, columns});
                forms[drop.row_keys != nullptr][b.diagonal](b, s, dp, blocks, of, root(), bits, drop);
                fill_keys(blocks.ds_by_keys, b);
                if (over.keys) {
                    bool add = i > (causal ? j / kQueries * kQueries : 0); // not the first to see these keys
                    int64_t K = parts(count, kTogether<E>), stride = filled<E>(columns / kTogether<E>),
                            at = i / kTogether<E>;
                    product(b.keys, W, K, {blocks.p, stride}, right_dy.from(at), d_values.from(j), add);
                    product(b.keys, W, K, {blocks.ds, stride}, right_q.from(at), d_keys.from(j), add);
                }
                if (over.keys && i + kQueries >= asking) {
                    finish(d_keys.from(j), b.keys, dk, begin + j, a);
                    finish(d_values.from(j), b.keys, dv, begin + j, a);
                }
                if (over.queries) {
                    product<true>(count, W, parts(b.keys, kTogether<E>), {blocks.ds_by_keys, columns},
                                  right_k.from(j / kTogether<E>), d_queries, j > 0);
                }
            }
            if (over.queries) {
                finish(d_queries, count, dq, first + i, a);
            }
        }
    }

    // Sums that are complete, to where they belong.
    void finish(Rows<float> sums, int64_t n, Heads<X> x, int64_t row, int64_t a) const {
        if (!in_place()) {
            narrow(sums, n, D, rows(x, row, a));
        }
    }
};

} // namespace

template <typename X>
void attention_backward(Pool &pool, int64_t S, const int32_t *cu_seqlens, const int32_t *queries, int64_t A,
                        int64_t D, ConstHeads<X> q, ConstHeads<X> k, ConstHeads<X> v, bool causal,
                        const Drop &drop, ConstHeads<X> dy, ConstHeads<X> y, const float *softmax,
                        Heads<X> dq, Heads<X> dk, Heads<X> dv) {
    Backward<X> backward{{cu_seqlens, queries, A, D, causal, drop}, q, k, v, dy, y, softmax, dq, dk, dv};
    // A share costs 7/5 of its part of a head, so only heads that are fewer than threads are shared out.
    int64_t heads = S * A, shares = heads > 0 && heads < pool.threads() ? parts(pool.threads(), heads) : 1;
    backward.each_head(pool, heads * shares, [&](int64_t part) {
        if (shares == 1) {
            backward.ask_for(part + 1, heads, cu_seqlens, k, v, dk, dv);
            backward.ask_for(part + 1, heads, queries, q, dy, y, dq);
        }
        backward.head(part / shares / A, part / shares % A, part % shares, shares);
    });
}

template decltype(attention_backward<float>) attention_backward<float>;
template decltype(attention_backward<bf16>) attention_backward<bf16>;

} // namespace MB_ISA
} // namespace mb
