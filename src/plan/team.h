/* SPDX-License-Identifier: Apache-2.0 */
/* team.h - neighbouring ranks that exchange heads: each gets a slice of the heads, for the
 * positions of all of them. For the rest of the plan a team is then one rank that owns all these
 * positions, and each member solves a problem of its own with fewer heads. */
#ifndef RA__PLAN_TEAM_H
#define RA__PLAN_TEAM_H

#include "plan/layout.h"

/* Heads of one member. If there are fewer KV heads than members, several members have the same one,
 * and its query heads are divided among them. No heads at all: there are fewer query heads than
 * members. */
struct ra__heads {
    int q_first, q_heads;
    int kv_first, kv_heads;
};

/* The heads of member `member` of `size`. */
struct ra__heads ra__heads_of(const struct ra__shape *shape, int size, int member);

/* Consecutive tokens of a member's shard, and where they are in the joint shard of its team. */
struct ra__team_run {
    int64_t member_token, team_token, count;
};

/* The positions of all members: one side, queries or keys. */
struct ra__team_layout {
    /* Each team as one rank; NULL if the size is 1. No rank owns a position if this member has no
     * heads. */
    ra_layout *layout;
    struct ra__team_run *runs; /* of this team, one member after the other */
    int *first;                /* [size + 1] */
};

struct ra__team {
    int size, member;
    int first; /* its first rank */
    struct ra__heads slice;
    bool shared; /* some KV head is in the slices of several members */
    struct ra__team_layout q, k;
};

/* The members of `rank`'s team, and where their tokens go. Memory is charged to `account`. */
struct ra__team_input {
    const struct ra__shape *shape;
    const ra_layout *q_layout, *k_layout;
    int size, rank;
};
ra_status ra__team_make(const struct ra__team_input *input, struct ra__account *account,
                        struct ra__team *team);
void ra__team_clear(struct ra__team *team); /* accepts a zeroed or half-made one */

#endif
