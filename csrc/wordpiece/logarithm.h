/* The natural logarithm from + - * / alone, and what a likelihood merge gains, made of it.
 *
 * libm's log differs in its last bit from one library to the next. IEEE 754 fixes the result of every
 * operation here, so merging.py in NumPy computes the same bits in the same order of operations; change
 * both or none. Compilers must not fuse a * b + c into one rounding (-ffp-contract=off), nor keep more
 * than 53 bits.
 */
#ifndef WP_LOGARITHM_H
#define WP_LOGARITHM_H

#include <float.h>
#include <math.h>
#include <stdint.h>

#if FLT_EVAL_METHOD != 0
#error "minibert's learner needs plain double arithmetic (on 32-bit x86: -msse2 -mfpmath=sse)"
#endif

/* atanh(s) = s + s^3/3 + s^5/5 + ..., enough of it for |s| <= 1/5. */
static inline double wp_atanh(double s) {
    static const double inverse[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
                                     1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25};
    const double z = s * s;
    double sum = inverse[11];
    for (int k = 10; k >= 0; k--) {
        sum = sum * z + inverse[k];
    }
    return s + s * (z * sum);
}

/* log(x) for x >= 1: x = m 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1) / (m + 1)). */
static inline double wp_log(double x) {
    int exponent;
    double m = frexp(x, &exponent);
    if (m < 0.70710678118654757) {
        m = m * 2.0;
        exponent--;
    }
    /* log 2 in two parts; the first has trailing zeros, so that its multiples are exact. */
    const double e = exponent;
    return e * 6.93147180369123816490e-01 +
           (2.0 * wp_atanh((m - 1.0) / (m + 1.0)) + e * 1.90821492927058770002e-10);
}

/* f(count) - f(count - n) for f(x) = x log x, without subtracting two nearly equal numbers:
 * n log(count) + rest log(count / rest), rest = count - n. */
static inline double wp_fall(int64_t count, double log_count, int64_t n) {
    const int64_t rest = count - n;
    double log_ratio = 0.0;
    if (n <= rest / 2) {
        log_ratio = 2.0 * wp_atanh((double)n / (double)(count + rest));
    } else if (rest > 0) {
        log_ratio = log_count - wp_log((double)rest);
    }
    return (double)n * log_count + (double)rest * log_ratio;
}

/* By how much the log-likelihood rises when the n pairs of pieces that occur `left` and `right` times are
 * joined, among `total` pieces; `same`: left and right are one piece. Not yet rounded. */
static inline double wp_gain(int64_t n, double log_n, int64_t left, double log_left, int64_t right,
                             double log_right, int same, int64_t total, double log_total) {
    const double lost =
        same ? wp_fall(left, log_left, 2 * n) : wp_fall(left, log_left, n) + wp_fall(right, log_right, n);
    return ((double)n * log_n + wp_fall(total, log_total, n)) - lost;
}

/* Gains are rounded to multiples of 2^-16 nats. */
static inline double wp_rounded(double gain) { return rint(gain * 65536.0) / 65536.0; }

#endif
