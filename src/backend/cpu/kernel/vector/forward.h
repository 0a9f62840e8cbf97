/* SPDX-License-Identifier: Apache-2.0 */
/* forward.h - folds key runs into the running softmax of the query rows of a job. Written with the
 * operations of an ISA's vec.h and the operands of operand_*.h, on top of gemm.h, exp2.h, rows.h,
 * pack.h and terms.h.
 *
 * All rows keep their state in the workspace while the keys pass. A key block is packed once, keys
 * transposed, values interleaved. A row block, as many rows as the L2 cache holds, processes
 * several packed blocks before the next row block does, one row group at a time:
 *     scores = q kt    p = exp2(factor scores - m)    acc += p v
 * Terms, if a job has any, come after the scores, dropout after p and its sum. The sum is of p in
 * f32, whatever the operands are, so the LSE has full precision.
 * The result of a row depends on its visible columns only: hidden columns have weight exactly 0,
 * and adding zeros changes no bit, so the other rows may see more or less. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_FORWARD_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_FORWARD_H

#include "backend/cpu/kernel/vector/exp2.h"
#include "backend/cpu/kernel/vector/pack.h"
#include "backend/cpu/kernel/vector/rows.h"
#include "backend/cpu/kernel/vector/terms.h"
#include "backend/cpu/kernel/vector/thin.h"
#include "backend/cpu/kernel/vector/wide.h"
#include "core/state.h"

enum {
    PANELS = 4, /* blocks that stay packed until all row blocks have used them */
    FORWARD_ROWS = ROW_BLOCKS * ROW_BLOCK, /* most rows of a job */
};

/* A packed key block, with the columns that any row of the job sees. */
struct panel {
    struct key_block block; /* run is NULL if nothing is packed */
    bool finite;            /* all values that were packed are finite */
    operand *kt;            /* transposed, in micro-panels */
    operand *v;             /* interleaved, in micro-panels */
};

struct forward {
    struct ra__forward_job *job;
    int rows, value_dim; /* value_dim padded */
    int group_rows;      /* rows of a row group */
    operand *q;          /* rows: [rows][grains(dim)] */
    float *m, *l;        /* [rows] */
    float *acc;          /* [rows][value_dim] */
    float *sums;         /* of several KV heads in a block: [WIDE_ROWS][value_dim] */
    float *scores;       /* [GEMM_ROWS, or as many][LINE] */
    operand *p; /* rows: [GEMM_ROWS, or as many][OPERAND_LINE]; the same memory if it fits */
    struct span *spans;   /* [rows]: the keys of the run that each row sees */
    struct columns *seen; /* [rows]: the columns of the block that each row sees */
    struct panel panels[PANELS];
    struct panel *panel; /* the one in use */
    struct prefetch prefetch;
    struct terms terms;
};

/* Blocks that stay packed at a time: one row block needs one, and a run has no more than its length
 * allows, wherever it starts. */
static inline int64_t panels_for(struct ra__extent most)
{
    return most.rows > ROW_BLOCK ? ra__min(PANELS, (most.keys + BLOCK - 2) / BLOCK + 1) : 1;
}

static struct forward forward_make(const struct ra__shape *shape, struct ra__extent most,
                                   struct arena *arena)
{
    const int64_t rows = ra__min(most.rows, FORWARD_ROWS);
    const int64_t together = wide(shape) ? ra__min(rows, WIDE_ROWS)
                                         : 0; /* rows of several KV heads */
    const int64_t lines = ra__max(GEMM_ROWS, together);
    struct forward f = { .value_dim = padded(shape->value_dim) };
    f.q = reserve(arena, (rows + GEMM_PAD) * operands(shape->dim), sizeof(operand));
    f.m = reserve(arena, rows, sizeof(float));
    f.l = reserve(arena, rows, sizeof(float));
    f.acc = reserve(arena, rows * f.value_dim, sizeof(float));
    f.sums = reserve(arena, together * f.value_dim, sizeof(float));
    for (int n = 0; n < panels_for(most); n++) {
        f.panels[n].kt = reserve(arena, BLOCK * operands(shape->dim), sizeof(operand));
        f.panels[n].v = reserve(arena, BLOCK / PER_OPERAND * in_micro_panels(f.value_dim),
                                sizeof(operand));
    }
    f.scores = reserve(arena, lines * LINE, sizeof(float));
    f.p = PER_OPERAND == 1 ? (void *)f.scores
                           : reserve(arena, lines * OPERAND_LINE, sizeof(operand));
    f.spans = reserve(arena, rows, sizeof(struct span));
    f.seen = reserve(arena, rows, sizeof(struct columns));
    f.terms = terms_make(arena, rows, false);
    return f;
}

/* ---- The softmax of a row -------------------------------------------------------------------- */

/* The m that weights are relative to, for the largest score of a row so far. In f32 it is that
 * score rounded up to an integer: m rises less often, and rescaling does not round. Weights in bf16
 * need m exact: then the largest weight, often the one that matters, is exactly 1. */
static inline float reference(float largest)
{
    return PER_OPERAND == 1 ? vec_first(vec_ceil(vec_all(largest))) : largest;
}

/* Raises m and rescales the sums so far. */
static void raise_maximum(struct forward *f, int row, float m)
{
    float c = vec_first(vec_exp2(vec_all(f->m[row] - m))); /* 0 where nothing was folded */
    f->m[row] = m;
    f->l[row] *= c;
    scale_row(row_of(f->acc, row, f->value_dim), c, f->value_dim);
}

/* The largest of the columns `all`, whole vectors, or -inf. In four chains, because the latency of
 * a maximum is four times its throughput. */
static inline float largest_of(const float *x, struct columns all)
{
    vec most[4];
    for (int n = 0; n < 4; n++) most[n] = vec_all(-INFINITY);
    int i = all.from;
    for (; i + 4 * LANES <= all.to; i += 4 * LANES)
        for (int n = 0; n < 4; n++) most[n] = vec_max(most[n], vec_load(x + i + n * LANES));
    for (; i < all.to; i += LANES) most[0] = vec_max(most[0], vec_load(x + i));
    return vec_largest(vec_max(vec_max(most[0], most[1]), vec_max(most[2], most[3])));
}

/* Sets the hidden scores of a row to -inf, among the columns `all`, and raises its maximum to the
 * largest of the others. NaN does not raise it; it enters through its weight. */
static void raise_row(struct forward *f, int row, float *x, struct columns all)
{
    fill(x, (struct columns){ all.from, f->seen[row].from }, -INFINITY);
    fill(x, (struct columns){ f->seen[row].to, all.to }, -INFINITY);
    float m = reference(largest_of(x, all) * f->terms.rest);
    if (m > f->m[row]) raise_maximum(f, row, m);
}

/* What is added to scores: 1/2 - m. If the row has seen no scores but -inf, whose weights are 0, m
 * is still -inf and counts as 0; scores that are too large for f32 become NaN. */
static inline float shift_of(float m)
{
    if (m - m == 0.0f) return 0.5f - m;
    return m == -INFINITY ? 0.5f : NAN;
}

/* The weights of SPAN scores, added to one sum for even and one for odd vectors: two chains. */
static inline void weigh(const float *x, vec factor, vec shift, vec p[PER_OPERAND], vec *sum)
{
    for (int g = 0; g < PER_OPERAND; g++) {
        p[g] = vec_exp2_up(vec_fma(vec_load(x + g * LANES), factor, shift));
        sum[g] = vec_add(sum[g], p[g]);
    }
}

/* The factor that scores still need. m is rounded to f32, and beyond 2^26 its neighbours are 8 or
 * more apart. There a score times its factor must be rounded like m before m is subtracted;
 * otherwise weights would be off by powers of two, and end as inf or all 0. */
static inline float apply_factor(const struct forward *f, int row, float *x, struct columns all)
{
    if (fabsf(f->m[row]) < 0x1p26f) return f->terms.rest;
    scale_row(x + all.from, f->terms.rest, columns_count(all));
    return 1.0f;
}

/* Replaces the scores of a row by weights relative to its maximum. */
static void weigh_row(struct forward *f, int row, float *x, operand *to, struct columns all)
{
    const vec factor = vec_all(apply_factor(f, row, x, all));
    const vec shift = vec_all(shift_of(f->m[row]));
    vec sum[2] = { vec_zero(), vec_zero() }, p[PER_OPERAND];
    for (int i = all.from; i < all.to; i += SPAN) {
        weigh(x + i, factor, shift, p, sum);
        operand_store(to + i / PER_OPERAND, operand_row(p));
    }
    f->l[row] += vec_sum(vec_add(sum[0], sum[1]));
}

/* The same, with dropout. */
static void weigh_and_drop(struct forward *f, int row, float *x, operand *to, struct columns all)
{
    const vec factor = vec_all(apply_factor(f, row, x, all));
    const vec shift = vec_all(shift_of(f->m[row]));
    vec sum[2] = { vec_zero(), vec_zero() }, p[PER_OPERAND];
    for (int i = all.from; i < all.to; i += SPAN) {
        weigh(x + i, factor, shift, p, sum);
        for (int g = 0; g < PER_OPERAND; g++) vec_store(x + i + g * LANES, p[g]);
    }
    f->l[row] += vec_sum(vec_add(sum[0], sum[1]));
    drop_row(&f->terms, row, f->seen[row], x);
    line_up(x, all, to);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* A row group and the columns that any of its rows sees. */
struct row_group {
    int row, count;
    struct columns hull, all; /* all: extended to whole vectors */
};

static struct row_group row_group_at(const struct forward *f, int row, int count)
{
    struct row_group g = { row, count, columns_hull(f->seen + row, count), { 0, 0 } };
    if (!columns_none(g.hull)) g.all = columns_micro_panels(g.hull);
    return g;
}

/* scores = q kt */
static void score_group(const struct forward *f, const struct row_group *g)
{
    const int dim = f->job->view.shape->dim;
    gemm(&(struct product){
        .m = g->count,
        .n = columns_count(g->all),
        .depth = depth_of(dim),
        .a = { f->q + (int64_t)g->row * operands(dim), operands(dim) },
        .b = { f->panel->kt + transposed_at(g->all.from, dim), NR, transposed_panel(dim) },
        .c = { f->scores + g->all.from, LINE } });
}

/* Scores to weights, in two passes: the maxima of several rows overlap, and so do their weights. */
static void weigh_group(struct forward *f, const struct row_group *g)
{
    for (int r = 0; r < g->count; r++) {
        const int row = g->row + r;
        float *x = f->scores + r * LINE;
        if (f->terms.any) term_scores(&f->terms, row, f->seen[row], x);
        raise_row(f, row, x, g->all);
    }
    for (int r = 0; r < g->count; r++) {
        float *x = f->scores + r * LINE;
        operand *p = f->p + r * OPERAND_LINE;
        if (f->terms.dropout) weigh_and_drop(f, g->row + r, x, p, g->all);
        else weigh_row(f, g->row + r, x, p, g->all);
    }
}

/* acc += p v */
static void gather_group(const struct forward *f, const struct row_group *g)
{
    const struct columns hull = GEMM_DEPTH > 1 ? g->all : g->hull;
    const int from = hull.from / PER_OPERAND, to = (hull.to + PER_OPERAND - 1) / PER_OPERAND;
    gemm(&(struct product){ .m = g->count,
                            .n = f->value_dim,
                            .depth = to - from,
                            .a = { f->p + from, OPERAND_LINE },
                            .b = { f->panel->v + from * NR, NR, INTERLEAVED_PANEL },
                            .c = { row_of(f->acc, g->row, f->value_dim), f->value_dim },
                            .add = true });
}

/* An infinite or NaN value must not be multiplied by the weight 0 of a row that does not see it:
 * then rows are folded one by one, each with its own values, zeros in place of the hidden ones. */
static void fold_row_by_row(struct forward *f, struct row_block row_block)
{
    const struct ra__view *view = &f->job->view;
    const struct panel *panel = f->panel;
    for (int row = row_block.row; row < row_block.end; row++) {
        struct row_group g = row_group_at(f, row, 1);
        if (columns_none(g.hull)) continue;
        score_group(f, &g);
        weigh_group(f, &g);
        interleave_visible(&f->terms, &view->v, &panel->block, f->seen[row], view->shape->value_dim,
                           panel->v);
        gather_group(f, &g);
    }
}

static void fold_groups(struct forward *f, struct row_block row_block)
{
    for (int row = row_block.row; row < row_block.end; row += f->group_rows) {
        struct row_group g = row_group_at(f, row, (int)ra__min(f->group_rows, row_block.end - row));
        prefetch_keys(&f->prefetch, row + f->group_rows - row_block.row,
                      row_block.end - row_block.row);
        if (columns_none(g.hull)) continue;
        score_group(f, &g);
        weigh_group(f, &g);
        gather_group(f, &g);
    }
}

/* The row block that starts at `row`. */
static inline struct row_block row_block_at(int row, int rows)
{
    return (struct row_block){ row, (int)ra__min(row + ROW_BLOCK, rows) };
}

static inline bool panel_holds(const struct panel *panel, const struct ra__key_run *run,
                               int64_t first)
{
    return panel->block.run == run && panel->block.first == first;
}

/* Packs the keys of a block that any row of the job sees. */
static void pack_panel(const struct forward *f, const struct key_block *block, struct panel *panel)
{
    const struct ra__view *view = &f->job->view;
    const struct ra__shape *shape = view->shape;
    panel->block = *block;
    panel->block.seen = (struct columns){ BLOCK, 0 };
    for (int row = 0; row < f->rows; row++)
        panel->block.seen = columns_join(panel->block.seen,
                                         columns_of(f->spans[row], block->first));
    transpose_block(shape->dtype, &view->k, &panel->block, shape->dim, panel->kt);
    panel->finite = all_finite(
        interleave_block(shape->dtype, &view->v, &panel->block, shape->value_dim, panel->v));
}

static void fold_block(struct forward *f, const struct key_block *block, struct row_block row_block)
{
    if (!panel_holds(f->panel, block->run, block->first)) pack_panel(f, block, f->panel);
    if (f->panel->finite) fold_groups(f, row_block);
    else fold_row_by_row(f, row_block);
}

/* Can the job run without panels? Keys that terms hide need their own values. */
static bool is_thin(const struct forward *f)
{
    return f->rows <= THIN_ROWS && !f->terms.adds && !f->terms.masks;
}

/* fold_block() without panels. Rows that see the same columns, such as the heads of a query, share
 * the pass over the values; no row is multiplied with a value that it does not see. */
static void fold_thin(struct forward *f, const struct key_block *block)
{
    _Static_assert((int)THIN_ROWS <= (int)GEMM_ROWS, "there are no more rows of scores");
    const struct ra__view *view = &f->job->view;
    const struct row_group g = { 0, f->rows, block->seen, columns_whole(block->seen) };
    thin_score(view, block, f->q, f->rows, f->scores);
    weigh_group(f, &g);
    for (int row = 0, count; row < f->rows; row += count) {
        const struct columns own = f->seen[row];
        for (count = 1; row + count < f->rows; count++)
            if (f->seen[row + count].from != own.from || f->seen[row + count].to != own.to) break;
        if (!columns_none(own))
            thin_gather(view, block, own, f->p + row * OPERAND_LINE, count,
                        row_of(f->acc, row, f->value_dim));
    }
}

/* The same for several KV heads, whose rows all see the same columns. */
static void fold_wide(struct forward *f, const struct key_block *block)
{
    const struct ra__view *view = &f->job->view;
    const struct row_group g = { 0, f->rows, block->seen, columns_whole(block->seen) };
    wide_score(view, block, f->q, f->scores);
    weigh_group(f, &g);
    wide_gather(view, block, f->p, f->sums, f->acc);
}

/* Blocks [first, end), one panel each, for one row block after the other. While a row block works
 * on one, the keys of the next are prefetched if they are to be packed then. */
static void fold_panels(struct forward *f, const struct ra__key_run *run, struct span keys,
                        int64_t end)
{
    const struct ra__view *view = &f->job->view;
    for (struct row_block row_block = row_block_at(0, f->rows); row_block.row < f->rows;
         row_block = row_block_at(row_block.end, f->rows)) {
        f->panel = f->panels;
        for (int64_t at = keys.from; at < keys.to; at += BLOCK, f->panel++) {
            struct key_block block = see_block(run, at, f->spans, row_block, f->seen);
            if (f->terms.any) terms_see(&f->terms, &block, f->seen, row_block, &f->job->pairs);
            const bool packs = at + BLOCK < keys.to ? !panel_holds(f->panel + 1, run, at + BLOCK)
                                                    : row_block.end == f->rows;
            f->prefetch = prefetch_from(view, run, at + BLOCK, packs ? end : 0);
            if (columns_none(block.seen)) continue;
            const unsigned mode = operand_begin();
            if (view->kv_heads > 1) fold_wide(f, &block);
            else if (is_thin(f)) fold_thin(f, &block);
            else fold_block(f, &block, row_block);
            operand_end(mode);
            kernel_poll(view);
        }
    }
}

static void fold_run(struct forward *f, const struct ra__key_run *run)
{
    /* one row block needs one panel */
    const int64_t panel_keys = f->rows > ROW_BLOCK ? PANELS * BLOCK : BLOCK;
    struct span hull = clip_rows(&f->job->view, run, f->spans, &f->job->pairs);
    for (int64_t at = ra__block_first(run, hull.from, BLOCK); at < hull.to; at += panel_keys)
        fold_panels(f, run, (struct span){ at, ra__min(at + panel_keys, hull.to) }, hull.to);
}

static void load_state(struct forward *f, int row, int64_t i, int h)
{
    const struct ra__forward_job *job = f->job;
    float *acc = row_of(f->acc, row, f->value_dim);
    if (job->first) {
        f->m[row] = -INFINITY;
        f->l[row] = 0.0f;
        memset(acc, 0, sizeof(float) * (size_t)f->value_dim);
        return;
    }
    int value_dim = job->view.shape->value_dim;
    f->m[row] = job->m.data[i * job->m.row_stride + h];
    f->l[row] = job->l.data[i * job->l.row_stride + h];
    widen(RA_F32, job->acc + i * job->acc_row_stride + h * value_dim, value_dim, acc);
}

static void store_state(const struct forward *f, int row, int64_t i, int h)
{
    const struct ra__forward_job *job = f->job;
    int value_dim = job->view.shape->value_dim;
    job->m.data[i * job->m.row_stride + h] = f->m[row];
    job->l.data[i * job->l.row_stride + h] = f->l[row];
    narrow(RA_F32, row_of(f->acc, row, f->value_dim), value_dim,
           job->acc + i * job->acc_row_stride + h * value_dim);
}

static void store_output(const struct forward *f, int row, int64_t i, int h)
{
    const struct ra__forward_job *job = f->job;
    const struct ra__shape *shape = job->view.shape;
    float *acc = row_of(f->acc, row, f->value_dim);
    struct ra__state_end end = ra__state_end(f->m[row], f->l[row], ra__sink(&job->view, h));
    vec divisor = vec_all(end.divisor); /* acc is 0 where nothing was folded */
    for (int d = 0; d < f->value_dim; d += LANES)
        vec_store(acc + d, vec_div(vec_load(acc + d), divisor));
    int64_t index = i * job->out.row_stride + h * job->out.head_stride;
    narrow(shape->dtype, acc, shape->value_dim, element(shape->dtype, job->out.data, index));
    if (job->lse.data) job->lse.data[i * job->lse.row_stride + h] = end.lse;
}

static void forward(struct ra__forward_job *job, void *workspace)
{
    const struct ra__view *view = &job->view;
    const struct ra__shape *shape = view->shape;
    struct forward f = forward_make(shape, ra__view_extent(view),
                                    &(struct arena){ .base = workspace });
    f.job = job;
    f.rows = (int)view->q_count * view->heads;
    f.group_rows = view->smt ? GEMM_ROWS_SMT : GEMM_ROWS;
    terms_begin(&f.terms, view);
    if (view->run_count > 0) pack_rows(view, &view->q, shape->dim, GEMM_PAD, f.q);
    for (int row = 0; row < f.rows; row++)
        load_state(&f, row, row / view->heads, row % view->heads);
    for (int n = 0; n < view->run_count; n++) fold_run(&f, &view->runs[n]);
    for (int row = 0; row < f.rows; row++)
        (job->last ? store_output : store_state)(&f, row, row / view->heads, row % view->heads);
}

#endif
