#include "blocks.h"

#include "elementary.h"
#include "loops.h"

namespace mb {
namespace MB_ISA {
namespace {

// Call visit(offset from the beginning of the matrix, column, how many of VL) over a strip of it.
template <typename Visit>
MB_INLINE void each(int64_t i, int64_t i_end, int64_t j, int64_t j_end, int64_t ld, Visit visit) {
    for (; i < i_end; ++i) {
        int64_t c = j;
        for (; c + VL <= j_end; c += VL) {
            visit(i * ld + c, c, VL);
        }
        if (c < j_end) {
            visit(i * ld + c, c, static_cast<int>(j_end - c));
        }
    }
}

// y += bias
struct AddBias {
    const float *bias;
    float *y;
    int64_t ldy;

    static void finish(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end) {
        auto &s = *static_cast<const AddBias *>(self);
        each(i, i_end, j, j_end, s.ldy, [&](int64_t at, int64_t c, int n) {
            store_some(s.y + at, load_some(s.y + at, n) + load_some(s.bias + c, n), n);
        });
    }
};

// u += bias, y = gelu(u)
template <bool tanh_form> struct BiasGelu {
    const float *bias;
    float *u, *y;
    int64_t ld;

    static void finish(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end) {
        auto &s = *static_cast<const BiasGelu *>(self);
        each(i, i_end, j, j_end, s.ld, [&](int64_t at, int64_t c, int n) {
            vf x = load_some(s.u + at, n) + load_some(s.bias + c, n);
            store_some(s.u + at, x, n);
            store_some(s.y + at, x * gelu_parts_of<tanh_form>(x).cdf, n);
        });
    }
};

// du *= gelu'(u), u = gelu(u)
template <bool tanh_form> struct GeluSlope {
    float *u, *du;
    int64_t ld;

    static void finish(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end) {
        auto &s = *static_cast<const GeluSlope *>(self);
        each(i, i_end, j, j_end, s.ld, [&](int64_t at, int64_t, int n) {
            vf x = load_some(s.u + at, n);
            GeluParts parts = gelu_parts_of<tanh_form>(x);
            store_some(s.du + at, load_some(s.du + at, n) * (parts.cdf + x * parts.slope), n);
            store_some(s.u + at, x * parts.cdf, n);
        });
    }
};

} // namespace

void linear(Pool &pool, int64_t M, int64_t N, int64_t K, View x, View weight, const float *bias, float *y,
            int64_t ldy) {
    AddBias behind{bias, y, ldy};
    gemm(pool, M, N, K, x, weight, y, ldy, false, bias ? Epilogue{behind.finish, &behind} : Epilogue{});
}

void linear_gelu(Pool &pool, int64_t M, int64_t N, int64_t K, View x, View weight, const float *bias,
                 bool tanh_form, float *u, float *y) {
    BiasGelu<true> with_tanh{bias, u, y, N};
    BiasGelu<false> with_erf{bias, u, y, N};
    gemm(pool, M, N, K, x, weight, u, N, false,
         tanh_form ? Epilogue{with_tanh.finish, &with_tanh} : Epilogue{with_erf.finish, &with_erf});
}

void linear_gelu_backward(Pool &pool, int64_t M, int64_t N, int64_t K, View dy, View weight, bool tanh_form,
                          float *u, float *du) {
    GeluSlope<true> with_tanh{u, du, N};
    GeluSlope<false> with_erf{u, du, N};
    gemm(pool, M, N, K, dy, weight, du, N, false,
         tanh_form ? Epilogue{with_tanh.finish, &with_tanh} : Epilogue{with_erf.finish, &with_erf});
}

} // namespace MB_ISA
} // namespace mb
