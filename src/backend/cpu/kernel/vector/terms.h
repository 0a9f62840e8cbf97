/* SPDX-License-Identifier: Apache-2.0 */
/* terms.h - the score terms of core/terms.h, one query row and one key block at a time, between the
 * matrix products and the softmax of forward and backward. Written with the operations of an ISA's
 * vec.h and in plain loops that a compiler vectorises.
 *
 * What is added to a score is first collected per column, -inf where the key is hidden. So one pass
 * both adds and hides, and a hidden key's score is -inf whatever q.k was. Each column is computed
 * alone: a row's bits do not depend on the other rows. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_TERMS_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_TERMS_H

#include <float.h>
#include <math.h>

#include "backend/cpu/kernel/vector/dropout.h"
#include "backend/cpu/kernel/vector/pack.h"
#include "backend/cpu/kernel/vector/rows.h"
#include "backend/cpu/kernel/vector/tanh.h"

struct terms {
    const struct ra__view *view;
    /* any of the following applies, or the scale is negative; otherwise scores are plain
     * products */
    bool any;
    bool adds;    /* a bias or slopes */
    bool masks;   /* see_from and see_to of an order */
    bool dropout; /* there is dropout */
    float cap;    /* 0 = none */
    /* factor of q.k: gives the argument of tanh if there is a softcap, otherwise log2 units */
    float factor;
    float rest; /* the factor that scores still need to be in log2 units after the terms */

    int64_t *at;         /* [BLOCK] original positions of the block's keys */
    int64_t least, most; /* the smallest and the largest of them */
    bool consecutive;    /* they are consecutive */
    bool *partly;        /* [rows] does a mask hide some of the columns the row sees? */

    bool added;    /* addend is in use; of one row, like the next three */
    float *addend; /* [BLOCK] log2 units; -inf hides */
    float *slope;  /* [BLOCK] derivative of the softcap; backward only, otherwise NULL */
    float *kept;   /* [BLOCK] the factor of a weight in acc */
    struct dropout draws;
};

/* Reserves what any problem may need; terms_begin() finds what a job does need. */
static struct terms terms_make(struct arena *arena, int64_t rows, bool backward)
{
    struct terms t = { .at = reserve(arena, BLOCK, sizeof(int64_t)) };
    t.partly = reserve(arena, rows, sizeof(bool));
    t.addend = reserve(arena, BLOCK, sizeof(float));
    if (backward) t.slope = reserve(arena, BLOCK, sizeof(float));
    float *kept = reserve(arena, BLOCK + 2 * LANES, sizeof(float));
    if (kept) t.kept = kept + LANES; /* keep_consecutive() writes a few elements on either side */
    t.draws = dropout_carve(arena);
    return t;
}

static void terms_begin(struct terms *t, const struct ra__view *view)
{
    const struct ra__terms *terms = view->terms;
    t->view = view;
    t->factor = view->shape->scale * (float)RA__LOG2_E;
    t->adds = view->bias.data || (terms && terms->alibi);
    t->any = t->adds || !(t->factor > 0.0f);
    memset(t->partly, 0, sizeof(bool) * (size_t)(view->q_count * view->heads));
    if (terms) {
        t->masks = terms->see_from;
        t->dropout = terms->dropout;
        t->cap = terms->softcap;
        t->any |= t->masks || t->dropout || t->cap != 0.0f;
        if (t->cap != 0.0f) t->factor = view->shape->scale / t->cap;
        if (t->dropout) dropout_begin(&t->draws, terms);
    }
    t->rest = t->any ? 1.0f : t->factor;
}

static int64_t query_index(const struct terms *t, int row)
{
    return t->view->q_pos + row / t->view->heads * t->view->q_pos_step;
}

/* ---- Who is where, and masks of an order: once per block ------------------------------------- */

static void place_block(struct terms *t, const struct key_block *block)
{
    const struct ra__terms *terms = t->view->terms;
    const struct ra__key_run *run = block->run;
    t->consecutive = run->pos_step == 1 && !(terms && terms->origin);
    t->least = INT64_MAX;
    t->most = INT64_MIN;
    for (int column = block->seen.from; column < block->seen.to; column++) {
        int64_t at = ra__origin(terms, run->pos + (block->first + column) * run->pos_step);
        t->at[column] = at;
        t->least = ra__min(t->least, at);
        t->most = ra__max(t->most, at);
    }
}

/* How many of the columns `own` are hidden by a mask that shows positions [from, to). If all of the
 * block is on one side of each end, nothing is counted. */
static int masked_lanes(const struct terms *t, struct columns own, int64_t from, int64_t to)
{
    if (from <= t->least && t->most < to) return 0;
    if (t->most < from || to <= t->least) return own.to - own.from;
    int64_t hidden = 0;
    for (int i = own.from; i < own.to; i++) hidden += (t->at[i] < from) | (t->at[i] >= to);
    return (int)hidden;
}

/* Removes the block from the rows that see none of its keys, and masked pairs from *pairs. */
static void mask_block(struct terms *t, struct key_block *block, struct columns *seen,
                       struct row_block row_block, int64_t *pairs)
{
    const struct ra__view *view = t->view;
    for (int row = row_block.row, heads; row < row_block.end; row += heads) {
        struct columns own = seen[row];
        heads = (int)ra__min(view->heads - row % view->heads, row_block.end - row); /* of a query */
        if (columns_none(own)) continue;
        int64_t index = query_index(t, row);
        int hidden = masked_lanes(t, own, view->terms->see_from[index], view->terms->see_to[index]);
        bool all = hidden == own.to - own.from;
        *pairs -= (int64_t)heads * hidden;
        for (int h = 0; h < heads; h++) {
            t->partly[row + h] = hidden && !all;
            if (all) seen[row + h] = (struct columns){ 0, 0 };
        }
    }
    block->seen = columns_hull(seen + row_block.row, row_block.end - row_block.row);
}

/* Called for each block that see_block() found. */
static void terms_see(struct terms *t, struct key_block *block, struct columns *seen,
                      struct row_block row_block, int64_t *pairs)
{
    place_block(t, block);
    if (t->masks) mask_block(t, block, seen, row_block, pairs);
    if (t->dropout && !t->consecutive) group_keys(&t->draws, t->at, block->seen);
}

/* ---- Scores ---------------------------------------------------------------------------------- */

/* The bias of the columns a row sees. */
static void copy_bias(struct terms *t, int row, struct columns own)
{
    const struct ra__bias *bias = &t->view->bias;
    const int64_t *at = t->at + own.from;
    const int count = own.to - own.from, heads = t->view->heads;
    const int64_t index = row / heads * bias->row_stride + row % heads * bias->head_stride;
    const uint8_t *shown = (const uint8_t *)bias->data + index;
    const float *number = (const float *)bias->data + index;
    float *to = t->addend + own.from;
    if (bias->mask && t->consecutive)
        for (int n = 0; n < count; n++) to[n] = shown[at[0] + n] ? 0.0f : -INFINITY;
    else if (bias->mask)
        for (int n = 0; n < count; n++) to[n] = shown[at[n]] ? 0.0f : -INFINITY;
    else if (t->consecutive) memcpy(to, number + at[0], sizeof(float) * (size_t)count);
    else
        for (int n = 0; n < count; n++) to[n] = number[at[n]];
}

/* Minus slope |p - j|. The difference is taken in integers: of 32 bits if the block is near enough,
 * which every CPU can vectorise. */
static void lean_addend(struct terms *t, int row, struct columns own)
{
    const float slope = t->view->terms->alibi[t->view->head + row % t->view->heads];
    const int64_t *at = t->at, p = ra__origin(t->view->terms, query_index(t, row));
    float *to = t->addend;
    if (p - t->least <= INT32_MAX && t->most - p <= INT32_MAX)
        for (int i = own.from; i < own.to; i++)
            to[i] -= slope * fabsf((float)(int32_t)((uint32_t)p - (uint32_t)at[i]));
    else
        for (int i = own.from; i < own.to; i++) to[i] -= slope * fabsf((float)(p - at[i]));
}

static void mask_addend(struct terms *t, int row, struct columns own)
{
    const int64_t index = query_index(t, row);
    const int64_t from = t->view->terms->see_from[index], to = t->view->terms->see_to[index];
    for (int i = own.from; i < own.to; i++)
        t->addend[i] = ((t->at[i] < from) | (t->at[i] >= to)) ? -INFINITY : t->addend[i];
}

static void add_row(struct terms *t, int row, struct columns own, float *x)
{
    const struct columns busy = columns_whole(own);
    fill(t->addend, (struct columns){ busy.from, own.from }, -INFINITY);
    fill(t->addend, (struct columns){ own.to, busy.to }, -INFINITY);
    if (t->view->bias.data) copy_bias(t, row, own);
    else fill(t->addend, own, 0.0f);
    if (t->view->terms && t->view->terms->alibi) lean_addend(t, row, own);
    if (t->partly[row]) mask_addend(t, row, own);
    const vec log2_e = vec_all((float)RA__LOG2_E), none = vec_all(-INFINITY);
    for (int i = busy.from; i < busy.to; i += LANES) {
        vec addend = vec_mul(vec_load(t->addend + i), log2_e);
        vec_store(t->addend + i, addend);
        vec sum = vec_add(vec_load(x + i), addend);
        vec_store(x + i, vec_below(addend, vec_all(-FLT_MAX), none, sum));
    }
}

static void cap_row(const struct terms *t, struct columns own, float *x)
{
    const struct columns busy = columns_whole(own);
    const vec cap = vec_all(t->cap * (float)RA__LOG2_E), factor = vec_all(t->factor);
    for (int i = busy.from; i < busy.to; i += LANES) {
        vec slope;
        vec_store(x + i, vec_mul(cap, vec_tanh(vec_mul(vec_load(x + i), factor), &slope)));
        if (t->slope) vec_store(t->slope + i, slope);
    }
}

/* Replaces the products q.k of a row by scores, over the columns `own` that it sees, extended to
 * whole vectors. */
static void term_scores(struct terms *t, int row, struct columns own, float *x)
{
    t->added = t->adds || t->partly[row];
    if (columns_none(own)) return;
    if (t->cap != 0.0f) cap_row(t, own, x);
    else scale_row(x + columns_whole(own).from, t->factor, columns_count(columns_whole(own)));
    if (t->added) add_row(t, row, own, x);
}

/* Is a column that the row of the last term_scores() sees hidden by a mask or a bias? */
static inline bool column_hidden(const struct terms *t, int column)
{
    return t->added && t->addend[column] == -INFINITY;
}

/* ---- Weights --------------------------------------------------------------------------------- */

/* Draws the dropout factors of a row's weights to t->kept: over the columns it sees, and 0 up to
 * whole vectors around them. */
static void draw_row(struct terms *t, int row, struct columns own)
{
    const struct ra__view *view = t->view;
    const struct columns busy = columns_whole(own);
    const struct dropout_row draws = {
        (uint32_t)ra__origin(view->terms, query_index(t, row)),
        (uint32_t)(view->head + row % view->heads),
        (uint32_t)view->batch,
    };
    if (t->consecutive) keep_consecutive(&t->draws, draws, t->at[own.from], own, t->kept);
    else keep_scattered(&t->draws, draws, own, t->kept);
    fill(t->kept, (struct columns){ busy.from, own.from }, 0.0f);
    fill(t->kept, (struct columns){ own.to, busy.to }, 0.0f);
}

/* x *= factor over the columns `own`, extended to whole vectors. */
static void multiply_row(struct columns own, const float *factor, float *x)
{
    const struct columns busy = columns_whole(own);
    for (int i = busy.from; i < busy.to; i += LANES)
        vec_store(x + i, vec_mul(vec_load(x + i), vec_load(factor + i)));
}

/* Applies dropout to the weights of a row. */
static void drop_row(struct terms *t, int row, struct columns own, float *p)
{
    if (columns_none(own)) return;
    draw_row(t, row, own);
    multiply_row(own, t->kept, p);
}

/* Sets the hidden columns to 0, whatever they held. */
static void clear_hidden(const struct terms *t, struct columns own, float *x)
{
    const struct columns busy = columns_whole(own);
    for (int i = busy.from; i < busy.to; i += LANES) {
        vec addend = vec_load(t->addend + i);
        vec_store(x + i, vec_below(addend, vec_all(-FLT_MAX), vec_zero(), vec_load(x + i)));
    }
}

/* ---- Hidden keys that are not finite --------------------------------------------------------- */

/* interleave_block() for one row: zeros in place of the keys hidden from it, so that no weight of 0
 * is multiplied by NaN. Slow, and as rare as a NaN. */
static void interleave_visible(const struct terms *t, const struct ra__matrix *from,
                               const struct key_block *block, struct columns own, int n,
                               operand *to)
{
    const ra_dtype dtype = t->view->shape->dtype;
    const struct columns all = columns_micro_panels(block->seen);
    const void *rows[BLOCK];
    for (int column = all.from; column < all.to; column++) {
        bool shown = column >= own.from && column < own.to && !column_hidden(t, column);
        rows[column - all.from] = shown ? key_row(dtype, from, block, column) : NULL;
    }
    interleave_rows(dtype, rows, columns_count(all), n, to + all.from / PER_OPERAND * NR,
                    INTERLEAVED_PANEL);
}

#endif
