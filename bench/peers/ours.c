/* SPDX-License-Identifier: Apache-2.0 */
/* ours.c - ringattn itself as a peer: one rank, planned once, run often. */
#include <stdlib.h>

#include <ringattn.h>

#include "peer.h"

struct job {
    struct peer_case problem;
    ra_group *group;
    ra_plan *plan;
    void *q, *k, *v, *out;
    void *dout, *dq, *dk, *dv; /* NULL unless backward */
    float *lse;
};

static void ours_close(void *context)
{
    struct job *job = context;
    if (!job) return;
    ra_plan_destroy(job->plan);
    ra_group_destroy(job->group);
    void *tensors[] = { job->q, job->k, job->v, job->out, job->dout, job->dq, job->dk, job->dv };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) free(tensors[i]);
    free(job->lse);
    free(job);
}

static bool load(struct job *job)
{
    const struct peer_case *p = &job->problem;
    size_t bytes = peer_elements(p) * peer_bytes(p->dtype);
    job->lse = peer_alloc((size_t)p->tokens * (size_t)p->heads * sizeof *job->lse);
    if (!(job->q = peer_load(p, "q")) || !(job->k = peer_load(p, "k")) ||
        !(job->v = peer_load(p, "v")) || !(job->out = peer_alloc(bytes)) || !job->lse)
        return false;
    if (!p->backward) return true;
    return (job->dout = peer_load(p, "dout")) && (job->dq = peer_alloc(bytes)) &&
           (job->dk = peer_alloc(bytes)) && (job->dv = peer_alloc(bytes));
}

static ra_status make_plan(struct job *job)
{
    static const ra_dtype dtypes[] = { RA_F32, RA_BF16, RA_F16 };
    const struct peer_case *p = &job->problem;
    ra_group_options group_options = ra_group_options_default();
    group_options.threads = p->threads;
    ra_status status = ra_group_create_local(1, &group_options, &job->group);
    if (status != RA_OK) return status;
    ra_pattern *pattern = NULL;
    status = p->causal ? ra_pattern_causal(&pattern) : ra_pattern_full(&pattern);
    if (status != RA_OK) return status;
    ra_problem problem = ra_problem_default();
    problem.pattern = pattern;
    problem.dtype = dtypes[p->dtype];
    problem.q_len = p->tokens;
    problem.q_heads = p->heads;
    problem.dim = p->dim;
    ra_plan_options options = ra_plan_options_default();
    options.backward = p->backward;
    status = ra_plan_create(job->group, &problem, &options, &job->plan);
    ra_pattern_destroy(pattern);
    return status;
}

static ra_status forward(struct job *job)
{
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(job->q);
    args.k = ra_const_tensor_packed(job->k);
    args.v = ra_const_tensor_packed(job->v);
    args.out = ra_tensor_packed(job->out);
    args.lse = job->lse;
    return ra_attend(job->plan, &args);
}

static ra_status backward(struct job *job)
{
    ra_gradient_args args = ra_gradient_args_default();
    args.q = ra_const_tensor_packed(job->q);
    args.k = ra_const_tensor_packed(job->k);
    args.v = ra_const_tensor_packed(job->v);
    args.out = ra_const_tensor_packed(job->out);
    args.lse = job->lse;
    args.dout = ra_const_tensor_packed(job->dout);
    args.dq = ra_tensor_packed(job->dq);
    args.dk = ra_tensor_packed(job->dk);
    args.dv = ra_tensor_packed(job->dv);
    return ra_gradient(job->plan, &args);
}

static void *ours_open(const struct peer_case *problem)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job) return peer_refuse("out of memory");
    job->problem = *problem;
    if (!load(job)) goto close;
    if (make_plan(job) == RA_OK && (!problem->backward || forward(job) == RA_OK)) return job;
    peer_refuse("%s", ra_last_error());
close:
    ours_close(job);
    return NULL;
}

static bool ours_run(void *context)
{
    struct job *job = context;
    ra_status status = job->problem.backward ? backward(job) : forward(job);
    return status == RA_OK || peer_refuse("%s", ra_last_error());
}

static const void *ours_row(void *context, int which, int64_t position, int head,
                            enum peer_dtype *dtype)
{
    struct job *job = context;
    const struct peer_case *p = &job->problem;
    const char *gradients[] = { job->dq, job->dk, job->dv };
    const char *tensor = p->backward ? gradients[which] : job->out;
    size_t row = (size_t)position * (size_t)p->heads + (size_t)head;
    *dtype = p->dtype;
    return tensor + row * (size_t)p->dim * peer_bytes(p->dtype);
}

static const char *ours_detail(void *context)
{
    return ra_plan_kernel(((struct job *)context)->plan);
}

static const struct peer ours = {
    .name = "ours",
    .version = ra_version,
    .open = ours_open,
    .run = ours_run,
    .row = ours_row,
    .detail = ours_detail,
    .close = ours_close,
};

int main(int argc, char **argv) { return peer_main(argc, argv, &ours); }
