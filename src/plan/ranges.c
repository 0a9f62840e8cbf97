/* SPDX-License-Identifier: Apache-2.0 */
/* ranges.c - small sets of tokens. */
#include "plan/plan.h"

#include <string.h>

static void remove_at(struct ra__ranges *ranges, int i)
{
    ranges->count--;
    memmove(&ranges->at[i], &ranges->at[i + 1], (size_t)(ranges->count - i) * sizeof ranges->at[0]);
}

/* Joins the two neighbours with the smallest gap between them. */
static void join_nearest(struct ra__range *at, int *count)
{
    int best = 0;
    for (int i = 1; i + 1 < *count; i++)
        if (at[i + 1].lo - at[i].hi < at[best + 1].lo - at[best].hi) best = i;
    at[best].hi = at[best + 1].hi;
    (*count)--;
    memmove(&at[best + 1], &at[best + 2], (size_t)(*count - best - 1) * sizeof at[0]);
}

void ra__ranges_add(struct ra__ranges *ranges, int64_t lo, int64_t hi)
{
    if (lo >= hi) return;
    int i = 0;
    while (i < ranges->count && ranges->at[i].hi < lo) i++;
    if (i < ranges->count && ranges->at[i].lo <= lo && ranges->at[i].hi >= hi) return;
    while (i < ranges->count && ranges->at[i].lo <= hi) { /* touches the new one: swallow it */
        lo = ra__min(lo, ranges->at[i].lo);
        hi = ra__max(hi, ranges->at[i].hi);
        remove_at(ranges, i);
    }
    struct ra__range all[RA__RANGES + 1];
    int count = ranges->count + 1;
    memcpy(all, ranges->at, (size_t)i * sizeof all[0]);
    all[i] = (struct ra__range){ lo, hi };
    memcpy(&all[i + 1], &ranges->at[i], (size_t)(ranges->count - i) * sizeof all[0]);
    if (count > RA__RANGES) join_nearest(all, &count);
    memcpy(ranges->at, all, (size_t)count * sizeof all[0]);
    ranges->count = count;
}
