/* run.c - the loop over the steps of a program. */
#include <stdio.h>

#include "core/clock.h"
#include "exec/exec.h"

ra_status ra__exec_tick(struct ra__exec *exec)
{
    RA__TRY(exec->rank->transport->poll(exec->rank->link));
    if (!exec->io->progress) return RA_OK;
    double now = ra__now();
    if (now - exec->last_tick < 0.05) return RA_OK; /* often enough for people */
    exec->last_tick = now;
    double done = (double)atomic_load(&exec->pairs) / (double)ra__max(exec->pairs_expected, 1);
    if (exec->io->progress(exec->io->context, done < 1 ? done : 1) == 0) return RA_OK;
    return ra__fail(RA_ERR_ABORTED, "rank %d: stopped by its progress callback", exec->rank->rank);
}

ra_status ra__exec_post(struct ra__exec *exec, struct ra__round *round)
{
    RA__TRY(exec->rank->transport->post(exec->rank->link, round));
    exec->outstanding = round;
    exec->stats.hops++;
    for (int i = 0; i < round->send_count; i++)
        exec->stats.bytes_sent += (int64_t)round->sends[i].bytes;
    for (int i = 0; i < round->recv_count; i++)
        exec->stats.bytes_received += (int64_t)round->recvs[i].bytes;
    return RA_OK;
}

struct ra__round *ra__exec_take_held(struct ra__exec *exec)
{
    struct ra__round *round = exec->held;
    exec->held = NULL;
    return round;
}

/* A transport may copy bytes while it posts, and the last jobs of an ATTEND may be under way, which
 * read what comes to be overwritten. Where jobs come next, other threads shall wait for neither:
 * ATTEND posts what is held. */
static ra_status run_move(struct ra__exec *exec, const struct ra__step *step)
{
    const struct ra__step *next = step + 1;
    const struct ra__step *end = exec->bound->program->steps + exec->bound->program->step_count;
    struct ra__round *round = &exec->bound->rounds[step->round];
    while (next < end && next->op == RA__OP_CLEAR) next++;
    if (next < end && next->op == RA__OP_ATTEND) {
        exec->held = round;
        return RA_OK;
    }
    RA__TRY(ra__pool_settle(exec->rank->pool));
    return ra__exec_post(exec, round);
}

static ra_status run_wait(struct ra__exec *exec, const struct ra__step *step)
{
    double start = ra__now();
    exec->outstanding = NULL;
    RA__TRY(exec->rank->transport->wait(exec->rank->link, &exec->bound->rounds[step->round]));
    exec->stats.wait_seconds += ra__now() - start;
    return RA_OK;
}

static ra_status (*const operations[RA__OPS])(struct ra__exec *exec,
                                              const struct ra__step *step) = {
    [RA__OP_PACK] = ra__exec_pack,     [RA__OP_MOVE] = run_move,
    [RA__OP_WAIT] = run_wait,          [RA__OP_PLACE] = ra__exec_place,
    [RA__OP_ATTEND] = ra__exec_attend, [RA__OP_CLEAR] = ra__exec_clear,
    [RA__OP_ADD] = ra__exec_add,       [RA__OP_PICK] = ra__exec_pick,
    [RA__OP_SWAP] = ra__exec_swap,     [RA__OP_FINISH] = ra__exec_finish,
};

static ra_status run_step(struct ra__exec *exec, const struct ra__step *step)
{
    double start = exec->rank->trace ? ra__now() : 0;
    RA__TRY(operations[step->op](exec, step));
    RA__TRY(ra__exec_tick(exec));
    if (!exec->rank->trace) return RA_OK;
    struct ra_trace_event event = {
        ra__op_name(step->op), exec->rank->rank, step->hop, ra__step_rank(exec->plan, step), start,
        ra__now() - start
    };
    exec->rank->trace(exec->rank->context, &event);
    return RA_OK;
}

/* Backward starts from dQ = 0 and delta = rowsum(dout * out) - dlse; rows of all batch items. */
static void clear_rows(struct ra__exec *exec, const void *context, int64_t first, int64_t count)
{
    const struct ra__shape *s = &exec->plan->input.shape;
    int64_t width = (int64_t)s->q_heads * s->dim;
    (void)context;
    exec->device->clear(exec->dq + first * width, (size_t)(count * width) * sizeof(float));
}

/* Rows of the caller's queries. In a team those of dQ are others. */
static void prepare_rows(struct ra__exec *exec, const void *context, int64_t first, int64_t count)
{
    const struct ra__plan_input *input = &exec->plan->home;
    const struct ra__shape *s = &input->shape;
    const struct ra__io *io = exec->home;
    int64_t rows = input->q_layout->count[input->rank];
    if (exec->plan->team.size == 1) clear_rows(exec, context, first, count);
    while (count > 0) {
        int64_t batch = first / rows, row = first % rows, some = ra__min(count, rows - row);
        ra__kernel_delta(s, some, s->q_heads, ra__matrix_at(&io->out, s->dtype, batch, row, 0),
                         ra__matrix_at(&io->dout, s->dtype, batch, row, 0),
                         ra__column_at(s, (float *)io->dlse, rows, batch, row, 0),
                         ra__column_at(s, ra__home_delta(exec), rows, batch, row, 0));
        first += some;
        count -= some;
    }
}

static ra_status sweep_queries(struct ra__exec *exec, const struct ra__plan_input *input,
                               ra__sweep_fn *body)
{
    const struct ra__shape *s = &input->shape;
    size_t row_bytes = (size_t)s->q_heads * (size_t)(s->dim + s->value_dim) * sizeof(float);
    return ra__exec_sweep(exec, s->batch * input->q_layout->count[input->rank], row_bytes, body,
                          NULL);
}

static ra_status prepare_backward(struct ra__exec *exec)
{
    RA__TRY(sweep_queries(exec, &exec->plan->home, prepare_rows));
    if (exec->plan->team.size > 1) RA__TRY(sweep_queries(exec, &exec->plan->input, clear_rows));
    ra__exec_sum_sinks(exec);
    return RA_OK;
}

static ra_status run_program(struct ra__exec *exec)
{
    RA__TRY(ra__exec_tick(exec));
    RA__TRY(ra__exec_hello(exec));
    if (exec->bound == &exec->backward) RA__TRY(prepare_backward(exec));
    const struct ra__program *program = exec->bound->program;
    for (int i = 0; i < program->step_count; i++) RA__TRY(run_step(exec, &program->steps[i]));
    return RA_OK;
}

/* After a failure: tells the others, and takes back buffers that messages may still write to. The
 * first sentence is the one that counts. */
static ra_status give_up(struct ra__exec *exec, ra_status status)
{
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%s", ra_last_error());
    exec->rank->transport->abort(exec->rank->link, status, sentence);
    ra__pool_settle(exec->rank->pool);
    if (exec->outstanding) exec->rank->transport->wait(exec->rank->link, exec->outstanding);
    exec->outstanding = exec->held = NULL;
    exec->home = exec->io = NULL;
    return ra__fail(status, "%s", sentence);
}

ra_status ra__exec_run(struct ra__exec *exec, const struct ra__bound *bound,
                       const struct ra__io *io)
{
    const struct ra__shape *shape = &exec->plan->input.shape;
    bool backward = bound == &exec->backward;
    double start = ra__now();
    exec->home = exec->io = io;
    if (exec->plan->team.size > 1) {
        exec->share = ra__exec_share_io(exec, io);
        exec->io = &exec->share;
    }
    exec->bound = bound;
    exec->last_tick = start;
    atomic_store(&exec->pairs, 0);
    if (io->progress) exec->pairs_expected = ra__program_pairs_roughly(exec->plan, bound->program);
    exec->stats = ra_stats_default();
    ra__exec_set_terms(exec);
    ra_status status = run_program(exec);
    if (status != RA_OK) return give_up(exec, status);
    ra__rank_rest(exec->rank);
    if (io->progress) io->progress(io->context, 1.0);
    exec->home = exec->io = NULL;
    exec->stats.pairs = atomic_load(&exec->pairs);
    exec->stats.flops = ra__flops(shape, exec->stats.pairs, backward);
    exec->stats.seconds = ra__now() - start;
    return RA_OK;
}
