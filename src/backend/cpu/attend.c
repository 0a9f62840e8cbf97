/* SPDX-License-Identifier: Apache-2.0 */
/* attend.c - ATTEND and MERGE: the rows of a step, divided into jobs for the threads of the rank.
 * Jobs are independent; those that see most keys come first. Where keys are split, ATTEND leaves a
 * state for each range of them, and MERGE adds these. */
#include "backend/cpu/cpu.h"

/* The scheduled row that holds the index-th job of the step. */
static const struct ra__scheduled *find_scheduled(const struct ra__running *run, int64_t index)
{
    const struct ra__step *step = run->launch->step;
    const struct ra__scheduled *schedule = run->program->schedule + step->first_row;
    int low = 0, high = step->row_count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (schedule[middle].jobs_before <= index) low = middle;
        else high = middle;
    }
    return &schedule[low];
}

/* Where the first range of a row's keys starts. */
static int64_t first_position(const struct ra__key_split *split, const struct ra__key_run *runs,
                              int count)
{
    if (!split->of_row || count == 0) return 0;
    int64_t first = runs[0].pos;
    for (int i = 1; i < count; i++) first = ra__min(first, runs[i].pos);
    return first;
}

/* The keys of a run in the positions from `first` on; count 0 where there are none. */
static struct ra__key_run keys_in_range(const struct ra__key_split *split, int64_t first,
                                        const struct ra__key_run *run)
{
    int64_t skipped;
    ra_run whole = { run->pos, run->pos_step, run->count };
    ra_run part = ra__run_clip(whole, first, first + split->keys, &skipped);
    return (struct ra__key_run){ run->token + skipped * run->token_step,
                                 run->token_step,
                                 part.start,
                                 run->pos_step,
                                 part.count,
                                 run->band };
}

/* Fewer keys are there than the shape has. The last ones of the shape stand for them, so that
 * distances stay; those before them are not there, and the first that is has token 0. */
static struct ra__key_run keys_there(const struct ra__key_run *run, int64_t missing)
{
    int64_t skipped;
    ra_run whole = { run->pos, run->pos_step, run->count };
    ra_run part = ra__run_clip(whole, missing, INT64_MAX, &skipped);
    return (struct ra__key_run){ run->token + skipped * run->token_step - missing,
                                 run->token_step,
                                 part.start,
                                 run->pos_step,
                                 part.count,
                                 run->band };
}

/* The key runs of a row: those of its family, advanced, and of these one range where keys are
 * split, or those that are there where keys are counted. */
static void set_keys(const struct ra__running *run, struct ra__job *job)
{
    const struct ra__program *program = ra__program_of(run);
    const struct ra__plan_row *row = job->row;
    const struct ra__key_run *base = program->keys + row->first_key;
    const struct ra__advance *advances = program->advances + row->first_key;
    const bool split = program->split.ranges > 1;
    const int64_t *counts = run->launch->call->counts;
    struct ra__key_run *own = run->plan->moved + (int64_t)job->thread * run->program->most_keys;
    job->runs = job->repeat == 0 && !split && !counts ? base : own;
    job->run_count = row->key_count;
    if (job->runs == base) return;
    job->run_count = 0;
    const int64_t first = first_position(&program->split, base, row->key_count) +
                          job->range * program->split.keys;
    for (int i = 0; i < row->key_count; i++) {
        struct ra__key_run keys = ra__key_run_at(&base[i], &advances[i], job->repeat);
        if (split) keys = keys_in_range(&program->split, first, &keys);
        if (counts) keys = keys_there(&keys, program->work.shape.k_len - counts[job->heads.batch]);
        if (keys.count > 0) own[job->run_count++] = keys;
    }
}

/* The index-th job of the step, without its keys. */
static struct ra__job job_at(const struct ra__running *run, int64_t index)
{
    const struct ra__shape *shape = &ra__program_of(run)->work.shape;
    const struct ra__scheduled *scheduled = find_scheduled(run, index);
    struct ra__job job = { .row = &ra__program_of(run)->rows[scheduled->row] };
    const struct ra__chunks chunks = ra__chunks_of(run->program, job.row);
    int64_t heads = ra__count_heads(shape, &chunks, job.row->heads);
    int64_t within = index - scheduled->jobs_before;
    /* Last queries first: under causal they see the most keys. */
    int64_t count = job.row->repeat * ra__chunk_count(&chunks, job.row->q_count);
    ra__job_set(&job, &chunks, count - 1 - within / heads);
    job.heads = ra__heads_at(shape, &chunks, job.row->heads, within % heads);
    return job;
}

/* Jobs of each range of keys. */
static int64_t jobs_of(const struct ra__running *run)
{
    return run->program->jobs[run->launch->step - ra__program_of(run)->steps];
}

struct attend {
    const struct ra__running *run;
    int64_t jobs; /* of each range of keys */
};

static void attend_item(void *context, int64_t item, int thread)
{
    const struct attend *attend = context;
    struct ra__job job = job_at(attend->run, item % attend->jobs);
    job.range = (int)(item / attend->jobs); /* adjacent heads at about the same time */
    job.thread = thread;
    set_keys(attend->run, &job);
    ra__job_attend(attend->run, &job);
}

static void merge_item(void *context, int64_t item, int thread)
{
    const struct attend *attend = context;
    const struct ra__job job = job_at(attend->run, item);
    (void)thread;
    ra__job_merge(attend->run, &job);
}

ra_status ra__cpu_attend(const struct ra__running *run)
{
    struct attend attend = { run, jobs_of(run) };
    return ra__cpu_run(
        run, &(struct ra__work){ .body = attend_item,
                                 .context = &attend,
                                 .items = attend.jobs * ra__program_of(run)->split.ranges });
}

ra_status ra__cpu_merge(const struct ra__running *run)
{
    struct attend attend = { run, jobs_of(run) };
    return ra__cpu_run(
        run, &(struct ra__work){ .body = merge_item, .context = &attend, .items = attend.jobs });
}
