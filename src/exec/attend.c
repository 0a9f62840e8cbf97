/* attend.c - ATTEND: the rows of a step, cut into jobs and dealt to the threads of the rank. Forward,
 * jobs are independent; those that see most keys go out first. */
#include "exec/exec.h"

struct attend_work {
    struct ra__exec *exec;
    const struct ra__step *step;
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

/* The key runs of a row: those of its family, moved along. */
static const struct ra__key_run *keys_of(const struct ra__exec *exec, const struct ra__job *job)
{
    const struct ra__program *program = exec->bound->program;
    const struct ra__plan_row *row = job->row;
    const struct ra__key_run *base = program->keys + row->first_key;
    if (job->repeat == 0) return base;
    struct ra__key_run *moved = exec->moved + (int64_t)job->thread * exec->bound->most_keys;
    for (int i = 0; i < row->key_count; i++)
        moved[i] = ra__key_run_at(&base[i], &program->advances[row->first_key + i], job->repeat);
    return moved;
}

static void forward_item(void *context, int64_t item, int thread)
{
    struct attend_work *work = context;
    struct ra__exec *exec = work->exec;
    const struct ra__turn *turn = find_turn(work, item);
    struct ra__job job = { .row = &exec->bound->program->rows[turn->row], .thread = thread };
    const struct ra__shape *shape = &exec->plan->input.shape;
    const struct ra__cut *cut = ra__bound_cut(shape, exec->bound, job.row);
    int64_t lanes = ra__lanes(shape, cut, job.row->heads), index = item - turn->jobs_before;
    /* Last queries first: under causal they see the most keys. */
    int64_t chunk = ra__bound_chunks(shape, exec->bound, job.row) - 1 - index / lanes;
    ra__job_set(shape, exec->bound, &job, chunk);
    job.lane = ra__lane_at(shape, cut, job.row->heads, index % lanes);
    job.runs = keys_of(exec, &job);
    job.run_count = job.row->key_count;
    ra__job_forward(exec, work->step, &job);
}

ra_status ra__exec_attend(struct ra__exec *exec, const struct ra__step *step)
{
    if (exec->bound == &exec->backward) return ra__exec_attend_backward(exec, step);
    const struct ra__turn *last = &exec->bound->turns[step->first_row + step->row_count - 1];
    struct attend_work work = { .exec = exec, .step = step };
    struct ra__deal deal = {
        .body = forward_item,
        .posts = true,
        .context = &work,
        .items = last->jobs_before + ra__bound_jobs(&exec->plan->input.shape, exec->bound,
                                                    &exec->bound->program->rows[last->row]),
    };
    return ra__exec_deal(exec, &deal);
}
