#include "attention.h"

#include "elementary.h"
#include "tiles.h"

#include <utility>

// Everything here is laid out with queries along vectors and keys down the rows: a panel of scores is S^T (keys,
// queries). Softmax then runs down the rows, so maxima, sums and the delta of backward are vectors with one query in
// each lane, no vector is ever summed across, and one hash serves two rows for dropout. The scores of a panel stay in
// cache, so softmax is the plain one, in two sweeps.

namespace mb {
namespace MB_ISA {
namespace {

constexpr int64_t kQueries = VL == 16 ? 128 : 64; // in a panel at most
constexpr int64_t kKeys = 64;                     // in a block of a panel
constexpr int64_t kAhead = 256; // tokens of a sequence that the caches are told of in advance
static_assert(kQueries % VL == 0 && kQueries % kKeys == 0 && kKeys % 2 == 0, "the loops below count on it");

// Keys [j, j + keys) of a panel of `queries` queries from i on, in rows of `width` floats. What stands behind the last
// query is finished like the rest and counts for nothing.
struct Block {
    int64_t j, keys, i, queries, width;
    bool diagonal; // causal, and some of its keys stand behind some of its queries
};

// The dropout keys of a panel: fold(fold(row key, site), head) of minibert/ops/random.py, one query in each lane.
struct PanelKeys {
    alignas(64) uint32_t first[kQueries], second[kQueries];
};

// What forward and backward have in common.
template <typename X> struct Problem {
    using E = Operand<X>;

    const int32_t *begins; // of sequences
    int64_t A, D;
    bool causal;
    Drop drop;

    int64_t width() const { return whole(D, VL); }
    int64_t depth() const { return parts(D, kTogether<E>); } // operands along D
    bool in_place() const {
        return std::is_same_v<X, float> && D == width();
    } // whether sums stand in the results
    float root() const { return static_cast<float>(1 / __builtin_sqrt(static_cast<double>(D))); }

    Rows<X> rows(ConstHeads<X> x, int64_t row, int64_t a) const {
        return {x.data + row * x.stride + a * D, x.stride};
    }
    OutRows<X> rows(Heads<X> x, int64_t row, int64_t a) const {
        return {x.data + row * x.stride + a * D, x.stride};
    }

    // Tell the caches what a head of at most kAhead tokens will read and write. Inlined, since GCC 12 leaves out calls of
    // functions that do nothing else.
    template <typename... All>
    MB_INLINE void ask_for(int64_t head, int64_t heads, const All &...tensors) const {
        if (head >= heads) {
            return;
        }
        int64_t begin = begins[head / A], n = begins[head / A + 1] - begin;
        for (int64_t i = 0; n <= kAhead && i < n; ++i) {
            (prefetch(rows(tensors, begin + i, head % A).data), ...);
        }
    }

    // visit(head, next) for all heads, in parallel: `next` is the one that the same thread is likely to come to then. Where
    // there are many, a thread takes several at a time, for which it sets up its registers once.
    template <typename Visit> static void each_head(Pool &pool, int64_t heads, const Visit &visit) {
        int64_t threads = pool.threads(),
                together = std::max<int64_t>(1, std::min<int64_t>(8, heads / (16 * threads)));
        pool.run(parts(heads, together), [&](int64_t part) {
            [[maybe_unused]] Registers<E> registers;
            int64_t end = std::min(heads, (part + 1) * together);
            for (int64_t head = part * together; head < end; ++head) {
                visit(head, head + 1 < end ? head + 1 : (part + threads) * together);
            }
        });
    }

    MB_INLINE void prefetch(const X *row) const {
        for (int64_t d = 0; d < D; d += 64 / static_cast<int64_t>(sizeof(X))) {
            __builtin_prefetch(row + d, 0, 2);
        }
    }

    // Keys that a panel sees: those of the whole sequence, or up to its last query.
    int64_t visible(int64_t i, int64_t queries, int64_t n) const { return causal ? i + queries : n; }

    Block block(int64_t i, int64_t queries, int64_t j, int64_t end) const {
        int64_t keys = std::min(kKeys, end - j);
        return {j, keys, i, queries, whole(queries, VL), causal && j + keys - 1 > i};
    }

    // row: of the first query in the batch
    void draw_keys(int64_t row, int64_t queries, int64_t a, PanelKeys &keys) const {
        if (!drop.row_keys) {
            return;
        }
        for (int64_t i = 0; i < queries; ++i) { // apart from what follows, which is done in vectors
            keys.first[i] = drop.row_keys[2 * (row + i)], keys.second[i] = drop.row_keys[2 * (row + i) + 1];
        }
        int64_t columns = whole(queries, VL);
        std::fill(keys.first + queries, keys.first + columns, 0);
        std::fill(keys.second + queries, keys.second + columns, 0);
        for (int64_t i = 0; i < columns; ++i) {
            Key key = fold(fold({keys.first[i], keys.second[i]}, drop.site), static_cast<uint32_t>(a));
            keys.first[i] = key.first, keys.second[i] = key.second;
        }
    }
};

// Parts of the thread's scratch memory, one after another.
class Space {
  public:
    explicit Space(int64_t floats)
        : next_(static_cast<float *>(scratch(Slot::scratch, sizeof(float) * static_cast<size_t>(floats)))) {}
    float *take(int64_t floats) { return std::exchange(next_, next_ + floats); }

  private:
    float *next_;
};

MB_INLINE vf masked(vi mask, vf x) { return (vf)((vi)x & mask); } // 0 where the mask is, whatever x

// Which of VL queries from i on may see key j.
MB_INLINE vi sees(int64_t i, int64_t j) { return lanes() >= static_cast<int32_t>(j - i); }

// visit(r, two, draws) for rows r and r + 1 of a block, or for r alone, with the draws of VL queries from column c on: a
// hash serves two neighbouring keys, the lower half the even one.
template <bool dropout, typename Visit>
MB_INLINE void each_two_keys(const Block &block, int64_t c, const PanelKeys &keys, const Visit &visit) {
    vu first, second;
    std::memcpy(&first, keys.first + c, sizeof first);
    std::memcpy(&second, keys.second + c, sizeof second);
    for (int64_t r = 0; r < block.keys; r += 2) {
        vu x = {};
        if (dropout) {
            x = first + static_cast<uint32_t>((block.j + r) / 2) * kGolden;
            x = (x ^ (x >> 16)) * kFirst ^ second;
            x = (x ^ (x >> 15)) * kSecond;
            x = x ^ (x >> 16);
        }
        visit(r, r + 1 < block.keys, x);
    }
}

// Which draws keep their keys: all that are not below the threshold.
MB_INLINE vi keep_even(vu draws, uint32_t threshold) { return (draws << 16) >= (threshold << 16); }
MB_INLINE vi keep_odd(vu draws, uint32_t threshold) { return draws >= (threshold << 16); }

// What a product over keys takes of a block beyond them is 0.
MB_INLINE void fill_keys(float *, const Block &) {}

// Rows r and r + 1 of a block, VL queries from c on, as the left side of a product over keys.
MB_INLINE void put_keys(float *to, const Block &block, int64_t r, int64_t c, bool two, vf even, vf odd) {
    store(to + r * block.width + c, even);
    if (two) {
        store(to + (r + 1) * block.width + c, odd);
    }
}

// The same with 0 in the place of what is dropped.
MB_INLINE void put_kept_keys(float *to, const Block &block, int64_t r, int64_t c, bool two, vf even, vf odd,
                             vu draws, uint32_t threshold) {
    put_keys(to, block, r, c, two, masked(keep_even(draws, threshold), even),
             masked(keep_odd(draws, threshold), odd));
}
#if defined(__AVX512BF16__)
MB_INLINE void fill_keys(Pair *to, const Block &block) {
    int64_t pairs = parts(block.keys, 2);
    std::fill(to + pairs * block.width, to + filled<Pair>(pairs) * block.width, Pair{});
}
MB_INLINE void put_keys(Pair *to, const Block &block, int64_t r, int64_t c, bool, vf even, vf odd) {
    store(to + r / 2 * block.width + c, paired(rounded(even, odd)));
}
MB_INLINE void put_kept_keys(Pair *to, const Block &block, int64_t r, int64_t c, bool, vf even, vf odd,
                             vu draws,
                             uint32_t threshold) { // draws lie as pairs do
    __mmask32 kept = _mm512_cmpge_epu16_mask((__m512i)draws, _mm512_set1_epi16((short)threshold));
    store(to + r / 2 * block.width + c,
          (vf)_mm512_maskz_mov_epi16(kept, (__m512i)paired(rounded(even, odd))));
}
#endif

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

constexpr float kLog2E = 1.44269504088896341f;

// exp(s - highest) for scores as the products give them: of pairs they are still to be multiplied by `root`.
template <typename E> struct Exponential {
    vf highest;
    Exponential(vf highest, float) : highest(highest) {}
    vf operator()(vf s) const { return exp(s - highest); }
};
#if defined(__AVX512BF16__)
template <> struct Exponential<Pair> {
    vf highest;
    float root;
    Exponential(vf highest, float root) : highest(highest * kLog2E), root(root * kLog2E) {}
    vf operator()(vf s) const { return coarse_exp2(s * root - highest); }
};
#endif

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
    using Problem<X>::A, Problem<X>::D, Problem<X>::drop, Problem<X>::begins;
    using Problem<X>::width, Problem<X>::depth, Problem<X>::in_place, Problem<X>::root, Problem<X>::rows,
        Problem<X>::block;
    ConstHeads<X> q, k, v;
    Heads<X> y;
    float *softmax;

    // Long sequences get narrower panels, so that a panel of scores stays in L2.
    static int64_t panel(int64_t n) { return n <= 1024 ? 64 : n <= 2048 ? 32 : 16; }

    // One share of the panels of one head of one sequence.
    void head(int64_t sequence, int64_t a, int64_t share, int64_t shares) const {
        int64_t begin = begins[sequence], n = begins[sequence + 1] - begin;
        int64_t panels = parts(n, panel(n)), p = panels * share / shares,
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
            int64_t i = p * panel(n), queries = std::min(panel(n), n - i);
            float *kept = softmax + 2 * ((begin + i) * A + a);
            PanelKeys bits;
            this->draw_keys(begin + i, queries, a, bits);
            turn_rows(left_side(rows(q, begin + i, a), queries, D, of_panel), queries, depth(), root(),
                      turned, whole(queries, VL));
            one_panel(i, queries, this->visible(i, queries, n), turned, keys, values, bits, scores,
                      reinterpret_cast<E *>(rounded), {out, width()}, rows(y, begin + i, a), kept);
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
void attention(Pool &pool, int64_t S, const int32_t *cu_seqlens, int64_t A, int64_t D, ConstHeads<X> q,
               ConstHeads<X> k, ConstHeads<X> v, bool causal, const Drop &drop, Heads<X> y, float *softmax) {
    Forward<X> forward{{cu_seqlens, A, D, causal, drop}, q, k, v, y, softmax};
    // Where heads are too few for all threads to be busy to the end, their panels are shared out as well.
    int64_t heads = S * A, shares = heads > 0 && pool.threads() > 1 ? parts(4 * pool.threads(), heads) : 1;
    forward.each_head(pool, heads * shares, [&](int64_t part, int64_t next) {
        if (shares == 1) {
            forward.ask_for(next, heads, q, k, v, y);
        }
        forward.head(part / shares / A, part / shares % A, part % shares, shares);
    });
}

// With s = q k^T / sqrt(D), p = softmax(s), m the dropout multipliers and y = (p m) v:
//   dv = (p m)^T dy,  dp = (dy v^T) m,  ds = p (dp - delta),  delta_i = sum_j dp_ij p_ij,
//   dq = ds k / sqrt(D),  dk = ds^T q / sqrt(D)
// delta needs no probabilities: sum_j dp_ij p_ij = sum_j sum_d dy_id v_jd m_ij p_ij = sum_d dy_id y_id.
// Blocks are turned here as well: s^T, p^T, dp^T and ds^T, all (keys, queries).
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
    auto first = __builtin_shufflevector(x, x, 0, 1, 2, 3),
         second = __builtin_shufflevector(x, x, 4, 5, 6, 7);
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
    using Problem<X>::A, Problem<X>::D, Problem<X>::causal, Problem<X>::drop, Problem<X>::begins;
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
        int64_t begin = begins[sequence], n = begins[sequence + 1] - begin, panels = parts(n, kQueries);
        int64_t from = panels * share / shares * kQueries;
        int64_t to = std::min(n, panels * (share + 1) / shares * kQueries);
        if (shares == 1) {
            sweep(begin, n, a, {0, n, 0, n, true, true});
        } else if (from < to) {
            sweep(begin, n, a, {from, to, 0, n, true, false});
            sweep(begin, n, a, {0, n, from, to, false, true});
        }
    }

    void sweep(int64_t begin, int64_t n, int64_t a, Sweep over) const {
        constexpr decltype(&score_gradients<E, false, false>) forms[2][2] = {
            {score_gradients<E, false, false>, score_gradients<E, false, true>},
            {score_gradients<E, true, false>, score_gradients<E, true, true>}};
        constexpr int64_t kBlock = kKeys * kQueries;
        int64_t W = width(), sums = in_place() ? 0 : filled<E>(n) * W;
        int64_t left = left_space<X>(n, D), right = right_space<X>(n, D);
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
        auto on_left = [&](ConstHeads<X> x) { return left_side(rows(x, begin, a), n, D, space.take(left)); };
        auto on_right = [&](ConstHeads<X> x, Rows<E> other) {
            return right_side(rows(x, begin, a), other, n, D, space.take(right));
        };
        Rows<E> left_q = on_left(q), left_k = on_left(k), left_v = on_left(v), left_dy = on_left(dy);
        Rows<E> right_q = on_right(q, left_q), right_k = on_right(k, left_k),
                right_dy = on_right(dy, left_dy);
        Rows<E> filled_k = filled_rows(left_k, n, depth(), space.take(filled_left)),
                filled_v = filled_rows(left_v, n, depth(), space.take(filled_left));
        // Sums of x from a row of the sequence on: in x itself, or in a place of their own.
        auto out = [&](Heads<X> x, int64_t row, float *place) {
            if constexpr (std::is_same_v<X, float>) {
                if (in_place()) {
                    return rows(x, begin + row, a);
                }
            }
            return OutRows<float>{place, W};
        };
        OutRows<float> d_keys = out(dk, 0, space.take(sums)), d_values = out(dv, 0, space.take(sums));
        float *of_panel = space.take(kQueries * W);
        Statistics of;
        PanelKeys bits;

        for (int64_t i = over.i; i < over.i_end; i += kQueries) {
            int64_t count = std::min(kQueries, n - i), columns = whole(count, VL);
            OutRows<float> d_queries = out(dq, i, of_panel);
            this->draw_keys(begin + i, count, a, bits);
            turn_rows(left_q.from(i), count, depth(), root(), turned_q, columns);
            turn_rows(left_dy.from(i), count, depth(), 1, turned_dy, columns);
            row_products(rows(dy, begin + i, a), rows(y, begin + i, a), count, D, of.delta, columns);
            for (int64_t r = 0; r < count; ++r) {
                const float *kept = softmax + 2 * ((begin + i + r) * A + a);
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
                if (over.keys && i + kQueries >= n) {
                    finish(d_keys.from(j), b.keys, dk, begin + j, a);
                    finish(d_values.from(j), b.keys, dv, begin + j, a);
                }
                if (over.queries) {
                    product<true>(count, W, parts(b.keys, kTogether<E>), {blocks.ds_by_keys, columns},
                                  right_k.from(j / kTogether<E>), d_queries, j > 0);
                }
            }
            if (over.queries) {
                finish(d_queries, count, dq, begin + i, a);
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
void attention_backward(Pool &pool, int64_t S, const int32_t *cu_seqlens, int64_t A, int64_t D,
                        ConstHeads<X> q, ConstHeads<X> k, ConstHeads<X> v, bool causal, const Drop &drop,
                        ConstHeads<X> dy, ConstHeads<X> y, const float *softmax, Heads<X> dq, Heads<X> dk,
                        Heads<X> dv) {
    Backward<X> backward{{cu_seqlens, A, D, causal, drop}, q, k, v, dy, y, softmax, dq, dk, dv};
    // A share costs 7/5 of its part of a head, so only heads that are fewer than threads are shared out.
    int64_t heads = S * A, shares = heads > 0 && heads < pool.threads() ? parts(pool.threads(), heads) : 1;
    backward.each_head(pool, heads * shares, [&](int64_t part, int64_t next) {
        if (shares == 1) {
            backward.ask_for(next, heads, q, k, v, dy, y, dq, dk, dv);
        }
        backward.head(part / shares / A, part / shares % A, part % shares, shares);
    });
}

#define MB_FOR(X)                                                                                            \
    template void attention(Pool &, int64_t, const int32_t *, int64_t, int64_t, ConstHeads<X>,               \
                            ConstHeads<X>, ConstHeads<X>, bool, const Drop &, Heads<X>, float *);            \
    template void attention_backward(Pool &, int64_t, const int32_t *, int64_t, int64_t, ConstHeads<X>,      \
                                     ConstHeads<X>, ConstHeads<X>, bool, const Drop &, ConstHeads<X>,        \
                                     ConstHeads<X>, const float *, Heads<X>, Heads<X>, Heads<X>);
MB_FOR(float)
MB_FOR(bf16)
#undef MB_FOR

} // namespace MB_ISA
} // namespace mb
