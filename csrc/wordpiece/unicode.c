#include "unicode.h"

#include <stddef.h>

typedef struct wp_composition {
    uint32_t first, second, whole;
} wp_composition;

#include "unicode_tables.h"

/* Hangul syllables are computed: 19 leading consonants, 21 vowels, 27 trailing consonants or none. */
enum { SYLLABLES = 0xAC00, LEADING = 0x1100, VOWELS = 0x1161, TRAILING = 0x11A7 };
enum { N_LEADING = 19, N_VOWELS = 21, N_TRAILING = 28, N_SYLLABLES = N_LEADING * N_VOWELS * N_TRAILING };

static int copy_sequence(uint32_t place, uint32_t *out) {
    const uint32_t n = wp_sequences[place];
    for (uint32_t i = 0; i < n; i++) {
        out[i] = wp_sequences[place + 1 + i];
    }
    return (int)n;
}

int wp_lower(uint32_t code, uint32_t out[3]) {
    const uint32_t place = wp_char_of(code)->lower;
    if (place) {
        return copy_sequence(place, out);
    }
    out[0] = code;
    return 1;
}

int wp_decompose(uint32_t code, uint32_t out[4]) {
    const uint32_t place = wp_char_of(code)->decomposition;
    if (place) {
        return copy_sequence(place, out);
    }
    const uint32_t index = code - SYLLABLES; /* wraps around below */
    if (index >= N_SYLLABLES) {
        out[0] = code;
        return 1;
    }
    out[0] = LEADING + index / (N_VOWELS * N_TRAILING);
    out[1] = VOWELS + index / N_TRAILING % N_VOWELS;
    out[2] = TRAILING + index % N_TRAILING;
    return index % N_TRAILING ? 3 : 2;
}

uint32_t wp_compose(uint32_t first, uint32_t second) {
    if (first - LEADING < N_LEADING && second - VOWELS < N_VOWELS) {
        return SYLLABLES + ((first - LEADING) * N_VOWELS + second - VOWELS) * N_TRAILING;
    }
    const uint32_t index = first - SYLLABLES;
    if (index < N_SYLLABLES && index % N_TRAILING == 0 && second - TRAILING - 1 < N_TRAILING - 1) {
        return first + second - TRAILING;
    }
    size_t low = 0, high = sizeof wp_compositions / sizeof *wp_compositions;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const wp_composition *pair = &wp_compositions[middle];
        if (pair->first == first && pair->second == second) {
            return pair->whole;
        }
        if (pair->first < first || (pair->first == first && pair->second < second)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return 0;
}
