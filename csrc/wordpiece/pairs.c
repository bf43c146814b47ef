/* Which pair is the best: what Merger._best_pair in merging.py finds, without looking at every pair.
 *
 * All pairs lie in one heap under upper bounds of their gains. The first one is evaluated anew; when it
 * stays first, it is the best. For "frequency" an old count is such a bound.
 *
 * For "likelihood" a gain can rise when other pairs are joined, because its parts become rarer, but never
 * above U(n) = n (1 + log(N / n)), whatever the counts of its parts, which are n at least. Only pairs
 * whose U(n) has come to the top of the heap, the active ones, are looked at again when the counts of
 * their parts change. N moves the gains as well, but only down. A merge costs a few evaluations in natural
 * text; where thousands of pairs have the very same gain, it evaluates them all.
 */

#include <stdlib.h>
#include <string.h>

#include "learn.h"
#include "logarithm.h"

/* A computed gain is right up to less than 2^-42 n: some ten roundings of terms of at most n log N <= 43
 * n. */
#define SLACK 0x1p-40
#define RESOLUTION 0x1p-16

void *wp_grown(void *items, int64_t wanted, int64_t *room, size_t size) {
    int64_t new_room = *room + *room / 2 + 64;
    if (new_room < wanted) {
        new_room = wanted;
    }
    void *bigger = realloc(items, (size_t)new_room * size);
    if (bigger) {
        *room = new_room;
    }
    return bigger;
}

static int push(wp_list *list, int32_t item) {
    if (list->n == list->room) {
        const int32_t room = list->room ? 2 * list->room : 4;
        int32_t *bigger = realloc(list->items, (size_t)room * sizeof *bigger);
        if (!bigger) {
            return WP_NO_MEMORY;
        }
        list->items = bigger;
        list->room = room;
    }
    list->items[list->n++] = item;
    return 0;
}

int32_t wp_add_symbol(wp_learner *self) {
    if (self->n_symbols == self->symbol_room) {
        wp_symbol *bigger = NULL;
        if (self->n_symbols < INT32_MAX / 2) {
            bigger = wp_grown(self->symbols, 0, &self->symbol_room, sizeof *bigger);
        }
        if (!bigger) {
            return WP_NO_MEMORY;
        }
        self->symbols = bigger;
    }
    self->symbols[self->n_symbols] = (wp_symbol){.before = -1, .after = -1};
    return (int32_t)self->n_symbols++;
}

int32_t wp_add_pair(wp_learner *self, int32_t left, int32_t right) {
    if (self->n_pairs == self->pair_room) {
        wp_pair *bigger = NULL;
        if (self->n_pairs < INT32_MAX / 2) {
            bigger = wp_grown(self->pairs, 0, &self->pair_room, sizeof *bigger);
        }
        if (!bigger) {
            return WP_NO_MEMORY;
        }
        self->pairs = bigger;
    }
    self->pairs[self->n_pairs] =
        (wp_pair){.log_n = -1, .left = left, .right = right, .place = WP_GONE, .evaluated = WP_WAITING};
    return (int32_t)self->n_pairs++;
}

void wp_set_count(wp_symbol *symbol, int64_t count) {
    symbol->count = count;
    symbol->log_count = count > 0 ? wp_log((double)count) : 0.0;
    symbol->inverse = count > 0 ? 1.0 / (double)count : 0.0;
}

/* The table */

static uint64_t slot_of(const wp_learner *self, int32_t left, int32_t right) {
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const uint64_t mixed = (key ^ key >> 29) * 0x9E3779B97F4A7C15u;
    return (mixed ^ mixed >> 32) & self->table_mask;
}

wp_pair *wp_find_pair(const wp_learner *self, int32_t left, int32_t right) {
    for (uint64_t slot = slot_of(self, left, right);; slot = (slot + 1) & self->table_mask) {
        const int32_t number = self->table[slot];
        if (number < 0) {
            return NULL;
        }
        wp_pair *found = &self->pairs[number];
        if (found->left == left && found->right == right) {
            return found;
        }
    }
}

void wp_enter(wp_learner *self, int32_t number) {
    uint64_t slot = slot_of(self, self->pairs[number].left, self->pairs[number].right);
    while (self->table[slot] >= 0) {
        slot = (slot + 1) & self->table_mask;
    }
    self->table[slot] = number;
    self->n_in_table++;
}

static int new_table(wp_learner *self, int64_t more) {
    int64_t alive = more;
    for (int64_t i = 0; i < self->n_pairs; i++) {
        alive += self->pairs[i].n >= self->min_frequency;
    }
    uint64_t room = 1024;
    while (room < (uint64_t)alive * 3) {
        room *= 2;
    }
    int32_t *table = malloc(room * sizeof *table);
    if (!table) {
        return WP_NO_MEMORY;
    }
    memset(table, -1, room * sizeof *table);
    free(self->table);
    self->table = table;
    self->table_mask = room - 1;
    self->n_in_table = 0;
    for (int32_t i = 0; i < self->n_pairs; i++) {
        if (self->pairs[i].n >= self->min_frequency) {
            wp_enter(self, i);
        }
    }
    return 0;
}

int wp_reserve(wp_learner *self, int64_t more) {
    if (self->n_heap + more > self->heap_room) {
        wp_node *bigger = wp_grown(self->heap, self->n_heap + more, &self->heap_room, sizeof *bigger);
        if (!bigger) {
            return WP_NO_MEMORY;
        }
        self->heap = bigger;
    }
    const bool full = !self->table || (uint64_t)(self->n_in_table + more) * 2 > self->table_mask + 1;
    return full ? new_table(self, more) : 0;
}

/* The heap */

/* Larger keys first; among equal ones the pair whose left part, then whose right part, has the smaller
 * number. */
static bool precedes(const wp_learner *self, wp_node a, wp_node b) {
    if (a.key != b.key) {
        return a.key > b.key;
    }
    const wp_pair *p = &self->pairs[a.pair], *q = &self->pairs[b.pair];
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static void put(wp_learner *self, int64_t place, wp_node node) {
    self->heap[place] = node;
    self->pairs[node.pair].place = (int32_t)place;
}

/* Put a node where it belongs, at or below the free place; each place has four below it. */
static void sink(wp_learner *self, int64_t place, wp_node node) {
    for (int64_t first; (first = 4 * place + 1) < self->n_heap;) {
        const int64_t end = self->n_heap - first < 4 ? self->n_heap : first + 4;
        int64_t best = first;
        for (int64_t child = first + 1; child < end; child++) {
            if (precedes(self, self->heap[child], self->heap[best])) {
                best = child;
            }
        }
        if (!precedes(self, self->heap[best], node)) {
            break;
        }
        put(self, place, self->heap[best]);
        place = best;
    }
    put(self, place, node);
}

/* Put a node where it belongs, above or below the free place. */
static void settle(wp_learner *self, int64_t place, wp_node node) {
    if (place == 0 || !precedes(self, node, self->heap[(place - 1) / 4])) {
        sink(self, place, node);
        return;
    }
    do {
        put(self, place, self->heap[(place - 1) / 4]);
        place = (place - 1) / 4;
    } while (place > 0 && precedes(self, node, self->heap[(place - 1) / 4]));
    put(self, place, node);
}

static void remove_first(wp_learner *self) {
    self->pairs[self->heap[0].pair].place = WP_GONE;
    self->n_heap--;
    if (self->n_heap > 0) {
        sink(self, 0, self->heap[self->n_heap]);
    }
}

/* Gains and their bounds */

static double slack(const wp_pair *p) { return (double)p->n * SLACK + RESOLUTION; }

static double log_n(wp_pair *p) {
    if (p->log_n < 0) {
        p->log_n = wp_log((double)p->n);
    }
    return p->log_n;
}

/* No gain of the pair will ever be above this: U(n), since fall(c, n) >= n log n for c >= n, and
 * fall(N, n) <= n (1 + log N). */
static double most(const wp_learner *self, wp_pair *p) {
    if (self->objective != WP_LIKELIHOOD) {
        return (double)p->n;
    }
    return (double)p->n * (1.0 + self->log_total - log_n(p)) + slack(p);
}

/* fall(c, n) = n (log c + h(n / c)) with h(t) = (1/t - 1) log(1 / (1 - t)) = 1 - t/2 - t^2/6 - t^3/12 -
 * ..., and as the coefficients after the 1 add up to -1, this is at most h(t). */
static double low_h(double t) { return 1.0 - t * (0.5 + t * (1.0 / 6 + t * (1.0 / 12 + t * 0.25))); }

/* No gain of the pair will be above this as long as the counts of its parts stay. */
static double bound(const wp_learner *self, wp_pair *p) {
    const wp_symbol *left = &self->symbols[p->left], *right = &self->symbols[p->right];
    const double n = (double)p->n;
    double each = 1.0 + self->log_total + log_n(p);
    if (p->left == p->right) {
        each -= 2.0 * (left->log_count + low_h(2.0 * n * left->inverse));
    } else {
        each -= left->log_count + low_h(n * left->inverse) + right->log_count + low_h(n * right->inverse);
    }
    return n * each + slack(p);
}

/* The choice */

void wp_insert(wp_learner *self, int32_t number) {
    self->n_heap++;
    settle(self, self->n_heap - 1, (wp_node){most(self, &self->pairs[number]), number});
}

/* U(n) of the first pair of the heap has come to the top: from now on its bound follows the counts of its
 * parts. */
static int activate(wp_learner *self, int32_t number) {
    wp_pair *p = &self->pairs[number];
    if (push(&self->symbols[p->left].active, number) ||
        (p->left != p->right && push(&self->symbols[p->right].active, number))) {
        return WP_NO_MEMORY;
    }
    p->evaluated = 0;
    sink(self, 0, (wp_node){bound(self, p), number});
    return 0;
}

/* Give the first pair of the heap its true gain as it is now.
 *
 * After this merge it is a bound, as long as the counts of its parts stay, since N can only fall. But not
 * to the last bit: the logarithm of a smaller N may come out a little too large. Where that could change
 * the rounded gain, the pair is noted in `raised`. */
static int evaluate(wp_learner *self, int32_t number) {
    wp_pair *p = &self->pairs[number];
    const wp_symbol *left = &self->symbols[p->left], *right = &self->symbols[p->right];
    const double gain = wp_gain(p->n, log_n(p), left->count, left->log_count, right->count, right->log_count,
                                p->left == p->right, self->total, self->log_total);
    const double key = wp_rounded(gain);
    if (wp_rounded(gain + (double)p->n * SLACK) > key && push(&self->raised, number)) {
        return WP_NO_MEMORY;
    }
    p->evaluated = (int32_t)self->n_symbols;
    sink(self, 0, (wp_node){key, number});
    return 0;
}

int32_t wp_choose(wp_learner *self) {
    self->raised.n = 0;
    while (self->n_heap > 0) {
        const wp_node first = self->heap[0];
        wp_pair *p = &self->pairs[first.pair];
        if (p->n < self->min_frequency) {
            remove_first(self);
        } else if (self->objective == WP_LIKELIHOOD ? p->evaluated == self->n_symbols
                                                    : (double)p->n == first.key) {
            remove_first(self);
            for (int32_t i = 0; i < self->raised.n; i++) {
                wp_pair *other = &self->pairs[self->raised.items[i]];
                if (other->place != WP_GONE) {
                    settle(self, other->place, (wp_node){bound(self, other), self->raised.items[i]});
                }
            }
            return first.pair;
        } else if (self->objective != WP_LIKELIHOOD || (p->evaluated == WP_WAITING && p->log_n < 0)) {
            sink(self, 0, (wp_node){most(self, p), first.pair}); /* it has become rarer */
        } else if (p->evaluated == WP_WAITING ? activate(self, first.pair) : evaluate(self, first.pair)) {
            return WP_FAILED;
        }
    }
    return WP_NONE_LEFT;
}

void wp_rebound(wp_learner *self, int32_t symbol) {
    wp_list *active = &self->symbols[symbol].active;
    const bool many = active->n > self->n_heap / 8; /* then the whole heap is put in order at once */
    int32_t kept = 0;
    for (int32_t i = 0; i < active->n; i++) {
        const int32_t number = active->items[i];
        wp_pair *p = &self->pairs[number];
        if (p->place == WP_GONE || p->n < self->min_frequency) {
            continue; /* dead */
        }
        active->items[kept++] = number;
        const wp_node node = {bound(self, p), number};
        if (many) {
            self->heap[p->place] = node;
        } else {
            settle(self, p->place, node);
        }
    }
    active->n = kept;
    for (int64_t place = (self->n_heap - 2) / 4; many && self->n_heap > 1 && place >= 0; place--) {
        sink(self, place, self->heap[place]);
    }
}
