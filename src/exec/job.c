/* job.c - one job: where the numbers of its queries and keys lie, and the call of the kernel. */
#include "exec/exec.h"

#include "kernel/state.h"

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
    int64_t element = (int64_t)ra__dtype_bytes(shape->dtype);
    int64_t row_stride = ra__slot_width(exec->plan, slot);
    char *k = (char *)exec->slots[slot] +
              ra__slot_head(exec->plan, slot, lane->batch, lane->kv_head) * element;
    return (struct block){ { k, row_stride, 0 }, { k + shape->dim * element, row_stride, 0 } };
}

/* The first row of the shard that a job works on; the next ones lie q_row_step apart. */
static int64_t first_row(const struct ra__job *job)
{
    const struct ra__plan_row *row = job->row;
    return row->q_row + job->repeat * row->q_row_advance + job->offset * row->q_row_step;
}

static int64_t last_row(const struct ra__job *job)
{
    return first_row(job) + (job->count - 1) * job->row->q_row_step;
}

bool ra__job_clashes(const struct ra__job *a, const struct ra__job *b)
{
    const struct ra__lane *x = &a->lane, *y = &b->lane;
    return x->batch == y->batch && x->head < y->head + y->heads && y->head < x->head + x->heads &&
           first_row(a) <= last_row(b) && first_row(b) <= last_row(a);
}

static struct ra__matrix queries_at(const struct ra__exec *exec, const struct ra__job *job,
                                    const ra_tensor *tensor)
{
    struct ra__matrix matrix = ra__matrix_at(tensor, exec->plan->input.shape.dtype, job->lane.batch,
                                             first_row(job), job->lane.head);
    matrix.row_stride *= job->row->q_row_step;
    return matrix;
}

static struct ra__column column_at(const struct ra__exec *exec, const struct ra__job *job,
                                   float *data)
{
    const struct ra__plan_input *input = &exec->plan->input;
    struct ra__column column = ra__column_at(&input->shape, data,
                                             input->q_layout->count[input->rank], job->lane.batch,
                                             first_row(job), job->lane.head);
    column.row_stride *= job->row->q_row_step;
    return column;
}

/* Where the numbers of a job start in a packed f32 tensor [batch, query, head, width]. */
static float *sums_at(const struct ra__exec *exec, const struct ra__job *job, float *data,
                      int width)
{
    const struct ra__plan_input *input = &exec->plan->input;
    int64_t rows = input->q_layout->count[input->rank];
    int64_t at = (job->lane.batch * rows + first_row(job)) * input->shape.q_heads + job->lane.head;
    return data ? data + at * width : NULL;
}

/* The states of the rows of a job. */
struct state {
    struct ra__column m, l;
    float *acc;
    int64_t acc_row_stride;
};

static struct state state_in(const struct ra__exec *exec, const struct ra__job *job, float *m,
                             float *l, float *acc)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    return (struct state){ column_at(exec, job, m), column_at(exec, job, l),
                           sums_at(exec, job, acc, shape->value_dim),
                           (int64_t)shape->q_heads * shape->value_dim * job->row->q_row_step };
}

/* Those that stay from hop to hop. */
static struct state state_of(const struct ra__exec *exec, const struct ra__job *job)
{
    return state_in(exec, job, exec->m, exec->l, exec->acc);
}

/* Those of one stretch of the keys. */
static struct state part_of(const struct ra__exec *exec, const struct ra__job *job, int stretch)
{
    const struct ra__plan_input *input = &exec->plan->input;
    const struct ra__shape *shape = &input->shape;
    int64_t rows = ra__query_rows(input);
    int64_t all = exec->bound->split.stretches * rows, first = stretch * rows;
    return state_in(exec, job, exec->parts + first, exec->parts + all + first,
                    exec->parts + 2 * all + first * shape->value_dim);
}

static struct ra__state_row state_row(const struct state *state, int64_t query, int head, int width)
{
    return (struct ra__state_row){ state->m.data + query * state->m.row_stride + head,
                                   state->l.data + query * state->l.row_stride + head,
                                   state->acc + query * state->acc_row_stride + head * width };
}

static struct ra__bias bias_at(const struct ra__exec *exec, const struct ra__job *job)
{
    const ra_bias *bias = &exec->io->bias;
    if (!bias->data) return (struct ra__bias){ .data = NULL };
    int64_t at = job->lane.batch * bias->batch_stride + job->lane.head * bias->head_stride +
                 first_row(job) * bias->query_stride;
    int64_t bytes = bias->mask ? 1 : (int64_t)sizeof(float);
    return (struct ra__bias){ .data = (const char *)bias->data + at * bytes,
                              .mask = bias->mask != 0,
                              .row_stride = bias->query_stride * job->row->q_row_step,
                              .head_stride = bias->head_stride };
}

/* Inside a job of the calling thread: a sign of life, and what waits to be posted. A failure is
 * heard when the job is done. */
static void breathe(void *context) { ra__pool_go_on(context, 0); }

/* Only the rank's own thread may use its link; thread 0 is that one. */
static struct ra__view make_view(const struct ra__exec *exec, const struct ra__step *step,
                                 const struct ra__job *job)
{
    struct block block = find_block(exec, step->from, &job->lane);
    return (struct ra__view){
        .shape = &exec->plan->input.shape,
        .batch = job->lane.batch,
        .head = exec->plan->input.first_head + job->lane.head,
        .heads = job->lane.heads,
        .kv_heads = job->lane.kv_heads,
        .q_count = job->count,
        .q_pos = ra__job_position(job),
        .q_pos_step = job->row->q_step,
        .q = queries_at(exec, job, &exec->io->q),
        .k = block.k,
        .v = block.v,
        .runs = job->runs,
        .run_count = job->run_count,
        .terms = exec->has_terms ? &exec->terms : NULL,
        .bias = bias_at(exec, job),
        .crowded = exec->rank->crowded,
        .breathe = job->thread == 0 ? breathe : NULL,
        .context = exec->rank->pool,
    };
}

static void *workspace_of(const struct ra__exec *exec, int thread)
{
    return exec->workspace + (size_t)thread * exec->workspace_bytes;
}

void ra__job_set(const struct ra__shape *shape, const struct ra__bound *bound, struct ra__job *job,
                 int64_t chunk)
{
    const struct ra__cut cut = ra__bound_cut(shape, bound, job->row);
    int64_t per_row = ra__cut_chunks(&cut, job->row->q_count);
    job->repeat = chunk / per_row;
    job->count = ra__cut_at(&cut, job->row->q_count, chunk % per_row, &job->offset);
}

static void forward_lane(struct ra__exec *exec, const struct ra__step *step,
                         const struct ra__job *job)
{
    const bool split = exec->bound->split.stretches > 1;
    const struct state state = split ? part_of(exec, job, job->stretch) : state_of(exec, job);
    struct ra__forward_job forward = {
        .view = make_view(exec, step, job),
        .first = split || job->row->first,
        .last = !split && job->row->last,
        .m = state.m,
        .l = state.l,
        .acc = state.acc,
        .acc_row_stride = state.acc_row_stride,
        .out = queries_at(exec, job, &exec->io->out),
        .lse = column_at(exec, job, exec->io->lse),
    };
    exec->kernel->forward(&forward, workspace_of(exec, job->thread));
    atomic_fetch_add_explicit(&exec->pairs, forward.pairs, memory_order_relaxed);
}

/* Do rows of this tensor, with all their KV heads, follow one another? */
static bool is_dense(const ra_tensor *tensor, int kv_heads, int numbers)
{
    return tensor->head_stride == numbers && tensor->position_stride == kv_heads * numbers;
}

/* May the kernel take all KV heads of a job at once? Only a run knows. */
static bool is_wide(const struct ra__exec *exec, const struct ra__step *step,
                    const struct ra__job *job)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    if (step->from != RA__SLOT_OWN || exec->io->bias.data || exec->terms.alibi ||
        exec->terms.see_from)
        return false;
    for (int i = 0; i < job->run_count; i++)
        if (job->runs[i].row_step != 1) return false;
    return is_dense(&exec->io->k, shape->kv_heads, shape->dim) &&
           is_dense(&exec->io->v, shape->kv_heads, shape->value_dim);
}

void ra__job_forward(struct ra__exec *exec, const struct ra__step *step, const struct ra__job *job)
{
    const struct ra__lane *all = &job->lane;
    if (all->kv_heads == 1 || is_wide(exec, step, job)) {
        forward_lane(exec, step, job);
        return;
    }
    struct ra__job one = *job;
    one.lane.kv_heads = 1;
    one.lane.heads = all->heads / all->kv_heads;
    for (int i = 0; i < all->kv_heads; i++, one.lane.kv_head++, one.lane.head += one.lane.heads)
        forward_lane(exec, step, &one);
}

/* Rows that begin and end here need no other state than that of their first stretch. */
static void merge_row(const struct ra__exec *exec, const struct ra__job *job, int64_t query,
                      int head)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    const struct ra__plan_row *row = job->row;
    const bool here = row->first && row->last;
    const struct state home = here ? part_of(exec, job, 0) : state_of(exec, job);
    const struct ra__state_row into = state_row(&home, query, head, shape->value_dim);
    if (row->first && !here) ra__state_clear_row(into, shape->value_dim);
    for (int stretch = here ? 1 : 0; stretch < exec->bound->split.stretches; stretch++) {
        const struct state part = part_of(exec, job, stretch);
        ra__state_merge_row(into, state_row(&part, query, head, shape->value_dim),
                            shape->value_dim);
    }
    if (!row->last) return;
    const struct ra__view view = { .head = exec->plan->input.first_head + job->lane.head,
                                   .terms = exec->has_terms ? &exec->terms : NULL };
    const struct ra__matrix out = queries_at(exec, job, &exec->io->out);
    const struct ra__column lse = column_at(exec, job, exec->io->lse);
    int64_t at = query * out.row_stride + head * out.head_stride;
    ra__state_finish_row(into, shape->value_dim, ra__sink(&view, head), shape->dtype,
                         (char *)out.data + at * (int64_t)ra__dtype_bytes(shape->dtype),
                         lse.data ? lse.data + query * lse.row_stride + head : NULL);
}

void ra__job_merge(struct ra__exec *exec, const struct ra__job *job)
{
    for (int64_t query = 0; query < job->count; query++)
        for (int head = 0; head < job->lane.heads; head++) merge_row(exec, job, query, head);
}

void ra__job_backward(struct ra__exec *exec, const struct ra__step *step, const struct ra__job *job)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    float *dk = (float *)exec->slots[step->to] +
                ra__slot_head(exec->plan, step->to, job->lane.batch, job->lane.kv_head);
    int64_t stride = ra__slot_width(exec->plan, step->to);
    struct ra__backward_job backward = {
        .view = make_view(exec, step, job),
        .dout = queries_at(exec, job, &exec->io->dout),
        .lse = column_at(exec, job, exec->io->lse),
        .delta = column_at(exec, job, exec->delta),
        .dq = sums_at(exec, job, exec->dq, shape->dim),
        .dq_row_stride = (int64_t)shape->q_heads * shape->dim * job->row->q_row_step,
        .dk = dk,
        .dv = dk + shape->dim,
        .dk_row_stride = stride,
        .dv_row_stride = stride,
    };
    exec->kernel->backward(&backward, workspace_of(exec, job->thread));
    atomic_fetch_add_explicit(&exec->pairs, backward.pairs, memory_order_relaxed);
}
