#include "blocks.h"

#include <initializer_list>

#include "elementary.h"
#include "loops.h"

namespace mb {
namespace MB_ISA {
namespace {

// Call visit(row, column, how many of VL) over a strip of `results`, which are matrices in rows of ld. Lines that are a
// row apart no prefetcher of a processor follows: rows are asked for before their turn.
template <typename X, typename Visit>
MB_INLINE void each(int64_t i, int64_t i_end, int64_t j, int64_t j_end, std::initializer_list<X *> results,
                    int64_t ld, Visit visit) {
    constexpr int64_t kAhead = 8;
    for (; i < i_end; ++i) {
        for (X *result : results) {
            if (i + kAhead < i_end) {
                ask_for(result + (i + kAhead) * ld + j, j_end - j);
            }
        }
        each_vector(j, j_end, [&](int64_t c, int n) { visit(i, c, n); });
    }
}

// Each of these takes finished sums to where they belong, which may be where they stand.
// y = sums + bias
template <typename X> struct AddBias {
    const float *bias;
    X *y;
    int64_t ldy;

    static void finish(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end, float *sums,
                       int64_t ld) {
        auto &s = *static_cast<const AddBias *>(self);
        each(i, i_end, j, j_end, {s.y}, s.ldy, [&](int64_t row, int64_t c, int n) {
            vf x = load_some(sums + (row - i) * ld + c - j, n);
            store_some(s.y + row * s.ldy + c, s.bias ? x + load_some(s.bias + c, n) : x, n);
        });
    }
};

// u = sums + bias, y = gelu(u)
template <typename X, bool tanh_form> struct BiasGelu {
    const float *bias;
    X *u, *y;
    int64_t N;

    static void finish(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end, float *sums,
                       int64_t ld) {
        auto &s = *static_cast<const BiasGelu *>(self);
        each(i, i_end, j, j_end, {s.u, s.y}, s.N, [&](int64_t row, int64_t c, int n) {
            vf x = load_some(sums + (row - i) * ld + c - j, n) + load_some(s.bias + c, n);
            store_some(s.u + row * s.N + c, x, n);
            store_some(s.y + row * s.N + c, x * gelu_parts_of<X, tanh_form>(x).cdf, n);
        });
    }
};

// du = sums gelu'(u), u = gelu(u)
template <typename X, bool tanh_form> struct GeluSlope {
    X *u, *du;
    int64_t N;

    static void finish(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end, float *sums,
                       int64_t ld) {
        auto &s = *static_cast<const GeluSlope *>(self);
        each(i, i_end, j, j_end, {s.u, s.du}, s.N, [&](int64_t row, int64_t c, int n) {
            X *at = s.u + row * s.N + c;
            vf x = load_some(at, n);
            GeluParts parts = gelu_parts_of<X, tanh_form>(x);
            vf dy = load_some(sums + (row - i) * ld + c - j, n);
            store_some(s.du + row * s.N + c, dy * (parts.cdf + x * parts.slope), n);
            store_some(at, x * parts.cdf, n);
        });
    }
};

} // namespace

template <typename X>
void linear(Pool &pool, int64_t M, int64_t N, int64_t K, View x, View weight, const float *bias, X *y,
            int64_t ldy, bool narrow) {
    AddBias<X> behind{bias, y, ldy};
    float *sums = place_for_sums(y);
    bool done = sums != nullptr && bias == nullptr;
    gemm(pool, M, N, K, x, weight, sums, ldy, false, done ? Epilogue{} : Epilogue{behind.finish, &behind},
         narrow);
}

template <typename X>
void linear_gelu(Pool &pool, int64_t M, int64_t N, int64_t K, View x, View weight, const float *bias,
                 bool tanh_form, X *u, X *y, bool narrow) {
    BiasGelu<X, true> with_tanh{bias, u, y, N};
    BiasGelu<X, false> with_erf{bias, u, y, N};
    gemm(pool, M, N, K, x, weight, place_for_sums(u), N, false,
         tanh_form ? Epilogue{with_tanh.finish, &with_tanh} : Epilogue{with_erf.finish, &with_erf}, narrow);
}

template <typename X>
void linear_gelu_backward(Pool &pool, int64_t M, int64_t N, int64_t K, View dy, View weight, bool tanh_form,
                          X *u, X *du, bool narrow) {
    GeluSlope<X, true> with_tanh{u, du, N};
    GeluSlope<X, false> with_erf{u, du, N};
    gemm(pool, M, N, K, dy, weight, place_for_sums(du), N, false,
         tanh_form ? Epilogue{with_tanh.finish, &with_tanh} : Epilogue{with_erf.finish, &with_erf}, narrow);
}

template decltype(linear<float>) linear<float>;
template decltype(linear<bf16>) linear<bf16>;
template decltype(linear_gelu<float>) linear_gelu<float>;
template decltype(linear_gelu<bf16>) linear_gelu<bf16>;
template decltype(linear_gelu_backward<float>) linear_gelu_backward<float>;
template decltype(linear_gelu_backward<bf16>) linear_gelu_backward<bf16>;

} // namespace MB_ISA
} // namespace mb
