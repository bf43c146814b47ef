#include "attention.h"

#include <algorithm>

#include "elementary.h"

// Everything here is laid out with queries along vectors and keys down the rows, so a panel of scores is S^T
// (keys, queries). Softmax then runs down the rows: maxima, sums and the delta of backward are vectors
// with one query in each lane, no vector is ever summed across, and one hash serves two rows for dropout.
// Whole columns of scores stay in cache, so softmax is the plain one in two sweeps.

namespace mb {
namespace MB_ISA {
namespace {

// The register tile: up to kVectors vectors of columns; kRows[vectors] rows then fill the registers.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kVectors = 4;
constexpr int kRows[] = {0, 8, 8, 8, 6};
#else
constexpr int kVectors = 2;
constexpr int kRows[] = {0, 8, 6};
#endif

constexpr int64_t kQueries = 64; // in a panel; a multiple of any VL
constexpr int64_t kKeys = 64;    // in a block; divides kQueries or the other way round, and is even

constexpr int64_t whole(int64_t n, int64_t size) { return parts(n, size) * size; }

MB_INLINE vf chosen(vi mask, vf x) { return (vf)((vi)x & mask); } // x or 0

// The two halves of a and b, lane by lane: a0 b0 a1 b1 ...
MB_INLINE void zip(vf &a, vf &b) {
#if defined(__AVX512F__)
    vf low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    vf high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif defined(__AVX2__)
    vf low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    vf high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    vf low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    vf high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
    a = low, b = high;
}

// VL vectors as a square matrix, turned: row r and row r + VL/2 are zipped to rows 2r and 2r + 1, log2(VL) times.
MB_INLINE void turn(vf *rows) {
#pragma GCC unroll 4
    for (int step = 1; step < VL; step *= 2) {
        vf from[VL];
#pragma GCC unroll 16
        for (int r = 0; r < VL; ++r) {
            from[r] = rows[r];
        }
#pragma GCC unroll 8
        for (int r = 0; r < VL / 2; ++r) {
            zip(from[r], from[r + VL / 2]);
            rows[2 * r] = from[r], rows[2 * r + 1] = from[r + VL / 2];
        }
    }
}

// The rows of one head of one sequence.
struct Rows {
    const float *data;
    int64_t stride;
};
struct OutRows {
    float *data;
    int64_t stride;
};

// C (R, NV VL) = or += A (R,K) B (K, NV VL). A is read as it lies: element (r,k) at a[r lda + k], turned at
// a[k lda + r]. Each element of C is one chain of additions in the order of k, whatever the tiles and blocks: bits
// do not depend on them.
template <bool turned, int NV, int R>
__attribute__((noinline)) void tile(int64_t K, const float *a, int64_t lda, const float *b, int64_t ldb,
                                    float *c, int64_t ldc, bool add) {
    vf sums[R][NV];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            sums[r][j] = add ? load(c + r * ldc + j * VL) : vf{};
        }
    for (int64_t k = 0; k < K; ++k) {
        vf right[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            right[j] = load(b + k * ldb + j * VL);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) {
                sums[r][j] += (turned ? a[k * lda + r] : a[r * lda + k]) * right[j];
            }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            store(c + r * ldc + j * VL, sums[r][j]);
        }
}

template <bool turned, int NV, int R>
MB_INLINE void tile_of(int64_t rows, int64_t K, const float *a, int64_t lda, const float *b, int64_t ldb,
                       float *c, int64_t ldc, bool add) {
    if (rows >= R) {
        tile<turned, NV, R>(K, a, lda, b, ldb, c, ldc, add);
    } else if constexpr (R > 1) {
        tile_of<turned, NV, R - 1>(rows, K, a, lda, b, ldb, c, ldc, add);
    }
}

template <bool turned, int NV>
MB_INLINE void columns(int64_t M, int64_t K, const float *a, int64_t lda, const float *b, int64_t ldb,
                       float *c, int64_t ldc, bool add) {
    constexpr int R = kRows[NV];
    for (int64_t groups = parts(M, R), i = 0; groups > 0; --groups) {
        int64_t rows = parts(M - i, groups); // tiles of equal height
        tile_of<turned, NV, R>(rows, K, a + i * (turned ? 1 : lda), lda, b, ldb, c + i * ldc, ldc, add);
        i += rows;
    }
}

// C (M,N) = or += A (M,K) B (K,N), with N a multiple of VL.
template <bool turned>
void product(int64_t M, int64_t N, int64_t K, const float *a, int64_t lda, const float *b, int64_t ldb,
             float *c, int64_t ldc, bool add) {
    int64_t vectors = N / VL;
    for (int64_t groups = parts(vectors, kVectors); groups > 0; --groups) {
        int64_t here = parts(vectors, groups); // groups of equal width
        if (here == 1) {
            columns<turned, 1>(M, K, a, lda, b, ldb, c, ldc, add);
        } else if (here == 2) {
            columns<turned, 2>(M, K, a, lda, b, ldb, c, ldc, add);
        } else if constexpr (kVectors > 2) {
            if (here == 3) {
                columns<turned, 3>(M, K, a, lda, b, ldb, c, ldc, add);
            } else {
                columns<turned, 4>(M, K, a, lda, b, ldb, c, ldc, add);
            }
        }
        vectors -= here, b += here * VL, c += here * VL;
    }
}

// x (n,D) -> scale x^T (D,width). What stands in the columns behind n is never read by anything that counts.
void turn_rows(Rows x, int64_t n, int64_t D, float scale, float *to, int64_t width) {
    for (int64_t i = 0; i < width; i += VL, to += VL) {
        const float *rows[VL];
        for (int r = 0; r < VL; ++r) {
            rows[r] = x.data + std::min(i + r, n - 1) * x.stride;
        }
        vf block[VL];
        int64_t d = 0;
        for (; d + VL <= D; d += VL) {
#pragma GCC unroll 16
            for (int r = 0; r < VL; ++r) {
                block[r] = load(rows[r] + d) * scale;
            }
            turn(block);
#pragma GCC unroll 16
            for (int r = 0; r < VL; ++r) {
                store(to + (d + r) * width, block[r]);
            }
        }
        if (d < D) {
#pragma GCC unroll 16
            for (int r = 0; r < VL; ++r) {
                block[r] = load(rows[r] + d, D - d) * scale;
            }
            turn(block);
            for (int64_t r = 0; r < D - d; ++r) {
                store(to + (d + r) * width, block[r]);
            }
        }
    }
}

// x y (n,D) -> sum_d x y (width); behind n as above
void row_products(Rows x, Rows y, int64_t n, int64_t D, float *sums, int64_t width) {
    for (int64_t i = 0; i < width; i += VL) {
        vf block[VL];
#pragma GCC unroll 16
        for (int r = 0; r < VL; ++r) {
            int64_t row = std::min(i + r, n - 1);
            const float *a = x.data + row * x.stride, *b = y.data + row * y.stride;
            vf sum = {};
            int64_t d = 0;
            for (; d + VL <= D; d += VL) {
                sum += load(a + d) * load(b + d);
            }
            block[r] = d < D ? sum + load(a + d, D - d) * load(b + d, D - d) : sum;
        }
        turn(block);
        vf total = block[0];
#pragma GCC unroll 16
        for (int r = 1; r < VL; ++r) {
            total += block[r];
        }
        store(sums + i, total);
    }
}

// x (n,D) with rows that may be read in whole vectors: x itself, or a copy with zeros behind each row.
Rows widened(Rows x, int64_t n, int64_t D, int64_t width, float *space) {
    if (D == width) {
        return x;
    }
    for (int64_t i = 0; i < n; ++i) {
        std::memcpy(space + i * width, x.data + i * x.stride, sizeof(float) * static_cast<size_t>(D));
        std::fill(space + i * width + D, space + (i + 1) * width, 0.0f);
    }
    return {space, width};
}

void narrow(const float *from, int64_t width, int64_t n, int64_t D, OutRows to) {
    for (int64_t i = 0; i < n; ++i) {
        std::memcpy(to.data + i * to.stride, from + i * width, sizeof(float) * static_cast<size_t>(D));
    }
}

// What the loops over sequences and heads have in common.
struct Problem {
    const int32_t *begins;
    int64_t A, D;
    bool causal;
    Drop drop;

    int64_t width() const { return whole(D, VL); }
    float root() const { return static_cast<float>(1 / __builtin_sqrt(static_cast<double>(D))); }
};

// The dropout keys of a panel: fold(fold(row key, site), head) of minibert/ops/random.py, one query in each lane.
struct Keys {
    alignas(64) uint32_t first[kQueries], second[kQueries];
};

void panel_keys(const Drop &drop, int64_t row, int64_t queries, int64_t head, Keys &keys) {
    for (int64_t i = 0; i < queries; ++i) {
        Key key = fold(row_key(drop, row + i), static_cast<uint32_t>(head));
        keys.first[i] = key.first, keys.second[i] = key.second;
    }
    std::fill(keys.first + queries, keys.first + kQueries, 0u);
    std::fill(keys.second + queries, keys.second + kQueries, 0u);
}

MB_INLINE vu load_words(const uint32_t *p) {
    vu v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

MB_INLINE vu word(uint32_t x) { return x - vu{}; }

// Which of VL queries keep key j and key j + 1, for even j.
MB_INLINE void kept_pair(vu first, vu second, int64_t j, uint32_t threshold, vi &even, vi &odd) {
    vu x = first + static_cast<uint32_t>(j / 2) * kGolden;
    x = (x ^ (x >> 16)) * kFirst ^ second;
    x = (x ^ (x >> 15)) * kSecond;
    x = x ^ (x >> 16);
    vi limit = (vi)word(threshold);
    even = (vi)(x & 0xFFFFu) >= limit;
    odd = (vi)(x >> 16) >= limit;
}

// One block of a panel: `keys` rows from key j on, `width` columns from query i on.
struct Block {
    int64_t j, keys, i, width;
    bool diagonal; // causal, and some of its keys stand behind some of its queries
};

// Which of VL queries from i on may see key j.
MB_INLINE vi seen(int64_t i, int64_t j) { return lanes() >= (vi)word(static_cast<uint32_t>(j - i)); }

// s (keys,width) -> highest (width), the maximum so far
void raise_maxima(const Block &block, const float *s, float *highest) {
    for (int64_t c = 0; c < block.width; c += VL) {
        vf top = load(highest + c);
        for (int64_t r = 0; r < block.keys; ++r) {
            vf x = load(s + r * block.width + c);
            if (block.diagonal) {
                vi mask = seen(block.i + c, block.j + r);
                x = (vf)(((vi)x & mask) | ((vi)top & ~mask));
            }
            top = x > top ? x : top;
        }
        store(highest + c, top);
    }
}

// s (keys,width) -> exp(s - highest), 0 where dropped or hidden; sums (width) grow by what was there before dropout.
template <bool dropout, bool diagonal>
void exponentiate(const Block &block, float *s, const float *highest, float *sums, const Keys &keys,
                  uint32_t threshold) {
    for (int64_t c = 0; c < block.width; c += VL) {
        vf top = load(highest + c), sum = {};
        vu first = {}, second = {};
        if (dropout) {
            first = load_words(keys.first + c), second = load_words(keys.second + c);
        }
        auto one = [&](int64_t r, vi kept) {
            float *here = s + r * block.width + c;
            vf p = exp(load(here) - top);
            if (diagonal) {
                p = chosen(seen(block.i + c, block.j + r), p);
            }
            sum += p;
            store(here, dropout ? chosen(kept, p) : p);
        };
        for (int64_t r = 0; r < block.keys; r += 2) {
            vi even = {}, odd = {};
            if (dropout) {
                kept_pair(first, second, block.j + r, threshold, even, odd);
            }
            one(r, even);
            if (r + 1 < block.keys) {
                one(r + 1, odd);
            }
        }
        store(sums + c, load(sums + c) + sum);
    }
}

// Queries [i, i_end) of one head of one sequence of n tokens. y (n,D)  softmax (n,2)
struct Forward : Problem {
    ConstHeads q, k, v;
    Heads y;
    float *softmax;

    // Long sequences get narrower panels, so that a panel of scores stays in L2.
    static int64_t panel(int64_t n) { return n <= 1024 ? kQueries : n <= 2048 ? kQueries / 2 : kQueries / 4; }

    void head(int64_t sequence, int64_t a, int64_t share, int64_t shares) const {
        int64_t begin = begins[sequence], n = begins[sequence + 1] - begin;
        int64_t panels = parts(n, panel(n)), last = panels * (share + 1) / shares;
        int64_t p = panels * share / shares;
        if (p == last) {
            return;
        }
        auto *space = static_cast<float *>(scratch(
            Slot::scratch, sizeof(float) * static_cast<size_t>(kQueries * (D + width()) + panel(n) * n +
                                                               (D == width() ? 0 : n * width()))));
        float *turned = space, *out = turned + kQueries * D, *scores = out + kQueries * width();
        Rows keys{k.data + begin * k.stride + a * D, k.stride};
        Rows values =
            widened({v.data + begin * v.stride + a * D, v.stride}, n, D, width(), scores + panel(n) * n);
        for (; p < last; ++p) {
            int64_t i = p * panel(n), queries = std::min(panel(n), n - i);
            Rows asked{q.data + (begin + i) * q.stride + a * D, q.stride};
            OutRows answers{y.data + (begin + i) * y.stride + a * D, y.stride};
            one_panel(begin, n, a, i, queries, asked, keys, values, turned, scores, out, answers);
        }
    }

    void one_panel(int64_t begin, int64_t n, int64_t a, int64_t i, int64_t queries, Rows asked, Rows keys,
                   Rows values, float *turned, float *scores, float *out, OutRows answers) const {
        alignas(64) float highest[kQueries], sums[kQueries] = {};
        std::fill(highest, highest + kQueries, -__builtin_inff());
        int64_t columns = whole(queries, VL), visible = causal ? i + queries : n;
        turn_rows(asked, queries, D, root(), turned, columns);
        for (int64_t j = 0; j < visible; j += kKeys) {
            Block block = this->block(i, columns, j, visible);
            float *s = scores + j * columns;
            product<false>(block.keys, columns, D, keys.data + j * keys.stride, keys.stride, turned, columns,
                           s, columns, false);
            raise_maxima(block, s, highest);
        }
        Keys bits;
        if (drop.row_keys) {
            panel_keys(drop, begin + i, queries, a, bits);
        }
        OutRows y = D == width() ? answers : OutRows{out, width()};
        for (int64_t j = 0; j < visible; j += kKeys) {
            Block block = this->block(i, columns, j, visible);
            float *s = scores + j * columns;
            if (drop.row_keys) {
                block.diagonal ? exponentiate<true, true>(block, s, highest, sums, bits, drop.threshold)
                               : exponentiate<true, false>(block, s, highest, sums, bits, drop.threshold);
            } else {
                block.diagonal ? exponentiate<false, true>(block, s, highest, sums, bits, 0)
                               : exponentiate<false, false>(block, s, highest, sums, bits, 0);
            }
            product<true>(queries, width(), block.keys, s, columns, values.data + j * values.stride,
                          values.stride, y.data, y.stride, j > 0);
        }
        for (int64_t r = 0; r < queries; ++r) {
            float inverse = 1 / sums[r], share = drop.row_keys ? inverse * drop.scale : inverse;
            float *kept = softmax + 2 * ((begin + i + r) * A + a);
            kept[0] = highest[r], kept[1] = inverse;
            for (int64_t d = 0; d < width(); d += VL) {
                store(y.data + r * y.stride + d, load(y.data + r * y.stride + d) * share);
            }
        }
        if (D != width()) {
            narrow(out, width(), queries, D, answers);
        }
    }

    Block block(int64_t i, int64_t columns, int64_t j, int64_t visible) const {
        int64_t keys = std::min(kKeys, visible - j);
        return {j, keys, i, columns, causal && j + keys - 1 > i};
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
// Everything below is turned: blocks are s^T, p^T, dp^T, ds^T (keys, queries).
namespace {

// s dp (keys,width) -> p m in the place of s, ds / sqrt(D) in the place of dp
template <bool dropout, bool diagonal>
void score_gradients(const Block &block, float *s, float *dp, const float *highest, const float *inverses,
                     const float *delta, float root, const Keys &keys, uint32_t threshold, float kept_scale) {
    for (int64_t c = 0; c < block.width; c += VL) {
        vf top = load(highest + c), inverse = load(inverses + c), mean = load(delta + c);
        vu first = {}, second = {};
        if (dropout) {
            first = load_words(keys.first + c), second = load_words(keys.second + c);
        }
        auto one = [&](int64_t r, vi kept) {
            float *here = s + r * block.width + c, *there = dp + r * block.width + c;
            vf p = exp(load(here) - top) * inverse, d = load(there);
            if (dropout) {
                d = chosen(kept, d * kept_scale);
            }
            vf ds = p * (d - mean) * root;
            if (dropout) {
                p = chosen(kept, p * kept_scale);
            }
            if (diagonal) {
                vi mask = seen(block.i + c, block.j + r);
                p = chosen(mask, p), ds = chosen(mask, ds);
            }
            store(here, p), store(there, ds);
        };
        for (int64_t r = 0; r < block.keys; r += 2) {
            vi even = {}, odd = {};
            if (dropout) {
                kept_pair(first, second, block.j + r, threshold, even, odd);
            }
            one(r, even);
            if (r + 1 < block.keys) {
                one(r + 1, odd);
            }
        }
    }
}

struct Backward : Problem {
    ConstHeads q, k, v, dy, y;
    const float *softmax;
    Heads dq, dk, dv;

    void head(int64_t sequence, int64_t a) const {
        int64_t begin = begins[sequence], n = begins[sequence + 1] - begin, W = width();
        bool ragged = D != W;
        int64_t panel = std::min(kQueries, whole(n, VL)), rows = ragged ? n * W : 0;
        auto *space = static_cast<float *>(
            scratch(Slot::scratch,
                    sizeof(float) * static_cast<size_t>(2 * panel * D + 2 * kKeys * panel + 6 * rows)));
        auto take = [&](int64_t floats) {
            float *here = space;
            space += floats;
            return here;
        };
        float *turned_q = take(panel * D), *turned_dy = take(panel * D), *p = take(kKeys * panel),
              *ds = take(kKeys * panel);
        auto of = [&](ConstHeads x) { return Rows{x.data + begin * x.stride + a * D, x.stride}; };
        auto out = [&](Heads x) { return OutRows{x.data + begin * x.stride + a * D, x.stride}; };
        auto wide = [&](Rows x) { return widened(x, n, D, W, ragged ? take(n * W) : nullptr); };
        auto wide_out = [&](OutRows x) { return ragged ? OutRows{take(n * W), W} : x; };
        Rows keys = of(k), values = of(v), key_rows = wide(keys), query_rows = wide(of(q)),
             dy_rows = wide(of(dy));
        OutRows to_q = wide_out(out(dq)), to_k = wide_out(out(dk)), to_v = wide_out(out(dv));
        alignas(64) float highest[kQueries] = {}, inverses[kQueries] = {}, delta[kQueries];
        Keys bits;

        for (int64_t i = 0; i < n; i += kQueries) {
            int64_t queries = std::min(kQueries, n - i), columns = whole(queries, VL);
            int64_t visible = causal ? i + queries : n;
            Rows from{of(dy).data + i * dy.stride, dy.stride};
            turn_rows({of(q).data + i * q.stride, q.stride}, queries, D, root(), turned_q, columns);
            turn_rows(from, queries, D, 1, turned_dy, columns);
            row_products(from, {of(y).data + i * y.stride, y.stride}, queries, D, delta, columns);
            for (int64_t r = 0; r < queries; ++r) {
                const float *kept = softmax + 2 * ((begin + i + r) * A + a);
                highest[r] = kept[0], inverses[r] = kept[1];
            }
            std::fill(inverses + queries, inverses + kQueries,
                      0.0f); // probabilities of queries that are not there
            if (drop.row_keys) {
                panel_keys(drop, begin + i, queries, a, bits);
            }
            for (int64_t j = 0; j < visible; j += kKeys) {
                int64_t here = std::min(kKeys, visible - j);
                Block block{j, here, i, columns, causal && j + here - 1 > i};
                product<false>(here, columns, D, keys.data + j * keys.stride, keys.stride, turned_q, columns,
                               p, columns, false);
                product<false>(here, columns, D, values.data + j * values.stride, values.stride, turned_dy,
                               columns, ds, columns, false);
                gradients(block, p, ds, highest, inverses, delta, bits);
                bool add =
                    i > (causal ? j / kQueries * kQueries : 0); // not the first panel that sees these keys
                product<false>(here, W, queries, p, columns, dy_rows.data + i * dy_rows.stride,
                               dy_rows.stride, to_v.data + j * to_v.stride, to_v.stride, add);
                product<false>(here, W, queries, ds, columns, query_rows.data + i * query_rows.stride,
                               query_rows.stride, to_k.data + j * to_k.stride, to_k.stride, add);
                product<true>(queries, W, here, ds, columns, key_rows.data + j * key_rows.stride,
                              key_rows.stride, to_q.data + i * to_q.stride, to_q.stride, j > 0);
            }
        }
        if (ragged) {
            narrow(to_q.data, W, n, D, out(dq));
            narrow(to_k.data, W, n, D, out(dk));
            narrow(to_v.data, W, n, D, out(dv));
        }
    }

    void gradients(const Block &block, float *s, float *dp, const float *highest, const float *inverses,
                   const float *delta, const Keys &bits) const {
        auto *function =
            drop.row_keys ? (block.diagonal ? score_gradients<true, true> : score_gradients<true, false>)
                          : (block.diagonal ? score_gradients<false, true> : score_gradients<false, false>);
        function(block, s, dp, highest, inverses, delta, root(), bits, drop.threshold, drop.scale);
    }
};

} // namespace

void attention_backward(Pool &pool, int64_t S, const int32_t *cu_seqlens, int64_t A, int64_t D, ConstHeads q,
                        ConstHeads k, ConstHeads v, bool causal, const Drop &drop, ConstHeads dy,
                        ConstHeads y, const float *softmax, Heads dq, Heads dk, Heads dv) {
    Backward backward{{cu_seqlens, A, D, causal, drop}, q, k, v, dy, y, softmax, dq, dk, dv};
    pool.run(S * A, [&](int64_t part) { backward.head(part / A, part % A); });
}

} // namespace MB_ISA
} // namespace mb
