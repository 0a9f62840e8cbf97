/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.h - which keys a query sees, in global positions. Knows nothing about ranks.
 *
 * A kind of pattern says which keys a run of queries may see; the modifiers `;causal` and `;docs=`
 * are applied here, to every kind alike. Under an order all positions in this file are indices of
 * the order, and rules about original positions are left to arrays: see ra__pattern_visible(). */
#ifndef RA__PATTERN_PATTERN_H
#define RA__PATTERN_PATTERN_H

#include <stdbool.h>

#include "core/memory.h"
#include "core/shape.h"
#include "pattern/order.h"
#include "pattern/sequences.h"
#include "pattern/text.h"

/* A tile: the keys of `keys` that are in the band around each query of the row. */
struct ra__tile {
    ra_run keys;
    struct ra__band band;
    /* not clipped: `keys` may contain keys that no query of the row sees; see ra__row_keys() */
    bool whole;
};

/* One run of queries (positions), its query heads, and the keys they see. A key in two tiles counts
 * twice. Without tiles it sees nothing. Every query of every head is in exactly one row. */
struct ra__row {
    ra_run q, heads;
    int64_t query; /* the index of its first query */
    const struct ra__tile *tiles;
    int tile_count;
    /* among the rows of its interval; rows of one ordinal may repeat from interval to interval */
    int ordinal;
};

/* The keys of a tile that queries of the row may see. */
static inline ra_run ra__row_keys(const struct ra__row *row, const struct ra__tile *tile)
{
    int64_t skipped;
    return tile->whole ? ra__run_clip(tile->keys, row->q.start - tile->band.left,
                                      ra__run_last(row->q) + tile->band.right + 1, &skipped)
                       : tile->keys;
}

struct ra__row_sink {
    ra_status (*put)(void *context, const struct ra__row *row);
    void *context;
};

/* The input of a kind: all it may know besides the queries. */
struct ra__pattern_input {
    const ra_pattern *pattern;
    int64_t k_len;  /* keys of the sequence */
    int q_heads;    /* of the problem */
    ra_run heads;   /* they all see the same keys */
    int head_class; /* the class of these heads */
    bool ordered;   /* positions are indices of an order */
};

/* Where a kind writes its rows. */
struct ra__row_writer;
ra_status ra__row_writer_add(struct ra__row_writer *writer, ra_run keys, struct ra__band band);
/* The same for keys that every row has: they are not clipped to their band, so that rows stay alike
 * and a plan stores them once. */
ra_status ra__row_writer_add_whole(struct ra__row_writer *writer, ra_run keys,
                                   struct ra__band band);
int ra__row_writer_count(const struct ra__row_writer *writer); /* tiles added so far */
const struct ra__tile *ra__row_writer_tiles(const struct ra__row_writer *writer);
void ra__row_writer_truncate(struct ra__row_writer *writer,
                             int count); /* removes all but the first `count` */
ra_status ra__row_writer_put(struct ra__row_writer *writer,
                             ra_run q); /* writes a row of these queries */

/* One kind of pattern. Its fields are many because it is a table entry: most are optional, one
 * function for each thing that a kind may do in its own way. */
struct ra__pattern_kind {
    const char *name;
    const char *syntax; /* "window:L[,R]" */
    const char *summary;
    /* small examples for tests, separated by spaces; one per way to write it */
    const char *samples;
    int min_args, max_args; /* non-negative numbers after the colon, at most 2 */
    bool any_position;      /* queries before the first key or after the last make sense */
    bool relative;          /* what a query sees depends on distances alone */
    /* keys are sent directly to the ranks that see them, not around the ring */
    bool sparse;

    /* What the kind keeps besides its numbers: so many bytes at pattern->state, all 0 in a new
     * pattern. `clone` fills those of a copy, which start as 0, too, with memory charged to
     * `account` (NULL: the bytes are the copy); `hash` goes on from `hash` with what tells two
     * patterns apart, never with pointers or padding; `destroy` frees what the state points to,
     * also after a clone that failed half way (NULL: nothing). */
    size_t state_bytes;
    ra_status (*clone)(struct ra__account *account, const void *from, void *to);
    uint64_t (*hash)(const void *state, uint64_t hash);
    void (*destroy)(void *state);
    /* Works out once, for a plan, what rows of this shape will ask for again and again; what it
     * keeps is not cloned. May be NULL. */
    ra_status (*prepare)(ra_pattern *pattern, struct ra__account *account,
                         const struct ra__shape *shape);

    /* Text, if numbers are not enough; each may be NULL. `read` takes the text after the colon,
     * `add` one word after a semicolon and sets whether it knows it, `write` appends both. */
    ra_status (*read)(ra_pattern *pattern, struct ra__text args);
    ra_status (*add)(ra_pattern *pattern, struct ra__text word, bool *known);
    void (*write)(const ra_pattern *pattern, struct ra__writer *writer);
    /* Refuse what is incomplete, and what does not fit the lengths of a problem, or of a sequence
     * of it; NULL: nothing to refuse. */
    ra_status (*check)(const ra_pattern *pattern);
    ra_status (*check_lengths)(const ra_pattern *pattern, const struct ra__shape *shape);
    /* No query sees more keys than this; NULL: it may see all. */
    int64_t (*most_keys)(const ra_pattern *pattern);

    /* Heads that see the same keys, as runs; NULL: all of them do. Empty runs are skipped. */
    int (*head_classes)(const ra_pattern *pattern, int q_heads);
    ra_run (*head_class)(const ra_pattern *pattern, int q_heads, int index);

    /* The next boundary after `position`: from there on queries see other keys; NULL: there is
     * none. What they see repeats with `period` (0 or NULL: it does not), shifted: rows are written
     * in an order that keeps such rows next to one another, so that plans can fold them into
     * families. */
    int64_t (*next_boundary)(const ra_pattern *pattern, int64_t position);
    int64_t (*period)(const ra_pattern *pattern);

    /* Adds tiles and writes rows until every query of q is in one. q contains no boundary. Tiles
     * need not be clipped to their band: the row writer does that. */
    ra_status (*see)(const struct ra__pattern_input *input, ra_run q,
                     struct ra__row_writer *writer);

    /* Under an order: the original positions a query at original position p may see, as [0, *to);
     * NULL: all. `see` then leaves this to the caller. */
    int64_t (*visible_end)(const ra_pattern *pattern, int64_t p);
};

struct ra_pattern {
    const struct ra__pattern_kind *kind;
    int64_t args[2]; /* the numbers of the text; 0 where not given */
    int arg_count;
    bool causal;
    int64_t *bounds; /* documents: 0, ..., n; NULL for none */
    int64_t bound_count;
    void *state; /* what the kind keeps, owned; NULL where it keeps nothing */
};

/* The entries of pattern.list; NULL after the last. */
const struct ra__pattern_kind *ra__pattern_kind_at(int index);
const struct ra__pattern_kind *ra__pattern_kind_find(const char *name);

ra_status ra__pattern_create(const struct ra__pattern_kind *kind, ra_pattern **out);
/* NULL copies to full. What the copy allocates is charged to `account`, which may be NULL. */
ra_status ra__pattern_copy(const ra_pattern *pattern, struct ra__account *account,
                           ra_pattern **out);
/* Refuses bounds that do not ascend from 0; `what` they are bounds of begins the sentence. */
ra_status ra__check_bounds(const char *what, const int64_t *bounds, int64_t count);
ra_status ra__pattern_set_bounds(ra_pattern *pattern, const int64_t *bounds, int64_t count);
ra_status ra__pattern_parse(const char *text, ra_pattern **out);
ra_status ra__pattern_add(ra_pattern *pattern, struct ra__text word); /* after a semicolon */
uint64_t ra__pattern_hash(const ra_pattern *pattern);

/* Does the pattern make sense for this problem, in each of its sequences? */
ra_status ra__pattern_check(const ra_pattern *pattern, const struct ra__shape *shape,
                            const struct ra__sequences *sequences, const ra_order *order);

/* Refuses `what`, which belongs to positions that queries and keys share, where they are not as
 * many. */
ra_status ra__pattern_check_same(const char *what, int64_t q_len, int64_t k_len);
ra_status ra__pattern_check_documents(const ra_pattern *pattern, int64_t q_len, int64_t k_len);

/* Lets the kind prepare for rows of this shape: see `prepare`. */
ra_status ra__pattern_prepare(ra_pattern *pattern, struct ra__account *account,
                              const struct ra__shape *shape, const struct ra__sequences *sequences);

/* A copy of `bytes` bytes, with *status for where there is no memory; NULL copies to NULL. */
void *ra__duplicate(struct ra__account *account, const void *from, size_t bytes, ra_status *status);

/* Calls put for each row of some queries, given by their indices, one class of heads after the
 * other. */
struct ra__rows {
    const ra_pattern *pattern;
    const struct ra__shape *shape;
    const struct ra__sequences *sequences;
    int q_heads; /* of the problem; the shape may be that of a slice */
    bool ordered;
};
int ra__pattern_classes(const ra_pattern *pattern, int q_heads);
ra_status ra__pattern_rows(const struct ra__rows *rows, ra_run queries, struct ra__row_sink sink);

/* Under an order: the original positions [*from, *to) that a query at original position p may see,
 * by causal, prefix and documents. */
void ra__pattern_visible(const ra_pattern *pattern, int64_t k_len, int64_t p, int64_t *from,
                         int64_t *to);
/* do they contain all positions, for every query? */
bool ra__pattern_sees_all(const ra_pattern *pattern);

#endif
