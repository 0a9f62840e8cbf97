/* SPDX-License-Identifier: Apache-2.0 */
/* 2d.c - teams of U neighbouring ranks exchange heads, and R teams form rings: ranks of one machine
 * form a team, machines form the ring. */
#include <inttypes.h>

#include "plan/builder.h"

/* Without numbers: the largest team that is not larger than the ring of teams. */
static int most_square(int ranks)
{
    int best = 1;
    for (int size = 1; size * size <= ranks; size++)
        if (ranks % size == 0) best = size;
    return best;
}

/* Digits up to `end`; false if there is anything else, or too many of them. */
static bool read_number(const char **text, char end, int64_t *out)
{
    enum { TOO_MUCH = 1 << 20 };
    int64_t number = 0;
    const char *at = *text;
    for (; *at >= '0' && *at <= '9' && number < TOO_MUCH; at++) number = number * 10 + (*at - '0');
    if (at == *text || *at != end) return false;
    *text = at + 1;
    *out = number;
    return true;
}

static ra_status team(const char *args, int ranks, int *size)
{
    const char *rest = args;
    int64_t u, r;
    if (!args) {
        *size = most_square(ranks);
        return RA_OK;
    }
    if (!read_number(&rest, 'x', &u) || !read_number(&rest, '\0', &r) || u < 1 || r < 1)
        return ra__fail(RA_ERR_ARGUMENT,
                        "strategy 2d: \"%.40s\" is not UxR, ranks of a team x teams", args);
    if (u * r != ranks)
        return ra__fail(RA_ERR_ARGUMENT,
                        "strategy 2d:%" PRId64 "x%" PRId64 ": that is %" PRId64
                        " ranks, but there are %d; 2d:%dx%d would do",
                        u, r, u * r, ranks, most_square(ranks), ranks / most_square(ranks));
    *size = (int)u;
    return RA_OK;
}

const struct ra__strategy ra__strategy_2d = {
    .name = "2d",
    .summary =
        "2d:UxR: teams of U neighbours exchange heads, R teams form rings; 2d: nearly square",
    .takes_args = true,
    .team = team,
    .forward = ra__ring_forward,
    .backward = ra__ring_backward,
};
