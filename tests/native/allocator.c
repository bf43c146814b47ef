/* malloc that fails on demand and knows what is still in use. */
#include "allocator.h"

#undef malloc
#undef calloc
#undef realloc
#undef free

static int64_t left = -1, in_use = 0;

static int runs_out(void) {
    if (left < 0) {
        return 0;
    }
    if (left == 0) {
        return 1;
    }
    --left;
    return 0;
}

static void *counted(void *block) {
    in_use += block != NULL;
    return block;
}

void *test_malloc(size_t n_bytes) { return runs_out() ? NULL : counted(malloc(n_bytes)); }

void *test_calloc(size_t n, size_t size) { return runs_out() ? NULL : counted(calloc(n, size)); }

void *test_realloc(void *block, size_t n_bytes) {
    if (runs_out()) {
        return NULL;
    }
    void *moved = realloc(block, n_bytes);
    in_use += moved != NULL && block == NULL;
    return moved;
}

void test_free(void *block) {
    in_use -= block != NULL;
    free(block);
}

void test_memory_lasts_for(int64_t n_allocations) { left = n_allocations; }

int64_t test_blocks_in_use(void) { return in_use; }
