// Memory for the arrays that a training step makes and drops again and again, and for what a thread works with: kept,
// because fresh pages cost more than the arithmetic on them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mb {

// At least `bytes`, in large pages where that is much; not cleared. Throws std::bad_alloc.
void *take(size_t bytes);

// What `take` gave, back; the same number of bytes.
void give(void *data, size_t bytes);

// Give all that is kept back to the system.
void release();

// Memory that each thread keeps between calls, for `count` numbers at least, aligned to 64 bytes. `slot` tells
// apart what is in use at the same time; whatever was in it is lost.
enum class Slot { left, right, strip, scratch, sums, count };
void *scratch_bytes(Slot slot, size_t bytes);
template <typename T>
static inline T *scratch(Slot slot, int64_t count) { // static: sets of instructions share no code
    return static_cast<T *>(scratch_bytes(slot, sizeof(T) * static_cast<size_t>(count)));
}

} // namespace mb
