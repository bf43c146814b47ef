// Step: strips of rows of C, one for each thread, each the rung below.
//
// Threads share nothing but what they read, so results have the same bits on any number of them. Each packs all of B
// anew, and starting a thread takes as long as a hundred thousand multiply-adds: the product packs B once, together,
// and keeps its threads between calls.
#include "gemm_rungs.h"

#include <algorithm>
#include <thread>
#include <vector>

void threads(int64_t M, int64_t N, int64_t K, const float *A, const float *B, float *C) {
    std::vector<std::thread> workers;
    for (int64_t t = 0; t < thread_count; ++t) {
        int64_t i = M * t / thread_count, i_end = M * (t + 1) / thread_count;
        workers.emplace_back([=] { in_place(i_end - i, N, K, A + i * K, B, C + i * N); });
    }
    for (std::thread &worker : workers) {
        worker.join();
    }
}
