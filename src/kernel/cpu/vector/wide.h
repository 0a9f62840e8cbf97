/* SPDX-License-Identifier: Apache-2.0 */
/* wide.h - the products of a job of one query and several KV heads whose keys are adjacent in
 * memory, so that they are read as one stream: the same squares as in thin.h, LANES keys of all
 * heads before the next LANES keys, and values in the order of memory. Written with the operations
 * of an ISA's vec.h and the operands of grain_*.h.
 *
 * On Zen 4, 8 KV heads of 256 bytes, f32, one thread: 29 GB/s, against 12 head by head; with 4
 * query heads each 26 against 15. Values that are read several tokens at once, as pairs of bf16
 * are, must be prefetched: 36 GB/s against 16. */
#ifndef RA__KERNEL_CPU_VECTOR_WIDE_H
#define RA__KERNEL_CPU_VECTOR_WIDE_H

#include "kernel/cpu/vector/thin.h"

enum {
    WIDE_ROWS = 64,         /* most query heads */
    WIDE_AHEAD = 2 * LANES, /* keys */
    /* operands of keys whose values are added at a time, for several rows */
    WIDE_LINES = 4,
};

static inline bool wide(const struct ra__shape *shape)
{
    return shape->q_heads <= WIDE_ROWS && shape->q_heads / shape->kv_heads <= THIN_ROWS &&
           shape->value_dim % LANES == 0;
}

/* ---- Scores ---------------------------------------------------------------------------------- */

/* Like thin_scores; keys are prefetched beyond the end of the block, because the next block starts
 * there. */
static inline __attribute__((always_inline)) struct thin_scores wide_scores(
    const struct ra__view *view, const struct key_block *block, const grain *q, float *scores)
{
    const int dim = view->shape->dim, from = block->seen.from;
    struct thin_scores s = { .k = thin_rows(view->shape->dtype, &view->k, dim, block),
                             .q = q,
                             .stride = grains(dim),
                             .to = scores };
    const int64_t behind = block->run->count - (block->first + from + WIDE_AHEAD);
    s.keys = thin_look_ahead(&s.k, from + WIDE_AHEAD, behind > 0);
    s.keys.bytes = (int)(ra__min(behind, lanes_count(block->seen)) * s.k.step);
    return s;
}

/* The addresses of LANES keys of a KV head. Around the visible keys the nearest one is scored
 * again. */
static inline __attribute__((always_inline)) void wide_keys(const struct thin_scores *s,
                                                            struct lanes seen, int lane, int head,
                                                            const char *keys[LANES])
{
    for (int i = 0; i < LANES; i++)
        keys[i] = thin_row(&s->k, (int)ra__min(ra__max(lane + i, seen.from), seen.to - 1)) +
                  head * s->k.bytes;
}

static inline __attribute__((always_inline)) void wide_score_one_as(const ra_dtype dtype,
                                                                    struct thin_scores *s,
                                                                    int kv_heads, struct lanes seen)
{
    const grain *q = s->q;
    float *to = s->to;
    const struct lanes all = lanes_whole(seen);
    for (int lane = all.from; lane < all.to; lane += LANES)
        for (int head = 0; head < kv_heads; head++) {
            const char *keys[LANES];
            wide_keys(s, seen, lane, head, keys);
            s->q = q + head * s->stride;
            s->to = to + head * LINE;
            score_keys(dtype, s, keys, lane, 1, 1);
        }
}

static inline __attribute__((always_inline)) void wide_score_many_as(const ra_dtype dtype,
                                                                     struct thin_scores *s,
                                                                     int kv_heads, int group,
                                                                     struct lanes seen)
{
    const grain *q = s->q;
    float *to = s->to;
    const struct lanes all = lanes_whole(seen);
    for (int lane = all.from; lane < all.to; lane += LANES)
        for (int row = 0, count; row < kv_heads * group; row += count) {
            const char *keys[LANES];
            count = (int)ra__min(THIN_TILE, group - row % group);
            wide_keys(s, seen, lane, row / group, keys);
            s->q = q + row * s->stride;
            s->to = to + row * LINE;
            _Static_assert(THIN_TILE == 4,
                           "here and in wide_lines() every number of rows is named");
            switch (count) {
            case 1: score_keys(dtype, s, keys, lane, 1, 1); break;
            case 2: score_keys(dtype, s, keys, lane, 2, 1); break;
            case 3: score_keys(dtype, s, keys, lane, 3, 1); break;
            default: score_keys(dtype, s, keys, lane, 4, 1); break;
            }
        }
}

/* One row for each KV head. */
static void wide_score_one(const struct ra__view *view, const struct key_block *block,
                           const grain *q, float *scores)
{
    const ra_dtype dtype = view->shape->dtype;
    struct thin_scores s = wide_scores(view, block, q, scores);
    if (dtype == RA_BF16) wide_score_one_as(RA_BF16, &s, view->kv_heads, block->seen);
    else if (dtype == RA_F16) wide_score_one_as(RA_F16, &s, view->kv_heads, block->seen);
    else wide_score_one_as(RA_F32, &s, view->kv_heads, block->seen);
}

/* `group` rows for each KV head. A function of its own: among code for more rows GCC 12 makes the
 * loop for one row 8% slower. */
static __attribute__((noinline)) void wide_score_many(const struct ra__view *view,
                                                      const struct key_block *block, int group,
                                                      const grain *q, float *scores)
{
    const ra_dtype dtype = view->shape->dtype;
    struct thin_scores s = wide_scores(view, block, q, scores);
    if (dtype == RA_BF16) wide_score_many_as(RA_BF16, &s, view->kv_heads, group, block->seen);
    else if (dtype == RA_F16) wide_score_many_as(RA_F16, &s, view->kv_heads, group, block->seen);
    else wide_score_many_as(RA_F32, &s, view->kv_heads, group, block->seen);
}

/* scores = q k^T; like thin_score(), for the rows of all KV heads. */
static void wide_score(const struct ra__view *view, const struct key_block *block, const grain *q,
                       float *scores)
{
    const int group = view->heads / view->kv_heads;
    if (group == 1) wide_score_one(view, block, q, scores);
    else wide_score_many(view, block, group, q, scores);
}

/* ---- Values ---------------------------------------------------------------------------------- */

struct wide_values {
    struct thin_rows v;
    struct lanes seen;
    int kv_heads, group;
    int64_t last;   /* column of the last key of the run, which may be in another block */
    const grain *p; /* rows: [kv_heads x group][GRAIN_LINE] */
    float *sums;    /* [kv_heads x group][value_dim], of the block, in the L1 cache */
};

/* Rows that share a KV head, and their weights of some keys. */
struct wide_rows {
    const grain *p;       /* [rows][GRAIN_LINE] */
    vec first[THIN_TILE]; /* of one operand of keys */
    float *sums;          /* [rows][stride] */
    int64_t stride;
};

/* Adds `vecs` vectors, one or two, of the values of `lines` operands of keys, from `at` on, tokens
 * `step` bytes apart, to the sums from element d on, and prefetches those `ahead` bytes further on.
 * Tokens that are read one by one are left to the hardware prefetcher, which is better at it. */
static inline __attribute__((always_inline)) void wide_piece(const ra_dtype dtype,
                                                             const struct wide_rows *to,
                                                             const char *at, int64_t step,
                                                             int64_t ahead, int d, const int lines,
                                                             const int rows, const int vecs)
{
    vec sum[THIN_TILE][2], line[2];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vecs; i++)
            sum[r][i] = vec_load(to->sums + r * to->stride + d + i * LANES);
    for (int n = 0; n < lines; n++) {
        const void *values[PER_GRAIN];
        for (int g = 0; g < PER_GRAIN; g++) {
            const char *row = at + (n * PER_GRAIN + g) * step;
            values[g] = row;
            if (lines * PER_GRAIN > 1) call_row(dtype, row + ahead, vecs * LANES);
        }
        if (vecs == 2) grain_read_stacks(dtype, values, line);
        else line[0] = grain_read_stack(dtype, values);
        for (int r = 0; r < rows; r++) {
            const vec weight = lines == 1 ? to->first[r] : grain_all(to->p + r * GRAIN_LINE + n);
            for (int i = 0; i < vecs; i++) sum[r][i] = grain_dot(weight, line[i], sum[r][i]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vecs; i++)
            vec_store(to->sums + r * to->stride + d + i * LANES, sum[r][i]);
}

/* All values of a KV head. */
static inline __attribute__((always_inline)) void wide_head(const ra_dtype dtype,
                                                            const struct wide_values *s, int lane,
                                                            int head, int row, const int lines,
                                                            const int rows)
{
    const int64_t bytes = (int64_t)ra__dtype_bytes(dtype), step = s->v.step;
    const int64_t left = ra__max(s->last - lane - lines * PER_GRAIN + 1, 0);
    const int64_t ahead = ra__min(WIDE_AHEAD, left) * step;
    const char *at = thin_row(&s->v, lane) + head * s->v.bytes;
    struct wide_rows to = { .p = s->p + row * GRAIN_LINE + lane / PER_GRAIN,
                            .sums = row_of(s->sums, row, s->v.numbers),
                            .stride = s->v.numbers };
    for (int r = 0; r < rows && lines == 1; r++) to.first[r] = grain_all(to.p + r * GRAIN_LINE);
    int d = 0;
    for (; d + 2 * LANES <= s->v.numbers; d += 2 * LANES)
        wide_piece(dtype, &to, at + d * bytes, step, ahead, d, lines, rows, 2);
    if (d < s->v.numbers) wide_piece(dtype, &to, at + d * bytes, step, ahead, d, lines, rows, 1);
}

/* All values of `lines` operands of keys, from column `lane` on. */
static inline __attribute__((always_inline)) void wide_lines(const ra_dtype dtype,
                                                             const struct wide_values *s, int lane,
                                                             const int lines, const int group)
{
    for (int head = 0; head < s->kv_heads; head++)
        for (int r = 0; r < group; r += THIN_TILE) {
            const int row = head * group + r;
            switch (group - r) {
            case 1: wide_head(dtype, s, lane, head, row, lines, 1); break;
            case 2: wide_head(dtype, s, lane, head, row, lines, 2); break;
            case 3: wide_head(dtype, s, lane, head, row, lines, 3); break;
            default: wide_head(dtype, s, lane, head, row, lines, 4); break;
            }
        }
}

/* The same if one of the keys is hidden. */
static inline __attribute__((always_inline)) void wide_edge(const ra_dtype dtype,
                                                            const struct wide_values *s, int lane)
{
    for (int row = 0; row < s->kv_heads * s->group; row++) {
        const vec weight = grain_all(s->p + row * GRAIN_LINE + lane / PER_GRAIN);
        const void *values[PER_GRAIN];
        for (int n = 0; n < PER_GRAIN; n++) {
            const bool seen = lane + n >= s->seen.from && lane + n < s->seen.to;
            values[n] = seen ? thin_row(&s->v, lane + n) + row / s->group * s->v.bytes : NULL;
        }
        for (int at = 0; at * LANES < s->v.numbers; at++) {
            float *sum = row_of(s->sums, row, s->v.numbers) + at * LANES;
            const vec line = stack_at(dtype, values, at, s->v.numbers);
            vec_store(sum, grain_dot(weight, line, vec_load(sum)));
        }
    }
}

static inline __attribute__((always_inline)) void wide_gather_as(const ra_dtype dtype,
                                                                 const struct wide_values *s)
{
    enum { MANY = WIDE_LINES * PER_GRAIN };
    int lane = s->seen.from / PER_GRAIN * PER_GRAIN;
    for (; lane < s->seen.from; lane += PER_GRAIN) wide_edge(dtype, s, lane);
    for (; s->group > 1 && lane + MANY <= s->seen.to; lane += MANY)
        wide_lines(dtype, s, lane, WIDE_LINES, s->group);
    for (; s->group > 1 && lane + PER_GRAIN <= s->seen.to; lane += PER_GRAIN)
        wide_lines(dtype, s, lane, 1, s->group);
    for (; lane + PER_GRAIN <= s->seen.to; lane += PER_GRAIN) wide_lines(dtype, s, lane, 1, 1);
    for (; lane < s->seen.to; lane += PER_GRAIN) wide_edge(dtype, s, lane);
}

/* acc += p v; like thin_gather(), several rows for each KV head. */
static void wide_gather(const struct ra__view *view, const struct key_block *block, const grain *p,
                        float *sums, float *acc)
{
    const ra_dtype dtype = view->shape->dtype;
    const int numbers = view->shape->value_dim, all = view->heads * numbers;
    const struct wide_values s = { .v = thin_rows(dtype, &view->v, numbers, block),
                                   .seen = block->seen,
                                   .kv_heads = view->kv_heads,
                                   .group = view->heads / view->kv_heads,
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
