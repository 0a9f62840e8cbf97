/* SPDX-License-Identifier: Apache-2.0 */
/* bias.c - scores with a bias by relative position, one for each head, and keys hidden by a mask.
 *
 * The bias is [head, query, key] in f32 and added to the scores; -INFINITY hides a key. The result
 * is compared with attention written down as its formula says. */
#include <math.h>
#include <stdio.h>

#include <ringattn.h>

enum { TOKENS = 64, HEADS = 2, DIM = 16, PADDING = 5 };

static float q[TOKENS][HEADS][DIM], k[TOKENS][HEADS][DIM], v[TOKENS][HEADS][DIM];
static float out[TOKENS][HEADS][DIM];
static float bias[HEADS][TOKENS][TOKENS];

/* Falls with the distance, faster in the second head; the last keys are padding. */
static float bias_at(int head, int query, int key)
{
    if (key >= TOKENS - PADDING) return -INFINITY;
    return -0.1f * (float)(head + 1) * logf(1.0f + fabsf((float)(query - key)));
}

static void fill(void)
{
    for (int i = 0; i < TOKENS; i++)
        for (int h = 0; h < HEADS; h++) {
            for (int d = 0; d < DIM; d++) {
                q[i][h][d] = sinf((float)(i + 3 * h + d));
                k[i][h][d] = cosf(0.5f * (float)(i * (d + 1) + h));
                v[i][h][d] = sinf(0.1f * (float)(i + d));
            }
            for (int j = 0; j < TOKENS; j++) bias[h][i][j] = bias_at(h, i, j);
        }
}

/* The largest difference from softmax(q k^T / sqrt(DIM) + bias) v in one row. */
static double error_of(int query, int head)
{
    double sum = 0.0, want[DIM] = { 0.0 }, worst = 0.0;
    for (int j = 0; j < TOKENS - PADDING; j++) {
        double score = bias[head][query][j];
        for (int d = 0; d < DIM; d++)
            score += (double)q[query][head][d] * k[j][head][d] / sqrt(DIM);
        sum += exp(score);
        for (int d = 0; d < DIM; d++) want[d] += exp(score) * v[j][head][d];
    }
    for (int d = 0; d < DIM; d++) worst = fmax(worst, fabs(out[query][head][d] - want[d] / sum));
    return worst;
}

int main(void)
{
    ra_group *group = NULL;
    ra_plan *plan = NULL;
    ra_problem problem = ra_problem_default();
    ra_plan_options options = ra_plan_options_default();
    fill();
    problem.q_len = TOKENS;
    problem.q_heads = HEADS;
    problem.dim = DIM;
    options.bias = 1; /* a strategy that cannot take one is refused here, not in the run */
    ra_status status = ra_group_create_local(1, NULL, &group);
    if (status == RA_OK) status = ra_plan_create(group, &problem, &options, &plan);

    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(q);
    args.k = ra_const_tensor_packed(k);
    args.v = ra_const_tensor_packed(v);
    args.out = ra_tensor_packed(out);
    args.bias.data = bias;
    args.bias.head_stride = TOKENS * TOKENS; /* batch_stride 0: all batch items share it */
    if (status == RA_OK) status = ra_attend(plan, &args);

    double worst = 0.0;
    for (int i = 0; i < TOKENS; i++)
        for (int h = 0; h < HEADS; h++) worst = fmax(worst, error_of(i, h));
    if (status != RA_OK) fprintf(stderr, "bias: %s\n", ra_last_error());
    else printf("bias and mask: largest difference from the formula %.1e\n", worst);
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    return status != RA_OK || !(worst < 1e-5);
}
