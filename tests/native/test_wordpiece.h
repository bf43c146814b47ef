/* What the files of the native test program share. */
#ifndef TEST_WORDPIECE_H
#define TEST_WORDPIECE_H

#include "check.h"

extern const wp_rules UNCASED, CASED;

/* A tokenizer whose pieces are what stands between spaces; its special tokens are [UNK] and [MASK]. */
wp_tokenizer *tokenizer_of(wp_rules rules, int64_t max_chars, const char *pieces);

/* Aborts unless `text` becomes the rows {id, begin, end, word}; returns the number of invalid stretches. */
int64_t expect(int line, const wp_tokenizer *tokenizer, const char *text, int64_t n_bytes, int32_t flags,
               const int32_t (*wanted)[4], int64_t n_wanted);

#define EXPECT(tokenizer, text, flags, ...)                                                                  \
    expect(__LINE__, tokenizer, text, (int64_t)sizeof(text) - 1, flags, (const int32_t[][4]){__VA_ARGS__},   \
           (int64_t)(sizeof((const int32_t[][4]){__VA_ARGS__}) / sizeof(int32_t[4])))
#define EXPECT_NOTHING(tokenizer, text, flags)                                                               \
    expect(__LINE__, tokenizer, text, (int64_t)sizeof(text) - 1, flags, NULL, 0)

/* Runs a test, prints its name and seconds, and aborts if it leaves memory behind. */
void run(const char *name, void (*test)(void));
#define RUN(test) run(#test, test)

void run_learning_tests(void);
void run_limit_tests(void);

#endif
