/* backward.c - ATTEND of a backward program: a step laid out as tasks (tasks.h) and dealt to the
 * threads of the rank. A task runs the jobs of its queries, one after the other, on those of their
 * keys that lie in its chunk. What is cut where follows from the problem and the kernel, never from
 * the threads. */
#include "exec/exec.h"

/* Chunks of keys begin at multiples of BORDER rows of their block, so that a kernel's panels stay
 * whole where rows go by position, and have at least FEWEST_KEYS rows: for fewer, a kernel would
 * spend too much of its time on loading queries and adding to dQ. */
enum { BORDER = 256, FEWEST_KEYS = 512 };

struct backward_work {
    struct ra__exec *exec;
    const struct ra__bound *bound;
    const struct ra__step *step;
    int64_t lanes; /* batch x KV heads */
};

static struct backward_work make_work(struct ra__exec *exec, const struct ra__step *step)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    return (struct backward_work){ exec, &exec->backward, step, shape->batch * shape->kv_heads };
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

/* Where rows of keys are counted for each KV head apart: in a slot whose rows are of one KV
 * head. */
static bool rows_by_head(const struct backward_work *work)
{
    const struct ra__plan *plan = work->exec->plan;
    return work->step->from != RA__SLOT_OWN && plan->input.shape.kv_heads > 1 &&
           ra__slot_head(plan, work->step->from, 0, 0) ==
               ra__slot_head(plan, work->step->from, 0, 1);
}

/* The entry of `reach` that the keys of a KV head belong to. */
static struct ra__range *reach_of(const struct backward_work *work, int kv_head)
{
    return &work->exec->reach[rows_by_head(work) ? kv_head : 0];
}

/* How the keys of a reach are cut: chunk k begins `rows` rows behind chunk k - 1. */
struct ruler {
    int64_t first, rows;
    int chunks;
};

static struct ruler make_ruler(const struct backward_work *work, const struct ra__range *reach)
{
    struct ruler ruler = { reach->lo / BORDER * BORDER, BORDER, work->exec->tasks.chunks };
    int64_t borders = ra__ceil_div(reach->hi - ruler.first, BORDER);
    ruler.rows *= ra__max(ra__ceil_div(borders, ruler.chunks), 1);
    return ruler;
}

/* Rows of chunk k; the last one ends nowhere. */
static struct ra__range rows_of_chunk(const struct ruler *ruler, int k)
{
    int64_t lo = ruler->first + k * ruler->rows;
    return (struct ra__range){ lo, k + 1 < ruler->chunks ? lo + ruler->rows : INT64_MAX };
}

/* Chunks [from, to) of a row that belong to chunk q of the step's queries. */
static void share_of(const struct backward_work *work, int row, int q, int64_t *from, int64_t *to)
{
    const struct ra__exec *exec = work->exec;
    const struct ra__share *share = &work->bound->shares[row];
    int64_t count = ra__bound_chunks(&exec->plan->input.shape, work->bound,
                                     &work->bound->program->rows[row]);
    int64_t chunks = exec->tasks.chunks;
    *from = ra__max(ra__ceil_div(q * share->all, chunks) - share->before, 0);
    *to = ra__min(ra__ceil_div((q + 1) * share->all, chunks) - share->before, count);
}

/* ---- One task -------------------------------------------------------------------------------- */

static struct ra__key_run clip_run(struct ra__key_run run, const struct ra__range *rows)
{
    int64_t skipped;
    ra_run kept = ra__run_clip((ra_run){ run.row, run.row_step, run.count }, rows->lo, rows->hi,
                               &skipped);
    run.row = kept.start;
    run.pos += skipped * run.pos_step;
    run.count = kept.count;
    return run;
}

/* Runs a job on all lanes of a KV head of a batch item that its row has. A task can be long: it
 * shows life before each call of the kernel, and after an abort there are no more of them. */
static void run_lanes(struct backward_work *work, struct ra__job *job, int64_t batch, int kv_head)
{
    const struct ra__shape *shape = &work->exec->plan->input.shape;
    const struct ra__cut cut = ra__bound_cut(shape, work->bound, job->row);
    int64_t lanes = ra__lanes(shape, &cut, job->row->heads) / shape->batch;
    for (int64_t i = 0; i < lanes && job->run_count > 0; i++) {
        job->lane = ra__lane_at(shape, &cut, job->row->heads, batch * lanes + i);
        if (job->lane.kv_head == kv_head && ra__pool_go_on(work->exec->rank->pool, job->thread))
            ra__job_backward(work->exec, work->step, job);
    }
    job->run_count = 0;
}

/* Runs a job on its keys in some rows of the block, a few runs at a time. */
static void run_chunk(struct backward_work *work, struct ra__job *job, const struct ra__range *keys,
                      int64_t lane)
{
    enum { RUNS = 64 };
    struct ra__key_run runs[RUNS];
    const struct ra__program *program = work->bound->program;
    int kv_heads = work->exec->plan->input.shape.kv_heads;
    job->runs = runs;
    job->run_count = 0;
    for (int i = job->row->first_key; i < job->row->first_key + job->row->key_count; i++) {
        int64_t first;
        struct ra__key_run *run = &runs[job->run_count];
        *run = clip_run(ra__key_run_at(&program->keys[i], &program->advances[i], job->repeat),
                        keys);
        if (ra__job_keys(job, run, &first) == 0) continue;
        if (++job->run_count == RUNS) run_lanes(work, job, lane / kv_heads, (int)(lane % kv_heads));
    }
    run_lanes(work, job, lane / kv_heads, (int)(lane % kv_heads));
}

/* Has a row any head that reads this KV head? Rows of single heads are many; most are of others. */
static bool row_reads(const struct ra__shape *shape, const struct ra__plan_row *row, int kv_head)
{
    int64_t group = shape->q_heads / shape->kv_heads, skipped;
    return ra__run_clip(row->heads, kv_head * group, (kv_head + 1) * group, &skipped).count > 0;
}

static void run_task(struct backward_work *work, const struct ra__task *task, int64_t lane,
                     int thread)
{
    const struct ra__exec *exec = work->exec;
    const struct ra__shape *shape = &exec->plan->input.shape;
    struct ruler ruler = make_ruler(work, reach_of(work, (int)(lane % shape->kv_heads)));
    struct ra__range keys = rows_of_chunk(&ruler, task->keys);
    int end = work->step->first_row + work->step->row_count;
    for (int row = work->step->first_row; row < end; row++) {
        struct ra__job job = { .row = &work->bound->program->rows[row], .thread = thread };
        int64_t from, to;
        if (!row_reads(shape, job.row, (int)(lane % shape->kv_heads))) continue;
        share_of(work, row, task->queries, &from, &to);
        for (int64_t chunk = from; chunk < to; chunk++) {
            ra__job_set(shape, work->bound, &job, chunk);
            run_chunk(work, &job, &keys, lane);
        }
    }
}

static void backward_item(void *context, int64_t item, int thread)
{
    struct backward_work *work = context;
    run_task(work, &work->exec->tasks.list[item / work->lanes], item % work->lanes, thread);
    if (work->exec->tasks.chunks > 1) atomic_store(&work->exec->done[item], true);
}

static bool task_ready(void *context, int64_t item)
{
    const struct backward_work *work = context;
    const struct ra__task *task = &work->exec->tasks.list[item / work->lanes];
    for (int i = 0; i < RA__COUNT(task->after); i++)
        if (task->after[i] >= 0 &&
            !atomic_load(&work->exec->done[task->after[i] * work->lanes + item % work->lanes]))
            return false;
    return true;
}

/* ---- All tasks of a step --------------------------------------------------------------------- */

static struct ra__range *reach_of_row(const struct backward_work *work,
                                      const struct ra__plan_row *row)
{
    const struct ra__shape *shape = &work->exec->plan->input.shape;
    return reach_of(work, (int)(row->heads.start / (shape->q_heads / shape->kv_heads)));
}

/* Finds the rows of the keys of a step. Families move one way, so their ends tell. */
static void find_reach(const struct backward_work *work)
{
    const struct ra__program *program = work->bound->program;
    int end = work->step->first_row + work->step->row_count;
    int kv_heads = work->exec->plan->input.shape.kv_heads;
    for (int h = 0; h < kv_heads; h++) work->exec->reach[h] = (struct ra__range){ INT64_MAX, 0 };
    for (int r = work->step->first_row; r < end; r++) {
        const struct ra__plan_row *row = &program->rows[r];
        struct ra__range *reach = reach_of_row(work, row);
        for (int i = row->first_key; i < row->first_key + row->key_count; i++) {
            int64_t first = program->keys[i].row;
            int64_t last = first + (program->keys[i].count - 1) * program->keys[i].row_step;
            int64_t moved = (row->repeat - 1) * program->advances[i].row;
            if (program->keys[i].count == 0) continue;
            reach->lo = ra__min(reach->lo, ra__min(first, first + moved));
            reach->hi = ra__max(reach->hi, ra__max(last, last + moved) + 1);
        }
    }
    for (int h = 0; h < kv_heads; h++)
        work->exec->reach[h].lo = ra__min(work->exec->reach[h].lo, work->exec->reach[h].hi);
}

/* What a layout costs. */
struct cost {
    int64_t pairs;       /* roughly */
    int64_t calls, jobs; /* of kernels, and how few could be made */
};

/* Adds what a job sees to the work of tasks. */
static void add_job(const struct backward_work *work, const struct ra__job *job, int q,
                    struct cost *cost)
{
    struct ra__tasks *tasks = &work->exec->tasks;
    const struct ra__program *program = work->bound->program;
    const struct ruler ruler = make_ruler(work, reach_of_row(work, job->row));
    const struct ra__shape *shape = &work->exec->plan->input.shape;
    int64_t rows_of_job = job->count * ra__bound_cut(shape, work->bound, job->row).heads;
    unsigned met = 0; /* chunks of keys, by bit */
    for (int i = job->row->first_key; i < job->row->first_key + job->row->key_count; i++) {
        struct ra__key_run run = ra__key_run_at(&program->keys[i], &program->advances[i],
                                                job->repeat);
        int64_t first;
        run.count = ra__job_keys(job, &run, &first);
        run.row += first * run.row_step;
        int64_t k = run.count ? ra__min((run.row - ruler.first) / ruler.rows, ruler.chunks - 1) : 0;
        for (int64_t left = run.count, here; left > 0; left -= here, k++) {
            struct ra__range rows = rows_of_chunk(&ruler, (int)k);
            here = clip_run(run, &rows).count;
            tasks->work[k][q] += here * rows_of_job;
            cost->pairs += here * rows_of_job;
            if (here > 0) met |= 1u << k; /* a run may step over a chunk */
        }
    }
    cost->jobs += met != 0;
    for (; met; met &= met - 1) cost->calls++;
}

static struct cost lay_out(const struct backward_work *work, int chunks)
{
    struct ra__tasks *tasks = &work->exec->tasks;
    struct cost cost = { 0 };
    int end = work->step->first_row + work->step->row_count;
    *tasks = (struct ra__tasks){ .chunks = chunks };
    tasks->work[0][0] = chunks == 1; /* all of it */
    for (int row = work->step->first_row; row < end; row++)
        for (int q = 0; q < chunks && chunks > 1; q++) {
            struct ra__job job = { .row = &work->bound->program->rows[row] };
            int64_t from, to;
            share_of(work, row, q, &from, &to);
            for (int64_t chunk = from; chunk < to; chunk++) {
                ra__job_set(&work->exec->plan->input.shape, work->bound, &job, chunk);
                add_job(work, &job, q, &cost);
            }
        }
    return cost;
}

/* Are calls of the kernel small, and many more than need be? Measured on Zen 4 with random blocks
 * of 64, whole runs: cut as often as possible they took 0 to 11% more time. */
static bool too_many(const struct cost *cost)
{
    enum { ENOUGH = 64 * 128 }; /* pairs of a call */
    return cost->calls > cost->jobs + cost->jobs / 4 && cost->pairs / cost->calls < ENOUGH;
}

int ra__exec_backward_chunks(struct ra__exec *exec, const struct ra__step *step)
{
    const struct backward_work work = make_work(exec, step);
    int64_t keys = 0, queries = 0, chunks = ra__tasks_most(work.lanes);
    find_reach(&work);
    for (int h = 0; h < exec->plan->input.shape.kv_heads; h++)
        keys = ra__max(keys, exec->reach[h].hi - exec->reach[h].lo);
    for (int r = 0; r < step->row_count; r++)
        queries = ra__max(queries, work.bound->shares[step->first_row + r].all);
    chunks = ra__max(ra__min(chunks, ra__min(keys / FEWEST_KEYS, queries)), 1);
    for (; chunks > 1; chunks /= 2) {
        struct cost cost = lay_out(&work, (int)chunks);
        if (!too_many(&cost)) break;
    }
    return (int)chunks;
}

ra_status ra__exec_attend_backward(struct ra__exec *exec, const struct ra__step *step)
{
    struct backward_work work = make_work(exec, step);
    find_reach(&work);
    lay_out(&work, work.bound->chunks[step - work.bound->program->steps]);
    ra__tasks_order(&exec->tasks);
    struct ra__deal deal = {
        .body = backward_item,
        .ready = task_ready,
        .round = ra__exec_take_held(exec),
        .context = &work,
        .items = exec->tasks.count * work.lanes,
    };
    for (int64_t i = 0; i < deal.items && exec->tasks.chunks > 1; i++)
        atomic_store_explicit(&exec->done[i], false, memory_order_relaxed);
    return ra__exec_deal(exec, &deal);
}
