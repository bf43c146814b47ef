/* Learning a vocabulary: the fast twin of learner.py, which says what is computed and why.
 *
 * Three facts keep the work small.
 * 1. Joining a pair makes new pairs, all of them with the new symbol; every other pair can only become rarer. So
 *    the words that hold a pair are listed once, when it appears, and one that is too rare then is forgotten.
 * 2. All pairs lie in one heap under an upper bound of their gain. The first one is evaluated anew; when it stays
 *    first, it is the best. For "frequency" an old count is such a bound.
 * 3. For "likelihood" a gain can rise when other pairs are joined, but never above U(n) = n (1 + log(N / n)),
 *    whatever the counts of its parts, which are n at least. Only pairs whose U(n) has come to the top of the
 *    heap (the active ones) are looked at again when the counts of their parts change.
 */

#include <stdlib.h>
#include <string.h>

#include "logarithm.h"
#include "wordpiece.h"

/* An evaluated gain is right up to less than 2^-42 n: a dozen roundings of terms of at most n log N <= 43 n. */
#define SLACK 0x1p-40
#define RESOLUTION 0x1p-16

enum { LIKELIHOOD = 0 };
enum { NONE_LEFT = -1, FAILED = -2 }; /* instead of a pair */
enum { HEADER = 3 };              /* ints before the symbols of a word: length, and a count in two halves */
enum { WAITING = -1, GONE = -1 }; /* as pair.evaluated: not active yet; as pair.place: not in the heap */

typedef struct pair {
    int64_t n;          /* how often it stands in the text */
    double log_n;       /* -1 when n has changed since */
    int64_t first_word; /* its words are lists[first_word:first_word + n_words] */
    uint32_t n_words;
    int32_t left, right;
    int32_t place; /* in the heap */
    int32_t
        evaluated; /* WAITING, or the merge before which its place in the heap was found by its true gain */
} pair;

typedef struct node {
    double key;
    int32_t pair;
} node;

typedef struct event { /* a new pair in a word */
    int32_t pair;
    uint32_t word;
} event;

typedef struct list {
    int32_t *items;
    int32_t n, room;
} list;

typedef struct symbol {
    int64_t count;
    double log_count, inverse; /* of count; inverse is 1 / count */
    list active;               /* the active pairs with this symbol */
    /* While a pair l r is joined into m: */
    int64_t before_left, after_right; /* how often "this l" and "r this" have gone */
    int32_t before, after;            /* the pairs "this m" and "m this", or -1 */
} symbol;

struct wp_learner {
    int32_t objective;
    int64_t min_frequency;
    int64_t total; /* N */
    double log_total;

    int32_t *words; /* records of HEADER ints and the symbols of a word; shrinking in place */
    symbol *symbols;
    int32_t n_symbols, symbol_room;

    pair *pairs; /* dead ones keep their place */
    int32_t n_pairs, pair_room;
    int32_t *table; /* open addressing: number of a pair, or -1 */
    uint64_t table_mask;
    int64_t n_in_table;
    node *heap;
    int32_t n_heap, heap_room;
    uint32_t *lists; /* words of pair 0, words of pair 1, ... */
    int64_t n_lists, list_room;

    event *events; /* of the merge at hand */
    int64_t n_events, event_room;
    int32_t *touched; /* symbols whose before_left or after_right is not 0 */
    int64_t n_touched, touched_room;
    list raised; /* pairs whose place is found by a bound again after this choice, see choose() */
    int failed;
};

/* -- Memory ------------------------------------------------------------------------------------------------- */

/* `items` with room for `wanted` of them; NULL, and `items` still valid, when there is no memory. */
static void *grown(void *items, int64_t wanted, int64_t *room, size_t size) {
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

static int push(list *items, int32_t item) {
    if (items->n == items->room) {
        const int32_t room = items->room ? 2 * items->room : 4;
        int32_t *bigger = realloc(items->items, (size_t)room * sizeof *bigger);
        if (!bigger) {
            return WP_NO_MEMORY;
        }
        items->items = bigger;
        items->room = room;
    }
    items->items[items->n++] = item;
    return 0;
}

/* -- The table of pairs ------------------------------------------------------------------------------------- */

static uint64_t slot_of(const wp_learner *self, int32_t left, int32_t right) {
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const uint64_t mixed = (key ^ key >> 29) * 0x9E3779B97F4A7C15u;
    return (mixed ^ mixed >> 32) & self->table_mask;
}

static pair *find(const wp_learner *self, int32_t left, int32_t right) {
    for (uint64_t slot = slot_of(self, left, right);; slot = (slot + 1) & self->table_mask) {
        const int32_t number = self->table[slot];
        if (number < 0) {
            return NULL;
        }
        pair *found = &self->pairs[number];
        if (found->left == left && found->right == right) {
            return found;
        }
    }
}

static void enter(wp_learner *self, int32_t number) {
    uint64_t slot = slot_of(self, self->pairs[number].left, self->pairs[number].right);
    while (self->table[slot] >= 0) {
        slot = (slot + 1) & self->table_mask;
    }
    self->table[slot] = number;
    self->n_in_table++;
}

/* Make room for `more` pairs in the table; those that have died are left out of a new one. */
static int reserve(wp_learner *self, int64_t more) {
    if (self->table && (uint64_t)(self->n_in_table + more) * 2 <= self->table_mask + 1) {
        return 0;
    }
    int64_t alive = more;
    for (int32_t i = 0; i < self->n_pairs; i++) {
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
            enter(self, i);
        }
    }
    return 0;
}

/* A new pair that is neither in the table nor in the heap yet; its number, or WP_NO_MEMORY. */
static int32_t new_pair(wp_learner *self, int32_t left, int32_t right) {
    if (self->n_pairs == self->pair_room) {
        if (self->n_pairs > INT32_MAX / 2) {
            return WP_NO_MEMORY;
        }
        int64_t room = self->pair_room;
        pair *bigger = grown(self->pairs, 0, &room, sizeof *bigger);
        if (!bigger) {
            return WP_NO_MEMORY;
        }
        self->pairs = bigger;
        self->pair_room = (int32_t)room;
    }
    self->pairs[self->n_pairs] =
        (pair){.log_n = -1, .left = left, .right = right, .place = GONE, .evaluated = WAITING};
    return self->n_pairs++;
}

/* -- The heap ----------------------------------------------------------------------------------------------- */

/* Larger keys first; among equal ones the pair whose left part, then whose right part, has the smaller number. */
static int precedes(const wp_learner *self, node a, node b) {
    if (a.key != b.key) {
        return a.key > b.key;
    }
    const pair *p = &self->pairs[a.pair], *q = &self->pairs[b.pair];
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static void put(wp_learner *self, int32_t place, node item) {
    self->heap[place] = item;
    self->pairs[item.pair].place = place;
}

/* Put `item` where it belongs, above or below the free place. */
static void settle(wp_learner *self, int32_t place, node item) {
    if (place > 0 && precedes(self, item, self->heap[(place - 1) / 4])) {
        do {
            put(self, place, self->heap[(place - 1) / 4]);
            place = (place - 1) / 4;
        } while (place > 0 && precedes(self, item, self->heap[(place - 1) / 4]));
        put(self, place, item);
        return;
    }
    for (int32_t first; (first = 4 * place + 1) < self->n_heap;) {
        const int32_t last = self->n_heap - first < 4 ? self->n_heap : first + 4;
        int32_t best = first;
        for (int32_t child = first + 1; child < last; child++) {
            if (precedes(self, self->heap[child], self->heap[best])) {
                best = child;
            }
        }
        if (!precedes(self, self->heap[best], item)) {
            break;
        }
        put(self, place, self->heap[best]);
        place = best;
    }
    put(self, place, item);
}

static void remove_first(wp_learner *self) {
    self->pairs[self->heap[0].pair].place = GONE;
    self->n_heap--;
    if (self->n_heap > 0) {
        settle(self, 0, self->heap[self->n_heap]);
    }
}

/* -- Gains and their bounds ----------------------------------------------------------------------------------- */

static double slack(const pair *p) { return (double)p->n * SLACK + RESOLUTION; }

static double log_n(pair *p) {
    if (p->log_n < 0) {
        p->log_n = wp_log((double)p->n);
    }
    return p->log_n;
}

/* No gain of the pair will ever be above this. fall(c, n) >= n log n for c >= n, and fall(N, n) <= n (1 + log N). */
static double most(const wp_learner *self, pair *p) {
    if (self->objective != LIKELIHOOD) {
        return (double)p->n;
    }
    return (double)p->n * (1.0 + self->log_total - log_n(p)) + slack(p);
}

/* At most h(t) = (1/t - 1) log(1 / (1 - t)) = 1 - t/2 - t^2/6 - t^3/12 - ..., whose coefficients sum to 0:
 * fall(c, n) = n (log c + h(n / c)). */
static double low_h(double t) { return 1.0 - t * (0.5 + t * (1.0 / 6 + t * (1.0 / 12 + t * 0.25))); }

/* No gain of the pair will be above this as long as the counts of its parts stay. */
static node bound(const wp_learner *self, pair *p) {
    const symbol *left = &self->symbols[p->left], *right = &self->symbols[p->right];
    const double n = (double)p->n;
    double each = 1.0 + self->log_total + log_n(p);
    if (p->left == p->right) {
        each -= 2.0 * (left->log_count + low_h(2.0 * n * left->inverse));
    } else {
        each -= left->log_count + low_h(n * left->inverse) + right->log_count + low_h(n * right->inverse);
    }
    return (node){n * each + slack(p), (int32_t)(p - self->pairs)};
}

/* A pair whose U(n) has come to the top: from now on it is bounded by the counts of its parts. */
static int activate(wp_learner *self, int32_t number) {
    pair *p = &self->pairs[number];
    if (push(&self->symbols[p->left].active, number) ||
        (p->left != p->right && push(&self->symbols[p->right].active, number))) {
        return WP_NO_MEMORY;
    }
    p->evaluated = 0;
    settle(self, 0, bound(self, p));
    return 0;
}

/* Give the first pair of the heap its true gain as it is now.
 *
 * Later this is a bound as long as the counts of its parts stay, since N can only fall; but not to the last bit, as
 * the logarithm of a smaller N may come out a little too large. Where that could change the rounded gain, the pair
 * is noted in `raised`. */
static int evaluate(wp_learner *self, pair *p) {
    const symbol *left = &self->symbols[p->left], *right = &self->symbols[p->right];
    const int32_t number = self->heap[0].pair;
    const double gain = wp_gain(p->n, log_n(p), left->count, left->log_count, right->count, right->log_count,
                                p->left == p->right, self->total, self->log_total);
    const double key = wp_rounded(gain);
    if (wp_rounded(gain + (double)p->n * SLACK) > key && push(&self->raised, number)) {
        return WP_NO_MEMORY;
    }
    p->evaluated = self->n_symbols;
    settle(self, 0, (node){key, number});
    return 0;
}

/* Take the best pair out of the heap; NONE_LEFT, or FAILED without memory. */
static int32_t choose(wp_learner *self) {
    self->raised.n = 0;
    while (self->n_heap > 0) {
        const node first = self->heap[0];
        pair *p = &self->pairs[first.pair];
        if (p->n < self->min_frequency) {
            remove_first(self);
        } else if (self->objective != LIKELIHOOD ? (double)p->n == first.key
                                                 : p->evaluated == self->n_symbols) {
            remove_first(self);
            for (int32_t i = 0; i < self->raised.n; i++) {
                pair *other = &self->pairs[self->raised.items[i]];
                if (other->place != GONE) {
                    settle(self, other->place, bound(self, other));
                }
            }
            return first.pair;
        } else if (self->objective != LIKELIHOOD || (p->evaluated == WAITING && p->log_n < 0)) {
            settle(self, 0, (node){most(self, p), first.pair}); /* it has become rarer */
        } else if (p->evaluated == WAITING ? activate(self, first.pair) : evaluate(self, p)) {
            return FAILED;
        }
    }
    return NONE_LEFT;
}

/* Bounds of the active pairs with a symbol whose count has changed; the dead ones leave its list. */
static void rebound(wp_learner *self, int32_t number) {
    list *active = &self->symbols[number].active;
    int32_t kept = 0;
    for (int32_t i = 0; i < active->n; i++) {
        pair *p = &self->pairs[active->items[i]];
        if (p->place != GONE && p->n >= self->min_frequency) {
            active->items[kept++] = active->items[i];
            settle(self, p->place, bound(self, p));
        }
    }
    active->n = kept;
}

/* -- Words -------------------------------------------------------------------------------------------------- */

static int64_t count_of(const int32_t *word) {
    int64_t count;
    memcpy(&count, word + 1, sizeof count);
    return count;
}

/* Whether the pair at s[i] is a neighbour that counts: not where it overlaps the same pair just counted. */
static int counts(const int32_t *s, int32_t i, int *counted) {
    *counted = !(i > 0 && *counted && s[i - 1] == s[i] && s[i] == s[i + 1]);
    return *counted;
}

static void set_count(symbol *s, int64_t count) {
    s->count = count;
    s->log_count = count > 0 ? wp_log((double)count) : 0.0;
    s->inverse = count > 0 ? 1.0 / (double)count : 0.0;
}

/* A new symbol that stands nowhere yet. */
static int add_symbol(wp_learner *self) {
    if (self->n_symbols == self->symbol_room) {
        int64_t room = self->symbol_room;
        symbol *bigger =
            self->n_symbols < INT32_MAX / 2 ? grown(self->symbols, 0, &room, sizeof *bigger) : NULL;
        if (!bigger) {
            return WP_NO_MEMORY;
        }
        self->symbols = bigger;
        self->symbol_room = (int32_t)room;
    }
    self->symbols[self->n_symbols++] = (symbol){.before = -1, .after = -1};
    return 0;
}

/* Note that `count` pairs "symbol l" (before) or "r symbol" have gone. */
static int note_gone(wp_learner *self, int32_t symbol_number, int before, int64_t count) {
    symbol *s = &self->symbols[symbol_number];
    if (s->before_left == 0 && s->after_right == 0) {
        if (self->n_touched == self->touched_room) {
            int32_t *bigger = grown(self->touched, 0, &self->touched_room, sizeof *bigger);
            if (!bigger) {
                return WP_NO_MEMORY;
            }
            self->touched = bigger;
        }
        self->touched[self->n_touched++] = symbol_number;
    }
    *(before ? &s->before_left : &s->after_right) += count;
    return 0;
}

/* Note `count` new pairs "symbol m" (before) or "m symbol" in a word. */
static int note_new(wp_learner *self, int32_t symbol_number, int before, uint32_t word, int64_t count) {
    symbol *s = &self->symbols[symbol_number];
    int32_t *number = before ? &s->before : &s->after;
    if (*number < 0) {
        const int32_t m = self->n_symbols - 1;
        *number = before ? new_pair(self, symbol_number, m) : new_pair(self, m, symbol_number);
        if (*number < 0) {
            *number = -1;
            return WP_NO_MEMORY;
        }
    }
    if (self->n_events == self->event_room) {
        event *bigger = grown(self->events, 0, &self->event_room, sizeof *bigger);
        if (!bigger) {
            return WP_NO_MEMORY;
        }
        self->events = bigger;
    }
    self->events[self->n_events++] = (event){*number, word};
    self->pairs[*number].n += count;
    return 0;
}

static void change(wp_learner *self, int32_t left, int32_t right, int64_t by) {
    pair *p = find(self, left, right);
    if (p) {
        p->n += by;
        p->log_n = -1;
    }
}

/* Join l r in one word from the left and note what that does to the counts of pairs.
 *
 * Where equal symbols stand side by side, overlaps decide what counts: all pairs of the word before are taken
 * away, and all pairs after it added. Elsewhere only the neighbours of each l r matter. */
static int join_in_word(wp_learner *self, uint32_t place, int32_t l, int32_t r, int32_t m) {
    int32_t *const word = self->words + place, *const s = word + HEADER;
    const int32_t length = word[0];
    const int64_t count = count_of(word);
    int found = 0, equals = l == r, failed = 0, counted = 0;
    for (int32_t i = 0; i + 1 < length; i++) {
        if (s[i] == l && s[i + 1] == r) {
            found = 1;
            equals |= (i > 0 && s[i - 1] == l) || (i + 2 < length && s[i + 2] == r) ||
                      (i + 3 < length && s[i + 2] == l && s[i + 3] == r);
        }
    }
    if (!found) {
        return 0;
    }
    if (equals) {
        for (int32_t i = 0; i + 1 < length; i++) {
            if (counts(s, i, &counted)) {
                change(self, s[i], s[i + 1], -count);
            }
        }
    }
    int32_t n = 0;
    for (int32_t i = 0; i < length; n++) {
        if (i + 1 < length && s[i] == l && s[i + 1] == r) {
            if (!equals && n > 0) {
                failed |= note_gone(self, s[n - 1], 1, count) | note_new(self, s[n - 1], 1, place, count);
            }
            if (!equals && i + 2 < length) {
                failed |= note_gone(self, s[i + 2], 0, count) | note_new(self, s[i + 2], 0, place, count);
            }
            s[n] = m;
            i += 2;
        } else {
            s[n] = s[i++];
        }
    }
    word[0] = n;
    if (equals) {
        for (int32_t i = 0; i + 1 < n; i++) {
            if (!counts(s, i, &counted)) {
                continue;
            }
            if (s[i + 1] == m) {
                failed |= note_new(self, s[i], 1, place, count);
            } else if (s[i] == m) {
                failed |= note_new(self, s[i + 1], 0, place, count);
            } else {
                change(self, s[i], s[i + 1], count);
            }
        }
    }
    return failed;
}

/* -- From one merge to the next ----------------------------------------------------------------------------- */

/* Room for `more` words in the lists; those of dead pairs make it first. */
static int reserve_lists(wp_learner *self, int64_t more) {
    if (self->n_lists + more <= self->list_room) {
        return 0;
    }
    int64_t kept = 0;
    for (int32_t i = 0; i < self->n_pairs; i++) { /* in the order of their lists */
        pair *p = &self->pairs[i];
        if (p->n >= self->min_frequency && p->n_words > 0) {
            memmove(self->lists + kept, self->lists + p->first_word, p->n_words * sizeof *self->lists);
            p->first_word = kept;
            kept += p->n_words;
        } else {
            p->n_words = 0;
        }
    }
    self->n_lists = kept;
    if (kept + more <= self->list_room - self->list_room / 4) {
        return 0;
    }
    uint32_t *bigger = grown(self->lists, kept + more, &self->list_room, sizeof *bigger);
    if (!bigger) {
        return WP_NO_MEMORY;
    }
    self->lists = bigger;
    return 0;
}

/* Give the pairs from number `first` on their lists of words, a place in the table and one in the heap;
 * forget those that are too rare. */
static int settle_new_pairs(wp_learner *self, int32_t first) {
    int64_t n_words = 0;
    int32_t n_kept = 0;
    for (int64_t i = 0; i < self->n_events; i++) {
        self->pairs[self->events[i].pair].n_words++;
    }
    for (int32_t i = first; i < self->n_pairs; i++) {
        if (self->pairs[i].n >= self->min_frequency) {
            n_words += self->pairs[i].n_words;
            n_kept++;
        }
    }
    const int32_t end = self->n_pairs;
    self->n_pairs = first; /* of the old ones */
    if (reserve_lists(self, n_words) || reserve(self, n_kept)) {
        return WP_NO_MEMORY;
    }
    if (n_kept > self->heap_room - self->n_heap) {
        int64_t room = self->heap_room;
        node *bigger = grown(self->heap, (int64_t)self->n_heap + n_kept, &room, sizeof *bigger);
        if (!bigger || room > INT32_MAX / 4) {
            return WP_NO_MEMORY;
        }
        self->heap = bigger;
        self->heap_room = (int32_t)room;
    }
    for (int32_t i = first; i < end; i++) {
        pair *p = &self->pairs[i];
        p->first_word = self->n_lists;
        if (p->n >= self->min_frequency) {
            self->n_lists += p->n_words;
        }
        p->n_words = 0;
    }
    for (int64_t i = 0; i < self->n_events; i++) {
        pair *p = &self->pairs[self->events[i].pair];
        uint32_t *words = self->lists + p->first_word;
        if (p->n >= self->min_frequency &&
            (p->n_words == 0 || words[p->n_words - 1] != self->events[i].word)) {
            words[p->n_words++] = self->events[i].word;
        }
    }
    for (int32_t i = first; i < end; i++) {
        if (self->pairs[i].n >= self->min_frequency) {
            const int32_t number = self->n_pairs++;
            self->pairs[number] = self->pairs[i];
            enter(self, number);
            self->n_heap++;
            settle(self, self->n_heap - 1, (node){most(self, &self->pairs[number]), number});
        }
    }
    return 0;
}

/* Join a pair, which is no longer in the heap, wherever it stands. */
static int merge(wp_learner *self, int32_t number) {
    pair *const p = &self->pairs[number];
    const int32_t l = p->left, r = p->right, m = self->n_symbols, first_new = self->n_pairs;
    const int64_t n = p->n, first_word = p->first_word, n_words = p->n_words;
    p->n = 0;
    if (add_symbol(self)) {
        return WP_NO_MEMORY;
    }
    self->total -= n;
    self->log_total = wp_log((double)self->total);
    set_count(&self->symbols[l], self->symbols[l].count - n);
    set_count(&self->symbols[r], self->symbols[r].count - n);
    set_count(&self->symbols[m], n);

    int failed = 0;
    self->n_events = self->n_touched = 0;
    for (int64_t i = 0; i < n_words; i++) {
        failed |= join_in_word(self, self->lists[first_word + i], l, r, m);
    }
    for (int64_t i = 0; i < self->n_touched; i++) {
        symbol *s = &self->symbols[self->touched[i]];
        if (s->before_left) {
            change(self, self->touched[i], l, -s->before_left);
        }
        if (s->after_right) {
            change(self, r, self->touched[i], -s->after_right);
        }
        s->before_left = s->after_right = 0;
    }
    for (int32_t i = first_new; i < self->n_pairs; i++) {
        self->symbols[self->pairs[i].left].after = self->symbols[self->pairs[i].left].before = -1;
        self->symbols[self->pairs[i].right].after = self->symbols[self->pairs[i].right].before = -1;
    }
    if (failed || settle_new_pairs(self, first_new)) {
        return WP_NO_MEMORY;
    }
    if (self->objective == LIKELIHOOD) {
        rebound(self, l);
        if (l != r) {
            rebound(self, r);
        }
    }
    return 0;
}

int64_t wp_learner_run(wp_learner *self, int64_t n_merges, int32_t *lefts, int32_t *rights) {
    int64_t done = 0;
    for (; done < n_merges && !self->failed; done++) {
        const int32_t best = choose(self);
        if (best == NONE_LEFT) {
            break;
        }
        if (best >= 0) {
            lefts[done] = self->pairs[best].left;
            rights[done] = self->pairs[best].right;
        }
        self->failed = best == FAILED || merge(self, best);
    }
    return self->failed ? WP_NO_MEMORY : done;
}

/* -- Beginning and end -------------------------------------------------------------------------------------- */

/* Words as records, and the counts of their symbols. */
static int take_words(wp_learner *self, const int32_t *symbols, const int64_t *bounds, const int64_t *counts,
                      int64_t n_words) {
    int64_t n_ints = 0;
    for (int64_t i = 0; i < n_words; i++) {
        const int64_t length = bounds[i + 1] - bounds[i];
        if (length < 0 || length > INT32_MAX || counts[i] < 0) {
            return WP_TOO_LONG;
        }
        n_ints += HEADER + length;
        if (n_ints > UINT32_MAX || (length && counts[i] > (INT64_MAX / 4 - self->total) / length)) {
            return WP_TOO_LONG;
        }
        self->total += counts[i] * length;
    }
    self->words = malloc((size_t)(n_ints + 1) * sizeof *self->words);
    if (!self->words) {
        return WP_NO_MEMORY;
    }
    int32_t *word = self->words;
    for (int64_t i = 0; i < n_words; i++) {
        const int32_t length = (int32_t)(bounds[i + 1] - bounds[i]);
        word[0] = length;
        memcpy(word + 1, &counts[i], sizeof counts[i]);
        word += HEADER;
        for (int32_t k = 0; k < length; k++) {
            const int32_t number = symbols[bounds[i] + k];
            if (number < 0 || number >= self->n_symbols) {
                return WP_TOO_LONG;
            }
            *word++ = number;
            self->symbols[number].count += counts[i];
        }
    }
    return 0;
}

/* Every pair of the text as it stands, in the order of appearance, with the words that hold it as events. */
static int count_pairs(wp_learner *self, int64_t n_words) {
    uint32_t place = 0;
    for (int64_t i = 0; i < n_words; i++) {
        const int32_t *const word = self->words + place, *const s = word + HEADER;
        const int64_t count = count_of(word);
        int counted = 0;
        for (int32_t k = 0; count > 0 && k + 1 < word[0]; k++) {
            if (!counts(s, k, &counted)) {
                continue;
            }
            pair *p = find(self, s[k], s[k + 1]);
            if (!p) {
                const int32_t number = reserve(self, 1) ? WP_NO_MEMORY : new_pair(self, s[k], s[k + 1]);
                if (number < 0) {
                    return WP_NO_MEMORY;
                }
                enter(self, number);
                p = &self->pairs[number];
            }
            p->n += count;
            if (self->n_events == self->event_room) {
                event *bigger = grown(self->events, 0, &self->event_room, sizeof *bigger);
                if (!bigger) {
                    return WP_NO_MEMORY;
                }
                self->events = bigger;
            }
            self->events[self->n_events++] = (event){(int32_t)(p - self->pairs), place};
        }
        place += (uint32_t)(HEADER + word[0]);
    }
    return 0;
}

static int begin(wp_learner *self, const int32_t *symbols, const int64_t *bounds, const int64_t *counts,
                 int64_t n_words, int32_t n_symbols, int64_t min_frequency) {
    while (self->n_symbols < n_symbols) {
        if (add_symbol(self)) {
            return WP_NO_MEMORY;
        }
    }
    self->min_frequency = 1; /* all pairs are kept until they are counted */
    if (take_words(self, symbols, bounds, counts, n_words) || reserve(self, 1024) ||
        count_pairs(self, n_words)) {
        return WP_NO_MEMORY;
    }
    for (int32_t i = 0; i < n_symbols; i++) {
        set_count(&self->symbols[i], self->symbols[i].count);
    }
    self->log_total = self->total > 0 ? wp_log((double)self->total) : 0.0;
    self->min_frequency = min_frequency < 1 ? 1 : min_frequency;
    free(self->table); /* the rare ones leave it */
    self->table = NULL;
    if (settle_new_pairs(self, 0)) {
        return WP_NO_MEMORY;
    }
    free(self->events);
    self->events = NULL;
    self->event_room = 0;
    return 0;
}

wp_learner *wp_learner_new(const int32_t *symbols, const int64_t *bounds, const int64_t *counts,
                           int64_t n_words, int32_t n_symbols, int64_t min_frequency, int32_t objective) {
    wp_learner *self = calloc(1, sizeof *self);
    if (!self) {
        return NULL;
    }
    self->objective = objective;
    if (begin(self, symbols, bounds, counts, n_words, n_symbols, min_frequency)) {
        wp_learner_free(self);
        return NULL;
    }
    return self;
}

void wp_learner_free(wp_learner *self) {
    if (!self) {
        return;
    }
    for (int32_t i = 0; i < self->n_symbols; i++) {
        free(self->symbols[i].active.items);
    }
    free(self->symbols);
    free(self->words);
    free(self->pairs);
    free(self->table);
    free(self->heap);
    free(self->lists);
    free(self->events);
    free(self->touched);
    free(self->raised.items);
    free(self);
}
