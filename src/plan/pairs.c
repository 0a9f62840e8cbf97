/* pairs.c - how many query-key pairs a program folds, without folding them. */
#include <stdlib.h>

#include "plan/plan.h"

/* One row of a family, and one of its key runs. */
struct meeting {
    const struct ra__problem_terms *terms;
    int64_t q_pos, q_step, q_count;
    struct ra__key_run keys;
};

static bool unlimited(struct ra__band band)
{
    return band.left >= RA__FAR && band.right >= RA__FAR;
}

static int64_t pairs_by_band(const struct meeting *m)
{
    int64_t pairs = 0;
    for (int64_t i = 0; i < m->q_count; i++) {
        int64_t lo, hi;
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

/* Every query against every key, a thousand keys at a time: these are sorted once for all queries. */
static int64_t pairs_by_reach(const struct meeting *m)
{
    enum { KEYS = 1024 };
    int32_t sorted[KEYS];
    int64_t pairs = 0;
    for (int64_t from = 0, count; from < m->keys.count; from += count) {
        count = ra__min(KEYS, m->keys.count - from);
        for (int64_t k = 0; k < count; k++)
            sorted[k] = m->terms->origin[m->keys.pos + (from + k) * m->keys.pos_step];
        qsort(sorted, (size_t)count, sizeof *sorted, compare);
        for (int64_t i = 0; i < m->q_count; i++) {
            int64_t q = m->q_pos + i * m->q_step;
            pairs += count_below(sorted, count, m->terms->see_to[q]) -
                     count_below(sorted, count, m->terms->see_from[q]);
        }
    }
    return pairs;
}

static int64_t pairs_by_both(const struct meeting *m)
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
    bool all = unlimited(run->band), masked = terms->see_from != NULL;
    bool alike = !masked && (all || advance->pos == row->q_pos_advance);
    int64_t pairs = 0;
    if (all && !masked) return row->repeat * row->q_count * run->count;
    for (int64_t n = 0; n < (alike ? 1 : row->repeat); n++) {
        struct meeting m = { terms, row->q_pos + n * row->q_pos_advance, row->q_step, row->q_count,
                             ra__key_run_at(run, advance, n) };
        pairs += !masked ? pairs_by_band(&m) : all ? pairs_by_reach(&m) : pairs_by_both(&m);
    }
    return alike ? pairs * row->repeat : pairs;
}

int64_t ra__program_pairs(const struct ra__plan *plan, const struct ra__program *program)
{
    int64_t pairs = 0;
    for (int r = 0; r < program->row_count; r++) {
        const struct ra__plan_row *row = &program->rows[r];
        for (int k = row->first_key; k < row->first_key + row->key_count; k++)
            pairs += row->heads.count *
                     pairs_of_run(plan->input.terms, row, &program->keys[k], &program->advances[k]);
    }
    return pairs * plan->input.shape.batch;
}
