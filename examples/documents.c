/* SPDX-License-Identifier: Apache-2.0 */
/* documents.c - several documents packed into one sequence, over three ranks.
 *
 * A query sees its own document only, and none of it after itself. So every document must get what
 * it would get alone. Keys of other documents are neither computed nor sent. ";perdoc" splits every
 * document among the ranks, so that all have about the same work. */
#include <math.h>
#include <stdio.h>

#include <ringattn.h>

enum { RANKS = 3, DOCUMENTS = 4, TOKENS = 500, HEADS = 2, DIM = 32, ROW = HEADS * DIM };

static const int64_t bounds[DOCUMENTS + 1] = { 0, 120, 121, 380, TOKENS };
static float q[TOKENS * ROW], k[TOKENS * ROW], v[TOKENS * ROW];
static float packed[TOKENS * ROW], alone[TOKENS * ROW];

static ra_status make_pattern(ra_pattern **out)
{
    ra_status status = ra_pattern_causal(out);
    if (status != RA_OK) return status;
    status = ra_pattern_set_documents(*out, bounds, DOCUMENTS + 1);
    if (status != RA_OK) ra_pattern_destroy(*out);
    return status;
}

/* Takes the shard of this rank from the whole arrays, and gives its part of the result back. */
static ra_status attend(ra_plan *plan, const ra_layout *layout, int rank)
{
    static float shards[RANKS][4][TOKENS * ROW];
    float(*mine)[TOKENS * ROW] = shards[rank];
    const size_t bytes = ROW * sizeof(float);
    ra_array in[3] = { { q, mine[0], 1, bytes },
                       { k, mine[1], 1, bytes },
                       { v, mine[2], 1, bytes } };
    ra_array back = { mine[3], packed, 1, bytes };
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(mine[0]);
    args.k = ra_const_tensor_packed(mine[1]);
    args.v = ra_const_tensor_packed(mine[2]);
    args.out = ra_tensor_packed(mine[3]);
    ra_status status = ra_layout_take(layout, rank, in, 3);
    if (status == RA_OK) status = ra_attend(plan, &args);
    return status == RA_OK ? ra_layout_give(layout, rank, &back, 1) : status;
}

static ra_status rank_main(ra_group *group, void *context)
{
    const char *partition = context;
    ra_pattern *pattern;
    ra_plan *plan = NULL;
    ra_layout *layout = NULL;
    ra_stats stats = ra_stats_default();
    ra_status status = make_pattern(&pattern);
    if (status != RA_OK) return status;
    ra_problem problem = ra_problem_default();
    problem.pattern = pattern;
    problem.q_len = TOKENS;
    problem.q_heads = HEADS;
    problem.dim = DIM;
    ra_plan_options options = ra_plan_options_default();
    options.partition = partition;
    status = ra_plan_create(group, &problem, &options, &plan);
    if (status == RA_OK) status = ra_layout_create(partition, TOKENS, RANKS, pattern, &layout);
    if (status == RA_OK) status = attend(plan, layout, ra_group_rank(group));
    if (status == RA_OK) status = ra_plan_stats(plan, &stats);
    if (status == RA_OK)
        printf("rank %d: %3lld tokens, %5lld pairs, %6lld bytes sent\n", ra_group_rank(group),
               (long long)ra_plan_q_count(plan), (long long)stats.pairs,
               (long long)stats.bytes_sent);
    ra_layout_destroy(layout);
    ra_plan_destroy(plan);
    ra_pattern_destroy(pattern);
    return status;
}

/* Every document by itself. */
static ra_status attend_alone(void)
{
    ra_pattern *causal;
    ra_status status = ra_pattern_causal(&causal);
    for (int i = 0; i < DOCUMENTS && status == RA_OK; i++) {
        int64_t at = bounds[i] * ROW;
        ra_problem problem = ra_problem_default();
        problem.pattern = causal;
        problem.q_len = bounds[i + 1] - bounds[i];
        problem.q_heads = HEADS;
        problem.dim = DIM;
        status = ra_attention(&problem, q + at, k + at, v + at, alone + at, NULL);
        if (i == DOCUMENTS - 1 || status != RA_OK) ra_pattern_destroy(causal);
    }
    return status;
}

int main(void)
{
    static char partition[] = "zigzag;perdoc";
    ra_group *groups[RANKS] = { NULL };
    for (int i = 0; i < TOKENS * ROW; i++)
        q[i] = sinf(0.37f * (float)i), k[i] = cosf(1.7f * (float)i), v[i] = sinf((float)i);
    ra_status status = ra_group_create_local(RANKS, NULL, groups);
    if (status == RA_OK) status = ra_group_run(groups, RANKS, rank_main, partition);
    if (status == RA_OK) status = attend_alone();
    for (int i = 0; i < RANKS; i++) ra_group_destroy(groups[i]);
    if (status != RA_OK) {
        fprintf(stderr, "documents: %s\n", ra_last_error());
        return 1;
    }
    float worst = 0.0f;
    for (int i = 0; i < TOKENS * ROW; i++) worst = fmaxf(worst, fabsf(packed[i] - alone[i]));
    printf("%d documents packed, and each alone: largest difference %.1e\n", DOCUMENTS,
           (double)worst);
    return !(worst < 1e-5f);
}
