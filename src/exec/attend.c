/* attend.c - ATTEND: the rows of a step, cut into jobs and dealt to the threads of the rank.
 *
 * Forward, jobs are independent and go out largest first. Backward, a job adds to the gradients of
 * its keys, so the jobs of one KV head are done one after the other, in order: that keeps sums free
 * of locks and gives the same bits in every run. */
#include "exec/exec.h"

/* ---- One job --------------------------------------------------------------------------------- */

/* Some queries of one row of a family, for some heads. */
struct job {
    const struct ra__plan_row *row;
    int64_t repeat;        /* which row of the family */
    int64_t offset, count; /* queries of the row */
    struct ra__lane lane;
    int thread;
};

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
static int64_t first_row(const struct job *job)
{
    const struct ra__plan_row *row = job->row;
    return row->q_row + job->repeat * row->q_row_advance + job->offset * row->q_row_step;
}

static struct ra__matrix queries_at(const struct ra__exec *exec, const struct job *job,
                                    const ra_tensor *tensor)
{
    struct ra__matrix matrix = ra__matrix_at(tensor, exec->plan->input.shape.dtype, job->lane.batch,
                                             first_row(job), job->lane.head);
    matrix.row_stride *= job->row->q_row_step;
    return matrix;
}

static struct ra__column column_at(const struct ra__exec *exec, const struct job *job, float *data)
{
    const struct ra__plan_input *input = &exec->plan->input;
    struct ra__column column = ra__column_at(&input->shape, data,
                                             input->q_layout->count[input->rank], job->lane.batch,
                                             first_row(job), job->lane.head);
    column.row_stride *= job->row->q_row_step;
    return column;
}

/* Where the numbers of a job start in a packed f32 tensor [batch, query, head, width]. */
static float *sums_at(const struct ra__exec *exec, const struct job *job, float *data, int width)
{
    const struct ra__plan_input *input = &exec->plan->input;
    int64_t rows = input->q_layout->count[input->rank];
    int64_t at = (job->lane.batch * rows + first_row(job)) * input->shape.q_heads + job->lane.head;
    return data ? data + at * width : NULL;
}

static struct ra__bias bias_at(const struct ra__exec *exec, const struct job *job)
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

/* The key runs of a row: those of its family, moved along. */
static const struct ra__key_run *keys_of(const struct ra__exec *exec, const struct job *job)
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

/* Inside a job: a sign of life. What poll says about the group is heard at the next tick. */
static void breathe(void *context)
{
    const struct ra__rank *rank = context;
    rank->transport->poll(rank->link);
}

/* Only the rank's own thread may use its link; thread 0 is that one. */
static struct ra__view make_view(const struct ra__exec *exec, const struct ra__step *step,
                                 const struct job *job)
{
    const struct ra__plan_row *row = job->row;
    struct block block = find_block(exec, step->from, &job->lane);
    return (struct ra__view){
        .shape = &exec->plan->input.shape,
        .batch = job->lane.batch,
        .head = job->lane.head,
        .heads = job->lane.heads,
        .q_count = job->count,
        .q_pos = row->q_pos + job->repeat * row->q_pos_advance + job->offset * row->q_step,
        .q_pos_step = row->q_step,
        .q = queries_at(exec, job, &exec->io->q),
        .k = block.k,
        .v = block.v,
        .runs = keys_of(exec, job),
        .run_count = row->key_count,
        .terms = exec->has_terms ? &exec->terms : NULL,
        .bias = bias_at(exec, job),
        .breathe = job->thread == 0 ? breathe : NULL,
        .context = (void *)exec->rank,
    };
}

static void *workspace_of(const struct ra__exec *exec, int thread)
{
    return exec->workspace + (size_t)thread * exec->workspace_bytes;
}

static void run_forward(struct ra__exec *exec, const struct ra__step *step, const struct job *job)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    struct ra__forward_job forward = {
        .view = make_view(exec, step, job),
        .first = job->row->first,
        .last = job->row->last,
        .m = column_at(exec, job, exec->m),
        .l = column_at(exec, job, exec->l),
        .acc = sums_at(exec, job, exec->acc, shape->value_dim),
        .acc_row_stride = (int64_t)shape->q_heads * shape->value_dim * job->row->q_row_step,
        .out = queries_at(exec, job, &exec->io->out),
        .lse = column_at(exec, job, exec->io->lse),
    };
    exec->kernel->forward(&forward, workspace_of(exec, job->thread));
    atomic_fetch_add_explicit(&exec->pairs, forward.pairs, memory_order_relaxed);
}

static void run_backward(struct ra__exec *exec, const struct ra__step *step, const struct job *job)
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

/* ---- All jobs of a step ---------------------------------------------------------------------- */

/* Some rows of a step, cut: what is done between two looks at the group. */
struct slice {
    int row;       /* of the program, */
    int64_t chunk; /* and its first chunk of queries, over all rows of the family */
    int64_t chunks;
};

struct attend_work {
    struct ra__exec *exec;
    const struct ra__step *step;
    int64_t jobs;       /* of the whole step */
    struct slice slice; /* backward: what all threads work on */
};

static ra_status tick(void *context)
{
    return ra__exec_tick(((struct attend_work *)context)->exec);
}

/* The chunk-th stretch of queries of a family, row after row. */
static void set_chunk(const struct ra__exec *exec, struct job *job, int64_t chunk)
{
    const struct ra__cut *cut = ra__bound_cut(&exec->plan->input.shape, exec->bound, job->row);
    int64_t per_row = ra__ceil_div(job->row->q_count, cut->queries);
    job->repeat = chunk / per_row;
    job->offset = chunk % per_row * cut->queries;
    job->count = ra__min(cut->queries, job->row->q_count - job->offset);
}

/* The row that holds the index-th job of the step. */
static int find_row(const struct attend_work *work, int64_t index)
{
    const struct ra__bound *bound = work->exec->bound;
    int low = work->step->first_row, high = low + work->step->row_count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (bound->job_starts[middle] <= index) low = middle;
        else high = middle;
    }
    return low;
}

static void forward_item(void *context, int64_t item, int thread)
{
    struct attend_work *work = context;
    struct ra__exec *exec = work->exec;
    int64_t index = work->jobs - 1 - item; /* last first: under causal it sees the most keys */
    int row = find_row(work, index);
    struct job job = { .row = &exec->bound->program->rows[row], .thread = thread };
    const struct ra__shape *shape = &exec->plan->input.shape;
    const struct ra__cut *cut = ra__bound_cut(shape, exec->bound, job.row);
    int64_t lanes = ra__lanes(shape, cut, job.row->heads);
    index -= exec->bound->job_starts[row];
    set_chunk(exec, &job, index / lanes);
    job.lane = ra__lane_at(shape, cut, job.row->heads, index % lanes);
    run_forward(exec, work->step, &job);
}

/* The jobs of one chunk that add to one KV head of one batch item. */
static void backward_chunk(struct attend_work *work, struct job *job, int64_t batch, int kv_head)
{
    const struct ra__shape *shape = &work->exec->plan->input.shape;
    const struct ra__cut *cut = ra__bound_cut(shape, work->exec->bound, job->row);
    int64_t lanes = ra__lanes(shape, cut, job->row->heads) / shape->batch;
    for (int64_t i = 0; i < lanes; i++) {
        job->lane = ra__lane_at(shape, cut, job->row->heads, batch * lanes + i);
        if (job->lane.kv_head == kv_head) run_backward(work->exec, work->step, job);
    }
}

static void backward_item(void *context, int64_t item, int thread)
{
    struct attend_work *work = context;
    const struct ra__exec *exec = work->exec;
    const struct ra__shape *shape = &exec->plan->input.shape;
    int kv_heads = shape->kv_heads;
    struct slice at = work->slice;
    while (at.chunks > 0) {
        struct job job = { .row = &exec->bound->program->rows[at.row], .thread = thread };
        int64_t left = ra__bound_chunks(shape, exec->bound, job.row) - at.chunk;
        for (int64_t i = 0; i < left && i < at.chunks; i++) {
            set_chunk(exec, &job, at.chunk + i);
            backward_chunk(work, &job, item / kv_heads, (int)(item % kv_heads));
        }
        at = (struct slice){ at.row + 1, 0, at.chunks - left };
    }
}

/* Chunks of a family, and the pairs each of them is good for at most. */
static int64_t count_chunks(const struct ra__exec *exec, int row, int64_t *pairs)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    const struct ra__program *program = exec->bound->program;
    const struct ra__plan_row *family = &program->rows[row];
    int64_t keys = 0;
    for (int k = 0; k < family->key_count; k++) keys += program->keys[family->first_key + k].count;
    int64_t queries = ra__bound_cut(shape, exec->bound, family)->queries;
    *pairs = ra__max(keys * ra__min(queries, family->q_count), 1);
    return ra__bound_chunks(shape, exec->bound, family);
}

/* The slice behind the last one: at least a chunk, and more while they are small. False at the end. */
static bool next_slice(const struct attend_work *work, struct slice *slice)
{
    enum { ENOUGH = 1 << 20 }; /* pairs: a few milliseconds for one head */
    int end = work->step->first_row + work->step->row_count;
    int64_t sum = 0, pairs;
    slice->chunk += slice->chunks;
    slice->chunks = 0;
    while (slice->row < end && slice->chunk >= count_chunks(work->exec, slice->row, &pairs))
        slice->chunk -= count_chunks(work->exec, slice->row++, &pairs);
    int64_t at = slice->chunk;
    for (int row = slice->row; row < end && sum < ENOUGH; row++, at = 0) {
        int64_t left = count_chunks(work->exec, row, &pairs) - at;
        int64_t taken = ra__min(left, ra__ceil_div(ENOUGH - sum, pairs));
        slice->chunks += taken;
        sum += taken * pairs;
    }
    return slice->chunks > 0;
}

ra_status ra__exec_attend(struct ra__exec *exec, const struct ra__step *step)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    int last = step->first_row + step->row_count - 1;
    struct attend_work work = { .exec = exec, .step = step };
    work.jobs = exec->bound->job_starts[last] +
                ra__bound_jobs(shape, exec->bound, &exec->bound->program->rows[last]);
    struct ra__work deal = { forward_item, tick, NULL, &work, work.jobs };
    if (exec->bound == &exec->forward) return ra__pool_run(exec->rank->pool, &deal);
    deal.body = backward_item;
    deal.items = shape->batch * shape->kv_heads;
    work.slice = (struct slice){ .row = step->first_row };
    while (next_slice(&work, &work.slice)) RA__TRY(ra__pool_run(exec->rank->pool, &deal));
    return RA_OK;
}
