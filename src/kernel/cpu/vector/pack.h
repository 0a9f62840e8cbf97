/* pack.h - between the problem's dtype and strides and the f32 panels the products read. A panel
 * has rows of `padded(dim)` numbers, zeros behind the last, so products need no tails. */
#ifndef RA__KERNEL_CPU_VECTOR_PACK_H
#define RA__KERNEL_CPU_VECTOR_PACK_H

#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "kernel/cpu/vector/rows.h"

/* Pieces of a workspace, one behind the other. Without `base` it only counts. */
struct arena {
    char *base;
    size_t used;
};

/* `count` things of `bytes` bytes, at a multiple of 64. */
static void *carve(struct arena *arena, int64_t count, size_t bytes)
{
    void *piece = arena->base ? arena->base + arena->used : NULL;
    arena->used += ((size_t)count * bytes + 63) / 64 * 64;
    return piece;
}

static inline int padded(int n) { return (n + LANES - 1) / LANES * LANES; }

static inline void *element(ra_dtype dtype, void *data, int64_t index)
{
    return (char *)data + index * (int64_t)ra__dtype_bytes(dtype);
}

/* n numbers to f32, and zeros up to padded(n). */
static void widen(ra_dtype dtype, const void *from, int n, float *to)
{
    int d = 0;
    if (dtype == RA_F32)
        for (; d + LANES <= n; d += LANES) vec_store(to + d, vec_load((const float *)from + d));
    else if (dtype == RA_BF16)
        for (; d + LANES <= n; d += LANES)
            vec_store(to + d, vec_widen_bf16((const uint16_t *)from + d));
    else
        for (; d + LANES <= n; d += LANES)
            vec_store(to + d, vec_widen_f16((const uint16_t *)from + d));
    if (d == n) return;
    vec_store(to + d, vec_zero());
    for (; d < n; d++) to[d] = ra__load(dtype, from, d);
}

/* n numbers from f32, rounded to nearest even. */
static void narrow(ra_dtype dtype, const float *from, int n, void *to)
{
    int d = 0;
    if (dtype == RA_F32)
        for (; d + LANES <= n; d += LANES) vec_store((float *)to + d, vec_load(from + d));
    else if (dtype == RA_BF16)
        for (; d + LANES <= n; d += LANES) vec_narrow_bf16((uint16_t *)to + d, vec_load(from + d));
    else
        for (; d + LANES <= n; d += LANES) vec_narrow_f16((uint16_t *)to + d, vec_load(from + d));
    for (; d < n; d++) ra__store(dtype, to, d, from[d]);
}

/* Row `row` of a panel whose rows are `dim` long. */
static inline float *row_of(float *panel, int row, int dim) { return panel + (int64_t)row * dim; }

static void fill(float *x, struct lanes lanes, float value)
{
    for (int i = lanes.from; i < lanes.to; i++) x[i] = value;
}

/* x *= factor over n numbers, a multiple of LANES. */
static void scale_row(float *x, float factor, int n)
{
    vec f = vec_all(factor);
    for (int d = 0; d < n; d += LANES) vec_store(x + d, vec_mul(vec_load(x + d), f));
}

/* to += factor x from over any n. */
static void add_scaled(float *to, float factor, const float *from, int n)
{
    for (int d = 0; d < n; d++) to[d] += factor * from[d];
}

/* False if any of n numbers, a multiple of LANES, is infinite or NaN: only then is 0 x NaN. */
static bool all_finite(const float *x, int64_t n)
{
    vec zero = vec_zero(), sum = vec_zero();
    for (int64_t i = 0; i < n; i += LANES) sum = vec_fma(vec_load(x + i), zero, sum);
    return vec_sum(sum) == 0.0f;
}

/* The query rows of a job, or tensors shaped like them, to [rows][padded(dim)]. */
static void pack_rows(const struct ra__view *view, const struct ra__matrix *from, int dim,
                      float *to)
{
    ra_dtype dtype = view->shape->dtype;
    for (int64_t i = 0; i < view->q_count; i++)
        for (int h = 0; h < view->heads; h++, to += padded(dim))
            widen(dtype, element(dtype, from->data, i * from->row_stride + h * from->head_stride),
                  dim, to);
}

/* The keys of a block, or their values, to [BLOCK][padded(dim)]: the lanes that are seen, and zeros
 * around them up to whole vectors. */
static void pack_block(ra_dtype dtype, const struct ra__matrix *from, const struct key_block *block,
                       int dim, float *to)
{
    const struct ra__key_run *run = block->run;
    struct lanes seen = block->seen, all = lanes_whole(seen);
    for (int lane = all.from; lane < all.to; lane++) {
        float *row = row_of(to, lane, padded(dim));
        int64_t index = (run->row + (block->first + lane) * run->row_step) * from->row_stride;
        if (lane < seen.from || lane >= seen.to)
            memset(row, 0, sizeof(float) * (size_t)padded(dim));
        else widen(dtype, element(dtype, from->data, index), dim, row);
    }
}

/* The lanes of pack_block() to [padded(dim)][BLOCK]. */
static void transpose_block(const float *from, const struct key_block *block, int dim, float *to)
{
    struct lanes all = lanes_whole(block->seen);
    for (int d = 0; d < padded(dim); d += LANES)
        for (int lane = all.from; lane < all.to; lane += LANES) {
            vec square[LANES];
            for (int i = 0; i < LANES; i++)
                square[i] = vec_load(from + (int64_t)(lane + i) * padded(dim) + d);
            vec_transpose(square);
            for (int i = 0; i < LANES; i++)
                vec_store(to + (int64_t)(d + i) * BLOCK + lane, square[i]);
        }
}

/* all_finite() over the lanes of pack_block(). */
static bool block_finite(const float *packed, const struct key_block *block, int dim)
{
    struct lanes all = lanes_whole(block->seen);
    return all_finite(packed + (int64_t)all.from * padded(dim),
                      (int64_t)(all.to - all.from) * padded(dim));
}

#endif
