#include "blocks.h"

namespace mb {
namespace MB_ISA {
namespace {

// y += bias in rows [i, i_end) and columns [j, j_end)
struct AddBias {
    const float *bias;
    float *y;
    int64_t ldy;
};

void add_bias(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end) {
    auto [bias, y, ldy] = *static_cast<const AddBias *>(self);
    for (; i < i_end; ++i) {
        float *row = y + i * ldy;
        int64_t c = j;
        for (; c + VL <= j_end; c += VL)
            store(row + c, load(row + c) + load(bias + c));
        for (; c < j_end; ++c)
            row[c] += bias[c];
    }
}

} // namespace

void linear(Pool &pool, int64_t M, int64_t N, int64_t K, View x, View weight, const float *bias, float *y,
            int64_t ldy) {
    AddBias behind{bias, y, ldy};
    gemm(pool, M, N, K, x, weight, y, ldy, false, bias ? Epilogue{add_bias, &behind} : Epilogue{});
}

} // namespace MB_ISA
} // namespace mb
