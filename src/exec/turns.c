/* turns.c - forward: how large the jobs of a row are, and which rows of a step have their turn
 * first.
 *
 * Large jobs pack keys for more queries, but the threads of a rank should end together. So a job
 * has no more than five eighths of what a thread has to do in its step, as far as there are queries
 * to cut; rows whose jobs are largest go out first, and the last jobs of a step are small. Work is
 * counted as kernels do it: queries times the keys between the first and the last that any of them
 * sees, hidden ones included. */
#include <stdlib.h>

#include "exec/exec.h"

enum { FEWEST_ROWS = 16 }; /* of a job that is cut for the sake of threads */

/* The keys that the first and the last job of a row work on: families move along, and under causal
 * the last queries see most. */
struct ends {
    int64_t first, last;
};

static int64_t keys_of_chunk(const struct ra__shape *shape, const struct ra__bound *bound,
                             const struct ra__plan_row *row, int64_t chunk)
{
    const struct ra__program *program = bound->program;
    struct ra__job job = { .row = row };
    int64_t keys = 0, first;
    ra__job_set(shape, bound, &job, chunk);
    for (int i = row->first_key; i < row->first_key + row->key_count; i++) {
        struct ra__key_run run = ra__key_run_at(&program->keys[i], &program->advances[i],
                                                job.repeat);
        keys += ra__job_keys(&job, &run, &first);
    }
    return keys;
}

static struct ends keys_at_ends(const struct ra__shape *shape, const struct ra__bound *bound,
                                const struct ra__plan_row *row)
{
    int64_t chunks = ra__bound_chunks(shape, bound, row);
    return (struct ends){ keys_of_chunk(shape, bound, row, 0),
                          keys_of_chunk(shape, bound, row, chunks - 1) };
}

/* What one job of a row has to do at most, where one query of it has `each`. */
static int64_t work_of_job(const struct ra__cut *cut, const struct ra__plan_row *row, int64_t each)
{
    return ra__min(cut->queries, row->q_count) * each;
}

/* Halves the jobs of a row until none is more than `most`; returns how much the largest is then. */
static int64_t limit_row(const struct ra__shape *shape, struct ra__bound *bound, int row,
                         int64_t each, int64_t most)
{
    const struct ra__plan_row *of = &bound->program->rows[row];
    struct ra__cut cut = ra__bound_cut(shape, bound, of);
    while (work_of_job(&cut, of, each) > most && cut.queries * cut.heads > FEWEST_ROWS)
        cut.queries = (ra__min(cut.queries, of->q_count) + 1) / 2;
    bound->sizes[row].queries = (int)cut.queries;
    return work_of_job(&cut, of, each);
}

/* Cuts the first queries of a row finer, up to `most`, where a thread has `jobs` of the largest
 * jobs. */
static void cut_front(const struct ra__shape *shape, struct ra__bound *bound, int row, int64_t most,
                      int64_t jobs)
{
    enum { SOME = 8 };
    const struct ra__plan_row *of = &bound->program->rows[row];
    const struct ra__cut cut = ra__bound_cut(shape, bound, of);
    int64_t fewest = ra__max(FEWEST_ROWS / cut.heads, 1), whole = ra__min(cut.queries, of->q_count);
    bound->sizes[row].front = (int)ra__min(most, of->q_count);
    bound->sizes[row].fine = (int)ra__max(whole / (jobs < SOME ? 8 : 4), fewest);
}

/* Cuts the last rows finer: as many queries as make a large job for each thread. Where a thread has
 * MANY large jobs to do, one more or less is not seen. */
static void cut_end(const struct ra__shape *shape, int threads, struct ra__bound *bound,
                    const struct ra__step *step, int64_t jobs)
{
    enum { MANY = 64, PARTS = 4 };
    const struct ra__turn *turns = bound->turns + step->first_row;
    int64_t left = threads; /* large jobs still to be cut */
    for (int r = step->row_count - 1; r >= 0 && left > 0 && jobs < MANY; r--) {
        const struct ra__plan_row *row = &bound->program->rows[turns[r].row];
        const struct ra__cut cut = ra__bound_cut(shape, bound, row);
        int64_t lanes = ra__lanes(shape, &cut, row->heads);
        int64_t parts = ra__ceil_div(PARTS * left, lanes); /* of a large job, in each lane */
        if (row->repeat > 1) return;
        cut_front(shape, bound, turns[r].row, ra__ceil_div(parts * cut.queries, PARTS), jobs);
        left -= lanes * ra__ceil_div(row->q_count, cut.queries);
    }
}

/* Largest first; among equals the last row. */
static int compare_turns(const void *a, const void *b)
{
    const struct ra__turn *left = a, *right = b;
    if (left->work != right->work) return left->work < right->work ? 1 : -1;
    return left->row < right->row ? 1 : -1;
}

static void take_step(const struct ra__shape *shape, int threads, struct ra__bound *bound,
                      const struct ra__step *step)
{
    struct ra__turn *turns = bound->turns + step->first_row;
    int64_t all = 0, largest = 1, jobs = 0, most = INT64_MAX;
    for (int r = 0; r < step->row_count; r++) {
        const struct ra__plan_row *row = &bound->program->rows[step->first_row + r];
        const struct ra__cut cut = ra__bound_cut(shape, bound, row);
        const struct ends keys = keys_at_ends(shape, bound, row);
        turns[r].row = step->first_row + r;
        turns[r].work = cut.heads * ra__max(keys.first, keys.last); /* of one query */
        all += ra__lanes(shape, &cut, row->heads) * cut.heads * row->repeat * row->q_count *
               ((keys.first + keys.last) / 2);
    }
    if (threads > 1) most = all / threads / 8 * 5; /* two for a thread, or nearly so */
    for (int r = 0; r < step->row_count; r++) {
        turns[r].work = limit_row(shape, bound, turns[r].row, turns[r].work, most);
        largest = ra__max(largest, turns[r].work);
    }
    qsort(turns, (size_t)step->row_count, sizeof *turns, compare_turns);
    if (threads > 1) cut_end(shape, threads, bound, step, all / threads / largest);
    for (int r = 0; r < step->row_count; r++) {
        turns[r].jobs_before = jobs;
        jobs += ra__bound_jobs(shape, bound, &bound->program->rows[turns[r].row]);
    }
}

void ra__turns_take(const struct ra__shape *shape, int threads, struct ra__bound *bound)
{
    const struct ra__program *program = bound->program;
    for (int r = 0; r < program->row_count; r++)
        bound->sizes[r].queries = (int)(ra__all_heads(shape, program->rows[r].heads)
                                            ? bound->cut.queries
                                            : bound->each.queries);
    for (int i = 0; i < program->step_count; i++)
        if (program->steps[i].op == RA__OP_ATTEND && program->steps[i].row_count > 0)
            take_step(shape, threads, bound, &program->steps[i]);
}
