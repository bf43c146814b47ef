// Functions of a vector, from arithmetic alone; what is not a number stays so. Errors are in units of the
// last place (ulp) of the float that is nearest to the true value, measured over their whole range
// (tests/native/test_kernels.cpp):
//   exp 1   tanh 3   normal_cdf 7, small tails included (1.2 in the mean)
// What is called coarse is for results that are rounded to bfloat16: relative errors of 1e-4 at most, where half a unit in
// the last place of a bfloat16 is 2e-3 to 4e-3.
// Coefficients are minimax polynomials, from csrc/kernels/fit.py. The file is not called math.h, which would
// hide the system's.
#pragma once

#include "simd.h"

namespace mb {
namespace MB_ISA {

constexpr float kLog2E = 1.44269504088896341f; // 1 / ln 2

// c[0] x^n + .. + c[n], the coefficients in the order in which fit.py prints them.
template <typename... C> MB_INLINE vf polynomial(vf x, float highest, C... others) {
    vf sum = all(highest);
    ((sum = sum * x + others), ...);
    return sum;
}

// e^x = 2^n e^r with n whole and |r| <= ln(2) / 2
struct Reduced {
    vf n, r;
};

MB_INLINE Reduced reduce(vf x) {
    constexpr float kRound = 12582912.0f; // 1.5 2^23; adding it rounds to whole numbers
    constexpr float kHigh = 0.693359375f, kLow = -2.12194440e-4f; // ln 2; n kHigh is exact
    vf n = (x * kLog2E + kRound) - kRound;
    return {n, (x - n * kHigh) - n * kLow};
}

// (e^r - 1 - r) / r^2; e^r from it has a relative error of 3e-9
MB_INLINE vf exp_rest(vf r) {
    return polynomial(r, 0.00138145406f, 0.00836874545f, 0.041668389f, 0.166665211f, 0.49999994f);
}

MB_INLINE vf exp(Reduced y) { return times_power_of_two((y.r * y.r) * exp_rest(y.r) + y.r + 1.0f, y.n); }

MB_INLINE vf exp(vf x) {
    return exp(reduce(max(all(-104.0f), min(all(89.0f), x)))); // 0 and infinity beyond
}

#if defined(__AVX512BF16__)
// 2^x for what is rounded to bfloat16, with a relative error of 3e-6: 2^floor(x) 2^r with 0 <= r < 1. Exact where x is
// whole; 0 and infinity beyond.
MB_INLINE vf coarse_exp2(vf x) {
    vf r = (vf)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    return times_power_of_two(polynomial(r, 0.0134266848f, 0.0522424728f, 0.241280198f, 0.693044841f, 1.0f),
                              x);
}
#endif

// With m = e^2|x| - 1 = 2^n (e^r - 1) + 2^n - 1:  tanh |x| = m / (m + 2), which keeps its precision near 0.
MB_INLINE vf tanh(vf x) {
    vf a = min(all(15.0f), abs(x));
    Reduced y = reduce(a + a);
    vf power = times_power_of_two(all(1.0f), y.n);
    vf m = power * ((y.r * y.r) * exp_rest(y.r) + y.r) + (power - 1.0f);
    return (vf)((vi)(m / (m + 2.0f)) | ((vi)x & kSign));
}

// The normal distribution function, and the bell e^(-x^2 / 2) that it is made of. With t = |x|, w = 1/(t + c)
//   Phi(-t) = e^(-t^2 / 2) w p(2 c w - 1),     p a polynomial, relative error 4.9e-8 for t up to 14,
// so that small tails are as precise as what is near 1.
constexpr float kCentre = 3.0f; // c

template <typename... C> MB_INLINE vf cdf_of_bell(vf x, vf bell, vf w, C... coefficients) {
    vf tail = bell * w * polynomial(w * (2 * kCentre) - 1.0f, coefficients...);
    return select(x < 0.0f, tail, 1.0f - tail);
}

MB_INLINE vf normal_cdf(vf x, vf *bell) {
    vf t = min(all(15.0f), abs(x));
    // e^(-t^2/2) magnifies the rounding of t^2. The upper half of t has an exact square; the rest is small.
    vf high = (vf)((vi)t & ~0xFFF), rest = (t - high) * (t + high);
    Reduced y = reduce(high * high * -0.5f);
    y.r -= rest * 0.5f;
    *bell = exp(y);
    return cdf_of_bell(x, *bell, 1.0f / (t + kCentre), -0.000265243987f, 0.000901019608f, 0.00107553927f,
                       -0.00692234747f, -0.0104800118f, 0.0472557768f, 0.230019376f, 0.509332299f,
                       0.729083657f);
}

#if defined(__AVX512BF16__)
// 1 / x, with a relative error of 6e-5.
MB_INLINE vf coarse_inverse(vf x) { return (vf)_mm512_maskz_rcp14_ps(0xFFFF, (__m512)x); }

// The same as normal_cdf with fewer terms.
MB_INLINE vf coarse_normal_cdf(vf x, vf *bell) {
    vf t = min(all(15.0f), abs(x));
    *bell = coarse_exp2(t * t * (-0.5f * kLog2E));
    return cdf_of_bell(x, *bell, coarse_inverse(t + kCentre), -0.00493738661f, -0.00983047951f, 0.0463516749f,
                       0.229876116f, 0.509423554f, 0.729090035f);
}
#endif

// What GELU is made of, as exactly as a result of type Y can tell.
template <typename Y> struct Functions {
    static MB_INLINE vf cdf(vf x, vf *bell) { return normal_cdf(x, bell); }
    static MB_INLINE vf power(vf x) { return exp(x); } // x <= 0
    static MB_INLINE vf inverse(vf x) { return 1.0f / x; }
};
#if defined(__AVX512BF16__)
template <> struct Functions<bf16> {
    static MB_INLINE vf cdf(vf x, vf *bell) { return coarse_normal_cdf(x, bell); }
    static MB_INLINE vf power(vf x) { return coarse_exp2(x * kLog2E); }
    static MB_INLINE vf inverse(vf x) { return coarse_inverse(x); }
};
#endif

// gelu(x) = x cdf, and its derivative is cdf + x slope.
struct GeluParts {
    vf cdf, slope;
};

// The tanh form is x s(v) with the logistic function s and v = 2 sqrt(2/pi) (x + 0.044715 x^3), since
// (1 + tanh(v/2)) / 2 = s(v). With e = e^-|v| it is 1 / (1 + e) or e / (1 + e), and s' = e / (1 + e)^2:
// nothing overflows, and small tails keep their precision.
template <typename Y, bool tanh_form> MB_INLINE GeluParts gelu_parts_of(vf x) {
    using F = Functions<Y>;
    if (!tanh_form) {
        vf bell, cdf = F::cdf(x, &bell);
        return {cdf, bell * 0.3989422804014327f}; // 1 / sqrt(2 pi)
    }
    constexpr float kScale = 1.5957691216057308f, kCubic = kScale * 0.044715f;
    vf squared = x * x, e = F::power(-abs(x * (squared * kCubic + kScale))), inverse = F::inverse(1.0f + e);
    return {select(x < 0.0f, e, all(1.0f)) * inverse,
            e * inverse * inverse * (squared * (3 * kCubic) + kScale)};
}

} // namespace MB_ISA
} // namespace mb
