/* split.h - where keys are cut as well: few queries against many keys, as in decoding.
 *
 * Queries and heads alone would not keep all threads busy then, nor let one thread read whole rows
 * of all heads. So keys are cut into stretches of positions. A job takes one of them and leaves a
 * state of its own; when all are done, the states of a row are merged in the order of the
 * stretches. Where the cuts are follows from the problem alone, so results know neither threads
 * nor, with all keys at hand, ranks. */
#ifndef RA__EXEC_SPLIT_H
#define RA__EXEC_SPLIT_H

#include "core/shape.h"

struct ra__split {
    int stretches; /* 1: keys are not cut */
    int64_t keys;  /* positions of a stretch */
};

static inline struct ra__split ra__split_for(const struct ra__shape *shape)
{
    enum {
        MOST_ROWS = 16,     /* per KV head: kernels have a short way for so many */
        LEAST_KEYS = 16384, /* of a stretch: its first keys are not called ahead */
        MOST_STRETCHES = 64,
        BLOCK = 256 /* stretches begin where blocks of kernels do, or every second one */
    };
    int64_t rows = shape->q_len * (shape->q_heads / shape->kv_heads);
    int64_t stretches = ra__min(shape->k_len / LEAST_KEYS, MOST_STRETCHES);
    if (rows > MOST_ROWS || stretches < 2) return (struct ra__split){ 1, shape->k_len };
    int64_t keys = ra__ceil_div(ra__ceil_div(shape->k_len, stretches), BLOCK) * BLOCK;
    return (struct ra__split){ (int)ra__ceil_div(shape->k_len, keys), keys };
}

/* The keys of a run that lie in a stretch; count 0 where there are none. */
static inline struct ra__key_run ra__split_run(const struct ra__split *split, int stretch,
                                               const struct ra__key_run *run)
{
    int64_t skipped, first = stretch * split->keys;
    ra_run whole = { run->pos, run->pos_step, run->count };
    ra_run part = ra__run_clip(whole, first, first + split->keys, &skipped);
    return (struct ra__key_run){ run->row + skipped * run->row_step,
                                 run->row_step,
                                 part.start,
                                 run->pos_step,
                                 part.count,
                                 run->band };
}

#endif
