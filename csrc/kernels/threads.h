// A pool of threads for loops. Which thread runs a part never changes what it computes, so results have the same
// bits on any number of threads.
#pragma once

#include <cstdint>

namespace mb {

// A reference to a callable; unlike std::function it allocates nothing.
class Task {
  public:
    template <typename Callable>
    Task(const Callable &callable) // NOLINT: implicit, so that a lambda can be passed
        : callable_(&callable),
          call_([](const void *c, int64_t i) { (*static_cast<const Callable *>(c))(i); }) {}
    void operator()(int64_t i) const { call_(callable_, i); }

  private:
    const void *callable_;
    void (*call_)(const void *, int64_t);
};

class Pool {
  public:
    explicit Pool(int threads) : threads_(threads) {}
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    int threads() const { return threads_; }

    // Call task(0) .. task(count - 1), each once, in any order and on any thread; return when all are done. Neighbours
    // are mostly called by the same thread, and parts at the same share of two counts by the same one, so what a loop
    // leaves in a cache the next one finds there. A loop inside a loop runs on the thread that meets it.
    void run(int64_t count, Task task);

  private:
    struct State;
    State *state();

    int threads_;
    State *state_ = nullptr; // made at first use, and again in a forked child: threads do not survive a fork
};

// Division of n things into parts of `size`.
constexpr int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

// The next multiple of `size`.
constexpr int64_t whole(int64_t n, int64_t size) { return parts(n, size) * size; }

} // namespace mb
