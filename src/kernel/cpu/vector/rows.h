/* rows.h - the rows of a job and the keys each of them sees, as lanes of a key block. A row is one
 * head of one query; the heads of a query are neighbours, so that rows are ordered by position and
 * grouped-query attention and decoding share key panels. Knows no numbers, only geometry. */
#ifndef RA__KERNEL_CPU_VECTOR_ROWS_H
#define RA__KERNEL_CPU_VECTOR_ROWS_H

#include "kernel/block.h"
#include "kernel/kernel.h"

enum {
    BLOCK =
        256, /* keys of a block, one lane each. Measured on Zen 4 at dim 64: 2% better than 128 */
    LINE = BLOCK + 16, /* numbers from a row of scores to the next: not a power of two apart, where
                        * caches and stores would take one row for another */
    GRAIN_LINE = BLOCK / PER_GRAIN + 16, /* the same in grains, and whole lines of a cache */
    SPAN = LANES * PER_GRAIN,            /* lanes that become one vector of grains */
};

struct span { /* key indices [from, to) of a run */
    int64_t from, to;
};

struct lanes { /* lanes [from, to) of a block; none where from >= to */
    int from, to;
};

static inline bool lanes_none(struct lanes lanes) { return lanes.from >= lanes.to; }
static inline int lanes_count(struct lanes lanes) { return lanes.to - lanes.from; }

/* The keys of `run` that each row sees, to spans[row]; adds their number to *pairs. Returns the
 * smallest span that holds all of them. */
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

/* The smallest interval that holds the lanes of all `rows` rows. */
static struct lanes lanes_hull(const struct lanes *seen, int rows)
{
    struct lanes hull = { BLOCK, 0 };
    for (int r = 0; r < rows; r++) hull = lanes_join(hull, seen[r]);
    return hull;
}

/* A block of a run. */
struct key_block {
    const struct ra__key_run *run;
    int64_t first;     /* index in the run of lane 0; may be negative */
    struct lanes seen; /* by any row of the job; all of them have keys */
};

/* Some rows of a job: [row, end). */
struct part {
    int row, end;
};

static inline struct lanes lanes_of(struct span span, int64_t first)
{
    return (struct lanes){ (int)ra__min(ra__max(span.from - first, 0), BLOCK),
                           (int)ra__min(ra__max(span.to - first, 0), BLOCK) };
}

/* Finds the lanes that each row of a part sees, to seen[row], and that any of them sees. */
static struct key_block see_block(const struct ra__key_run *run, int64_t first,
                                  const struct span *spans, struct part part, struct lanes *seen)
{
    for (int r = part.row; r < part.end; r++) seen[r] = lanes_of(spans[r], first);
    return (struct key_block){ run, first, lanes_hull(seen + part.row, part.end - part.row) };
}

/* Widened to begin with a strip of a panel, and to whole vectors of grains. */
static inline struct lanes lanes_strips(struct lanes lanes)
{
    enum { FIRST = (int)STRIP > (int)SPAN ? (int)STRIP : (int)SPAN };
    return (struct lanes){ lanes.from / FIRST * FIRST, (lanes.to + SPAN - 1) / SPAN * SPAN };
}

/* Widened to whole vectors of grains. */
static inline struct lanes lanes_whole(struct lanes lanes)
{
    return (struct lanes){ lanes.from / SPAN * SPAN, (lanes.to + SPAN - 1) / SPAN * SPAN };
}

/* Between blocks. What it calls may be anybody's code, which does with the units of the CPU what it
 * likes. */
static inline void breathe(const struct ra__view *view)
{
    if (!view->breathe) return;
    gemm_leave();
    ra__breathe(view);
    gemm_return();
}

#endif
