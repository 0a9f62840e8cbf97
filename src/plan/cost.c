/* cost.c - how long a program takes, from three numbers about the machine: a walk along its steps
 * with a clock. Messages of a round travel while steps behind it compute, as they do in a run; a
 * round takes its latency and the larger of its two ways. Copies inside a rank, and waiting for
 * ranks that have more to do, are left out: ask several ranks, and take the slowest. */
#include "plan/plan.h"

static double round_seconds(const struct ra__plan *plan, const struct ra__program *program,
                            const struct ra__plan_round *round, const struct ra__machine *machine)
{
    int64_t sent = ra__program_bytes(plan, program->sends + round->first_send, round->send_count);
    int64_t got = ra__program_bytes(plan, program->recvs + round->first_recv, round->recv_count);
    return machine->latency + (double)ra__max(sent, got) / machine->bandwidth;
}

struct ra__cost ra__program_cost(const struct ra__plan *plan, const struct ra__program *program,
                                 const struct ra__machine *machine)
{
    double clock = 0.0, arrival = 0.0, waited = 0.0;
    bool backward = program == &plan->backward;
    double rate = backward ? machine->backward_flops : machine->flops;
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        if (step->op == RA__OP_MOVE)
            arrival = clock + round_seconds(plan, program, &program->rounds[step->round], machine);
        if (step->op == RA__OP_WAIT && arrival > clock) {
            waited += arrival - clock;
            clock = arrival;
        }
        if (step->op == RA__OP_ATTEND)
            clock += ra__flops(&plan->input.shape, ra__step_pairs_roughly(plan, program, step),
                               backward) /
                     rate;
    }
    return (struct ra__cost){ clock, waited };
}
