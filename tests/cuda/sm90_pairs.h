/* SPDX-License-Identifier: Apache-2.0 */
/* sm90_pairs.h - which pairs of a query, a key and a head a program has, and which the rows that
 * Hopper kernels are given. Part of test_sm90_bridge.c. */
#ifndef TESTS_CUDA_SM90_PAIRS_H
#define TESTS_CUDA_SM90_PAIRS_H

#include <stdlib.h>

#include "backend/cuda/sm90/bridge.h"
#include "support/worlds.h"

/* How often a query token of a head sees a key token; and which rows of queries start and end. */
struct pairs {
    int heads, group;
    int64_t queries, keys;
    uint8_t *count, *flags;
};

static void pairs_open(struct pairs *p, const struct ra__shape *s, int64_t queries, int64_t keys)
{
    *p = (struct pairs){ s->q_heads, s->q_heads / s->kv_heads, queries, keys + 1, NULL, NULL };
    p->count = calloc((size_t)(p->heads * queries * p->keys), 1);
    p->flags = calloc((size_t)(p->heads * queries), 1);
    assert_true(p->count && p->flags);
}

static void pairs_close(struct pairs *p)
{
    free(p->count);
    free(p->flags);
}

static void add_pair(struct pairs *p, int64_t head, int64_t query, int64_t key)
{
    assert_true(head >= 0 && head < p->heads && query >= 0 && query < p->queries);
    assert_true(key >= 0 && key < p->keys);
    p->count[(head * p->queries + query) * p->keys + key]++;
}

static void expect_same(const struct world *w, const char *what, const struct pairs *want,
                        const struct pairs *got)
{
    const size_t size = (size_t)(want->heads * want->queries * want->keys);
    assert_int_equal(want->keys, got->keys);
    for (size_t i = 0; i < size; i++)
        if (want->count[i] != got->count[i])
            fail_msg("%s: %s: head %d, query %d, key %d: %d pairs, not %d", w->text, what,
                     (int)(i / (size_t)(want->queries * want->keys)),
                     (int)(i / (size_t)want->keys % (size_t)want->queries),
                     (int)(i % (size_t)want->keys), got->count[i], want->count[i]);
}

/* The rows of a step, as the plan says it. */
static void add_program(struct pairs *p, const struct ra__program *program,
                        const struct ra__step *step)
{
    for (int r = step->first_row; r < step->first_row + step->row_count; r++) {
        const struct ra__plan_row *row = &program->rows[r];
        for (int64_t n = 0; n < row->repeat * row->q_count * row->heads.count; n++) {
            const int64_t repeat = n / (row->q_count * row->heads.count);
            const int64_t i = n / row->heads.count % row->q_count;
            const int64_t head = row->heads.start + n % row->heads.count * row->heads.step;
            const int64_t pos = row->q_pos + repeat * row->q_pos_advance + i * row->q_step;
            const int64_t token = row->q_token + repeat * row->q_token_advance +
                                  i * row->q_token_step;
            p->flags[head * p->queries + token] = (uint8_t)(4 | row->first | row->last << 1);
            for (int k = row->first_key; k < row->first_key + row->key_count; k++) {
                const struct ra__key_run run = ra__key_run_at(&program->keys[k],
                                                              &program->advances[k], repeat);
                int64_t lo, hi;
                ra__band_clip(&run, pos, &lo, &hi);
                for (int64_t j = lo; j < hi; j++)
                    add_pair(p, head, token, run.token + j * run.token_step);
            }
        }
    }
}

static const struct ra__sm90_view ALL_TOKENS = { 0, 1 };

static struct ra__sm90_view view_at(const struct ra__sm90_view *views, int index)
{
    return views[index].step ? views[index] : ALL_TOKENS;
}

/* A run of keys, for queries from q_row of a view on. */
static void add_run(struct pairs *p, const struct ra__sm90_rows *rows, struct ra__sm90_run run,
                    const struct ra__sm90_view *views)
{
    const int stair = rows->flags >> RA__SM90_STAIR_SHIFT & RA__SM90_STAIR_MASK;
    const struct ra__sm90_view q = view_at(views, (unsigned)rows->flags >> RA__SM90_VIEW_SHIFT);
    const struct ra__sm90_view k = view_at(views, run.row >> RA__SM90_RUN_VIEW_SHIFT);
    const int row = run.row & ((1 << RA__SM90_RUN_VIEW_SHIFT) - 1);
    for (int i = 0; i < rows->q_count; i++) {
        const int climbed = i >> stair << stair;
        for (int j = 0; j < run.count; j++)
            if (run.lo + climbed <= j && j <= run.hi + climbed)
                add_pair(p, rows->head, q.first + (rows->q_row + i) * q.step,
                         k.first + (row + j) * k.step);
    }
}

/* Where the rows of backward are; `views` NULL: there are none. */
struct places {
    int padded;
    const struct ra__sm90_view *views;
    const int32_t *starts;
};

static int number_in(int row) { return row >> RA__SM90_RUN_VIEW_SHIFT; }

/* Backward: a run of queries, of all heads of a group, for keys from q_row on. */
static void add_queries(struct pairs *p, const struct ra__sm90_rows *rows, struct ra__sm90_run run,
                        struct places at)
{
    const int stair = rows->flags >> RA__SM90_RUN_STAIR_SHIFT & RA__SM90_STAIR_MASK;
    const int mask = at.views ? RA__SM90_VIEW_ROWS : -1;
    const struct ra__sm90_view q = at.views ? at.views[number_in(run.row)] : ALL_TOKENS;
    const struct ra__sm90_view k = at.views ? at.views[number_in(rows->q_row)] : ALL_TOKENS;
    const int start = at.views ? at.starts[number_in(run.row)] : 0;
    for (int i = 0; i < rows->q_count; i++)
        for (int j = 0; j < run.count; j++) {
            const int climbed = j >> stair << stair, row = (run.row & mask) + j;
            if (run.lo + i <= climbed && climbed <= run.hi + i)
                add_pair(p, rows->head + row / at.padded,
                         q.first + (row % at.padded - start) * q.step,
                         k.first + ((rows->q_row & mask) + i) * k.step);
        }
}

#endif
