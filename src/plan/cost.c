/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c - the cost model: how long a program takes, from a few numbers about the machine. The
 * processor runs all steps but rounds, loads and stores, in order, each when the steps it waits for
 * are complete. The link carries one round after the other, from the time when the processor
 * reaches it. A round takes its latency and the larger of its two directions. Loads and stores of a
 * stream follow one another on a queue of their own. Waiting for ranks that have more work is left
 * out: predict several ranks, and take the slowest. */
#include "core/dtype.h"
#include "plan/plan.h"

/* Of messages that do not lend. */
static int64_t copied_bytes(const struct ra__plan *plan, const struct ra__transfer *transfers,
                            int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        if (!transfers[i].lends) bytes += ra__program_bytes(plan, &transfers[i], 1);
    return bytes;
}

static double round_seconds(const struct ra__plan *plan, const struct ra__program *program,
                            const struct ra__plan_round *round, const struct ra__machine *machine)
{
    const int64_t sent = copied_bytes(plan, program->sends + round->first_send, round->send_count);
    const int64_t got = copied_bytes(plan, program->recvs + round->first_recv, round->recv_count);
    return machine->latency + (double)ra__max(sent, got) / machine->bandwidth;
}

/* Numbers that a step of pieces moves. */
static double count_numbers(const struct ra__program *program, const struct ra__step *step)
{
    double numbers = 0.0;
    for (int i = 0; i < step->piece_count; i++) {
        const struct ra__piece *piece = &program->pieces[step->first_piece + i];
        numbers += (double)piece->tokens * piece->heads * piece->width;
    }
    return numbers * (double)program->caller.shape.batch;
}

static double copy_seconds(const struct ra__program *program, const struct ra__step *step,
                           const struct ra__machine *machine)
{
    return 2.0 * count_numbers(program, step) *
           (double)ra__dtype_bytes(program->caller.shape.dtype) / machine->copy;
}

/* The tensors of a caller that are f32 whatever the dtype of the problem is. */
static bool is_wide(enum ra__buffer tensor)
{
    return tensor == RA__LSE || tensor == RA__DLSE || tensor == RA__SPILL_A ||
           tensor == RA__SPILL_B || tensor == RA__SPILL;
}

int64_t ra__piece_bytes(const struct ra__program *program, enum ra__op op,
                        const struct ra__piece *piece)
{
    const enum ra__buffer outside = op == RA__OP_LOAD ? piece->from.buffer : piece->to.buffer;
    const struct ra__shape *shape = &program->caller.shape;
    const size_t number = is_wide(outside) ? sizeof(float) : ra__dtype_bytes(shape->dtype);
    return shape->batch * piece->tokens * piece->heads * piece->width * (int64_t)number;
}

bool ra__step_is_streamed(const struct ra__step *step)
{
    return step->unit != 0 && (step->op == RA__OP_LOAD || step->op == RA__OP_STORE);
}

int64_t ra__step_bytes(const struct ra__program *program, const struct ra__step *step)
{
    int64_t bytes = 0;
    for (int i = 0; ra__step_is_streamed(step) && i < step->piece_count; i++)
        bytes += ra__piece_bytes(program, step->op, &program->pieces[step->first_piece + i]);
    return bytes;
}

/* A forecast is of a run without sinks: what only their gradient reads does not count. */
static int64_t stream_bytes(const struct ra__program *program, const struct ra__step *step)
{
    return step->unit == RA__SINKS_UNIT ? 0 : ra__step_bytes(program, step);
}

struct ra__loads ra__program_loads(const struct ra__program *program)
{
    struct ra__loads loads = { 0, 0 };
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        *(step->op == RA__OP_LOAD ? &loads.loaded : &loads.stored) += stream_bytes(program, step);
    }
    return loads;
}

/* Numbers of all queries and heads, each read once. */
static double query_seconds(const struct ra__side *side, double width,
                            const struct ra__machine *machine)
{
    const struct ra__shape *s = &side->shape;
    return (double)s->batch * (double)side->queries * s->q_heads * width / machine->copy;
}

static double step_seconds(const struct ra__plan *plan, const struct ra__program *program,
                           const struct ra__step *step, const struct ra__machine *machine)
{
    const bool backward = program->direction == RA__BACKWARD;
    const struct ra__shape *s = &program->work.shape;
    if (ra__step_is_streamed(step)) return (double)stream_bytes(program, step) / machine->load;
    switch (step->op) {
    case RA__OP_EXCHANGE:
        return round_seconds(plan, program, &program->rounds[step->round], machine);
    case RA__OP_ATTEND:
    case RA__OP_GRADIENT:
        return ra__flops(s, ra__step_pairs_roughly(plan, program, step), backward) /
               (backward ? machine->backward_flops : machine->flops);
    case RA__OP_MERGE:
        return query_seconds(&program->work, (double)program->split.ranges * (s->value_dim + 2) * 4,
                             machine);
    case RA__OP_DELTA:
        return query_seconds(&program->caller,
                             2.0 * s->value_dim * (double)ra__dtype_bytes(s->dtype), machine);
    case RA__OP_SINKS: return query_seconds(&program->caller, 8.0, machine);
    default: return copy_seconds(program, step, machine);
    }
}

/* When the last steps, and the last rounds, were complete. Buffers are reused within a few hops, or
 * within a few pairs of blocks of a stream, so a step waits for recent ones only. */
enum { ROUNDS = 16, RECENT = 64 };
struct clocks {
    double processor, link, copies; /* when each is free */
    double waited;                  /* of the processor, for messages */
    int round_step[ROUNDS];
    double round_done[ROUNDS];
    int rounds;
    double step_done[RECENT]; /* by index modulo RECENT; of streams only */
};

/* When the rounds that a step waits for are complete. */
static double rounds_done(const struct ra__program *program, const struct ra__step *step,
                          const struct clocks *clocks)
{
    double done = 0.0;
    for (int i = 0; i < step->wait_count; i++)
        for (int r = 0; r < ROUNDS && r < clocks->rounds; r++)
            if (clocks->round_step[r] == program->waits[step->first_wait + i] &&
                clocks->round_done[r] > done)
                done = clocks->round_done[r];
    return done;
}

/* When the steps of a stream that this one waits for are complete. */
static double steps_done(const struct ra__program *program, int index, const struct clocks *clocks)
{
    const struct ra__step *step = &program->steps[index];
    double done = 0.0;
    for (int i = 0; i < step->wait_count; i++) {
        const int wait = program->waits[step->first_wait + i];
        if (index - wait < RECENT && clocks->step_done[wait % RECENT] > done)
            done = clocks->step_done[wait % RECENT];
    }
    return done;
}

static double later(double a, double b) { return a > b ? a : b; }

static void run_round(struct clocks *clocks, int index, double seconds)
{
    clocks->link = later(clocks->link, clocks->processor) + seconds;
    clocks->round_step[clocks->rounds % ROUNDS] = index;
    clocks->round_done[clocks->rounds++ % ROUNDS] = clocks->link;
}

static void run_step(const struct ra__program *program, struct clocks *clocks, int index,
                     double seconds)
{
    const struct ra__step *step = &program->steps[index];
    const double ready = rounds_done(program, step, clocks);
    const bool streams = program->units > 0;
    double *queue = ra__step_is_streamed(step) ? &clocks->copies : &clocks->processor;
    clocks->waited += ready > *queue ? ready - *queue : 0.0;
    *queue = later(*queue, ready);
    if (streams) *queue = later(*queue, steps_done(program, index, clocks));
    *queue += seconds;
    clocks->step_done[index % RECENT] = *queue;
}

struct ra__cost ra__program_cost(const struct ra__plan *plan, const struct ra__program *program,
                                 const struct ra__machine *machine)
{
    struct clocks clocks = { .rounds = 0 };
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        const double seconds = step_seconds(plan, program, step, machine);
        if (step->op == RA__OP_EXCHANGE) run_round(&clocks, i, seconds);
        else run_step(program, &clocks, i, seconds);
    }
    if (clocks.link > clocks.processor) clocks.waited += clocks.link - clocks.processor;
    return (struct ra__cost){ later(later(clocks.link, clocks.processor), clocks.copies),
                              clocks.waited };
}
