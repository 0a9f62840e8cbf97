/* backward.h - adds the gradients of the rows of a job and of the keys they see. Written in the words
 * of an ISA's vec.h, on top of gemm.h, exp2.h, rows.h and pack.h.
 *
 * A key block is packed once; then GROUP rows at a time take it up. With q' = q scale log2(e) and
 * scores s = q' kt as in forward:
 *     p  = exp2(s - lse log2(e))      ds = p (dout vt - delta)
 *     dv += pT dout    dk += ln(2) dsT q'  (= scale dsT q)    dq += scale ds k
 * Sums run over rows and keys in a fixed order, so the same job gives the same bits. */
#ifndef RA__KERNEL_CPU_VECTOR_BACKWARD_H
#define RA__KERNEL_CPU_VECTOR_BACKWARD_H

#include "kernel/cpu/vector/exp2.h"
#include "kernel/cpu/vector/gemm.h"
#include "kernel/cpu/vector/pack.h"
#include "kernel/cpu/vector/rows.h"
#include "kernel/state.h"

/* Rows between two additions to dk and dv: enough to make those rare, few enough that p and ds
 * (GROUP x BLOCK each) stay in the first-level cache. */
enum { GROUP = 48 };

struct backward {
    struct ra__backward_job *job;
    int rows, dim, value_dim; /* the dims padded */
    bool finite;              /* all of q and dout */
    float *q, *dout;          /* [rows][dim], times scale log2(e); [rows][value_dim] */
    float *dq;                /* [rows][dim], still without scale */
    float *lse, *delta;       /* [rows]; lse times log2(e) */
    float *k;                 /* [BLOCK][dim] */
    float *v;                 /* [BLOCK][value_dim] */
    float *kt, *vt;           /* [dim][BLOCK], [value_dim][BLOCK] */
    float *dk, *dv;           /* as k, still without ln(2), and v */
    float *p, *ds;            /* [GROUP][BLOCK], first the scores and dout vt */
    struct span *spans;       /* [rows]: what each sees of the run */
    struct lanes *seen;       /* [rows]: and of the block */
};

static struct backward backward_make(const struct ra__shape *shape, struct arena *arena)
{
    struct backward b = { .dim = padded(shape->dim), .value_dim = padded(shape->value_dim) };
    b.q = carve(arena, ROWS * b.dim, sizeof(float));
    b.dout = carve(arena, ROWS * b.value_dim, sizeof(float));
    b.dq = carve(arena, ROWS * b.dim, sizeof(float));
    b.lse = carve(arena, ROWS, sizeof(float));
    b.delta = carve(arena, ROWS, sizeof(float));
    b.k = carve(arena, BLOCK * b.dim, sizeof(float));
    b.v = carve(arena, BLOCK * b.value_dim, sizeof(float));
    b.kt = carve(arena, BLOCK * b.dim, sizeof(float));
    b.vt = carve(arena, BLOCK * b.value_dim, sizeof(float));
    b.dk = carve(arena, BLOCK * b.dim, sizeof(float));
    b.dv = carve(arena, BLOCK * b.value_dim, sizeof(float));
    b.p = carve(arena, GROUP * BLOCK, sizeof(float));
    b.ds = carve(arena, GROUP * BLOCK, sizeof(float));
    b.spans = carve(arena, ROWS, sizeof(struct span));
    b.seen = carve(arena, ROWS, sizeof(struct lanes));
    return b;
}

/* Turns the scores of a row (in p) and dout vt (in ds) into p and ds, over the lanes `all`, whole
 * vectors that hold those the row sees. The others become 0, whatever they were. */
static void differentiate_row(const struct backward *b, int row, float *p, float *ds,
                              struct lanes all)
{
    struct lanes own = b->seen[row];
    struct lanes busy = lanes_none(own) ? (struct lanes){ all.from, all.from } : lanes_whole(own);
    vec lse = vec_all(b->lse[row]), delta = vec_all(b->delta[row]);
    for (int i = busy.from; i < busy.to; i += LANES) {
        vec weight = vec_exp2(vec_sub(vec_load(p + i), lse));
        vec_store(p + i, weight);
        vec_store(ds + i, vec_mul(weight, vec_sub(vec_load(ds + i), delta)));
    }
    for (int i = all.from; i < all.to; i++)
        if (i < own.from || i >= own.to) p[i] = ds[i] = 0.0f;
}

/* p and ds of `count` rows against the lanes `all` of the packed block. */
static void score_rows(const struct backward *b, int row, int count, struct lanes all)
{
    const struct ra__shape *shape = b->job->view.shape;
    gemm(&(struct product){
        .m = count, .n = all.to - all.from, .depth = shape->dim,
        .a = b->q + (int64_t)row * b->dim, .a_row = b->dim, .a_step = 1,
        .b = b->kt + all.from, .b_row = BLOCK,
        .c = b->p + all.from, .c_row = BLOCK });
    gemm(&(struct product){
        .m = count, .n = all.to - all.from, .depth = shape->value_dim,
        .a = b->dout + (int64_t)row * b->value_dim, .a_row = b->value_dim, .a_step = 1,
        .b = b->vt + all.from, .b_row = BLOCK,
        .c = b->ds + all.from, .c_row = BLOCK });
    for (int r = 0; r < count; r++)
        differentiate_row(b, row + r, b->p + r * BLOCK, b->ds + r * BLOCK, all);
}

/* Adds what `count` rows, GROUP at most, and the packed block give one another. */
static void differentiate_rows(const struct backward *b, int row, int count)
{
    struct lanes hull = lanes_hull(b->seen + row, count);
    if (lanes_none(hull)) return;
    int keys = hull.to - hull.from;
    score_rows(b, row, count, lanes_whole(hull));
    gemm(&(struct product){
        .m = keys, .n = b->value_dim, .depth = count,
        .a = b->p + hull.from, .a_row = 1, .a_step = BLOCK,
        .b = b->dout + (int64_t)row * b->value_dim, .b_row = b->value_dim,
        .c = b->dv + (int64_t)hull.from * b->value_dim, .c_row = b->value_dim, .add = true });
    gemm(&(struct product){
        .m = keys, .n = b->dim, .depth = count,
        .a = b->ds + hull.from, .a_row = 1, .a_step = BLOCK,
        .b = b->q + (int64_t)row * b->dim, .b_row = b->dim,
        .c = b->dk + (int64_t)hull.from * b->dim, .c_row = b->dim, .add = true });
    gemm(&(struct product){
        .m = count, .n = b->dim, .depth = keys,
        .a = b->ds + hull.from, .a_row = BLOCK, .a_step = 1,
        .b = b->k + (int64_t)hull.from * b->dim, .b_row = b->dim,
        .c = b->dq + (int64_t)row * b->dim, .c_row = b->dim, .add = true });
}

static void pack_key_block(const struct backward *b, const struct ra__key_run *run, int64_t first)
{
    const struct ra__view *view = &b->job->view;
    const struct ra__shape *shape = view->shape;
    pack_block(shape->dtype, &view->k, run, first, shape->dim, b->k);
    pack_block(shape->dtype, &view->v, run, first, shape->value_dim, b->v);
    transpose_block(b->k, shape->dim, b->kt);
    transpose_block(b->v, shape->value_dim, b->vt);
    memset(b->dk, 0, sizeof(float) * BLOCK * (size_t)b->dim);
    memset(b->dv, 0, sizeof(float) * BLOCK * (size_t)b->value_dim);
}

static void add_key_block(const struct backward *b, const struct ra__key_run *run, int64_t first)
{
    const struct ra__backward_job *job = b->job;
    const struct ra__shape *shape = job->view.shape;
    struct lanes hull = lanes_hull(b->seen, b->rows);
    for (int lane = hull.from; lane < hull.to; lane++) {
        int64_t key = run->row + (first + lane) * run->row_step;
        add_scaled(job->dk + key * job->dk_row_stride, (float)RA__LN_2, b->dk + (int64_t)lane * b->dim,
                   shape->dim);
        add_scaled(job->dv + key * job->dv_row_stride, 1.0f, b->dv + (int64_t)lane * b->value_dim,
                   shape->value_dim);
    }
}

/* Infinite or NaN numbers must not meet the weight 0 of a pair that is not seen: then rows come one by
 * one, over the lanes each sees and no others. */
static void differentiate_block(const struct backward *b, const struct ra__key_run *run, int64_t first)
{
    pack_key_block(b, run, first);
    bool finite = b->finite && all_finite(b->k, (int64_t)BLOCK * b->dim) &&
                  all_finite(b->v, (int64_t)BLOCK * b->value_dim);
    int step = finite ? GROUP : 1;
    for (int row = 0; row < b->rows; row += step)
        differentiate_rows(b, row, (int)ra__min(step, b->rows - row));
    add_key_block(b, run, first);
}

static void differentiate_run(struct backward *b, const struct ra__key_run *run)
{
    struct span hull = clip_rows(&b->job->view, run, b->spans, &b->job->pairs);
    for (int row = 0; row < b->rows; row++)
        if (b->lse[row] == -INFINITY) b->spans[row] = (struct span){ 0, 0 }; /* no weights */
    for (int64_t first = ra__block_first(run, hull.from, BLOCK); first < hull.to; first += BLOCK)
        if (see_block(b->spans, b->rows, first, b->seen)) differentiate_block(b, run, first);
}

static void load_rows(struct backward *b)
{
    const struct ra__backward_job *job = b->job;
    const struct ra__view *view = &job->view;
    pack_rows(view, &view->q, view->shape->dim, b->q);
    scale_row(b->q, view->shape->scale * (float)RA__LOG2_E, b->rows * b->dim);
    pack_rows(view, &job->dout, view->shape->value_dim, b->dout);
    for (int row = 0; row < b->rows; row++) {
        int64_t i = row / view->heads, h = row % view->heads;
        b->lse[row] = job->lse.data[i * job->lse.row_stride + h] * (float)RA__LOG2_E;
        b->delta[row] = job->delta.data[i * job->delta.row_stride + h];
    }
    b->finite = all_finite(b->q, (int64_t)b->rows * b->dim) &&
                all_finite(b->dout, (int64_t)b->rows * b->value_dim);
    memset(b->dq, 0, sizeof(float) * (size_t)b->rows * (size_t)b->dim);
}

static void backward(struct ra__backward_job *job, void *workspace)
{
    const struct ra__view *view = &job->view;
    const struct ra__shape *shape = view->shape;
    struct backward b = backward_make(shape, &(struct arena){ .base = workspace });
    b.job = job;
    b.rows = (int)view->q_count * view->heads;
    load_rows(&b);
    for (int n = 0; n < view->run_count; n++) differentiate_run(&b, &view->runs[n]);
    for (int row = 0; row < b.rows; row++)
        add_scaled(job->dq + row / view->heads * job->dq_row_stride + row % view->heads * shape->dim,
                   shape->scale, b.dq + (int64_t)row * b.dim, shape->dim);
}

#endif
