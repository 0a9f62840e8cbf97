/* SPDX-License-Identifier: Apache-2.0 */
/* census.h - hops, bytes, pairs and FLOPs of every rank of a problem, by brute force over all
 * pairs of positions. */
#ifndef TESTS_SUPPORT_CENSUS_H
#define TESTS_SUPPORT_CENSUS_H

#include "support/ask.h"

enum { CENSUS_MOST_N = 256, CENSUS_MOST_RANKS = 8, CENSUS_MOST_KV_HEADS = 8 };

/* Who needs what, pair by pair and head by head. Keys are counted by index: where an order puts
 * them. In teams, who owns a key is the team, and who reads it the member that has the head. */
struct census {
    struct trial trial;
    int ranks;
    /* ranks that exchange heads, and the number of such teams; 1 and ranks otherwise */
    int team, teams;
    bool ring, straight; /* direct: keys go to their readers, not from neighbour to neighbour */
    int owner[2][CENSUS_MOST_N];         /* of each index; queries, keys */
    int64_t count[2][CENSUS_MOST_RANKS]; /* positions of each rank */
    bool need[CENSUS_MOST_RANKS][CENSUS_MOST_KV_HEADS][CENSUS_MOST_N]; /* [reader][KV head][key] */
    int64_t pairs[CENSUS_MOST_RANKS]; /* over heads, of one batch item */
};

void census_open(struct census *c, const char *problem);
void census_close(struct census *c);

/* Fails with the problem string unless this is what one pass of a rank must count. */
void census_check(const struct census *c, const char *problem, int rank, bool backward,
                  const ra_stats *got);

/* The same for the forecasts of all ranks, forward and backward. */
void census_check_problem(const char *problem);

#endif
