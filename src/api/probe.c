/* probe.c - a small problem that one rank of a group computes by itself, with the threads of the
 * group, to see how fast its kernel is. */
#include <math.h>

#include "api/handles.h"

/* Forward, for each thread: a hundredth of a second on a fast core. */
#define KERNEL_FLOPS 5e8

enum { Q, K, V, OUT, DOUT, DQ, DK, DV, TENSORS };

struct ra__probe {
    ra_group group; /* this rank alone, with the threads of its group */
    ra_plan *plan;
    ra_problem problem;
    void *tensors[TENSORS];
    float *lse;
};

/* As many heads as threads: each has the same to do. */
static ra_problem small_problem(const struct ra__shape *shape, int threads)
{
    ra_problem problem = ra_problem_default();
    double per_pair = ra__flops(shape, 1, false);
    problem.dtype = shape->dtype;
    problem.q_len = (int64_t)fmin(2048.0, fmax(64.0, sqrt(KERNEL_FLOPS / per_pair)));
    problem.q_heads = threads;
    problem.dim = shape->dim;
    problem.value_dim = shape->value_dim;
    return problem;
}

/* Numbers of no kind: a kernel takes as long for any. */
static ra_status make_tensors(struct ra__probe *probe, int count)
{
    const ra_problem *p = &probe->problem;
    size_t wide = (size_t)(p->dim > p->value_dim ? p->dim : p->value_dim);
    size_t rows = (size_t)p->q_len * (size_t)p->q_heads;
    for (int i = 0; i < count; i++) {
        probe->tensors[i] = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, rows * wide, sizeof(float));
        if (!probe->tensors[i]) return ra__fail(RA_ERR_MEMORY, "measure: %zu rows", rows);
        for (size_t j = 0; i <= DOUT && j < rows * wide; j++)
            ra__store(p->dtype, probe->tensors[i], (int64_t)j,
                      (float)((j * 37 + (size_t)i) % 64) / 64.0f - 0.5f);
    }
    probe->lse = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, rows, sizeof(float));
    return probe->lse ? RA_OK : ra__fail(RA_ERR_MEMORY, "measure: %zu rows", rows);
}

static ra_status fill(struct ra__probe *probe, const ra_group *group, const ra_problem *problem,
                      const ra_plan_options *options)
{
    struct ra__shape shape;
    ra_problem taken;
    ra_plan_options own = ra_plan_options_default();
    RA__TRY(ra__problem_from(problem, &shape, &taken));
    /* One rank sends nothing, but shows life: the others wait for it. */
    probe->group.rank = group->rank;
    probe->group.rank.rank = 0;
    probe->group.rank.ranks = 1;
    probe->group.rank.trace = NULL;
    probe->problem = small_problem(&shape, ra__pool_threads(group->rank.pool));
    own.kernel = options->kernel;
    own.backward = options->backward;
    RA__TRY(make_tensors(probe, own.backward ? TENSORS : DOUT));
    return ra_plan_create(&probe->group, &probe->problem, &own, &probe->plan);
}

ra_status ra__probe_create(const ra_group *group, const ra_problem *problem,
                           const ra_plan_options *options, struct ra__probe **out)
{
    struct ra__probe *probe = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *probe);
    if (!probe) return ra__fail(RA_ERR_MEMORY, "measure: %zu bytes", sizeof *probe);
    ra_status status = fill(probe, group, problem, options);
    if (status == RA_OK) *out = probe;
    else ra__probe_destroy(probe);
    return status;
}

void ra__probe_destroy(struct ra__probe *probe)
{
    if (!probe) return;
    ra_plan_destroy(probe->plan);
    for (int i = 0; i < TENSORS; i++) ra__free(probe->tensors[i]);
    ra__free(probe->lse);
    ra__free(probe);
}

static ra_tensor tensor(const struct ra__probe *probe, int which)
{
    return (ra_tensor){ .data = probe->tensors[which] };
}

static ra_status run_forward(struct ra__probe *probe)
{
    ra_attend_args args = ra_attend_args_default();
    args.q = tensor(probe, Q);
    args.k = tensor(probe, K);
    args.v = tensor(probe, V);
    args.out = tensor(probe, OUT);
    args.lse = probe->lse;
    return ra_attend(probe->plan, &args);
}

static ra_status run_backward(struct ra__probe *probe)
{
    ra_gradient_args args = ra_gradient_args_default();
    args.q = tensor(probe, Q);
    args.k = tensor(probe, K);
    args.v = tensor(probe, V);
    args.out = tensor(probe, OUT);
    args.lse = probe->lse;
    args.dout = tensor(probe, DOUT);
    args.dq = tensor(probe, DQ);
    args.dk = tensor(probe, DK);
    args.dv = tensor(probe, DV);
    return ra_gradient(probe->plan, &args);
}

ra_status ra__probe_run(struct ra__probe *probe, bool backward, ra_stats *stats)
{
    RA__TRY(backward ? run_backward(probe) : run_forward(probe));
    return ra_plan_stats(probe->plan, stats);
}
