/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c - the caller's own threads as ranks. Each of four has a quarter of a causal sequence,
 * in zigzag order so that all have the same work, and together they get the result of one rank. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <ringattn.h>

enum { RANKS = 4, TOKENS = 1021, HEADS = 2, DIM = 32, ROW = HEADS * DIM };

static float q[TOKENS * ROW], k[TOKENS * ROW], v[TOKENS * ROW];
static float ring[TOKENS * ROW], single[TOKENS * ROW];
static float shards[4][TOKENS * ROW]; /* q, k, v and the result, one rank after the other */

struct rank {
    pthread_t thread;
    ra_group *group;
    int64_t first; /* element of `shards` where its shard begins */
    int failed;
};

/* What every rank does: the plan for its part, then attention over its shard. */
static ra_status attend(struct rank *rank, const ra_pattern *pattern, ra_plan **plan)
{
    ra_problem problem = ra_problem_default();
    problem.pattern = pattern;
    problem.q_len = TOKENS;
    problem.q_heads = HEADS, problem.dim = DIM;
    ra_plan_options options = ra_plan_options_default();
    options.partition = "zigzag";
    ra_status status = ra_plan_create(rank->group, &problem, &options, plan);
    if (status != RA_OK) return status;

    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(shards[0] + rank->first);
    args.k = ra_const_tensor_packed(shards[1] + rank->first);
    args.v = ra_const_tensor_packed(shards[2] + rank->first);
    args.out = ra_tensor_packed(shards[3] + rank->first);
    return ra_attend(*plan, &args);
}

static void *rank_main(void *context)
{
    struct rank *rank = context;
    ra_pattern *pattern = NULL;
    ra_plan *plan = NULL;
    ra_stats stats = ra_stats_default();
    rank->failed = ra_pattern_causal(&pattern) != RA_OK || attend(rank, pattern, &plan) != RA_OK ||
                   ra_plan_stats(plan, &stats) != RA_OK;
    if (rank->failed) { /* the others must not wait for this rank */
        fprintf(stderr, "threads: rank %d: %s\n", ra_group_rank(rank->group), ra_last_error());
        ra_group_abort(rank->group, "a rank of the example failed");
    } else {
        printf("rank %d of %d: %4lld queries, %6lld pairs, %7lld bytes sent\n",
               ra_group_rank(rank->group), ra_group_ranks(rank->group),
               (long long)ra_plan_q_count(plan), (long long)stats.pairs,
               (long long)stats.bytes_sent);
    }
    ra_plan_destroy(plan);
    ra_pattern_destroy(pattern);
    return NULL;
}

/* Attention with so many ranks; the result lands in `out`, in the order of the sequence. */
static int run(int ranks, float *out)
{
    struct rank rank[RANKS];
    ra_group *groups[RANKS];
    ra_layout *layout;
    const size_t bytes = ROW * sizeof(float);
    ra_array cut[3] = { { q, shards[0], 1, bytes },
                        { k, shards[1], 1, bytes },
                        { v, shards[2], 1, bytes } };
    ra_array back = { shards[3], out, 1, bytes };
    if (ra_group_create_local(ranks, NULL, groups) != RA_OK) return 1;
    if (ra_layout_create("zigzag", TOKENS, ranks, NULL, &layout) != RA_OK) return 1;
    int failed = ra_layout_permute(layout, cut, 3) != RA_OK;
    for (int64_t r = 0, first = 0; r < ranks; first += ra_layout_count(layout, (int)r++) * ROW) {
        rank[r] = (struct rank){ .group = groups[r], .first = first };
        if (pthread_create(&rank[r].thread, NULL, rank_main, &rank[r])) abort();
    }
    for (int r = 0; r < ranks; r++) failed |= pthread_join(rank[r].thread, NULL) || rank[r].failed;
    failed |= ra_layout_restore(layout, &back, 1) != RA_OK;
    for (int r = 0; r < ranks; r++) ra_group_destroy(groups[r]);
    ra_layout_destroy(layout);
    return failed;
}

int main(void)
{
    for (int i = 0; i < TOKENS * ROW; i++)
        q[i] = sinf(0.37f * (float)i), k[i] = cosf(1.7f * (float)i), v[i] = sinf((float)i);
    if (run(1, single) || run(RANKS, ring)) return 1;
    float worst = fabsf(single[1] - v[1]); /* the first token sees only itself */
    for (int i = 0; i < TOKENS * ROW; i++) worst = fmaxf(worst, fabsf(ring[i] - single[i]));
    printf("%d ranks against one: largest difference %.1e\n", RANKS, (double)worst);
    return !(worst < 1e-5f);
}
