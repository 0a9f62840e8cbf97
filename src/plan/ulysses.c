/* SPDX-License-Identifier: Apache-2.0 */
/* ulysses.c - all ranks are one team: an all-to-all gives each a slice of the heads for all
 * positions, attention runs without further messages, and a second all-to-all returns the
 * results. */
#include "plan/builder.h"

static ra_status everybody(const char *args, int ranks, int *size)
{
    (void)args;
    *size = ranks;
    return RA_OK;
}

const struct ra__strategy ra__strategy_ulysses = {
    .name = "ulysses",
    .summary = "ranks exchange heads by all-to-all: each works on some heads, for all positions",
    .team = everybody,
    .forward = ra__ring_forward, /* of one */
    .backward = ra__ring_backward,
};
