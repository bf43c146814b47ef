/* Learning a vocabulary: the fast twin of Merger in merging.py, which says what is computed and why.
 *
 * Joining a pair makes new pairs, all of them with the new symbol; any other pair can only become rarer.
 * So the words that hold a pair are listed once, when it appears, and one that is too rare then is
 * forgotten.
 */

#include <stdlib.h>
#include <string.h>

#include "learn.h"
#include "logarithm.h"

enum { HEADER = 3 }; /* ints before the symbols of a word: how many they are, and its count in two halves */

/* Words */

static int64_t count_of(const int32_t *word) {
    int64_t count;
    memcpy(&count, word + 1, sizeof count);
    return count;
}

/* Whether the pair at s[i] is a neighbour that counts: not where it overlaps the same pair just counted. */
static bool counts(const int32_t *s, int32_t i, bool *counted) {
    *counted = !(i > 0 && *counted && s[i - 1] == s[i] && s[i] == s[i + 1]);
    return *counted;
}

static bool add_event(wp_learner *self, int32_t pair, uint32_t word) {
    if (self->n_events == self->event_room) {
        wp_event *bigger = wp_grown(self->events, 0, &self->event_room, sizeof *bigger);
        if (!bigger) {
            return false;
        }
        self->events = bigger;
    }
    self->events[self->n_events++] = (wp_event){pair, word};
    return true;
}

/* Note that `count` pairs "symbol l" (before) or "r symbol" have gone. */
static bool note_gone(wp_learner *self, int32_t symbol, bool before, int64_t count) {
    wp_symbol *s = &self->symbols[symbol];
    if (s->before_left == 0 && s->after_right == 0) {
        if (self->n_touched == self->touched_room) {
            int32_t *bigger = wp_grown(self->touched, 0, &self->touched_room, sizeof *bigger);
            if (!bigger) {
                return false;
            }
            self->touched = bigger;
        }
        self->touched[self->n_touched++] = symbol;
    }
    *(before ? &s->before_left : &s->after_right) += count;
    return true;
}

/* Note `count` new pairs "symbol m" (before) or "m symbol" in a word. */
static bool note_new(wp_learner *self, int32_t symbol, bool before, uint32_t word, int64_t count) {
    wp_symbol *s = &self->symbols[symbol];
    int32_t *pair = before ? &s->before : &s->after;
    if (*pair < 0) {
        const int32_t m = (int32_t)self->n_symbols - 1;
        *pair = before ? wp_add_pair(self, symbol, m) : wp_add_pair(self, m, symbol);
    }
    if (*pair < 0 || !add_event(self, *pair, word)) {
        return false;
    }
    self->pairs[*pair].n += count;
    self->pairs[*pair].n_words++;
    return true;
}

static void change(wp_learner *self, int32_t left, int32_t right, int64_t by) {
    wp_pair *p = wp_find_pair(self, left, right);
    if (p) {
        p->n += by;
        p->log_n = -1;
    }
}

/* Join l r in one word from the left and note what that does to the counts of pairs.
 *
 * Where equal symbols stand side by side, overlaps decide what counts: all pairs of the word before are taken
 * away, and all pairs after it added. Elsewhere only the neighbours of each l r matter. */
static bool join_in_word(wp_learner *self, uint32_t place, int32_t l, int32_t r, int32_t m) {
    int32_t *const word = self->words + place, *const s = word + HEADER;
    const int32_t length = word[0];
    const int64_t count = count_of(word);
    bool found = false, equals = l == r, counted = false, failed = false;
    for (int32_t i = 0; i + 1 < length; i++) {
        if (s[i] == l && s[i + 1] == r) {
            found = true;
            equals |= (i > 0 && s[i - 1] == l) || (i + 2 < length && s[i + 2] == r) ||
                      (i + 3 < length && s[i + 2] == l && s[i + 3] == r);
        }
    }
    if (!found) {
        return true;
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
                failed |=
                    !note_gone(self, s[n - 1], true, count) || !note_new(self, s[n - 1], true, place, count);
            }
            if (!equals && i + 2 < length) {
                failed |= !note_gone(self, s[i + 2], false, count) ||
                          !note_new(self, s[i + 2], false, place, count);
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
                failed |= !note_new(self, s[i], true, place, count);
            } else if (s[i] == m) {
                failed |= !note_new(self, s[i + 1], false, place, count);
            } else {
                change(self, s[i], s[i + 1], count);
            }
        }
    }
    return !failed;
}

/* From one merge to the next */

/* Room for `more` words in the lists; those of the dead ones among the first n_pairs make it first. */
static int reserve_lists(wp_learner *self, int64_t n_pairs, int64_t more) {
    if (self->n_lists + more <= self->list_room) {
        return 0;
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < n_pairs; i++) { /* in the order of their lists */
        wp_pair *p = &self->pairs[i];
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
    uint32_t *bigger = wp_grown(self->lists, kept + more, &self->list_room, sizeof *bigger);
    if (!bigger) {
        return WP_NO_MEMORY;
    }
    self->lists = bigger;
    return 0;
}

/* Open a list for each pair from number `first` on that is not too rare, with room for its n_words. */
static int open_lists(wp_learner *self, int64_t first) {
    int64_t n_words = 0;
    for (int64_t i = first; i < self->n_pairs; i++) {
        n_words += self->pairs[i].n >= self->min_frequency ? self->pairs[i].n_words : 0;
    }
    if (reserve_lists(self, first, n_words)) {
        return WP_NO_MEMORY;
    }
    for (int64_t i = first; i < self->n_pairs; i++) {
        wp_pair *p = &self->pairs[i];
        p->first_word = self->n_lists;
        self->n_lists += p->n >= self->min_frequency ? p->n_words : 0;
        p->n_words = 0;
    }
    return 0;
}

/* Put a word on the list of a pair, unless it was the last one to come there. */
static void list_word(wp_learner *self, wp_pair *p, uint32_t word) {
    if (p->n >= self->min_frequency) {
        uint32_t *const end = self->lists + p->first_word + p->n_words;
        if (p->n_words == 0 || end[-1] != word) {
            *end = word;
            p->n_words++;
        }
    }
}

/* Of the pairs from number `first` on, forget those that are too rare; the others go into table and heap. */
static int keep_frequent(wp_learner *self, int64_t first) {
    const int64_t end = self->n_pairs;
    int64_t n_kept = 0;
    for (int64_t i = first; i < end; i++) {
        n_kept += self->pairs[i].n >= self->min_frequency;
    }
    self->n_pairs = first;
    if (wp_reserve(self, n_kept)) {
        return WP_NO_MEMORY;
    }
    for (int64_t i = first; i < end; i++) {
        if (self->pairs[i].n >= self->min_frequency) {
            const int32_t number = (int32_t)self->n_pairs++;
            self->pairs[number] = self->pairs[i];
            wp_enter(self, number);
            wp_insert(self, number);
        }
    }
    return 0;
}

/* Join a pair, which is no longer in the heap, wherever it stands. */
static int merge(wp_learner *self, int32_t number) {
    wp_pair *const p = &self->pairs[number];
    const int32_t l = p->left, r = p->right, m = wp_add_symbol(self);
    const int64_t n = p->n, first_word = p->first_word, n_words = p->n_words, first_new = self->n_pairs;
    p->n = 0;
    if (m < 0) {
        return WP_NO_MEMORY;
    }
    self->total -= n;
    self->log_total = wp_log((double)self->total);
    wp_set_count(&self->symbols[l], self->symbols[l].count - n);
    wp_set_count(&self->symbols[r], self->symbols[r].count - n);
    wp_set_count(&self->symbols[m], n);

    bool failed = false;
    self->n_events = self->n_touched = 0;
    for (int64_t i = 0; i < n_words; i++) {
        failed |= !join_in_word(self, self->lists[first_word + i], l, r, m);
    }
    for (int64_t i = 0; i < self->n_touched; i++) {
        wp_symbol *s = &self->symbols[self->touched[i]];
        if (s->before_left) {
            change(self, self->touched[i], l, -s->before_left);
        }
        if (s->after_right) {
            change(self, r, self->touched[i], -s->after_right);
        }
        s->before_left = s->after_right = 0;
    }
    for (int64_t i = first_new; i < self->n_pairs; i++) {
        self->symbols[self->pairs[i].left].after = self->symbols[self->pairs[i].left].before = -1;
        self->symbols[self->pairs[i].right].after = self->symbols[self->pairs[i].right].before = -1;
    }
    if (failed || open_lists(self, first_new)) {
        return WP_NO_MEMORY;
    }
    for (int64_t i = 0; i < self->n_events; i++) {
        list_word(self, &self->pairs[self->events[i].pair], self->events[i].word);
    }
    if (keep_frequent(self, first_new)) {
        return WP_NO_MEMORY;
    }
    if (self->objective == WP_LIKELIHOOD) {
        wp_rebound(self, l);
        if (l != r) {
            wp_rebound(self, r);
        }
    }
    return 0;
}

int64_t wp_learner_run(wp_learner *self, int64_t n_merges, int32_t *lefts, int32_t *rights) {
    int64_t done = 0;
    for (; done < n_merges && !self->failed; done++) {
        const int32_t best = wp_choose(self);
        if (best == WP_NONE_LEFT) {
            break;
        }
        if (best >= 0) {
            lefts[done] = self->pairs[best].left;
            rights[done] = self->pairs[best].right;
        }
        self->failed = best == WP_FAILED || merge(self, best);
    }
    return self->failed ? WP_NO_MEMORY : done;
}

/* Beginning and end */

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

/* Count every pair of the text as it stands; they go into the table. */
static int count_pairs(wp_learner *self, int64_t n_words) {
    const int32_t *word = self->words;
    for (int64_t i = 0; i < n_words; i++, word += HEADER + word[0]) {
        const int32_t *const s = word + HEADER;
        bool counted = false;
        for (int32_t k = 0; count_of(word) > 0 && k + 1 < word[0]; k++) {
            if (!counts(s, k, &counted)) {
                continue;
            }
            wp_pair *p = wp_find_pair(self, s[k], s[k + 1]);
            if (!p) {
                const int32_t number = wp_reserve(self, 1) ? WP_NO_MEMORY : wp_add_pair(self, s[k], s[k + 1]);
                if (number < 0) {
                    return WP_NO_MEMORY;
                }
                wp_enter(self, number);
                p = &self->pairs[number];
            }
            p->n += count_of(word);
            p->n_words++;
        }
    }
    return 0;
}

static void list_words(wp_learner *self, int64_t n_words) {
    const int32_t *word = self->words;
    for (int64_t i = 0; i < n_words; i++, word += HEADER + word[0]) {
        for (int32_t k = 0; count_of(word) > 0 && k + 1 < word[0]; k++) {
            list_word(self, wp_find_pair(self, word[HEADER + k], word[HEADER + k + 1]),
                      (uint32_t)(word - self->words));
        }
    }
}

static int begin(wp_learner *self, const int32_t *symbols, const int64_t *bounds, const int64_t *counts,
                 int64_t n_words, int32_t n_symbols, int64_t min_frequency) {
    while (self->n_symbols < n_symbols) {
        if (wp_add_symbol(self) < 0) {
            return WP_NO_MEMORY;
        }
    }
    self->min_frequency = 1; /* all pairs are kept until they are counted */
    if (take_words(self, symbols, bounds, counts, n_words) || wp_reserve(self, 1024) ||
        count_pairs(self, n_words)) {
        return WP_NO_MEMORY;
    }
    for (int32_t i = 0; i < n_symbols; i++) {
        wp_set_count(&self->symbols[i], self->symbols[i].count);
    }
    self->log_total = self->total > 0 ? wp_log((double)self->total) : 0.0;
    self->min_frequency = min_frequency < 1 ? 1 : min_frequency;
    if (open_lists(self, 0)) {
        return WP_NO_MEMORY;
    }
    list_words(self, n_words);
    free(self->table); /* the rare ones leave it */
    self->table = NULL;
    return keep_frequent(self, 0);
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
    for (int64_t i = 0; i < self->n_symbols; i++) {
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
