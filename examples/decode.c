/* SPDX-License-Identifier: Apache-2.0 */
/* decode.c - token by token against a cache of keys and values that no rank has as a whole. Four
 * ranks share the cache in blocks of 16 positions, in rotation. For each new token the rank that
 * owns its block appends the key and value; then every rank folds its blocks into a running
 * softmax, ra_state_reduce() merges these, and all ranks have the same result. Only the state of
 * the query is sent, never the cache. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <ringattn.h>

enum { RANKS = 4, TOKENS = 1000, BLOCK = 16, HEADS = 4, KV_HEADS = 2, DIM = 32 };
enum { Q_ROW = HEADS * DIM, K_ROW = KV_HEADS * DIM, MINE = TOKENS / RANKS + BLOCK };

/* The key, value and query of token t; here, sine waves. */
static float q_at(int t, int i) { return 4.0f * sinf(0.7f * (float)t + 1.1f * (float)i); }
static float k_at(int t, int i) { return cosf(0.3f * (float)t * (float)(i % 7) + (float)i); }
static float v_at(int t, int i) { return sinf(0.01f * (float)t + (float)i); }

/* The cache of one rank: one block after the other. */
struct cache {
    float k[MINE * K_ROW], v[MINE * K_ROW];
    int keys;
};
static struct cache caches[RANKS];
static float results[RANKS][TOKENS][Q_ROW];

static void append(struct cache *cache, int t)
{
    for (int i = 0; i < K_ROW; i++) cache->k[cache->keys * K_ROW + i] = k_at(t, i);
    for (int i = 0; i < K_ROW; i++) cache->v[cache->keys * K_ROW + i] = v_at(t, i);
    cache->keys++;
}

/* Block b of this rank holds positions from (b RANKS + rank) BLOCK on. */
static ra_status fold(ra_state *state, const ra_const_tensor *q, struct cache *cache, int rank)
{
    ra_status status = RA_OK;
    for (int row = 0; row < cache->keys && status == RA_OK; row += BLOCK) {
        int keys = cache->keys - row < BLOCK ? cache->keys - row : BLOCK;
        ra_const_tensor k = ra_const_tensor_packed(cache->k + row * K_ROW);
        ra_const_tensor v = ra_const_tensor_packed(cache->v + row * K_ROW);
        status = ra_state_fold(state, q, &k, &v, (row / BLOCK * RANKS + rank) * BLOCK, keys);
    }
    return status;
}

/* One token on one rank. The query is at the last position, so it sees all keys. */
static ra_status decode(ra_state *state, ra_group *group, int t)
{
    int rank = ra_group_rank(group);
    float query[Q_ROW];
    ra_const_tensor q = ra_const_tensor_packed(query);
    ra_tensor out = ra_tensor_packed(results[rank][t]);
    for (int i = 0; i < Q_ROW; i++) query[i] = q_at(t, i);
    if (t / BLOCK % RANKS == rank) append(&caches[rank], t);
    ra_status status = ra_state_init(state);
    if (status == RA_OK) status = ra_state_set_keys(state, t + 1);
    if (status == RA_OK) status = fold(state, &q, &caches[rank], rank);
    if (status == RA_OK) status = ra_state_reduce(state, group);
    return status == RA_OK ? ra_state_finish(state, &out, NULL) : status;
}

static ra_status rank_main(ra_group *group, void *context)
{
    (void)context;
    ra_problem problem = ra_problem_default();
    problem.q_len = 1, problem.k_len = 1;
    problem.q_heads = HEADS, problem.kv_heads = KV_HEADS, problem.dim = DIM;
    ra_state *state = NULL;
    ra_status status = ra_state_create(&problem, NULL, &state);
    for (int t = 0; t < TOKENS && status == RA_OK; t++) status = decode(state, group, t);
    ra_state_destroy(state);
    return status;
}

/* The same for one token and head, in plain double loops; returns the largest difference. */
static double check(int t, int head)
{
    int kv = head * KV_HEADS / HEADS * DIM, first = head * DIM;
    double weight[TOKENS], most = -INFINITY, sum = 0, worst = 0;
    for (int j = 0; j <= t; j++) {
        weight[j] = 0;
        for (int d = 0; d < DIM; d++)
            weight[j] += (double)q_at(t, first + d) * (double)k_at(j, kv + d) / sqrt(DIM);
        most = fmax(most, weight[j]);
    }
    for (int j = 0; j <= t; j++) sum += weight[j] = exp(weight[j] - most);
    for (int d = 0; d < DIM; d++) {
        double want = 0;
        for (int j = 0; j <= t; j++) want += weight[j] / sum * (double)v_at(j, kv + d);
        worst = fmax(worst, fabs(want - (double)results[0][t][first + d]));
    }
    return worst;
}

int main(void)
{
    ra_group *groups[RANKS];
    if (ra_group_create_local(RANKS, NULL, groups) != RA_OK ||
        ra_group_run(groups, RANKS, rank_main, NULL) != RA_OK) {
        fprintf(stderr, "decode: %s\n", ra_last_error());
        return 1;
    }
    for (int r = 0; r < RANKS; r++) ra_group_destroy(groups[r]);
    int wrong = 0;
    for (int r = 0; r < RANKS; r++) {
        wrong |= memcmp(results[r], results[0], sizeof results[0]) != 0;
        printf("rank %d: %d of %d keys\n", r, caches[r].keys, TOKENS);
    }
    for (int t = TOKENS - 4; t < TOKENS; t++) {
        double worst = 0;
        for (int head = 0; head < HEADS; head++) worst = fmax(worst, check(t, head));
        printf("token %3d: largest difference %.1e\n", t, worst);
        wrong |= !(worst < 1e-5);
    }
    return wrong;
}
