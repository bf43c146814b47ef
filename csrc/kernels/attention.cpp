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

constexpr int64_t kQueries = 64; // in a panel
constexpr int64_t kKeys = 64;    // in a block of a panel
static_assert(kQueries % VL == 0 && kQueries % kKeys == 0 && kKeys % 2 == 0, "the loops below count on it");

// Keys [j, j + keys) of a panel of `queries` queries from i on, in rows of `width` floats. What stands behind the last
// query is finished like the rest and read by nobody.
struct Block {
    int64_t j, keys, i, queries, width;
    bool diagonal; // causal, and some of its keys stand behind some of its queries
};

// The dropout keys of a panel: fold(fold(row key, site), head) of minibert/ops/random.py, one query in each lane.
struct PanelKeys {
    alignas(64) uint32_t first[kQueries] = {}, second[kQueries] = {};
};

// What forward and backward have in common.
struct Problem {
    const int32_t *begins; // of sequences
    int64_t A, D;
    bool causal;
    Drop drop;

    int64_t width() const { return whole(D, VL); }
    bool ragged() const { return D != width(); }
    float root() const { return static_cast<float>(1 / __builtin_sqrt(static_cast<double>(D))); }

    Rows rows(ConstHeads x, int64_t row, int64_t a) const {
        return {x.data + row * x.stride + a * D, x.stride};
    }
    OutRows rows(Heads x, int64_t row, int64_t a) const {
        return {x.data + row * x.stride + a * D, x.stride};
    }

    // Keys that a panel sees: those of the whole sequence, or up to its last query.
    int64_t visible(int64_t i, int64_t queries, int64_t n) const { return causal ? i + queries : n; }

    Block block(int64_t i, int64_t queries, int64_t j, int64_t end) const {
        int64_t keys = std::min(kKeys, end - j);
        return {j, keys, i, queries, whole(queries, VL), causal && j + keys - 1 > i};
    }

    // row: of the first query in the batch
    void draw_keys(int64_t row, int64_t queries, int64_t a, PanelKeys &keys) const {
        for (int64_t i = 0; drop.row_keys && i < queries; ++i) {
            Key key = fold(row_key(drop, row + i), static_cast<uint32_t>(a));
            keys.first[i] = key.first, keys.second[i] = key.second;
        }
    }
};

MB_INLINE vf masked(vi mask, vf x) { return (vf)((vi)x & mask); } // 0 where the mask is, whatever x

// Which of VL queries from i on may see key j.
MB_INLINE vi sees(int64_t i, int64_t j) { return lanes() >= static_cast<int32_t>(j - i); }

// one(r, kept) for every row r of a block; `kept` says which of VL queries from column c on keep that key. A hash serves
// two neighbouring keys, the lower half the even one.
template <bool dropout, typename One>
MB_INLINE void each_key(const Block &block, int64_t c, const PanelKeys &keys, uint32_t threshold,
                        const One &one) {
    vu first, second;
    std::memcpy(&first, keys.first + c, sizeof first);
    std::memcpy(&second, keys.second + c, sizeof second);
    for (int64_t r = 0; r < block.keys; r += 2) {
        vi even = {}, odd = {};
        if (dropout) {
            vu x = first + static_cast<uint32_t>((block.j + r) / 2) * kGolden;
            x = (x ^ (x >> 16)) * kFirst ^ second;
            x = (x ^ (x >> 15)) * kSecond;
            x = x ^ (x >> 16);
            even = (vi)(x & 0xFFFFu) >= static_cast<int32_t>(threshold);
            odd = (vi)(x >> 16) >= static_cast<int32_t>(threshold);
        }
        one(r, even);
        if (r + 1 < block.keys) {
            one(r + 1, odd);
        }
    }
}

// s (keys,width) -> highest (width), the maximum so far
void raise_maxima(const Block &block, const float *s, float *highest) {
    for (int64_t c = 0; c < block.width; c += VL) {
        vf top = load(highest + c);
        for (int64_t r = 0; r < block.keys; ++r) {
            vf x = load(s + r * block.width + c);
            if (block.diagonal) {
                x = select(sees(block.i + c, block.j + r), x, top);
            }
            top = max(x, top);
        }
        store(highest + c, top);
    }
}

// s (keys,width) -> exp(s - highest), 0 where dropped or hidden; sums (width) grow by what was there before dropout.
template <bool dropout, bool diagonal>
void exponentiate(const Block &block, float *s, const float *highest, float *sums, const PanelKeys &keys,
                  uint32_t threshold) {
    for (int64_t c = 0; c < block.width; c += VL) {
        vf top = load(highest + c), sum = {};
        each_key<dropout>(block, c, keys, threshold, [&](int64_t r, vi kept) {
            float *here = s + r * block.width + c;
            vf p = exp(load(here) - top);
            if (diagonal) {
                p = masked(sees(block.i + c, block.j + r), p);
            }
            sum += p;
            store(here, dropout ? masked(kept, p) : p);
        });
        store(sums + c, load(sums + c) + sum);
    }
}

struct Forward : Problem {
    ConstHeads q, k, v;
    Heads y;
    float *softmax;

    // Long sequences get narrower panels, so that a panel of scores stays in L2.
    static int64_t panel(int64_t n) { return n <= 1024 ? kQueries : n <= 2048 ? kQueries / 2 : kQueries / 4; }

    // One share of the panels of one head of one sequence.
    void head(int64_t sequence, int64_t a, int64_t share, int64_t shares) const {
        int64_t begin = begins[sequence], n = begins[sequence + 1] - begin;
        int64_t panels = parts(n, panel(n)), p = panels * share / shares,
                last = panels * (share + 1) / shares;
        if (p == last) {
            return;
        }
        int64_t floats = kQueries * (D + width()) + panel(n) * n + (ragged() ? n * width() : 0);
        auto *turned =
            static_cast<float *>(scratch(Slot::scratch, sizeof(float) * static_cast<size_t>(floats)));
        float *out = turned + kQueries * D, *scores = out + kQueries * width();
        Rows keys = rows(k, begin, a), values = widened(rows(v, begin, a), n, D, scores + panel(n) * n);
        for (; p < last; ++p) {
            int64_t i = p * panel(n), queries = std::min(panel(n), n - i);
            OutRows answers = rows(y, begin + i, a), wide = ragged() ? OutRows{out, width()} : answers;
            float *kept = softmax + 2 * ((begin + i) * A + a);
            PanelKeys bits;
            draw_keys(begin + i, queries, a, bits);
            turn_rows(rows(q, begin + i, a), queries, D, root(), turned, whole(queries, VL));
            one_panel(i, queries, visible(i, queries, n), turned, keys, values, bits, scores, wide, kept);
            if (ragged()) {
                narrow(wide, queries, D, answers);
            }
        }
    }

    // turned (D,width), q^T / sqrt(D)  keys values (end,D) -> y (queries,D), kept (queries,2) with rows 2 A apart
    void one_panel(int64_t i, int64_t queries, int64_t end, float *turned, Rows keys, Rows values,
                   const PanelKeys &bits, float *scores, OutRows y, float *kept) const {
        constexpr decltype(&exponentiate<false, false>) forms[2][2] = {
            {exponentiate<false, false>, exponentiate<false, true>},
            {exponentiate<true, false>, exponentiate<true, true>}};
        alignas(64) float highest[kQueries], sums[kQueries] = {};
        std::fill(highest, highest + kQueries, -__builtin_inff());
        int64_t columns = whole(queries, VL);
        for (int64_t j = 0; j < end; j += kKeys) {
            Block b = block(i, queries, j, end);
            OutRows s{scores + j * columns, columns};
            product(b.keys, columns, D, keys.from(j), {turned, columns}, s);
            raise_maxima(b, s.data, highest);
        }
        for (int64_t j = 0; j < end; j += kKeys) {
            Block b = block(i, queries, j, end);
            OutRows s{scores + j * columns, columns};
            forms[drop.row_keys != nullptr][b.diagonal](b, s.data, highest, sums, bits, drop.threshold);
            product<true>(queries, width(), b.keys, s, values.from(j), y, j > 0);
        }
        for (int64_t r = 0; r < queries; ++r, kept += 2 * A) {
            kept[0] = highest[r], kept[1] = 1 / sums[r];
            float share = drop.row_keys ? kept[1] * drop.scale : kept[1], *row = y.from(r).data;
            for (int64_t d = 0; d < width(); d += VL) {
                store(row + d, load(row + d) * share);
            }
        }
    }
};

} // namespace

void attention(Pool &pool, int64_t S, const int32_t *cu_seqlens, int64_t A, int64_t D, ConstHeads q,
               ConstHeads k, ConstHeads v, bool causal, const Drop &drop, Heads y, float *softmax) {
    Forward forward{{cu_seqlens, A, D, causal, drop}, q, k, v, y, softmax};
    // Where heads are too few for all threads to be busy to the end, their panels are shared out as well.
    int64_t heads = S * A, shares = heads > 0 && pool.threads() > 1 ? parts(4 * pool.threads(), heads) : 1;
    pool.run(heads * shares, [&](int64_t part) {
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
    alignas(64) float highest[kQueries] = {}, inverse[kQueries] = {}, delta[kQueries];
};

// s dp (keys,width) -> p m in the place of s, ds / sqrt(D) in the place of dp
template <bool dropout, bool diagonal>
void score_gradients(const Block &block, float *s, float *dp, const Statistics &of, float root,
                     const PanelKeys &keys, const Drop &drop) {
    for (int64_t c = 0; c < block.width; c += VL) {
        vf top = load(of.highest + c), inverse = load(of.inverse + c), delta = load(of.delta + c);
        each_key<dropout>(block, c, keys, drop.threshold, [&](int64_t r, vi kept) {
            float *here = s + r * block.width + c, *there = dp + r * block.width + c;
            vf p = exp(load(here) - top) * inverse, d = load(there);
            if (diagonal) {
                p = masked(sees(block.i + c, block.j + r), p), d = masked(sees(block.i + c, block.j + r), d);
            }
            if (dropout) {
                d = masked(kept, d * drop.scale);
            }
            store(there, p * (d - delta) * root);
            store(here, dropout ? masked(kept, p * drop.scale) : p);
        });
    }
}

struct Backward : Problem {
    ConstHeads q, k, v, dy, y;
    const float *softmax;
    Heads dq, dk, dv;

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
        constexpr decltype(&score_gradients<false, false>) forms[2][2] = {
            {score_gradients<false, false>, score_gradients<false, true>},
            {score_gradients<true, false>, score_gradients<true, true>}};
        int64_t W = width(), wide = ragged() ? n * W : 0;
        int64_t floats = 2 * kQueries * D + 2 * kKeys * kQueries + 6 * wide;
        auto *space =
            static_cast<float *>(scratch(Slot::scratch, sizeof(float) * static_cast<size_t>(floats)));
        auto take = [&](int64_t size) { return std::exchange(space, space + size); };
        float *turned_q = take(kQueries * D), *turned_dy = take(kQueries * D);
        float *p = take(kKeys * kQueries), *ds = take(kKeys * kQueries);
        auto whole_rows = [&](ConstHeads x) { return widened(rows(x, begin, a), n, D, take(wide)); };
        auto out = [&](Heads x) { return ragged() ? OutRows{take(wide), W} : rows(x, begin, a); };
        Rows queries = whole_rows(q), keys = whole_rows(k), values = rows(v, begin, a),
             d_answers = whole_rows(dy);
        OutRows d_queries = out(dq), d_keys = out(dk), d_values = out(dv);
        Statistics of;
        PanelKeys bits;

        for (int64_t i = over.i; i < over.i_end; i += kQueries) {
            int64_t count = std::min(kQueries, n - i), columns = whole(count, VL);
            draw_keys(begin + i, count, a, bits);
            turn_rows(rows(q, begin + i, a), count, D, root(), turned_q, columns);
            turn_rows(rows(dy, begin + i, a), count, D, 1, turned_dy, columns);
            row_products(rows(dy, begin + i, a), rows(y, begin + i, a), count, D, of.delta, columns);
            for (int64_t r = 0; r < count; ++r) {
                const float *kept = softmax + 2 * ((begin + i + r) * A + a);
                of.highest[r] = kept[0], of.inverse[r] = kept[1];
            }
            int64_t end = std::min(over.j_end, visible(i, count, n));
            for (int64_t j = over.j; j < end; j += kKeys) {
                Block b = block(i, count, j, end);
                OutRows p_block{p, columns}, ds_block{ds, columns};
                product(b.keys, columns, D, rows(k, begin + j, a), {turned_q, columns}, p_block);
                product(b.keys, columns, D, values.from(j), {turned_dy, columns}, ds_block);
                forms[drop.row_keys != nullptr][b.diagonal](b, p, ds, of, root(), bits, drop);
                if (over.keys) {
                    bool add = i > (causal ? j / kQueries * kQueries : 0); // not the first to see these keys
                    product(b.keys, W, count, p_block, d_answers.from(i), d_values.from(j), add);
                    product(b.keys, W, count, ds_block, queries.from(i), d_keys.from(j), add);
                }
                if (over.queries) {
                    product<true>(count, W, b.keys, ds_block, keys.from(j), d_queries.from(i), j > 0);
                }
            }
        }
        if (ragged() && over.queries) {
            narrow(d_queries.from(over.i), over.i_end - over.i, D, rows(dq, begin + over.i, a));
        }
        if (ragged() && over.keys) {
            narrow(d_keys.from(over.j), over.j_end - over.j, D, rows(dk, begin + over.j, a));
            narrow(d_values.from(over.j), over.j_end - over.j, D, rows(dv, begin + over.j, a));
        }
    }
};

} // namespace

void attention_backward(Pool &pool, int64_t S, const int32_t *cu_seqlens, int64_t A, int64_t D, ConstHeads q,
                        ConstHeads k, ConstHeads v, bool causal, const Drop &drop, ConstHeads dy,
                        ConstHeads y, const float *softmax, Heads dq, Heads dk, Heads dv) {
    Backward backward{{cu_seqlens, A, D, causal, drop}, q, k, v, dy, y, softmax, dq, dk, dv};
    // A share costs 7/5 of its part of a head, so only heads that are fewer than threads are shared out.
    int64_t heads = S * A, shares = heads > 0 && heads < pool.threads() ? parts(pool.threads(), heads) : 1;
    pool.run(heads * shares, [&](int64_t part) {
        backward.head(part / shares / A, part / shares % A, part % shares, shares);
    });
}

} // namespace MB_ISA
} // namespace mb
