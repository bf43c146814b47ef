/* libFuzzer on the C core: any bytes as text, rules, vocabulary and corpus. Beside what sanitizers see, it
 * is checked what must hold of any result: ids of one call are those of the other, offsets never fall, words
 * of plain letters have the pieces of the quadratic loop, and what memory that runs out leaves can be freed.
 *
 * The first bytes of the input choose; the rest is text, and with bit 7 of the second byte vocabulary too. */
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const uint8_t *data;
    size_t size;
} input;

static uint8_t next(input *in) {
    if (in->size == 0) {
        return 0;
    }
    --in->size;
    return *in->data++;
}

static const char SMALL[] =
    "[PAD] [UNK] [CLS] [SEP] [MASK] a b c e i o s t un ##a ##b ##ab ##abc abcd ##e ##able ##aff "
    "the ##ing \xC3\x9F ##\xC3\x9F \xCE\xBF ##\xCF\x83 ##\xCF\x82 \xE4\xB8\xAD \xE1\x84\x92 "
    "##\xE1\x85\xA1 ##\xE1\x86\xAB . , # ' \xF0\x9D\x85\xA5 ##\xF0\x9D\x85\xAD \xD0\xB9 \xD7\xA9";

/* The strings between the spaces of `text`, the later of two equal ones left out. */
static check_strings different(const char *text, int64_t n_bytes) {
    check_strings all = check_split(text, n_bytes), kept = check_split(text, n_bytes);
    kept.n = 0;
    for (int64_t i = 0; i < all.n; ++i) {
        const char *piece = all.bytes + all.bounds[i];
        int64_t n = all.bounds[i + 1] - all.bounds[i];
        if (check_find(&kept, piece, n) >= 0) {
            continue;
        }
        memmove(kept.bytes + kept.bounds[kept.n], piece, (size_t)n);
        kept.bounds[kept.n + 1] = kept.bounds[kept.n] + n;
        ++kept.n;
    }
    check_strings_free(&all);
    return kept;
}

static void check_result(const wp_result *result, const int64_t *text_bounds, int64_t n_texts,
                         int32_t n_pieces) {
    CHECK(result->bounds[0] == 0 && result->bounds[n_texts] == result->n_ids && result->n_invalid >= 0);
    for (int64_t text = 0; text < n_texts; ++text) {
        int32_t begin = 0, end = 0, word = -1;
        CHECK(result->bounds[text] <= result->bounds[text + 1]);
        for (int64_t i = result->bounds[text]; i < result->bounds[text + 1]; ++i) {
            CHECK(result->ids[i] >= 0 && result->ids[i] < n_pieces);
            if (result->offsets == NULL || result->words[i] < 0) {
                continue;
            }
            CHECK(result->offsets[2 * i] >= begin && result->offsets[2 * i + 1] >= end);
            begin = result->offsets[2 * i], end = result->offsets[2 * i + 1];
            CHECK(begin < end && end <= text_bounds[text + 1] - text_bounds[text]);
            CHECK(result->words[i] == word || result->words[i] == word + 1);
            word = result->words[i];
        }
    }
}

static void check_same(const wp_result *left, const wp_result *right, int64_t n_texts) {
    CHECK(left->n_ids == right->n_ids && left->n_invalid == right->n_invalid);
    CHECK(left->n_ids == 0 || memcmp(left->ids, right->ids, sizeof(int32_t) * (size_t)left->n_ids) == 0);
    CHECK(memcmp(left->bounds, right->bounds, sizeof(int64_t) * (size_t)(n_texts + 1)) == 0);
}

/* Letters of the text, as one word, against the quadratic loop. */
static void check_letters(const wp_tokenizer *tokenizer, const check_strings *vocab, int32_t unk_id,
                          input in) {
    char word[64];
    int32_t found[64], wanted[64];
    int64_t n = 0;
    for (size_t i = 0; i < in.size && n < 64; ++i) {
        if (in.data[i] >= 'a' && in.data[i] <= 'z') {
            word[n++] = (char)in.data[i];
        }
    }
    if (n == 0) {
        return;
    }
    int64_t n_wanted = check_longest_match(vocab, unk_id, word, n, wanted);
    CHECK(wp_encode_text(tokenizer, word, n, 0, found) == n_wanted);
    CHECK(memcmp(found, wanted, sizeof(int32_t) * (size_t)n_wanted) == 0);
}

static void encode(input in, wp_rules rules, uint8_t bits) {
    int64_t max_chars = next(&in), n_first = next(&in), memory = next(&in);
    int32_t flags = bits & 7, period = 1 + (bits >> 3 & 1);
    bool own_vocabulary = bits >> 7;
    int64_t n_own = own_vocabulary ? (int64_t)(in.size < 256 ? in.size / 2 : 128) : 0;
    char *text = check_copy((const char *)in.data + n_own, (int64_t)in.size - n_own);
    int64_t n_bytes = (int64_t)in.size - n_own;
    n_first = n_first < n_bytes ? n_first : n_bytes;
    const int64_t text_bounds[] = {0, n_first, n_first, n_bytes};
    check_strings vocab = own_vocabulary ? different((const char *)in.data, n_own)
                                         : check_split(SMALL, (int64_t)sizeof SMALL - 1);
    const char *kept = "don't a.b \xC3\x89 [UNK] \xE4\xB8\xAD";
    check_strings never_split = check_split(kept, (int64_t)(bits & 16 ? strlen(kept) : 0));
    int32_t n_pieces = (int32_t)vocab.n, unk_id = n_pieces > 1, special_ids[8], n_special = 0;
    for (int32_t id = 0; id < n_pieces && n_special < 8; ++id) {
        if (vocab.bounds[id + 1] > vocab.bounds[id] && vocab.bytes[vocab.bounds[id]] == '[') {
            special_ids[n_special++] = id;
        }
    }

    if (bits & 32) {
        test_memory_lasts_for(memory);
    }
    wp_tokenizer *tokenizer =
        wp_tokenizer_new(&rules, max_chars, vocab.bytes, vocab.bounds, n_pieces, unk_id, special_ids,
                         n_special, never_split.bytes, never_split.bounds, never_split.n);
    wp_result *plain = NULL, *with_offsets = NULL;
    if (tokenizer != NULL) {
        plain = wp_encode_texts(tokenizer, text, text_bounds, 3, flags & ~WP_OFFSETS, -1, unk_id, period);
        with_offsets =
            wp_encode_texts(tokenizer, text, text_bounds, 3, flags | WP_OFFSETS, -1, unk_id, period);
    }
    test_memory_lasts_for(-1);
    CHECK((bits & 32) || (tokenizer != NULL && plain != NULL && with_offsets != NULL));
    if (n_pieces > 0 && plain != NULL && with_offsets != NULL) {
        check_result(plain, text_bounds, 3, n_pieces);
        check_result(with_offsets, text_bounds, 3, n_pieces);
        check_same(plain, with_offsets, 3);
        int32_t *ids = check_memory(sizeof(int32_t) * (size_t)n_first);
        int64_t n = wp_encode_text(tokenizer, text, n_first, flags & ~WP_OFFSETS, ids);
        CHECK(n == plain->bounds[1] - 1); /* unk_id stands after it */
        CHECK(n == 0 || memcmp(ids, plain->ids, sizeof(int32_t) * (size_t)n) == 0);
        free(ids);
        if (max_chars >= 64) {
            check_letters(tokenizer, &vocab, unk_id, in);
        }
    }
    wp_result_free(plain);
    wp_result_free(with_offsets);
    wp_tokenizer_free(tokenizer);
    check_strings_free(&vocab);
    check_strings_free(&never_split);
    free(text);
}

static int64_t total(wp_counter *counter) {
    int64_t n = wp_counter_n_words(counter), n_bytes = wp_counter_n_bytes(counter), sum = 0;
    char *bytes = check_memory((size_t)n_bytes);
    int64_t *bounds = check_memory(sizeof(int64_t) * (size_t)(n + 1)),
            *counts = check_memory(sizeof(int64_t) * (size_t)n);
    CHECK(wp_counter_export(counter, bytes, bounds, counts) == 0);
    CHECK(bounds[0] == 0 && bounds[n] == n_bytes);
    for (int64_t i = 0; i < n; ++i) {
        CHECK(counts[i] > 0 && bounds[i] < bounds[i + 1]);
        sum += counts[i];
    }
    free(bytes);
    free(bounds);
    free(counts);
    return sum;
}

static void count(input in, wp_rules rules, uint8_t bits) {
    int64_t memory = next(&in), modulus = 1 + next(&in) % 5, n_bytes = (int64_t)in.size;
    char *text = check_copy((const char *)in.data, n_bytes);
    if (bits & 32) {
        test_memory_lasts_for(memory);
    }
    wp_counter *whole = wp_counter_new(&rules, 50), *train = wp_counter_new(&rules, 50),
               *held_out = wp_counter_new(&rules, 50);
    if (whole && train && held_out) {
        int64_t n_invalid = wp_count(whole, text, n_bytes, bits & WP_RAW);
        int64_t n_split = wp_count_split(train, held_out, modulus, text, n_bytes, bits & WP_RAW);
        int added = wp_counter_add(train, held_out);
        test_memory_lasts_for(-1);
        if (n_invalid >= 0 && n_split >= 0 && added == 0) {
            CHECK(n_invalid == n_split);
            CHECK(total(whole) == total(train) && wp_counter_n_bytes(whole) == wp_counter_n_bytes(train));
        } else {
            CHECK(bits & 32);
        }
    }
    test_memory_lasts_for(-1);
    wp_counter_free(whole);
    wp_counter_free(train);
    wp_counter_free(held_out);
    free(text);
}

static void learn(input in, uint8_t bits) {
    enum { MOST = 512, MERGES = 64 };
    int64_t memory = next(&in), bounds[MOST + 1] = {0}, counts[MOST], n_words = 0,
            min_frequency = 1 + next(&in) % 4;
    int32_t symbols[MOST], n = 0, lefts[2][MERGES], rights[2][MERGES];
    while (in.size && n_words < MOST && n < MOST) { /* a byte above 15 ends a word */
        uint8_t byte = next(&in);
        if (byte < 16) {
            symbols[n++] = byte;
        } else {
            counts[n_words] = byte == 255 ? INT64_C(1) << 40 : byte - 15;
            bounds[++n_words] = n;
        }
    }
    n = (int32_t)bounds[n_words];
    int64_t made[2] = {0, 0};
    for (int again = 0; again < 2; ++again) { /* at once, and merge by merge */
        if (bits & 32) {
            test_memory_lasts_for(memory);
        }
        wp_learner *learner = wp_learner_new(symbols, bounds, counts, n_words, 16, min_frequency, bits & 1);
        int64_t now = learner == NULL ? WP_NO_MEMORY : MERGES;
        for (int64_t i = 0; now > 0 && made[again] < MERGES; ++i) {
            now = wp_learner_run(learner, again ? 1 : MERGES, lefts[again] + made[again],
                                 rights[again] + made[again]);
            made[again] = now < 0 ? now : made[again] + now;
        }
        made[again] = now < 0 ? now : made[again];
        test_memory_lasts_for(-1);
        wp_learner_free(learner);
        CHECK(made[again] >= 0 || (bits & 32));
    }
    if (made[0] < 0 || made[1] < 0) {
        return;
    }
    CHECK(made[0] == made[1] && memcmp(lefts[0], lefts[1], sizeof(int32_t) * (size_t)made[0]) == 0);
    CHECK(memcmp(rights[0], rights[1], sizeof(int32_t) * (size_t)made[0]) == 0);
    for (int64_t i = 0; i < made[0]; ++i) {
        CHECK(lefts[0][i] >= 0 && lefts[0][i] < 16 + i && rights[0][i] >= 0 && rights[0][i] < 16 + i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size};
    int64_t in_use = test_blocks_in_use();
    uint8_t what = next(&in), bits = next(&in);
    wp_rules rules = {what & 1, what >> 1 & 1, what >> 2 & 1, (what >> 3) % 3};
    if (what >= 224) {
        learn(in, bits);
    } else if (what >= 192) {
        count(in, rules, bits);
    } else {
        encode(in, rules, bits);
    }
    CHECK(test_blocks_in_use() == in_use);
    return 0;
}
