/* terms.c - the score terms of a run: those of its problem, and what came with the call. */
#include "core/philox.h"
#include "exec/exec.h"

void ra__exec_set_terms(struct ra__exec *exec)
{
    const struct ra__problem_terms *terms = exec->problem_terms;
    const struct ra__io *io = exec->io;
    exec->terms = (struct ra__terms){
        .softcap = terms->softcap,
        .alibi = terms->alibi,
        .sinks = io->sinks,
        .dropout = terms->dropout > 0.0,
        .drop_below = ra__philox_limit(terms->dropout),
        .kept_scale = (float)(1.0 / (1.0 - terms->dropout)),
        .seed = io->seed,
        .origin = terms->origin,
        .see_from = terms->see_from,
        .see_to = terms->see_to,
    };
    exec->has_terms = terms->softcap > 0.0f || terms->alibi || io->sinks || terms->dropout > 0.0 ||
                      terms->origin;
}

void ra__exec_sum_sinks(struct ra__exec *exec)
{
    const struct ra__plan_input *input = &exec->plan->home;
    const struct ra__shape *s = &input->shape;
    const struct ra__io *io = exec->home;
    int64_t rows = input->q_layout->count[input->rank];
    if (!io->sinks || !io->dsinks) return;
    for (int h = 0; h < s->q_heads; h++) exec->dsinks[h] = 0.0;
    for (int64_t batch = 0; batch < s->batch; batch++)
        ra__kernel_dsinks(s, rows, io->sinks, ra__column_at(s, io->lse, rows, batch, 0, 0),
                          ra__column_at(s, ra__home_delta(exec), rows, batch, 0, 0), exec->dsinks);
    for (int h = 0; h < s->q_heads; h++) io->dsinks[h] = (float)exec->dsinks[h];
}
