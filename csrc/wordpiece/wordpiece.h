/* The whole interface of the C core: UTF-8 bytes in; ids, offsets, counts and merges out.
 *
 * cffi reads it too (build.py leaves out the lines that begin with #), so it holds declarations only. Nothing here
 * keeps global state, starts a thread or knows Python; objects that come in as `const` may be shared by threads.
 * Functions that return a pointer return NULL when memory runs out; those that return a number WP_NO_MEMORY.
 */
#ifndef WORDPIECE_H
#define WORDPIECE_H

#include <stdint.h>

/* What is done to text before its words are matched; the twin of BasicTokenizer's arguments. */
typedef struct wp_rules {
    int32_t lower_case;
    int32_t strip_accents;
    int32_t tokenize_chinese_chars;
    int32_t compat; /* WP_GOOGLE, WP_HF_SLOW or WP_HF_FAST */
} wp_rules;

enum { WP_GOOGLE = 0, WP_HF_SLOW = 1, WP_HF_FAST = 2 };

enum { WP_NO_MEMORY = -1, WP_TOO_LONG = -2 };

/* How a text is to be read; added up. */
enum {
    WP_OFFSETS = 1, /* also where each piece stands, and in which word */
    WP_SPECIAL = 2, /* special tokens written out in the text stay whole */
    WP_RAW = 4      /* bytes of unknown origin: lone surrogates are invalid too; else they are characters */
};

/* Text to ids */

/* A vocabulary as a trie with failure links, and the rules that go with it. Immutable once made. */
typedef struct wp_tokenizer wp_tokenizer;

/* pieces: n_pieces strings end to end, piece i at bounds[i]:bounds[i+1]; its id is i. All of them differ.
 * special_ids: pieces that WP_SPECIAL keeps whole. kept: n_kept strings that are not split where one of them is
 * all that stands between two spaces (never_split); one that is no piece becomes unk_id.
 * max_chars: a word of more code points becomes unk_id. */
wp_tokenizer *wp_tokenizer_new(const wp_rules *rules, int64_t max_chars, const char *pieces,
                               const int64_t *bounds, int64_t n_pieces, int32_t unk_id,
                               const int32_t *special_ids, int64_t n_special, const char *kept,
                               const int64_t *kept_bounds, int64_t n_kept);
void wp_tokenizer_free(wp_tokenizer *tokenizer);

/* Ids of one text; returns how many. `ids` needs room for n_bytes of them; there are never more. */
int64_t wp_encode_text(const wp_tokenizer *tokenizer, const char *text, int64_t n_bytes, int32_t flags,
                       int32_t *ids);

/* Ids of many texts, end to end. */
typedef struct wp_result {
    int64_t n_ids;
    int64_t n_invalid; /* stretches of bytes that were not UTF-8, each read as U+FFFD */
    int32_t *ids;      /* (n_ids) */
    int32_t *offsets;  /* (n_ids, 2) first code point of the text, one after the last; 0 0 at wrapping ids */
    int32_t *words;    /* (n_ids) number of the word in its text; -1 at wrapping ids */
    int64_t *bounds;   /* (n_texts + 1) ids of text i are bounds[i]:bounds[i+1] */
} wp_result;

/* Text i is bytes[text_bounds[i]:text_bounds[i+1]]. Where first_id >= 0 it is put before every period-th text,
 * beginning with text 0; where last_id >= 0 it is put after every text: `[CLS] A [SEP]` with period 1, and
 * `[CLS] A [SEP] B [SEP]` with period 2. offsets and words are NULL without WP_OFFSETS. A text of more than
 * 2**31 - 1 bytes makes result NULL. */
wp_result *wp_encode_texts(const wp_tokenizer *tokenizer, const char *bytes, const int64_t *text_bounds,
                           int64_t n_texts, int32_t flags, int32_t first_id, int32_t last_id, int32_t period);
void wp_result_free(wp_result *result);
void wp_release(void *array); /* one that was taken out of a result, which got NULL in its place */

/* Counting words */

/* Words and how often each occurs. One thread writes to a counter at a time. */
typedef struct wp_counter wp_counter;

wp_counter *wp_counter_new(const wp_rules *rules, int64_t max_chars); /* longer words are not counted */
void wp_counter_free(wp_counter *counter);

/* Count the words of a text, WP_RAW or not; returns the number of invalid stretches. */
int64_t wp_count(wp_counter *counter, const char *text, int64_t n_bytes, int32_t flags);

/* As wp_count, line by line (only \n ends a line): a line whose CRC-32 (that of zlib, over at most its first 256
 * bytes) is a multiple of `modulus` is counted into `held_out` instead. */
int64_t wp_count_split(wp_counter *counter, wp_counter *held_out, int64_t modulus, const char *text,
                       int64_t n_bytes, int32_t flags);

int wp_counter_add(wp_counter *counter, const wp_counter *other); /* 0, or WP_NO_MEMORY */
int64_t wp_counter_n_words(wp_counter *counter);
int64_t wp_counter_n_bytes(wp_counter *counter); /* of all different words together */

/* Words in the order of their bytes: word i at bounds[i]:bounds[i+1], (n_words + 1) bounds, (n_words) counts. */
int wp_counter_export(wp_counter *counter, char *bytes, int64_t *bounds, int64_t *counts);

/* Learning a vocabulary */

/* A text as words of symbols, their counts, and the gain of every pair of neighbours. */
typedef struct wp_learner wp_learner;

/* Word i is symbols[bounds[i]:bounds[i+1]], each below n_symbols. objective: 0 likelihood, 1 frequency. */
wp_learner *wp_learner_new(const int32_t *symbols, const int64_t *bounds, const int64_t *counts,
                           int64_t n_words, int32_t n_symbols, int64_t min_frequency, int32_t objective);
void wp_learner_free(wp_learner *learner);

/* Up to n_merges merges; the k-th of all makes symbol n_symbols + k of its left and right symbol. Returns how many
 * were made; fewer when no pair is left. */
int64_t wp_learner_run(wp_learner *learner, int64_t n_merges, int32_t *lefts, int32_t *rights);

#endif
