// What forward and backward of attention have in common: blocks of scores, which of them a query may see, which dropout
// keeps, and how they become operands of the next product. A part of attention.cpp and attention_backward.cpp.
//
// Everything here is laid out with queries along vectors and keys down the rows: a panel of scores is S^T (keys,
// queries). Softmax then runs down the rows, so maxima, sums and the delta of backward are vectors with one query in
// each lane, no vector is ever summed across, and one hash serves two rows for dropout. The scores of a panel stay in
// cache, so softmax is the plain one, in two sweeps.
#pragma once

#include <utility>

#include "attention.h"
#include "elementary.h"
#include "memory.h"
#include "tiles.h"

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

// The dropout keys of a panel: fold(fold(row key, site), head) of minibert/core/ops/dropout_bits.py, one query in each lane.
struct PanelKeys {
    alignas(64) uint32_t first[kQueries], second[kQueries];
};

// What forward and backward have in common.
template <typename X> struct Problem {
    using E = Operand<X>;

    const int32_t *begins, *asks; // of sequences: where their tokens begin, and where those do that ask
    int64_t A, D;
    bool causal;
    Drop drop;

    int64_t width() const { return whole(D, VL); }
    int64_t depth() const { return parts(D, kTogether<E>); } // operands along D
    // Whether sums are accumulated in the results themselves.
    bool in_place() const { return std::is_same_v<X, float> && D == width(); }
    float root() const { return static_cast<float>(1 / __builtin_sqrt(static_cast<double>(D))); }

    Rows<X> rows(ConstHeads<X> x, int64_t row, int64_t a) const {
        return {x.data + row * x.stride + a * D, x.stride};
    }
    OutRows<X> rows(Heads<X> x, int64_t row, int64_t a) const {
        return {x.data + row * x.stride + a * D, x.stride};
    }

    // Tell the caches what a head of at most kAhead tokens will read and write, in tensors whose sequences begin at
    // `from`. Inlined, since GCC 12 leaves out calls of functions that do nothing else.
    template <typename... All>
    MB_INLINE void ask_for(int64_t head, int64_t heads, const int32_t *from, const All &...tensors) const {
        if (head >= heads) {
            return;
        }
        int64_t begin = from[head / A], n = from[head / A + 1] - begin;
        for (int64_t i = 0; n <= kAhead && i < n; ++i) {
            (prefetch(rows(tensors, begin + i, head % A).data), ...);
        }
    }

    // visit(head) for all heads, in parallel; the same thread is likely to come to head + 1 next. Where there are many, a
    // thread takes several at a time, for which it sets up its registers once.
    template <typename Visit> static void each_head(Pool &pool, int64_t heads, const Visit &visit) {
        int64_t threads = pool.threads(),
                together = std::max<int64_t>(1, std::min<int64_t>(8, heads / (16 * threads)));
        pool.run(parts(heads, together), [&](int64_t part) {
            [[maybe_unused]] Registers<E> registers;
            int64_t end = std::min(heads, (part + 1) * together);
            for (int64_t head = part * together; head < end; ++head) {
                visit(head);
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
    explicit Space(int64_t floats) : next_(scratch<float>(Slot::scratch, floats)) {}
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
            x = mix(first + static_cast<uint32_t>((block.j + r) / 2) * kGolden, second);
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
                             vu draws, uint32_t threshold) {
    // Draws lie as pairs do.
    __mmask32 kept = _mm512_cmpge_epu16_mask((__m512i)draws, _mm512_set1_epi16((short)threshold));
    store(to + r / 2 * block.width + c,
          (vf)_mm512_maskz_mov_epi16(kept, (__m512i)paired(rounded(even, odd))));
}
#endif

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

} // namespace
} // namespace MB_ISA
} // namespace mb
