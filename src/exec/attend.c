/* attend.c - ATTEND: the rows of a step, cut into jobs and dealt to the threads of the rank.
 * Forward, jobs are independent; those that see most keys go out first. Where another ATTEND
 * follows, its first jobs begin while the last of this one are under way, as far as they are of
 * other rows. Where keys are split (split.h), the states of their stretches are merged behind
 * them. */
#include "exec/exec.h"

/* The turn that holds the index-th job of the step. */
static const struct ra__turn *find_turn(const struct ra__attend *work, int64_t index)
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

/* The key runs of a row: those of its family, moved along, and of these only a stretch where keys
 * are split. */
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
static struct ra__job job_at(const struct ra__attend *work, int64_t index)
{
    const struct ra__exec *exec = work->exec;
    const struct ra__shape *shape = &exec->plan->input.shape;
    const struct ra__turn *turn = find_turn(work, index);
    struct ra__job job = { .row = &exec->bound->program->rows[turn->row] };
    const struct ra__cut cut = ra__bound_cut(shape, exec->bound, job.row);
    int64_t lanes = ra__lanes(shape, &cut, job.row->heads), within = index - turn->jobs_before;
    /* Last queries first: under causal they see the most keys. */
    int64_t chunk = ra__bound_chunks(shape, exec->bound, job.row) - 1 - within / lanes;
    ra__job_set(shape, exec->bound, &job, chunk);
    job.lane = ra__lane_at(shape, &cut, job.row->heads, within % lanes);
    return job;
}

static void forward_item(void *context, int64_t item, int thread)
{
    const struct ra__attend *work = context;
    struct ra__job job = job_at(work, item % work->jobs);
    job.stretch = (int)(item /
                        work->jobs); /* heads side by side in memory at about the same time */
    job.thread = thread;
    set_keys(work->exec, &job);
    ra__job_forward(work->exec, work->step, &job);
}

static void merge_item(void *context, int64_t item, int thread)
{
    const struct ra__attend *work = context;
    struct ra__job job = job_at(work, item);
    (void)thread;
    ra__job_merge(work->exec, &job);
}

static bool jobs_clash(void *context, int64_t item, int64_t before)
{
    const struct ra__attend *work = context;
    const struct ra__job job = job_at(work, item), other = job_at(work->before, before);
    return ra__job_clashes(&job, &other);
}

/* Is the next step that touches any rows an ATTEND too? */
static bool another_follows(const struct ra__program *program, const struct ra__step *step)
{
    const struct ra__step *end = program->steps + program->step_count;
    for (step++; step < end; step++)
        if (step->op != RA__OP_WAIT && step->op != RA__OP_MOVE) return step->op == RA__OP_ATTEND;
    return false;
}

ra_status ra__exec_attend(struct ra__exec *exec, const struct ra__step *step)
{
    if (exec->bound == &exec->backward) return ra__exec_attend_backward(exec, step);
    const struct ra__bound *bound = exec->bound;
    const struct ra__turn *last = &bound->turns[step->first_row + step->row_count - 1];
    const int64_t jobs = last->jobs_before + ra__bound_jobs(&exec->plan->input.shape, bound,
                                                            &bound->program->rows[last->row]);
    const bool split = bound->split.stretches > 1;
    const struct ra__attend *before = &exec->attends[exec->attend];
    exec->attend = (exec->attend + 1) % RA__COUNT(exec->attends);
    struct ra__attend *work = &exec->attends[exec->attend];
    *work = (struct ra__attend){ .exec = exec, .step = step, .jobs = jobs, .before = before };
    work->deal = (struct ra__deal){ .body = forward_item,
                                    .clashes = split ? NULL : jobs_clash,
                                    .round = ra__exec_take_held(exec),
                                    .lingers = !split && another_follows(bound->program, step),
                                    .context = work,
                                    .items = jobs * bound->split.stretches };
    struct ra__deal merge = { .body = merge_item, .context = work, .items = jobs };
    RA__TRY(ra__exec_deal(exec, &work->deal));
    return split ? ra__exec_deal(exec, &merge) : RA_OK;
}
