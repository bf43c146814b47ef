/* Comes before every file of the core in these tests: its memory is asked for here, where it can run out. */
#ifndef TEST_ALLOCATOR_H
#define TEST_ALLOCATOR_H

#include <stdint.h>
#include <stdlib.h>

void *test_malloc(size_t n_bytes);
void *test_calloc(size_t n, size_t size);
void *test_realloc(void *block, size_t n_bytes);
void test_free(void *block);

void test_memory_lasts_for(int64_t n_allocations); /* all later ones fail; negative: for ever */
int64_t test_blocks_in_use(void);

#define malloc(n_bytes) test_malloc(n_bytes)
#define calloc(n, size) test_calloc(n, size)
#define realloc(block, n_bytes) test_realloc(block, n_bytes)
#define free(block) test_free(block)

#endif
