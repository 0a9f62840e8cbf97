/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - a small problem that one rank of a group computes by itself, with the threads of the
 * group, to see how fast its kernel is. Where the device has memory of its own, tensors are in
 * that: copies are no part of what a kernel can do. */
#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "exec/measure.h"

/* Forward, for each thread: a few milliseconds on a fast core. */
#define KERNEL_FLOPS 5e8

/* Heads that keep a device of many small jobs busy. */
enum { DEVICE_HEADS = 16 };

enum { Q, K, V, OUT, DOUT, DQ, DK, DV, TENSORS };

struct ra__probe {
    struct ra__rank rank; /* alone, with the threads of its group */
    bool on_device;       /* where tensors are */
    struct ra__shape shape;
    ra_pattern *pattern;
    ra_layout *layout;
    struct ra__problem_terms terms; /* none */
    struct ra__account account;
    struct ra__plan plan;
    struct ra__exec exec;
    void *tensors[TENSORS];
    float *lse;
};

/* On a CPU as many heads as threads: each has the same to do. */
static struct ra__shape small_shape(const struct ra__subject *subject, int64_t length)
{
    const struct ra__shape *shape = &subject->shape;
    const int threads = ra__rank_threads(subject->rank);
    const double per_pair = ra__flops(shape, 1, false);
    if (!length) length = (int64_t)fmin(2048.0, fmax(64.0, sqrt(KERNEL_FLOPS / per_pair)));
    const int heads = subject->rank->backend->host ? threads : DEVICE_HEADS;
    return (struct ra__shape){ .dtype = shape->dtype,
                               .batch = 1,
                               .q_len = length,
                               .k_len = length,
                               .q_heads = heads,
                               .kv_heads = heads,
                               .dim = shape->dim,
                               .value_dim = shape->value_dim,
                               .scale = (float)(1.0 / sqrt((double)shape->dim)) };
}

/* Numbers of no kind: a kernel takes as long for any. They repeat. */
static void fill_numbers(ra_dtype dtype, char *to, size_t bytes)
{
    enum { PERIOD = 64 };
    char numbers[PERIOD * sizeof(float)];
    const size_t period = PERIOD * ra__dtype_bytes(dtype);
    for (int i = 0; i < PERIOD; i++)
        ra__store(dtype, numbers, i, (float)(i * 37 % PERIOD) / PERIOD - 0.5f);
    for (size_t at = 0; at < bytes; at += period)
        memcpy(to + at, numbers, bytes - at < period ? bytes - at : period);
}

static void *take_memory(const struct ra__probe *probe, size_t bytes)
{
    if (probe->on_device) return probe->rank.backend->alloc(probe->rank.device, bytes);
    return ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, bytes, 1);
}

static void give_memory(const struct ra__probe *probe, void *memory, size_t bytes)
{
    if (!probe->on_device) ra__free(memory);
    else if (memory) probe->rank.backend->free(probe->rank.device, memory, bytes);
}

static size_t tensor_bytes(const struct ra__shape *s)
{
    const size_t wide = (size_t)(s->dim > s->value_dim ? s->dim : s->value_dim);
    return (size_t)s->q_len * (size_t)s->q_heads * wide * sizeof(float);
}

static size_t lse_bytes(const struct ra__shape *s)
{
    return (size_t)s->q_len * (size_t)s->q_heads * sizeof(float);
}

static ra_status make_tensors(struct ra__probe *probe, const struct ra__shape *s, int count)
{
    const size_t bytes = tensor_bytes(s);
    const struct ra__backend *backend = probe->rank.backend;
    ra_status status = RA_OK;
    char *numbers = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, bytes, 1);
    bool room = numbers != NULL;
    if (numbers) fill_numbers(s->dtype, numbers, bytes);
    for (int i = 0; i < count && room && status == RA_OK; i++) {
        room = (probe->tensors[i] = take_memory(probe, bytes)) != NULL;
        if (!room || i > DOUT) continue; /* a result */
        if (!probe->on_device) memcpy(probe->tensors[i], numbers, bytes);
        else status = backend->copy(probe->rank.device, probe->tensors[i], numbers, bytes);
    }
    ra__free(numbers);
    if (room) room = (probe->lse = take_memory(probe, lse_bytes(s))) != NULL;
    if (room) return status;
    return ra__fail(RA_ERR_MEMORY, "measure: %zu bytes for each tensor", bytes);
}

static ra_status make_plan(struct ra__probe *probe, const struct ra__shape *shape, bool backward)
{
    struct ra__plan_input input = { .shape = *shape,
                                    .all_heads = shape->q_heads,
                                    .terms = &probe->terms,
                                    .ranks = 1,
                                    .backward = backward,
                                    .many_jobs = probe->rank.backend->many_jobs,
                                    .loads = !probe->rank.backend->host && !probe->on_device,
                                    .stages = !probe->rank.backend->host };
    RA__TRY(ra__strategy_parse(NULL, &input));
    RA__TRY(ra__pattern_copy(NULL, NULL, &probe->pattern));
    RA__TRY(ra__layout_create(NULL, shape->q_len, 1, probe->pattern, &probe->layout));
    input.pattern = probe->pattern;
    input.q_layout = input.k_layout = probe->layout;
    return ra__plan_build(&input, &probe->account, &probe->plan);
}

static ra_status fill(struct ra__probe *probe, const struct ra__subject *subject, int64_t length)
{
    const struct ra__shape shape = probe->shape = small_shape(subject, length);
    const struct ra__kernel *kernel;
    /* A single rank sends nothing, but it polls: the others wait for it. */
    probe->rank = *subject->rank;
    probe->rank.rank = 0;
    probe->rank.ranks = 1;
    probe->rank.trace = NULL;
    probe->on_device = !probe->rank.backend->host && probe->rank.backend->copy;
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

ra_status ra__probe_create(const struct ra__subject *subject, int64_t length,
                           struct ra__probe **out)
{
    struct ra__probe *probe = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *probe);
    if (!probe) return ra__fail(RA_ERR_MEMORY, "measure: %zu bytes", sizeof *probe);
    ra_status status = fill(probe, subject, length);
    if (status == RA_OK) *out = probe;
    else ra__probe_destroy(probe);
    return status;
}

size_t ra__probe_bytes(const struct ra__probe *probe) { return tensor_bytes(&probe->shape); }

void ra__probe_destroy(struct ra__probe *probe)
{
    if (!probe) return;
    ra__exec_destroy(&probe->exec);
    ra__plan_clear(&probe->plan);
    ra_layout_destroy(probe->layout);
    ra_pattern_destroy(probe->pattern);
    for (int i = 0; i < TENSORS; i++)
        give_memory(probe, probe->tensors[i], tensor_bytes(&probe->shape));
    give_memory(probe, probe->lse, lse_bytes(&probe->shape));
    ra__free(probe);
}

/* Packed. */
static ra_tensor tensor(const struct ra__probe *probe, int which, int dim)
{
    const struct ra__shape *s = &probe->shape;
    int64_t position = (int64_t)s->q_heads * dim;
    return (ra_tensor){ probe->tensors[which], s->q_len * position, position, dim };
}

ra_status ra__probe_run(struct ra__probe *probe, bool backward, double *flops)
{
    const int dim = probe->shape.dim, value_dim = probe->shape.value_dim;
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
