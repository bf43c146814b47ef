#include "normalize.h"

#include <stdlib.h>
#include <string.h>

void wp_normalizer_init(wp_normalizer *normalizer, const wp_rules *rules) {
    normalizer->rules = *rules;
    normalizer->deleted = WP_CONTROL;
    normalizer->not_isolated = 0;
    normalizer->composes = rules->compat == WP_HF_SLOW && !rules->strip_accents;
    normalizer->final_sigma = rules->compat != WP_HF_FAST;
    if (rules->compat == WP_HF_SLOW) {
        normalizer->deleted |= WP_PRIVATE | WP_UNASSIGNED | WP_SURROGATE;
    }
    if (rules->compat == WP_HF_FAST) {
        normalizer->deleted |= WP_PRIVATE;
        normalizer->not_isolated = WP_LATE_IDEOGRAPH;
    }
    memset(normalizer->bytes, WP_BYTE_NOT_ASCII, sizeof normalizer->bytes);
    for (uint32_t code = 0; code < 0x80; ++code) {
        uint32_t flags = wp_char_of(code)->flags, lower[3] = {code};
        if (rules->lower_case && flags & WP_LOWERS) {
            wp_lower(code, lower);
        }
        normalizer->bytes[code] = flags & WP_CONTROL       ? WP_BYTE_DELETED
                                  : flags & WP_SPACE       ? WP_BYTE_SPACE
                                  : flags & WP_PUNCTUATION ? WP_BYTE_PUNCTUATION
                                                           : (uint8_t)lower[0];
    }
}

bool wp_cased_follows(const wp_normalizer *normalizer, const uint8_t *text, const uint8_t *end, bool raw) {
    while (text < end) {
        int n;
        bool valid;
        uint32_t flags = wp_char_of(wp_decode(text, end, raw, &n, &valid))->flags;
        if (!(flags & normalizer->deleted)) {
            if (flags & WP_SPACE || wp_is_isolated(normalizer, flags)) {
                return false;
            }
            if (!(flags & WP_CASE_IGNORABLE)) {
                return flags & WP_CASED;
            }
        }
        text += n;
    }
    return false;
}

/* Canonical order */

bool wp_run_add(wp_run *run, wp_placed placed) {
    if (run->n == run->capacity) {
        int64_t capacity = run->capacity ? 2 * run->capacity : 32;
        wp_placed *grown = realloc(run->placed, 2 * (size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        run->placed = grown;
        run->capacity = capacity;
    }
    run->placed[run->n++] = placed;
    return true;
}

bool wp_run_sort(wp_run *run) {
    bool sorted = true;
    for (int64_t i = 1; i < run->n && sorted; ++i) {
        sorted = run->placed[i - 1].ccc <= run->placed[i].ccc;
    }
    if (sorted) {
        return false;
    }
    int64_t begins[257] = {0}; /* of each class in the sorted run */
    for (int64_t i = 0; i < run->n; ++i) {
        ++begins[run->placed[i].ccc + 1];
    }
    for (int ccc = 1; ccc < 257; ++ccc) {
        begins[ccc] += begins[ccc - 1];
    }
    wp_placed *ordered = run->placed + run->capacity;
    for (int64_t i = 0; i < run->n; ++i) {
        ordered[begins[run->placed[i].ccc]++] = run->placed[i];
    }
    memcpy(run->placed, ordered, (size_t)run->n * sizeof *ordered);
    return true;
}

/* NFC */

typedef struct composer {
    wp_composed *out;
    int64_t capacity; /* characters that fit into *out */
    wp_run source;    /* the present segment as it stands in the text */
    wp_run parts;     /* and decomposed, in canonical order */
} composer;

static bool write(composer *c, uint32_t code, int32_t begin, int32_t end) {
    wp_composed *out = c->out;
    if (out->n_chars == c->capacity) {
        int64_t capacity = 2 * c->capacity + 64;
        uint8_t *text = realloc(out->text, 4 * (size_t)capacity);
        if (text != NULL) {
            out->text = text;
        }
        int32_t *begins = realloc(out->begins, sizeof *begins * (size_t)capacity);
        if (begins != NULL) {
            out->begins = begins;
        }
        int32_t *ends = realloc(out->ends, sizeof *ends * (size_t)capacity);
        if (ends != NULL) {
            out->ends = ends;
        }
        if (text == NULL || begins == NULL || ends == NULL) {
            return false;
        }
        c->capacity = capacity;
    }
    out->n_bytes += wp_utf8(code, out->text + out->n_bytes);
    out->begins[out->n_chars] = begin;
    out->ends[out->n_chars++] = end;
    return true;
}

/* Compose the parts in place (The Unicode Standard, 3.11, D117): each goes into the last starter before it, unless
 * something that stayed between them blocks it. */
static void compose(wp_run *parts) {
    int64_t n = 0, starter = -1;
    for (int64_t i = 0; i < parts->n; ++i) {
        wp_placed part = parts->placed[i];
        if (starter >= 0) {
            bool blocked = n > starter + 1 && parts->placed[n - 1].ccc >= part.ccc;
            uint32_t composite = blocked ? 0 : wp_compose(parts->placed[starter].code, part.code);
            if (composite) {
                parts->placed[starter].code = composite;
                continue;
            }
        }
        if (part.ccc == 0) {
            starter = n;
        }
        parts->placed[n++] = part;
    }
    parts->n = n;
}

/* The segment is complete: bring it into NFC and write it. */
static bool end_segment(composer *c) {
    wp_run *source = &c->source, *parts = &c->parts;
    int64_t n = source->n;
    if (n == 0) {
        return true;
    }
    if (n == 1 && wp_char_of(source->placed[0].code)->flags & WP_INERT) {
        source->n = 0;
        return write(c, source->placed[0].code, source->placed[0].begin, source->placed[0].end);
    }
    parts->n = 0;
    for (int64_t i = 0; i < n; ++i) {
        uint32_t codes[4];
        int n_codes = wp_decompose(source->placed[i].code, codes);
        for (int k = 0; k < n_codes; ++k) {
            wp_placed part = {codes[k], 0, 0, wp_char_of(codes[k])->combining_class};
            if (!wp_run_add(parts, part)) {
                return false;
            }
        }
    }
    for (int64_t first = 0; first < parts->n;) { /* canonical order, from starter to starter */
        int64_t last = first + 1;
        while (last < parts->n && parts->placed[last].ccc != 0) {
            ++last;
        }
        int64_t begin = first + (parts->placed[first].ccc == 0);
        if (last - begin > 1) {
            wp_run between = {parts->placed + begin, last - begin, parts->capacity};
            wp_run_sort(&between);
        }
        first = last;
    }
    compose(parts);
    bool changed = parts->n != n;
    for (int64_t i = 0; i < n && !changed; ++i) {
        changed = parts->placed[i].code != source->placed[i].code;
    }
    int32_t begin = source->placed[0].begin, end = source->placed[n - 1].end;
    for (int64_t i = 0; i < parts->n; ++i) {
        if (!write(c, parts->placed[i].code, changed ? begin : source->placed[i].begin,
                   changed ? end : source->placed[i].end)) {
            return false;
        }
    }
    source->n = 0;
    return true;
}

static bool is_inert(const uint8_t *text, const uint8_t *end, bool raw) {
    while (text < end) {
        if (*text < 0x80) {
            ++text;
            continue;
        }
        int n;
        bool valid;
        if (!(wp_char_of(wp_decode(text, end, raw, &n, &valid))->flags & WP_INERT)) {
            return false;
        }
        text += n;
    }
    return true;
}

int wp_compose_text(const wp_normalizer *normalizer, const uint8_t *text, int64_t n_bytes, bool raw,
                    wp_composed *composed) {
    const uint8_t *end = text + n_bytes;
    memset(composed, 0, sizeof *composed);
    if (is_inert(text, end, raw)) {
        return 0;
    }
    composer c = {.out = composed};
    bool done = true;
    int32_t at = 0;
    for (; text < end && done; ++at) {
        int n;
        bool valid;
        uint32_t code = wp_decode(text, end, raw, &n, &valid);
        uint32_t flags = wp_char_of(code)->flags;
        text += n;
        composed->n_invalid += !valid;
        if (flags & normalizer->deleted) {
            continue;
        }
        bool isolated = wp_is_isolated(normalizer, flags);
        if (isolated || flags & WP_SPACE || flags & WP_SEGMENT_START) {
            done = end_segment(&c);
        }
        if (isolated || flags & WP_SPACE) {
            done = done && write(&c, ' ', at, at + 1);
        }
        if (!(flags & WP_SPACE)) {
            done = done && wp_run_add(&c.source, (wp_placed){code, at, at + 1, 0});
        }
        if (isolated) {
            done = done && end_segment(&c) && write(&c, ' ', at, at + 1);
        }
    }
    done = done && end_segment(&c) && write(&c, ' ', at, at); /* so that text is not NULL */
    free(c.source.placed);
    free(c.parts.placed);
    if (!done) {
        wp_composed_free(composed);
        return WP_NO_MEMORY;
    }
    return 0;
}

void wp_composed_free(wp_composed *composed) {
    free(composed->text);
    free(composed->begins);
    free(composed->ends);
    memset(composed, 0, sizeof *composed);
}
