/* The C core without Python: every function of wordpiece.h, its values, and what it does to bad input.
 * `make sanitize` compiles it with AddressSanitizer and UndefinedBehaviorSanitizer. Here: text to ids. */
#include <time.h>

#include "test_wordpiece.h"

const wp_rules UNCASED = {1, 1, 1, WP_GOOGLE};
const wp_rules CASED = {0, 0, 1, WP_GOOGLE};

wp_tokenizer *tokenizer_of(wp_rules rules, int64_t max_chars, const char *pieces) {
    check_strings vocab = check_split(pieces, (int64_t)strlen(pieces));
    int32_t unk_id = check_find(&vocab, "[UNK]", 5), special_ids[2];
    int64_t n_special = 0;
    for (const char *const *name = (const char *const[]){"[UNK]", "[MASK]", NULL}; *name; ++name) {
        int32_t id = check_find(&vocab, *name, (int64_t)strlen(*name));
        if (id >= 0) {
            special_ids[n_special++] = id;
        }
    }
    wp_tokenizer *tokenizer = wp_tokenizer_new(&rules, max_chars, vocab.bytes, vocab.bounds, vocab.n, unk_id,
                                               special_ids, n_special, NULL, NULL, 0);
    check_strings_free(&vocab); /* the tokenizer keeps nothing of what it was given */
    return tokenizer;
}

/* Ids alone, ids among others, and ids with offsets are one thing. */
int64_t expect(int line, const wp_tokenizer *tokenizer, const char *text, int64_t n_bytes, int32_t flags,
               const int32_t (*wanted)[4], int64_t n_wanted) {
    char *copy = check_copy(text, n_bytes);
    int32_t *ids = check_memory(sizeof(int32_t) * (size_t)n_bytes);
    int64_t n = wp_encode_text(tokenizer, copy, n_bytes, flags, ids), n_invalid = 0;
    bool same = n == n_wanted;
    for (int64_t i = 0; same && i < n; ++i) {
        same = ids[i] == wanted[i][0];
    }
    for (int32_t offsets = 0; offsets <= WP_OFFSETS; offsets += WP_OFFSETS) {
        int64_t bounds[2] = {0, n_bytes};
        wp_result *result = wp_encode_texts(tokenizer, copy, bounds, 1, flags | offsets, -1, -1, 1);
        CHECK(result != NULL);
        n = result->n_ids;
        same = same && n == n_wanted && result->bounds[0] == 0 && result->bounds[1] == n;
        for (int64_t i = 0; same && i < n; ++i) {
            same = result->ids[i] == wanted[i][0];
            if (offsets) {
                same = same && result->offsets[2 * i] == wanted[i][1] &&
                       result->offsets[2 * i + 1] == wanted[i][2] && result->words[i] == wanted[i][3];
            }
        }
        if (!same) {
            fprintf(stderr, "test_wordpiece.c:%d: got (id, begin, end, word)", line);
            for (int64_t i = 0; i < n && i < 100; ++i) {
                fprintf(stderr, " {%d", result->ids[i]);
                if (offsets) {
                    fprintf(stderr, ", %d, %d, %d", result->offsets[2 * i], result->offsets[2 * i + 1],
                            result->words[i]);
                }
                fprintf(stderr, "}");
            }
            fprintf(stderr, "\n");
            abort();
        }
        n_invalid = result->n_invalid;
        wp_result_free(result);
    }
    free(ids);
    free(copy);
    return n_invalid;
}

static void longest_match_wins_and_failure_goes_back(void) {
    /* The examples of Google's code, and of Song et al. 2021 (figure 1). */
    wp_tokenizer *google = tokenizer_of(UNCASED, 200, "[UNK] [CLS] [SEP] want ##want ##ed wa un runn ##ing");
    EXPECT(google, "unwanted running", 0, {7, 0, 2, 0}, {4, 2, 6, 0}, {5, 6, 8, 0}, {8, 9, 13, 1},
           {9, 13, 16, 1});
    EXPECT(google, "unwantedX running", 0, {0, 0, 9, 0}, {8, 10, 14, 1}, {9, 14, 17, 1});
    EXPECT_NOTHING(google, "", 0);
    EXPECT_NOTHING(google, " \t\r\n  ", 0);
    wp_tokenizer_free(google);
    wp_tokenizer *song = tokenizer_of(UNCASED, 200, "a abcdx ##b ##c ##cdy ##dz [UNK]");
    EXPECT(song, "abcdz", 0, {0, 0, 1, 0}, {2, 1, 2, 0}, {3, 2, 3, 0}, {5, 3, 5, 0});
    EXPECT(song, "abcdx", 0, {1, 0, 5, 0});
    EXPECT(song, "abcd", 0, {6, 0, 4, 0});
    EXPECT(song, "z", 0, {6, 0, 1, 0});
    wp_tokenizer_free(song);
}

static void nested_pieces_match_as_in_the_quadratic_loop(void) {
    uint64_t state = 20181011;
    for (int round = 0; round < 3000; ++round) {
        char pieces[400] = "[UNK]", word[40];
        check_strings vocab;
        int32_t ids[40], wanted[40];
        size_t length = 5;
        for (uint32_t n = 1 + check_random(&state, 12); n > 0; --n) {
            pieces[length++] = ' ';
            size_t begin = length;
            if (check_random(&state, 3)) {
                pieces[length++] = '#', pieces[length++] = '#';
            }
            for (uint32_t letters = 1 + check_random(&state, round % 2 ? 3 : 8); letters > 0; --letters) {
                pieces[length++] = (char)('a' + check_random(&state, 2));
            }
            vocab = check_split(pieces, (int64_t)begin - 1);
            if (check_find(&vocab, pieces + begin, (int64_t)(length - begin)) >= 0) {
                length = begin - 1; /* has it already */
            }
            check_strings_free(&vocab);
        }
        pieces[length] = 0;
        vocab = check_split(pieces, (int64_t)length);
        wp_tokenizer *tokenizer = tokenizer_of(UNCASED, 200, pieces);
        for (int words = 0; words < 40; ++words) {
            int64_t n_letters = 1 + check_random(&state, 39);
            for (int64_t i = 0; i < n_letters; ++i) {
                word[i] = (char)('a' + check_random(&state, 2));
            }
            int64_t n = check_longest_match(&vocab, 0, word, n_letters, wanted);
            CHECK(wp_encode_text(tokenizer, word, n_letters, 0, ids) == n);
            CHECK(memcmp(ids, wanted, sizeof(int32_t) * (size_t)n) == 0);
        }
        wp_tokenizer_free(tokenizer);
        check_strings_free(&vocab);
    }
}

static void unusual_vocabularies_are_harmless(void) {
    /* Without text, the mark alone, out of reach because of upper case or punctuation. */
    wp_tokenizer *odd = tokenizer_of(UNCASED, 200, "[UNK]  ## ### #### A a-b ##\xC3\x89 a # ##a");
    EXPECT(odd, "aa", 0, {8, 0, 1, 0}, {10, 1, 2, 0});
    EXPECT(odd, "A", 0, {8, 0, 1, 0});
    EXPECT(odd, "##a", 0, {9, 0, 1, 0}, {9, 1, 2, 1}, {8, 2, 3, 2});
    EXPECT(odd, "a-b", 0, {8, 0, 1, 0}, {0, 1, 2, 1}, {0, 2, 3, 2});
    wp_tokenizer_free(odd);
    wp_tokenizer *only_unk = tokenizer_of(UNCASED, 200, "[UNK]");
    EXPECT(only_unk, "a, b", 0, {0, 0, 1, 0}, {0, 1, 2, 1}, {0, 3, 4, 2});
    wp_tokenizer_free(only_unk);
    wp_tokenizer *empty = tokenizer_of(UNCASED, 200, "");
    EXPECT(empty, "a b", 0, {-1, 0, 1, 0}, {-1, 2, 3, 1});
    wp_tokenizer_free(empty);
}

static void a_word_beyond_the_limit_is_one_unknown_that_covers_it(void) {
    wp_tokenizer *tokenizer = tokenizer_of(UNCASED, 5, "[UNK] a ##a \xC3\x9F ##\xC3\x9F");
    EXPECT(tokenizer, "aaaaa", 0, {1, 0, 1, 0}, {2, 1, 2, 0}, {2, 2, 3, 0}, {2, 3, 4, 0}, {2, 4, 5, 0});
    EXPECT(tokenizer, "aaaaaa a", 0, {0, 0, 6, 0}, {1, 7, 8, 1});
    EXPECT(tokenizer, "\xC3\x9F\xC3\x9F\xC3\x9F\xC3\x9F\xC3\x9F", 0, {3, 0, 1, 0}, {4, 1, 2, 0}, {4, 2, 3, 0},
           {4, 3, 4, 0}, {4, 4, 5, 0}); /* counted after normalisation, in code points */
    EXPECT(tokenizer, "aaaaa\xCC\x81", 0, {1, 0, 1, 0}, {2, 1, 2, 0}, {2, 2, 3, 0}, {2, 3, 4, 0},
           {2, 4, 5, 0});
    wp_tokenizer_free(tokenizer);
}

static void text_is_normalised_as_in_googles_code(void) {
    wp_tokenizer *uncased = tokenizer_of(UNCASED, 200, "[UNK] e ##e ab i ss \xC3\x9F a ##b \xE4\xB8\xAD , $");
    EXPECT(uncased, "\xC3\x89", 0, {1, 0, 1, 0}); /* É */
    EXPECT(uncased,
           "e\xCC\x81\xCC\x82"
           "e",
           0, {1, 0, 1, 0}, {2, 3, 4, 0});            /* marks belong to no piece */
    EXPECT(uncased, "\xC4\xB0", 0, {4, 0, 1, 0});     /* İ is i and a dot */
    EXPECT(uncased, "\xE1\xBA\x9E", 0, {6, 0, 1, 0}); /* ẞ is ß */
    EXPECT(uncased,
           "a\0\xEF\xBF\xBD\xE2\x80\x8F"
           "b",
           0, {3, 0, 5, 0}); /* NUL, U+FFFD, right-to-left mark */
    EXPECT(uncased,
           "\xC2\xA0"
           "a\xE3\x80\x80"
           "a\xE2\x80\xA8"
           "a",
           0, {7, 1, 2, 0}, {7, 3, 4, 1}, {7, 5, 6, 2});
    EXPECT(uncased,
           "a\xE4\xB8\xAD"
           "b",
           0, {7, 0, 1, 0}, {9, 1, 2, 1}, {0, 2, 3, 2});
    EXPECT(uncased, "a,$", 0, {7, 0, 1, 0}, {10, 1, 2, 1}, {11, 2, 3, 2});
    EXPECT_NOTHING(uncased, "\xCC\x81", 0); /* an accent alone */
    wp_tokenizer_free(uncased);
    wp_tokenizer *cased = tokenizer_of(CASED, 200, "[UNK] E e \xC3\x89 E\xCC\x81");
    EXPECT(cased, "\xC3\x89 E\xCC\x81 E", 0, {3, 0, 1, 0}, {4, 2, 4, 1}, {1, 5, 6, 2});
    wp_tokenizer_free(cased);
    wp_tokenizer *accents = tokenizer_of((wp_rules){1, 0, 0, WP_GOOGLE}, 200,
                                         "[UNK] \xC3\xA9 a\xE4\xB8\xAD"
                                         "b");
    EXPECT(accents, "\xC3\x89", 0, {1, 0, 1, 0});
    EXPECT(accents,
           "a\xE4\xB8\xAD"
           "b",
           0, {2, 0, 3, 0}); /* ideographs are letters when asked */
    wp_tokenizer_free(accents);
}

static void offsets_point_into_the_text_as_it_was(void) {
    /* NFD makes three letters of a Hangul syllable; two marks with a width that it permutes share a span. */
    wp_tokenizer *tokenizer = tokenizer_of(
        UNCASED, 200,
        "[UNK] \xE1\x84\x92 ##\xE1\x85\xA1 ##\xE1\x86\xAB a ##\xF0\x9D\x85\xA5 ##\xF0\x9D\x85\xAD");
    EXPECT(tokenizer, "\xED\x95\x9C", 0, {1, 0, 1, 0}, {2, 0, 1, 0}, {3, 0, 1, 0});
    EXPECT(tokenizer, "a\xF0\x9D\x85\xA5\xF0\x9D\x85\xAD", 0, {4, 0, 1, 0}, {5, 1, 2, 0}, {6, 2, 3, 0});
    EXPECT(tokenizer, "a\xF0\x9D\x85\xAD\xF0\x9D\x85\xA5", 0, {4, 0, 1, 0}, {5, 1, 3, 0}, {6, 1, 3, 0});
    wp_tokenizer_free(tokenizer);
}

static void compat_modes_differ_where_they_should(void) {
    const char *pieces = "[UNK] \xCE\xBF\xCF\x83 \xCE\xBF\xCF\x82 a \xF0\xAB\xA0\xA0 a\xF0\xAB\xA0\xA0 "
                         "a\xEE\x80\x80 \xC3\xA9 e\xCC\x81";
    for (int32_t compat = WP_GOOGLE; compat <= WP_HF_FAST; ++compat) {
        int32_t fast = compat == WP_HF_FAST;
        wp_tokenizer *uncased = tokenizer_of((wp_rules){1, 1, 1, compat}, 200, pieces);
        EXPECT(uncased, "\xCE\x9F\xCE\xA3", 0, {fast ? 1 : 2, 0, 2, 0}); /* ΟΣ: final sigma */
        if (fast) {
            EXPECT(uncased, "a\xF0\xAB\xA0\xA0", 0, {5, 0, 2, 0}); /* U+2B820: not among its ideographs */
        } else {
            EXPECT(uncased, "a\xF0\xAB\xA0\xA0", 0, {3, 0, 1, 0}, {4, 1, 2, 1});
        }
        if (compat == WP_GOOGLE) {
            EXPECT(uncased, "a\xEE\x80\x80", 0, {6, 0, 2, 0}); /* private use: kept by Google alone */
        } else {
            EXPECT(uncased, "a\xEE\x80\x80", 0, {3, 0, 1, 0});
        }
        wp_tokenizer_free(uncased);
        wp_tokenizer *cased = tokenizer_of((wp_rules){0, 0, 1, compat}, 200, pieces);
        EXPECT(cased, "e\xCC\x81", 0, {compat == WP_HF_SLOW ? 7 : 8, 0, 2, 0}); /* NFC in hf-slow */
        wp_tokenizer_free(cased);
    }
}

static void invalid_bytes_are_replaced_and_counted_as_python_does(void) {
    /* bytes between a and b; how often Python's errors="replace" replaces */
    static const struct {
        const char *bytes;
        int64_t n;
    } cases[] = {{"\x80", 1},
                 {"\xBF\x80", 2},
                 {"\xC0\x80", 2},
                 {"\xC1\xBF", 2},
                 {"\xC3", 1},
                 {"\xC3\xC3", 2},
                 {"\xE2", 1},
                 {"\xE2\x82", 1},
                 {"\xE0\x80\x80", 3},
                 {"\xE0\x9F\xBF", 3},
                 {"\xED\xA0\x80", 3},
                 {"\xED\xBF\xBF", 3},
                 {"\xF0\x9F", 1},
                 {"\xF0\x9F\x98", 1},
                 {"\xF0\x80\x80\x80", 4},
                 {"\xF0\x8F\xBF\xBF", 4},
                 {"\xF4\x90\x80", 3},
                 {"\xF5\x80\x80", 3},
                 {"\xF8\x88\x80\x80", 4},
                 {"\xFE\xFF", 2},
                 {"\xE2\x82\xE2", 2},
                 {"\xF0\x9F\xF0", 2},
                 {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF", 4}};
    wp_tokenizer *tokenizer = tokenizer_of(UNCASED, 200, "[UNK] ab a");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        char text[20];
        int n_bytes = snprintf(text, sizeof text, "a%sb", cases[i].bytes);
        int32_t wanted[1][4] = {{1, 0, (int32_t)cases[i].n + 2, 0}};
        CHECK(expect(__LINE__, tokenizer, text, n_bytes, WP_RAW, (const int32_t (*)[4])wanted, 1) ==
              cases[i].n);
        wanted[0][0] = 2, wanted[0][2] = 1; /* the text ends in the middle */
        CHECK(expect(__LINE__, tokenizer, text, n_bytes - 1, WP_RAW, (const int32_t (*)[4])wanted, 1) ==
              cases[i].n);
    }
    wp_tokenizer_free(tokenizer);
    /* A lone surrogate is a character of a Python string, and joins: it is no control character. */
    wp_tokenizer *surrogate = tokenizer_of(UNCASED, 200,
                                           "[UNK] a\xED\xA0\x80"
                                           "b ab");
    CHECK(EXPECT(surrogate,
                 "a\xED\xA0\x80"
                 "b",
                 0, {1, 0, 3, 0}) == 0);
    CHECK(EXPECT(surrogate,
                 "a\xED\xA0\x80"
                 "b",
                 WP_RAW, {2, 0, 5, 0}) == 3);
    wp_tokenizer_free(surrogate);
}

static void special_tokens_stay_whole_when_asked(void) {
    wp_tokenizer *tokenizer = tokenizer_of(UNCASED, 200, "[UNK] [MASK] a mask [ ] ##b");
    EXPECT(tokenizer, "a[MASK]a", WP_SPECIAL, {2, 0, 1, 0}, {1, 1, 7, 1}, {2, 7, 8, 2});
    EXPECT(tokenizer, "a[MASK]a", 0, {2, 0, 1, 0}, {4, 1, 2, 1}, {3, 2, 6, 2}, {5, 6, 7, 3}, {2, 7, 8, 4});
    EXPECT(tokenizer, "[mask]", WP_SPECIAL, {4, 0, 1, 0}, {3, 1, 5, 1}, {5, 5, 6, 2});
    EXPECT(tokenizer, "[[MASK]", WP_SPECIAL, {4, 0, 1, 0}, {1, 1, 7, 1});
    EXPECT(tokenizer, "[MASK", WP_SPECIAL, {4, 0, 1, 0}, {3, 1, 5, 1});
    EXPECT(tokenizer, "[MASK][UNK]", WP_SPECIAL, {1, 0, 6, 0}, {0, 6, 11, 1});
    wp_tokenizer_free(tokenizer);
}

static void words_that_are_never_split_stay_whole(void) {
    check_strings vocab = check_split("[UNK] don't don ' t A", 21), kept = check_split("don't A n/a", 11);
    wp_tokenizer *tokenizer = wp_tokenizer_new(&UNCASED, 200, vocab.bytes, vocab.bounds, vocab.n, 0, NULL, 0,
                                               kept.bytes, kept.bounds, kept.n);
    check_strings_free(&vocab);
    check_strings_free(&kept);
    EXPECT(tokenizer, "don't A", 0, {1, 0, 5, 0}, {5, 6, 7, 1});
    EXPECT(tokenizer, "don't.", 0, {2, 0, 3, 0}, {3, 3, 4, 1}, {4, 4, 5, 2}, {0, 5, 6, 3}); /* not alone */
    EXPECT(tokenizer, "n/a", 0, {0, 0, 3, 0});                                              /* no piece */
    wp_tokenizer_free(tokenizer);
}

/* An empty word would stand before every special token, and make two ids of its one byte. */
static void an_empty_word_is_never_kept(void) {
    const int64_t bounds[] = {0, 5, 6}, nothing[] = {0, 0};
    const int32_t special = 1;
    wp_tokenizer *tokenizer =
        wp_tokenizer_new(&UNCASED, 200, "[UNK]!", bounds, 2, 0, &special, 1, "", nothing, 1);
    EXPECT(tokenizer, "!!!!", WP_SPECIAL, {1, 0, 1, 0}, {1, 1, 2, 1}, {1, 2, 3, 2}, {1, 3, 4, 3});
    wp_tokenizer_free(tokenizer);
}

static void a_batch_is_its_texts_end_to_end_wrapped_as_asked(void) {
    wp_tokenizer *tokenizer = tokenizer_of(UNCASED, 200, "[UNK] [CLS] [SEP] a ##b");
    const int64_t bounds[] = {0, 2, 2, 3, 5}; /* "ab", "", "a", "\xFFa" */
    char *texts = check_copy("aba\xFF"
                             "a",
                             5);
    static const int32_t singly[] = {1, 3, 4, 2, 1, 2, 1, 3, 2, 1, 3, 2},
                         paired[] = {1, 3, 4, 2, 2, 1, 3, 2, 3, 2};
    static const int32_t words[] = {-1, 0, 0, -1, -1, -1, -1, 0, -1, -1, 0, -1};
    static const int32_t offsets[] = {0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 0, 0};
    static const int64_t singly_bounds[] = {0, 4, 6, 9, 12}, paired_bounds[] = {0, 4, 5, 8, 10};
    wp_result *result = wp_encode_texts(tokenizer, texts, bounds, 4, WP_RAW | WP_OFFSETS, 1, 2, 1);
    CHECK(result && result->n_ids == 12 && result->n_invalid == 1);
    CHECK(memcmp(result->ids, singly, sizeof singly) == 0 && memcmp(result->words, words, sizeof words) == 0);
    CHECK(memcmp(result->offsets, offsets, sizeof offsets) == 0);
    CHECK(memcmp(result->bounds, singly_bounds, sizeof singly_bounds) == 0);
    wp_result_free(result);
    result = wp_encode_texts(tokenizer, texts, bounds, 4, WP_RAW, 1, 2, 2);
    CHECK(result && result->n_ids == 10 && result->offsets == NULL && result->words == NULL);
    CHECK(memcmp(result->ids, paired, sizeof paired) == 0);
    CHECK(memcmp(result->bounds, paired_bounds, sizeof paired_bounds) == 0);
    int32_t *taken = result->ids;
    result->ids = NULL;
    wp_result_free(result);
    CHECK(memcmp(taken, paired, sizeof paired) == 0);
    wp_release(taken);
    result = wp_encode_texts(tokenizer, texts, bounds, 0, WP_OFFSETS, 1, 2, 1);
    CHECK(result && result->n_ids == 0 && result->bounds[0] == 0);
    wp_result_free(result);
    const int64_t too_long[] = {0, INT64_C(1) << 31};
    CHECK(wp_encode_texts(tokenizer, texts, too_long, 1, 0, -1, -1, 1) == NULL); /* and nothing was read */
    free(texts);
    wp_tokenizer_free(tokenizer);
}

void run(const char *name, void (*test)(void)) {
    clock_t began = clock();
    int64_t in_use = test_blocks_in_use();
    test();
    CHECK(test_blocks_in_use() == in_use);
    printf("%6.2f s  %s\n", (double)(clock() - began) / CLOCKS_PER_SEC, name);
    fflush(stdout);
}

int main(void) {
    RUN(longest_match_wins_and_failure_goes_back);
    RUN(nested_pieces_match_as_in_the_quadratic_loop);
    RUN(unusual_vocabularies_are_harmless);
    RUN(a_word_beyond_the_limit_is_one_unknown_that_covers_it);
    RUN(text_is_normalised_as_in_googles_code);
    RUN(offsets_point_into_the_text_as_it_was);
    RUN(compat_modes_differ_where_they_should);
    RUN(invalid_bytes_are_replaced_and_counted_as_python_does);
    RUN(special_tokens_stay_whole_when_asked);
    RUN(words_that_are_never_split_stay_whole);
    RUN(an_empty_word_is_never_kept);
    RUN(a_batch_is_its_texts_end_to_end_wrapped_as_asked);
    run_learning_tests();
    run_limit_tests();
    printf("minibert: the C core passed\n");
    return 0;
}
