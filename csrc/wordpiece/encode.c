/* Text to ids: the scanner of normalize.h above the trie of trie.h. */
#include <stdlib.h>
#include <string.h>

#include "normalize.h"
#include "trie.h"

/* A string that a text may hold as it is: a special token, or a word of never_split. */
typedef struct fixed {
    char *bytes;
    int64_t n;
    int32_t id;
} fixed;

struct wp_tokenizer {
    wp_normalizer normalizer;
    wp_trie trie;
    int64_t max_chars;
    int32_t unk_id;
    int32_t *piece_bytes; /* (n_pieces) without "##" */
    fixed *specials, *kept;
    int64_t n_specials, n_kept, longest_kept;
    bool begins_special[256];
};

/* The sink of the scanner: the place in the trie, and the ids so far. */
typedef struct encoder {
    const wp_tokenizer *tokenizer;
    int32_t flags;
    int32_t *ids, *offsets, *words;
    int64_t n;         /* ids so far */
    int64_t n_invalid; /* of stretches in words of never_split, which the scanner leaps over */
    bool failed;       /* no memory */

    /* the word being read */
    int64_t first;   /* its first id */
    int64_t n_chars; /* so far */
    int32_t node;    /* in the trie */
    int32_t word;    /* its number in the text */

    /* only with WP_OFFSETS: the span of each byte of the word, as far as it has at most max_chars characters */
    int32_t *begins, *ends;
    int64_t n_bytes, n_popped;
    int32_t word_begin, word_end;
} encoder;

/* Matching */

WP_INLINE void pop(encoder *e, const wp_link *link, bool offsets) {
    const int32_t *pops = e->tokenizer->trie.pops + link->pops;
    int32_t n = *pops++;
    for (int32_t i = 0; i < n; ++i) {
        e->ids[e->n] = pops[i];
        if (offsets) {
            int64_t last = e->n_popped + e->tokenizer->piece_bytes[pops[i]];
            e->offsets[2 * e->n] = e->begins[e->n_popped];
            e->offsets[2 * e->n + 1] = e->ends[last - 1];
            e->words[e->n] = e->word;
            e->n_popped = last;
        }
        ++e->n;
    }
}

/* Where the trie leads from `node` by one more byte, along failure links if need be. */
WP_INLINE int32_t step(encoder *e, int32_t node, uint8_t byte, bool offsets) {
    const wp_trie *trie = &e->tokenizer->trie;
    int32_t child = wp_trie_child(trie, node, byte);
    while (WP_RARELY(child == WP_NOWHERE)) {
        const wp_link *link = trie->links + node;
        if (link->fail == WP_NOWHERE) {
            return WP_DEAD;
        }
        pop(e, link, offsets);
        node = link->fail;
        child = wp_trie_child(trie, node, byte);
    }
    return child;
}

/* Note the span of the next n bytes; a word that grows too long is dead. */
WP_INLINE bool note(encoder *e, int64_t n_chars, int32_t begin, int32_t end) {
    if (e->n_chars == 0) {
        e->word_begin = begin;
    }
    e->word_end = end;
    if (e->n_chars + n_chars <= e->tokenizer->max_chars) {
        return true;
    }
    e->n_chars += n_chars;
    e->node = WP_DEAD;
    return false;
}

WP_INLINE const uint8_t *match_bytes(encoder *e, const uint8_t *text, const uint8_t *end, int32_t begin,
                                     bool offsets) {
    const uint8_t *map = e->tokenizer->normalizer.bytes, *next = text;
    if (offsets) {
        while (next < end && map[*next] > WP_BYTE_PUNCTUATION) {
            ++next;
        }
        int64_t n = next - text;
        if (!note(e, n, begin, begin + (int32_t)n)) {
            return next;
        }
        for (int32_t i = 0; i < n; ++i) {
            e->begins[e->n_bytes + i] = begin + i;
            e->ends[e->n_bytes + i] = begin + i + 1;
        }
        e->n_bytes += n;
        end = next;
        next = text;
    }
    int32_t node = e->node;
    for (; next < end; ++next) {
        uint8_t byte = map[*next];
        if (byte <= WP_BYTE_PUNCTUATION) {
            break;
        }
        node = step(e, node, byte, offsets);
    }
    e->node = node;
    e->n_chars += next - text;
    return next;
}

WP_INLINE void match_character(encoder *e, uint32_t code, int32_t begin, int32_t end, bool offsets) {
    uint8_t bytes[4];
    int n = wp_utf8(code, bytes);
    if (offsets) {
        if (!note(e, 1, begin, end)) {
            return;
        }
        for (int i = 0; i < n; ++i) {
            e->begins[e->n_bytes + i] = begin;
            e->ends[e->n_bytes + i] = end;
        }
        e->n_bytes += n;
    }
    for (int i = 0; i < n; ++i) {
        e->node = step(e, e->node, bytes[i], offsets);
    }
    ++e->n_chars;
}

static void write_id(encoder *e, int32_t id, int32_t begin, int32_t end, int32_t word) {
    e->ids[e->n] = id;
    if (e->flags & WP_OFFSETS) {
        e->offsets[2 * e->n] = begin;
        e->offsets[2 * e->n + 1] = end;
        e->words[e->n] = word;
    }
    ++e->n;
}

WP_INLINE void begin_word(encoder *e) {
    e->first = e->n;
    e->n_chars = e->n_bytes = e->n_popped = 0;
    e->node = WP_ROOT;
}

WP_INLINE void match_end(encoder *e, bool offsets) {
    if (e->n_chars == 0) {
        return;
    }
    const wp_link *links = e->tokenizer->trie.links;
    int32_t node = e->n_chars > e->tokenizer->max_chars ? WP_DEAD : e->node;
    while (node != WP_CONTINUE && links[node].fail != WP_NOWHERE) {
        pop(e, links + node, offsets);
        node = links[node].fail;
    }
    if (node != WP_CONTINUE) {
        e->n = e->first;
        write_id(e, e->tokenizer->unk_id, e->word_begin, e->word_end, e->word);
    }
    ++e->word;
    begin_word(e);
}

/* Strings that stay whole */

static const fixed *special_at(const wp_tokenizer *tokenizer, int32_t flags, const uint8_t *text,
                               const uint8_t *end) {
    if (!(flags & WP_SPECIAL) || !tokenizer->begins_special[*text]) {
        return NULL;
    }
    for (int64_t i = 0; i < tokenizer->n_specials; ++i) {
        const fixed *special = tokenizer->specials + i;
        if (end - text >= special->n && memcmp(text, special->bytes, (size_t)special->n) == 0) {
            return special;
        }
    }
    return NULL;
}

static int64_t write_special(void *sink, const uint8_t *text, const uint8_t *end, int32_t begin) {
    encoder *e = sink;
    const fixed *special = special_at(e->tokenizer, e->flags, text, end);
    if (special == NULL) {
        return 0;
    }
    write_id(e, special->id, begin, begin + (int32_t)special->n, e->word++);
    begin_word(e);
    return special->n;
}

static int compare_fixed(const void *left, const void *right) {
    const fixed *a = left, *b = right;
    int64_t n = a->n < b->n ? a->n : b->n;
    int order = n ? memcmp(a->bytes, b->bytes, (size_t)n) : 0;
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

/* If the chunk that begins here is, cleaned, a word that is kept: write its id. A chunk that grows longer than every
 * such word is not read on, so the text is read at most twice over. */
static int64_t write_kept(void *sink, const uint8_t *text, const uint8_t *end, int32_t begin,
                          int32_t *n_chars) {
    encoder *e = sink;
    const wp_tokenizer *t = e->tokenizer;
    if (t->n_kept == 0) {
        return 0;
    }
    const wp_normalizer *normalizer = &t->normalizer;
    uint8_t small[256], *cleaned = small;
    if (t->longest_kept + 4 > (int64_t)sizeof small &&
        (cleaned = malloc((size_t)t->longest_kept + 4)) == NULL) {
        e->failed = true;
        return 0;
    }
    const uint8_t *from = text, *last = text;
    int64_t n = 0, n_invalid = 0, invalid_seen = 0;
    int32_t seen = 0;
    bool whole = true;
    while (text < end) {
        int length;
        bool valid;
        uint32_t code = wp_decode(text, end, (e->flags & WP_RAW) != 0, &length, &valid);
        uint32_t flags = wp_char_of(code)->flags;
        bool alone = wp_is_isolated(normalizer, flags);
        if (!(flags & normalizer->deleted)) {
            if (flags & WP_SPACE || (alone && n > 0) || special_at(t, e->flags, text, end) != NULL) {
                break;
            }
            n += wp_utf8(code, cleaned + n);
            *n_chars = seen + 1;
            last = text + length;
            n_invalid = invalid_seen;
            if (alone) {
                break;
            }
            if (n > t->longest_kept) {
                whole = false;
                break;
            }
        }
        invalid_seen += !valid;
        ++seen;
        text += length;
    }
    fixed wanted = {(char *)cleaned, n, 0};
    const fixed *found =
        whole && n > 0 ? bsearch(&wanted, t->kept, (size_t)t->n_kept, sizeof wanted, compare_fixed) : NULL;
    if (cleaned != small) {
        free(cleaned);
    }
    if (found == NULL) {
        return 0;
    }
    e->n_invalid += n_invalid;
    write_id(e, found->id, begin, begin + *n_chars, e->word++);
    begin_word(e);
    return last - from;
}

/* The two scanners */

static const uint8_t *bytes_to_ids(void *e, const uint8_t *text, const uint8_t *end, int32_t begin) {
    return match_bytes(e, text, end, begin, false);
}
static void character_to_ids(void *e, uint32_t code, int32_t begin, int32_t end) {
    match_character(e, code, begin, end, false);
}
static void end_to_ids(void *e) { match_end(e, false); }

static const uint8_t *bytes_to_spans(void *e, const uint8_t *text, const uint8_t *end, int32_t begin) {
    return match_bytes(e, text, end, begin, true);
}
static void character_to_spans(void *e, uint32_t code, int32_t begin, int32_t end) {
    match_character(e, code, begin, end, true);
}
static void end_to_spans(void *e) { match_end(e, true); }

static int64_t scan_ids(encoder *e, const uint8_t *text, int64_t n_bytes, bool raw, wp_run *run) {
    const wp_sink calls = {bytes_to_ids, character_to_ids, end_to_ids, write_special, write_kept};
    return wp_scan(&e->tokenizer->normalizer, text, n_bytes, raw, run, calls, e);
}

static int64_t scan_spans(encoder *e, const uint8_t *text, int64_t n_bytes, bool raw, wp_run *run) {
    const wp_sink calls = {bytes_to_spans, character_to_spans, end_to_spans, write_special, write_kept};
    return wp_scan(&e->tokenizer->normalizer, text, n_bytes, raw, run, calls, e);
}

static int64_t scan(encoder *e, const uint8_t *text, int64_t n_bytes, wp_run *run) {
    bool raw = e->flags & WP_RAW;
    begin_word(e);
    e->n_invalid = 0, e->failed = false;
    int64_t n_invalid =
        e->flags & WP_OFFSETS ? scan_spans(e, text, n_bytes, raw, run) : scan_ids(e, text, n_bytes, raw, run);
    return n_invalid < 0 || e->failed ? WP_NO_MEMORY : n_invalid + e->n_invalid;
}

/* A text, or what stands between two special tokens of it, that has to be brought into NFC first where it isn't. */
static int64_t compose_and_scan(encoder *e, const uint8_t *text, int64_t n_bytes, wp_run *run) {
    wp_composed composed;
    if (wp_compose_text(&e->tokenizer->normalizer, text, n_bytes, e->flags & WP_RAW, &composed) != 0) {
        return WP_NO_MEMORY;
    }
    if (composed.text == NULL) {
        return scan(e, text, n_bytes, run);
    }
    int64_t first = e->n, flags = e->flags, n_invalid = composed.n_invalid;
    e->flags &= ~WP_RAW; /* U+FFFD is gone, but surrogates of a string are characters */
    if (scan(e, composed.text, composed.n_bytes, run) < 0) {
        n_invalid = WP_NO_MEMORY;
    }
    e->flags = (int32_t)flags;
    for (int64_t i = first; flags & WP_OFFSETS && i < e->n; ++i) {
        e->offsets[2 * i] = composed.begins[e->offsets[2 * i]];
        e->offsets[2 * i + 1] = composed.ends[e->offsets[2 * i + 1] - 1];
    }
    wp_composed_free(&composed);
    return n_invalid;
}

/* WP_HF_SLOW: special tokens first, so that composition does not reach across one. */
static int64_t split_and_compose(encoder *e, const uint8_t *text, int64_t n_bytes, wp_run *run) {
    const uint8_t *end = text + n_bytes, *part = text;
    int64_t n_invalid = 0;
    int32_t part_at = 0, at = 0, flags = e->flags;
    for (;;) {
        const fixed *special = NULL;
        while (text < end && (special = special_at(e->tokenizer, flags, text, end)) == NULL) {
            int n;
            bool valid;
            wp_decode(text, end, flags & WP_RAW, &n, &valid);
            text += n, ++at;
        }
        int64_t first = e->n;
        e->flags = flags & ~WP_SPECIAL;
        int64_t status = compose_and_scan(e, part, text - part, run);
        e->flags = flags;
        if (status < 0) {
            return status;
        }
        n_invalid += status;
        for (int64_t i = first; flags & WP_OFFSETS && i < e->n; ++i) {
            e->offsets[2 * i] += part_at, e->offsets[2 * i + 1] += part_at;
        }
        if (special == NULL) {
            break;
        }
        write_id(e, special->id, at, at + (int32_t)special->n, e->word++);
        text += special->n, at += (int32_t)special->n;
        part = text, part_at = at;
    }
    return n_invalid;
}

/* One text, whatever the rules. Returns the number of invalid stretches, or WP_NO_MEMORY. */
static int64_t encode(encoder *e, const uint8_t *text, int64_t n_bytes, wp_run *run) {
    e->word = 0;
    return e->tokenizer->normalizer.composes ? split_and_compose(e, text, n_bytes, run)
                                             : scan(e, text, n_bytes, run);
}

/* What the outside calls */

static fixed *copy_fixed(const char *bytes, const int64_t *bounds, int64_t n) {
    fixed *copies = calloc((size_t)n + 1, sizeof *copies);
    for (int64_t i = 0; copies != NULL && i < n; ++i) {
        copies[i].n = bounds[i + 1] - bounds[i];
        copies[i].bytes = malloc((size_t)copies[i].n + 1);
        if (copies[i].bytes == NULL) {
            while (i-- > 0) {
                free(copies[i].bytes);
            }
            free(copies);
            return NULL;
        }
        memcpy(copies[i].bytes, bytes + bounds[i], (size_t)copies[i].n);
    }
    return copies;
}

static void free_fixed(fixed *copies, int64_t n) {
    for (int64_t i = 0; copies != NULL && i < n; ++i) {
        free(copies[i].bytes);
    }
    free(copies);
}

wp_tokenizer *wp_tokenizer_new(const wp_rules *rules, int64_t max_chars, const char *pieces,
                               const int64_t *bounds, int64_t n_pieces, int32_t unk_id,
                               const int32_t *special_ids, int64_t n_special, const char *kept,
                               const int64_t *kept_bounds, int64_t n_kept) {
    wp_tokenizer *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return NULL;
    }
    wp_normalizer_init(&t->normalizer, rules);
    t->normalizer.composes |= rules->compat == WP_HF_SLOW && n_kept > 0; /* they are looked for after NFC */
    t->max_chars = max_chars;
    t->unk_id = unk_id;
    t->n_kept = n_kept;
    t->piece_bytes = malloc(((size_t)n_pieces + 1) * sizeof *t->piece_bytes);
    t->specials = calloc((size_t)n_special + 1, sizeof *t->specials);
    t->kept = copy_fixed(kept, kept_bounds, n_kept);
    bool done = t->piece_bytes != NULL && t->specials != NULL && t->kept != NULL &&
                wp_trie_init(&t->trie, pieces, bounds, n_pieces, max_chars) == 0;
    for (int64_t i = 0; done && i < n_pieces; ++i) {
        int64_t n = bounds[i + 1] - bounds[i];
        bool continues = n >= 2 && memcmp(pieces + bounds[i], "##", 2) == 0;
        t->piece_bytes[i] = (int32_t)(n - 2 * continues);
    }
    for (int64_t i = 0; done && i < n_special; ++i) {
        int32_t id = special_ids[i];
        fixed *copy = copy_fixed(pieces + bounds[id], (const int64_t[]){0, bounds[id + 1] - bounds[id]}, 1);
        done = copy != NULL;
        if (done) {
            t->specials[t->n_specials] = *copy;
            t->specials[t->n_specials++].id = id;
            t->begins_special[(uint8_t)copy->bytes[0]] = true;
            free(copy);
        }
    }
    for (int64_t i = 0; done && i < n_kept; ++i) {
        fixed *word = t->kept + i;
        word->id = unk_id;
        for (int64_t k = 0; k < n_pieces; ++k) {
            if (bounds[k + 1] - bounds[k] == word->n &&
                memcmp(pieces + bounds[k], word->bytes, (size_t)word->n) == 0) {
                word->id = (int32_t)k;
            }
        }
        t->longest_kept = word->n > t->longest_kept ? word->n : t->longest_kept;
    }
    if (!done) {
        wp_tokenizer_free(t);
        return NULL;
    }
    qsort(t->kept, (size_t)n_kept, sizeof *t->kept, compare_fixed);
    return t;
}

void wp_tokenizer_free(wp_tokenizer *t) {
    if (t == NULL) {
        return;
    }
    wp_trie_free(&t->trie);
    free_fixed(t->specials, t->n_specials);
    free_fixed(t->kept, t->n_kept);
    free(t->piece_bytes);
    free(t);
}

int64_t wp_encode_text(const wp_tokenizer *tokenizer, const char *text, int64_t n_bytes, int32_t flags,
                       int32_t *ids) {
    if (n_bytes > INT32_MAX) {
        return WP_TOO_LONG;
    }
    encoder e = {.tokenizer = tokenizer, .flags = flags & ~WP_OFFSETS, .ids = ids};
    wp_run run = {0};
    int64_t status = encode(&e, (const uint8_t *)text, n_bytes, &run);
    free(run.placed);
    return status < 0 ? status : e.n;
}

/* Room for n more ids. */
static bool reserve(wp_result *result, int64_t n_more, int64_t *capacity, bool offsets) {
    int64_t n = result->n_ids + n_more;
    if (n <= *capacity) {
        return true;
    }
    n = *capacity + *capacity / 2 > n ? *capacity + *capacity / 2 : n;
    int32_t *ids = realloc(result->ids, (size_t)n * sizeof *ids);
    if (ids == NULL) {
        return false;
    }
    result->ids = ids;
    if (offsets) {
        int32_t *spans = realloc(result->offsets, 2 * (size_t)n * sizeof *spans);
        if (spans != NULL) {
            result->offsets = spans;
        }
        int32_t *words = realloc(result->words, (size_t)n * sizeof *words);
        if (words != NULL) {
            result->words = words;
        }
        if (spans == NULL || words == NULL) {
            return false;
        }
    }
    *capacity = n;
    return true;
}

static bool encode_all(const wp_tokenizer *tokenizer, const uint8_t *bytes, const int64_t *text_bounds,
                       int64_t n_texts, int32_t first_id, int32_t last_id, int32_t period, encoder *e,
                       wp_run *run, wp_result *result) {
    bool offsets = e->flags & WP_OFFSETS;
    int64_t capacity = 0, longest = 0;
    for (int64_t i = 0; i < n_texts; ++i) {
        int64_t n = text_bounds[i + 1] - text_bounds[i];
        longest = n > longest ? n : longest;
    }
    if (longest > INT32_MAX) {
        return false;
    }
    /* English has four to five bytes a piece. */
    if (!reserve(result, (text_bounds[n_texts] - text_bounds[0]) / 4 + 2 * n_texts + 16, &capacity,
                 offsets)) {
        return false;
    }
    if (offsets) {
        int64_t most = tokenizer->max_chars < longest ? tokenizer->max_chars : longest;
        size_t n_bytes = 4 * ((size_t)most + 1) * sizeof *e->begins;
        if ((e->begins = malloc(n_bytes)) == NULL || (e->ends = malloc(n_bytes)) == NULL) {
            return false;
        }
    }
    for (int64_t i = 0; i < n_texts; ++i) {
        int64_t n_bytes = text_bounds[i + 1] - text_bounds[i];
        if (!reserve(result, n_bytes + 2, &capacity, offsets)) {
            return false;
        }
        e->ids = result->ids, e->offsets = result->offsets, e->words = result->words;
        e->n = result->n_ids;
        if (first_id >= 0 && i % period == 0) {
            write_id(e, first_id, 0, 0, -1);
        }
        int64_t n_invalid = encode(e, bytes + text_bounds[i], n_bytes, run);
        if (n_invalid < 0) {
            return false;
        }
        if (last_id >= 0) {
            write_id(e, last_id, 0, 0, -1);
        }
        result->n_invalid += n_invalid;
        result->n_ids = e->n;
        result->bounds[i + 1] = e->n;
    }
    return true;
}

wp_result *wp_encode_texts(const wp_tokenizer *tokenizer, const char *bytes, const int64_t *text_bounds,
                           int64_t n_texts, int32_t flags, int32_t first_id, int32_t last_id,
                           int32_t period) {
    wp_result *result = calloc(1, sizeof *result);
    if (result == NULL) {
        return NULL;
    }
    encoder e = {.tokenizer = tokenizer, .flags = flags};
    wp_run run = {0};
    result->bounds = calloc((size_t)n_texts + 1, sizeof *result->bounds);
    bool done = result->bounds != NULL && encode_all(tokenizer, (const uint8_t *)bytes, text_bounds, n_texts,
                                                     first_id, last_id, period, &e, &run, result);
    free(run.placed);
    free(e.begins);
    free(e.ends);
    if (!done) {
        wp_result_free(result);
        return NULL;
    }
    return result;
}

void wp_release(void *array) { free(array); }

void wp_result_free(wp_result *result) {
    if (result == NULL) {
        return;
    }
    free(result->ids);
    free(result->offsets);
    free(result->words);
    free(result->bounds);
    free(result);
}
