// The product's own kernel, csrc/kernels/attention.cpp, compiled in here so that the ladder can't drift away from it.
//
// What it adds to the rungs: dropout drawn on the way, the causal option, the maximum and the sum of each softmax kept
// for backward, the second product begun while scores are fresh, panels that get narrower for long sequences, answers
// written where they belong, and threads.
#include "attention.h"
#include "attention_rungs.h"

#include <vector>

void product(const Batch &b, const float *q, const float *k, const float *v, float *y) {
    static mb::Pool pool(thread_count);
    static std::vector<float> softmax;
    softmax.resize(static_cast<size_t>(2 * b.begins[b.S] * b.A));
    int64_t step = b.A * b.D;
    mb::MB_ISA::attention<float>(pool, b.S, b.begins, b.begins, b.A, b.D, {q, step}, {k, step}, {v, step},
                                 false, {}, {y, step}, softmax.data());
}
