#include "updates.h"

#include <cstring>
#include <utility>

#include "gemm.h"
#include "loops.h"
#include "memory.h"

namespace mb {
namespace MB_ISA {
namespace {

constexpr int64_t kPart = 1 << 16; // elements whose squares are one term of the norm

typedef float half __attribute__((vector_size(2 * VL)));
typedef double vd __attribute__((vector_size(4 * VL))); // of VL / 2 numbers

MB_INLINE vd load_double(const float *p) {
    half v;
    std::memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, vd);
}

// Four streams at once: of a single one a core prefetches too little.
double sum_of_squares(int64_t n, const float *x) {
    constexpr int kSums = 4;
    vd sums[kSums] = {};
    int64_t apart = n / kSums / (VL / 2) * (VL / 2);
    for (int64_t i = 0; i < apart; i += VL / 2) {
        for (int j = 0; j < kSums; ++j) {
            vd v = load_double(x + j * apart + i);
            sums[j] += v * v;
        }
    }
    double total = 0;
    for (int64_t i = kSums * apart; i < n; ++i) {
        total += (double)x[i] * (double)x[i];
    }
    for (int j = 0; j < kSums; ++j) {
        for (int lane = 0; lane < VL / 2; ++lane) {
            total += sums[j][lane];
        }
    }
    return total;
}

// m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2,   g = clip grads
// params -= lr (m_scale m / (sqrt(v_scale v) + eps) + weight_decay params)
template <bool decays>
void sweep(int64_t begin, int64_t end, float *params, float *grads, float *m, float *v, const AdamW &step) {
    const float clip = (float)step.clip, eps = (float)step.eps, lr = (float)step.lr;
    const float beta1 = (float)step.beta1, rest1 = (float)(1 - step.beta1), m_scale = (float)step.m_scale;
    const float beta2 = (float)step.beta2, rest2 = (float)(1 - step.beta2), v_scale = (float)step.v_scale;
    const float weight_decay = (float)step.weight_decay;
    each_vector(begin, end, [&](int64_t i, int n) {
        vf p = load_some(params + i, n), g = load_some(grads + i, n) * clip;
        vf first = load_some(m + i, n) * beta1 + g * rest1;
        vf second = load_some(v + i, n) * beta2 + g * g * rest2;
        vf direction = first * m_scale / (sqrt(second * v_scale) + eps);
        if (decays) {
            direction += p * weight_decay;
        }
        store_some(m + i, first, n);
        store_some(v + i, second, n);
        store_some(params + i, p - direction * lr, n);
        if (step.clears) {
            store_some(grads + i, vf{}, n);
        }
    });
}

} // namespace

void accumulate(Pool &pool, int64_t n, float *total, const float *extra) {
    each_piece(pool, n, kChunk, [&](int64_t begin, int64_t end) {
        each_vector(begin, end, [&](int64_t i, int m) {
            store_some(total + i, load_some(total + i, m) + load_some(extra + i, m), m);
        });
    });
}

void clear(Pool &pool, int64_t n, float *x) {
    each_piece(pool, n, kPart, [&](int64_t begin, int64_t end) {
        std::memset(x + begin, 0, sizeof(float) * (size_t)(end - begin));
    });
}

double global_norm(Pool &pool, int64_t n, const float *x) {
    int64_t count = parts(n, kPart);
    auto *sums = scratch<double>(Slot::sums, count);
    pool.run(count, [&](int64_t part) {
        sums[part] = sum_of_squares(smaller(kPart, n - part * kPart), x + part * kPart);
    });
    double total = 0;
    for (int64_t part = 0; part < count; ++part) {
        total += sums[part];
    }
    return __builtin_sqrt(total);
}

void adamw(Pool &pool, int64_t n, float *params, float *grads, float *m, float *v, int64_t K,
           const int64_t *decayed, const AdamW &step) {
    each_piece(pool, n, kChunk, [&](int64_t at, int64_t end) {
        for (int64_t k = 0; k < K && at < end; ++k) {
            int64_t from = larger(at, smaller(end, decayed[2 * k]));
            int64_t to = larger(from, smaller(end, decayed[2 * k + 1]));
            sweep<false>(at, from, params, grads, m, v, step);
            sweep<true>(from, to, params, grads, m, v, step);
            at = to;
        }
        sweep<false>(at, end, params, grads, m, v, step);
    });
}

// X <- (a + b S + c S S) X  with  S = X X^T.  c S S is the product of sqrt(c) S with itself, and is added to a + b S.
void orthogonalise(Pool &pool, int64_t M, int64_t N, float *X, bool narrow) {
    constexpr int kIterations = 5;
    constexpr float a = 3.4445f, b = -4.775f, c = 2.0315f;
    const float root = __builtin_sqrtf(c);
    double length = global_norm(pool, M * N, X);
    const float inverse = (float)(1 / (length > 1e-7 ? length : 1e-7));
    each_piece(pool, M * N, kChunk, [&](int64_t begin, int64_t end) {
        each_vector(begin, end,
                    [&](int64_t i, int n) { store_some(X + i, load_some(X + i, n) * inverse, n); });
    });
    auto *squares = scratch<float>(Slot::scratch, 2 * M * M + M * N);
    float *factors = squares + M * M, *from = X, *to = factors + M * M;
    for (int iteration = 0; iteration < kIterations; ++iteration) {
        gemm(pool, M, M, N, {from, N, 1}, {from, 1, N}, squares, M, false, {}, narrow);
        each_row(pool, M, M, [&](int64_t row) {
            float *square = squares + row * M, *factor = factors + row * M;
            each_vector(0, M, [&](int64_t i, int n) {
                vf s = load_some(square + i, n);
                store_some(square + i, s * root, n);
                store_some(factor + i, s * b, n);
            });
            factor[row] += a;
        });
        gemm(pool, M, M, M, {squares, M, 1}, {squares, M, 1}, factors, M, true, {}, narrow);
        gemm(pool, M, N, M, {factors, M, 1}, {from, N, 1}, to, N, false, {}, narrow);
        std::swap(from, to);
    }
    static_assert(kIterations % 2 == 1); // the last one was written beside X
    std::memcpy(X, from, sizeof(float) * (size_t)(M * N));
}

} // namespace MB_ISA
} // namespace mb
