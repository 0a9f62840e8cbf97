/* SPDX-License-Identifier: Apache-2.0 */
/* training.c - forward and backward over four ranks, as in training.
 *
 * The loss is |out - target|^2 / 2, so its gradient with respect to out is out - target. Ten steps
 * of gradient descent on q, k and v must lower it every time. Each rank keeps its shard, its plan
 * and its gradients; only the loss is added up over the ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <ringattn.h>

enum { RANKS = 4, TOKENS = 203, HEADS = 4, KV_HEADS = 2, DIM = 16, STEPS = 10 };
enum { Q_ROW = HEADS * DIM, K_ROW = KV_HEADS * DIM };

/* Everything one rank holds. */
struct shard {
    float *q, *k, *v, *out, *lse, *target, *dout, *dq, *dk, *dv;
    int64_t q_numbers, k_numbers;
};

static float *numbers(int64_t count) { return calloc((size_t)count + 1, sizeof(float)); }

static void fill(float *to, int64_t count, float step)
{
    for (int64_t i = 0; i < count; i++) to[i] = sinf(step * (float)(i + 1));
}

static int shard_open(struct shard *s, const ra_plan *plan)
{
    float first = 0.1f * (float)ra_plan_q_count(plan);
    int64_t q = s->q_numbers = ra_plan_q_count(plan) * Q_ROW;
    int64_t k = s->k_numbers = ra_plan_k_count(plan) * K_ROW;
    s->q = numbers(q), s->out = numbers(q), s->target = numbers(q), s->dout = numbers(q);
    s->dq = numbers(q), s->lse = numbers(ra_plan_q_count(plan) * HEADS);
    s->k = numbers(k), s->v = numbers(k), s->dk = numbers(k), s->dv = numbers(k);
    if (!s->q || !s->out || !s->target || !s->dout || !s->dq || !s->lse || !s->k || !s->v ||
        !s->dk || !s->dv)
        return 0;
    fill(s->q, q, 0.37f + first), fill(s->k, k, 1.3f), fill(s->v, k, 0.7f);
    fill(s->target, q, 0.11f);
    return 1;
}

static void shard_close(struct shard *s)
{
    float *all[] = { s->q, s->k, s->v, s->out, s->lse, s->target, s->dout, s->dq, s->dk, s->dv };
    for (int i = 0; i < 10; i++) free(all[i]);
}

static ra_status forward(ra_plan *plan, struct shard *s)
{
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(s->q);
    args.k = ra_const_tensor_packed(s->k);
    args.v = ra_const_tensor_packed(s->v);
    args.out = ra_tensor_packed(s->out);
    args.lse = s->lse; /* backward needs it */
    return ra_attend(plan, &args);
}

static ra_status backward(ra_plan *plan, struct shard *s)
{
    ra_gradient_args args = ra_gradient_args_default();
    args.q = ra_const_tensor_packed(s->q);
    args.k = ra_const_tensor_packed(s->k);
    args.v = ra_const_tensor_packed(s->v);
    args.out = ra_const_tensor_packed(s->out);
    args.lse = s->lse;
    args.dout = ra_const_tensor_packed(s->dout);
    args.dq = ra_tensor_packed(s->dq);
    args.dk = ra_tensor_packed(s->dk);
    args.dv = ra_tensor_packed(s->dv);
    return ra_gradient(plan, &args);
}

static void descend(float *x, const float *gradient, int64_t count)
{
    for (int64_t i = 0; i < count; i++) x[i] -= 0.1f * gradient[i];
}

/* Sets dout, and returns the loss over all ranks. */
static ra_status find_loss(ra_group *group, struct shard *s, double *loss)
{
    double mine = 0.0, all[RANKS];
    for (int64_t i = 0; i < s->q_numbers; i++) {
        s->dout[i] = s->out[i] - s->target[i];
        mine += 0.5 * (double)s->dout[i] * s->dout[i];
    }
    ra_status status = ra_group_share(group, &mine, all, sizeof mine);
    *loss = 0.0;
    for (int i = 0; i < RANKS && status == RA_OK; i++) *loss += all[i];
    return status;
}

static ra_status train(ra_group *group, ra_plan *plan, struct shard *s)
{
    double before = INFINITY, loss;
    for (int step = 0; step < STEPS; step++) {
        ra_status status = forward(plan, s);
        if (status == RA_OK) status = find_loss(group, s, &loss);
        if (status == RA_OK) status = backward(plan, s);
        if (status != RA_OK) return status;
        descend(s->q, s->dq, s->q_numbers);
        descend(s->k, s->dk, s->k_numbers);
        descend(s->v, s->dv, s->k_numbers);
        if (ra_group_rank(group) == 0) printf("step %2d: loss %.4f\n", step, loss);
        if (!(loss < before)) return ra_transport_error(RA_ERR_SYSTEM, "the loss did not fall");
        before = loss;
    }
    return RA_OK;
}

/* One rank, on a thread of its own. */
static ra_status rank_main(ra_group *group, void *context)
{
    struct shard shard = { 0 };
    ra_plan *plan;
    ra_problem problem = ra_problem_default();
    problem.pattern = context;
    problem.q_len = TOKENS;
    problem.q_heads = HEADS;
    problem.kv_heads = KV_HEADS;
    problem.dim = DIM;
    ra_plan_options options = ra_plan_options_default();
    options.partition = "zigzag"; /* causal: the same work for all */
    options.backward = 1;
    ra_status status = ra_plan_create(group, &problem, &options, &plan);
    if (status != RA_OK) return status;
    status = shard_open(&shard, plan) ? train(group, plan, &shard)
                                      : ra_transport_error(RA_ERR_MEMORY, "no memory");
    shard_close(&shard);
    ra_plan_destroy(plan);
    return status;
}

int main(void)
{
    ra_group *groups[RANKS] = { NULL };
    ra_pattern *pattern = NULL;
    ra_status status = ra_pattern_causal(&pattern);
    if (status == RA_OK) status = ra_group_create_local(RANKS, NULL, groups);
    if (status == RA_OK) status = ra_group_run(groups, RANKS, rank_main, pattern);
    if (status != RA_OK) fprintf(stderr, "training: %s\n", ra_last_error());
    for (int i = 0; i < RANKS; i++) ra_group_destroy(groups[i]);
    ra_pattern_destroy(pattern);
    return status != RA_OK;
}
