/* Counting words and learning merges. */
#include "test_wordpiece.h"

/* Aborts unless the counter holds the words between the spaces of `words`, with those counts. */
static void expect_counts(wp_counter *counter, const char *words, const int64_t *counts) {
    check_strings wanted = check_split(words, (int64_t)strlen(words));
    int64_t n = wp_counter_n_words(counter), n_bytes = wp_counter_n_bytes(counter);
    CHECK(n == wanted.n && n_bytes == wanted.bounds[wanted.n]);
    char *bytes = check_memory((size_t)n_bytes);
    int64_t *bounds = check_memory(sizeof(int64_t) * (size_t)(n + 1));
    int64_t *found = check_memory(sizeof(int64_t) * (size_t)n);
    CHECK(wp_counter_export(counter, bytes, bounds, found) == 0);
    CHECK(n_bytes == 0 || memcmp(bytes, wanted.bytes, (size_t)n_bytes) == 0);
    CHECK(memcmp(bounds, wanted.bounds, sizeof(int64_t) * (size_t)(n + 1)) == 0);
    CHECK(n == 0 || memcmp(found, counts, sizeof(int64_t) * (size_t)n) == 0);
    free(bytes);
    free(bounds);
    free(found);
    check_strings_free(&wanted);
}

#define COUNTS(...) ((const int64_t[]){__VA_ARGS__})

static int64_t count(wp_counter *counter, const char *text, int64_t n_bytes, int32_t flags) {
    char *copy = check_copy(text, n_bytes);
    int64_t n_invalid = wp_count(counter, copy, n_bytes, flags);
    free(copy);
    return n_invalid;
}

static void words_are_counted_in_the_order_of_their_bytes(void) {
    wp_counter *counter = wp_counter_new(&UNCASED, 5);
    expect_counts(counter, "", NULL);
    CHECK(count(counter, "", 0, 0) == 0);
    CHECK(count(counter, "The cat, the H\xC3\xA4t! toolong", 26, 0) == 0);
    expect_counts(counter, "! , cat hat the", COUNTS(1, 1, 1, 1, 2));
    CHECK(count(counter, "cat\xFF \xF0\x9F", 7, WP_RAW) == 2);
    CHECK(count(counter, "\xC3\x9F\xC3\x9F\xC3\x9F\xC3\x9F\xC3\x9F", 10, 0) ==
          0); /* five characters are not too many */
    expect_counts(counter, "! , cat hat the \xC3\x9F\xC3\x9F\xC3\x9F\xC3\x9F\xC3\x9F",
                  COUNTS(1, 1, 2, 1, 2, 1));
    wp_counter_free(counter);
}

static void counters_add_up(void) {
    wp_counter *one = wp_counter_new(&CASED, 200), *other = wp_counter_new(&CASED, 200);
    count(one, "a b a", 5, 0);
    CHECK(wp_counter_add(one, other) == 0);
    count(other, "c a", 3, 0);
    CHECK(wp_counter_add(one, other) == 0);
    CHECK(wp_counter_add(other, other) == 0);
    expect_counts(one, "a b c", COUNTS(3, 1, 1));
    expect_counts(other, "a c", COUNTS(2, 2));
    wp_counter_free(one);
    wp_counter_free(other);
}

static void lines_are_held_out_by_their_checksum(void) {
    /* CRC-32 of "123456789" is CBF43926, the check value of its standard. */
    wp_counter *train = wp_counter_new(&CASED, 200), *held_out = wp_counter_new(&CASED, 200);
    const char *text = "hello\n123456789\nhello\n123456789";
    CHECK(wp_count_split(train, held_out, 0xCBF43926, text, (int64_t)strlen(text), 0) == 0);
    expect_counts(train, "hello", COUNTS(2));
    expect_counts(held_out, "123456789", COUNTS(2));
    CHECK(wp_count_split(train, held_out, 1, "x\xFF\ny\xFF", 5, WP_RAW) ==
          2); /* every number is a multiple of 1 */
    expect_counts(train, "hello", COUNTS(2));
    expect_counts(held_out, "123456789 x y", COUNTS(2, 1, 1));
    wp_counter_free(train);
    wp_counter_free(held_out);
}

static void many_words_are_all_found_again(void) {
    wp_counter *counter = wp_counter_new(&CASED, 200);
    char word[16];
    for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < 200000; ++i) {
            CHECK(wp_count(counter, word, snprintf(word, sizeof word, "w%d", i), 0) == 0);
        }
    }
    int64_t n = wp_counter_n_words(counter), n_bytes = wp_counter_n_bytes(counter);
    CHECK(n == 200000 && n_bytes == 1288890);
    char *bytes = check_memory((size_t)n_bytes);
    int64_t *bounds = check_memory(sizeof(int64_t) * (size_t)(n + 1)),
            *counts = check_memory(sizeof(int64_t) * (size_t)n);
    CHECK(wp_counter_export(counter, bytes, bounds, counts) == 0);
    CHECK(bounds[0] == 0 && bounds[n] == n_bytes);
    for (int64_t i = 0; i < n; ++i) {
        CHECK(counts[i] == 2);
        if (i) {
            int64_t before = bounds[i] - bounds[i - 1], here = bounds[i + 1] - bounds[i];
            int order =
                memcmp(bytes + bounds[i - 1], bytes + bounds[i], (size_t)(before < here ? before : here));
            CHECK(order < 0 || (order == 0 && before < here));
        }
    }
    free(bytes);
    free(bounds);
    free(counts);
    wp_counter_free(counter);
}

/* The words, one row of symbols each, ended by -1; counts; how many symbols there are. */
typedef struct corpus {
    int32_t symbols[20][12];
    int64_t counts[20], n_words;
    int32_t n_symbols;
} corpus;

static wp_learner *learner_of(const corpus *words, int64_t min_frequency, int32_t objective) {
    int32_t *symbols = check_memory(sizeof words->symbols);
    int64_t *bounds = check_memory(sizeof(int64_t) * (size_t)(words->n_words + 1)), n = 0;
    for (int64_t i = 0; i < words->n_words; ++i) {
        bounds[i] = n;
        for (const int32_t *symbol = words->symbols[i]; *symbol >= 0; ++symbol) {
            symbols[n++] = *symbol;
        }
    }
    bounds[words->n_words] = n;
    wp_learner *learner = wp_learner_new(symbols, bounds, words->counts, words->n_words, words->n_symbols,
                                         min_frequency, objective);
    free(symbols);
    free(bounds);
    return learner;
}

static void expect_merges(const corpus *words, int64_t min_frequency, int32_t objective, int64_t n,
                          const int32_t (*wanted)[2]) {
    int32_t lefts[100], rights[100];
    wp_learner *learner = learner_of(words, min_frequency, objective);
    int64_t made = wp_learner_run(learner, 100, lefts, rights);
    CHECK(made == n);
    for (int64_t i = 0; i < n; ++i) {
        CHECK(lefts[i] == wanted[i][0] && rights[i] == wanted[i][1]);
    }
    CHECK(wp_learner_run(learner, 100, lefts, rights) == 0);
    wp_learner_free(learner);
    learner = learner_of(words, min_frequency, objective); /* the same, merge by merge */
    for (int64_t i = 0; i < n; ++i) {
        CHECK(wp_learner_run(learner, 0, NULL, NULL) == 0);
        CHECK(wp_learner_run(learner, 1, lefts, rights) == 1 && lefts[0] == wanted[i][0] &&
              rights[0] == wanted[i][1]);
    }
    wp_learner_free(learner);
}

#define EXPECT_MERGES(words, min_frequency, objective, ...)                                                  \
    expect_merges(words, min_frequency, objective,                                                           \
                  (int64_t)(sizeof((const int32_t[][2]){__VA_ARGS__}) / sizeof(int32_t[2])),                 \
                  (const int32_t[][2]){__VA_ARGS__})

static void merges_are_those_that_a_pencil_finds(void) {
    /* ##e ##o ##r ##w l = 0 ... 4; low five times, lower twice */
    corpus low = {{{4, 1, 3, -1}, {4, 1, 3, 0, 2, -1}}, {5, 2}, 2, 5};
    EXPECT_MERGES(&low, 2, 1, {1, 3}, {4, 5}, {0, 2},
                  {6, 7}); /* 7 twice: the smaller left part first; 2 twice */
    EXPECT_MERGES(&low, 3, 1, {1, 3}, {4, 5});
    /* dL = f(7) - [f(7) - f(0)] - [f(7) - f(0)] + [f(25) - f(18)] for ow and lo alike, with f(x) = x log x */
    EXPECT_MERGES(&low, 3, 0, {1, 3}, {4, 5});
    corpus aaa = {{{0, 0, 0, 0, 0, 0, 0, -1}}, {1}, 1, 1}; /* aaa holds aa once */
    EXPECT_MERGES(&aaa, 1, 1, {0, 0}, {1, 0}, {1, 1}, {3, 2});
    EXPECT_MERGES(&aaa, 2, 1, {0, 0});
    corpus nothing = {{{-1}}, {1}, 0, 0}, single = {{{0, -1}, {-1}}, {9, 9}, 2, 1};
    int32_t unused[2];
    for (int32_t objective = 0; objective <= 1; ++objective) {
        wp_learner *learner = learner_of(&nothing, 1, objective);
        CHECK(wp_learner_run(learner, 1, unused, unused + 1) == 0);
        wp_learner_free(learner);
        learner = learner_of(&single, 1, objective);
        CHECK(wp_learner_run(learner, 1, unused, unused + 1) == 0);
        wp_learner_free(learner);
    }
}

/* The most frequent pair of a corpus, the first in order among equals, counted from scratch; its count. */
static int64_t most_frequent_pair(const corpus *words, int32_t *left, int32_t *right) {
    static int64_t counts[64][64];
    int64_t best = 0;
    memset(counts, 0, sizeof counts);
    for (int64_t i = 0; i < words->n_words; ++i) {
        bool overlaps = false;
        for (const int32_t *at = words->symbols[i]; at[0] >= 0 && at[1] >= 0; ++at) {
            overlaps = !overlaps && at > words->symbols[i] && at[-1] == at[0] && at[0] == at[1];
            if (!overlaps) {
                counts[at[0]][at[1]] += words->counts[i];
            }
        }
    }
    for (int32_t i = 0; i < 64; ++i) {
        for (int32_t j = 0; j < 64; ++j) {
            if (counts[i][j] > best) {
                best = counts[i][j], *left = i, *right = j;
            }
        }
    }
    return best;
}

static void join(corpus *words, int32_t left, int32_t right) {
    for (int64_t i = 0; i < words->n_words; ++i) {
        int32_t *read = words->symbols[i], *write = read;
        while (*read >= 0) {
            bool here = read[0] == left && read[1] == right;
            *write++ = here ? words->n_symbols : *read;
            read += here ? 2 : 1;
        }
        *write = -1;
    }
    ++words->n_symbols;
}

static void frequent_pairs_are_merged_as_when_counted_anew_each_time(void) {
    uint64_t state = 1966;
    for (int round = 0; round < 500; ++round) {
        corpus words = {.n_words = 1 + check_random(&state, 15),
                        .n_symbols = 1 + (int32_t)check_random(&state, 4)};
        int32_t lefts[40], rights[40], left, right;
        for (int64_t i = 0; i < words.n_words; ++i) {
            uint32_t length = check_random(&state, 11);
            for (uint32_t j = 0; j < length; ++j) {
                words.symbols[i][j] = (int32_t)check_random(&state, (uint32_t)words.n_symbols);
            }
            words.symbols[i][length] = -1;
            words.counts[i] = 1 + check_random(&state, 5);
        }
        int64_t min_frequency = 1 + check_random(&state, 3);
        wp_learner *learner = learner_of(&words, min_frequency, 1);
        int64_t n = wp_learner_run(learner, 40, lefts, rights);
        for (int64_t i = 0; i < n; ++i) {
            CHECK(most_frequent_pair(&words, &left, &right) >= min_frequency);
            CHECK(lefts[i] == left && rights[i] == right);
            join(&words, left, right);
        }
        CHECK(n == 40 || most_frequent_pair(&words, &left, &right) < min_frequency);
        wp_learner_free(learner);
    }
}

static void a_merge_may_touch_any_number_of_symbols(void) {
    corpus words = {.n_words = 20, .n_symbols = 2};
    for (int i = 0; i < 20; ++i) { /* the pair 0 1 between symbols that occur nowhere else */
        int32_t next = words.n_symbols, word[12] = {next, 0, 1, next + 1, 0, 1, next + 2, 0, 1, next + 3, -1};
        memcpy(words.symbols[i], word, sizeof word);
        words.counts[i] = 1, words.n_symbols += 4;
    }
    EXPECT_MERGES(&words, 2, 1, {0, 1});
}

static void counts_beyond_32_bits_are_exact(void) {
    corpus words = {{{0, 1, -1}, {1, 2, -1}}, {INT64_C(5000000000), INT64_C(5000000001)}, 2, 3};
    EXPECT_MERGES(&words, 1, 1, {1, 2}, {0, 1});
}

void run_learning_tests(void) {
    RUN(words_are_counted_in_the_order_of_their_bytes);
    RUN(counters_add_up);
    RUN(lines_are_held_out_by_their_checksum);
    RUN(many_words_are_all_found_again);
    RUN(merges_are_those_that_a_pencil_finds);
    RUN(frequent_pairs_are_merged_as_when_counted_anew_each_time);
    RUN(a_merge_may_touch_any_number_of_symbols);
    RUN(counts_beyond_32_bits_are_exact);
}
