/* SPDX-License-Identifier: Apache-2.0 */
/* shape.h - the numbers of a problem after its defaults are filled in, and visibility as geometry:
 * runs of positions, bands around the diagonal, and the keys a row sees. */
#ifndef RA__CORE_SHAPE_H
#define RA__CORE_SHAPE_H

#include <stdint.h>

#include "ringattn.h"

/* Of heads and of values. */
enum { RA__MOST_DIM = 576 };

struct ra__shape {
    ra_dtype dtype;
    int64_t batch, q_len, k_len;
    int64_t query_offset; /* of positions, from where the last query is at the last key */
    int q_heads, kv_heads, dim, value_dim;
    float scale;
};

/* Forward 2 pairs (D + Dv), backward 2 pairs (3 D + 2 Dv). */
static inline double ra__flops(const struct ra__shape *shape, int64_t pairs, int backward)
{
    int64_t width = backward ? 3 * shape->dim + 2 * shape->value_dim
                             : shape->dim + shape->value_dim;
    return 2.0 * (double)pairs * (double)width;
}

/* The unbounded side of a band; far enough from INT64_MAX that positions can be added to it. */
#define RA__UNBOUNDED (INT64_MAX / 4)

/* The mask of a tile: key position - query position is in [-left, right]. Full is
 * (unbounded, unbounded), causal (unbounded, 0), a window (L, R). */
struct ra__band {
    int64_t left, right;
};

/* The keys of a row in one buffer: the i-th is stored at token `token + i token_step` of the
 * buffer, and its position is `pos + i pos_step`. */
struct ra__key_run {
    int64_t token, token_step;
    int64_t pos, pos_step;
    int64_t count;
    struct ra__band band;
};

static inline int64_t ra__run_last(ra_run run) { return run.start + (run.count - 1) * run.step; }

static inline int64_t ra__min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ra__max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Division that rounds towards minus and plus infinity; b > 0. */
static inline int64_t ra__floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static inline int64_t ra__ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }

/* Of positive numbers; the multiple is at most RA__UNBOUNDED. */
int64_t ra__common_divisor(int64_t a, int64_t b);
int64_t ra__common_multiple(int64_t a, int64_t b);

/* The part of `run` with positions in [lo, hi); the index of its first position in `run` is written
 * to *skipped. */
static inline ra_run ra__run_clip(ra_run run, int64_t lo, int64_t hi, int64_t *skipped)
{
    int64_t from = ra__min(ra__max(ra__ceil_div(lo - run.start, run.step), 0), run.count);
    int64_t to = ra__min(ra__ceil_div(hi - run.start, run.step), run.count);
    *skipped = from;
    return (ra_run){ run.start + from * run.step, run.step, ra__max(to - from, 0) };
}

/* The positions that two runs have in common, as a run; count 0 if there are none. */
ra_run ra__run_intersect(ra_run a, ra_run b);

/* Indices [lo, hi) of the keys of `run` that a query at `q_pos` sees; lo <= hi always. */
static inline void ra__band_clip(const struct ra__key_run *run, int64_t q_pos, int64_t *lo,
                                 int64_t *hi)
{
    int64_t from = ra__ceil_div(q_pos - run->band.left - run->pos, run->pos_step);
    int64_t to = ra__floor_div(q_pos + run->band.right - run->pos, run->pos_step) + 1;
    *lo = ra__min(ra__max(from, 0), run->count);
    *hi = ra__max(ra__min(to, run->count), *lo);
}

#endif
