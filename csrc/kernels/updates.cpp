#include "updates.h"

#include <cmath>

namespace mb {
namespace MB_ISA {
namespace {

constexpr int64_t kChunk = 1 << 16; // elements: parts of the norm, and what a thread takes at a time

MB_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
MB_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

typedef float half __attribute__((vector_size(2 * VL)));
typedef double vd __attribute__((vector_size(4 * VL))); // of VL / 2 numbers

MB_INLINE vd load_double(const float *p) {
    half v;
    std::memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, vd);
}

double sum_of_squares(int64_t n, const float *x) {
    constexpr int kSums = 4;
    vd sums[kSums] = {};
    int64_t i = 0;
    for (; i + kSums * VL / 2 <= n; i += kSums * VL / 2) {
        for (int j = 0; j < kSums; ++j) {
            vd v = load_double(x + i + j * VL / 2);
            sums[j] += v * v;
        }
    }
    double total = 0;
    for (; i < n; ++i) {
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
// params -= lr (lr_scale m / (sqrt(v_scale v) + eps) + weight_decay params)
template <bool decays>
void sweep(int64_t begin, int64_t end, float *params, const float *grads, float *m, float *v,
           const AdamW &step) {
    const float clip = (float)step.clip, eps = (float)step.eps, lr = (float)step.lr;
    const float beta1 = (float)step.beta1, rest1 = (float)(1 - step.beta1), lr_scale = (float)step.lr_scale;
    const float beta2 = (float)step.beta2, rest2 = (float)(1 - step.beta2), v_scale = (float)step.v_scale;
    const float weight_decay = (float)step.weight_decay;
    for (; begin < end; begin += VL) {
        int64_t n = smaller(VL, end - begin);
        auto read = [&](const float *from) { return n == VL ? load(from + begin) : load(from + begin, n); };
        auto write = [&](float *to, vf x) { n == VL ? store(to + begin, x) : store(to + begin, x, n); };
        vf p = read(params), g = read(grads) * clip;
        vf first = read(m) * beta1 + g * rest1, second = read(v) * beta2 + g * g * rest2;
        vf direction = first * lr_scale / (sqrt(second * v_scale) + eps);
        if (decays) {
            direction += p * weight_decay;
        }
        write(m, first);
        write(v, second);
        write(params, p - direction * lr);
    }
}

} // namespace

void accumulate(Pool &pool, int64_t n, float *total, const float *extra) {
    pool.run(parts(n, kChunk), [&](int64_t part) {
        int64_t i = part * kChunk, end = smaller(n, i + kChunk);
        for (; i + VL <= end; i += VL) {
            store(total + i, load(total + i) + load(extra + i));
        }
        if (i < end) {
            store(total + i, load(total + i, end - i) + load(extra + i, end - i), end - i);
        }
    });
}

double global_norm(Pool &pool, int64_t n, const float *x) {
    int64_t count = parts(n, kChunk);
    auto *sums = static_cast<double *>(scratch(Slot::sums, sizeof(double) * (size_t)count));
    pool.run(count, [&](int64_t part) {
        sums[part] = sum_of_squares(smaller(kChunk, n - part * kChunk), x + part * kChunk);
    });
    double total = 0;
    for (int64_t part = 0; part < count; ++part) {
        total += sums[part];
    }
    return __builtin_sqrt(total);
}

void adamw(Pool &pool, int64_t n, float *params, const float *grads, float *m, float *v, int64_t K,
           const int64_t *decayed, const AdamW &step) {
    pool.run(parts(n, kChunk), [&](int64_t part) {
        int64_t at = part * kChunk, end = smaller(n, at + kChunk);
        for (int64_t k = 0; k < K && at < end; ++k) {
            int64_t from = larger(at, smaller(end, decayed[2 * k])),
                    to = larger(from, smaller(end, decayed[2 * k + 1]));
            sweep<false>(at, from, params, grads, m, v, step);
            sweep<true>(from, to, params, grads, m, v, step);
            at = to;
        }
        sweep<false>(at, end, params, grads, m, v, step);
    });
}

} // namespace MB_ISA
} // namespace mb
