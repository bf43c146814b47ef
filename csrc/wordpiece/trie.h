/* A vocabulary as one trie with failure links: longest match first, in linear time.
 *
 * X. Song, A. Salcianu, Y. Song, D. Dopson, D. Zhou, "Fast WordPiece Tokenization", EMNLP 2021 (LinMaxMatch).
 *
 * A node stands for the part of a word that was read but not yet cut into pieces. If the next byte leads nowhere
 * from it, the pieces that greedy matching would cut off first ("pops") are known beforehand, and so is the node
 * for what is left over then ("fail"). Every byte is thus read once, where Google's loop tries all ends anew at
 * each beginning. Bytes serve as well as characters: no piece begins or ends inside one.
 *
 * The trie is a double array (Aoe 1989) of one word a node: the children of a node whose base is b are at b ^ byte,
 * and whoever sits there says by its label whether it is that child. No two nodes have the same base.
 */
#ifndef WP_TRIE_H
#define WP_TRIE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    WP_ROOT = 0,     /* nothing of the word read yet */
    WP_CONTINUE = 1, /* everything read is cut into pieces: "##" */
    WP_DEAD = 2,     /* the word has no pieces */
    WP_NOWHERE = -1  /* no failure link: greedy matching gives up */
};

typedef struct wp_link {
    int32_t fail;  /* a node, or WP_NOWHERE */
    uint32_t pops; /* where in `pops`: how many there are, then their ids */
} wp_link;

typedef struct wp_trie {
    uint32_t *units; /* (n_units) base << 8 | label; label 0: unused */
    wp_link *links;  /* (n_units) */
    int32_t *pops;
    int64_t n_units, n_pops;
} wp_trie;

/* Pieces as in wp_tokenizer_new; those that begin with "##" continue a word. 0, WP_NO_MEMORY or WP_TOO_LONG. */
int wp_trie_init(wp_trie *trie, const char *pieces, const int64_t *bounds, int64_t n_pieces, int64_t longest);
void wp_trie_free(wp_trie *trie);

/* The child of `node` for `byte`, or WP_NOWHERE. base ^ byte stays in the base's block of 256, so no check. */
static inline int32_t wp_trie_child(const wp_trie *trie, int32_t node, uint8_t byte) {
    uint32_t child = (trie->units[node] >> 8) ^ byte;
    return (uint8_t)trie->units[child] == byte ? (int32_t)child : WP_NOWHERE;
}

#endif
