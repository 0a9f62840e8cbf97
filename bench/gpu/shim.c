/* SPDX-License-Identifier: Apache-2.0 */
/* shim.c - a problem on one GPU behind four functions of plain numbers, for table.py: it times our
 * calls and those of PyTorch in one process, on the same memory. */
#include <stdlib.h>

#include "ringattn.h"

struct bench {
    ra_group *groups[16];
    ra_plan *plans[16];
    int ranks, backward;
    int64_t q_heads, kv_heads, dim;
    const void *q, *k, *v, *dout;
    void *out, *dq, *dk, *dv;
    float *lse;
    void *queue;
    int calls;
    size_t element;
};

/* `backward`: 0 = no, 1 = yes, 2 = with sums of dq in any order. */
RA_API int gpu_bench_open(const char *pattern, const char *kernel, const char *partition, int ranks,
                          int dtype, int64_t batch, int64_t q_len, int64_t k_len, int q_heads,
                          int kv_heads, int dim, int backward, struct bench **out);
/* `calls` of each rank, one after the other, as the layers of a model make them. */
RA_API int gpu_bench_attend(struct bench *b, const void *q, const void *k, const void *v, void *o,
                            float *lse, void *queue, int calls);
RA_API int gpu_bench_gradient(struct bench *b, const void *q, const void *k, const void *v,
                              const void *o, const float *lse, const void *dout, void *dq, void *dk,
                              void *dv, void *queue, int calls);
RA_API void gpu_bench_close(struct bench *b);
RA_API const char *gpu_bench_kernel(const struct bench *b);
RA_API double gpu_bench_flops(const struct bench *b, int backward);

static ra_status open_plans(struct bench *b, const char *pattern, const char *kernel,
                            const char *partition, ra_problem *problem)
{
    ra_group_options options = ra_group_options_default();
    options.device = "cuda";
    options.on_device = 1;
    ra_status status = ra_group_create_local(b->ranks, &options, b->groups);
    if (status != RA_OK) return status;
    ra_pattern *parsed = NULL;
    status = ra_pattern_parse(pattern, &parsed);
    problem->pattern = parsed;
    ra_plan_options how = ra_plan_options_default();
    how.kernel = *kernel ? kernel : NULL;
    how.backward = b->backward > 0;
    how.any_order = b->backward == 2;
    if (b->ranks > 1) how.partition = partition;
    for (int i = 0; i < b->ranks && status == RA_OK; i++)
        status = ra_plan_create(b->groups[i], problem, &how, &b->plans[i]);
    ra_pattern_destroy(parsed);
    return status;
}

int gpu_bench_open(const char *pattern, const char *kernel, const char *partition, int ranks,
                   int dtype, int64_t batch, int64_t q_len, int64_t k_len, int q_heads,
                   int kv_heads, int dim, int backward, struct bench **out)
{
    struct bench *b = calloc(1, sizeof *b);
    if (!b) return RA_ERR_MEMORY;
    b->ranks = ranks;
    b->backward = backward;
    ra_problem problem = ra_problem_default();
    problem.dtype = (ra_dtype)dtype;
    problem.batch = batch;
    problem.q_len = q_len;
    problem.k_len = k_len;
    problem.q_heads = q_heads;
    problem.kv_heads = kv_heads;
    problem.dim = dim;
    b->element = dtype == RA_F32 ? 4 : 2;
    b->q_heads = q_heads;
    b->kv_heads = kv_heads;
    b->dim = dim;
    const ra_status status = open_plans(b, pattern, kernel, partition, &problem);
    if (status == RA_OK) *out = b;
    else gpu_bench_close(b);
    return status;
}

void gpu_bench_close(struct bench *b)
{
    if (!b) return;
    for (int i = 0; i < b->ranks; i++) ra_plan_destroy(b->plans[i]);
    for (int i = 0; i < b->ranks; i++) ra_group_destroy(b->groups[i]);
    free(b);
}

/* Shards of the ranks follow one another in the tensors, batch 1: what they hold does not matter
 * for their speed. */
static int64_t queries_before(const struct bench *b, int rank)
{
    int64_t sum = 0;
    for (int i = 0; i < rank; i++) sum += ra_plan_q_count(b->plans[i]);
    return sum;
}
static int64_t keys_before(const struct bench *b, int rank)
{
    int64_t sum = 0;
    for (int i = 0; i < rank; i++) sum += ra_plan_k_count(b->plans[i]);
    return sum;
}

static int rank_of(const struct bench *b, const ra_group *group)
{
    for (int i = 0; i < b->ranks; i++)
        if (b->groups[i] == group) return i;
    return 0;
}

static ra_status attend(ra_group *group, void *context)
{
    const struct bench *b = context;
    const int rank = rank_of(b, group);
    const size_t q = (size_t)(queries_before(b, rank) * b->q_heads * b->dim) * b->element;
    const size_t k = (size_t)(keys_before(b, rank) * b->kv_heads * b->dim) * b->element;
    ra_attend_args args = ra_attend_args_default();
    args.q.data = (const char *)b->q + q;
    args.k.data = (const char *)b->k + k;
    args.v.data = (const char *)b->v + k;
    args.out.data = (char *)b->out + q;
    args.lse = b->lse + queries_before(b, rank) * b->q_heads;
    args.queue = b->queue;
    ra_status status = RA_OK;
    for (int i = 0; i < b->calls && status == RA_OK; i++) status = ra_attend(b->plans[rank], &args);
    return status;
}

static ra_status gradient(ra_group *group, void *context)
{
    const struct bench *b = context;
    const int rank = rank_of(b, group);
    const size_t q = (size_t)(queries_before(b, rank) * b->q_heads * b->dim) * b->element;
    const size_t k = (size_t)(keys_before(b, rank) * b->kv_heads * b->dim) * b->element;
    ra_gradient_args args = ra_gradient_args_default();
    args.q.data = (const char *)b->q + q;
    args.k.data = (const char *)b->k + k;
    args.v.data = (const char *)b->v + k;
    args.out.data = (char *)b->out + q;
    args.dout.data = (const char *)b->dout + q;
    args.lse = b->lse + queries_before(b, rank) * b->q_heads;
    args.dq.data = (char *)b->dq + q;
    args.dk.data = (char *)b->dk + k;
    args.dv.data = (char *)b->dv + k;
    args.queue = b->queue;
    ra_status status = RA_OK;
    for (int i = 0; i < b->calls && status == RA_OK; i++)
        status = ra_gradient(b->plans[rank], &args);
    return status;
}

int gpu_bench_attend(struct bench *b, const void *q, const void *k, const void *v, void *o,
                     float *lse, void *queue, int calls)
{
    b->q = q;
    b->k = k;
    b->v = v;
    b->out = o;
    b->lse = lse;
    b->queue = queue;
    b->calls = calls;
    return ra_group_run(b->groups, b->ranks, attend, b);
}

int gpu_bench_gradient(struct bench *b, const void *q, const void *k, const void *v, const void *o,
                       const float *lse, const void *dout, void *dq, void *dk, void *dv,
                       void *queue, int calls)
{
    b->q = q;
    b->k = k;
    b->v = v;
    b->out = (void *)o;
    b->lse = (float *)lse;
    b->dout = dout;
    b->dq = dq;
    b->dk = dk;
    b->dv = dv;
    b->queue = queue;
    b->calls = calls;
    return ra_group_run(b->groups, b->ranks, gradient, b);
}

const char *gpu_bench_kernel(const struct bench *b) { return ra_plan_kernel(b->plans[0]); }

double gpu_bench_flops(const struct bench *b, int backward)
{
    double sum = 0;
    for (int i = 0; i < b->ranks; i++) {
        ra_stats stats = ra_stats_default();
        if (ra_plan_forecast(b->plans[i], backward, &stats) == RA_OK) sum += stats.flops;
    }
    return sum;
}
