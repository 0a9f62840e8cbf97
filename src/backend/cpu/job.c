/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - one job: where the numbers of its queries and keys are, and the call of the kernel. */
#include "backend/cpu/cpu.h"

#include "core/state.h"

struct ra__chunks ra__chunks_of(const struct ra__cpu_program *program,
                                const struct ra__plan_row *row)
{
    const struct ra__shape *shape = &program->program->work.shape;
    struct ra__chunks chunks = ra__all_heads(shape, row->heads) ? program->all_heads
                                                                : program->one_head;
    if (!program->row_sizes) return chunks;
    const struct ra__row_size *size = &program->row_sizes[row - program->program->rows];
    chunks.queries = size->queries;
    chunks.front = size->front;
    chunks.fine = size->fine;
    return chunks;
}

int64_t ra__count_chunks(const struct ra__cpu_program *program, const struct ra__plan_row *row)
{
    const struct ra__chunks chunks = ra__chunks_of(program, row);
    return row->repeat * ra__chunk_count(&chunks, row->q_count);
}

int64_t ra__count_jobs(const struct ra__cpu_program *program, const struct ra__plan_row *row)
{
    const struct ra__chunks chunks = ra__chunks_of(program, row);
    return row->repeat * ra__chunk_count(&chunks, row->q_count) *
           ra__count_heads(&program->program->work.shape, &chunks, row->heads);
}

void ra__job_set(struct ra__job *job, const struct ra__chunks *chunks, int64_t chunk)
{
    int64_t per_row = ra__chunk_count(chunks, job->row->q_count);
    job->repeat = chunk / per_row;
    job->count = ra__chunk_at(chunks, job->row->q_count, chunk % per_row, &job->offset);
}

/* ---- Where things are ------------------------------------------------------------------------ */

/* The first token of the shard that a job works on; the next ones are q_token_step apart. */
static int64_t first_token(const struct ra__job *job)
{
    const struct ra__plan_row *row = job->row;
    return row->q_token + job->repeat * row->q_token_advance + job->offset * row->q_token_step;
}

static inline struct ra__matrix queries_in(const struct ra__running *run, const struct ra__job *job,
                                           enum ra__buffer buffer)
{
    struct ra__matrix matrix = ra__matrix_in(run, buffer, job->heads.batch, first_token(job),
                                             job->heads.head);
    matrix.row_stride *= job->row->q_token_step;
    return matrix;
}

static struct ra__column column_in(const struct ra__running *run, const struct ra__job *job,
                                   enum ra__buffer buffer)
{
    struct ra__matrix matrix = queries_in(run, job, buffer);
    return (struct ra__column){ matrix.data, matrix.row_stride };
}

/* K and V of one KV head: tensors, or a buffer that holds both. */
struct block {
    struct ra__matrix k, v;
};

static struct block find_block(const struct ra__running *run, const struct ra__job *job)
{
    const struct ra__side *work = ra__work_of(run);
    const enum ra__buffer from = run->launch->step->from;
    const bool own = from == RA__OWN_KV;
    const enum ra__buffer k = own ? work->k : from, v = own ? work->v : from;
    if (from == RA__NO_BUFFER) return (struct block){ .k.data = NULL }; /* rows without a key */
    const bool one_head = run->launch->call->at[k].storage.one_head;
    const int kv_head = one_head ? 0 : job->heads.kv_head;
    struct block block = { ra__matrix_in(run, k, job->heads.batch, 0, kv_head),
                           ra__matrix_in(run, v, job->heads.batch, 0, kv_head) };
    if (k == v && block.v.data)
        block.v.data = (char *)block.v.data +
                       (size_t)work->shape.dim * ra__dtype_bytes(work->shape.dtype);
    return block;
}

/* The states of the query rows of a job. */
struct state {
    struct ra__column m, l;
    float *acc;
    int64_t acc_row_stride;
};

/* Those that stay from hop to hop. */
static struct state state_of(const struct ra__running *run, const struct ra__job *job)
{
    const struct ra__matrix acc = queries_in(run, job, RA__STATE_ACC);
    return (struct state){ column_in(run, job, RA__STATE_M), column_in(run, job, RA__STATE_L),
                           acc.data, acc.row_stride };
}

/* Those of one range of split keys: m of all ranges, then l, then acc. */
static struct state split_state_of(const struct ra__running *run, const struct ra__job *job,
                                   int range)
{
    const struct ra__program *program = ra__program_of(run);
    const struct ra__shape *s = &program->work.shape;
    const int64_t rows = s->batch * program->work.queries * s->q_heads;
    const int64_t all = program->split.ranges * rows;
    const int64_t at = range * rows +
                       (job->heads.batch * program->work.queries + first_token(job)) * s->q_heads +
                       job->heads.head;
    const int64_t stride = s->q_heads * job->row->q_token_step;
    float *data = (float *)run->launch->call->at[RA__SPLIT_STATE].data;
    return (struct state){ { data + at, stride },
                           { data + all + at, stride },
                           data + 2 * all + at * s->value_dim,
                           stride * s->value_dim };
}

/* Those that ATTEND reads or leaves: none for rows that start and end in it. */
static struct state attend_state_of(const struct ra__running *run, const struct ra__job *job)
{
    if (ra__program_of(run)->split.ranges > 1) return split_state_of(run, job, job->range);
    if (job->row->first && job->row->last) return (struct state){ .acc = NULL };
    return state_of(run, job);
}

static struct ra__state_row state_row(const struct state *state, int64_t query, int head, int width)
{
    return (struct ra__state_row){ state->m.data + query * state->m.row_stride + head,
                                   state->l.data + query * state->l.row_stride + head,
                                   state->acc + query * state->acc_row_stride + head * width };
}

int64_t ra__job_bias_row(const struct ra__running *run, const struct ra__job *job, int64_t i)
{
    const ra_bias *bias = &run->launch->call->bias;
    const int64_t query = run->launch->step->window.first + first_token(job) +
                          i * job->row->q_token_step;
    return job->heads.batch * bias->batch_stride + job->heads.head * bias->head_stride +
           query * bias->query_stride;
}

static struct ra__bias bias_of(const struct ra__running *run, const struct ra__job *job)
{
    const ra_bias *bias = &run->launch->call->bias;
    if (!bias->data) return (struct ra__bias){ .data = NULL };
    const int64_t at = ra__job_bias_row(run, job, 0);
    int64_t bytes = bias->mask ? 1 : (int64_t)sizeof(float);
    return (struct ra__bias){ .data = (const char *)bias->data + at * bytes,
                              .mask = bias->mask != 0,
                              .row_stride = bias->query_stride * job->row->q_token_step,
                              .head_stride = bias->head_stride };
}

/* Inside a job of the calling thread. A failure of the heartbeat is noticed after the job. */
static void poll(void *context) { ra__workers_continue(context, 0); }

/* The arguments of a kernel in both directions. */
static struct ra__view make_view(const struct ra__running *run, const struct ra__job *job)
{
    const struct ra__call *call = run->launch->call;
    const struct ra__side *work = ra__work_of(run);
    const struct block block = find_block(run, job);
    return (struct ra__view){
        .shape = &work->shape,
        .batch = job->heads.batch,
        .head = work->first_head + job->heads.head,
        .heads = job->heads.heads,
        .kv_heads = job->heads.kv_heads,
        .q_count = job->count,
        .q_pos = ra__job_position(job),
        .q_pos_step = job->row->q_step,
        .q = queries_in(run, job, work->q),
        .k = block.k,
        .v = block.v,
        .runs = job->runs,
        .run_count = job->run_count,
        .terms = call->has_terms ? &call->terms : NULL,
        .bias = bias_of(run, job),
        .smt = run->cpu->smt,
        .kernel_poll = job->thread == 0 ? poll : NULL, /* only the calling thread uses the link */
        .context = run->cpu->workers,
    };
}

static void *workspace_of(const struct ra__running *run, int thread)
{
    return run->plan->workspace + (size_t)thread * run->plan->workspace_bytes;
}

/* ---- Forward --------------------------------------------------------------------------------- */

static void attend_heads(const struct ra__running *run, const struct ra__job *job)
{
    const struct ra__side *work = ra__work_of(run);
    const bool split = ra__program_of(run)->split.ranges > 1;
    const struct state state = attend_state_of(run, job);
    struct ra__forward_job forward = {
        .view = make_view(run, job),
        .first = split || job->row->first,
        .last = !split && job->row->last,
        .m = state.m,
        .l = state.l,
        .acc = state.acc,
        .acc_row_stride = state.acc_row_stride,
        .out = queries_in(run, job, work->out),
        .lse = column_in(run, job, work->lse),
    };
    run->plan->kernel->forward(&forward, workspace_of(run, job->thread));
    atomic_fetch_add_explicit(&run->plan->pairs, forward.pairs, memory_order_relaxed);
}

/* Do tokens of this buffer, with all their KV heads, follow one another? */
static bool is_dense(const struct ra__running *run, enum ra__buffer buffer, int kv_heads, int width)
{
    const struct ra__storage *s = &run->launch->call->at[buffer].storage;
    return s->head_stride == width && s->token_stride == kv_heads * width;
}

/* May the kernel take all KV heads of a job at once? Only a run knows. */
static bool is_multi_head(const struct ra__running *run, const struct ra__job *job)
{
    const struct ra__side *work = ra__work_of(run);
    const struct ra__call *call = run->launch->call;
    if (run->launch->step->from != RA__OWN_KV || call->bias.data || call->terms.alibi ||
        call->terms.see_from)
        return false;
    for (int i = 0; i < job->run_count; i++)
        if (job->runs[i].token_step != 1) return false;
    return is_dense(run, work->k, work->shape.kv_heads, work->shape.dim) &&
           is_dense(run, work->v, work->shape.kv_heads, work->shape.value_dim);
}

void ra__job_attend(const struct ra__running *run, const struct ra__job *job)
{
    const struct ra__job_heads *all = &job->heads;
    if (all->kv_heads == 1 || is_multi_head(run, job)) {
        attend_heads(run, job);
        return;
    }
    struct ra__job one = *job;
    one.heads.kv_heads = 1;
    one.heads.heads = all->heads / all->kv_heads;
    for (int i = 0; i < all->kv_heads; i++, one.heads.kv_head++, one.heads.head += one.heads.heads)
        attend_heads(run, &one);
}

/* Rows that start and end here need no other state than that of their first range. */
static void merge_row(const struct ra__running *run, const struct ra__job *job, int64_t query,
                      int head)
{
    const struct ra__program *program = ra__program_of(run);
    const struct ra__side *work = ra__work_of(run);
    const int width = work->shape.value_dim;
    const struct ra__plan_row *row = job->row;
    const bool here = row->first && row->last;
    const struct state state = here ? split_state_of(run, job, 0) : state_of(run, job);
    const struct ra__state_row into = state_row(&state, query, head, width);
    if (row->first && !here) ra__state_clear_row(into, width);
    for (int range = here ? 1 : 0; range < program->split.ranges; range++) {
        const struct state part = split_state_of(run, job, range);
        ra__state_merge_row(into, state_row(&part, query, head, width), width);
    }
    if (!row->last) return;
    const struct ra__view view = { .head = work->first_head + job->heads.head,
                                   .terms = run->launch->call->has_terms ? &run->launch->call->terms
                                                                         : NULL };
    const struct ra__matrix out = queries_in(run, job, work->out);
    const struct ra__column lse = column_in(run, job, work->lse);
    int64_t at = query * out.row_stride + head * out.head_stride;
    ra__state_finish_row(into, width, ra__sink(&view, head), work->shape.dtype,
                         (char *)out.data + at * (int64_t)ra__dtype_bytes(work->shape.dtype),
                         lse.data ? lse.data + query * lse.row_stride + head : NULL);
}

void ra__job_merge(const struct ra__running *run, const struct ra__job *job)
{
    for (int64_t query = 0; query < job->count; query++)
        for (int head = 0; head < job->heads.heads; head++) merge_row(run, job, query, head);
}

/* ---- Backward -------------------------------------------------------------------------------- */

struct ra__job_inputs ra__job_inputs(const struct ra__running *run, const struct ra__job *job)
{
    const struct ra__side *work = ra__work_of(run);
    return (struct ra__job_inputs){ make_view(run, job), queries_in(run, job, work->dout),
                                    column_in(run, job, work->lse),
                                    column_in(run, job, work->delta) };
}

void ra__job_gradient(const struct ra__running *run, const struct ra__job *job)
{
    const struct ra__side *work = ra__work_of(run);
    const struct ra__job_inputs in = ra__job_inputs(run, job);
    const enum ra__buffer to = run->launch->step->to;
    const int kv_head = run->launch->call->at[to].storage.one_head ? 0 : job->heads.kv_head;
    const struct ra__matrix dk = ra__matrix_in(run, to, job->heads.batch, 0, kv_head);
    const struct ra__matrix dq = queries_in(run, job, work->sum_q);
    struct ra__backward_job backward = {
        .view = in.view,
        .dout = in.dout,
        .lse = in.lse,
        .delta = in.delta,
        .dq = dq.data,
        .dq_row_stride = dq.row_stride,
        .dk = dk.data,
        .dv = (float *)dk.data + work->shape.dim,
        .dk_row_stride = dk.row_stride,
        .dv_row_stride = dk.row_stride,
    };
    run->plan->kernel->backward(&backward, workspace_of(run, job->thread));
    atomic_fetch_add_explicit(&run->plan->pairs, backward.pairs, memory_order_relaxed);
}
