/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c - the cost model: how long a program takes, from a few numbers about the machine. The
 * processor runs all steps but rounds, in order, each when the rounds it waits for are complete.
 * The link carries one round after the other, from the time when the processor reaches it. A round
 * takes its latency and the larger of its two directions. Waiting for ranks that have more work is
 * left out: predict several ranks, and take the slowest. */
#include "core/dtype.h"
#include "plan/plan.h"

/* Bytes a rank copies in a second, reading and writing; assumed. */
#define COPY_RATE 1e10

static double round_seconds(const struct ra__plan *plan, const struct ra__program *program,
                            const struct ra__plan_round *round, const struct ra__machine *machine)
{
    int64_t sent = ra__program_bytes(plan, program->sends + round->first_send, round->send_count);
    int64_t got = ra__program_bytes(plan, program->recvs + round->first_recv, round->recv_count);
    return machine->latency + (double)ra__max(sent, got) / machine->bandwidth;
}

static double copy_seconds(const struct ra__program *program, const struct ra__step *step)
{
    const int64_t batch = program->caller.shape.batch;
    double numbers = 0.0;
    for (int i = 0; i < step->piece_count; i++) {
        const struct ra__piece *piece = &program->pieces[step->first_piece + i];
        numbers += (double)piece->tokens * piece->heads * piece->width;
    }
    return 2.0 * numbers * (double)batch * (double)ra__dtype_bytes(program->caller.shape.dtype) /
           COPY_RATE;
}

/* Numbers of all queries and heads, each read once. */
static double query_seconds(const struct ra__side *side, double width)
{
    const struct ra__shape *s = &side->shape;
    return (double)s->batch * (double)side->queries * s->q_heads * width / COPY_RATE;
}

static double step_seconds(const struct ra__plan *plan, const struct ra__program *program,
                           const struct ra__step *step, const struct ra__machine *machine)
{
    const bool backward = program->direction == RA__BACKWARD;
    const struct ra__shape *s = &program->work.shape;
    switch (step->op) {
    case RA__OP_EXCHANGE:
        return round_seconds(plan, program, &program->rounds[step->round], machine);
    case RA__OP_ATTEND:
    case RA__OP_GRADIENT:
        return ra__flops(s, ra__step_pairs_roughly(plan, program, step), backward) /
               (backward ? machine->backward_flops : machine->flops);
    case RA__OP_MERGE:
        return query_seconds(&program->work,
                             (double)program->split.ranges * (s->value_dim + 2) * 4);
    case RA__OP_DELTA:
        return query_seconds(&program->caller,
                             2.0 * s->value_dim * (double)ra__dtype_bytes(s->dtype));
    case RA__OP_SINKS: return query_seconds(&program->caller, 8.0);
    default: return copy_seconds(program, step);
    }
}

/* The last rounds, and when they are complete. Buffers are reused within a few hops, so a step
 * waits for recent rounds only. */
enum { ROUNDS = 16 };
struct rounds {
    int step[ROUNDS];
    double done[ROUNDS];
    int count;
};

/* When the rounds that a step waits for are complete. */
static double rounds_done(const struct ra__program *program, const struct ra__step *step,
                          const struct rounds *rounds)
{
    double done = 0.0;
    for (int i = 0; i < step->wait_count; i++)
        for (int r = 0; r < ROUNDS && r < rounds->count; r++)
            if (rounds->step[r] == program->waits[step->first_wait + i] && rounds->done[r] > done)
                done = rounds->done[r];
    return done;
}

struct ra__cost ra__program_cost(const struct ra__plan *plan, const struct ra__program *program,
                                 const struct ra__machine *machine)
{
    double processor = 0.0, link = 0.0, waited = 0.0;
    struct rounds rounds = { .count = 0 };
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        const double seconds = step_seconds(plan, program, step, machine);
        const double ready = rounds_done(program, step, &rounds);
        if (step->op == RA__OP_EXCHANGE) {
            link = (link > processor ? link : processor) + seconds;
            rounds.step[rounds.count % ROUNDS] = i;
            rounds.done[rounds.count++ % ROUNDS] = link;
            continue;
        }
        if (ready > processor) {
            waited += ready - processor;
            processor = ready;
        }
        processor += seconds;
    }
    if (link > processor) waited += link - processor;
    return (struct ra__cost){ link > processor ? link : processor, waited };
}
