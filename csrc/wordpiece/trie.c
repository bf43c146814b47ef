#include "trie.h"

#include <stdlib.h>
#include <string.h>

#include "wordpiece.h"

enum {
    BLOCK = 256,          /* the children of a node lie in one block */
    OPEN_BLOCKS = 16,     /* blocks in which free places are still looked for */
    MOST_UNITS = 1 << 24, /* a base has 24 bits */
    MOST_POPS = 1 << 26   /* 256 MB; real vocabularies need a thousandth */
};

typedef struct piece {
    const uint8_t *bytes; /* without "##" */
    int64_t n;
    int32_t id;
} piece;

/* A node whose children are still to be placed: those pieces begin with it. */
typedef struct task {
    int64_t first, last;
    int64_t depth; /* bytes */
    int32_t node;
} task;

typedef struct builder {
    wp_trie *trie;
    int32_t *next, *previous; /* free places in a ring through places in ascending order */
    uint8_t *based;           /* whether a place is some node's base */
    int32_t head, tail;       /* of the free places, or WP_NOWHERE */
    int64_t unit_capacity, pop_capacity;
    task *tasks; /* breadth first */
    int64_t n_tasks, task_capacity;
} builder;

static int compare(const void *left, const void *right) {
    const piece *a = left, *b = right;
    int64_t n = a->n < b->n ? a->n : b->n;
    int order = n ? memcmp(a->bytes, b->bytes, (size_t)n) : 0;
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

static bool resize(void **array, int64_t n, size_t size) {
    void *resized = realloc(*array, (size_t)n * size);
    if (resized != NULL) {
        *array = resized;
    }
    return resized != NULL;
}

/* Places */

static void take(builder *b, int32_t place) {
    int32_t next = b->next[place], previous = b->previous[place];
    if (previous == WP_NOWHERE) {
        b->head = next;
    } else {
        b->next[previous] = next;
    }
    if (next == WP_NOWHERE) {
        b->tail = previous;
    } else {
        b->previous[next] = previous;
    }
    b->next[place] = b->previous[place] = place; /* taken */
}

static bool is_free(const builder *b, int32_t place) { return b->next[place] != place; }

/* One more block of free places, and one fewer that is open if there are enough. */
static int add_block(builder *b) {
    wp_trie *trie = b->trie;
    int64_t first = trie->n_units, n = first + BLOCK;
    if (n > MOST_UNITS) {
        return WP_TOO_LONG;
    }
    if (n > b->unit_capacity) {
        int64_t capacity = n + n / 2 / BLOCK * BLOCK;
        if (!resize((void **)&trie->units, capacity, sizeof *trie->units) ||
            !resize((void **)&trie->links, capacity, sizeof *trie->links) ||
            !resize((void **)&b->next, capacity, sizeof *b->next) ||
            !resize((void **)&b->previous, capacity, sizeof *b->previous) ||
            !resize((void **)&b->based, capacity, sizeof *b->based)) {
            return WP_NO_MEMORY;
        }
        b->unit_capacity = capacity;
    }
    for (int32_t place = (int32_t)first; place < n; ++place) {
        trie->units[place] = 0;
        trie->links[place] = (wp_link){WP_NOWHERE, 0};
        b->based[place] = 0;
        b->previous[place] = place == first ? b->tail : place - 1;
        b->next[place] = place + 1 == n ? WP_NOWHERE : place + 1;
    }
    if (b->tail == WP_NOWHERE) {
        b->head = (int32_t)first;
    } else {
        b->next[b->tail] = (int32_t)first;
    }
    b->tail = (int32_t)n - 1;
    trie->n_units = n;
    while (b->head != WP_NOWHERE && b->head < n - OPEN_BLOCKS * BLOCK) {
        take(b, b->head);
    }
    return 0;
}

/* A base with a free place for every label: first fit, a new block only where none fits. */
static int find_base(builder *b, const uint8_t *labels, int n_labels, uint32_t *base) {
    for (int32_t place = b->head; place != WP_NOWHERE; place = b->next[place]) {
        *base = (uint32_t)place ^ labels[0];
        bool fits = *base != 0 && !b->based[*base];
        for (int i = 1; i < n_labels && fits; ++i) {
            fits = is_free(b, (int32_t)(*base ^ labels[i]));
        }
        if (fits) {
            return 0;
        }
    }
    *base = (uint32_t)b->trie->n_units;
    return add_block(b);
}

/* Failure links */

static int reserve_pops(builder *b, int64_t n) {
    int64_t needed = b->trie->n_pops + n;
    if (needed > MOST_POPS) {
        return WP_TOO_LONG;
    }
    if (needed > b->pop_capacity) {
        if (!resize((void **)&b->trie->pops, needed + needed / 2, sizeof *b->trie->pops)) {
            return WP_NO_MEMORY;
        }
        b->pop_capacity = needed + needed / 2;
    }
    return 0;
}

/* Append the pops of `node`. */
static int copy_pops(builder *b, int32_t node) {
    wp_trie *trie = b->trie;
    uint32_t from = trie->links[node].pops;
    int32_t n = trie->pops[from];
    int status = reserve_pops(b, n);
    if (status == 0) {
        memcpy(trie->pops + trie->n_pops, trie->pops + from + 1, (size_t)n * sizeof *trie->pops);
        trie->n_pops += n;
    }
    return status;
}

/* The failure link of `child`, which is no piece and hangs on `node` by `label` (algorithm 2 of the paper).
 * What was read is shorter wherever a link leads, so those nodes have their children and links already. */
static int set_fail(builder *b, int32_t node, uint8_t label, int32_t child) {
    wp_trie *trie = b->trie;
    wp_link link = trie->links[node];
    int32_t fail = link.fail, next = WP_NOWHERE;
    if (fail != WP_NOWHERE && (next = wp_trie_child(trie, fail, label)) != WP_NOWHERE) {
        trie->links[child] = (wp_link){next, link.pops};
        return 0;
    }
    int64_t begin = trie->n_pops;
    int status = reserve_pops(b, 1);
    if (status) {
        return status;
    }
    ++trie->n_pops;
    if (fail != WP_NOWHERE) {
        status = copy_pops(b, node);
    }
    while (status == 0 && fail != WP_NOWHERE && (next = wp_trie_child(trie, fail, label)) == WP_NOWHERE) {
        status = copy_pops(b, fail);
        fail = trie->links[fail].fail;
    }
    if (status) {
        return status;
    }
    if (fail == WP_NOWHERE) {
        trie->n_pops = begin;
        trie->links[child] = (wp_link){WP_NOWHERE, 0};
    } else {
        trie->pops[begin] = (int32_t)(trie->n_pops - begin - 1);
        trie->links[child] = (wp_link){next, (uint32_t)begin};
    }
    return 0;
}

static int set_piece(builder *b, int32_t node, int32_t id) {
    wp_trie *trie = b->trie;
    int status = reserve_pops(b, 2);
    if (status) {
        return status;
    }
    trie->links[node] = (wp_link){WP_CONTINUE, (uint32_t)trie->n_pops};
    trie->pops[trie->n_pops++] = 1;
    trie->pops[trie->n_pops++] = id;
    return 0;
}

/* Building */

static bool add_task(builder *b, task added) {
    if (b->n_tasks == b->task_capacity) {
        int64_t capacity = 2 * b->task_capacity + 256;
        if (!resize((void **)&b->tasks, capacity, sizeof *b->tasks)) {
            return false;
        }
        b->task_capacity = capacity;
    }
    b->tasks[b->n_tasks++] = added;
    return true;
}

/* Place the children of a node: the next bytes of its pieces, which are sorted. */
static int place_children(builder *b, task parent, const piece *pieces) {
    uint8_t labels[256];
    int n_labels = 0;
    int64_t depth = parent.depth;
    for (int64_t i = parent.first; i < parent.last; ++i) {
        if (pieces[i].n > depth && (n_labels == 0 || labels[n_labels - 1] != pieces[i].bytes[depth])) {
            labels[n_labels++] = pieces[i].bytes[depth];
        }
    }
    if (n_labels == 0) {
        return 0;
    }
    uint32_t base;
    int status = find_base(b, labels, n_labels, &base);
    if (status) {
        return status;
    }
    b->based[base] = 1;
    b->trie->units[parent.node] |= base << 8;
    int64_t first = parent.first;
    for (int i = 0; i < n_labels; ++i) {
        int32_t child = (int32_t)(base ^ labels[i]);
        take(b, child);
        b->trie->units[child] = labels[i];
        while (pieces[first].n <= depth) {
            ++first;
        }
        int64_t last = first;
        while (last < parent.last && pieces[last].bytes[depth] == labels[i]) {
            ++last;
        }
        /* The piece that ends here, if any, is the shortest and so the first. */
        status = pieces[first].n == depth + 1 ? set_piece(b, child, pieces[first].id)
                                              : set_fail(b, parent.node, labels[i], child);
        if (status == 0 && !add_task(b, (task){first, last, depth + 1, child})) {
            status = WP_NO_MEMORY;
        }
        if (status) {
            return status;
        }
        first = last;
    }
    return 0;
}

static int build(builder *b, const piece *pieces, int64_t n_starting, int64_t n_pieces) {
    int status = add_block(b);
    if (status == 0) {
        status = reserve_pops(b, 1);
    }
    if (status == 0) {
        b->trie->pops[b->trie->n_pops++] = 0; /* no pops: for every link that leads nowhere */
    }
    for (int32_t node = WP_ROOT; node <= WP_DEAD && status == 0; ++node) {
        take(b, node);
    }
    if (status == 0 && (!add_task(b, (task){0, n_starting, 0, WP_ROOT}) ||
                        !add_task(b, (task){n_starting, n_pieces, 0, WP_CONTINUE}))) {
        status = WP_NO_MEMORY;
    }
    for (int64_t i = 0; i < b->n_tasks && status == 0; ++i) {
        status = place_children(b, b->tasks[i], pieces);
    }
    return status;
}

static int64_t count_characters(const char *bytes, int64_t n) {
    int64_t characters = 0;
    for (int64_t i = 0; i < n; ++i) {
        characters += ((uint8_t)bytes[i] & 0xC0) != 0x80;
    }
    return characters;
}

int wp_trie_init(wp_trie *trie, const char *pieces, const int64_t *bounds, int64_t n_pieces,
                 int64_t longest) {
    memset(trie, 0, sizeof *trie);
    piece *sorted = malloc(((size_t)n_pieces + 1) * sizeof *sorted);
    if (sorted == NULL) {
        return WP_NO_MEMORY;
    }
    int64_t n_starting = 0, n = 0;
    for (int continuing = 0; continuing < 2; ++continuing) {
        for (int64_t i = 0; i < n_pieces; ++i) {
            const char *bytes = pieces + bounds[i];
            int64_t n_bytes = bounds[i + 1] - bounds[i];
            if ((n_bytes >= 2 && memcmp(bytes, "##", 2) == 0) != continuing) {
                continue;
            }
            bytes += 2 * continuing, n_bytes -= 2 * continuing;
            if (n_bytes > 0 && memchr(bytes, 0, (size_t)n_bytes) == NULL &&
                count_characters(bytes, n_bytes) <= longest) { /* others match nothing */
                sorted[n++] = (piece){(const uint8_t *)bytes, n_bytes, (int32_t)i};
            }
        }
        if (!continuing) {
            n_starting = n;
        }
    }
    qsort(sorted, (size_t)n_starting, sizeof *sorted, compare);
    qsort(sorted + n_starting, (size_t)(n - n_starting), sizeof *sorted, compare);
    builder b = {.trie = trie, .head = WP_NOWHERE, .tail = WP_NOWHERE};
    int status = build(&b, sorted, n_starting, n);
    free(sorted);
    free(b.next);
    free(b.previous);
    free(b.based);
    free(b.tasks);
    if (status) {
        wp_trie_free(trie);
    }
    return status;
}

void wp_trie_free(wp_trie *trie) {
    free(trie->units);
    free(trie->links);
    free(trie->pops);
    memset(trie, 0, sizeof *trie);
}
