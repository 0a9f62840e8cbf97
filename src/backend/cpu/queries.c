/* SPDX-License-Identifier: Apache-2.0 */
/* queries.c - steps over the caller's queries: DELTA and SINKS. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernel/lse.h"

/* The tensors of the caller, or a window of them. */
static const struct ra__side *caller_of(const struct ra__running *run)
{
    return ra__caller_side(ra__program_of(run), run->launch->step);
}
static int64_t queries_of(const struct ra__running *run)
{
    return ra__caller_queries(ra__program_of(run), run->launch->step);
}

struct delta {
    const struct ra__running *run;
    int64_t tokens, per_item; /* tokens of all batch items */
};

static void delta_item(void *context, int64_t item, int thread)
{
    const struct delta *delta = context;
    const struct ra__side *caller = caller_of(delta->run);
    const int64_t queries = queries_of(delta->run);
    int64_t first = item * delta->per_item;
    int64_t count = ra__min(delta->per_item, delta->tokens - first);
    (void)thread;
    while (count > 0) {
        int64_t batch = first / queries, token = first % queries;
        int64_t some = ra__min(count, queries - token);
        ra__kernel_delta(&caller->shape, some, caller->shape.q_heads,
                         ra__matrix_in(delta->run, caller->out, batch, token, 0),
                         ra__matrix_in(delta->run, caller->dout, batch, token, 0),
                         ra__column_in(delta->run, caller->dlse, batch, token, 0),
                         ra__column_in(delta->run, caller->delta, batch, token, 0));
        first += some;
        count -= some;
    }
}

/* One number per row, so one thread is fast enough. */
static ra_status check_lse(const struct ra__running *run)
{
    const struct ra__side *caller = caller_of(run);
    for (int64_t batch = 0; queries_of(run) > 0 && batch < caller->shape.batch; batch++)
        RA__TRY(ra__lse_check(&caller->shape, queries_of(run),
                              ra__column_in(run, caller->lse, batch, 0, 0),
                              ra__matrix_in(run, caller->dout, batch, 0, 0),
                              ra__column_in(run, caller->dlse, batch, 0, 0)));
    return RA_OK;
}

ra_status ra__cpu_delta(const struct ra__running *run)
{
    RA__TRY(check_lse(run));
    const struct ra__side *caller = caller_of(run);
    const struct ra__shape *s = &caller->shape;
    struct delta delta = { run, s->batch * queries_of(run),
                           ra__rows_per_item((int64_t)s->q_heads * (s->dim + s->value_dim) *
                                             (int64_t)sizeof(float)) };
    return ra__cpu_run(run,
                       &(struct ra__work){ .body = delta_item,
                                           .context = &delta,
                                           .items = ra__ceil_div(delta.tokens, delta.per_item) });
}

/* One head at a time, so that its sum has the same order for any number of threads. A stream comes
 * here for one window after the other. */
static void sinks_item(void *context, int64_t item, int thread)
{
    const struct ra__running *run = context;
    const struct ra__side *caller = caller_of(run);
    const struct ra__call *call = run->launch->call;
    const int head = (int)item;
    double *sum = &run->plan->sink_sums[head];
    (void)thread;
    if (run->launch->step->window.first == 0) *sum = 0.0;
    for (int64_t batch = 0; batch < caller->shape.batch; batch++)
        ra__kernel_dsinks(queries_of(run), call->terms.sinks[head],
                          ra__column_in(run, caller->lse, batch, 0, head),
                          ra__column_in(run, caller->delta, batch, 0, head), sum);
    ((float *)call->at[RA__DSINKS].data)[head] = (float)*sum;
}

ra_status ra__cpu_sinks(const struct ra__running *run)
{
    const struct ra__call *call = run->launch->call;
    if (!call->terms.sinks || !call->at[RA__DSINKS].data) return RA_OK;
    return ra__cpu_run(run,
                       &(struct ra__work){ .body = sinks_item,
                                           .context = (void *)run,
                                           .items = ra__program_of(run)->caller.shape.q_heads });
}
