/* SPDX-License-Identifier: Apache-2.0 */
/* wide.h - the products of a job of one query and several KV heads whose keys are adjacent in
 * memory, so that they are read as one stream: the same squares as in thin.h, LANES keys of all
 * heads before the next LANES keys, and values in the order of memory. Written with the operations
 * of an ISA's vec.h and the operands of operand_*.h.
 *
 * On Zen 4, 8 KV heads of 256 bytes, f32, one thread: 29 GB/s, against 12 head by head; with 4
 * query heads each 26 against 15. Values that are read several tokens at once, as pairs of bf16
 * are, must be prefetched: 36 GB/s against 16. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_WIDE_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_WIDE_H

#include "backend/cpu/kernel/vector/thin.h"

enum {
    WIDE_ROWS = 64,            /* most query heads */
    WIDE_PREFETCH = 2 * LANES, /* keys */
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
    const struct ra__view *view, const struct key_block *block, const operand *q, float *scores)
{
    const int dim = view->shape->dim, from = block->seen.from;
    struct thin_scores s = { .k = thin_rows(view->shape->dtype, &view->k, dim, block),
                             .q = q,
                             .stride = operands(dim),
                             .to = scores };
    const int64_t after = block->run->count - (block->first + from + WIDE_PREFETCH);
    s.keys = thin_prefetch_from(&s.k, from + WIDE_PREFETCH, after > 0);
    s.keys.bytes = (int)(ra__min(after, columns_count(block->seen)) * s.k.step);
    return s;
}

/* The addresses of LANES keys of a KV head. Around the visible keys the nearest one is scored
 * again. */
static inline __attribute__((always_inline)) void wide_keys(const struct thin_scores *s,
                                                            struct columns seen, int column,
                                                            int head, const char *keys[LANES])
{
    for (int i = 0; i < LANES; i++)
        keys[i] = thin_row(&s->k, (int)ra__min(ra__max(column + i, seen.from), seen.to - 1)) +
                  head * s->k.bytes;
}

static inline __attribute__((always_inline)) void wide_score_one_as(const ra_dtype dtype,
                                                                    struct thin_scores *s,
                                                                    int kv_heads,
                                                                    struct columns seen)
{
    const operand *q = s->q;
    float *to = s->to;
    const struct columns all = columns_whole(seen);
    for (int column = all.from; column < all.to; column += LANES)
        for (int head = 0; head < kv_heads; head++) {
            const char *keys[LANES];
            wide_keys(s, seen, column, head, keys);
            s->q = q + head * s->stride;
            s->to = to + head * LINE;
            score_keys(dtype, s, keys, column, 1, 1);
        }
}

static inline __attribute__((always_inline)) void wide_score_many_as(const ra_dtype dtype,
                                                                     struct thin_scores *s,
                                                                     int kv_heads, int heads_per_kv,
                                                                     struct columns seen)
{
    const operand *q = s->q;
    float *to = s->to;
    const struct columns all = columns_whole(seen);
    for (int column = all.from; column < all.to; column += LANES)
        for (int row = 0, count; row < kv_heads * heads_per_kv; row += count) {
            const char *keys[LANES];
            count = (int)ra__min(THIN_TILE, heads_per_kv - row % heads_per_kv);
            wide_keys(s, seen, column, row / heads_per_kv, keys);
            s->q = q + row * s->stride;
            s->to = to + row * LINE;
            _Static_assert(THIN_TILE == 4,
                           "here and in wide_lines() every number of rows is named");
            switch (count) {
            case 1: score_keys(dtype, s, keys, column, 1, 1); break;
            case 2: score_keys(dtype, s, keys, column, 2, 1); break;
            case 3: score_keys(dtype, s, keys, column, 3, 1); break;
            default: score_keys(dtype, s, keys, column, 4, 1); break;
            }
        }
}

/* One row for each KV head. */
static void wide_score_one(const struct ra__view *view, const struct key_block *block,
                           const operand *q, float *scores)
{
    const ra_dtype dtype = view->shape->dtype;
    struct thin_scores s = wide_scores(view, block, q, scores);
    if (dtype == RA_BF16) wide_score_one_as(RA_BF16, &s, view->kv_heads, block->seen);
    else if (dtype == RA_F16) wide_score_one_as(RA_F16, &s, view->kv_heads, block->seen);
    else wide_score_one_as(RA_F32, &s, view->kv_heads, block->seen);
}

/* `heads_per_kv` rows for each KV head. A function of its own: among code for more rows GCC 12
 * makes the loop for one row 8% slower. */
static __attribute__((noinline)) void wide_score_many(const struct ra__view *view,
                                                      const struct key_block *block,
                                                      int heads_per_kv, const operand *q,
                                                      float *scores)
{
    const ra_dtype dtype = view->shape->dtype;
    struct thin_scores s = wide_scores(view, block, q, scores);
    if (dtype == RA_BF16)
        wide_score_many_as(RA_BF16, &s, view->kv_heads, heads_per_kv, block->seen);
    else if (dtype == RA_F16)
        wide_score_many_as(RA_F16, &s, view->kv_heads, heads_per_kv, block->seen);
    else wide_score_many_as(RA_F32, &s, view->kv_heads, heads_per_kv, block->seen);
}

/* scores = q k^T; like thin_score(), for the rows of all KV heads. */
static void wide_score(const struct ra__view *view, const struct key_block *block, const operand *q,
                       float *scores)
{
    const int heads_per_kv = view->heads / view->kv_heads;
    if (heads_per_kv == 1) wide_score_one(view, block, q, scores);
    else wide_score_many(view, block, heads_per_kv, q, scores);
}

/* ---- Values ---------------------------------------------------------------------------------- */

struct wide_values {
    struct thin_rows v;
    struct columns seen;
    int kv_heads, heads_per_kv;
    int64_t last;     /* column of the last key of the run, which may be in another block */
    const operand *p; /* rows: [kv_heads x group][OPERAND_LINE] */
    float *sums;      /* [kv_heads x group][value_dim], of the block, in the L1 cache */
};

/* Rows that share a KV head, and their weights of some keys. */
struct wide_rows {
    const operand *p;     /* [rows][OPERAND_LINE] */
    vec first[THIN_TILE]; /* of one operand of keys */
    float *sums;          /* [rows][stride] */
    int64_t stride;
};

/* Adds `vecs` vectors, one or two, of the values of `lines` operands of keys, from `at` on, tokens
 * `step` bytes apart, to the sums from element d on, and prefetches those `prefetch` bytes further
 * on. Tokens that are read one by one are left to the hardware prefetcher, which is better at
 * it. */
static inline __attribute__((always_inline)) void wide_piece(
    const ra_dtype dtype, const struct wide_rows *to, const char *at, int64_t step,
    int64_t prefetch, int d, const int lines, const int rows, const int vecs)
{
    vec sum[THIN_TILE][2], line[2];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vecs; i++)
            sum[r][i] = vec_load(to->sums + r * to->stride + d + i * LANES);
    for (int n = 0; n < lines; n++) {
        const void *values[PER_OPERAND];
        for (int g = 0; g < PER_OPERAND; g++) {
            const char *row = at + (n * PER_OPERAND + g) * step;
            values[g] = row;
            if (lines * PER_OPERAND > 1) prefetch_row(dtype, row + prefetch, vecs * LANES);
        }
        if (vecs == 2) operand_read_interleaved_pair(dtype, values, line);
        else line[0] = operand_read_interleaved(dtype, values);
        for (int r = 0; r < rows; r++) {
            const vec weight = lines == 1 ? to->first[r]
                                          : operand_broadcast(to->p + r * OPERAND_LINE + n);
            for (int i = 0; i < vecs; i++) sum[r][i] = operand_dot(weight, line[i], sum[r][i]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vecs; i++)
            vec_store(to->sums + r * to->stride + d + i * LANES, sum[r][i]);
}

/* All values of a KV head. */
static inline __attribute__((always_inline)) void wide_head(const ra_dtype dtype,
                                                            const struct wide_values *s, int column,
                                                            int head, int row, const int lines,
                                                            const int rows)
{
    const int64_t bytes = (int64_t)ra__dtype_bytes(dtype), step = s->v.step;
    const int64_t left = ra__max(s->last - column - lines * PER_OPERAND + 1, 0);
    const int64_t prefetch = ra__min(WIDE_PREFETCH, left) * step;
    const char *at = thin_row(&s->v, column) + head * s->v.bytes;
    struct wide_rows to = { .p = s->p + row * OPERAND_LINE + column / PER_OPERAND,
                            .sums = row_of(s->sums, row, s->v.numbers),
                            .stride = s->v.numbers };
    for (int r = 0; r < rows && lines == 1; r++)
        to.first[r] = operand_broadcast(to.p + r * OPERAND_LINE);
    int d = 0;
    for (; d + 2 * LANES <= s->v.numbers; d += 2 * LANES)
        wide_piece(dtype, &to, at + d * bytes, step, prefetch, d, lines, rows, 2);
    if (d < s->v.numbers) wide_piece(dtype, &to, at + d * bytes, step, prefetch, d, lines, rows, 1);
}

/* All values of `lines` operands of keys, from column `column` on. */
static inline __attribute__((always_inline)) void wide_lines(const ra_dtype dtype,
                                                             const struct wide_values *s,
                                                             int column, const int lines,
                                                             const int heads_per_kv)
{
    for (int head = 0; head < s->kv_heads; head++)
        for (int r = 0; r < heads_per_kv; r += THIN_TILE) {
            const int row = head * heads_per_kv + r;
            switch (heads_per_kv - r) {
            case 1: wide_head(dtype, s, column, head, row, lines, 1); break;
            case 2: wide_head(dtype, s, column, head, row, lines, 2); break;
            case 3: wide_head(dtype, s, column, head, row, lines, 3); break;
            default: wide_head(dtype, s, column, head, row, lines, 4); break;
            }
        }
}

/* The same if one of the keys is hidden. */
static inline __attribute__((always_inline)) void wide_edge(const ra_dtype dtype,
                                                            const struct wide_values *s, int column)
{
    for (int row = 0; row < s->kv_heads * s->heads_per_kv; row++) {
        const vec weight = operand_broadcast(s->p + row * OPERAND_LINE + column / PER_OPERAND);
        const void *values[PER_OPERAND];
        for (int n = 0; n < PER_OPERAND; n++) {
            const bool seen = column + n >= s->seen.from && column + n < s->seen.to;
            values[n] = seen ? thin_row(&s->v, column + n) + row / s->heads_per_kv * s->v.bytes
                             : NULL;
        }
        for (int at = 0; at * LANES < s->v.numbers; at++) {
            float *sum = row_of(s->sums, row, s->v.numbers) + at * LANES;
            const vec line = interleave_at(dtype, values, at, s->v.numbers);
            vec_store(sum, operand_dot(weight, line, vec_load(sum)));
        }
    }
}

static inline __attribute__((always_inline)) void wide_gather_as(const ra_dtype dtype,
                                                                 const struct wide_values *s)
{
    enum { MANY = WIDE_LINES * PER_OPERAND };
    int column = s->seen.from / PER_OPERAND * PER_OPERAND;
    for (; column < s->seen.from; column += PER_OPERAND) wide_edge(dtype, s, column);
    for (; s->heads_per_kv > 1 && column + MANY <= s->seen.to; column += MANY)
        wide_lines(dtype, s, column, WIDE_LINES, s->heads_per_kv);
    for (; s->heads_per_kv > 1 && column + PER_OPERAND <= s->seen.to; column += PER_OPERAND)
        wide_lines(dtype, s, column, 1, s->heads_per_kv);
    for (; column + PER_OPERAND <= s->seen.to; column += PER_OPERAND)
        wide_lines(dtype, s, column, 1, 1);
    for (; column < s->seen.to; column += PER_OPERAND) wide_edge(dtype, s, column);
}

/* acc += p v; like thin_gather(), several rows for each KV head. */
static void wide_gather(const struct ra__view *view, const struct key_block *block,
                        const operand *p, float *sums, float *acc)
{
    const ra_dtype dtype = view->shape->dtype;
    const int numbers = view->shape->value_dim, all = view->heads * numbers;
    const struct wide_values s = { .v = thin_rows(dtype, &view->v, numbers, block),
                                   .seen = block->seen,
                                   .kv_heads = view->kv_heads,
                                   .heads_per_kv = view->heads / view->kv_heads,
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
