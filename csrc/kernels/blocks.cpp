#include "blocks.h"

#include "elementary.h"

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

MB_INLINE vf load_some(const float *p, int n) { return n == VL ? load(p) : load(p, n); }

MB_INLINE void store_some(float *p, vf v, int n) { n == VL ? store(p, v) : store(p, v, n); }

// gelu(x) = x cdf, and its derivative cdf + x slope, as in minibert/ops/primitives.py
struct Gelu {
    vf cdf, slope;
};

template <bool tanh_form> MB_INLINE Gelu gelu_parts(vf x) {
    constexpr float kScale = 0.7978845608028654f, kCubic = 0.044715f; // sqrt(2 / pi)
    if (tanh_form) {
        vf squared = x * x, t = tanh(x * (squared * (kScale * kCubic) + kScale));
        vf cdf = t * 0.5f + 0.5f;
        return {cdf, cdf * (1.0f - t) * (squared * (3 * kScale * kCubic) + kScale)};
    }
    vf bell, cdf = normal_cdf(x, &bell);
    return {cdf, bell * 0.3989422804014327f}; // 1 / sqrt(2 pi)
}

// y += bias
struct AddBias {
    const float *bias;
    float *y;
    int64_t ldy;

    static void finish(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end) {
        auto [bias, y, ldy] = *static_cast<const AddBias *>(self);
        each(i, i_end, j, j_end, ldy, [&](int64_t at, int64_t c, int n) {
            store_some(y + at, load_some(y + at, n) + load_some(bias + c, n), n);
        });
    }
};

// u += bias, y = gelu(u)
template <bool tanh_form> struct BiasGelu {
    const float *bias;
    float *u, *y;
    int64_t ld;

    static void finish(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end) {
        auto [bias, u, y, ld] = *static_cast<const BiasGelu *>(self);
        each(i, i_end, j, j_end, ld, [&](int64_t at, int64_t c, int n) {
            vf x = load_some(u + at, n) + load_some(bias + c, n);
            store_some(u + at, x, n);
            store_some(y + at, x * gelu_parts<tanh_form>(x).cdf, n);
        });
    }
};

// du *= gelu'(u), u = gelu(u)
template <bool tanh_form> struct GeluSlope {
    float *u, *du;
    int64_t ld;

    static void finish(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end) {
        auto [u, du, ld] = *static_cast<const GeluSlope *>(self);
        each(i, i_end, j, j_end, ld, [&](int64_t at, int64_t, int n) {
            vf x = load_some(u + at, n);
            Gelu parts = gelu_parts<tanh_form>(x);
            store_some(du + at, load_some(du + at, n) * (parts.cdf + x * parts.slope), n);
            store_some(u + at, x * parts.cdf, n);
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
