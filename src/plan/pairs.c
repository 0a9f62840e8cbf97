/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.c - how many query-key pairs a program folds, without folding them. */
#include <stdlib.h>

#include "plan/plan.h"

/* One row of a family, and one of its key runs. */
struct crossing {
    const struct ra__problem_terms *terms;
    int64_t q_pos, q_step, q_count;
    struct ra__key_run keys;
};

static bool unlimited(struct ra__band band)
{
    return band.left >= RA__UNBOUNDED && band.right >= RA__UNBOUNDED;
}

/* A key run that is wholly visible or wholly hidden, as most are in long lists, needs no test of
 * each query. */
static int64_t pairs_by_band(const struct crossing *m)
{
    int64_t pairs = 0, lo, hi, first_lo, first_hi;
    int64_t last = m->q_pos + (m->q_count - 1) * m->q_step;
    ra__band_clip(&m->keys, m->q_pos, &first_lo, &first_hi);
    ra__band_clip(&m->keys, last, &lo, &hi);
    if (first_lo == lo && first_hi == hi) return m->q_count * (hi - lo);
    for (int64_t i = 0; i < m->q_count; i++) {
        ra__band_clip(&m->keys, m->q_pos + i * m->q_step, &lo, &hi);
        pairs += hi - lo;
    }
    return pairs;
}

/* ---- Masks that go by original positions ----------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* How many of the ascending numbers are below `limit`. */
static int64_t count_below(const int32_t *sorted, int64_t count, int32_t limit)
{
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (sorted[middle] < limit) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Every query against every key: these are sorted once for all queries, or, if there is no memory
 * for that, a thousand at a time. */
static int64_t pairs_by_visible_range(const struct crossing *m)
{
    enum { FEW = 1024 };
    int32_t few[FEW], *many = NULL;
    if (m->keys.count > FEW)
        many = ra__alloc(NULL, RA__FOR_BOOKKEEPING, (size_t)m->keys.count * sizeof *many);
    int32_t *sorted = many ? many : few;
    int64_t pairs = 0, room = many ? m->keys.count : FEW;
    for (int64_t from = 0, count; from < m->keys.count; from += count) {
        count = ra__min(room, m->keys.count - from);
        for (int64_t k = 0; k < count; k++)
            sorted[k] = m->terms->origin[m->keys.pos + (from + k) * m->keys.pos_step];
        qsort(sorted, (size_t)count, sizeof *sorted, compare);
        for (int64_t i = 0; i < m->q_count; i++) {
            int64_t q = m->q_pos + i * m->q_step;
            pairs += count_below(sorted, count, m->terms->see_to[q]) -
                     count_below(sorted, count, m->terms->see_from[q]);
        }
    }
    ra__free(many);
    return pairs;
}

static int64_t pairs_by_both(const struct crossing *m)
{
    int64_t pairs = 0;
    for (int64_t i = 0; i < m->q_count; i++) {
        int64_t q = m->q_pos + i * m->q_step, lo, hi;
        ra__band_clip(&m->keys, q, &lo, &hi);
        for (int64_t k = lo; k < hi; k++) {
            int32_t key = m->terms->origin[m->keys.pos + k * m->keys.pos_step];
            pairs += key >= m->terms->see_from[q] && key < m->terms->see_to[q];
        }
    }
    return pairs;
}

/* ---- Families -------------------------------------------------------------------------------- */

static int64_t pairs_of_run(const struct ra__problem_terms *terms, const struct ra__plan_row *row,
                            const struct ra__key_run *run, const struct ra__advance *advance)
{
    bool all = unlimited(run->band), masked = terms && terms->see_from;
    bool alike = !masked && (all || advance->pos == row->q_pos_advance);
    int64_t pairs = 0;
    if (all && !masked) return row->repeat * row->q_count * run->count;
    for (int64_t n = 0; n < (alike ? 1 : row->repeat); n++) {
        struct crossing m = { terms, row->q_pos + n * row->q_pos_advance, row->q_step, row->q_count,
                              ra__key_run_at(run, advance, n) };
        pairs += !masked ? pairs_by_band(&m) : all ? pairs_by_visible_range(&m) : pairs_by_both(&m);
    }
    return alike ? pairs * row->repeat : pairs;
}

/* Of `count` rows from `first` on, over heads and batch. */
static int64_t count_pairs(const struct ra__plan *plan, const struct ra__program *program,
                           int first, int count, const struct ra__problem_terms *terms)
{
    int64_t pairs = 0;
    for (int r = first; r < first + count; r++) {
        const struct ra__plan_row *row = &program->rows[r];
        for (int k = row->first_key; k < row->first_key + row->key_count; k++)
            pairs += row->heads.count *
                     pairs_of_run(terms, row, &program->keys[k], &program->advances[k]);
    }
    return pairs * plan->input.shape.batch;
}

int64_t ra__program_pairs(const struct ra__plan *plan, const struct ra__program *program)
{
    return count_pairs(plan, program, 0, program->row_count, plan->input.terms);
}

/* An estimate: the average number of visible keys over all keys is used for the keys of a row. */
static double share_seen(const struct ra__plan *plan)
{
    enum { QUERIES = 256 };
    const struct ra__problem_terms *terms = plan->input.terms;
    int64_t n = plan->input.shape.k_len, step = ra__max(n / QUERIES, 1), seen = 0, asked = 0;
    if (!terms->see_from) return 1.0;
    for (int64_t q = 0; q < n; q += step) {
        seen += terms->see_to[q] - terms->see_from[q];
        asked += n;
    }
    return (double)seen / (double)ra__max(asked, 1);
}

int64_t ra__program_pairs_roughly(const struct ra__plan *plan, const struct ra__program *program)
{
    int64_t pairs = count_pairs(plan, program, 0, program->row_count, NULL);
    return (int64_t)((double)pairs * share_seen(plan));
}

int64_t ra__step_pairs_roughly(const struct ra__plan *plan, const struct ra__program *program,
                               const struct ra__step *step)
{
    int64_t pairs = count_pairs(plan, program, step->first_row, step->row_count, NULL);
    return (int64_t)((double)pairs * share_seen(plan));
}
