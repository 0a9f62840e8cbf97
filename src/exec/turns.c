/* turns.c - forward: how large the jobs of a step are, and which rows have their turn first.
 *
 * Large jobs pack keys for more queries, but the threads of a rank should end together. So no job
 * is more than half of what a thread has to do in a step; those with most pairs go out first, and
 * where jobs are few the last ones are small. */
#include <stdlib.h>

#include "exec/exec.h"

enum { FEWEST_QUERIES = 16 }; /* of a job that is cut for the sake of threads */

/* The most pairs of a job of a row, roughly. Families move along, and under causal the last queries
 * see most: the first and the last job tell. */
static int64_t most_pairs(const struct ra__shape *shape, const struct ra__bound *bound, int row)
{
    const struct ra__program *program = bound->program;
    struct ra__job job = { .row = &program->rows[row] };
    int64_t ends[] = { 0, ra__bound_chunks(shape, bound, job.row) - 1 }, most = 0;
    for (int end = 0; end < RA__COUNT(ends); end++) {
        int64_t seen = 0, first;
        ra__job_set(shape, bound, &job, ends[end]);
        for (int i = job.row->first_key; i < job.row->first_key + job.row->key_count; i++) {
            struct ra__key_run run = ra__key_run_at(&program->keys[i], &program->advances[i],
                                                    job.repeat);
            seen += ra__job_keys(&job, &run, &first);
        }
        most = ra__max(most, seen * job.count * ra__bound_cut(shape, bound, job.row)->heads);
    }
    return most;
}

/* ---- How large ------------------------------------------------------------------------------- */

/* A step, or a job: how many pairs, and which step, or of which row. */
struct most {
    int64_t pairs;
    int index;
};

static struct most largest_step(const struct ra__plan *plan, const struct ra__program *program)
{
    struct most most = { 0, -1 };
    for (int i = 0; i < program->step_count; i++) {
        if (program->steps[i].op != RA__OP_ATTEND) continue;
        int64_t pairs = ra__step_pairs_roughly(plan, program, &program->steps[i]);
        if (pairs > most.pairs) most = (struct most){ pairs, i };
    }
    return most;
}

static struct most largest_job(const struct ra__shape *shape, const struct ra__bound *bound,
                               const struct ra__step *step)
{
    struct most most = { 0, step->first_row };
    for (int row = step->first_row; row < step->first_row + step->row_count; row++) {
        int64_t pairs = most_pairs(shape, bound, row);
        if (pairs > most.pairs) most = (struct most){ pairs, row };
    }
    return most;
}

/* Cuts the first queries of rows finer, by so much that each thread gets one of these, where a
 * thread has `jobs` large ones to do. */
static void cut_front(const struct ra__shape *shape, int threads, int64_t jobs, struct ra__cut *cut)
{
    enum { MANY = 64, SOME = 8, PARTS = 4 };
    if (jobs >= MANY) return; /* one more or less is not seen */
    int64_t lanes = shape->batch * shape->kv_heads * cut->head_chunks;
    int64_t part = ra__max(cut->queries / PARTS, FEWEST_QUERIES);
    cut->front = ra__min(cut->queries, part * ra__ceil_div(PARTS * (int64_t)threads, lanes));
    cut->fine = ra__max(jobs < SOME ? part / 2 : part, FEWEST_QUERIES);
}

/* The largest step decides. */
static void fit_threads(const struct ra__plan *plan, struct ra__bound *bound, int threads)
{
    enum { JOBS_PER_THREAD = 2 };
    const struct ra__shape *shape = &plan->input.shape;
    const struct most step = largest_step(plan, bound->program);
    int64_t jobs = 0; /* of the size of the largest, for each thread */
    while (step.pairs > 0) {
        struct most job = largest_job(shape, bound, &bound->program->steps[step.index]);
        const struct ra__plan_row *row = &bound->program->rows[job.index];
        struct ra__cut *cut = ra__all_heads(shape, row->heads) ? &bound->cut : &bound->each;
        jobs = step.pairs / threads / ra__max(job.pairs, 1);
        if (jobs >= JOBS_PER_THREAD || cut->queries <= FEWEST_QUERIES) break;
        cut->queries = (cut->queries + 1) / 2;
    }
    cut_front(shape, threads, jobs, &bound->cut);
    cut_front(shape, threads, jobs, &bound->each);
}

/* ---- In which order -------------------------------------------------------------------------- */

/* Largest first; among equals the last row. */
static int compare_turns(const void *a, const void *b)
{
    const struct ra__turn *left = a, *right = b;
    if (left->pairs != right->pairs) return left->pairs < right->pairs ? 1 : -1;
    return left->row < right->row ? 1 : -1;
}

void ra__turns_take(const struct ra__plan *plan, struct ra__bound *bound, int threads)
{
    const struct ra__shape *shape = &plan->input.shape;
    const struct ra__program *program = bound->program;
    if (threads > 1) fit_threads(plan, bound, threads);
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        struct ra__turn *turns = bound->turns + step->first_row;
        int64_t jobs = 0;
        for (int r = 0; r < step->row_count; r++)
            turns[r] = (struct ra__turn){ .row = step->first_row + r,
                                          .pairs = most_pairs(shape, bound, step->first_row + r) };
        qsort(turns, (size_t)step->row_count, sizeof *turns, compare_turns);
        for (int r = 0; r < step->row_count; r++) {
            turns[r].jobs_before = jobs;
            jobs += ra__bound_jobs(shape, bound, &program->rows[turns[r].row]);
        }
    }
}
