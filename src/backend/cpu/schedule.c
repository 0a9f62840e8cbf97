/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - ATTEND: how large the jobs of a row are, and which rows of a step come first.
 *
 * Large jobs pack keys for more queries, but the threads of a rank should end together. So a job
 * has no more than five eighths of what a thread has to do in its step, as far as queries can be
 * divided; rows whose jobs are largest come first, and the last jobs of a step are small. Work is
 * counted as kernels do it: queries times the keys between the first and the last that any of them
 * sees, hidden ones included. */
#include <stdlib.h>

#include "backend/cpu/cpu.h"

enum { FEWEST_ROWS = 16 }; /* of a job that is made smaller for the sake of threads */

/* The keys that the first and the last job of a row work on: families advance, and under causal
 * the last queries see most. */
struct ends {
    int64_t first, last;
};

static int64_t keys_of_chunk(const struct ra__cpu_program *p, const struct ra__plan_row *row,
                             int64_t chunk)
{
    const struct ra__program *program = p->program;
    const struct ra__chunks chunks = ra__chunks_of(p, row);
    struct ra__job job = { .row = row };
    int64_t keys = 0, first;
    ra__job_set(&job, &chunks, chunk);
    for (int i = row->first_key; i < row->first_key + row->key_count; i++) {
        struct ra__key_run run = ra__key_run_at(&program->keys[i], &program->advances[i],
                                                job.repeat);
        keys += ra__job_keys(&job, &run, &first);
    }
    return keys;
}

static struct ends keys_at_ends(const struct ra__cpu_program *p, const struct ra__plan_row *row)
{
    int64_t chunks = ra__count_chunks(p, row);
    return (struct ends){ keys_of_chunk(p, row, 0), keys_of_chunk(p, row, chunks - 1) };
}

/* What one job of a row has to do at most, where one query of it has `each`. */
static int64_t work_of_job(const struct ra__chunks *chunks, const struct ra__plan_row *row,
                           int64_t each)
{
    return ra__min(chunks->queries, row->q_count) * each;
}

/* Halves the jobs of a row until none is more than `most`, or has one query; returns how much the
 * largest is then. */
static int64_t limit_row(struct ra__cpu_program *p, int row, int64_t each, int64_t most)
{
    const struct ra__plan_row *of = &p->program->rows[row];
    struct ra__chunks chunks = ra__chunks_of(p, of);
    while (work_of_job(&chunks, of, each) > most && ra__min(chunks.queries, of->q_count) > 1 &&
           chunks.queries * chunks.heads > FEWEST_ROWS)
        chunks.queries = (ra__min(chunks.queries, of->q_count) + 1) / 2;
    p->row_sizes[row].queries = (int)chunks.queries;
    return work_of_job(&chunks, of, each);
}

/* Divides the first queries of a row more finely, up to `most`, where a thread has `jobs` of the
 * largest jobs. */
static void divide_front(struct ra__cpu_program *p, int row, int64_t most, int64_t jobs)
{
    enum { SOME = 8 };
    const struct ra__plan_row *of = &p->program->rows[row];
    const struct ra__chunks chunks = ra__chunks_of(p, of);
    int64_t fewest = ra__max(FEWEST_ROWS / chunks.heads, 1),
            whole = ra__min(chunks.queries, of->q_count);
    p->row_sizes[row].front = (int)ra__min(most, of->q_count);
    p->row_sizes[row].fine = (int)ra__max(whole / (jobs < SOME ? 8 : 4), fewest);
}

/* Divides the last rows more finely: as many queries as make a large job for each thread. Where a
 * thread has MANY large jobs to do, one more or less is not seen. */
static void divide_end(struct ra__cpu_program *p, int threads, const struct ra__step *step,
                       int64_t jobs)
{
    enum { MANY = 64, PARTS = 4 };
    const struct ra__scheduled *scheduled = p->schedule + step->first_row;
    int64_t left = threads; /* large jobs still to be divided */
    for (int r = step->row_count - 1; r >= 0 && left > 0 && jobs < MANY; r--) {
        const struct ra__plan_row *row = &p->program->rows[scheduled[r].row];
        const struct ra__chunks chunks = ra__chunks_of(p, row);
        int64_t heads = ra__count_heads(&p->program->work.shape, &chunks, row->heads);
        int64_t parts = ra__ceil_div(PARTS * left, heads); /* of a large job, for each of them */
        if (row->repeat > 1) return;
        divide_front(p, scheduled[r].row, ra__ceil_div(parts * chunks.queries, PARTS), jobs);
        left -= heads * ra__ceil_div(row->q_count, chunks.queries);
    }
}

/* Largest first; among equals the last row. */
static int compare_scheduled(const void *a, const void *b)
{
    const struct ra__scheduled *left = a, *right = b;
    if (left->work != right->work) return left->work < right->work ? 1 : -1;
    return left->row < right->row ? 1 : -1;
}

static void schedule_step(struct ra__cpu_program *p, int threads, const struct ra__step *step)
{
    struct ra__scheduled *scheduled = p->schedule + step->first_row;
    int64_t all = 0, largest = 1, jobs = 0, most = INT64_MAX;
    for (int r = 0; r < step->row_count; r++) {
        const struct ra__plan_row *row = &p->program->rows[step->first_row + r];
        const struct ra__chunks chunks = ra__chunks_of(p, row);
        const struct ends keys = keys_at_ends(p, row);
        scheduled[r].row = step->first_row + r;
        scheduled[r].work = chunks.heads * ra__max(keys.first, keys.last); /* of one query */
        all += ra__count_heads(&p->program->work.shape, &chunks, row->heads) * chunks.heads *
               row->repeat * row->q_count * ((keys.first + keys.last) / 2);
    }
    if (threads > 1) most = all / threads / 8 * 5; /* two for a thread, or nearly so */
    for (int r = 0; r < step->row_count; r++) {
        scheduled[r].work = limit_row(p, scheduled[r].row, scheduled[r].work, most);
        largest = ra__max(largest, scheduled[r].work);
    }
    qsort(scheduled, (size_t)step->row_count, sizeof *scheduled, compare_scheduled);
    if (threads > 1) divide_end(p, threads, step, all / threads / largest);
    for (int r = 0; r < step->row_count; r++) {
        scheduled[r].jobs_before = jobs;
        jobs += ra__count_jobs(p, &p->program->rows[scheduled[r].row]);
    }
}

/* Of a step whose rows are scheduled. */
static int64_t count_step_jobs(const struct ra__cpu_program *p, const struct ra__step *step)
{
    const struct ra__scheduled *last = &p->schedule[step->first_row + step->row_count - 1];
    return last->jobs_before + ra__count_jobs(p, &p->program->rows[last->row]);
}

void ra__schedule(struct ra__cpu_program *p, int threads)
{
    const struct ra__program *program = p->program;
    for (int r = 0; r < program->row_count; r++)
        p->row_sizes[r].queries = (int)(ra__all_heads(&program->work.shape, program->rows[r].heads)
                                            ? p->all_heads.queries
                                            : p->one_head.queries);
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        if (step->row_count == 0 || (step->op != RA__OP_ATTEND && step->op != RA__OP_MERGE))
            continue;
        if (step->op == RA__OP_ATTEND) schedule_step(p, threads, step);
        p->jobs[i] = count_step_jobs(p, step); /* MERGE has the rows of the ATTEND before it */
    }
}
