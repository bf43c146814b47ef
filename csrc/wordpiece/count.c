/* Counting words, in two steps: what stands between spaces is counted as it is written, and only the
 * different chunks go through the scanner, each with its count. Natural text repeats its chunks so often
 * that most of the time goes into finding spaces. The chunks are worked off whenever there are many, so
 * memory grows with the number of different words alone.
 */

#include <stdlib.h>
#include <string.h>

#include "normalize.h"

enum { MAX_CHUNK = 64, MAX_CHUNKS = 1 << 17 }; /* bytes of one that is counted unread, and how many wait */
enum { CRC_BYTES = 256 };

/* Strings and their counts: a table of open addressing whose slots hold 32 bits of hash and a number + 1. */
typedef struct entry {
    int64_t first_byte;
    int64_t count;
    uint32_t n_bytes;
    uint32_t n_invalid; /* of a chunk: stretches of it that are not UTF-8 */
} entry;

typedef struct table {
    uint64_t *slots;
    uint64_t mask;
    entry *entries;
    int64_t n, room;
    uint8_t *bytes;
    int64_t n_bytes, byte_room;
} table;

struct wp_counter {
    wp_normalizer normalizer;
    int64_t max_chars;
    table chunks, words;
    bool raw; /* how the waiting chunks are to be read */
    uint32_t crc[256];
    bool is_space[256];

    /* the word being read */
    uint8_t *word;
    int64_t n_bytes, byte_room, n_chars;
    int64_t times; /* how often its chunk occurs */
    wp_run run;
    bool failed;
};

/* Strings */

static uint64_t load(const uint8_t *bytes, size_t n) {
    uint64_t value = 0;
    memcpy(&value, bytes, n);
    return value;
}

/* 32 bits of a hash. Only the place in the table depends on it, and so on the byte order. */
static uint32_t hash(const uint8_t *bytes, int64_t n) {
    const uint64_t odd = 0x9E3779B97F4A7C15u;
    uint64_t mixed = (uint64_t)n * odd;
    for (; n >= 8; bytes += 8, n -= 8) {
        mixed = (mixed ^ load(bytes, 8)) * odd;
        mixed ^= mixed >> 32;
    }
    if (n >= 4) {
        mixed ^= load(bytes, 4) | load(bytes + n - 4, 4) << 32;
    } else if (n > 0) {
        mixed ^= (uint64_t)bytes[0] | (uint64_t)bytes[n / 2] << 8 | (uint64_t)bytes[n - 1] << 16;
    }
    mixed *= odd;
    mixed ^= mixed >> 29;
    mixed *= 0xBF58476D1CE4E5B9u;
    return (uint32_t)(mixed >> 32);
}

static int double_slots(table *t) {
    const uint64_t room = t->slots ? 2 * (t->mask + 1) : 1024;
    uint64_t *slots = room <= UINT32_MAX ? calloc(room, sizeof *slots) : NULL;
    if (!slots) {
        return WP_NO_MEMORY;
    }
    for (uint64_t i = 0; t->slots && i <= t->mask; i++) {
        if (t->slots[i]) {
            uint64_t slot = t->slots[i] >> 32 & (room - 1);
            while (slots[slot]) {
                slot = (slot + 1) & (room - 1);
            }
            slots[slot] = t->slots[i];
        }
    }
    free(t->slots);
    t->slots = slots;
    t->mask = room - 1;
    return 0;
}

static int make_room(table *t, int64_t n_bytes) {
    if (!t->slots || (uint64_t)t->n * 2 > t->mask) {
        if (double_slots(t)) {
            return WP_NO_MEMORY;
        }
    }
    if (t->n == t->room) {
        const int64_t room = t->room + t->room / 2 + 256;
        entry *bigger = realloc(t->entries, (size_t)room * sizeof *bigger);
        if (!bigger) {
            return WP_NO_MEMORY;
        }
        t->entries = bigger;
        t->room = room;
    }
    if (t->n_bytes + n_bytes > t->byte_room) {
        const int64_t room = t->byte_room + t->byte_room / 2 + n_bytes + 4096;
        uint8_t *bigger = realloc(t->bytes, (size_t)room);
        if (!bigger) {
            return WP_NO_MEMORY;
        }
        t->bytes = bigger;
        t->byte_room = room;
    }
    return 0;
}

/* Count a string `times` times; its entry, or NULL without memory. *is_new tells whether it came in now. */
static inline entry *count_string(table *t, const uint8_t *bytes, int64_t n, int64_t times, bool *is_new) {
    *is_new = false;
    const uint32_t hashed = hash(bytes, n);
    uint64_t slot = 0;
    if (t->slots) {
        for (slot = hashed & t->mask; t->slots[slot]; slot = (slot + 1) & t->mask) {
            if (t->slots[slot] >> 32 == hashed) {
                entry *found = &t->entries[(uint32_t)t->slots[slot] - 1];
                if (found->n_bytes == n && memcmp(t->bytes + found->first_byte, bytes, (size_t)n) == 0) {
                    found->count += times;
                    return found;
                }
            }
        }
    }
    if (make_room(t, n)) {
        return NULL;
    }
    for (slot = hashed & t->mask; t->slots[slot];) { /* the table may have moved */
        slot = (slot + 1) & t->mask;
    }
    *is_new = true;
    entry *added = &t->entries[t->n++];
    t->slots[slot] = (uint64_t)hashed << 32 | (uint64_t)t->n;
    *added = (entry){t->n_bytes, times, (uint32_t)n, 0};
    memcpy(t->bytes + t->n_bytes, bytes, (size_t)n);
    t->n_bytes += n;
    return added;
}

static void empty(table *t) {
    if (t->slots) {
        memset(t->slots, 0, (t->mask + 1) * sizeof *t->slots);
    }
    t->n = t->n_bytes = 0;
}

static void free_table(table *t) {
    free(t->slots);
    free(t->entries);
    free(t->bytes);
}

/* Words */

static bool word_room(wp_counter *self, int64_t n) {
    if (self->n_bytes + n > self->byte_room) {
        const int64_t room = 2 * self->byte_room + n + 256;
        uint8_t *bigger = realloc(self->word, (size_t)room);
        if (!bigger) {
            self->failed = true;
            return false;
        }
        self->word = bigger;
        self->byte_room = room;
    }
    return true;
}

static const uint8_t *take_bytes(void *sink, const uint8_t *text, const uint8_t *end, int32_t begin) {
    (void)begin;
    wp_counter *self = sink;
    const uint8_t *map = self->normalizer.bytes, *next = text;
    while (next < end && map[*next] > WP_BYTE_PUNCTUATION) {
        next++;
    }
    const int64_t n = next - text;
    if (n <= self->max_chars - self->n_chars && word_room(self, n)) {
        for (int64_t i = 0; i < n; i++) {
            self->word[self->n_bytes + i] = map[text[i]];
        }
        self->n_bytes += n;
    }
    self->n_chars += n;
    return next;
}

static void take_character(void *sink, uint32_t code, int32_t begin, int32_t end) {
    (void)begin, (void)end;
    wp_counter *self = sink;
    if (self->n_chars < self->max_chars && word_room(self, 4)) {
        self->n_bytes += wp_utf8(code, self->word + self->n_bytes);
    }
    self->n_chars++;
}

static void take_end(void *sink) {
    wp_counter *self = sink;
    bool is_new;
    if (!self->failed && self->n_chars > 0 && self->n_chars <= self->max_chars &&
        !count_string(&self->words, self->word, self->n_bytes, self->times, &is_new)) {
        self->failed = true;
    }
    self->n_chars = self->n_bytes = 0;
}

/* Count the words of a text that occurs `times` times; returns the number of invalid stretches in it. */
static int64_t count_words(wp_counter *self, const uint8_t *text, int64_t n_bytes, bool raw, int64_t times) {
    const wp_sink calls = {.bytes = take_bytes, .put = take_character, .end_word = take_end};
    wp_composed composed = {0};
    if (n_bytes > INT32_MAX) { /* the scanner counts characters in 32 bits */
        return WP_TOO_LONG;
    }
    if (self->normalizer.composes) {
        if (wp_compose_text(&self->normalizer, text, n_bytes, raw, &composed)) {
            return WP_NO_MEMORY;
        }
        if (composed.text) {
            text = composed.text;
            n_bytes = composed.n_bytes;
            raw = false; /* U+FFFD is gone, but surrogates of a string are characters */
        }
    }
    self->times = times;
    self->n_chars = self->n_bytes = 0;
    int64_t n_invalid = wp_scan(&self->normalizer, text, n_bytes, raw, &self->run, calls, self);
    if (composed.text) {
        if (n_invalid >= 0) {
            n_invalid = composed.n_invalid;
        }
        wp_composed_free(&composed);
    }
    return self->failed ? WP_NO_MEMORY : n_invalid;
}

/* Count the words of the chunks that wait, or of another counter's. */
static int count_chunks(wp_counter *self, const table *chunks, bool raw) {
    for (int64_t i = 0; i < chunks->n; i++) {
        const entry *chunk = &chunks->entries[i];
        if (count_words(self, chunks->bytes + chunk->first_byte, chunk->n_bytes, raw, chunk->count) < 0) {
            self->failed = true;
            return WP_NO_MEMORY;
        }
    }
    return 0;
}

static int work_off(wp_counter *self) {
    if (self->failed || count_chunks(self, &self->chunks, self->raw)) {
        return WP_NO_MEMORY;
    }
    empty(&self->chunks);
    return 0;
}

/* Texts */

static uint32_t n_invalid_of(const uint8_t *text, int64_t n_bytes, bool raw) {
    const uint8_t *end = text + n_bytes;
    uint32_t n_invalid = 0;
    while (text < end) {
        int n;
        bool valid;
        wp_decode(text, end, raw, &n, &valid);
        n_invalid += !valid;
        text += n;
    }
    return n_invalid;
}

static inline int64_t count_chunk(wp_counter *self, const uint8_t *text, int64_t n_bytes) {
    if (n_bytes > MAX_CHUNK) {
        return count_words(self, text, n_bytes, self->raw, 1);
    }
    bool is_new;
    entry *chunk = count_string(&self->chunks, text, n_bytes, 1, &is_new);
    if (!chunk) {
        self->failed = true;
        return WP_NO_MEMORY;
    }
    if (is_new) {
        const uint32_t n_invalid = chunk->n_invalid = n_invalid_of(text, n_bytes, self->raw);
        if (self->chunks.n >= MAX_CHUNKS && work_off(self)) {
            return WP_NO_MEMORY;
        }
        return n_invalid;
    }
    return chunk->n_invalid;
}

int64_t wp_count(wp_counter *self, const char *text, int64_t n_bytes, int32_t flags) {
    const bool raw = (flags & WP_RAW) != 0;
    if (self->failed || (raw != self->raw && work_off(self))) {
        return WP_NO_MEMORY;
    }
    self->raw = raw;
    const uint8_t *next = (const uint8_t *)text, *end = next + n_bytes;
    int64_t n_invalid = 0;
    while (next < end) {
        const uint8_t *begin = next;
        while (next < end && !self->is_space[*next]) {
            next++;
        }
        if (next > begin) {
            const int64_t found = count_chunk(self, begin, next - begin);
            if (found < 0) {
                return found;
            }
            n_invalid += found;
        }
        next += next < end;
    }
    return n_invalid;
}

/* The CRC-32 of zlib, of PNG, of IEEE 802.3. */
static uint32_t crc32_of(const wp_counter *self, const uint8_t *bytes, int64_t n) {
    uint32_t crc = UINT32_MAX;
    for (int64_t i = 0; i < n; i++) {
        crc = crc >> 8 ^ self->crc[(crc ^ bytes[i]) & 0xFF];
    }
    return ~crc;
}

int64_t wp_count_split(wp_counter *self, wp_counter *held_out, int64_t modulus, const char *text,
                       int64_t n_bytes, int32_t flags) {
    const char *end = text + n_bytes;
    int64_t n_invalid = 0;
    while (text < end) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        const int64_t n = (line_end ? line_end : end) - text;
        const uint32_t crc = crc32_of(self, (const uint8_t *)text, n < CRC_BYTES ? n : CRC_BYTES);
        const int64_t found = wp_count(crc % modulus ? self : held_out, text, n, flags);
        if (found < 0) {
            return found;
        }
        n_invalid += found;
        text += n + (line_end != NULL);
    }
    return n_invalid;
}

/* Counters */

wp_counter *wp_counter_new(const wp_rules *rules, int64_t max_chars) {
    wp_counter *self = calloc(1, sizeof *self);
    if (!self) {
        return NULL;
    }
    wp_normalizer_init(&self->normalizer, rules);
    self->max_chars = max_chars;
    self->is_space[' '] = self->is_space['\t'] = self->is_space['\n'] = self->is_space['\r'] = true;
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
        }
        self->crc[byte] = crc;
    }
    return self;
}

void wp_counter_free(wp_counter *self) {
    if (!self) {
        return;
    }
    free_table(&self->chunks);
    free_table(&self->words);
    free(self->word);
    free(self->run.placed);
    free(self);
}

int wp_counter_add(wp_counter *self, const wp_counter *other) {
    for (int64_t i = 0; i < other->words.n && !self->failed; i++) {
        const entry *word = &other->words.entries[i];
        bool is_new;
        if (!count_string(&self->words, other->words.bytes + word->first_byte, word->n_bytes, word->count,
                          &is_new)) {
            self->failed = true;
        }
    }
    return self->failed || other->failed || count_chunks(self, &other->chunks, other->raw) ? WP_NO_MEMORY : 0;
}

/* What is asked for are the words: chunks that still wait are worked off first. */
static int finish(wp_counter *counter) {
    return counter->chunks.n || counter->failed ? work_off(counter) : 0;
}

int64_t wp_counter_n_words(wp_counter *self) { return finish(self) ? WP_NO_MEMORY : self->words.n; }

int64_t wp_counter_n_bytes(wp_counter *self) { return finish(self) ? WP_NO_MEMORY : self->words.n_bytes; }

/* Words in the order of their bytes */

/* What is compared: the first eight bytes as a number, and where all of them are. */
typedef struct key {
    uint64_t prefix;
    const uint8_t *bytes;
    uint32_t n_bytes, number;
} key;

static int compare(const void *left, const void *right) {
    const key *a = left, *b = right;
    if (a->prefix != b->prefix) {
        return a->prefix < b->prefix ? -1 : 1;
    }
    const uint32_t n = a->n_bytes < b->n_bytes ? a->n_bytes : b->n_bytes;
    const int order = memcmp(a->bytes, b->bytes, n);
    return order ? order : (a->n_bytes > b->n_bytes) - (a->n_bytes < b->n_bytes);
}

int wp_counter_export(wp_counter *self, char *bytes, int64_t *bounds, int64_t *counts) {
    if (finish(self)) {
        return WP_NO_MEMORY;
    }
    const table *words = &self->words;
    key *keys = malloc(((size_t)words->n + 1) * sizeof *keys);
    if (!keys) {
        return WP_NO_MEMORY;
    }
    for (int64_t i = 0; i < words->n; i++) {
        const entry *word = &words->entries[i];
        const uint8_t *first = words->bytes + word->first_byte;
        keys[i] = (key){0, first, word->n_bytes, (uint32_t)i};
        for (uint32_t k = 0; k < 8; k++) {
            keys[i].prefix = keys[i].prefix << 8 | (k < word->n_bytes ? first[k] : 0);
        }
    }
    qsort(keys, (size_t)words->n, sizeof *keys, compare);
    int64_t place = 0;
    for (int64_t i = 0; i < words->n; i++) {
        bounds[i] = place;
        counts[i] = words->entries[keys[i].number].count;
        memcpy(bytes + place, keys[i].bytes, keys[i].n_bytes);
        place += keys[i].n_bytes;
    }
    bounds[words->n] = place;
    free(keys);
    return 0;
}
