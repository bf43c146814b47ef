// The definition, as a paper writes it: sequences padded to one length n, and one matrix (n,n) of scores a head.
//
// Padded keys get a score of -10000, so that softmax makes (almost) nothing of them. All of it is computed, and the
// matrix of scores goes through memory three times: it is written, turned into probabilities row by row, and read for
// the answers.
#include "attention_rungs.h"

#include <algorithm>
#include <cmath>
#include <vector>

using Floats = std::vector<float>;

namespace {

// x (T,A,D) -> (S,A,n,D), zeros where a sequence has ended
Floats padded(const Batch &b, const float *x, int64_t n) {
    Floats rectangle(static_cast<size_t>(b.S * b.A * n * b.D));
    for (int64_t s = 0; s < b.S; ++s) {
        for (int64_t a = 0; a < b.A; ++a) {
            for (int64_t i = 0; i < b.length(s); ++i) {
                const float *row = x + b.at(s, a) + i * b.A * b.D;
                std::copy(row, row + b.D, rectangle.begin() + ((s * b.A + a) * n + i) * b.D);
            }
        }
    }
    return rectangle;
}

} // namespace

void naive(const Batch &b, const float *q, const float *k, const float *v, float *y) {
    int64_t n = 0, D = b.D;
    for (int64_t s = 0; s < b.S; ++s) {
        n = std::max(n, b.length(s));
    }
    Floats Q = padded(b, q, n), K = padded(b, k, n), V = padded(b, v, n), Y(Q.size());
    Floats scores(static_cast<size_t>(b.S * b.A * n * n));
    float root = 1 / std::sqrt(static_cast<float>(D));
    for (int64_t head = 0; head < b.S * b.A; ++head) {
        const float *Qh = &Q[0] + head * n * D, *Kh = &K[0] + head * n * D;
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t j = 0; j < n; ++j) {
                float sum = 0;
                for (int64_t d = 0; d < D; ++d) {
                    sum += Qh[i * D + d] * Kh[j * D + d];
                }
                scores[static_cast<size_t>((head * n + i) * n + j)] =
                    sum * root + (j < b.length(head / b.A) ? 0.0f : -10000.0f);
            }
        }
    }
    for (int64_t row = 0; row < b.S * b.A * n; ++row) {
        float *p = &scores[0] + row * n, top = *std::max_element(p, p + n), sum = 0;
        for (int64_t j = 0; j < n; ++j) {
            p[j] = std::exp(p[j] - top);
            sum += p[j];
        }
        for (int64_t j = 0; j < n; ++j) {
            p[j] /= sum;
        }
    }
    for (int64_t head = 0; head < b.S * b.A; ++head) {
        const float *Vh = &V[0] + head * n * D, *p = &scores[0] + head * n * n;
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t d = 0; d < D; ++d) {
                float sum = 0;
                for (int64_t j = 0; j < n; ++j) {
                    sum += p[i * n + j] * Vh[j * D + d];
                }
                Y[static_cast<size_t>((head * n + i) * D + d)] = sum;
            }
        }
    }
    for (int64_t s = 0; s < b.S; ++s) { // the padding is cut off again
        for (int64_t a = 0; a < b.A; ++a) {
            for (int64_t i = 0; i < b.length(s); ++i) {
                const float *row = &Y[0] + ((s * b.A + a) * n + i) * D;
                std::copy(row, row + D, y + b.at(s, a) + i * b.A * D);
            }
        }
    }
}
