/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - the query rows of a job and the keys each of them sees, as columns of a key block. A row
 * is one head of one query. The heads of a query are adjacent, so rows are ordered by position, and
 * grouped-query attention and decoding share key panels. Knows geometry only. */
#ifndef RA__KERNEL_CPU_VECTOR_ROWS_H
#define RA__KERNEL_CPU_VECTOR_ROWS_H

#include "kernel/block.h"
#include "kernel/kernel.h"

enum {
    BLOCK =
        256, /* keys of a block, one column each. Measured on Zen 4 at dim 64: 2% better than 128 */
    /* stride of the rows of scores: not a power of two, or rows would alias in caches and store
     * buffers */
    LINE = BLOCK + 16,
    GRAIN_LINE = BLOCK / PER_GRAIN + 16, /* the same in operands, and whole cache lines */
    SPAN = LANES * PER_GRAIN,            /* columns that become one vector of operands */
};

struct span { /* key indices [from, to) of a run */
    int64_t from, to;
};

struct lanes { /* columns [from, to) of a block; none if from >= to */
    int from, to;
};

static inline bool lanes_none(struct lanes lanes) { return lanes.from >= lanes.to; }
static inline int lanes_count(struct lanes lanes) { return lanes.to - lanes.from; }

/* Writes the keys of `run` that each row sees to spans[row] and adds their number to *pairs.
 * Returns the smallest span that holds all of them. */
static struct span clip_rows(const struct ra__view *view, const struct ra__key_run *run,
                             struct span *spans, int64_t *pairs)
{
    struct span hull = { run->count, 0 };
    for (int64_t i = 0; i < view->q_count; i++) {
        struct span seen;
        ra__band_clip(run, view->q_pos + i * view->q_pos_step, &seen.from, &seen.to);
        for (int h = 0; h < view->heads; h++) *spans++ = seen;
        *pairs += view->heads * (seen.to - seen.from);
        if (seen.from == seen.to) continue;
        hull.from = ra__min(hull.from, seen.from);
        hull.to = ra__max(hull.to, seen.to);
    }
    return hull;
}

/* The smallest interval that holds both. */
static inline struct lanes lanes_join(struct lanes a, struct lanes b)
{
    if (lanes_none(b)) return a;
    return (struct lanes){ a.from < b.from ? a.from : b.from, a.to > b.to ? a.to : b.to };
}

/* The smallest interval that holds the visible columns of all `rows` rows. */
static struct lanes lanes_hull(const struct lanes *seen, int rows)
{
    struct lanes hull = { BLOCK, 0 };
    for (int r = 0; r < rows; r++) hull = lanes_join(hull, seen[r]);
    return hull;
}

/* A block of a run. */
struct key_block {
    const struct ra__key_run *run;
    int64_t first;     /* index in the run of column 0; may be negative */
    struct lanes seen; /* by any row of the job; all of these columns have keys */
};

/* A row block of a job: rows [row, end). */
struct part {
    int row, end;
};

static inline struct lanes lanes_of(struct span span, int64_t first)
{
    return (struct lanes){ (int)ra__min(ra__max(span.from - first, 0), BLOCK),
                           (int)ra__min(ra__max(span.to - first, 0), BLOCK) };
}

/* Writes the columns that each row of a row block sees to seen[row], and finds those that any of
 * them sees. */
static struct key_block see_block(const struct ra__key_run *run, int64_t first,
                                  const struct span *spans, struct part part, struct lanes *seen)
{
    for (int r = part.row; r < part.end; r++) seen[r] = lanes_of(spans[r], first);
    return (struct key_block){ run, first, lanes_hull(seen + part.row, part.end - part.row) };
}

/* Extended to start at a micro-panel, and to whole vectors of operands. */
static inline struct lanes lanes_strips(struct lanes lanes)
{
    enum { FIRST = (int)STRIP > (int)SPAN ? (int)STRIP : (int)SPAN };
    return (struct lanes){ lanes.from / FIRST * FIRST, (lanes.to + SPAN - 1) / SPAN * SPAN };
}

/* Extended to whole vectors of operands. */
static inline struct lanes lanes_whole(struct lanes lanes)
{
    return (struct lanes){ lanes.from / SPAN * SPAN, (lanes.to + SPAN - 1) / SPAN * SPAN };
}

/* Polls, between blocks. The callback may be foreign code that uses the AMX tiles itself. */
static inline void breathe(const struct ra__view *view)
{
    if (!view->breathe) return;
    gemm_leave();
    ra__breathe(view);
    gemm_return();
}

#endif
