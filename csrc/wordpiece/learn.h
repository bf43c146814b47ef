/* What learn.c (words and merges) and pairs.c (which pair is the best) share. */
#ifndef WP_LEARN_H
#define WP_LEARN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wordpiece.h"

enum { WP_LIKELIHOOD = 0 };                 /* an objective; any other is "frequency" */
enum { WP_NONE_LEFT = -1, WP_FAILED = -2 }; /* instead of a pair */
enum { WP_WAITING = -1 };                   /* as pair.evaluated: not active yet */
enum { WP_GONE = -1 };                      /* as pair.place: not in the heap */

typedef struct wp_pair {
    int64_t n;          /* how often it stands in the text */
    double log_n;       /* -1 when n has changed since */
    int64_t first_word; /* its words are lists[first_word:first_word + n_words] */
    uint32_t n_words;
    int32_t left, right;
    int32_t place;     /* in the heap */
    int32_t evaluated; /* WP_WAITING, or how many symbols there were when it was given its true gain */
} wp_pair;

typedef struct wp_node {
    double key;
    int32_t pair;
} wp_node;

typedef struct wp_list {
    int32_t *items;
    int32_t n, room;
} wp_list;

typedef struct wp_symbol {
    int64_t count;
    double log_count, inverse; /* of count; inverse is 1 / count */
    wp_list active;            /* the active pairs with this symbol */
    /* While a pair l r is joined into m: */
    int64_t before_left, after_right; /* how often "this l" and "r this" have gone */
    int32_t before, after;            /* the pairs "this m" and "m this", or -1 */
} wp_symbol;

typedef struct wp_event { /* a new pair in a word */
    int32_t pair;
    uint32_t word;
} wp_event;

struct wp_learner {
    int32_t objective;
    int64_t min_frequency;
    int64_t total; /* N */
    double log_total;
    wp_symbol *symbols;
    int64_t n_symbols, symbol_room;

    wp_pair *pairs; /* dead ones keep their place */
    int64_t n_pairs, pair_room;
    int32_t *table; /* open addressing: number of a pair, or -1 */
    uint64_t table_mask;
    int64_t n_in_table;
    wp_node *heap;
    int64_t n_heap, heap_room;
    wp_list raised; /* pairs to bound again after the choice, see evaluate() */

    int32_t *words;  /* records of a header and the symbols of a word; shrinking in place */
    uint32_t *lists; /* words of pair 0, words of pair 1, ... */
    int64_t n_lists, list_room;
    wp_event *events; /* of the merge at hand */
    int64_t n_events, event_room;
    int32_t *touched; /* symbols whose before_left or after_right is not 0 */
    int64_t n_touched, touched_room;
    int failed;
};

/* `items` with room for `wanted` of them; NULL, and `items` still valid, when there is no memory. */
void *wp_grown(void *items, int64_t wanted, int64_t *room, size_t size);

/* A new symbol, or a new pair that is neither in table nor heap yet; its number, or WP_NO_MEMORY. */
int32_t wp_add_symbol(wp_learner *self);
int32_t wp_add_pair(wp_learner *self, int32_t left, int32_t right);
void wp_set_count(wp_symbol *symbol, int64_t count);

/* The table: pairs by what they are made of. Those that have died leave it when it grows. */
wp_pair *wp_find_pair(const wp_learner *self, int32_t left, int32_t right); /* or NULL */
int wp_reserve(wp_learner *self, int64_t more); /* room for `more` pairs in the table and the heap */
void wp_enter(wp_learner *self, int32_t pair);  /* into the table */

/* The heap: pairs by upper bounds of their gains. */
void wp_insert(wp_learner *self, int32_t pair);
int32_t wp_choose(wp_learner *self);               /* take the best pair out; or WP_NONE_LEFT, WP_FAILED */
void wp_rebound(wp_learner *self, int32_t symbol); /* after the count of a symbol has changed */

#endif
