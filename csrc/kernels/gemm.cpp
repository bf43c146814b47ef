#include "gemm.h"

#include <algorithm>
#include <array>
#include <utility>

#include "bytes.h"
#include "memory.h"
#include "pack.h"

namespace mb {
namespace MB_ISA {
namespace {

// The register tile: MR x NV vectors of sums, NV vectors of B, one broadcast of A. 14 x 2 + 2 + 1 of 32 registers, and
// 6 x 2 + 2 + 1 of 16.
#if defined(__AVX512F__)
constexpr int MR = 14, NV = 2;
#elif defined(__aarch64__)
constexpr int MR = 8, NV = 3;
#else
constexpr int MR = 6, NV = 2;
#endif

// The five loops of BLIS around the register tile, from the outermost, under the names that its papers give them:
//   jc  N in blocks of NC columns
//   pc  K in blocks of KC units: a block of B (KC x NC) is packed, panel by panel of as many columns as a tile, and stays
//       in L3
//   ic  M in blocks of at most MC rows, which the threads share (Grid): a block of A (MC x KC) is packed, panel by panel of
//       as many rows as a tile, and stays in L2
//   jr  the panels of B
//   ir  the panels of A, each of which makes a tile of C with the panel of B
// Between ic and jr a block of C is cut into strips (js), which an epilogue finishes while they are still in L2.
constexpr int64_t KC = 640, MC = 168, NC = 128 * NV * VL;
static_assert(NC % kStrip == 0, "a block is made of strips");

// C (rows,NV VL) = or += sum over k of column k of A (rows) outer b[k] (NV VL), in K units. Column k is a[k] of a panel
// of MR rows, or is read where A lies, in rows of lda.
template <typename How, int MR, int NV, bool in_place, int rows, bool add>
__attribute__((noinline)) void vector_tile(int64_t K, const float *__restrict a, int64_t lda,
                                           const float *__restrict b, float *c, int64_t ldc) {
    vf sums[rows][NV] = {};
    for (int64_t k = 0; k < K; ++k) {
        vf right[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) {
            right[j] = load(b + (k * NV + j) * VL);
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < NV; ++j) {
                const float *left = in_place ? a + i * lda + k : a + k * MR + i;
                sums[i][j] = How::multiply_add(sums[i][j], left, right[j]);
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
template <typename How, int MR, int NV, bool in_place = false> struct VectorTile {
    static constexpr int kRows = MR, kColumns = NV * VL;
    static_assert(kStrip % kColumns == 0, "a strip is made of panels");
    static constexpr bool kInPlace = in_place;
    static constexpr int64_t kRound = 1; // of which the number of rows that are written is a multiple
    template <typename X> static constexpr auto left = pack<MR, How, X>;

    // By the number of rows, so that the last rows of a matrix cost no more than their share.
    using Tiles = std::array<decltype(&vector_tile<How, MR, NV, in_place, MR, false>), MR>;
    template <bool add, int... i> static constexpr Tiles all_of(std::integer_sequence<int, i...>) {
        return {vector_tile<How, MR, NV, in_place, i + 1, add>...};
    }
    static void multiply(int64_t K, const float *a, int64_t lda, const float *b, float *c, int64_t ldc,
                         int64_t rows, bool add) {
        constexpr auto kEvery = std::make_integer_sequence<int, MR>();
        constexpr Tiles kTiles[2] = {all_of<false>(kEvery), all_of<true>(kEvery)};
        kTiles[add][rows - 1](K, a, lda, b, c, ldc);
    }
};

#if defined(__AMX_BF16__)
// The same with AMX, which loads two left and two right tiles for four products.
struct AmxTile {
    static constexpr int kRows = 2 * kTile, kColumns = 2 * kTile;
    static_assert(kStrip % kColumns == 0, "a strip is made of panels");
    static constexpr bool kInPlace = false;
    static constexpr int64_t kRound = kTile;
    template <typename X> static constexpr auto left = pack_tiles<kRows, Narrow, X>;

    static void multiply(int64_t K, const float *a, int64_t, const float *b, float *c, int64_t ldc,
                         int64_t rows, bool add) {
        auto both = rows > kTile ? multiply_tiles<true, true> : multiply_tiles<false, true>;
        both(K / kTile, a, kTile, kTile * kTile, kRows * kTile, b, kColumns, kTile * kColumns, c, ldc, add);
    }
};
using NarrowTile = AmxTile;
#else
struct Tiles {}; // which only AMX has
using NarrowTile = VectorTile<Narrow, MR, NV>;
#endif

// A way to multiply: how many elements along k a unit of the packed operands holds, how many units it takes at a time;
// a tile of at most so many rows and of so many columns; what packs the operands, the left one where it is packed.
struct Way {
    int64_t depth, step, rows, columns, round;
    bool in_place;
    decltype(&pack<MR, Exact, float>) left[2], right[2]; // from float, from bf16
    decltype(&VectorTile<Exact, MR, NV>::multiply) multiply;
};

template <typename How, typename Tile>
constexpr Way kWay = {How::kDepth,
                      How::kStep,
                      Tile::kRows,
                      Tile::kColumns,
                      Tile::kRound,
                      Tile::kInPlace,
                      {Tile::template left<float>, Tile::template left<bf16>},
                      {pack<Tile::kColumns, How, float>, pack<Tile::kColumns, How, bf16>},
                      Tile::multiply};

// The tile of few rows and many columns, where there are registers for it.
template <typename How, bool in_place> using WideTile = VectorTile<How, 6, 4, in_place>;

// How A B is multiplied, K deep. Rows of A that lie in one piece, in units of this way, are not packed where the tile is
// wide: six rows are what a first cache holds, whatever lies between them. A B that is laid out has panels as wide.
template <typename How, typename Packed>
const Way &way_of([[maybe_unused]] const View &A, [[maybe_unused]] const View &B,
                  [[maybe_unused]] int64_t K) {
    if constexpr (VL == 16 && How::kInPlace) {
        if (A.column == 1 && A.narrow == (How::kDepth > 1) && A.row % How::kDepth == 0 &&
            K % How::kDepth == 0) {
            return kWay<How, WideTile<How, true>>;
        }
        if (B.panels) {
            return kWay<How, WideTile<How, false>>;
        }
    }
    return kWay<How, Packed>;
}

#if defined(MB_BYTES)
// `round_rows` writes rows of units, so they are read in place.
using ByteTile = VectorTile<Bytes, 6, 4, true>;
constexpr Way kByteWay = {1,  1,  ByteTile::kRows,   ByteTile::kColumns, ByteTile::kRound, true,
                          {}, {}, ByteTile::multiply};
#endif

const Way &way_of(const View &A, const View &B, int64_t K, bool narrow) {
#if defined(MB_BYTES)
    if (A.bytes) {
        return kByteWay;
    }
#endif
    return narrow ? way_of<Narrow, NarrowTile>(A, B, K) : way_of<Exact, VectorTile<Exact, MR, NV>>(A, B, K);
}

// What B is laid out for.
const Way &way_of_panels(bool narrow) {
    static const float some = 0;
    return way_of({}, {nullptr, 0, 0, false, &some}, 1, narrow);
}

// Floats of the largest tile.
constexpr int64_t kLargestTile =
    std::max({MR * NV * VL, WideTile<Exact, true>::kRows * WideTile<Exact, true>::kColumns,
              NarrowTile::kRows * NarrowTile::kColumns});

// C as parts for the threads: blocks of rows times groups of columns. By preference rows are divided, evenly, and columns
// only where one block has all rows and they are fewer than the columns. Neighbouring parts go to the same thread
// (Pool::run), so that rows of activations stay in one thread's cache from loop to loop. Each thread gets four parts
// where they are large enough, so that one that is done early can help another; fewer where they would be small, since
// every group of columns packs its rows anew. Where one direction has too few tiles or strips to keep all threads busy to
// the end, as with 16 threads and 19 tiles, the other is cut as well.
class Grid {
  public:
    Grid(int64_t M, int64_t N, int64_t tile, int64_t strip, int64_t threads, bool packs)
        : M_(M), N_(N), tile_(tile), strip_(strip), tall_(M > MC || M >= N || parts(N, strip) < threads),
          rows_(parts(parts(M, tile), MC / tile)) {
        if (threads == 1) {
            return;
        }
        const int64_t tiles = parts(M, tile), strips = parts(N, strip);
        const int64_t finest = tall_ ? tiles : strips, finest_across = tall_ ? strips : tiles;
        int64_t &cut = tall_ ? rows_ : columns_, &across = tall_ ? columns_ : rows_;
        int64_t enough = std::min(4 * threads, tall_ ? parts(M, 4 * tile) : parts(N, 1024));
        cut = std::min(finest, whole(std::max(cut, enough), threads));
        if (static_cast<double>(finest) >= kBusy * static_cast<double>(whole(finest, threads))) {
            return;
        }
        // How long the loop takes, in columns of a tile, were all parts as large as the largest of them.
        auto time = [&](int64_t rows, int64_t columns) {
            return parts(rows * columns, threads) * parts(tiles, rows) *
                   (parts(strips, columns) * strip + (packs ? kPacking : 0));
        };
        int64_t least = time(rows_, columns_);
        for (int64_t groups = across; groups <= finest_across; ++groups) {
            int64_t other = tall_ ? time(finest, groups) : time(groups, finest);
            if (other < least) {
                least = other, cut = finest, across = groups;
            }
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
    static constexpr double kBusy = 0.85; // the share of the threads' time that is good enough
    // Packing the rows of a part takes as long as multiplying them by so many columns.
    static constexpr int64_t kPacking = 32;

    // Where part `number` of `count` begins, of n that are cut at multiples of `unit`.
    static int64_t border(int64_t number, int64_t count, int64_t n, int64_t unit) {
        return std::min(n, parts(n, unit) * number / count * unit);
    }

    const int64_t M_, N_, tile_, strip_;
    const bool tall_;
    int64_t rows_, columns_ = 1;
};

// The tile at an edge of C: whole, beside it, then the part that is there.
__attribute__((noinline)) void edge_tile(const Way &way, int64_t K, const float *a, int64_t lda,
                                         const float *b, float *c, int64_t ldc, int64_t rows, int64_t columns,
                                         bool add) {
    alignas(64) float all[kLargestTile]; // may hold bits of integers, then !add: they are only copied
    way.multiply(K, a, lda, b, all, way.columns, rows, false);
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
            float sum = all[i * way.columns + j];
            c[i * ldc + j] = add ? c[i * ldc + j] + sum : sum;
        }
    }
}

// The loops jr and ir: C (rows,columns) = or += a block of A times panels of B. The block is packed, or lies in rows of lda;
// a column of B takes `of_column` floats, on the average of its panel.
void macro_kernel(const Way &way, int64_t rows, int64_t columns, int64_t units, const float *A, int64_t lda,
                  const float *B, int64_t of_column, float *C, int64_t ldc, bool add) {
    for (int64_t jr = 0; jr < columns; jr += way.columns) {
        const float *panel = B + jr * of_column;
        const int64_t width = std::min(way.columns, columns - jr);
        for (int64_t ir = 0; ir < rows; ir += way.rows) {
            const float *a = A + ir * lda;
            float *c = C + ir * ldc + jr;
            const int64_t height = std::min(way.rows, rows - ir);
            // C is on its way while its sums are computed: stores of AMX that miss the cache wait for each other.
            for (int64_t row = 0; row < height; ++row) {
                ask_for(c + row * ldc, width);
            }
            if (width == way.columns && height % way.round == 0) {
                way.multiply(units, a, lda, panel, c, ldc, height, add);
            } else {
                edge_tile(way, units, a, lda, panel, c, ldc, height, width, add);
            }
        } // ir
    } // jr
}

#if defined(MB_BYTES)
// A B with B as bytes: rows of A are quantized, and units of four are multiplied like floats in place. Rows may lie in the
// slot for the right operand, since that one is laid out.
void gemm_of_bytes(Pool &pool, int64_t M, int64_t N, int64_t K, View A, View B, float *C, int64_t ldc,
                   Epilogue epilogue) {
    const int64_t units = parts(K, kFour);
    auto *rows = scratch<float>(Slot::right, M * (units + 1)), *scales = rows + M * units;
    each_piece(pool, M, larger(1, kChunk / larger(1, K)), [&](int64_t i, int64_t i_end) {
        auto round = [&](auto *from) { round_rows(from, A.row, i_end - i, K, rows + i * units, scales + i); };
        A.narrow ? round(static_cast<const bf16 *>(A.at(i, 0)))
                 : round(static_cast<const float *>(A.at(i, 0)));
    });
    OfColumns columns(const_cast<float *>(B.panels), N, K, kByteWay.columns);
    Unround unround{scales, columns, epilogue};
    gemm(pool, M, N, units, {rows, units, 1, false, nullptr, true}, B, C, ldc, false,
         {unround.finish, &unround});
}
#endif

} // namespace

void gemm(Pool &pool, int64_t M, int64_t N, int64_t K, View A, View B, float *C, int64_t ldc, bool add,
          Epilogue epilogue, bool narrow) {
    if (M == 0 || N == 0) {
        return;
    }
#if defined(MB_BYTES)
    if (B.bytes && !A.bytes) {
        if (A.column == 1 && K > 0 && !add) {
            return gemm_of_bytes(pool, M, N, K, A, B, C, ldc, epilogue);
        }
        B.panels = nullptr, B.bytes = false; // the exact ones are there as well
    }
#endif
    const int64_t threads = pool.threads();
    const Way &way = way_of(A, B, K, narrow);
    const int64_t width = way.columns, all_units = whole(parts(K, way.depth), way.step);
    // Blocks of equal depth; one where sums of several would have to be kept and there is no C for them, or are integers.
    int64_t n_k = C && !A.bytes ? std::max<int64_t>(1, parts(K, KC * way.depth)) : 1;
    int64_t kc = std::max<int64_t>(1, whole(parts(K, n_k), way.depth * way.step));
    for (int64_t jc = 0; jc < N; jc += NC) {
        int64_t nc = std::min(NC, N - jc);
        Grid grid(M, nc, way.rows, epilogue.finish ? kStrip : width, threads, !way.in_place);
        for (int64_t pc = 0; pc == 0 || pc < K; pc += kc) {
            int64_t depth = std::min(kc, K - pc), units = whole(parts(depth, way.depth), way.step);
            bool last = pc + depth == K, adds = add || pc > 0;
            // Columns that only one part multiplies are packed by it, strip by strip, and stay in its thread's cache.
            const bool own = grid.one_row() && !B.panels;
            auto packed = [&](int64_t columns) {
                return scratch<float>(Slot::right, whole(columns, width) * units);
            };
            auto pack_right = [&](int64_t j, int64_t columns, float *to) {
                way.right[B.narrow](B.at(pc, jc + j), B.column, B.row, columns, depth, to);
            };
            float *right = own || B.panels ? nullptr : packed(nc);
            if (right) {
                int64_t some = width * std::min<int64_t>(8, parts(nc, width * threads));
                pool.run(parts(nc, some), [&](int64_t part) {
                    int64_t j = part * some;
                    pack_right(j, std::min(some, nc - j), right + j * units);
                });
            }
            pool.run(grid.count(), [&](int64_t part) {
                auto [i, i_end, j, j_end] = grid.part(part);
                [[maybe_unused]] Tiles tiles;
                auto *left = static_cast<const float *>(A.at(i, pc));
                int64_t lda = A.row / way.depth;
                if (!way.in_place) {
                    auto *to = scratch<float>(Slot::left, whole(i_end - i, way.rows) * units + VL);
                    way.left[A.narrow](left, A.row, A.column, i_end - i, depth, to);
                    left = to, lda = units; // from panel to panel; inside of one rows lie side by side
                }
                // What is finished is still in L2 when the epilogue comes to it, strip by strip.
                for (int64_t js = j; js < j_end; js += kStrip) {
                    int64_t js_end = std::min(j_end, js + kStrip), ld = C ? ldc : kStrip;
                    const float *panels;
                    int64_t of_column = units; // floats from column to column, on the average of a panel
                    if (B.panels) {
                        panels = B.panels + (jc + js) * all_units + pc / way.depth * width;
                        of_column = all_units;
                    } else if (own) {
                        float *to = packed(js_end - js);
                        pack_right(js, js_end - js, to);
                        panels = to;
                    } else {
                        panels = right + js * units;
                    }
                    float *strip =
                        C ? C + i * ldc + jc + js : scratch<float>(Slot::strip, (i_end - i) * kStrip);
                    macro_kernel(way, i_end - i, js_end - js, units, left, lda, panels, of_column, strip, ld,
                                 adds);
                    if (last && epilogue.finish) {
                        epilogue.finish(epilogue.self, i, i_end, jc + js, jc + js_end, strip, ld);
                    }
                } // js
            }); // ic
        } // pc
    } // jc
}

int64_t laid_out_size(int64_t N, int64_t K, bool narrow) {
    const Way &way = way_of_panels(narrow);
    return whole(N, way.columns) * whole(parts(K, way.depth), way.step);
}

void lay_out(Pool &pool, int64_t N, int64_t K, View B, float *panels, bool narrow) {
    const Way &way = way_of_panels(narrow);
    int64_t units = whole(parts(K, way.depth), way.step);
    pool.run(parts(N, way.columns), [&](int64_t part) {
        int64_t j = part * way.columns;
        way.right[B.narrow](B.at(0, j), B.column, B.row, std::min(way.columns, N - j), K, panels + j * units);
    });
}

#if defined(MB_BYTES)
int64_t bytes_size(int64_t N, int64_t K) { return whole(N, kByteWay.columns) * (parts(K, kFour) + 2); }

void lay_out_bytes(Pool &pool, int64_t N, int64_t K, View B, float *panels) {
    const int64_t width = kByteWay.columns;
    OfColumns of(panels, N, K, width);
    pool.run(parts(N, width), [&](int64_t part) {
        int64_t j = part * width;
        round_panel(K, B, j, std::min(width, N - j), width, panels + j * parts(K, kFour), of);
    });
}
#else
int64_t bytes_size(int64_t, int64_t) { return 0; }
void lay_out_bytes(Pool &, int64_t, int64_t, View, float *) {}
#endif

} // namespace MB_ISA
} // namespace mb
