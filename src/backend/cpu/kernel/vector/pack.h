/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h - packs tensors of any dtype and strides into the panels that products read. Rows of a
 * panel are padded with zeros to whole vectors, so products need no tails. Three layouts:
 *     rows         a row of the tensor is a row of the panel
 *     interleaved  an operand holds the same column of PER_OPERAND consecutive rows (VNNI)
 *     transposed   a column of the tensor is a row of the panel
 * The right side of a product is stored in micro-panels: [micro-panel][row][NR]. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_PACK_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_PACK_H

#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "backend/cpu/kernel/vector/rows.h"

/* ---- Memory ---------------------------------------------------------------------------------- */

/* A workspace that is reserved from front to back. Without `base` it only counts. */
struct arena {
    char *base;
    size_t used;
};

/* `count` elements of `bytes` bytes, at a multiple of 64. */
static void *reserve(struct arena *arena, int64_t count, size_t bytes)
{
    void *piece = arena->base ? arena->base + arena->used : NULL;
    arena->used += ((size_t)count * bytes + 63) / 64 * 64;
    return piece;
}

static inline int padded(int n) { return (n + LANES - 1) / LANES * LANES; }

/* The operands of a row of n numbers, padded. */
static inline int operands(int n) { return padded((n + PER_OPERAND - 1) / PER_OPERAND); }

static inline void *element(ra_dtype dtype, void *data, int64_t index)
{
    return (char *)data + index * (int64_t)ra__dtype_bytes(dtype);
}

/* Row `row` of a panel of sums whose rows are `dim` long. */
static inline float *row_of(float *panel, int row, int dim) { return panel + (int64_t)row * dim; }

/* ---- Numbers in f32 -------------------------------------------------------------------------- */

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

static void fill(float *x, struct columns columns, float value)
{
    for (int i = columns.from; i < columns.to; i++) x[i] = value;
}

/* x *= factor over n numbers, a multiple of LANES. */
static void scale_row(float *x, float factor, int n)
{
    vec f = vec_all(factor);
    for (int d = 0; d < n; d += LANES) vec_store(x + d, vec_mul(vec_load(x + d), f));
}

/* to += factor x, for at most n numbers. */
static inline void add_line(float *to, vec factor, vec x, int n)
{
    if (n >= LANES) {
        vec_store(to, vec_fma(factor, x, vec_load(to)));
        return;
    }
    float line[LANES] = { 0 };
    memcpy(line, to, sizeof(float) * (size_t)n);
    vec_store(line, vec_fma(factor, x, vec_load(line)));
    memcpy(to, line, sizeof(float) * (size_t)n);
}

/* ---- Panels of operands ---------------------------------------------------------------------- */

/* `watched` becomes NaN once an infinite or NaN element was added: 0 times a finite number is 0. */
static inline vec watch(vec watched, vec x) { return operand_dot(x, vec_zero(), watched); }
static inline bool all_finite(vec watched) { return vec_sum(watched) == 0.0f; }

/* Vector `at` of the operands of a row of n numbers; zeros after the last, and if row is NULL. */
static inline __attribute__((always_inline)) vec line_at(const ra_dtype dtype, const void *row,
                                                         int at, int n)
{
    const int done = at * SPAN, left = n - done;
    const char *from = (const char *)row + (int64_t)done * (int64_t)ra__dtype_bytes(dtype);
    if (!row || left <= 0) return vec_zero();
    if (left >= SPAN) return operand_read(dtype, from);
    uint64_t tail[SPAN / 2] = { 0 }; /* room for SPAN f32 */
    memcpy(tail, from, (size_t)left * ra__dtype_bytes(dtype));
    return operand_read(dtype, tail);
}

/* Vector `at` of PER_OPERAND rows, interleaved. */
static inline __attribute__((always_inline)) vec interleave_at(const ra_dtype dtype,
                                                               const void *const *rows, int at,
                                                               int n)
{
    const int done = at * LANES, left = n - done;
    const int64_t bytes = (int64_t)ra__dtype_bytes(dtype);
    uint64_t tail[PER_OPERAND][LANES / 2];
    const void *from[PER_OPERAND];
    bool whole = left >= LANES;
    for (int r = 0; r < PER_OPERAND; r++) whole &= rows[r] != NULL;
    for (int r = 0; r < PER_OPERAND; r++) {
        from[r] = whole ? (const char *)rows[r] + done * bytes : (const char *)tail[r];
        if (whole) continue;
        memset(tail[r], 0, sizeof tail[r]);
        if (rows[r] && left > 0)
            memcpy(tail[r], (const char *)rows[r] + done * bytes,
                   (size_t)((left < LANES ? left : LANES) * bytes));
    }
    return operand_read_interleaved(dtype, from);
}

/* f32 in the columns `all`, whole vectors, to operands in row order. `from` and `to` may be the
 * same memory if an operand is one number. */
static inline void line_up(const float *from, struct columns all, operand *to)
{
    for (int i = all.from; i < all.to; i += SPAN) {
        vec x[PER_OPERAND];
        for (int g = 0; g < PER_OPERAND; g++) x[g] = vec_load(from + i + g * LANES);
        operand_store(to + i / PER_OPERAND, operand_row(x));
    }
}

/* The depth of a product over n numbers. */
static inline int depth_of(int n)
{
    int depth = (n + PER_OPERAND - 1) / PER_OPERAND;
    return (depth + GEMM_DEPTH - 1) / GEMM_DEPTH * GEMM_DEPTH;
}

/* Prefetches a row of n numbers into the L2 cache; NULL: nothing. */
static inline void prefetch_row(ra_dtype dtype, const void *row, int n)
{
    for (int at = 0; row && at < n * (int)ra__dtype_bytes(dtype); at += 64)
        __builtin_prefetch((const char *)row + at, 0, 2);
}

enum {
    PREFETCH_ROWS = 16
}; /* rows, while others are packed: some lines that were prefetched earlier are gone */

/* Columns of a panel of n columns, padded to whole micro-panels. */
static inline int in_micro_panels(int n) { return (n + NR - 1) / NR * NR; }

/* `count` rows of n numbers, a multiple of PER_OPERAND, to an interleaved panel whose micro-panels
 * are `micro_panel` apart. */
static inline __attribute__((always_inline)) vec interleave_as(const ra_dtype dtype,
                                                               const void *const *rows, int count,
                                                               int n, operand *to,
                                                               int64_t micro_panel)
{
    vec watched = vec_zero();
    for (int r = 0; r < count; r += PER_OPERAND, to += NR) {
        for (int i = r + PREFETCH_ROWS; i < r + PREFETCH_ROWS + PER_OPERAND && i < count; i++)
            prefetch_row(dtype, rows[i], n);
        for (int at = 0; at * LANES < n; at++) {
            vec x = interleave_at(dtype, rows + r, at, n);
            watched = watch(watched, x);
            operand_store(to + at * LANES / NR * micro_panel + at * LANES % NR, x);
        }
    }
    return watched;
}

/* LANES rows of n numbers to the next LANES columns of a transposed panel, whose rows are `stride`
 * apart. */
static inline __attribute__((always_inline)) void transpose_as(const ra_dtype dtype,
                                                               const void *const rows[LANES], int n,
                                                               operand *to, int64_t stride)
{
    for (int at = 0; at * SPAN < n; at++, to += LANES * stride) {
        vec square[LANES];
        for (int i = 0; i < LANES; i++) square[i] = line_at(dtype, rows[i], at, n);
        vec_transpose(square);
        for (int i = 0; i < LANES; i++) operand_store(to + i * stride, square[i]);
    }
}

/* The same for a dtype that is known at run time only. */
static vec interleave_rows(ra_dtype dtype, const void *const *rows, int count, int n, operand *to,
                           int64_t micro_panel)
{
    if (dtype == RA_BF16) return interleave_as(RA_BF16, rows, count, n, to, micro_panel);
    if (dtype == RA_F16) return interleave_as(RA_F16, rows, count, n, to, micro_panel);
    return interleave_as(RA_F32, rows, count, n, to, micro_panel);
}

static void transpose_rows(ra_dtype dtype, const void *const rows[LANES], int n, operand *to,
                           int64_t stride)
{
    if (dtype == RA_BF16) transpose_as(RA_BF16, rows, n, to, stride);
    else if (dtype == RA_F16) transpose_as(RA_F16, rows, n, to, stride);
    else transpose_as(RA_F32, rows, n, to, stride);
}

/* ---- The rows of a job ----------------------------------------------------------------------- */

static inline const void *query_at(const struct ra__view *view, const struct ra__matrix *from,
                                   int64_t i, int h)
{
    return element(view->shape->dtype, from->data, i * from->row_stride + h * from->head_stride);
}

static const void *query_row(const struct ra__view *view, const struct ra__matrix *from, int row)
{
    return query_at(view, from, row / view->heads, row % view->heads);
}

/* A row of a tensor to operands in row order; zeros if row is NULL. */
static inline vec pack_row(ra_dtype dtype, const void *row, int n, operand *to)
{
    vec watched = vec_zero();
    for (int at = 0; at * SPAN < n; at++, to += LANES) {
        vec x = line_at(dtype, row, at, n);
        watched = watch(watched, x);
        operand_store(to, x);
    }
    return watched;
}

/* The query rows of a job, or tensors of that shape, in row order: [rows][grains(n)]. Zeros up to a
 * multiple of `multiple` rows. */
static vec pack_rows(const struct ra__view *view, const struct ra__matrix *from, int n,
                     int multiple, operand *to)
{
    const ra_dtype dtype = view->shape->dtype;
    vec watched = vec_zero();
    for (int64_t i = 0; i < view->q_count; i++)
        for (int h = 0; h < view->heads; h++, to += operands(n)) {
            if (i + PREFETCH_ROWS < view->q_count)
                prefetch_row(dtype, query_at(view, from, i + PREFETCH_ROWS, h), n);
            watched = vec_add(watched, pack_row(dtype, query_at(view, from, i, h), n, to));
        }
    for (int64_t row = view->q_count * view->heads; row % multiple != 0; row++, to += operands(n))
        pack_row(dtype, NULL, n, to);
    return watched;
}

/* The stride, in operands, of `rows` rows transposed. An odd number of vectors, to avoid cache
 * conflicts. */
static inline int64_t transposed_row(int64_t rows)
{
    return ((rows + SPAN - 1) / SPAN | 1) * LANES;
}

/* Transposes what pack_rows() made of rows of n numbers: [padded(n)][stride], interleaved. */
static void transpose_queries(const operand *from, int rows, int n, int64_t stride, operand *to)
{
    const ra_dtype dtype = PER_OPERAND == 1 ? RA_F32 : RA_BF16; /* of the packed rows */
    for (int row = 0; row < rows; row += SPAN) {
        const void *numbers[SPAN];
        for (int r = 0; r < SPAN; r++)
            numbers[r] = row + r < rows ? from + (int64_t)(row + r) * operands(n) : NULL;
        for (int at = 0; at * LANES < n; at++) {
            vec square[LANES];
            for (int i = 0; i < LANES; i++)
                square[i] = interleave_at(dtype, numbers + i * PER_OPERAND, at, padded(n));
            vec_transpose(square);
            for (int i = 0; i < LANES; i++)
                operand_store(to + (at * LANES + i) * stride + row / PER_OPERAND, square[i]);
        }
    }
}

/* ---- The keys of a block --------------------------------------------------------------------- */

/* The address of the key in a column; NULL if no row of the job sees it. */
static inline const void *key_row(ra_dtype dtype, const struct ra__matrix *from,
                                  const struct key_block *block, int column)
{
    const struct ra__key_run *run = block->run;
    if (column < block->seen.from || column >= block->seen.to) return NULL;
    return element(dtype, from->data,
                   (run->token + (block->first + column) * run->token_step) * from->row_stride);
}

static void key_rows(ra_dtype dtype, const struct ra__matrix *from, const struct key_block *block,
                     int column, int count, const void **rows)
{
    for (int i = 0; i < count; i++) rows[i] = key_row(dtype, from, block, column + i);
}

/* The strides of the micro-panels of interleaved keys, and of transposed keys or values of n
 * numbers. */
enum { INTERLEAVED_PANEL = BLOCK / PER_OPERAND * NR };
static inline int64_t transposed_panel(int n) { return (int64_t)operands(n) * NR; }

/* The offset of a column, the first of a vector, in a transposed panel. */
static inline int64_t transposed_at(int column, int n)
{
    return column / NR * transposed_panel(n) + column % NR;
}

/* Interleaves the keys of a block, or their values: the visible columns, and zeros around them up
 * to whole vectors. */
static vec interleave_block(ra_dtype dtype, const struct ra__matrix *from,
                            const struct key_block *block, int n, operand *to)
{
    struct columns all = columns_micro_panels(block->seen);
    const void *rows[BLOCK];
    key_rows(dtype, from, block, all.from, columns_count(all), rows);
    return interleave_rows(dtype, rows, columns_count(all), n, to + all.from / PER_OPERAND * NR,
                           INTERLEAVED_PANEL);
}

/* Transposes the same columns. */
static void transpose_block(ra_dtype dtype, const struct ra__matrix *from,
                            const struct key_block *block, int n, operand *to)
{
    struct columns all = columns_micro_panels(block->seen);
    for (int column = all.from; column < all.to; column += LANES) {
        const void *rows[LANES];
        key_rows(dtype, from, block, column, LANES, rows);
        for (int i = column + PREFETCH_ROWS; i < column + PREFETCH_ROWS + LANES; i++)
            prefetch_row(dtype, key_row(dtype, from, block, i), n);
        transpose_rows(dtype, rows, n, to + transposed_at(column, n), NR);
    }
}

/* The keys after a block: those of the next one, which may be pages apart, are prefetched into the
 * L2 cache while this one is worked on. */
struct prefetch {
    const struct ra__view *view;
    const struct ra__key_run *run;
    int64_t at, end; /* keys of the run still to be prefetched */
};

static struct prefetch prefetch_from(const struct ra__view *view, const struct ra__key_run *run,
                                     int64_t first, int64_t end)
{
    return (struct prefetch){ view, run, first, ra__min(first + BLOCK, end) };
}

/* Prefetches keys until `done` / `all` of them are prefetched. */
static void prefetch_keys(struct prefetch *prefetch, int done, int all)
{
    const struct ra__view *view = prefetch->view;
    const struct ra__shape *shape = view->shape;
    const int64_t left = all > done ? (prefetch->end - prefetch->at) * (all - done) / all : 0;
    for (; prefetch->at < prefetch->end - left; prefetch->at++) {
        int64_t row = prefetch->run->token + prefetch->at * prefetch->run->token_step;
        prefetch_row(shape->dtype, element(shape->dtype, view->k.data, row * view->k.row_stride),
                     shape->dim);
        prefetch_row(shape->dtype, element(shape->dtype, view->v.data, row * view->v.row_stride),
                     shape->value_dim);
    }
}

/* NaN if a transposed panel holds an element that is not finite. */
static vec watch_transposed(const operand *panel, const struct key_block *block, int n)
{
    struct columns all = columns_micro_panels(block->seen);
    vec watched = vec_zero();
    for (int column = all.from; column < all.to; column += LANES)
        for (int at = 0; at < operands(n); at++)
            watched = watch(watched, operand_load(panel + transposed_at(column, n) + at * NR));
    return watched;
}

#endif
