// Products of 8-bit integers, for encoding alone: weights are quantized once, with a scale for each column, activations on
// the way, with a scale for each row (dynamic quantization). A part of gemm.cpp.
//   x_k ~ s q_k  with s = max |x| / 127, q whole;  w_k ~ t r_k  likewise for each column
//   sum_k x_k w_k ~ s t sum_k q_k r_k = s t (sum_k (q_k + 128) r_k - 128 sum_k r_k)
// The processor multiplies unsigned by signed bytes, hence q + 128. Whole sums are exact, in any order.
#pragma once

#include <cfloat>
#include <cmath>

#include "gemm.h"
#include "loops.h"

namespace mb {
namespace MB_ISA {
namespace {

#if defined(MB_BYTES)
constexpr int64_t kFour = 4; // bytes along k that lie side by side in the 32 bits of a unit
constexpr float kMost = 127;

struct Bytes {
    static MB_INLINE vf multiply_add(vf sums, const float *left, vf right) {
        int32_t four;
        std::memcpy(&four, left, sizeof four);
        return (vf)_mm512_dpbusd_epi32((__m512i)sums, _mm512_set1_epi32(four), (__m512i)right);
    }
};

// What stands behind the panels of a right operand, for each column: t, and 128 sum_k r_k as an integer.
struct OfColumns {
    float *scales;
    int32_t *offsets;

    OfColumns(float *panels, int64_t N, int64_t K, int64_t width)
        : scales(panels + whole(N, width) * parts(K, kFour)),
          offsets(reinterpret_cast<int32_t *>(scales + whole(N, width))) {}
};

// The scale for numbers of magnitude up to `most`, and its inverse: 0, which makes all of them 0, where they are too small
// for it to be finite. `value` is NaN where one of the numbers is not finite, and so is then the whole row or column.
struct Scale {
    float value, inverse;
    Scale(float most, float poison)
        : value(most / kMost + poison), inverse(most > 1e-30f && most <= FLT_MAX ? kMost / most : 0) {}
};

// `rows` rows of A as bytes, in rows of whole units, and their scales.
template <typename X>
void round_rows(const X *A, int64_t row, int64_t rows, int64_t K, float *to, float *scales) {
    const int64_t units = parts(K, kFour);
    for (int64_t i = 0; i < rows; ++i) {
        const X *from = A + i * row;
        vf highest = {}, poison = {};
        each_vector(0, K, [&](int64_t k, int m) {
            vf x = load_some(from + k, m);
            highest = max(highest, abs(x));
            poison += x * 0.0f;
        });
        float most = 0, poisoned = 0;
        for (int lane = 0; lane < VL; ++lane) {
            most = std::max(most, highest[lane]), poisoned += poison[lane];
        }
        const Scale scale(most, poisoned);
        scales[i] = scale.value;
        auto *bytes = reinterpret_cast<uint8_t *>(to + i * units);
        each_vector(0, K, [&](int64_t k, int m) {
            __m512i q = _mm512_maskz_cvtps_epi32(0xFFFF, (__m512)(load_some(from + k, m) * scale.inverse));
            __m128i narrow = _mm512_maskz_cvtsepi32_epi8(0xFFFF, q);
            narrow = _mm_xor_si128(narrow, _mm_set1_epi8(-128));
            _mm_mask_storeu_epi8(bytes + k, (__mmask16)((1u << m) - 1), narrow);
        });
        std::memset(bytes + K, 0, static_cast<size_t>(units * kFour - K)); // times zeros of B
    }
}

// sums = s t (sums - offsets), floats in the place of whole numbers, and then what else is to be done.
struct Unround {
    const float *scales;
    OfColumns columns;
    Epilogue then;

    static void finish(const void *self, int64_t i, int64_t i_end, int64_t j, int64_t j_end, float *sums,
                       int64_t ld) {
        auto &s = *static_cast<const Unround *>(self);
        for (int64_t row = i; row < i_end; ++row) {
            float *at = sums + (row - i) * ld;
            each_vector(j, j_end, [&](int64_t c, int m) {
                vi counted = (vi)load_some(at + c - j, m);
                vi offset = (vi)load_some(reinterpret_cast<const float *>(s.columns.offsets) + c, m);
                vf exact = __builtin_convertvector(counted - offset, vf);
                store_some(at + c - j, exact * (s.scales[row] * load_some(s.columns.scales + c, m)), m);
            });
        }
        if (s.then.finish) {
            s.then.finish(s.then.self, i, i_end, j, j_end, sums, ld);
        }
    }
};

// Columns [j, j + columns) of B, at most `width`, as one panel of units, with what belongs to them.
void round_panel(int64_t K, View B, int64_t j, int64_t columns, int64_t width, float *panel, OfColumns of) {
    auto element = [&](int64_t k, int64_t c) {
        const void *at = B.at(k, j + c);
        return B.narrow ? load(static_cast<const bf16 *>(at), 1)[0] : *static_cast<const float *>(at);
    };
    auto *bytes = reinterpret_cast<int8_t *>(panel);
    std::memset(bytes, 0, static_cast<size_t>(parts(K, kFour) * kFour * width));
    for (int64_t c = 0; c < columns; ++c) {
        float most = 0, poison = 0;
        for (int64_t k = 0; k < K; ++k) {
            most = std::max(most, std::fabs(element(k, c)));
            poison += element(k, c) * 0.0f;
        }
        const Scale scale(most, poison);
        int32_t sum = 0;
        for (int64_t k = 0; k < K; ++k) {
            float q = std::nearbyint(element(k, c) * scale.inverse);
            auto r = static_cast<int8_t>(std::min(kMost, std::max(-kMost, q)));
            bytes[(k / kFour * width + c) * kFour + k % kFour] = r;
            sum += r;
        }
        of.scales[j + c] = scale.value;
        of.offsets[j + c] = 128 * sum;
    }
}
#endif

} // namespace
} // namespace MB_ISA
} // namespace mb
