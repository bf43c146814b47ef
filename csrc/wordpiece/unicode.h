/* What Unicode 15.0.0 says about characters: the twin of minibert/tokenizer/unicode.py, made from its table. */
#ifndef WP_UNICODE_H
#define WP_UNICODE_H

#include <stdint.h>

enum {
    WP_CONTROL = 1,         /* cleaning deletes it: Cc (not tab and line ends), Cf, U+FFFD */
    WP_SPACE = 2,           /* words end at it: tab, line ends, Zs, U+2028 and U+2029 */
    WP_PUNCTUATION = 4,     /* P, and all ASCII that is no letter, digit, space or control */
    WP_NONSPACING = 8,      /* Mn */
    WP_IDEOGRAPH = 16,      /* in the CJK blocks that Google's code lists */
    WP_LATE_IDEOGRAPH = 32, /* those of them that WP_HF_FAST leaves alone */
    WP_PRIVATE = 64,        /* Co */
    WP_UNASSIGNED = 128,    /* Cn */
    WP_SURROGATE = 256,     /* Cs */
    WP_CASED = 512,
    WP_CASE_IGNORABLE = 1024,
    WP_SEGMENT_START =
        2048,             /* its decomposition begins with a starter that composes with nothing before it */
    WP_INERT = 4096,      /* a segment start that NFC leaves as it is */
    WP_LOWERS = 8192,     /* has another lower case */
    WP_DECOMPOSES = 16384 /* NFD changes it */
};

typedef struct wp_char {
    uint16_t flags;
    uint8_t combining_class;
    uint16_t lower, decomposition; /* places in wp_sequences, 0 for none; Hangul decomposes by formula */
} wp_char;

/* Not part of the library's interface: code inside it reaches the tables without a detour. */
#if defined(__GNUC__) && !defined(_WIN32)
#define WP_INTERNAL __attribute__((visibility("hidden")))
#else
#define WP_INTERNAL
#endif

enum { WP_PAGE = 128 };
WP_INTERNAL extern const wp_char wp_chars[];
WP_INTERNAL extern const uint16_t wp_page_of[0x110000 / WP_PAGE];
WP_INTERNAL extern const uint16_t wp_pages[][WP_PAGE];

/* code <= 0x10FFFF */
static inline const wp_char *wp_char_of(uint32_t code) {
    return &wp_chars[wp_pages[wp_page_of[code / WP_PAGE]][code % WP_PAGE]];
}

/* Full lower case without context, of a capital sigma the medial one; itself when it has none. Like the next,
 * returns how many code points it wrote. */
WP_INTERNAL int wp_lower(uint32_t code, uint32_t out[3]);

/* Full canonical decomposition, Hangul included; itself when it has none. */
WP_INTERNAL int wp_decompose(uint32_t code, uint32_t out[4]);

/* The primary composite of two code points, Hangul included, or 0. */
WP_INTERNAL uint32_t wp_compose(uint32_t first, uint32_t second);

#endif
