/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - the query rows of a job and the keys each of them sees, as columns of a key block. A row
 * is one head of one query. The heads of a query are adjacent, so rows are ordered by position, and
 * grouped-query attention and decoding share key panels. Knows geometry only. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_ROWS_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_ROWS_H

#include "backend/cpu/kernel/block.h"
#include "backend/cpu/kernel/kernel.h"

enum {
    BLOCK =
        256, /* keys of a block, one column each. Measured on Zen 4 at dim 64: 2% better than 128 */
    /* stride of the rows of scores: not a power of two, or rows would alias in caches and store
     * buffers */
    LINE = BLOCK + 16,
    OPERAND_LINE = BLOCK / PER_OPERAND + 16, /* the same in operands, and whole cache lines */
    SPAN = LANES * PER_OPERAND,              /* columns that become one vector of operands */
};

struct span { /* key indices [from, to) of a run */
    int64_t from, to;
};

struct columns { /* columns [from, to) of a block; none if from >= to */
    int from, to;
};

static inline bool columns_none(struct columns columns) { return columns.from >= columns.to; }
static inline int columns_count(struct columns columns) { return columns.to - columns.from; }

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
static inline struct columns columns_join(struct columns a, struct columns b)
{
    if (columns_none(b)) return a;
    return (struct columns){ a.from < b.from ? a.from : b.from, a.to > b.to ? a.to : b.to };
}

/* The smallest interval that holds the visible columns of all `rows` rows. */
static struct columns columns_hull(const struct columns *seen, int rows)
{
    struct columns hull = { BLOCK, 0 };
    for (int r = 0; r < rows; r++) hull = columns_join(hull, seen[r]);
    return hull;
}

/* A block of a run. */
struct key_block {
    const struct ra__key_run *run;
    int64_t first;       /* index in the run of column 0; may be negative */
    struct columns seen; /* by any row of the job; all of these columns have keys */
};

/* A row block of a job: rows [row, end). */
struct row_block {
    int row, end;
};

static inline struct columns columns_of(struct span span, int64_t first)
{
    return (struct columns){ (int)ra__min(ra__max(span.from - first, 0), BLOCK),
                             (int)ra__min(ra__max(span.to - first, 0), BLOCK) };
}

/* Writes the columns that each row of a row block sees to seen[row], and finds those that any of
 * them sees. */
static struct key_block see_block(const struct ra__key_run *run, int64_t first,
                                  const struct span *spans, struct row_block row_block,
                                  struct columns *seen)
{
    for (int r = row_block.row; r < row_block.end; r++) seen[r] = columns_of(spans[r], first);
    return (struct key_block){ run, first,
                               columns_hull(seen + row_block.row, row_block.end - row_block.row) };
}

/* Extended to start at a micro-panel, and to whole vectors of operands. */
static inline struct columns columns_micro_panels(struct columns columns)
{
    enum { FIRST = (int)NR > (int)SPAN ? (int)NR : (int)SPAN };
    return (struct columns){ columns.from / FIRST * FIRST, (columns.to + SPAN - 1) / SPAN * SPAN };
}

/* Extended to whole vectors of operands. */
static inline struct columns columns_whole(struct columns columns)
{
    return (struct columns){ columns.from / SPAN * SPAN, (columns.to + SPAN - 1) / SPAN * SPAN };
}

/* Polls, between blocks. The callback may be foreign code that uses the AMX tiles itself. */
static inline void kernel_poll(const struct ra__view *view)
{
    if (!view->kernel_poll) return;
    gemm_leave();
    ra__kernel_poll(view);
    gemm_return();
}

#endif
