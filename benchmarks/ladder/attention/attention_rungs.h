// The ladder of attention: y = softmax(q k^T / sqrt(D)) v for each head of each sequence, made fast in steps.
#pragma once

#include <cstdint>

// A batch of S sequences, one after another: sequence s has the tokens begins[s] .. begins[s + 1]. Arrays are
// (T,A,D): token, head, dimension.
struct Batch {
    int64_t S;
    const int32_t *begins;
    int64_t A, D;

    int64_t length(int64_t s) const { return begins[s + 1] - begins[s]; }
    // Where head a of the first token of sequence s is; tokens are A D floats apart.
    int64_t at(int64_t s, int64_t a) const { return begins[s] * A * D + a * D; }
};

using Attention = void(const Batch &batch, const float *q, const float *k, const float *v, float *y);

Attention naive, no_padding, rows_in_cache, vectors, online, register_tiles, queries_across, product;

inline int thread_count = 1; // of the last
