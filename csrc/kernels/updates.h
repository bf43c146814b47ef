// What happens to parameters once their gradients are known, over flat buffers (minibert/core/ops/updates.py).
#pragma once

#include <cstdint>

#include "simd.h"
#include "threads.h"

namespace mb {

struct AdamW {
    double lr, beta1, beta2, eps, weight_decay;
    double m_scale, v_scale; // 1 / (1 - beta^step), or 1 without bias correction
    double clip;             // what gradients are multiplied with first
    bool clears = false;     // gradients are zero afterwards; otherwise they are only read
};

namespace MB_ISA {

// total += extra      (n,)
void accumulate(Pool &pool, int64_t n, float *total, const float *extra);

// x = 0      (n,)
void clear(Pool &pool, int64_t n, float *x);

// Euclidean norm of x (n,), summed in double precision
double global_norm(Pool &pool, int64_t n, const float *x);

// One step in one sweep. params grads m v (n,)  decayed (K,2): the ranges [begin, end) that decay, ascending
void adamw(Pool &pool, int64_t n, float *params, float *grads, float *m, float *v, int64_t K,
           const int64_t *decayed, const AdamW &step);

// X (M,N) with M <= N: its singular values brought near 1, in place (Muon). `narrow` as in gemm.
void orthogonalise(Pool &pool, int64_t M, int64_t N, float *X, bool narrow);

} // namespace MB_ISA
} // namespace mb
