/* attend.c - ATTEND: the rows of a step, cut into jobs and dealt to the threads of the rank. Forward,
 * jobs are independent; those that see most keys go out first. Where keys are split (split.h), the states
 * of their stretches are merged behind them. */
#include "exec/exec.h"

struct attend_work {
    struct ra__exec *exec;
    const struct ra__step *step;
    int64_t jobs; /* of each stretch */
};

/* The turn that holds the index-th job of the step. */
static const struct ra__turn *find_turn(const struct attend_work *work, int64_t index)
{
    const struct ra__turn *turns = work->exec->bound->turns + work->step->first_row;
    int low = 0, high = work->step->row_count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (turns[middle].jobs_before <= index) low = middle;
        else high = middle;
    }
    return &turns[low];
}

/* The key runs of a row: those of its family, moved along, and of these only a stretch where keys are
 * split. */
static void set_keys(const struct ra__exec *exec, struct ra__job *job)
{
    const struct ra__bound *bound = exec->bound;
    const struct ra__plan_row *row = job->row;
    const struct ra__key_run *base = bound->program->keys + row->first_key;
    const struct ra__advance *advances = bound->program->advances + row->first_key;
    const bool split = bound->split.stretches > 1;
    struct ra__key_run *own = exec->moved + (int64_t)job->thread * bound->most_keys;
    job->runs = job->repeat == 0 && !split ? base : own;
    job->run_count = row->key_count;
    if (job->runs == base) return;
    job->run_count = 0;
    for (int i = 0; i < row->key_count; i++) {
        struct ra__key_run run = ra__key_run_at(&base[i], &advances[i], job->repeat);
        if (split) run = ra__split_run(&bound->split, job->stretch, &run);
        if (run.count > 0) own[job->run_count++] = run;
    }
}

/* The index-th job of the step, without its keys. */
static struct ra__job job_at(const struct attend_work *work, int64_t index)
{
    const struct ra__exec *exec = work->exec;
    const struct ra__shape *shape = &exec->plan->input.shape;
    const struct ra__turn *turn = find_turn(work, index);
    struct ra__job job = { .row = &exec->bound->program->rows[turn->row] };
    const struct ra__cut *cut = ra__bound_cut(shape, exec->bound, job.row);
    int64_t lanes = ra__lanes(shape, cut, job.row->heads), within = index - turn->jobs_before;
    /* Last queries first: under causal they see the most keys. */
    int64_t chunk = ra__bound_chunks(shape, exec->bound, job.row) - 1 - within / lanes;
    ra__job_set(shape, exec->bound, &job, chunk);
    job.lane = ra__lane_at(shape, cut, job.row->heads, within % lanes);
    return job;
}

static void forward_item(void *context, int64_t item, int thread)
{
    struct attend_work *work = context;
    struct ra__job job = job_at(work, item % work->jobs);
    job.stretch = (int)(item /
                        work->jobs); /* heads side by side in memory at about the same time */
    job.thread = thread;
    set_keys(work->exec, &job);
    ra__job_forward(work->exec, work->step, &job);
}

static void merge_item(void *context, int64_t item, int thread)
{
    struct attend_work *work = context;
    struct ra__job job = job_at(work, item);
    (void)thread;
    ra__job_merge(work->exec, &job);
}

ra_status ra__exec_attend(struct ra__exec *exec, const struct ra__step *step)
{
    if (exec->bound == &exec->backward) return ra__exec_attend_backward(exec, step);
    const struct ra__bound *bound = exec->bound;
    const struct ra__turn *last = &bound->turns[step->first_row + step->row_count - 1];
    const int64_t jobs = last->jobs_before + ra__bound_jobs(&exec->plan->input.shape, bound,
                                                            &bound->program->rows[last->row]);
    struct attend_work work = { exec, step, jobs };
    struct ra__deal deal = { .body = forward_item,
                             .posts = true,
                             .context = &work,
                             .items = jobs * bound->split.stretches };
    struct ra__deal merge = { .body = merge_item, .context = &work, .items = jobs };
    RA__TRY(ra__exec_deal(exec, &deal));
    return bound->split.stretches > 1 ? ra__exec_deal(exec, &merge) : RA_OK;
}
