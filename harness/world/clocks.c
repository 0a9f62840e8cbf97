/* SPDX-License-Identifier: Apache-2.0 */
/* clocks.c - how far apart the clocks of the processes of the world are.
 *
 * No process leaves a barrier before all have entered it. So this process entered before the first
 * one left, and left after the first one entered: two bounds on the difference of their clocks.
 * Several barriers narrow them. */
#include "clocks.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/machine.h"
#include "world.h"

enum { MEETINGS = 32 };

/* What a process sends at a barrier: by its own clock, when it entered, and when it left the one
 * before. */
struct visit {
    double came, left_last;
};

/* Bounds on what this clock shows more than the first's. */
struct bounds {
    double low, high;
};

static int meet(struct visit *all, struct bounds *bounds)
{
    double came_last = 0.0, left_last = 0.0, first_came = 0.0;
    for (int i = 0; i <= MEETINGS; i++) {
        struct visit mine = { machine_seconds(), left_last };
        int status = world_share(&mine, all, sizeof mine);
        if (status) return status;
        if (i > 0) { /* now it is known when the first left the meeting before */
            bounds->low = fmax(bounds->low, came_last - all[0].left_last);
            bounds->high = fmin(bounds->high, left_last - first_came);
        }
        came_last = mine.came;
        first_came = all[0].came;
        left_last = machine_seconds();
    }
    return EXIT_PASS;
}

int clocks_compare(struct clocks *out)
{
    struct visit *all = malloc((size_t)world_size() * sizeof *all);
    struct bounds bounds = { -INFINITY, INFINITY };
    if (!all) return fault("out of memory: %d ranks", world_size());
    int status = meet(all, &bounds);
    free(all);
    if (status) return status;
    /* Clocks of two machines count from when these were started: a difference of 0 means one
     * clock. */
    bool same = bounds.low <= 0.0 && bounds.high >= 0.0;
    out->ahead = same ? 0.0 : (bounds.low + bounds.high) / 2;
    out->doubt = same ? 0.0 : (bounds.high - bounds.low) / 2;
    return EXIT_PASS;
}
