/* Texts that are meant to hurt, and memory that runs out: the right ids or NULL, in linear time. */
#include "test_wordpiece.h"

static const int64_t MILLION = 1000000;

/* n bytes that repeat `part`. */
static char *repeated(const char *part, int64_t n_bytes) {
    char *text = check_memory((size_t)n_bytes);
    int64_t length = (int64_t)strlen(part);
    for (int64_t i = 0; i < n_bytes; ++i) {
        text[i] = part[i % length];
    }
    return text;
}

static wp_result *encoded(const wp_tokenizer *tokenizer, const char *text, int64_t n_bytes, int32_t flags) {
    int64_t bounds[2] = {0, n_bytes};
    wp_result *result = wp_encode_texts(tokenizer, text, bounds, 1, flags, -1, -1, 1);
    CHECK(result != NULL);
    return result;
}

static void expect_one_unknown(const wp_tokenizer *tokenizer, const char *text, int64_t n_bytes,
                               int32_t n_chars) {
    wp_result *result = encoded(tokenizer, text, n_bytes, WP_RAW | WP_OFFSETS);
    CHECK(result->n_ids == 1 && result->ids[0] == 0 && result->offsets[0] == 0 &&
          result->offsets[1] == n_chars);
    CHECK(result->words[0] == 0 && result->n_invalid == 0);
    wp_result_free(result);
}

static void a_line_of_100_mb_without_a_space_is_one_unknown(void) {
    wp_tokenizer *tokenizer = tokenizer_of(UNCASED, 200, "[UNK] a ##a");
    char *text = repeated("a", 100 * MILLION);
    expect_one_unknown(tokenizer, text, 100 * MILLION, (int32_t)(100 * MILLION));
    wp_counter *counter = wp_counter_new(&UNCASED, 200), *held_out = wp_counter_new(&UNCASED, 200);
    CHECK(wp_count(counter, text, 100 * MILLION, WP_RAW) == 0 && wp_counter_n_words(counter) == 0);
    CHECK(wp_count_split(counter, held_out, 2, text, 100 * MILLION, 0) == 0 &&
          wp_counter_n_words(held_out) == 0);
    wp_counter_free(counter);
    wp_counter_free(held_out);
    free(text);
    wp_tokenizer_free(tokenizer);
}

static void words_of_a_million_letters_have_their_pieces_when_allowed(void) {
    for (int32_t compat = WP_GOOGLE; compat <= WP_HF_FAST; ++compat) {
        wp_tokenizer *tokenizer =
            tokenizer_of((wp_rules){1, 1, 1, compat}, 10 * MILLION, "[UNK] a ##aa ##a ##aaab");
        char *text = repeated("A", MILLION);
        wp_result *result = encoded(tokenizer, text, MILLION, WP_OFFSETS);
        CHECK(result->n_ids == MILLION / 2 + 1 && result->ids[0] == 1 && result->ids[MILLION / 2] == 3);
        for (int64_t i = 1; i < MILLION / 2; ++i) {
            CHECK(result->ids[i] == 2 && result->offsets[2 * i] == 2 * i - 1 &&
                  result->offsets[2 * i + 1] == 2 * i + 1);
        }
        wp_result_free(result);
        free(text);
        text = repeated("\xC3\x84", 2 * MILLION); /* Ä */
        result = encoded(tokenizer, text, 2 * MILLION, WP_OFFSETS);
        CHECK(result->n_ids == MILLION / 2 + 1 && result->offsets[MILLION + 1] == MILLION);
        wp_result_free(result);
        free(text);
        wp_tokenizer_free(tokenizer);
    }
}

static void long_runs_of_anything_take_linear_time(void) {
    /* Marks in the wrong order, sigmas that look ahead over apostrophes, brackets that begin no token ... */
    static const char *const parts[] = {"\xCC\x81\xCC\xA3",
                                        "\xF0\x9D\x85\xAD\xF0\x9D\x85\xA5",
                                        "\xCE\xA3'",
                                        "\xCE\xA3\xCC\x81",
                                        "'",
                                        "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8",
                                        "[MASK",
                                        "[",
                                        "\xE4\xB8\xAD",
                                        " ",
                                        "\xED\xA0\x80",
                                        "\x80",
                                        "\xF0\x9F",
                                        "\0",
                                        "\xE2\x80\x8F",
                                        "a\xCC\x81",
                                        "\xC3\x89",
                                        "n't "};
    check_strings vocab = check_split("[UNK] [MASK] a e ##e", 20), kept = check_split("[MASK] ' n't", 12);
    const int32_t special_ids[] = {0, 1};
    for (size_t part = 0; part < sizeof parts / sizeof *parts; ++part) {
        int64_t n_bytes = 2 * MILLION;
        char *text = *parts[part] ? repeated(parts[part], n_bytes) : calloc(1, (size_t)n_bytes);
        text[0] = 'a';
        for (int32_t compat = WP_GOOGLE; compat <= WP_HF_FAST; ++compat) {
            for (int32_t uncased = 0; uncased <= 1; ++uncased) {
                wp_rules rules = {uncased, uncased, 1, compat};
                wp_tokenizer *tokenizer =
                    wp_tokenizer_new(&rules, uncased ? 200 : 3 * MILLION, vocab.bytes, vocab.bounds, vocab.n,
                                     0, special_ids, 2, kept.bytes, kept.bounds, kept.n);
                wp_result *result = encoded(tokenizer, text, n_bytes, WP_RAW | WP_SPECIAL | WP_OFFSETS);
                CHECK(result->n_ids > 0 && result->n_ids <= n_bytes);
                for (int64_t i = 1; i < result->n_ids; ++i) {
                    CHECK(result->offsets[2 * i] >= result->offsets[2 * i - 2]);
                    CHECK(result->offsets[2 * i + 1] >= result->offsets[2 * i - 1]);
                    CHECK(result->words[i] == result->words[i - 1] ||
                          result->words[i] == result->words[i - 1] + 1);
                }
                wp_result_free(result);
                wp_tokenizer_free(tokenizer);
            }
        }
        free(text);
    }
    check_strings_free(&vocab);
    check_strings_free(&kept);
}

/* A piece of n letters over ##aa: as many pops wait at each of its letters as half the letters before it. */
static wp_tokenizer *deep_tokenizer(int64_t n_letters) {
    char *pieces = repeated("a", n_letters + 18);
    memcpy(pieces, "[UNK] a ##a ##aa ", 17);
    memcpy(pieces + n_letters + 16, "b", 2);
    wp_tokenizer *tokenizer = tokenizer_of(UNCASED, MILLION, pieces);
    free(pieces);
    return tokenizer;
}

static void a_vocabulary_of_absurd_depth_is_refused_before_it_fills_the_memory(void) {
    int64_t n_letters = 10000;
    wp_tokenizer *tokenizer = deep_tokenizer(n_letters);
    char *word = repeated("a", n_letters);
    int32_t *ids = check_memory(sizeof(int32_t) * (size_t)n_letters);
    CHECK(wp_encode_text(tokenizer, word, n_letters, 0, ids) == n_letters / 2 + 1);
    CHECK(ids[0] == 1 && ids[1] == 3 && ids[n_letters / 2] == 2);
    word[n_letters - 1] = 'b';
    CHECK(wp_encode_text(tokenizer, word, n_letters, 0, ids) == 1 && ids[0] == 4);
    free(ids);
    free(word);
    wp_tokenizer_free(tokenizer);
    CHECK(deep_tokenizer(300000) == NULL);
}

static void a_vocabulary_of_every_length_is_found_back(void) {
    /* a, aa, aaa ... as beginnings and as continuations: each is its own longest match. */
    enum { LONGEST = 1000 };
    size_t room = (size_t)LONGEST * (LONGEST + 8) + 8, length = 5;
    char *pieces = check_memory(room), word[LONGEST + 2];
    memcpy(pieces, "[UNK]", 5);
    for (size_t mark = 0; mark <= 2; mark += 2) {
        for (size_t n = 1; n <= LONGEST; ++n) {
            pieces[length++] = ' ';
            memcpy(pieces + length, "##", mark);
            memset(pieces + length + mark, 'a', n);
            length += mark + n;
        }
    }
    CHECK(length < room);
    pieces[length] = 0;
    wp_tokenizer *tokenizer = tokenizer_of(UNCASED, MILLION, pieces);
    memset(word, 'a', sizeof word);
    for (int32_t n = 1; n <= LONGEST + 2; ++n) {
        int32_t ids[LONGEST + 2];
        int64_t n_ids = wp_encode_text(tokenizer, word, n, 0, ids);
        CHECK(n_ids == (n > LONGEST ? 2 : 1) && ids[0] == (n > LONGEST ? LONGEST : n));
        CHECK(n_ids == 1 || ids[1] == LONGEST + n - LONGEST);
    }
    wp_tokenizer_free(tokenizer);
    free(pieces);
}

static void a_word_of_a_million_symbols_is_learned_from_in_linear_time(void) {
    int32_t *symbols = calloc((size_t)MILLION, sizeof(int32_t)), lefts[40], rights[40];
    const int64_t bounds[] = {0, MILLION}, counts[] = {3};
    for (int32_t objective = 0; objective <= 1; ++objective) {
        wp_learner *learner = wp_learner_new(symbols, bounds, counts, 1, 1, 1, objective);
        CHECK(learner != NULL);
        int64_t n = wp_learner_run(learner, 40, lefts, rights);
        CHECK(n >= 20 && n <= 40 && lefts[0] == 0 && rights[0] == 0 && lefts[1] == 1 && rights[1] == 1);
        wp_learner_free(learner);
    }
    free(symbols);
}

/* Everything once; false when memory ran out somewhere, which every function must say and survive. */
static bool encoding_succeeds(void) {
    static const char text[] = "Un\xC3\xA9"
                               "e\xCC\x81\xCC\xA3"
                               "a\xF0\x9D\x85\xAD\xF0\x9D\x85\xA5 \xE4\xB8\xAD[MASK] don't \xCE\xA3";
    check_strings vocab = {NULL, NULL, 0}, kept = {"don't", (int64_t[]){0, 5}, 1};
    static const char pieces[] = "[UNK][MASK]un##e##aa";
    vocab.bytes = (char *)(uintptr_t)pieces;
    vocab.bounds = (int64_t[]){0, 5, 11, 13, 16, 19, 20}, vocab.n = 6;
    const int32_t special_ids[] = {0, 1};
    const int64_t n_bytes = (int64_t)sizeof text - 1, bounds[] = {0, n_bytes, n_bytes};
    int32_t ids[sizeof text];
    bool whole = true;
    for (int32_t compat = WP_GOOGLE; compat <= WP_HF_FAST && whole; ++compat) {
        wp_rules rules = {1, 1, 1, compat};
        wp_tokenizer *tokenizer = wp_tokenizer_new(&rules, 100, vocab.bytes, vocab.bounds, vocab.n, 0,
                                                   special_ids, 2, kept.bytes, kept.bounds, kept.n);
        if (tokenizer == NULL) {
            return false;
        }
        int64_t n = wp_encode_text(tokenizer, text, n_bytes, WP_SPECIAL, ids);
        CHECK(n > 0 || n == WP_NO_MEMORY);
        wp_result *result = wp_encode_texts(tokenizer, text, bounds, 2, WP_SPECIAL | WP_OFFSETS, 0, 0, 1);
        whole = n > 0 && result != NULL;
        wp_result_free(result);
        wp_tokenizer_free(tokenizer);
    }
    return whole;
}

static bool counting_succeeds(void) {
    wp_counter *one = wp_counter_new(&UNCASED, 100), *other = wp_counter_new(&UNCASED, 100);
    bool whole = one != NULL && other != NULL;
    char text[4000];
    int64_t n_bytes = 0;
    for (int i = 0; i < 500; ++i) {
        n_bytes += snprintf(text + n_bytes, sizeof text - (size_t)n_bytes, "w%d\n", i);
    }
    if (whole) {
        int64_t counted = wp_count(one, text, n_bytes, 0),
                split = wp_count_split(one, other, 3, text, n_bytes, WP_RAW);
        int added = wp_counter_add(one, other);
        CHECK((counted == 0 || counted == WP_NO_MEMORY) && (split == 0 || split == WP_NO_MEMORY));
        CHECK(added == 0 || added == WP_NO_MEMORY);
        whole = counted == 0 && split == 0 && added == 0;
        int64_t n_words = wp_counter_n_words(one), n_text = wp_counter_n_bytes(one);
        CHECK(n_words >= 0 || n_words == WP_NO_MEMORY);
        char *bytes = n_text >= 0 ? malloc((size_t)n_text) : NULL;
        int64_t *numbers = n_words >= 0 ? malloc(sizeof(int64_t) * (size_t)(2 * n_words + 1)) : NULL;
        if (bytes && numbers) {
            int exported = wp_counter_export(one, bytes, numbers, numbers + n_words + 1);
            CHECK(exported == 0 || exported == WP_NO_MEMORY);
            whole = whole && exported == 0;
        } else {
            whole = false;
        }
        free(bytes);
        free(numbers);
    }
    wp_counter_free(one);
    wp_counter_free(other);
    return whole;
}

static bool learning_succeeds(void) {
    int32_t symbols[300], lefts[30], rights[30];
    int64_t bounds[31], counts[30], made = 0;
    bool whole = true;
    for (int32_t i = 0; i < 300; ++i) {
        symbols[i] = i * i % 7;
    }
    for (int64_t i = 0; i <= 30; ++i) {
        bounds[i] = 10 * i;
    }
    for (int64_t i = 0; i < 30; ++i) {
        counts[i] = 1 + i % 4;
    }
    for (int32_t objective = 0; objective <= 1 && whole; ++objective) {
        wp_learner *learner = wp_learner_new(symbols, bounds, counts, 30, 7, 1, objective);
        if (learner == NULL) {
            return false;
        }
        made = wp_learner_run(learner, 30, lefts, rights);
        CHECK(made > 0 || made == WP_NO_MEMORY);
        whole = made > 0;
        wp_learner_free(learner);
    }
    return whole;
}

static void survives_memory_that_runs_out_anywhere(bool (*succeeds)(void)) {
    int64_t lasts = 0, in_use = test_blocks_in_use();
    for (bool done = false; !done; ++lasts) {
        test_memory_lasts_for(lasts);
        done = succeeds();
        test_memory_lasts_for(-1);
        CHECK(test_blocks_in_use() == in_use);
        CHECK(lasts < 100000);
    }
    CHECK(lasts > 2); /* memory did run out */
}

static void encoding_survives_memory_that_runs_out(void) {
    survives_memory_that_runs_out_anywhere(encoding_succeeds);
}

static void counting_survives_memory_that_runs_out(void) {
    survives_memory_that_runs_out_anywhere(counting_succeeds);
}

static void learning_survives_memory_that_runs_out(void) {
    survives_memory_that_runs_out_anywhere(learning_succeeds);
}

static void a_word_that_memory_was_short_for_leaves_nothing_to_the_next(void) {
    enum { MARKS = 23, N_BYTES = 1 + 3 * MARKS }; /* so long a chunk is counted at once */
    wp_counter *counter = wp_counter_new(&UNCASED, 200);
    char text[N_BYTES];
    memset(text, 'a', N_BYTES);
    CHECK(wp_count(counter, text, N_BYTES, 0) == 0);
    for (int i = 0; i < MARKS; ++i) {
        memcpy(text + 1 + 3 * i, "\xE3\x80\xAE", 3); /* U+302E, which waits for its canonical order */
    }
    test_memory_lasts_for(0);
    CHECK(wp_count(counter, text, N_BYTES, 0) == WP_NO_MEMORY);
    test_memory_lasts_for(-1);
    CHECK(wp_count(counter, "b", 1, 0) == 0);
    CHECK(wp_counter_n_words(counter) == 2 && wp_counter_n_bytes(counter) == N_BYTES + 1);
    wp_counter_free(counter);
}

static void a_counter_that_memory_was_short_for_is_added_to_nothing(void) {
    for (int failed = 0; failed < 2; ++failed) { /* the counter that is added to, or the one that is added */
        wp_counter *counters[2] = {wp_counter_new(&UNCASED, 100), wp_counter_new(&UNCASED, 100)};
        test_memory_lasts_for(0);
        CHECK(wp_count(counters[failed], "a", 1, 0) == WP_NO_MEMORY);
        test_memory_lasts_for(-1);
        CHECK(wp_counter_add(counters[0], counters[1]) == WP_NO_MEMORY);
        wp_counter_free(counters[0]);
        wp_counter_free(counters[1]);
    }
}

void run_limit_tests(void) {
    RUN(a_line_of_100_mb_without_a_space_is_one_unknown);
    RUN(words_of_a_million_letters_have_their_pieces_when_allowed);
    RUN(long_runs_of_anything_take_linear_time);
    RUN(a_vocabulary_of_absurd_depth_is_refused_before_it_fills_the_memory);
    RUN(a_vocabulary_of_every_length_is_found_back);
    RUN(a_word_of_a_million_symbols_is_learned_from_in_linear_time);
    RUN(encoding_survives_memory_that_runs_out);
    RUN(counting_survives_memory_that_runs_out);
    RUN(learning_survives_memory_that_runs_out);
    RUN(a_word_that_memory_was_short_for_leaves_nothing_to_the_next);
    RUN(a_counter_that_memory_was_short_for_is_added_to_nothing);
}
