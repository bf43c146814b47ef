// The pool of threads: whatever a loop asks for is done exactly once before it returns, alone, inside another loop,
// after an exception, and beside loops of other threads.
#include "test_kernels.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace {

constexpr int64_t kPatience = 100000000; // looks, after which a thread counts as one that never comes

using Counts = std::vector<std::atomic<int>>;

void work() {
    for (int i = 0; i < 200; ++i) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
}

// Each part once, and all of them done when the loop returns.
void check_loop(mb::Pool &pool, int64_t count) {
    Counts times((size_t)count);
    pool.run(count, [&](int64_t i) {
        CHECK(0 <= i && i < count);
        work();
        times[(size_t)i].fetch_add(1, std::memory_order_relaxed);
    });
    for (const auto &one : times) {
        CHECK(one.load(std::memory_order_relaxed) == 1);
    }
}

// As many parts as threads, none of which ends before all have begun: each needs a thread of its own.
void check_together(mb::Pool &pool) {
    const int threads = pool.threads();
    std::atomic<int> begun{0};
    pool.run(threads, [&](int64_t) {
        ++begun;
        for (int64_t look = 0; begun < threads && look < kPatience; ++look) {
            std::this_thread::yield();
        }
        CHECK(begun == threads);
    });
}

// A loop inside a loop runs on the thread that meets it, in order.
void check_nested(mb::Pool &pool, int64_t outer, int64_t inner) {
    Counts times((size_t)(outer * inner));
    pool.run(outer, [&](int64_t i) {
        auto here = std::this_thread::get_id();
        int64_t next = 0;
        pool.run(inner, [&](int64_t j) {
            CHECK(std::this_thread::get_id() == here && j == next);
            ++next;
            ++times[(size_t)(i * inner + j)];
        });
        CHECK(next == inner);
    });
    for (const auto &one : times) {
        CHECK(one == 1);
    }
}

// The exception of a part comes out of its loop, once; no part is done twice, and the next loops are whole.
void check_failure(mb::Pool &pool, int64_t count, int64_t failing) {
    Counts times((size_t)count);
    bool caught = false;
    try {
        pool.run(count, [&](int64_t i) {
            ++times[(size_t)i];
            if (i % failing == failing - 1) {
                throw std::runtime_error("a part");
            }
        });
    } catch (const std::runtime_error &error) {
        caught = std::strcmp(error.what(), "a part") == 0;
    }
    CHECK(caught);
    for (const auto &one : times) {
        CHECK(one <= 1);
    }
    check_loop(pool, count);
    check_together(pool);
}

// Many short loops in a row, some of them after the workers have had time to fall asleep.
void check_many(mb::Pool &pool, int loops) {
    std::atomic<int64_t> sum{0};
    int64_t expected = 0;
    for (int loop = 0; loop < loops; ++loop) {
        const int64_t count = loop % 6;
        pool.run(count, [&](int64_t i) { sum.fetch_add(i + 1, std::memory_order_relaxed); });
        expected += count * (count + 1) / 2;
        CHECK(sum.load(std::memory_order_relaxed) == expected);
        if (loop % 500 == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
}

// Within a loop, subnormals are 0 on every thread; behind it, the thread that has begun it has them again.
void check_subnormals(mb::Pool &pool) {
#if defined(__x86_64__) || defined(__aarch64__)
    volatile float tiny = 1e-30f;
    pool.run(4 * pool.threads(), [&](int64_t) { CHECK(tiny * 1e-10f == 0); });
    CHECK(tiny * 1e-10f > 0);
#else
    (void)pool;
#endif
}

} // namespace

void test_threads(mb::Pool &shared, Digest &) {
    for (int64_t count : {0, 1, 2, 3, 5, 16, 17, 255, 1001, 4099}) {
        check_loop(shared, count);
    }
    check_together(shared);
    check_nested(shared, 5, 3);
    check_nested(shared, 33, 2);
    check_together(shared);
    shared.run(1, [&](int64_t) { check_together(shared); }); // one part leaves the threads to the loops in it
    for (int64_t failing : {1, 2, 17}) {
        check_failure(shared, 17, failing);
    }
    check_many(shared, 5000);
    check_subnormals(shared);

    std::vector<std::thread> callers; // of the same pool
    for (int caller = 0; caller < 3; ++caller) {
        callers.emplace_back([&shared, caller] {
            for (int64_t loop = 0; loop < 300; ++loop) {
                check_loop(shared, caller + loop % 9);
            }
        });
    }
    for (auto &caller : callers) {
        caller.join();
    }
    for (int pools = 0; pools < 20; ++pools) { // which end right after a loop, or without one
        mb::Pool pool(shared.threads());
        if (pools % 2) {
            check_loop(pool, 9);
        }
    }
}
