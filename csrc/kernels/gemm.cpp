#include "gemm.h"

#include <algorithm>
#include <array>
#include <utility>

#include "pack.h"

namespace mb {
namespace MB_ISA {
namespace {

// The register tile: MR x NR sums, NV vectors of B, one broadcast of A. 14 x 2 + 2 + 1 of 32 registers, and
// 6 x 2 + 2 + 1 of 16.
#if defined(__AVX512F__)
constexpr int MR = 14, NV = 2;
#elif defined(__aarch64__)
constexpr int MR = 8, NV = 3;
#else
constexpr int MR = 6, NV = 2;
#endif
constexpr int NR = NV * VL;

// Blocks: a block of A (MC x KC units) stays in L2, a block of B (KC x NC) in L3.
constexpr int64_t KC = 640, MC = 168, NC = 128 * NR;
static_assert(kStrip % NR == 0 && NC % kStrip == 0, "a strip is made of panels, a block of strips");

// C (rows,NR) = or += sum over k of a[k] (rows of MR) outer b[k] (NR), in K units
template <typename How, int rows, bool add>
__attribute__((noinline)) void vector_tile(int64_t K, const float *__restrict a, const float *__restrict b,
                                           float *c, int64_t ldc) {
    vf sums[rows][NV] = {};
    for (int64_t k = 0; k < K; ++k) {
        vf right[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            right[j] = load(b + k * NR + j * VL);
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) {
                sums[i][j] = How::multiply_add(sums[i][j], a + k * MR + i, right[j]);
            }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            float *here = c + i * ldc + j * VL;
            store(here, add ? load(here) + sums[i][j] : sums[i][j]);
        }
}

// The same for `rows` rows.
template <typename How> struct VectorTile {
    static constexpr int kRows = MR;
    static constexpr int64_t kRound = 1; // of which the number of rows that are written is a multiple
    template <typename X> static constexpr auto left = pack<MR, How, X>;

    // By the number of rows, so that the last rows of a matrix cost no more than their share.
    using Tiles = std::array<decltype(&vector_tile<How, MR, false>), MR>;
    template <bool add, int... i> static constexpr Tiles all_of(std::integer_sequence<int, i...>) {
        return {vector_tile<How, i + 1, add>...};
    }
    static void multiply(int64_t K, const float *a, const float *b, float *c, int64_t ldc, int64_t rows,
                         bool add) {
        constexpr auto kEvery = std::make_integer_sequence<int, MR>();
        constexpr Tiles kTiles[2] = {all_of<false>(kEvery), all_of<true>(kEvery)};
        kTiles[add][rows - 1](K, a, b, c, ldc);
    }
};

#if defined(__AMX_BF16__)
// The same with AMX, which loads two left and two right tiles for four products.
struct AmxTile {
    static constexpr int kRows = 2 * kTile;
    static constexpr int64_t kRound = kTile;
    template <typename X> static constexpr auto left = pack_tiles<kRows, Narrow, X>;
    static_assert(NR == 2 * kTile, "a panel of B is two tiles wide");

    static void multiply(int64_t K, const float *a, const float *b, float *c, int64_t ldc, int64_t rows,
                         bool add) {
        auto both = rows > kTile ? multiply_tiles<true, true> : multiply_tiles<false, true>;
        both(K / kTile, a, kTile, kTile * kTile, kRows * kTile, b, NR, kTile * NR, c, ldc, add);
    }
};
using NarrowTile = AmxTile;
#else
struct Tiles {}; // which only AMX has
using NarrowTile = VectorTile<Narrow>;
#endif

// A way to multiply: how many elements along k a unit of the packed operands holds, how many units it takes at a time,
// what packs them, and a tile of at most so many rows.
struct Way {
    int64_t depth, step, rows, round;
    decltype(&pack<MR, Exact, float>) left[2], right[2]; // from float, from bf16
    decltype(&VectorTile<Exact>::multiply) multiply;
};

template <typename How, typename Tile>
constexpr Way kWay = {How::kDepth,
                      How::kStep,
                      Tile::kRows,
                      Tile::kRound,
                      {Tile::template left<float>, Tile::template left<bf16>},
                      {pack<NR, How, float>, pack<NR, How, bf16>},
                      Tile::multiply};
constexpr const Way &kExact = kWay<Exact, VectorTile<Exact>>, &kNarrow = kWay<Narrow, NarrowTile>;
constexpr int kMostRows = std::max(VectorTile<Exact>::kRows, NarrowTile::kRows);

// Have a tile of C on its way while its sums are computed. Stores of AMX that miss the cache wait for each other.
MB_INLINE void ask_for(const float *c, int64_t ldc, int64_t rows) {
    constexpr int kLine = 16; // floats
    for (int64_t i = 0; i < rows; ++i) {
        for (int j = 0; j < NR; j += kLine) {
            __builtin_prefetch(c + i * ldc + j, 1);
        }
    }
}

// C as parts for the threads: blocks of rows times groups of columns. Rows are divided evenly, columns only where one
// block has all rows and they are fewer than the columns. Neighbouring parts go to the same thread (Pool::run), so that
// rows of activations stay in one thread's cache from loop to loop. Each thread gets four parts where they are large
// enough, so that one that is done early can help another; fewer where they would be small, since every group of
// columns packs its rows anew.
class Grid {
  public:
    Grid(int64_t M, int64_t N, int64_t tile, int64_t strip, int64_t threads)
        : M_(M), N_(N), tile_(tile), strip_(strip), tall_(M > MC || M >= N || parts(N, strip) < threads),
          rows_(parts(parts(M, tile), MC / tile)) {
        if (threads > 1) {
            int64_t &cut = tall_ ? rows_ : columns_;
            int64_t enough = std::min(4 * threads, tall_ ? parts(M, 4 * tile) : parts(N, 1024));
            int64_t most = tall_ ? parts(M, tile) : parts(N, strip);
            cut = std::min(most, whole(std::max(cut, enough), threads));
        }
    }

    struct Part {
        int64_t i, i_end, j, j_end;
    };
    int64_t count() const { return rows_ * columns_; }
    bool one_row() const { return rows_ == 1; }
    Part part(int64_t number) const {
        int64_t row = tall_ ? number / columns_ : number % rows_;
        int64_t column = tall_ ? number % columns_ : number / rows_;
        return {border(row, rows_, M_, tile_), border(row + 1, rows_, M_, tile_),
                border(column, columns_, N_, strip_), border(column + 1, columns_, N_, strip_)};
    }

  private:
    // Where part `number` of `count` begins, of n that are cut at multiples of `unit`.
    static int64_t border(int64_t number, int64_t count, int64_t n, int64_t unit) {
        return std::min(n, parts(n, unit) * number / count * unit);
    }

    const int64_t M_, N_, tile_, strip_;
    const bool tall_;
    int64_t rows_, columns_ = 1;
};

// The tile at an edge of C: whole, beside it, then the part that is there.
__attribute__((noinline)) void edge_tile(const Way &way, int64_t K, const float *a, const float *b, float *c,
                                         int64_t ldc, int64_t rows, int64_t columns, bool add) {
    alignas(64) float all[kMostRows * NR];
    way.multiply(K, a, b, all, NR, rows, false);
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
            c[i * ldc + j] = (add ? c[i * ldc + j] : 0) + all[i * NR + j];
        }
    }
}

} // namespace

void gemm(Pool &pool, int64_t M, int64_t N, int64_t K, View A, View B, float *C, int64_t ldc, bool add,
          Epilogue epilogue, bool narrow) {
    if (M == 0 || N == 0) {
        return;
    }
    const int64_t threads = pool.threads();
    const Way &way = narrow ? kNarrow : kExact;
    // Blocks of equal depth; one where the sums of several would have to be kept and there is no C for them.
    int64_t n_k = C ? std::max<int64_t>(1, parts(K, KC * way.depth)) : 1;
    int64_t kc = std::max<int64_t>(1, whole(parts(K, n_k), way.depth * way.step));
    for (int64_t jc = 0; jc < N; jc += NC) {
        int64_t nc = std::min(NC, N - jc);
        Grid grid(M, nc, way.rows, epilogue.finish ? kStrip : NR, threads);
        for (int64_t pc = 0; pc == 0 || pc < K; pc += kc) {
            int64_t depth = std::min(kc, K - pc), units = whole(parts(depth, way.depth), way.step);
            bool last = pc + depth == K, adds = add || pc > 0;
            // Columns that only one part multiplies are packed by it, strip by strip, and stay in its thread's cache.
            const bool own = grid.one_row();
            auto packed = [&](int64_t columns) {
                return static_cast<float *>(
                    scratch(Slot::right, sizeof(float) * static_cast<size_t>(whole(columns, NR) * units)));
            };
            auto pack_right = [&](int64_t j, int64_t columns, float *to) {
                way.right[B.narrow](B.at(pc, jc + j), B.column, B.row, columns, depth, to);
            };
            float *right = own ? nullptr : packed(nc);
            if (!own) {
                int64_t some = NR * std::min<int64_t>(8, parts(nc, NR * threads));
                pool.run(parts(nc, some), [&](int64_t part) {
                    int64_t j = part * some;
                    pack_right(j, std::min(some, nc - j), right + j * units);
                });
            }
            pool.run(grid.count(), [&](int64_t part) {
                auto [i, i_end, j, j_end] = grid.part(part);
                [[maybe_unused]] Tiles tiles;
                auto *left = static_cast<float *>(
                    scratch(Slot::left,
                            sizeof(float) * static_cast<size_t>(whole(i_end - i, way.rows) * units + VL)));
                way.left[A.narrow](A.at(i, pc), A.row, A.column, i_end - i, depth, left);
                // What is finished is still in L2 when the epilogue comes to it, strip by strip.
                for (int64_t js = j; js < j_end; js += kStrip) {
                    int64_t js_end = std::min(j_end, js + kStrip), ld = C ? ldc : kStrip;
                    float *panels = own ? packed(js_end - js) : right + js * units;
                    if (own) {
                        pack_right(js, js_end - js, panels);
                    }
                    float *strip =
                        C ? C + i * ldc + jc + js
                          : static_cast<float *>(scratch(
                                Slot::strip, sizeof(float) * static_cast<size_t>((i_end - i) * kStrip)));
                    for (int64_t jr = js; jr < js_end; jr += NR) {
                        for (int64_t ir = i; ir < i_end; ir += way.rows) {
                            const float *a = left + (ir - i) * units, *panel = panels + (jr - js) * units;
                            float *c = strip + (ir - i) * ld + jr - js;
                            int64_t here = std::min(way.rows, i_end - ir);
                            ask_for(c, ld, here);
                            if (jr + NR <= j_end && here % way.round == 0) {
                                way.multiply(units, a, panel, c, ld, here, adds);
                            } else {
                                edge_tile(way, units, a, panel, c, ld, here,
                                          std::min<int64_t>(NR, j_end - jr), adds);
                            }
                        }
                    }
                    if (last && epilogue.finish) {
                        epilogue.finish(epilogue.self, i, i_end, jc + js, jc + js_end, strip, ld);
                    }
                }
            });
        }
    }
}

} // namespace MB_ISA
} // namespace mb
