// Memory for the arrays that a training step makes and drops again and again: kept, because fresh pages cost more
// than the arithmetic on them.
#pragma once

#include <cstddef>

namespace mb {

// At least `bytes`, in large pages where that is much; not cleared. Throws std::bad_alloc.
void *take(size_t bytes);

// What `take` gave, back; the same number of bytes.
void give(void *data, size_t bytes);

// Give all that is kept back to the system.
void release();

} // namespace mb
