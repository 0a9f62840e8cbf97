/* SPDX-License-Identifier: Apache-2.0 */
/* prepare.c - once per plan: how its programs are divided into jobs, and the memory that their
 * steps use. The same walk counts that memory and takes it. */
#include "backend/cpu/cpu.h"

/* No job of a program exceeds this, however its rows are divided. */
static struct ra__extent largest_job(const struct ra__program *program)
{
    const struct ra__shape *shape = &program->work.shape;
    int64_t queries = 0, keys = 0;
    for (int i = 0; i < program->row_count; i++)
        queries = ra__max(queries, program->rows[i].q_count);
    for (int i = 0; i < program->key_count; i++) keys = ra__max(keys, program->keys[i].count);
    int heads = shape->q_heads; /* of one query a job may take all */
    if (queries > 1) heads /= shape->kv_heads;
    return (struct ra__extent){ queries * heads, keys };
}

/* Query rows of a backward job. It packs its keys, and adds to their gradients, once for all of
 * them: the more the better, where there are still enough jobs for many threads. It must not depend
 * on the threads there are, for it decides in which order gradients are summed. */
static int gradient_rows(const struct ra__side *side, const struct ra__kernel *kernel)
{
    enum { ENOUGH_JOBS = 64 }; /* four for each of 16 threads */
    const struct ra__shape *shape = &side->shape;
    int rows = kernel->backward_rows;
    for (; kernel->backward_few > 0 && rows > kernel->backward_few; rows /= 2) {
        struct ra__chunks chunks = ra__chunks_for(shape, rows, shape->q_heads);
        int64_t count = ra__ceil_div(side->queries, chunks.queries);
        if (shape->batch * shape->kv_heads * chunks.head_chunks * count >= ENOUGH_JOBS) break;
    }
    return rows;
}

static size_t workspace_per_thread(const struct ra__setup *setup)
{
    const struct ra__kernel *kernel = setup->kernel;
    size_t bytes = kernel->workspace(&setup->forward->work.shape, largest_job(setup->forward),
                                     false);
    if (setup->backward) {
        const struct ra__side *side = &setup->backward->work;
        struct ra__extent most = largest_job(setup->backward);
        most.rows = ra__min(most.rows, gradient_rows(side, kernel));
        size_t backward = kernel->workspace(&side->shape, most, true);
        if (backward > bytes) bytes = backward;
    }
    return (bytes + 63) / 64 * 64;
}

/* The most key runs of a row that repeats, is split, or whose keys are counted: room to change
 * them. */
static int most_keys(const struct ra__program *program)
{
    const bool all = program->split.ranges > 1 || program->counts;
    int most = 0;
    for (int r = 0; r < program->row_count; r++)
        if ((all || program->rows[r].repeat > 1) && program->rows[r].key_count > most)
            most = program->rows[r].key_count;
    return most;
}

/* Can threads, all about equally busy, take all heads of one query at once, with all its keys or a
 * range of them? */
static bool takes_multi_head_jobs(const struct ra__setup *setup)
{
    const struct ra__program *program = setup->forward;
    const struct ra__shape *shape = &program->work.shape;
    const struct ra__kernel *kernel = setup->kernel;
    if (program->work.queries != 1 || shape->kv_heads == 1) return false;
    if (!kernel->wide || !kernel->wide(shape)) return false;
    int64_t ranges = ra__max(program->split.ranges * program->work.keys / ra__max(shape->k_len, 1),
                             1);
    return shape->batch % setup->threads == 0 ||
           shape->batch * ranges >= 2 * (int64_t)setup->threads;
}

/* Where the items of each piece start within its step. */
static void number_items(struct ra__cpu_program *p)
{
    const struct ra__program *program = p->program;
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        int64_t items = 0;
        for (int n = step->first_piece; n < step->first_piece + step->piece_count; n++) {
            p->first_item[n] = items;
            items += ra__piece_items(program, &program->pieces[n]);
        }
    }
}

static ra_status take_common(struct ra__arena *arena, const struct ra__program *program,
                             struct ra__cpu_program *p)
{
    p->program = program;
    RA__TRY(ra__arena_array(arena, program->piece_count, sizeof *p->first_item,
                            (void **)&p->first_item));
    if (!arena->counting) number_items(p);
    return RA_OK;
}

static ra_status prepare_forward(const struct ra__setup *setup, struct ra__arena *arena,
                                 struct ra__cpu_plan *plan)
{
    const struct ra__program *program = setup->forward;
    const struct ra__shape *shape = &program->work.shape;
    struct ra__cpu_program *p = &plan->programs[RA__FORWARD];
    RA__TRY(take_common(arena, program, p));
    RA__TRY(ra__arena_array(arena, program->row_count, sizeof *p->schedule, (void **)&p->schedule));
    RA__TRY(
        ra__arena_array(arena, program->row_count, sizeof *p->row_sizes, (void **)&p->row_sizes));
    RA__TRY(ra__arena_array(arena, program->step_count, sizeof *p->jobs, (void **)&p->jobs));
    p->most_keys = most_keys(program);
    RA__TRY(ra__arena_array(arena, (int64_t)p->most_keys * setup->threads, sizeof *plan->moved,
                            (void **)&plan->moved));
    if (arena->counting) return RA_OK;
    p->all_heads = takes_multi_head_jobs(setup)
                       ? ra__chunks_multi_head(shape)
                       : ra__chunks_for(shape, setup->kernel->rows, shape->q_heads);
    p->one_head = ra__chunks_for(shape, setup->kernel->rows, 1);
    ra__schedule(p, setup->threads);
    return RA_OK;
}

/* Counts the chunks of a step by the first head of their rows; `counts` has an entry for each
 * head. */
static void divide_rows(struct ra__cpu_program *p, const struct ra__step *step, int64_t *counts)
{
    const struct ra__plan_row *rows = p->program->rows;
    const int end = step->first_row + step->row_count;
    for (int h = 0; h < p->program->work.shape.q_heads; h++) counts[h] = 0;
    for (int r = step->first_row; r < end; r++) {
        p->portions[r].before = counts[rows[r].heads.start];
        counts[rows[r].heads.start] += ra__count_chunks(p, &rows[r]);
    }
    for (int r = step->first_row; r < end; r++) p->portions[r].all = counts[rows[r].heads.start];
}

static ra_status divide_steps(struct ra__cpu_plan *plan, struct ra__cpu_program *p)
{
    const struct ra__program *program = p->program;
    const int heads = program->work.shape.q_heads;
    int64_t *counts = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)heads, sizeof *counts);
    if (!counts) return ra__fail(RA_ERR_MEMORY, "plan: %d heads", heads);
    for (int i = 0; i < program->step_count; i++)
        if (program->steps[i].op == RA__OP_GRADIENT) divide_rows(p, &program->steps[i], counts);
    ra__free(counts);
    for (int i = 0; i < program->step_count; i++)
        if (program->steps[i].op == RA__OP_GRADIENT)
            p->grid[i] = ra__gradient_grid(plan, &program->steps[i]);
    return RA_OK;
}

static ra_status prepare_backward(const struct ra__setup *setup, struct ra__arena *arena,
                                  struct ra__cpu_plan *plan)
{
    const struct ra__program *program = setup->backward;
    const struct ra__shape *shape = &program->work.shape;
    struct ra__cpu_program *p = &plan->programs[RA__BACKWARD];
    RA__TRY(take_common(arena, program, p));
    RA__TRY(ra__arena_array(arena, program->row_count, sizeof *p->portions, (void **)&p->portions));
    RA__TRY(ra__arena_array(arena, program->step_count, sizeof *p->grid, (void **)&p->grid));
    RA__TRY(ra__arena_array(arena, 1, sizeof *plan->tasks, (void **)&plan->tasks));
    RA__TRY(ra__arena_array(arena, RA__MOST_TASKS, sizeof *plan->done, (void **)&plan->done));
    RA__TRY(ra__arena_array(arena, shape->kv_heads, sizeof *plan->key_ranges,
                            (void **)&plan->key_ranges));
    RA__TRY(ra__arena_array(arena, program->caller.shape.q_heads, sizeof *plan->sink_sums,
                            (void **)&plan->sink_sums));
    if (arena->counting) return RA_OK;
    const int rows = gradient_rows(&program->work, setup->kernel);
    p->all_heads = ra__chunks_for(shape, rows, shape->q_heads);
    p->one_head = ra__chunks_for(shape, rows, 1);
    return divide_steps(plan, p);
}

/* Room for rows of the caller, if the programs are a stream: some at a time, one at least. */
static ra_status prepare_copies(const struct ra__setup *setup, struct ra__arena *arena,
                                struct ra__cpu_plan *plan)
{
    enum { ENOUGH = 1 << 20 };
    const struct ra__shape *s = &setup->forward->caller.shape;
    if (setup->forward->work.q != RA__DEVICE_Q || setup->forward->next.q != RA__NEXT_Q)
        return RA_OK;
    const size_t row = (size_t)s->q_heads * (size_t)ra__max(s->dim, s->value_dim) * sizeof(float);
    plan->rows_bytes = row > ENOUGH ? row : ENOUGH;
    return ra__arena_array(arena, (int64_t)plan->rows_bytes, 1, (void **)&plan->rows);
}

static ra_status prepare(const struct ra__setup *setup, struct ra__arena *arena,
                         struct ra__cpu_plan *plan)
{
    void *workspace = NULL;
    plan->kernel = setup->kernel;
    plan->workspace_bytes = workspace_per_thread(setup);
    RA__TRY(ra__arena_buffer(arena, RA__FOR_WORKSPACE,
                             plan->workspace_bytes * (size_t)setup->threads, &workspace));
    plan->workspace = workspace;
    RA__TRY(prepare_copies(setup, arena, plan));
    RA__TRY(prepare_forward(setup, arena, plan));
    return setup->backward ? prepare_backward(setup, arena, plan) : RA_OK;
}

ra_status ra__cpu_prepare(const struct ra__setup *setup, struct ra__arena *arena, void **prepared)
{
    struct ra__cpu_plan counted = { .kernel = NULL }, *plan = NULL;
    RA__TRY(ra__arena_array(arena, 1, sizeof *plan, (void **)&plan));
    *prepared = plan;
    return prepare(setup, arena, plan ? plan : &counted);
}

void ra__cpu_release(void *prepared, struct ra__buffers *pool, const struct ra__account *account)
{
    struct ra__cpu_plan *plan = prepared;
    if (plan) ra__buffers_give(pool, account, plan->workspace);
}
