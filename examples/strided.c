/* SPDX-License-Identifier: Apache-2.0 */
/* strided.c - a cache as inference engines keep it, used where it is: no copy.
 *
 * The cache is [batch, KV head, capacity, K or V, dim]: heads outside, K and V of a token side by
 * side, and room for tokens to come. Strides describe it. All batch items ask the same query, by a
 * stride of 0. The result must have the bits that packed copies give. */
#include <stdio.h>
#include <string.h>

#include <math.h>

#include <ringattn.h>

enum { BATCH = 2, CAPACITY = 512, FILLED = 300, QUERIES = 3, HEADS = 4, KV_HEADS = 2, DIM = 32 };

static float cache[BATCH][KV_HEADS][CAPACITY][2][DIM];
static float k[BATCH][FILLED][KV_HEADS][DIM], v[BATCH][FILLED][KV_HEADS][DIM]; /* packed copies */
static float query[QUERIES][HEADS][DIM], queries[BATCH][QUERIES][HEADS][DIM];
static float out[2][BATCH][QUERIES][HEADS][DIM];

static void fill(void)
{
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < KV_HEADS; h++)
            for (int t = 0; t < FILLED; t++)
                for (int d = 0; d < DIM; d++) {
                    cache[b][h][t][0][d] = k[b][t][h][d] = sinf((float)(7 * b + 3 * h + t * d));
                    cache[b][h][t][1][d] = v[b][t][h][d] = cosf((float)(b + h + t + d));
                }
    for (int i = 0; i < QUERIES * HEADS * DIM; i++) (&query[0][0][0])[i] = sinf(0.3f * (float)i);
    for (int b = 0; b < BATCH; b++) memcpy(queries[b], query, sizeof query);
}

int main(void)
{
    ra_group *group = NULL;
    ra_pattern *pattern = NULL;
    ra_plan *plan = NULL;
    ra_problem problem = ra_problem_default();
    fill();
    problem.batch = BATCH;
    problem.q_len = QUERIES; /* the last positions of the sequence */
    problem.k_len = FILLED;
    problem.q_heads = HEADS;
    problem.kv_heads = KV_HEADS;
    problem.dim = DIM;
    ra_status status = ra_pattern_causal(&pattern);
    problem.pattern = pattern;
    if (status == RA_OK) status = ra_group_create_local(1, NULL, &group);
    if (status == RA_OK) status = ra_plan_create(group, &problem, NULL, &plan);

    ra_const_tensor stored = { &cache[0][0][0][0][0],
                               sizeof cache[0] / sizeof(float),       /* next batch item */
                               sizeof cache[0][0][0] / sizeof(float), /* next token */
                               sizeof cache[0][0] / sizeof(float) };  /* next head */
    ra_attend_args args = ra_attend_args_default();
    args.q = (ra_const_tensor){ query, 0, HEADS * DIM, DIM };
    args.k = args.v = stored;
    args.v.data = &cache[0][0][0][1][0];
    args.out = ra_tensor_packed(out[0]);
    if (status == RA_OK) status = ra_attend(plan, &args);

    args.q = ra_const_tensor_packed(queries);
    args.k = ra_const_tensor_packed(k);
    args.v = ra_const_tensor_packed(v);
    args.out = ra_tensor_packed(out[1]);
    if (status == RA_OK) status = ra_attend(plan, &args);

    int same = !memcmp(out[0], out[1], sizeof out[0]);
    if (status != RA_OK) fprintf(stderr, "strided: %s\n", ra_last_error());
    else
        printf("%d of %d cached tokens in place: %s bits as packed\n", FILLED, CAPACITY,
               same ? "the same" : "OTHER");
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    ra_pattern_destroy(pattern);
    return status != RA_OK || !same;
}
