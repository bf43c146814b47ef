/* What the native tests share: checks that stop at once, vocabularies from one string, texts in buffers
 * without a byte to spare, so that AddressSanitizer sees whoever reads on. */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wordpiece.h"

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                          \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

static inline void *check_memory(size_t n_bytes) {
    void *block = malloc(n_bytes);
    CHECK(block != NULL || n_bytes == 0);
    return block;
}

static inline char *check_copy(const char *text, int64_t n_bytes) {
    char *copy = check_memory((size_t)n_bytes);
    if (n_bytes) {
        memcpy(copy, text, (size_t)n_bytes);
    }
    return copy;
}

/* Strings end to end and where each begins, as the core takes them. */
typedef struct check_strings {
    char *bytes;
    int64_t *bounds; /* (n + 1) */
    int64_t n;
} check_strings;

/* What stands between the spaces of `text`. */
static inline check_strings check_split(const char *text, int64_t n_bytes) {
    check_strings strings = {check_memory((size_t)n_bytes),
                             check_memory(sizeof(int64_t) * (size_t)(n_bytes + 2)), 0};
    int64_t n = 0;
    strings.bounds[0] = 0;
    for (int64_t i = 0; i < n_bytes; ++i) {
        if (text[i] == ' ') {
            strings.bounds[++strings.n] = n;
        } else {
            strings.bytes[n++] = text[i];
        }
    }
    if (n_bytes) {
        strings.bounds[++strings.n] = n;
    }
    return strings;
}

static inline void check_strings_free(check_strings *strings) {
    free(strings->bytes);
    free(strings->bounds);
}

/* Number of a string, -1 if it is none of them. */
static inline int32_t check_find(const check_strings *strings, const char *text, int64_t n_bytes) {
    for (int64_t i = 0; i < strings->n; ++i) {
        if (strings->bounds[i + 1] - strings->bounds[i] == n_bytes &&
            (n_bytes == 0 || memcmp(strings->bytes + strings->bounds[i], text, (size_t)n_bytes) == 0)) {
            return (int32_t)i;
        }
    }
    return -1;
}

/* Greedy longest match as it is written in Google's code, for a word of single-byte characters: the ids in
 * `ids`, which has room for all of its bytes; returns how many. */
static inline int64_t check_longest_match(const check_strings *vocab, int32_t unk_id, const char *word,
                                          int64_t n_bytes, int32_t *ids) {
    char *piece = check_memory((size_t)n_bytes + 2);
    int64_t n = 0, begin = 0;
    memcpy(piece, "##", 2);
    while (begin < n_bytes) {
        int64_t end = n_bytes, mark = begin ? 2 : 0;
        int32_t id = -1;
        for (; end > begin; --end) {
            memcpy(piece + 2, word + begin, (size_t)(end - begin));
            id = check_find(vocab, piece + 2 - mark, end - begin + mark);
            if (id >= 0) {
                break;
            }
        }
        if (id < 0) {
            n = 0;
            ids[n++] = unk_id;
            break;
        }
        ids[n++] = id;
        begin = end;
    }
    free(piece);
    return n;
}

/* A sequence of numbers that look random and are the same on every machine (xorshift). */
static inline uint32_t check_random(uint64_t *state, uint32_t below) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 33) % below;
}

#endif
