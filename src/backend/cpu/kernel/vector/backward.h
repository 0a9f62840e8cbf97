/* SPDX-License-Identifier: Apache-2.0 */
/* backward.h - adds the gradients of the query rows of a job and of the keys they see. Written
 * with the operations of an ISA's vec.h and the operands of operand_*.h, on top of gemm.h, exp2.h,
 * rows.h, pack.h and terms.h.
 *
 * A key block is packed once; then GROUP query rows at a time use it. With the scores of forward,
 * s = q kt:
 *     p  = exp2(factor s - lse log2(e))      ds = p (dout vt - delta)
 *     dvT += doutT p    dkT += scale qT ds    dq += scale ds k
 * The gradients of keys are summed transposed: so every product reads rows on the left, and
 * operands interleaved from several rows on the right. Terms, if a job has any, change s, dout vt,
 * and then p and ds, one row at a time. Sums run over rows and keys in a fixed order, so the same
 * job gives the same bits. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_BACKWARD_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_BACKWARD_H

#include "backend/cpu/kernel/vector/exp2.h"
#include "backend/cpu/kernel/vector/pack.h"
#include "backend/cpu/kernel/vector/rows.h"
#include "backend/cpu/kernel/vector/terms.h"
#include "backend/cpu/kernel/lse.h"
#include "core/state.h"

/* Rows between two additions to dk and dv. Measured on Zen 4: 96 beat 48 by 1 to 3%; 192 gained
 * nothing more with AVX2 and lost a fifth with AVX-512. */
enum { GROUP = 96 };

/* The workspace of one job. Its fields are many because an array that several products read is
 * there in the layout of each: rows, transposed, interleaved. */
struct backward {
    struct ra__backward_job *job;
    int rows, dim, value_dim; /* the dims, padded */
    bool finite;              /* all elements of q and dout */
    bool weightless;          /* some row has no weights: shift = inf */
    operand *q, *dout;        /* rows: [rows][grains(dim)]; [rows][grains(value_dim)] */
    int64_t transposed;       /* operands in a row of: */
    operand *qt, *doutt;      /* transposed: [dim][turned]; [value_dim][turned] */
    float *dq;                /* [rows][dim], not yet scaled */
    float *shift, *delta;     /* [rows]; shift = 1/2 - lse log2(e) */
    operand *k;               /* interleaved, in micro-panels */
    operand *kt, *vt;         /* transposed, in micro-panels */
    float *dkt, *dvt;         /* transposed: [dim][LINE], not yet scaled, and [value_dim][LINE] */
    float *s, *dp;            /* [GROUP][LINE]: s and dout vt, then p and ds */
    /* interleaved; the same memory if it fits, otherwise in micro-panels */
    operand *p, *ds;
    operand *ds_rows;     /* rows: [GROUP][OPERAND_LINE]; likewise */
    struct span *spans;   /* [rows]: the keys of the run that each row sees */
    struct columns *seen; /* [rows]: the columns of the block that each row sees */
    struct terms terms;
};

static struct backward backward_make(const struct ra__shape *shape, struct ra__extent most,
                                     struct arena *arena)
{
    const int64_t rows = ra__min(most.rows, BACKWARD_ROWS), group = ra__min(rows, GROUP);
    struct backward b = { .dim = padded(shape->dim), .value_dim = padded(shape->value_dim) };
    const int dim = operands(shape->dim), value_dim = operands(shape->value_dim);
    b.q = reserve(arena, (rows + GEMM_PAD) * dim, sizeof(operand));
    b.dout = reserve(arena, (rows + GEMM_PAD) * value_dim, sizeof(operand));
    b.transposed = transposed_row(rows);
    b.qt = reserve(arena, b.dim * b.transposed, sizeof(operand));
    b.doutt = reserve(arena, b.value_dim * b.transposed, sizeof(operand));
    b.dq = reserve(arena, rows * b.dim, sizeof(float));
    b.shift = reserve(arena, rows, sizeof(float));
    b.delta = reserve(arena, rows, sizeof(float));
    b.k = reserve(arena, BLOCK / PER_OPERAND * in_micro_panels(b.dim), sizeof(operand));
    b.kt = reserve(arena, BLOCK * dim, sizeof(operand));
    b.vt = reserve(arena, BLOCK * value_dim, sizeof(operand));
    b.dkt = reserve(arena, LINE * b.dim, sizeof(float));
    b.dvt = reserve(arena, LINE * b.value_dim, sizeof(float));
    b.s = reserve(arena, group * LINE, sizeof(float));
    b.dp = reserve(arena, group * LINE, sizeof(float));
    const bool fits = PER_OPERAND == 1;
    b.p = fits ? (void *)b.s : reserve(arena, GROUP * BLOCK / PER_OPERAND, sizeof(operand));
    b.ds = fits ? (void *)b.dp : reserve(arena, GROUP * BLOCK / PER_OPERAND, sizeof(operand));
    b.ds_rows = fits ? (void *)b.dp : reserve(arena, GROUP * OPERAND_LINE, sizeof(operand));
    b.spans = reserve(arena, rows, sizeof(struct span));
    b.seen = reserve(arena, rows, sizeof(struct columns));
    b.terms = terms_make(arena, rows, true);
    return b;
}

/* ---- Weights and their gradients ------------------------------------------------------------- */

/* The numbers that turn a row's scores and dout vt into p and ds. */
struct slope {
    vec factor, shift, delta;
};

static inline struct slope slope_of(const struct backward *b, int row)
{
    return (struct slope){ vec_all(b->terms.rest), vec_all(b->shift[row]), vec_all(b->delta[row]) };
}

static inline void differentiate(const struct slope *slope, vec *p, vec *ds)
{
    *p = vec_exp2_up(vec_fma(*p, slope->factor, slope->shift));
    *ds = vec_mul(*p, vec_sub(*ds, slope->delta));
}

/* Replaces the scores of a row (in p) by p, and dout vt (in ds) by ds, over the columns `all`:
 * whole vectors that include those the row sees. The other columns become 0, whatever they held. */
static inline void differentiate_row(const struct backward *b, int row, float *p, float *ds,
                                     struct columns all)
{
    struct columns own = b->seen[row], busy = columns_whole(own);
    const struct slope slope = slope_of(b, row);
    for (int i = busy.from; i < busy.to; i += LANES) {
        vec x = vec_load(p + i), dx = vec_load(ds + i);
        differentiate(&slope, &x, &dx);
        vec_store(p + i, x);
        vec_store(ds + i, dx);
    }
    const struct columns before = { all.from, own.from }, after = { own.to, all.to };
    fill(p, before, 0.0f);
    fill(p, after, 0.0f);
    fill(ds, before, 0.0f);
    fill(ds, after, 0.0f);
}

/* The same with terms: s becomes x, dout vt is scaled by the dropout of each weight, then p too,
 * and ds by the slope of the softcap. Hidden columns become 0, whatever they held. */
static void differentiate_terms(struct backward *b, int row, float *p, float *ds,
                                struct columns all)
{
    struct terms *t = &b->terms;
    const struct columns own = b->seen[row];
    term_scores(t, row, own, p);
    if (t->dropout) drop_row(t, row, own, ds);
    differentiate_row(b, row, p, ds, all);
    if (columns_none(own)) return;
    if (t->dropout) multiply_row(own, t->kept, p);
    if (t->cap != 0.0f) multiply_row(own, t->slope, ds);
    if (!t->added) return;
    clear_hidden(t, own, p);
    clear_hidden(t, own, ds);
}

/* s and dout vt of `count` rows against the columns `all` of the packed block. */
static void score_rows(struct backward *b, int row, int count, struct columns all)
{
    const struct ra__shape *shape = b->job->view.shape;
    const int dim = operands(shape->dim), value_dim = operands(shape->value_dim);
    gemm(&(struct product){
        .m = count,
        .n = columns_count(all),
        .depth = depth_of(shape->dim),
        .a = { b->q + (int64_t)row * dim, dim },
        .b = { b->kt + transposed_at(all.from, shape->dim), NR, transposed_panel(shape->dim) },
        .c = { b->s + all.from, LINE } });
    gemm(&(struct product){ .m = count,
                            .n = columns_count(all),
                            .depth = depth_of(shape->value_dim),
                            .a = { b->dout + (int64_t)row * value_dim, value_dim },
                            .b = { b->vt + transposed_at(all.from, shape->value_dim), NR,
                                   transposed_panel(shape->value_dim) },
                            .c = { b->dp + all.from, LINE } });
}

/* Row r of a group, row `row` of the job: p and ds replace s and dout vt. */
static void weigh_row_of(struct backward *b, int row, int r, struct columns all)
{
    float *p = b->s + r * LINE, *ds = b->dp + r * LINE;
    if (b->terms.any) differentiate_terms(b, row, p, ds, all);
    else differentiate_row(b, row, p, ds, all);
}

enum { GROUP_STRIP = GROUP / PER_OPERAND * NR };

/* The offset of the vector at column `column` of rows r to r + PER_OPERAND in an interleaved
 * group. */
static inline int64_t interleaved_in_group(int r, int column)
{
    return column / NR * GROUP_STRIP + r / PER_OPERAND * NR + column % NR;
}

/* Interleaves PER_OPERAND rows of a group, from r on, for the products. `count` of them exist; the
 * others are zeros. `slope` says how to weigh them first, so that p and ds in f32 go through no
 * memory; NULL: they are weighed already. */
static inline __attribute__((always_inline)) void grind(const struct backward *b, int r,
                                                        const int count, const struct slope *slope,
                                                        struct columns all)
{
    for (int i = all.from; i < all.to; i += SPAN) {
        vec ds_rows[PER_OPERAND][PER_OPERAND]; /* [row][vector] */
        for (int n = 0; n < PER_OPERAND; n++) {
            const int column = i + n * LANES;
            vec p[PER_OPERAND], ds[PER_OPERAND];
            for (int g = 0; g < PER_OPERAND; g++) {
                p[g] = g < count ? vec_load(b->s + (r + g) * LINE + column) : vec_zero();
                ds[g] = g < count ? vec_load(b->dp + (r + g) * LINE + column) : vec_zero();
                if (slope) differentiate(&slope[g], &p[g], &ds[g]);
                ds_rows[g][n] = ds[g];
            }
            operand_store(b->p + interleaved_in_group(r, column), operand_interleave(p));
            operand_store(b->ds + interleaved_in_group(r, column), operand_interleave(ds));
        }
        for (int g = 0; g < count; g++)
            operand_store(b->ds_rows + (r + g) * OPERAND_LINE + i / PER_OPERAND,
                          operand_row(ds_rows[g]));
    }
}

static bool sees_all(const struct backward *b, int row, struct columns all)
{
    return b->seen[row].from <= all.from && b->seen[row].to >= all.to;
}

/* p and ds of PER_OPERAND rows of a group, of which `count` exist: in one pass if they see all
 * columns. */
static void weigh_grain(struct backward *b, int row, int r, int count, struct columns all)
{
    struct slope slope[PER_OPERAND];
    bool whole = count >= PER_OPERAND && !b->terms.any;
    for (int g = 0; g < PER_OPERAND && whole; g++) {
        whole = sees_all(b, row + g, all);
        slope[g] = slope_of(b, row + g);
    }
    if (whole) {
        grind(b, r, PER_OPERAND, slope, all);
        return;
    }
    for (int g = 0; g < PER_OPERAND && g < count; g++) weigh_row_of(b, row + g, r + g, all);
    grind(b, r, count < PER_OPERAND ? count : PER_OPERAND, NULL, all);
}

/* p and ds of `count` rows, and zeros for the rows that pad the depth of a product. If an operand
 * is one number, products use p and ds as they are. */
static void weigh_rows(struct backward *b, int row, int count, struct columns all)
{
    if (PER_OPERAND == 1)
        for (int r = 0; r < count; r++) weigh_row_of(b, row + r, r, all);
    else
        for (int r = 0; r < depth_of(count) * PER_OPERAND; r += PER_OPERAND)
            weigh_grain(b, row + r, r, count - r, all);
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* The columns `all` of p or ds of a group, as the right side of a product. */
static inline struct right interleaved_group(const operand *at, struct columns all)
{
    if (PER_OPERAND == 1) return (struct right){ at + all.from, LINE, NR };
    return (struct right){ at + all.from / NR * GROUP_STRIP, NR, GROUP_STRIP };
}

/* dv += pT dout and dk += dsT q, transposed, of `count` rows. */
static void add_to_keys(const struct backward *b, int row, int count, struct columns all)
{
    const int first = row / PER_OPERAND;
    gemm(&(struct product){ .m = b->value_dim,
                            .n = columns_count(all),
                            .depth = depth_of(count),
                            .a = { b->doutt + first, b->transposed },
                            .b = interleaved_group(b->p, all),
                            .c = { b->dvt + all.from, LINE },
                            .add = true });
    gemm(&(struct product){ .m = b->dim,
                            .n = columns_count(all),
                            .depth = depth_of(count),
                            .a = { b->qt + first, b->transposed },
                            .b = interleaved_group(b->ds, all),
                            .c = { b->dkt + all.from, LINE },
                            .add = true });
}

/* dq += ds k, of `count` rows. */
static void add_to_queries(const struct backward *b, int row, int count, struct columns all)
{
    const int from = all.from / PER_OPERAND;
    gemm(&(struct product){ .m = count,
                            .n = b->dim,
                            .depth = columns_count(all) / PER_OPERAND,
                            .a = { b->ds_rows + from, OPERAND_LINE },
                            .b = { b->k + from * NR, NR, INTERLEAVED_PANEL },
                            .c = { row_of(b->dq, row, b->dim), b->dim },
                            .add = true });
}

/* Adds the gradients of `count` rows, at most GROUP, against the packed block. */
static void differentiate_rows(struct backward *b, int row, int count)
{
    struct columns hull = columns_hull(b->seen + row, count), all = columns_micro_panels(hull);
    if (columns_none(hull)) return;
    score_rows(b, row, count, all);
    weigh_rows(b, row, count, all);
    add_to_keys(b, row, count, all);
    add_to_queries(b, row, count, all);
}

/* The same for one row and a block with an element that is not finite: element by element, over the
 * columns that the row sees, except those that terms hide. */
static void differentiate_apart(struct backward *b, const struct key_block *block, int row)
{
    const struct ra__backward_job *job = b->job;
    const struct ra__view *view = &job->view;
    const struct ra__shape *shape = view->shape;
    const struct columns own = b->seen[row];
    if (columns_none(own)) return;
    score_rows(b, row, 1, columns_micro_panels(own));
    weigh_row_of(b, row, 0, columns_micro_panels(own));
    const void *q = query_row(view, &view->q, row), *dout = query_row(view, &job->dout, row);
    float *dq = row_of(b->dq, row, b->dim);
    for (int column = own.from; column < own.to; column++) {
        if (column_hidden(&b->terms, column)) continue;
        const void *k = key_row(shape->dtype, &view->k, block, column);
        const float p = b->s[column], ds = b->dp[column];
        for (int d = 0; d < shape->value_dim; d++)
            b->dvt[d * LINE + column] += p * ra__load(shape->dtype, dout, d);
        for (int d = 0; d < shape->dim; d++) {
            b->dkt[d * LINE + column] += ds * ra__load(shape->dtype, q, d);
            dq[d] += ds * ra__load(shape->dtype, k, d);
        }
    }
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static void clear_lanes(float *panel, struct columns columns, int dim)
{
    for (int d = 0; d < dim; d++)
        memset(panel + d * LINE + columns.from, 0, sizeof(float) * (size_t)columns_count(columns));
}

/* Returns whether all of it is finite. */
static bool load_block(const struct backward *b, const struct key_block *block)
{
    const struct ra__view *view = &b->job->view;
    const struct ra__shape *shape = view->shape;
    transpose_block(shape->dtype, &view->k, block, shape->dim, b->kt);
    bool finite = all_finite(interleave_block(shape->dtype, &view->k, block, shape->dim, b->k));
    transpose_block(shape->dtype, &view->v, block, shape->value_dim, b->vt);
    finite &= all_finite(watch_transposed(b->vt, block, shape->value_dim));
    clear_lanes(b->dkt, columns_micro_panels(block->seen), b->dim);
    clear_lanes(b->dvt, columns_micro_panels(block->seen), b->value_dim);
    return finite;
}

/* Where the gradients of the key in a column are summed, elements `stride` apart; NULL if no row of
 * the job sees it. */
static inline float *sums_of_key(const struct key_block *block, int column, float *sums,
                                 int64_t stride)
{
    if (column < block->seen.from || column >= block->seen.to) return NULL;
    return sums + (block->run->token + (block->first + column) * block->run->token_step) * stride;
}

/* Adds the visible columns of a transposed panel, times a factor, to the gradients of their keys,
 * which have n elements. */
static void add_turned(const float *panel, const struct key_block *block, int n, float factor,
                       float *sums, int64_t stride)
{
    const struct columns all = columns_whole(block->seen);
    const vec times = vec_all(factor);
    for (int column = all.from; column < all.to; column += LANES) {
        float *to[LANES];
        for (int i = 0; i < LANES; i++) {
            to[i] = sums_of_key(block, column + i, sums, stride);
            prefetch_row(RA_F32, sums_of_key(block, column + LANES + i, sums, stride), n);
        }
        for (int d = 0; d < n; d += LANES) {
            vec square[LANES];
            for (int i = 0; i < LANES; i++) square[i] = vec_load(panel + (d + i) * LINE + column);
            vec_transpose(square);
            for (int i = 0; i < LANES; i++)
                if (to[i]) add_line(to[i] + d, times, square[i], n - d);
        }
    }
}

static void add_block(const struct backward *b, const struct key_block *block)
{
    const struct ra__backward_job *job = b->job;
    const struct ra__shape *shape = job->view.shape;
    add_turned(b->dkt, block, shape->dim, shape->scale, job->dk, job->dk_row_stride);
    add_turned(b->dvt, block, shape->value_dim, 1.0f, job->dv, job->dv_row_stride);
}

/* An infinite or NaN element must not be multiplied by the weight 0 of a hidden pair: then rows are
 * processed one by one. */
static void differentiate_block(struct backward *b, const struct key_block *block)
{
    const unsigned mode = operand_begin();
    bool finite = load_block(b, block) && b->finite;
    for (int row = 0; row < b->rows && finite; row += GROUP)
        differentiate_rows(b, row, (int)ra__min(GROUP, b->rows - row));
    for (int row = 0; row < b->rows && !finite; row++) differentiate_apart(b, block, row);
    add_block(b, block);
    operand_end(mode);
}

/* Rows without weights see nothing of a block; their pairs count all the same. */
static void leave_weightless(const struct backward *b, struct key_block *block)
{
    for (int row = 0; row < b->rows; row++)
        if (b->shift[row] == INFINITY) b->seen[row] = (struct columns){ 0, 0 };
    block->seen = columns_hull(b->seen, b->rows);
}

static void differentiate_run(struct backward *b, const struct ra__key_run *run)
{
    const struct row_block all = { 0, b->rows };
    struct span hull = clip_rows(&b->job->view, run, b->spans, &b->job->pairs);
    for (int64_t first = ra__block_first(run, hull.from, BLOCK); first < hull.to; first += BLOCK) {
        struct key_block block = see_block(run, first, b->spans, all, b->seen);
        if (b->terms.any) terms_see(&b->terms, &block, b->seen, all, &b->job->pairs);
        if (b->weightless) leave_weightless(b, &block);
        if (!columns_none(block.seen)) differentiate_block(b, &block);
        kernel_poll(&b->job->view);
    }
}

static void load_rows(struct backward *b)
{
    const struct ra__backward_job *job = b->job;
    const struct ra__view *view = &job->view;
    vec q = pack_rows(view, &view->q, view->shape->dim, GEMM_PAD, b->q);
    transpose_queries(b->q, b->rows, view->shape->dim, b->transposed, b->qt);
    vec dout = pack_rows(view, &job->dout, view->shape->value_dim, GEMM_PAD, b->dout);
    transpose_queries(b->dout, b->rows, view->shape->value_dim, b->transposed, b->doutt);
    for (int row = 0; row < b->rows; row++) {
        int64_t i = row / view->heads, h = row % view->heads;
        const float lse = job->lse.data[i * job->lse.row_stride + h];
        b->shift[row] = ra__lse_weightless(lse) ? INFINITY : (float)(0.5 - lse * RA__LOG2_E);
        b->delta[row] = job->delta.data[i * job->delta.row_stride + h];
        b->weightless |= b->shift[row] == INFINITY;
    }
    b->finite = all_finite(q) && all_finite(dout);
    memset(b->dq, 0, sizeof(float) * (size_t)b->rows * (size_t)b->dim);
}

/* Where the gradient of a row is summed; NULL after the last row. */
static inline float *sums_of_row(const struct backward *b, int row)
{
    const struct ra__backward_job *job = b->job;
    const int heads = job->view.heads;
    if (row >= b->rows) return NULL;
    return job->dq + row / heads * job->dq_row_stride + row % heads * job->view.shape->dim;
}

/* Adds the gradients of the rows. */
static void add_rows(const struct backward *b)
{
    const struct ra__shape *shape = b->job->view.shape;
    const vec scale = vec_all(shape->scale);
    for (int row = 0; row < b->rows; row++) {
        const float *from = row_of(b->dq, row, b->dim);
        float *to = sums_of_row(b, row);
        prefetch_row(RA_F32, sums_of_row(b, row + PREFETCH_ROWS), shape->dim);
        for (int d = 0; d < shape->dim; d += LANES)
            add_line(to + d, scale, vec_load(from + d), shape->dim - d);
    }
}

static void backward(struct ra__backward_job *job, void *workspace)
{
    const struct ra__view *view = &job->view;
    const struct ra__shape *shape = view->shape;
    struct backward b = backward_make(shape, ra__view_extent(view),
                                      &(struct arena){ .base = workspace });
    b.job = job;
    b.rows = (int)view->q_count * view->heads;
    terms_begin(&b.terms, view);
    load_rows(&b);
    for (int n = 0; n < view->run_count; n++) differentiate_run(&b, &view->runs[n]);
    add_rows(&b);
}

#endif
