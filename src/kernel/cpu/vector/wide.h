/* wide.h - the products of a job of one query and several KV heads whose keys follow one another in memory,
 * so that they are read as one stream: the same squares as in thin.h, LANES keys of all heads before the
 * next ones, and values as they lie. Written in the words of an ISA's vec.h and of a grain.
 *
 * On Zen 4, 8 KV heads of 256 bytes, one thread: 27 to 28 GB/s, against 12 head by head and 22 with values in
 * pieces of 16 keys of each head. Values that are read two rows abreast, as pairs of bf16 are, must be asked
 * for: 36 GB/s against 16. */
#ifndef RA__KERNEL_CPU_VECTOR_WIDE_H
#define RA__KERNEL_CPU_VECTOR_WIDE_H

#include "kernel/cpu/vector/thin.h"

/* One query head to a KV head: squares are turned for a single row. */
static inline bool wide(const struct ra__shape *shape)
{
    return shape->q_heads == shape->kv_heads && shape->kv_heads <= THIN_ROWS &&
           shape->value_dim % LANES == 0;
}

enum { WIDE_AHEAD = 2 * LANES }; /* keys */

/* ---- Scores ------------------------------------------------------------------------------------ */

static inline __attribute__((always_inline)) void wide_score_as(const ra_dtype dtype,
                                                                struct thin_scores *s, int kv_heads,
                                                                struct lanes seen)
{
    const grain *q = s->q;
    float *to = s->to;
    const struct lanes all = lanes_whole(seen);
    for (int lane = all.from; lane < all.to; lane += LANES)
        for (int head = 0; head < kv_heads; head++) {
            const char *keys[LANES];
            for (int i = 0; i < LANES; i++)
                keys[i] = thin_row(&s->k, (int)ra__min(ra__max(lane + i, seen.from), seen.to - 1)) +
                          head * s->k.bytes;
            s->q = q + head * s->stride;
            s->to = to + head * LINE;
            score_keys(dtype, s, keys, lane, 1, 1);
        }
}

/* scores = q k^T; as thin_score(), a row for each KV head. Keys are asked for past the end of the block, for
 * the next one begins there. */
static void wide_score(const struct ra__view *view, const struct key_block *block, const grain *q,
                       float *scores)
{
    const ra_dtype dtype = view->shape->dtype;
    const int dim = view->shape->dim;
    const struct lanes seen = block->seen;
    struct thin_scores s = {
        .k = thin_rows(dtype, &view->k, dim, block), .q = q, .stride = grains(dim), .to = scores
    };
    const int64_t behind = block->run->count - (block->first + seen.from + WIDE_AHEAD);
    s.keys = thin_look_ahead(&s.k, seen.from + WIDE_AHEAD, behind > 0);
    s.keys.bytes = (int)(ra__min(behind, lanes_count(seen)) * s.k.step);
    if (dtype == RA_BF16) wide_score_as(RA_BF16, &s, view->kv_heads, seen);
    else if (dtype == RA_F16) wide_score_as(RA_F16, &s, view->kv_heads, seen);
    else wide_score_as(RA_F32, &s, view->kv_heads, seen);
}

/* ---- Values ------------------------------------------------------------------------------------ */

struct wide_values {
    struct thin_rows v;
    struct lanes seen;
    int kv_heads;
    int64_t last;   /* lane of the last key of the run, which may be in another block */
    const grain *p; /* rows: [kv_heads][GRAIN_LINE] */
    float *sums; /* [kv_heads][value_dim], of the block; they pass through the first-level cache */
};

/* Asks for some vectors of values. Of rows that are read one by one the CPU does so by itself, and better. */
static inline __attribute__((always_inline)) void ask_values(const ra_dtype dtype, const char *at,
                                                             const int vecs)
{
    if (PER_GRAIN > 1) call_row(dtype, at, vecs * LANES);
}

/* Adds `vecs` vectors, one or two, of the values of PER_GRAIN keys, from `row` on, and asks for those `ahead`
 * bytes behind them. */
static inline __attribute__((always_inline)) void wide_piece(const ra_dtype dtype, const char *row,
                                                             int64_t step, int64_t ahead,
                                                             vec weight, const int vecs, float *sum)
{
    const void *values[PER_GRAIN];
    vec line[2];
    for (int n = 0; n < PER_GRAIN; n++) {
        values[n] = row + n * step;
        ask_values(dtype, row + n * step + ahead, vecs);
    }
    if (vecs == 2) grain_read_stacks(dtype, values, line);
    else line[0] = grain_read_stack(dtype, values);
    for (int i = 0; i < vecs; i++)
        vec_store(sum + i * LANES, grain_dot(weight, line[i], vec_load(sum + i * LANES)));
}

/* All values of PER_GRAIN keys, from the lane `lane` on. More keys at a time would visit their sums less often,
 * but the CPU does not follow them: f32 17 GB/s against 29. */
static inline __attribute__((always_inline)) void wide_line(const ra_dtype dtype,
                                                            const struct wide_values *s, int lane)
{
    const int64_t bytes = (int64_t)ra__dtype_bytes(dtype), step = s->v.step;
    const int64_t left = ra__max(s->last - lane - PER_GRAIN + 1, 0);
    const int64_t ahead = ra__min(WIDE_AHEAD, left) * step;
    for (int head = 0; head < s->kv_heads; head++) {
        const vec weight = grain_all(s->p + head * GRAIN_LINE + lane / PER_GRAIN);
        const char *row = thin_row(&s->v, lane) + head * s->v.bytes;
        float *sum = row_of(s->sums, head, s->v.numbers);
        int d = 0;
        for (; d + 2 * LANES <= s->v.numbers; d += 2 * LANES)
            wide_piece(dtype, row + d * bytes, step, ahead, weight, 2, sum + d);
        if (d < s->v.numbers) wide_piece(dtype, row + d * bytes, step, ahead, weight, 1, sum + d);
    }
}

/* The same where one of the keys is not seen. */
static inline __attribute__((always_inline)) void wide_edge(const ra_dtype dtype,
                                                            const struct wide_values *s, int lane)
{
    for (int head = 0; head < s->kv_heads; head++) {
        const vec weight = grain_all(s->p + head * GRAIN_LINE + lane / PER_GRAIN);
        const void *values[PER_GRAIN];
        for (int n = 0; n < PER_GRAIN; n++) {
            const bool seen = lane + n >= s->seen.from && lane + n < s->seen.to;
            values[n] = seen ? thin_row(&s->v, lane + n) + head * s->v.bytes : NULL;
        }
        for (int at = 0; at * LANES < s->v.numbers; at++) {
            float *sum = row_of(s->sums, head, s->v.numbers) + at * LANES;
            const vec line = stack_at(dtype, values, at, s->v.numbers);
            vec_store(sum, grain_dot(weight, line, vec_load(sum)));
        }
    }
}

static inline __attribute__((always_inline)) void wide_gather_as(const ra_dtype dtype,
                                                                 const struct wide_values *s)
{
    int lane = s->seen.from / PER_GRAIN * PER_GRAIN;
    for (; lane < s->seen.from; lane += PER_GRAIN) wide_edge(dtype, s, lane);
    for (; lane + PER_GRAIN <= s->seen.to; lane += PER_GRAIN) wide_line(dtype, s, lane);
    for (; lane < s->seen.to; lane += PER_GRAIN) wide_edge(dtype, s, lane);
}

/* acc += p v; as thin_gather(), a row for each KV head. */
static void wide_gather(const struct ra__view *view, const struct key_block *block, const grain *p,
                        float *sums, float *acc)
{
    const ra_dtype dtype = view->shape->dtype;
    const int numbers = view->shape->value_dim, all = view->kv_heads * numbers;
    const struct wide_values s = { .v = thin_rows(dtype, &view->v, numbers, block),
                                   .seen = block->seen,
                                   .kv_heads = view->kv_heads,
                                   .last = block->run->count - block->first - 1,
                                   .p = p,
                                   .sums = sums };
    memset(sums, 0, sizeof(float) * (size_t)all);
    if (dtype == RA_BF16) wide_gather_as(RA_BF16, &s);
    else if (dtype == RA_F16) wide_gather_as(RA_F16, &s);
    else wide_gather_as(RA_F32, &s);
    for (int i = 0; i < all; i += LANES)
        vec_store(acc + i, vec_add(vec_load(acc + i), vec_load(sums + i)));
}

#endif
