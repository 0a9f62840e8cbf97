/* pattern.h - who looks at whom, in global positions. Knows nothing about ranks.
 *
 * A kind of pattern says which keys a run of queries may see; the modifiers `;causal` and `;docs=`
 * are applied to every kind alike, here. Under an order all positions in this file are indices of
 * the order, and what goes by original positions is left to arrays: see ra__pattern_reach(). */
#ifndef RA__PATTERN_PATTERN_H
#define RA__PATTERN_PATTERN_H

#include <stdbool.h>

#include "core/memory.h"
#include "core/shape.h"
#include "pattern/order.h"
#include "pattern/text.h"

/* Keys of a row: those of `keys` that lie in the band round each query. */
struct ra__sight {
    ra_run keys;
    struct ra__band band;
    bool whole; /* keys may hold some that no query of the row sees: see ra__row_keys() */
};

/* One run of queries (positions), the query heads it stands for, and the keys it sees. A key in two
 * sights counts twice. No sights: it sees nothing. Every query of every head is in exactly one
 * row. */
struct ra__row {
    ra_run q, heads;
    const struct ra__sight *sights;
    int sight_count;
    int ordinal; /* among the rows of its stretch; rows of one may repeat from stretch to stretch */
};

/* The keys of a sight that queries of the row may see. */
static inline ra_run ra__row_keys(const struct ra__row *row, const struct ra__sight *sight)
{
    int64_t skipped;
    return sight->whole ? ra__run_clip(sight->keys, row->q.start - sight->band.left,
                                       ra__run_last(row->q) + sight->band.right + 1, &skipped)
                        : sight->keys;
}

struct ra__row_sink {
    ra_status (*put)(void *context, const struct ra__row *row);
    void *context;
};

/* What a kind is asked: all it may know besides the queries. */
struct ra__look {
    const ra_pattern *pattern;
    int64_t k_len;
    int q_heads;    /* of the problem */
    ra_run heads;   /* all of them see alike */
    int head_class; /* which class they are */
    bool ordered;   /* positions are indices of an order */
};

/* Where a kind writes its rows. */
struct ra__scene;
ra_status ra__scene_add(struct ra__scene *scene, ra_run keys, struct ra__band band);
/* The same for keys that every row has: they are not clipped to their band, so that rows stay alike
 * and a plan keeps them once. */
ra_status ra__scene_add_whole(struct ra__scene *scene, ra_run keys, struct ra__band band);
int ra__scene_count(const struct ra__scene *scene); /* sights added so far */
const struct ra__sight *ra__scene_sights(const struct ra__scene *scene);
void ra__scene_back(struct ra__scene *scene, int count);    /* forget all but the first `count` */
ra_status ra__scene_put(struct ra__scene *scene, ra_run q); /* a row of these queries */

struct ra__pattern_kind {
    const char *name;
    const char *syntax; /* "window:L[,R]" */
    const char *summary;
    const char *samples; /* small ones for tests, with a space between; one per way to write it */
    int min_args, max_args; /* non-negative numbers behind the colon, at most 2 */
    bool more_queries;      /* q_len > k_len makes sense */
    bool sparse;            /* keys go straight to the ranks that see them, not round the ring */

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

    /* Text, where numbers are not enough; each may be NULL. `read` takes what stands behind the
     * colon, `add` one word behind a semicolon and says whether it knows it, `write` appends
     * both. */
    ra_status (*read)(ra_pattern *pattern, struct ra__text args);
    ra_status (*add)(ra_pattern *pattern, struct ra__text word, bool *known);
    void (*write)(const ra_pattern *pattern, struct ra__writer *writer);
    /* Refuses what is not complete or does not fit these lengths; NULL: nothing to refuse. */
    ra_status (*check)(const ra_pattern *pattern, const struct ra__shape *shape);

    /* Heads that see alike, as runs; NULL: all of them do. Empty runs are passed over. */
    int (*head_classes)(const ra_pattern *pattern, int q_heads);
    ra_run (*head_class)(const ra_pattern *pattern, int q_heads, int index);

    /* The next position behind `position` where queries begin to see other keys; NULL: nowhere.
     * What they see repeats with `period` (0 or NULL: it does not), moved along: rows are made in
     * an order that keeps such rows next to one another, so that plans can fold them into
     * families. */
    int64_t (*cut)(const ra_pattern *pattern, int64_t position);
    int64_t (*period)(const ra_pattern *pattern);

    /* Adds sights and puts rows until every query of q is in one. q holds no cut. Sights need not
     * be clipped to their band: the scene does. */
    ra_status (*see)(const struct ra__look *look, ra_run q, struct ra__scene *scene);

    /* Under an order: the original positions a query at original position p may see, as [0, *to);
     * NULL: all. `see` then leaves this to the caller. */
    int64_t (*reach)(const ra_pattern *pattern, int64_t p);
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

/* The rows of pattern.list; NULL behind the last. */
const struct ra__pattern_kind *ra__pattern_kind_at(int index);
const struct ra__pattern_kind *ra__pattern_kind_find(const char *name);

ra_status ra__pattern_create(const struct ra__pattern_kind *kind, ra_pattern **out);
/* NULL copies to full. What the copy allocates is charged to `account`, which may be NULL. */
ra_status ra__pattern_copy(const ra_pattern *pattern, struct ra__account *account,
                           ra_pattern **out);
ra_status ra__pattern_set_bounds(ra_pattern *pattern, const int64_t *bounds, int64_t count);
ra_status ra__pattern_parse(const char *text, ra_pattern **out);
ra_status ra__pattern_add(ra_pattern *pattern, struct ra__text word); /* behind a semicolon */
uint64_t ra__pattern_hash(const ra_pattern *pattern);

/* Does the pattern make sense for this problem? */
ra_status ra__pattern_check(const ra_pattern *pattern, const struct ra__shape *shape,
                            const ra_order *order);

/* Refuses `what`, which belongs to positions that queries and keys share, where they are not as
 * many. */
ra_status ra__pattern_check_same(const char *what, int64_t q_len, int64_t k_len);
ra_status ra__pattern_check_documents(const ra_pattern *pattern, int64_t q_len, int64_t k_len);

/* Lets the kind prepare for rows of this shape: see `prepare`. */
ra_status ra__pattern_prepare(ra_pattern *pattern, struct ra__account *account,
                              const struct ra__shape *shape);

/* A copy of `bytes` bytes, with *status for where there is no memory; NULL copies to NULL. */
void *ra__duplicate(struct ra__account *account, const void *from, size_t bytes, ra_status *status);

/* Calls put for each row of the queries at positions `q`, class of heads after class of heads. */
struct ra__rows {
    const ra_pattern *pattern;
    int64_t k_len;
    int q_heads;
    bool ordered;
};
int ra__pattern_classes(const ra_pattern *pattern, int q_heads);
ra_status ra__pattern_rows(const struct ra__rows *rows, ra_run q, struct ra__row_sink sink);

/* Under an order: the original positions [*from, *to) that a query at original position p may see,
 * by causal, prefix and documents. */
void ra__pattern_reach(const ra_pattern *pattern, int64_t k_len, int64_t p, int64_t *from,
                       int64_t *to);
bool ra__pattern_reaches_all(const ra_pattern *pattern); /* that is everything, for every query */

#endif
