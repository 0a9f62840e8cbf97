/* attend.c - ATTEND: the rows of a step, cut into jobs and dealt to the threads of the rank.
 *
 * Forward, jobs are independent and go out largest first. Backward, a job adds to the gradients of
 * its keys, so the jobs of one KV head are done one after the other, in order: that keeps sums free
 * of locks and gives the same bits in every run. */
#include "exec/exec.h"

/* K and V of one KV head, in the caller's tensors or in a slot. */
struct block {
    struct ra__matrix k, v;
};

static struct block find_block(const struct ra__exec *exec, enum ra__slot slot,
                               const struct ra__lane *lane)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    if (slot == RA__SLOT_OWN)
        return (struct block){
            ra__matrix_at(&exec->io->k, shape->dtype, lane->batch, 0, lane->kv_head),
            ra__matrix_at(&exec->io->v, shape->dtype, lane->batch, 0, lane->kv_head),
        };
    int64_t element = (int64_t)ra__dtype_bytes(shape->dtype), row_stride = ra__slot_width(shape);
    char *k = (char *)exec->slots[slot] +
              ra__slot_head(shape, lane->batch, lane->kv_head) * element;
    return (struct block){ { k, row_stride, 0 }, { k + shape->dim * element, row_stride, 0 } };
}

/* One stretch of queries of a row: what all its lanes share. */
struct chunk {
    const struct ra__plan_row *row;
    int64_t offset, count; /* queries of the row */
};

/* Inside a job: a sign of life. What poll says about the group is heard at the next tick. */
static void breathe(void *context)
{
    const struct ra__rank *rank = context;
    rank->transport->poll(rank->link);
}

/* Only the rank's own thread may use its link; thread 0 is that one. */
static struct ra__view make_view(const struct ra__exec *exec, const struct ra__step *step,
                                 const struct chunk *chunk, const struct ra__lane *lane, int thread)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    const struct ra__plan_row *row = chunk->row;
    struct block block = find_block(exec, step->from, lane);
    return (struct ra__view){
        .shape = shape,
        .heads = lane->heads,
        .q_count = chunk->count,
        .q_pos = row->q_pos + chunk->offset * row->q_step,
        .q_pos_step = row->q_step,
        .q = ra__matrix_at(&exec->io->q, shape->dtype, lane->batch, row->q_row + chunk->offset,
                           lane->head),
        .k = block.k,
        .v = block.v,
        .runs = exec->bound->program->keys + row->first_key,
        .run_count = row->key_count,
        .breathe = thread == 0 ? breathe : NULL,
        .context = (void *)exec->rank,
    };
}

static void run_forward(struct ra__exec *exec, const struct ra__step *step,
                        const struct chunk *chunk, const struct ra__lane *lane, int thread)
{
    const struct ra__plan_input *input = &exec->plan->input;
    const struct ra__shape *shape = &input->shape;
    int64_t rows = input->q_layout->count[input->rank], q = chunk->row->q_row + chunk->offset;
    int64_t at = (lane->batch * rows + q) * shape->q_heads + lane->head;
    struct ra__forward_job job = {
        .view = make_view(exec, step, chunk, lane, thread),
        .first = chunk->row->first,
        .last = chunk->row->last,
        .m = ra__column_at(shape, exec->m, rows, lane->batch, q, lane->head),
        .l = ra__column_at(shape, exec->l, rows, lane->batch, q, lane->head),
        .acc = exec->acc ? exec->acc + at * shape->value_dim : NULL,
        .acc_row_stride = (int64_t)shape->q_heads * shape->value_dim,
        .out = ra__matrix_at(&exec->io->out, shape->dtype, lane->batch, q, lane->head),
        .lse = ra__column_at(shape, exec->io->lse, rows, lane->batch, q, lane->head),
    };
    exec->kernel->forward(&job, exec->workspace + (size_t)thread * exec->workspace_bytes);
    atomic_fetch_add_explicit(&exec->pairs, job.pairs, memory_order_relaxed);
}

static void run_backward(struct ra__exec *exec, const struct ra__step *step,
                         const struct chunk *chunk, const struct ra__lane *lane, int thread)
{
    const struct ra__plan_input *input = &exec->plan->input;
    const struct ra__shape *shape = &input->shape;
    int64_t rows = input->q_layout->count[input->rank], q = chunk->row->q_row + chunk->offset;
    int64_t at = (lane->batch * rows + q) * shape->q_heads + lane->head;
    float *dk = (float *)exec->slots[step->to] + ra__slot_head(shape, lane->batch, lane->kv_head);
    struct ra__backward_job job = {
        .view = make_view(exec, step, chunk, lane, thread),
        .dout = ra__matrix_at(&exec->io->dout, shape->dtype, lane->batch, q, lane->head),
        .lse = ra__column_at(shape, exec->io->lse, rows, lane->batch, q, lane->head),
        .delta = ra__column_at(shape, exec->delta, rows, lane->batch, q, lane->head),
        .dq = exec->dq + at * shape->dim,
        .dq_row_stride = (int64_t)shape->q_heads * shape->dim,
        .dk = dk,
        .dv = dk + shape->dim,
        .dk_row_stride = ra__slot_width(shape),
        .dv_row_stride = ra__slot_width(shape),
    };
    exec->kernel->backward(&job, exec->workspace + (size_t)thread * exec->workspace_bytes);
    atomic_fetch_add_explicit(&exec->pairs, job.pairs, memory_order_relaxed);
}

struct attend_work {
    struct ra__exec *exec;
    const struct ra__step *step;
    int64_t chunks, lanes; /* of the whole step; lanes per chunk */
    struct chunk chunk;    /* backward: the one all threads work on */
};

/* The index-th chunk of the step: finds its row by the number of chunks before each row. */
static struct chunk chunk_at(const struct attend_work *work, int64_t index)
{
    const struct ra__bound *bound = work->exec->bound;
    int low = work->step->first_row, high = low + work->step->row_count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (bound->chunk_starts[middle] <= index) low = middle;
        else high = middle;
    }
    const struct ra__plan_row *row = &bound->program->rows[low];
    int64_t size = work->exec->bound->cut.queries,
            offset = (index - bound->chunk_starts[low]) * size;
    return (struct chunk){ row, offset, ra__min(size, row->q_count - offset) };
}

static void forward_item(void *context, int64_t item, int thread)
{
    struct attend_work *work = context;
    /* Last chunk first: under causal patterns it sees the most keys. */
    struct chunk chunk = chunk_at(work, work->chunks - 1 - item / work->lanes);
    struct ra__lane lane = ra__lane_at(&work->exec->plan->input.shape, &work->exec->bound->cut,
                                       item % work->lanes);
    run_forward(work->exec, work->step, &chunk, &lane, thread);
}

static void backward_item(void *context, int64_t item, int thread)
{
    struct attend_work *work = context;
    const struct ra__cut *cut = &work->exec->bound->cut;
    for (int i = 0; i < cut->head_chunks; i++) {
        struct ra__lane lane = ra__lane_at(&work->exec->plan->input.shape, cut,
                                           item * cut->head_chunks + i);
        run_backward(work->exec, work->step, &work->chunk, &lane, thread);
    }
}

static ra_status tick(void *context)
{
    return ra__exec_tick(((struct attend_work *)context)->exec);
}

ra_status ra__exec_attend(struct ra__exec *exec, const struct ra__step *step)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    int last_row = step->first_row + step->row_count - 1;
    struct attend_work work = { .exec = exec, .step = step };
    work.lanes = shape->batch * shape->kv_heads * exec->bound->cut.head_chunks;
    work.chunks = exec->bound->chunk_starts[last_row] +
                  ra__ceil_div(exec->bound->program->rows[last_row].q_count,
                               exec->bound->cut.queries);
    struct ra__work deal = { forward_item, tick, &work, work.chunks * work.lanes };
    if (exec->bound == &exec->forward) return ra__pool_run(exec->rank->pool, &deal);
    deal.body = backward_item;
    deal.items = shape->batch * shape->kv_heads;
    for (int64_t i = 0; i < work.chunks; i++) {
        work.chunk = chunk_at(&work, i);
        RA__TRY(ra__pool_run(exec->rank->pool, &deal));
    }
    return RA_OK;
}
