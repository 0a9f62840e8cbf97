/* SPDX-License-Identifier: Apache-2.0 */
/* owners.c - whose blocks hold a key: the runs of all shards by their first positions. Of P blocks
 * a run of keys is mostly in few, and these are found without asking each. */
#include <stdlib.h>

#include "plan/builder.h"

static int compare(const void *a, const void *b)
{
    const struct ra__owner_run *x = a, *y = b;
    int64_t first = x->run->at.start, second = y->run->at.start;
    return (first > second) - (first < second);
}

ra_status ra__find_owners(struct ra__builder *b)
{
    const ra_layout *layout = b->input->k_layout;
    struct ra__owner_run *runs = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING,
                                                 (size_t)layout->run_count, sizeof *runs);
    if (!runs) return ra__fail(RA_ERR_MEMORY, "plan: owners of %d blocks", b->ranks);
    b->owners = runs;
    bool ascend = true; /* they do where a rank has one run */
    for (int owner = 0; owner < b->ranks; owner++)
        for (int64_t i = layout->first[owner]; i < layout->first[owner + 1]; i++) {
            runs[i] = (struct ra__owner_run){ &layout->runs[i], owner, 0 };
            ascend = ascend && (i == 0 || compare(&runs[i - 1], &runs[i]) <= 0);
        }
    if (!ascend) qsort(runs, (size_t)layout->run_count, sizeof *runs, compare);
    for (int64_t i = 0; i < layout->run_count; i++)
        runs[i].max_last = ra__max(ra__run_last(runs[i].run->at), i ? runs[i - 1].max_last : 0);
    return RA_OK;
}

/* The first run that reaches `from`, or one before it does. */
static int64_t find(const struct ra__builder *b, int64_t from)
{
    int64_t low = 0, high = b->input->k_layout->run_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (b->owners[middle].max_last < from) low = middle + 1;
        else high = middle;
    }
    return low;
}

bool ra__next_owner(const struct ra__builder *b, const struct ra__tile *tile, int64_t *cursor,
                    int *owner, struct ra__key_run *keys)
{
    int64_t last = ra__run_last(tile->keys), end = b->input->k_layout->run_count;
    if (*cursor < 0) *cursor = find(b, tile->keys.start);
    while (*cursor < end && b->owners[*cursor].run->at.start <= last) {
        const struct ra__owner_run *at = &b->owners[(*cursor)++];
        *owner = at->owner;
        if (ra__layout_keys_of_run(at->run, tile, keys)) return true;
    }
    return false;
}
