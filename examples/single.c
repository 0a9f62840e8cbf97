/* SPDX-License-Identifier: Apache-2.0 */
/* single.c - one process, one rank: the shortest way to use the library.
 *
 * Attention is a weighted mean of the values, so values of one must give one, and the LSE of the
 * first causal row, which sees one key, is that key's score. Both are checked. */
#include <math.h>
#include <stdio.h>

#include <ringattn.h>

enum { TOKENS = 1000, HEADS = 4, DIM = 64 };

static float q[TOKENS][HEADS][DIM], k[TOKENS][HEADS][DIM], v[TOKENS][HEADS][DIM];
static float out[TOKENS][HEADS][DIM], lse[TOKENS][HEADS];

static void fill(void)
{
    for (int i = 0; i < TOKENS; i++)
        for (int h = 0; h < HEADS; h++)
            for (int d = 0; d < DIM; d++) {
                q[i][h][d] = sinf(0.37f * (float)(i + 3 * h) + (float)d);
                k[i][h][d] = cosf(0.11f * (float)(i - 5 * h) * (float)(d + 1));
                v[i][h][d] = 1.0f;
            }
}

static double worst_error(void)
{
    double worst = 0.0;
    for (int i = 0; i < TOKENS; i++)
        for (int h = 0; h < HEADS; h++)
            for (int d = 0; d < DIM; d++) worst = fmax(worst, fabs(out[i][h][d] - 1.0));
    double score = 0.0;
    for (int d = 0; d < DIM; d++) score += (double)q[0][0][d] * k[0][0][d];
    return fmax(worst, fabs(lse[0][0] - score / sqrt(DIM)));
}

int main(void)
{
    ra_group *group = NULL;
    ra_pattern *pattern = NULL;
    ra_plan *plan = NULL;
    int failed = 1;
    fill();

    if (ra_group_create_local(1, NULL, &group) != RA_OK) goto done;
    if (ra_pattern_parse("causal", &pattern) != RA_OK) goto done;

    ra_problem problem = ra_problem_default();
    problem.pattern = pattern;
    problem.q_len = TOKENS;
    problem.q_heads = HEADS;
    problem.dim = DIM;
    if (ra_plan_create(group, &problem, NULL, &plan) != RA_OK) goto done;

    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(q);
    args.k = ra_const_tensor_packed(k);
    args.v = ra_const_tensor_packed(v);
    args.out = ra_tensor_packed(out);
    args.lse = &lse[0][0];
    if (ra_attend(plan, &args) != RA_OK) goto done;

    ra_stats stats = ra_stats_default();
    if (ra_plan_stats(plan, &stats) != RA_OK) goto done;
    printf("causal attention over %d tokens, %d heads: %lld pairs, %.1f GFLOP/s, kernel %s\n",
           TOKENS, HEADS, (long long)stats.pairs, 1e-9 * stats.flops / stats.seconds,
           ra_plan_kernel(plan));
    printf("values of one give one: largest error %.1e\n", worst_error());
    failed = worst_error() > 1e-4;
done:
    if (failed) fprintf(stderr, "single: failed: %s\n", ra_last_error());
    ra_plan_destroy(plan);
    ra_pattern_destroy(pattern);
    ra_group_destroy(group);
    return failed;
}
