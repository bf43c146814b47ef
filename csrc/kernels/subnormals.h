// Arithmetic without subnormal numbers.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mb {

// While it lives, this thread reads and writes subnormals (below 1.2e-38) as 0. Some processors compute a hundred times
// slower with them, and moments of words that no longer come up would end there.
class NoSubnormals {
  public:
    NoSubnormals() { set(before_ | kBits); }
    ~NoSubnormals() { set(before_); }
    NoSubnormals(const NoSubnormals &) = delete;
    NoSubnormals &operator=(const NoSubnormals &) = delete;

  private:
#if defined(__x86_64__)
    using Word = unsigned;
    static constexpr Word kBits = 0x8040; // results and operands
    static Word get() { return _mm_getcsr(); }
    static void set(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
    using Word = uint64_t;
    static constexpr Word kBits = 1 << 24; // both
    static Word get() {
        Word word;
        __asm__ volatile("mrs %0, fpcr" : "=r"(word));
        return word;
    }
    static void set(Word word) { __asm__ volatile("msr fpcr, %0" : : "r"(word)); }
#else
    using Word = unsigned;
    static constexpr Word kBits = 0;
    static Word get() { return 0; }
    static void set(Word) {}
#endif
    const Word before_ = get();
};

} // namespace mb
