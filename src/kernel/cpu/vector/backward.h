/* backward.h - adds the gradients of the rows of a job and of the keys they see. Written in the
 * words of an ISA's vec.h, on top of gemm.h, exp2.h, rows.h, pack.h and terms.h.
 *
 * A key block is packed once; then GROUP rows at a time take it up. With the scores of forward,
 * s = scale log2(e) q kt:
 *     p  = exp2(s - lse log2(e))      ds = p (dout vt - delta)
 *     dv += pT dout    dk += scale dsT q    dq += scale ds k
 * Terms, where a job has any, change s, dout vt, and then p and ds, a row at a time.
 * Sums run over rows and keys in a fixed order, so the same job gives the same bits. */
#ifndef RA__KERNEL_CPU_VECTOR_BACKWARD_H
#define RA__KERNEL_CPU_VECTOR_BACKWARD_H

#include "kernel/cpu/vector/exp2.h"
#include "kernel/cpu/vector/gemm.h"
#include "kernel/cpu/vector/pack.h"
#include "kernel/cpu/vector/rows.h"
#include "kernel/cpu/vector/terms.h"
#include "kernel/state.h"

/* Rows between two additions to dk and dv. Measured on Zen 4: 96 beat 48 by 1 to 3%; 192 gained
 * nothing more with AVX2 and lost a fifth with AVX-512. */
enum { GROUP = 96 };

struct backward {
    struct ra__backward_job *job;
    int rows, dim, value_dim; /* the dims padded */
    bool finite;              /* all of q and dout */
    bool weightless;          /* some row has an lse of -inf */
    float *q, *dout;          /* [rows][dim]; [rows][value_dim] */
    float *dq;                /* [rows][dim], still without scale */
    float *lse, *delta;       /* [rows]; lse times log2(e) */
    float *k;                 /* [BLOCK][dim] */
    float *v;                 /* [BLOCK][value_dim] */
    float *kt, *vt;           /* [dim][BLOCK], [value_dim][BLOCK] */
    float *dk, *dv;           /* as k, still without ln(2), and v */
    float *p, *ds;            /* [GROUP][BLOCK], first the scores and dout vt */
    struct span *spans;       /* [rows]: what each sees of the run */
    struct lanes *seen;       /* [rows]: and of the block */
    struct terms terms;
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
    b.terms = terms_make(arena, true);
    return b;
}

/* Turns the scores of a row (in p) and dout vt (in ds) into p and ds, over the lanes `all`, whole
 * vectors that hold those the row sees. The others become 0, whatever they were. */
static inline void differentiate_row(const struct backward *b, int row, float *p, float *ds,
                                     struct lanes all)
{
    struct lanes own = b->seen[row], busy = lanes_whole(own);
    vec lse = vec_all(b->lse[row]), delta = vec_all(b->delta[row]);
    for (int i = busy.from; i < busy.to; i += LANES) {
        vec weight = vec_exp2(vec_sub(vec_load(p + i), lse));
        vec_store(p + i, weight);
        vec_store(ds + i, vec_mul(weight, vec_sub(vec_load(ds + i), delta)));
    }
    const struct lanes before = { all.from, own.from }, behind = { own.to, all.to };
    fill(p, before, 0.0f);
    fill(p, behind, 0.0f);
    fill(ds, before, 0.0f);
    fill(ds, behind, 0.0f);
}

/* The same with terms: s to x, dout vt to what is kept of it, then p to what is kept of it and ds by
 * the slope of the cap. Lanes that are hidden become 0, whatever they were. */
static void differentiate_terms(struct backward *b, int row, float *p, float *ds, struct lanes all)
{
    struct terms *t = &b->terms;
    const struct lanes own = b->seen[row];
    term_scores(t, row, own, p);
    if (t->dropout) drop_row(t, row, own, ds);
    differentiate_row(b, row, p, ds, all);
    if (lanes_none(own)) return;
    if (t->dropout) multiply_row(own, t->kept, p);
    if (t->cap != 0.0f) multiply_row(own, t->slope, ds);
    if (!t->added) return;
    clear_hidden(t, own, p);
    clear_hidden(t, own, ds);
}

/* p and ds of `count` rows against the lanes `all` of the packed block. */
static void score_rows(struct backward *b, int row, int count, struct lanes all)
{
    const struct ra__shape *shape = b->job->view.shape;
    gemm(&(struct product){ .m = count,
                            .n = all.to - all.from,
                            .depth = shape->dim,
                            .a = { row_of(b->q, row, b->dim), b->dim, 1 },
                            .b = { b->kt + all.from, BLOCK },
                            .c = { b->p + all.from, BLOCK },
                            .factor = b->terms.factor });
    gemm(&(struct product){ .m = count,
                            .n = all.to - all.from,
                            .depth = shape->value_dim,
                            .a = { row_of(b->dout, row, b->value_dim), b->value_dim, 1 },
                            .b = { b->vt + all.from, BLOCK },
                            .c = { b->ds + all.from, BLOCK },
                            .factor = 1.0f });
    for (int r = 0; r < count; r++) {
        float *p = b->p + r * BLOCK, *ds = b->ds + r * BLOCK;
        if (b->terms.any) differentiate_terms(b, row + r, p, ds, all);
        else differentiate_row(b, row + r, p, ds, all);
    }
}

/* dv += pT dout and dk += dsT q, of `count` rows, for the keys of some lanes. */
static void add_to_keys(const struct backward *b, int row, int count, struct lanes lanes)
{
    int keys = lanes.to - lanes.from;
    gemm(&(struct product){ .m = keys,
                            .n = b->value_dim,
                            .depth = count,
                            .a = { b->p + lanes.from, 1, BLOCK },
                            .b = { row_of(b->dout, row, b->value_dim), b->value_dim },
                            .c = { row_of(b->dv, lanes.from, b->value_dim), b->value_dim },
                            .add = true });
    gemm(&(struct product){ .m = keys,
                            .n = b->dim,
                            .depth = count,
                            .a = { b->ds + lanes.from, 1, BLOCK },
                            .b = { row_of(b->q, row, b->dim), b->dim },
                            .c = { row_of(b->dk, lanes.from, b->dim), b->dim },
                            .add = true });
}

/* dq += ds k, of `count` rows. */
static void add_to_queries(const struct backward *b, int row, int count, struct lanes lanes)
{
    gemm(&(struct product){ .m = count,
                            .n = b->dim,
                            .depth = lanes.to - lanes.from,
                            .a = { b->ds + lanes.from, BLOCK, 1 },
                            .b = { row_of(b->k, lanes.from, b->dim), b->dim },
                            .c = { row_of(b->dq, row, b->dim), b->dim },
                            .add = true });
}

/* Adds what `count` rows, GROUP at most, and the packed block give one another. */
static void differentiate_rows(struct backward *b, int row, int count)
{
    struct lanes hull = lanes_hull(b->seen + row, count);
    if (lanes_none(hull)) return;
    score_rows(b, row, count, lanes_whole(hull));
    add_to_keys(b, row, count, hull);
    add_to_queries(b, row, count, hull);
}

/* The same for one row and a block where something is not finite: over the lanes the row sees and no
 * others, less what terms hide among them. */
static void differentiate_apart(struct backward *b, const struct key_block *block, int row)
{
    const struct ra__view *view = &b->job->view;
    const struct lanes own = b->seen[row];
    if (lanes_none(own)) return;
    score_rows(b, row, 1, lanes_whole(own));
    if (b->terms.any) pack_shown(&b->terms, &view->k, block, own, view->shape->dim, b->k);
    struct lanes shown = shown_lanes(&b->terms, own);
    for (; !lanes_none(shown); shown = shown_lanes(&b->terms, (struct lanes){ shown.to, own.to }))
        add_to_keys(b, row, 1, shown);
    add_to_queries(b, row, 1, own);
}

static void clear_lanes(float *panel, struct lanes lanes, int dim)
{
    size_t count = (size_t)((lanes.to - lanes.from) * dim);
    memset(row_of(panel, lanes.from, dim), 0, sizeof(float) * count);
}

static void load_block(const struct backward *b, const struct key_block *block)
{
    const struct ra__view *view = &b->job->view;
    const struct ra__shape *shape = view->shape;
    pack_block(shape->dtype, &view->k, block, shape->dim, b->k);
    pack_block(shape->dtype, &view->v, block, shape->value_dim, b->v);
    transpose_block(b->k, block, shape->dim, b->kt);
    transpose_block(b->v, block, shape->value_dim, b->vt);
    clear_lanes(b->dk, block->seen, b->dim);
    clear_lanes(b->dv, block->seen, b->value_dim);
}

static void add_block(const struct backward *b, const struct key_block *block)
{
    const struct ra__backward_job *job = b->job;
    const struct ra__shape *shape = job->view.shape;
    for (int lane = block->seen.from; lane < block->seen.to; lane++) {
        int64_t key = block->run->row + (block->first + lane) * block->run->row_step;
        add_scaled(job->dk + key * job->dk_row_stride, shape->scale, row_of(b->dk, lane, b->dim),
                   shape->dim);
        add_scaled(job->dv + key * job->dv_row_stride, 1.0f, row_of(b->dv, lane, b->value_dim),
                   shape->value_dim);
    }
}

/* Infinite or NaN numbers must not meet the weight 0 of a pair that is not seen: then rows come one
 * by one. */
static void differentiate_block(struct backward *b, const struct key_block *block)
{
    const struct ra__shape *shape = b->job->view.shape;
    load_block(b, block);
    bool finite = b->finite && block_finite(b->k, block, shape->dim) &&
                  block_finite(b->v, block, shape->value_dim);
    for (int row = 0; row < b->rows && finite; row += GROUP)
        differentiate_rows(b, row, (int)ra__min(GROUP, b->rows - row));
    for (int row = 0; row < b->rows && !finite; row++) differentiate_apart(b, block, row);
    add_block(b, block);
}

/* Rows that have no weights see nothing of a block; they were counted as pairs all the same. */
static void leave_weightless(const struct backward *b, struct key_block *block)
{
    for (int row = 0; row < b->rows; row++)
        if (b->lse[row] == -INFINITY) b->seen[row] = (struct lanes){ 0, 0 };
    block->seen = lanes_hull(b->seen, b->rows);
}

static void differentiate_run(struct backward *b, const struct ra__key_run *run)
{
    struct span hull = clip_rows(&b->job->view, run, b->spans, &b->job->pairs);
    for (int64_t first = ra__block_first(run, hull.from, BLOCK); first < hull.to; first += BLOCK) {
        struct key_block block = see_block(run, first, b->spans, b->rows, b->seen);
        if (b->terms.any) terms_see(&b->terms, &block, b->seen, &b->job->pairs);
        if (b->weightless) leave_weightless(b, &block);
        if (!lanes_none(block.seen)) differentiate_block(b, &block);
        ra__breathe(&b->job->view);
    }
}

static void load_rows(struct backward *b)
{
    const struct ra__backward_job *job = b->job;
    const struct ra__view *view = &job->view;
    pack_rows(view, &view->q, view->shape->dim, b->q);
    pack_rows(view, &job->dout, view->shape->value_dim, b->dout);
    for (int row = 0; row < b->rows; row++) {
        int64_t i = row / view->heads, h = row % view->heads;
        b->lse[row] = job->lse.data[i * job->lse.row_stride + h] * (float)RA__LOG2_E;
        b->delta[row] = job->delta.data[i * job->delta.row_stride + h];
        b->weightless |= b->lse[row] == -INFINITY;
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
    terms_begin(&b.terms, view);
    load_rows(&b);
    for (int n = 0; n < view->run_count; n++) differentiate_run(&b, &view->runs[n]);
    for (int row = 0; row < b.rows; row++)
        add_scaled(job->dq + row / view->heads * job->dq_row_stride +
                       row % view->heads * shape->dim,
                   shape->scale, row_of(b.dq, row, b.dim), shape->dim);
}

#endif
