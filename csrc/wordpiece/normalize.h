/* From text to the normalised words in it, in one pass and constant memory: Google's BasicTokenizer.
 *
 * cleaning -> CJK ideographs alone -> words between spaces -> lower case -> NFD without accents -> punctuation
 *
 * None of these steps looks further than a few characters, so none of them writes its result down: each
 * character goes through all of them and into a sink, which matches pieces (encode.c) or collects words (count.c).
 * The exception is the NFC of WP_HF_SLOW, which wp_compose_text does beforehand where a text needs it.
 *
 * `wp_scan` is a template: it is always inlined, with functions of the sink that the compiler knows.
 */
#ifndef WP_NORMALIZE_H
#define WP_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unicode.h"
#include "wordpiece.h"

#if defined(__GNUC__)
#define WP_INLINE static inline __attribute__((always_inline))
#define WP_RARELY(condition) __builtin_expect(!!(condition), 0)
#else
#define WP_INLINE static inline
#define WP_RARELY(condition) (condition)
#endif

enum { WP_REPLACEMENT = 0xFFFD, WP_CAPITAL_SIGMA = 0x3A3, WP_FINAL_SIGMA = 0x3C2 };

/* What a byte does. Larger values: the byte belongs to a word, as this (lower-cased) byte. */
enum { WP_BYTE_NOT_ASCII = 0, WP_BYTE_DELETED = 1, WP_BYTE_SPACE = 2, WP_BYTE_PUNCTUATION = 3 };

/* The rules, made ready. */
typedef struct wp_normalizer {
    wp_rules rules;
    uint32_t deleted;      /* a character with one of these flags is cleaned away */
    uint32_t not_isolated; /* ideographs with one of these flags are letters like others */
    bool composes;         /* NFC first: WP_HF_SLOW, unless NFD takes back what that does */
    bool final_sigma;
    uint8_t bytes[256];
} wp_normalizer;

void wp_normalizer_init(wp_normalizer *normalizer, const wp_rules *rules);

/* UTF-8 */

WP_INLINE bool wp_continues(const uint8_t *byte, const uint8_t *end, uint8_t low, uint8_t high) {
    return byte < end && *byte >= low && *byte <= high;
}

/* The code point at `text`, and in *n how many bytes it takes. What is not UTF-8 is U+FFFD: one for the longest
 * beginning of a character, as in Python and in the Unicode Standard, 3.9; *valid tells. */
WP_INLINE uint32_t wp_decode(const uint8_t *text, const uint8_t *end, bool raw, int *n, bool *valid) {
    uint8_t lead = text[0];
    *valid = true;
    *n = 1;
    if (lead < 0x80) {
        return lead;
    }
    uint8_t low = 0x80, high = 0xBF; /* what the second byte may be */
    int length;
    uint32_t code;
    if (lead >= 0xC2 && lead <= 0xDF) {
        length = 2, code = lead & 0x1Fu;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        length = 3, code = lead & 0x0Fu;
        if (lead == 0xE0) {
            low = 0xA0;
        }
        if (lead == 0xED && raw) {
            high = 0x9F;
        }
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        length = 4, code = lead & 0x07u;
        if (lead == 0xF0) {
            low = 0x90;
        }
        if (lead == 0xF4) {
            high = 0x8F;
        }
    } else {
        *valid = false;
        return WP_REPLACEMENT;
    }
    while (*n < length) {
        if (!wp_continues(text + *n, end, low, high)) {
            *valid = false;
            return WP_REPLACEMENT;
        }
        code = code << 6 | (text[*n] & 0x3Fu);
        low = 0x80, high = 0xBF;
        ++*n;
    }
    return code;
}

/* Bytes of a code point in UTF-8; returns how many. Surrogates get their three bytes, too. */
WP_INLINE int wp_utf8(uint32_t code, uint8_t bytes[4]) {
    if (code < 0x80) {
        bytes[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        bytes[0] = (uint8_t)(0xC0 | code >> 6);
        bytes[1] = (uint8_t)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        bytes[0] = (uint8_t)(0xE0 | code >> 12);
        bytes[1] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
        bytes[2] = (uint8_t)(0x80 | (code & 0x3F));
        return 3;
    }
    bytes[0] = (uint8_t)(0xF0 | code >> 18);
    bytes[1] = (uint8_t)(0x80 | (code >> 12 & 0x3F));
    bytes[2] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
    bytes[3] = (uint8_t)(0x80 | (code & 0x3F));
    return 4;
}

WP_INLINE bool wp_is_isolated(const wp_normalizer *normalizer, uint32_t flags) {
    return (flags & WP_IDEOGRAPH) && normalizer->rules.tokenize_chinese_chars &&
           !(flags & normalizer->not_isolated);
}

/* Whether the capital sigma that ends at `text` is followed, within its word, by a letter with case. */
bool wp_cased_follows(const wp_normalizer *normalizer, const uint8_t *text, const uint8_t *end, bool raw);

/* NFC, for WP_HF_SLOW */

/* A text after cleaning, isolation of ideographs and NFC, with the span of the original for each character. */
typedef struct wp_composed {
    uint8_t *text; /* NULL: the text is the same after NFC and can be read as it is */
    int64_t n_bytes, n_chars, n_invalid;
    int32_t *begins, *ends; /* (n_chars) code points of the original; they never fall */
} wp_composed;

int wp_compose_text(const wp_normalizer *normalizer, const uint8_t *text, int64_t n_bytes, bool raw,
                    wp_composed *composed); /* 0, or WP_NO_MEMORY */
void wp_composed_free(wp_composed *composed);

/* Canonical order */

/* A character on its way, and the span of the text that it comes from. */
typedef struct wp_placed {
    uint32_t code;
    int32_t begin, end;
    uint8_t ccc;
} wp_placed;

/* Characters with a combining class that wait for the end of their run: there they are put into canonical order. */
typedef struct wp_run {
    wp_placed *placed; /* room for twice `capacity`: the second half is for sorting */
    int64_t n, capacity;
} wp_run;

bool wp_run_add(wp_run *run, wp_placed placed); /* false: no memory */

/* Stable sort by combining class in linear time; returns whether the order was another before. */
bool wp_run_sort(wp_run *run);

/* The scanner */

/* The functions of a sink; `begin` and `end` count code points of the text.
 *   bytes     takes the ASCII word characters from text[0] on, the first of which is code point `begin`, as they
 *             stand in normalizer->bytes; returns where they end
 *   put       takes one more character of the word
 *   end_word  what came since the last call is a word; without effect when nothing came
 *   special   looks for a special token at a punctuation mark; returns its length in bytes (all of them ASCII), or 0
 *   chunk     looks for a word that is kept whole at the beginning of a chunk; returns its length in bytes or 0, and
 *             how many code points that is */
typedef struct wp_sink {
    const uint8_t *(*bytes)(void *sink, const uint8_t *text, const uint8_t *end, int32_t begin);
    void (*put)(void *sink, uint32_t code, int32_t begin, int32_t end);
    void (*end_word)(void *sink);
    int64_t (*special)(void *sink, const uint8_t *text, const uint8_t *end, int32_t begin);
    int64_t (*chunk)(void *sink, const uint8_t *text, const uint8_t *end, int32_t begin, int32_t *n_chars);
} wp_sink;

WP_INLINE void wp_emit(wp_sink calls, void *sink, uint32_t flags, wp_placed placed) {
    if (flags & WP_PUNCTUATION) {
        calls.end_word(sink);
    }
    calls.put(sink, placed.code, placed.begin, placed.end);
    if (flags & WP_PUNCTUATION) {
        calls.end_word(sink);
    }
}

/* Send the waiting characters on. Where their order changed they share one span: the text between them can't be
 * shared out. */
WP_INLINE void wp_flush(wp_sink calls, void *sink, wp_run *run) {
    if (!WP_RARELY(run->n)) {
        return;
    }
    if (run->n > 1) {
        int32_t begin = run->placed[0].begin, end = run->placed[run->n - 1].end;
        if (wp_run_sort(run)) {
            for (int64_t i = 0; i < run->n; ++i) {
                run->placed[i].begin = begin, run->placed[i].end = end;
            }
        }
    }
    for (int64_t i = 0; i < run->n; ++i) {
        calls.put(sink, run->placed[i].code, run->placed[i].begin, run->placed[i].end);
    }
    run->n = 0;
}

/* One character, lower-cased already: NFD without accents if asked for, then punctuation. */
WP_INLINE bool wp_strip_and_emit(const wp_normalizer *normalizer, wp_sink calls, void *sink, wp_run *run,
                                 wp_placed placed) {
    const wp_char *properties = wp_char_of(placed.code);
    if (!normalizer->rules.strip_accents) {
        wp_emit(calls, sink, properties->flags, placed);
        return true;
    }
    uint32_t parts[4] = {placed.code};
    int n = properties->flags & WP_DECOMPOSES ? wp_decompose(placed.code, parts) : 1;
    for (int i = 0; i < n; ++i) {
        const wp_char *part = n == 1 && parts[0] == placed.code ? properties : wp_char_of(parts[i]);
        placed.code = parts[i];
        if (part->combining_class == 0) {
            wp_flush(calls, sink, run);
        }
        if (part->flags & WP_NONSPACING) {
            continue;
        }
        if (part->combining_class == 0) {
            wp_emit(calls, sink, part->flags, placed);
        } else {
            placed.ccc = part->combining_class;
            if (!wp_run_add(run, placed)) {
                return false;
            }
        }
    }
    return true;
}

/* The words of a text, into a sink. Returns the number of invalid stretches, or WP_NO_MEMORY. */
WP_INLINE int64_t wp_scan(const wp_normalizer *normalizer, const uint8_t *text, int64_t n_bytes, bool raw,
                          wp_run *run, wp_sink calls, void *sink) {
    const uint8_t *end = text + n_bytes;
    int32_t at = 0;     /* code point at `text` */
    bool cased = false; /* whether the last character that is not case-ignorable is cased, in this word */
    bool fresh = true;  /* whether nothing of the present chunk was seen yet */
    int64_t n_invalid = 0;
    run->n = 0;
    while (text < end) {
        uint8_t byte = normalizer->bytes[*text];
        if (byte >= WP_BYTE_PUNCTUATION) {
            wp_flush(calls, sink, run);
            if (WP_RARELY(calls.chunk != NULL) && fresh) {
                int32_t n_chars = 0;
                int64_t n = calls.chunk(sink, text, end, at, &n_chars);
                if (n) {
                    text += n, at += n_chars;
                    cased = false;
                    continue;
                }
            }
            fresh = false;
        }
        if (byte > WP_BYTE_PUNCTUATION) {
            const uint8_t *next = calls.bytes(sink, text, end, at);
            at += (int32_t)(next - text);
            text = next;
            cased = text[-1] >= 'A'; /* a letter, not a digit */
        } else if (byte == WP_BYTE_SPACE) {
            wp_flush(calls, sink, run);
            calls.end_word(sink);
            cased = false, fresh = true;
            ++text, ++at;
        } else if (byte == WP_BYTE_PUNCTUATION) {
            calls.end_word(sink);
            int64_t n = calls.special == NULL ? 0 : calls.special(sink, text, end, at);
            if (WP_RARELY(n)) {
                text += n, at += (int32_t)n;
                cased = false, fresh = true;
                continue;
            }
            calls.put(sink, *text, at, at + 1);
            calls.end_word(sink);
            if (cased && !(wp_char_of(*text)->flags & WP_CASE_IGNORABLE)) {
                cased = false;
            }
            ++text, ++at;
        } else if (byte == WP_BYTE_DELETED) {
            ++text, ++at;
        } else {
            int n;
            bool valid;
            uint32_t code = wp_decode(text, end, raw, &n, &valid);
            const wp_char *properties = wp_char_of(code);
            uint32_t flags = properties->flags;
            wp_placed placed = {code, at, at + 1, 0};
            n_invalid += !valid;
            if (flags & normalizer->deleted) {
                text += n, ++at;
                continue;
            }
            if (flags & WP_SPACE) {
                wp_flush(calls, sink, run);
                calls.end_word(sink);
                text += n, ++at;
                cased = false, fresh = true;
                continue;
            }
            bool isolated = wp_is_isolated(normalizer, flags);
            if (isolated) {
                wp_flush(calls, sink, run);
                calls.end_word(sink);
                fresh = true;
            }
            if (WP_RARELY(calls.chunk != NULL) && fresh) {
                wp_flush(calls, sink, run);
                int32_t n_chars = 0;
                int64_t kept = calls.chunk(sink, text, end, at, &n_chars);
                if (kept) {
                    text += kept, at += n_chars;
                    cased = false;
                    continue;
                }
            }
            text += n, ++at;
            fresh = isolated;
            bool done = true;
            if (!(normalizer->rules.lower_case && flags & WP_LOWERS)) {
                done = wp_strip_and_emit(normalizer, calls, sink, run, placed);
            } else if (code == WP_CAPITAL_SIGMA && normalizer->final_sigma && cased &&
                       !wp_cased_follows(normalizer, text, end, raw)) {
                placed.code = WP_FINAL_SIGMA;
                done = wp_strip_and_emit(normalizer, calls, sink, run, placed);
            } else {
                uint32_t lowered[3];
                int n_lowered = wp_lower(code, lowered);
                for (int i = 0; i < n_lowered && done; ++i) {
                    placed.code = lowered[i];
                    done = wp_strip_and_emit(normalizer, calls, sink, run, placed);
                }
            }
            if (WP_RARELY(!done)) {
                return WP_NO_MEMORY;
            }
            if (isolated) {
                wp_flush(calls, sink, run);
                calls.end_word(sink);
                cased = false;
            } else if (!(flags & WP_CASE_IGNORABLE)) {
                cased = flags & WP_CASED;
            }
        }
    }
    wp_flush(calls, sink, run);
    calls.end_word(sink);
    return n_invalid;
}

#endif
