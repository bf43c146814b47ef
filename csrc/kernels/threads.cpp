#include "threads.h"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#if !defined(_WIN32) // where nothing forks
#include <pthread.h>
#include <unistd.h>
#endif

#include "subnormals.h"

namespace mb {
namespace {

thread_local bool in_loop = false;

// Some tens of microseconds: the next loop of a training step comes sooner than a sleeper wakes up.
constexpr int kSpins = 2000;

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

// Differs between a process and what it forked.
int64_t process_number() {
#if defined(_WIN32)
    return 0;
#else
    return getpid();
#endif
}

} // namespace

// The parts that a thread begins with, which are neighbours: what they read is likely to lie in its cache since the loop
// before. A thread that has done its own goes on with those of the others.
struct Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
    char apart[112]; // no two shares in a line of a cache
};

// A loop is open from when it begins until no part of it is left. A worker enters, and only then looks whether there
// is an open loop; the thread that runs the loop closes it, and only then looks whether anyone is inside. So one of
// the two always sees the other, and nobody waits for a worker that is still asleep.
struct Pool::State {
    const int64_t process = process_number();
    std::vector<std::thread> workers;
    std::mutex mutex; // guards sleeping and waking; the rest is atomic
    std::condition_variable wake;
    std::mutex entrance;            // one loop at a time, whichever thread of Python begins it
    std::atomic<uint64_t> round{0}; // one more for each loop
    std::atomic<bool> open{false};
    std::atomic<int> inside{0};      // workers that may be looking at the loop
    std::unique_ptr<Share[]> shares; // of the caller, then of every worker
    std::atomic<bool> stop{false};
    std::exception_ptr failure; // the first of the loop, guarded by `mutex`
    const Task *task = nullptr;
    int threads;

    explicit State(int most) : shares(new Share[static_cast<size_t>(most)]), threads(most) {
        workers.reserve(static_cast<size_t>(most - 1));
        try {
            while (static_cast<int>(workers.size()) < most - 1) {
                workers.emplace_back([this, own = static_cast<int>(workers.size()) + 1] { work(own); });
            }
        } catch (const std::exception &) { // no more threads, or no memory; fewer do the same, to the bit
        }
    }

    void share_out(int64_t count) {
        for (int t = 0; t < threads; ++t) {
            shares[t].next.store(count * t / threads, std::memory_order_relaxed);
            shares[t].end = count * (t + 1) / threads;
        }
    }

    void take_parts(int own) {
        NoSubnormals here;
        in_loop = true;
        try {
            for (int t = 0; t < threads; ++t) {
                Share &share = shares[(own + t) % threads];
                // Look before adding: an addition takes the cache line away from those still at work on this share.
                while (share.next.load(std::memory_order_relaxed) < share.end) {
                    int64_t i = share.next.fetch_add(1, std::memory_order_relaxed);
                    if (i < share.end) {
                        (*task)(i);
                    }
                }
            }
        } catch (...) { // memory
            std::lock_guard<std::mutex> lock(mutex);
            if (!failure) {
                failure = std::current_exception();
            }
        }
        in_loop = false;
    }

    void work(int own) {
        for (uint64_t seen = 0;;) {
            for (int spin = 0; spin < kSpins && round.load(std::memory_order_acquire) == seen; ++spin) {
                relax();
            }
            if (round.load(std::memory_order_acquire) == seen) {
                std::unique_lock<std::mutex> lock(mutex);
                wake.wait(lock, [&] { return round.load(std::memory_order_acquire) != seen; });
            }
            seen = round.load(std::memory_order_acquire);
            if (stop) {
                return;
            }
            inside.fetch_add(1);
            if (open) {
                take_parts(own);
            }
            inside.fetch_sub(1);
        }
    }

    void begin_round() {
        std::lock_guard<std::mutex> lock(mutex);
        round.fetch_add(1, std::memory_order_release);
        wake.notify_all();
    }
};

Pool::~Pool() {
    if (state_ == nullptr || state_->process != process_number()) {
        return; // the threads live in the parent; what they wait on can't be taken down here
    }
    state_->stop = true;
    state_->begin_round();
    for (auto &worker : state_->workers) {
        worker.join();
    }
    delete state_;
}

// A process may fork while another of its threads makes a pool. The child would inherit the lock and have nobody to open
// it, so forking waits for it.
namespace {

std::mutex making;

#if !defined(_WIN32)
void lock_making() { making.lock(); }
void unlock_making() { making.unlock(); }

[[maybe_unused]] const int registered = pthread_atfork(lock_making, unlock_making, unlock_making);
#endif

} // namespace

Pool::State *Pool::state() {
    std::lock_guard<std::mutex> lock(making);
    if (state_ == nullptr || state_->process != process_number()) {
        state_ = new State(threads_);
    }
    return state_;
}

void Pool::run(int64_t count, Task task) {
    if (threads_ == 1 || count <= 1 || in_loop) {
        NoSubnormals here;
        for (int64_t i = 0; i < count; ++i) {
            task(i);
        }
        return;
    }
    State &s = *state();
    std::lock_guard<std::mutex> lock(s.entrance);
    s.task = &task;
    s.share_out(count);
    s.open = true;
    s.begin_round();
    s.take_parts(0);
    s.open = false;
    for (int spin = 0; s.inside != 0; ++spin) {
        spin < kSpins ? relax() : std::this_thread::yield(); // the core may be someone else's just now
    }
    if (s.failure) {
        std::rethrow_exception(std::exchange(s.failure, nullptr));
    }
}

} // namespace mb
