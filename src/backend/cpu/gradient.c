/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.c - GRADIENT: a step divided into tasks (tasks.h) for the threads of the rank. A task
 * runs the jobs of its queries, one after the other, on those of their keys that are in its chunk.
 * The division follows from the problem and the kernel, never from the threads. */
#include "backend/cpu/cpu.h"

/* Chunks of keys begin at multiples of BORDER tokens of their block, so that a kernel's panels stay
 * whole where tokens are in the order of positions. They have at least FEWEST_KEYS tokens: with
 * fewer, a kernel would spend too much of its time on loading queries and adding to dQ. */
enum { BORDER = 256, FEWEST_KEYS = 512 };

/* A step and its plan; the run is NULL while the plan is made. */
struct gradient {
    const struct ra__running *run;
    struct ra__cpu_plan *plan;
    const struct ra__cpu_program *program;
    const struct ra__step *step;
    int64_t kv_items; /* batch items x KV heads; kv_item = batch item x KV heads + KV head */
};

static const struct ra__shape *shape_of(const struct gradient *work)
{
    return &work->program->program->work.shape;
}

static struct gradient make_work(const struct ra__running *run, struct ra__cpu_plan *plan,
                                 const struct ra__step *step)
{
    const struct ra__cpu_program *program = &plan->programs[RA__BACKWARD];
    const struct ra__shape *shape = &program->program->work.shape;
    return (struct gradient){ run, plan, program, step, shape->batch * shape->kv_heads };
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

/* Are the tokens of keys counted for each KV head apart, since a token is that of one? */
static bool tokens_by_head(const struct gradient *work)
{
    return work->step->from != RA__OWN_KV &&
           work->program->program->storage[work->step->from].one_head;
}

/* The entry of `key_ranges` that the keys of a KV head belong to. */
static struct ra__range *key_range_of(const struct gradient *work, int kv_head)
{
    return &work->plan->key_ranges[tokens_by_head(work) ? kv_head : 0];
}

/* How the keys of a step are split: chunk k begins `tokens` tokens after chunk k - 1. */
struct ruler {
    int64_t first, tokens;
    int chunks;
};

static struct ruler make_ruler(const struct gradient *work, const struct ra__range *keys)
{
    struct ruler ruler = { keys->lo / BORDER * BORDER, BORDER, work->plan->tasks->chunks };
    int64_t borders = ra__ceil_div(keys->hi - ruler.first, BORDER);
    ruler.tokens *= ra__max(ra__ceil_div(borders, ruler.chunks), 1);
    return ruler;
}

/* Rows of chunk k; the last one ends nowhere. */
static struct ra__range tokens_of_chunk(const struct ruler *ruler, int k)
{
    int64_t lo = ruler->first + k * ruler->tokens;
    return (struct ra__range){ lo, k + 1 < ruler->chunks ? lo + ruler->tokens : INT64_MAX };
}

/* Chunks [from, to) of a row that belong to chunk q of the step's queries. */
static void portion_of(const struct gradient *work, int row, int q, int64_t *from, int64_t *to)
{
    const struct ra__portion *portion = &work->program->portions[row];
    int64_t count = ra__count_chunks(work->program, &work->program->program->rows[row]);
    int64_t chunks = work->plan->tasks->chunks;
    *from = ra__max(ra__ceil_div(q * portion->all, chunks) - portion->before, 0);
    *to = ra__min(ra__ceil_div((q + 1) * portion->all, chunks) - portion->before, count);
}

/* ---- One task -------------------------------------------------------------------------------- */

static struct ra__key_run clip_run(struct ra__key_run run, const struct ra__range *rows)
{
    int64_t skipped;
    ra_run kept = ra__run_clip((ra_run){ run.token, run.token_step, run.count }, rows->lo, rows->hi,
                               &skipped);
    run.token = kept.start;
    run.pos += skipped * run.pos_step;
    run.count = kept.count;
    return run;
}

/* Runs a job for the query heads of its row that read this KV head of this batch item. A task can
 * be long: it polls before each call of the kernel, and after an abort there are no more calls. */
static void run_heads(struct gradient *work, struct ra__job *job, int64_t batch, int kv_head)
{
    const struct ra__shape *shape = shape_of(work);
    const struct ra__chunks chunks = ra__chunks_of(work->program, job->row);
    int64_t count = ra__count_heads(shape, &chunks, job->row->heads) / shape->batch;
    for (int64_t i = 0; i < count && job->run_count > 0; i++) {
        job->heads = ra__heads_at(shape, &chunks, job->row->heads, batch * count + i);
        if (job->heads.kv_head == kv_head &&
            ra__workers_continue(work->run->cpu->workers, job->thread))
            ra__job_gradient(work->run, job);
    }
    job->run_count = 0;
}

/* Runs a job on its keys in some rows of the block, a few runs at a time. */
static void run_chunk(struct gradient *work, struct ra__job *job, const struct ra__range *keys,
                      int64_t kv_item)
{
    enum { RUNS = 64 };
    struct ra__key_run runs[RUNS];
    const struct ra__program *program = work->program->program;
    int kv_heads = shape_of(work)->kv_heads;
    job->runs = runs;
    job->run_count = 0;
    for (int i = job->row->first_key; i < job->row->first_key + job->row->key_count; i++) {
        int64_t first;
        struct ra__key_run *run = &runs[job->run_count];
        *run = clip_run(ra__key_run_at(&program->keys[i], &program->advances[i], job->repeat),
                        keys);
        if (ra__job_keys(job, run, &first) == 0) continue;
        if (++job->run_count == RUNS)
            run_heads(work, job, kv_item / kv_heads, (int)(kv_item % kv_heads));
    }
    run_heads(work, job, kv_item / kv_heads, (int)(kv_item % kv_heads));
}

/* Has a row any head that reads this KV head? Rows of single heads are many; most are of others. */
static bool row_reads(const struct ra__shape *shape, const struct ra__plan_row *row, int kv_head)
{
    int64_t group = shape->q_heads / shape->kv_heads, skipped;
    return ra__run_clip(row->heads, kv_head * group, (kv_head + 1) * group, &skipped).count > 0;
}

static void run_task(struct gradient *work, const struct ra__task *task, int64_t kv_item,
                     int thread)
{
    const struct ra__shape *shape = shape_of(work);
    struct ruler ruler = make_ruler(work, key_range_of(work, (int)(kv_item % shape->kv_heads)));
    struct ra__range keys = tokens_of_chunk(&ruler, task->keys);
    int end = work->step->first_row + work->step->row_count;
    for (int row = work->step->first_row; row < end; row++) {
        struct ra__job job = { .row = &work->program->program->rows[row], .thread = thread };
        int64_t from, to;
        if (!row_reads(shape, job.row, (int)(kv_item % shape->kv_heads))) continue;
        const struct ra__chunks chunks = ra__chunks_of(work->program, job.row);
        portion_of(work, row, task->queries, &from, &to);
        for (int64_t chunk = from; chunk < to; chunk++) {
            ra__job_set(&job, &chunks, chunk);
            run_chunk(work, &job, &keys, kv_item);
        }
    }
}

static void gradient_item(void *context, int64_t item, int thread)
{
    struct gradient *work = context;
    run_task(work, &work->plan->tasks->list[item / work->kv_items], item % work->kv_items, thread);
    if (work->plan->tasks->chunks > 1) atomic_store(&work->plan->done[item], true);
}

static bool task_ready(void *context, int64_t item)
{
    const struct gradient *work = context;
    const struct ra__task *task = &work->plan->tasks->list[item / work->kv_items];
    for (int i = 0; i < RA__COUNT(task->after); i++)
        if (task->after[i] >= 0 &&
            !atomic_load(
                &work->plan->done[task->after[i] * work->kv_items + item % work->kv_items]))
            return false;
    return true;
}

/* ---- All tasks of a step --------------------------------------------------------------------- */

static struct ra__range *key_range_of_row(const struct gradient *work,
                                          const struct ra__plan_row *row)
{
    const struct ra__shape *shape = shape_of(work);
    return key_range_of(work, (int)(row->heads.start / (shape->q_heads / shape->kv_heads)));
}

/* Finds the range of the keys of a step. Families advance in one direction, so their ends are
 * enough. */
static void find_key_ranges(const struct gradient *work)
{
    const struct ra__program *program = work->program->program;
    int end = work->step->first_row + work->step->row_count;
    int kv_heads = shape_of(work)->kv_heads;
    for (int h = 0; h < kv_heads; h++)
        work->plan->key_ranges[h] = (struct ra__range){ INT64_MAX, 0 };
    for (int r = work->step->first_row; r < end; r++) {
        const struct ra__plan_row *row = &program->rows[r];
        struct ra__range *key_ranges = key_range_of_row(work, row);
        for (int i = row->first_key; i < row->first_key + row->key_count; i++) {
            int64_t first = program->keys[i].token;
            int64_t last = first + (program->keys[i].count - 1) * program->keys[i].token_step;
            int64_t moved = (row->repeat - 1) * program->advances[i].token;
            if (program->keys[i].count == 0) continue;
            key_ranges->lo = ra__min(key_ranges->lo, ra__min(first, first + moved));
            key_ranges->hi = ra__max(key_ranges->hi, ra__max(last, last + moved) + 1);
        }
    }
    for (int h = 0; h < kv_heads; h++)
        work->plan->key_ranges[h].lo = ra__min(work->plan->key_ranges[h].lo,
                                               work->plan->key_ranges[h].hi);
}

/* What a layout costs. */
struct cost {
    int64_t pairs;       /* roughly */
    int64_t calls, jobs; /* of kernels, and how few could be made */
};

/* Adds what a job sees to the work of tasks. */
static void add_job(const struct gradient *work, const struct ra__job *job, int q,
                    struct cost *cost)
{
    struct ra__tasks *tasks = work->plan->tasks;
    const struct ra__program *program = work->program->program;
    const struct ruler ruler = make_ruler(work, key_range_of_row(work, job->row));
    int64_t rows_of_job = job->count * ra__chunks_of(work->program, job->row).heads;
    unsigned met = 0; /* chunks of keys, by bit */
    for (int i = job->row->first_key; i < job->row->first_key + job->row->key_count; i++) {
        struct ra__key_run run = ra__key_run_at(&program->keys[i], &program->advances[i],
                                                job->repeat);
        int64_t first;
        run.count = ra__job_keys(job, &run, &first);
        run.token += first * run.token_step;
        int64_t k = run.count ? ra__min((run.token - ruler.first) / ruler.tokens, ruler.chunks - 1)
                              : 0;
        for (int64_t left = run.count, here; left > 0; left -= here, k++) {
            struct ra__range rows = tokens_of_chunk(&ruler, (int)k);
            here = clip_run(run, &rows).count;
            tasks->work[k][q] += here * rows_of_job;
            cost->pairs += here * rows_of_job;
            if (here > 0) met |= 1u << k; /* a run may step over a chunk */
        }
    }
    cost->jobs += met != 0;
    for (; met; met &= met - 1) cost->calls++;
}

static struct cost lay_out(const struct gradient *work, int chunks)
{
    struct ra__tasks *tasks = work->plan->tasks;
    struct cost cost = { 0 };
    int end = work->step->first_row + work->step->row_count;
    *tasks = (struct ra__tasks){ .chunks = chunks };
    tasks->work[0][0] = chunks == 1; /* all of it */
    for (int row = work->step->first_row; row < end; row++)
        for (int q = 0; q < chunks && chunks > 1; q++) {
            struct ra__job job = { .row = &work->program->program->rows[row] };
            const struct ra__chunks all = ra__chunks_of(work->program, job.row);
            int64_t from, to;
            portion_of(work, row, q, &from, &to);
            for (int64_t chunk = from; chunk < to; chunk++) {
                ra__job_set(&job, &all, chunk);
                add_job(work, &job, q, &cost);
            }
        }
    return cost;
}

/* Are calls of the kernel small, and many more than need be? Measured on Zen 4 with random blocks
 * of 64, whole runs: split as often as possible they took 0 to 11% more time. */
static bool too_many(const struct cost *cost)
{
    enum { ENOUGH = 64 * 128 }; /* pairs of a call */
    return cost->calls > cost->jobs + cost->jobs / 4 && cost->pairs / cost->calls < ENOUGH;
}

int ra__gradient_grid(struct ra__cpu_plan *plan, const struct ra__step *step)
{
    const struct gradient work = make_work(NULL, plan, step);
    int64_t keys = 0, queries = 0, chunks = ra__tasks_most(work.kv_items);
    find_key_ranges(&work);
    for (int h = 0; h < shape_of(&work)->kv_heads; h++)
        keys = ra__max(keys, plan->key_ranges[h].hi - plan->key_ranges[h].lo);
    for (int r = 0; r < step->row_count; r++)
        queries = ra__max(queries, work.program->portions[step->first_row + r].all);
    chunks = ra__max(ra__min(chunks, ra__min(keys / FEWEST_KEYS, queries)), 1);
    for (; chunks > 1; chunks /= 2) {
        struct cost cost = lay_out(&work, (int)chunks);
        if (!too_many(&cost)) break;
    }
    return (int)chunks;
}

ra_status ra__cpu_gradient(const struct ra__running *run)
{
    struct ra__cpu_plan *plan = run->plan;
    struct gradient work = make_work(run, plan, run->launch->step);
    find_key_ranges(&work);
    lay_out(&work, work.program->grid[work.step - work.program->program->steps]);
    ra__tasks_order(plan->tasks);
    const int64_t items = plan->tasks->count * work.kv_items;
    for (int64_t i = 0; i < items && plan->tasks->chunks > 1; i++)
        atomic_store_explicit(&plan->done[i], false, memory_order_relaxed);
    return ra__cpu_run(
        run, &(struct ra__work){
                 .body = gradient_item, .ready = task_ready, .context = &work, .items = items });
}
