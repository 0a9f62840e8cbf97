/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - a small problem that one rank of a group computes by itself, with the threads of the
 * group, to see how fast its kernel is. */
#include <math.h>

#include "core/dtype.h"
#include "exec/measure.h"

/* Forward, for each thread: a few milliseconds on a fast core. */
#define KERNEL_FLOPS 5e8

enum { Q, K, V, OUT, DOUT, DQ, DK, DV, TENSORS };

struct ra__probe {
    struct ra__rank rank; /* alone, with the threads of its group */
    ra_pattern *pattern;
    ra_layout *layout;
    struct ra__problem_terms terms; /* none */
    struct ra__account account;
    struct ra__plan plan;
    struct ra__exec exec;
    void *tensors[TENSORS];
    float *lse;
};

/* As many heads as threads: each has the same to do. */
static struct ra__shape small_shape(const struct ra__shape *shape, int threads)
{
    double per_pair = ra__flops(shape, 1, false);
    int64_t length = (int64_t)fmin(2048.0, fmax(64.0, sqrt(KERNEL_FLOPS / per_pair)));
    return (struct ra__shape){ .dtype = shape->dtype,
                               .batch = 1,
                               .q_len = length,
                               .k_len = length,
                               .q_heads = threads,
                               .kv_heads = threads,
                               .dim = shape->dim,
                               .value_dim = shape->value_dim,
                               .scale = (float)(1.0 / sqrt((double)shape->dim)) };
}

/* Numbers of no kind: a kernel takes as long for any. */
static ra_status make_tensors(struct ra__probe *probe, const struct ra__shape *s, int count)
{
    size_t wide = (size_t)(s->dim > s->value_dim ? s->dim : s->value_dim);
    size_t rows = (size_t)s->q_len * (size_t)s->q_heads;
    for (int i = 0; i < count; i++) {
        probe->tensors[i] = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, rows * wide, sizeof(float));
        if (!probe->tensors[i]) return ra__fail(RA_ERR_MEMORY, "measure: %zu rows", rows);
        for (size_t j = 0; i <= DOUT && j < rows * wide; j++)
            ra__store(s->dtype, probe->tensors[i], (int64_t)j,
                      (float)((j * 37 + (size_t)i) % 64) / 64.0f - 0.5f);
    }
    probe->lse = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, rows, sizeof(float));
    return probe->lse ? RA_OK : ra__fail(RA_ERR_MEMORY, "measure: %zu rows", rows);
}

static ra_status make_plan(struct ra__probe *probe, const struct ra__shape *shape, bool backward)
{
    struct ra__plan_input input = { .shape = *shape,
                                    .all_heads = shape->q_heads,
                                    .terms = &probe->terms,
                                    .ranks = 1,
                                    .backward = backward,
                                    .many_jobs = probe->rank.backend->many_jobs,
                                    .loads = !probe->rank.backend->host,
                                    .stages = !probe->rank.backend->host };
    RA__TRY(ra__strategy_parse(NULL, &input));
    RA__TRY(ra__pattern_copy(NULL, NULL, &probe->pattern));
    RA__TRY(ra__layout_create(NULL, shape->q_len, 1, probe->pattern, &probe->layout));
    input.pattern = probe->pattern;
    input.q_layout = input.k_layout = probe->layout;
    return ra__plan_build(&input, &probe->account, &probe->plan);
}

static ra_status fill(struct ra__probe *probe, const struct ra__subject *subject)
{
    const struct ra__shape shape = small_shape(&subject->shape, ra__rank_threads(subject->rank));
    const struct ra__kernel *kernel;
    /* A single rank sends nothing, but it polls: the others wait for it. */
    probe->rank = *subject->rank;
    probe->rank.rank = 0;
    probe->rank.ranks = 1;
    probe->rank.trace = NULL;
    RA__TRY(subject->rank->backend->choose(subject->rank->device, 0, subject->kernel, &shape,
                                           subject->backward, &kernel));
    RA__TRY(make_tensors(probe, &shape, subject->backward ? TENSORS : DOUT));
    RA__TRY(make_plan(probe, &shape, subject->backward));
    probe->exec = (struct ra__exec){ .plan = &probe->plan,
                                     .kernel = kernel,
                                     .rank = &probe->rank,
                                     .terms = &probe->terms,
                                     .account = &probe->account };
    return ra__exec_create(&probe->exec);
}

ra_status ra__probe_create(const struct ra__subject *subject, struct ra__probe **out)
{
    struct ra__probe *probe = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *probe);
    if (!probe) return ra__fail(RA_ERR_MEMORY, "measure: %zu bytes", sizeof *probe);
    ra_status status = fill(probe, subject);
    if (status == RA_OK) *out = probe;
    else ra__probe_destroy(probe);
    return status;
}

void ra__probe_destroy(struct ra__probe *probe)
{
    if (!probe) return;
    ra__exec_destroy(&probe->exec);
    ra__plan_clear(&probe->plan);
    ra_layout_destroy(probe->layout);
    ra_pattern_destroy(probe->pattern);
    for (int i = 0; i < TENSORS; i++) ra__free(probe->tensors[i]);
    ra__free(probe->lse);
    ra__free(probe);
}

/* Packed. */
static ra_tensor tensor(const struct ra__probe *probe, int which, int dim)
{
    const struct ra__shape *s = &probe->plan.caller.shape;
    int64_t position = (int64_t)s->q_heads * dim;
    return (ra_tensor){ probe->tensors[which], s->q_len * position, position, dim };
}

ra_status ra__probe_run(struct ra__probe *probe, bool backward, double *flops)
{
    const int dim = probe->plan.caller.shape.dim, value_dim = probe->plan.caller.shape.value_dim;
    struct ra__io io = { .q = tensor(probe, Q, dim),
                         .k = tensor(probe, K, dim),
                         .v = tensor(probe, V, value_dim),
                         .out = tensor(probe, OUT, value_dim),
                         .lse = probe->lse };
    if (backward) {
        io.dout = tensor(probe, DOUT, value_dim);
        io.dq = tensor(probe, DQ, dim);
        io.dk = tensor(probe, DK, dim);
        io.dv = tensor(probe, DV, value_dim);
    }
    struct ra__exec *exec = &probe->exec;
    RA__TRY(ra__exec_run(exec, backward ? RA__BACKWARD : RA__FORWARD, &io));
    *flops = exec->stats.flops;
    return RA_OK;
}
