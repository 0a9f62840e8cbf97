/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - in which order clusters add to a block of dq, so that every run gives the same bits.
 *
 * Clusters are simulated: each goes through its queue at one block of queries per tick. Adds to a
 * block of dq are ordered by tick, then by cluster. A cluster's own ticks ascend, so no cycle of
 * clusters that wait for one another can arise as long as all of them run at the same time; and
 * where all are equally fast, nobody waits long. One number per add: (queries / block) x (keys /
 * 128) per head. */
#include <stdlib.h>

#include "backend/cuda/sm90/sm90.h"

/* Where a cluster is. */
struct walker {
    int item, end; /* in the schedule */
    int walk;      /* over the item's runs */
    int run;       /* of the item */
    int block;     /* block of queries of that run */
    int64_t tick;
};

static int first_query_block(const struct ra__sm90_order_input *in, const struct ra__sm90_run *run)
{
    return ra__sm90_row_of(run, in->views) / in->block_queries;
}
static int last_query_block(const struct ra__sm90_order_input *in, const struct ra__sm90_run *run)
{
    return (ra__sm90_row_of(run, in->views) + run->count - 1) / in->block_queries;
}

static int walks_of(const struct ra__sm90_order_input *in) { return in->walks > 1 ? in->walks : 1; }

/* On to the item's first block that exists, from `walker->item` on. */
static void enter(const struct ra__sm90_order_input *in, struct walker *walker)
{
    const struct ra__sm90_schedule *schedule = in->schedule;
    while (walker->item < walker->end && schedule->items[walker->item].run_count == 0)
        walker->item++, walker->tick += in->item_cost;
    if (walker->item == walker->end) return;
    walker->tick += in->item_cost;
    walker->walk = 0;
    walker->run = schedule->items[walker->item].first_run;
    walker->block = first_query_block(in, &schedule->runs[walker->run]);
}

static void advance(const struct ra__sm90_order_input *in, struct walker *walker)
{
    const struct ra__sm90_item *item = &in->schedule->items[walker->item];
    walker->tick++;
    if (++walker->block <= last_query_block(in, &in->schedule->runs[walker->run])) return;
    if (++walker->run == item->first_run + item->run_count && ++walker->walk < walks_of(in))
        walker->run = item->first_run;
    if (walker->run < item->first_run + item->run_count) {
        walker->block = first_query_block(in, &in->schedule->runs[walker->run]);
        return;
    }
    walker->item++;
    enter(in, walker);
}

static int64_t count_adds(const struct ra__sm90_order_input *in, int cluster)
{
    const struct ra__sm90_schedule *schedule = in->schedule;
    int64_t count = 0;
    for (int i = schedule->queues[cluster]; i < schedule->queues[cluster + 1]; i++)
        for (int r = 0; r < schedule->items[i].run_count; r++) {
            const struct ra__sm90_run *run = &schedule->runs[schedule->items[i].first_run + r];
            count += last_query_block(in, run) - first_query_block(in, run) + 1;
        }
    return count * walks_of(in);
}

int64_t ra__sm90_order_adds(const struct ra__sm90_order_input *in)
{
    int64_t count = 0;
    for (int w = 0; w < in->schedule->clusters; w++) count += count_adds(in, w);
    return count;
}

/* Which block of dq, counted over all heads, a walker adds to. */
static int64_t target(const struct ra__sm90_order_input *in, const struct walker *walker)
{
    const struct ra__sm90_item *item = &in->schedule->items[walker->item];
    const int64_t blocks = in->padded_rows / in->block_queries;
    return ((int64_t)item->batch * in->heads + item->head) * blocks + walker->block;
}

/* Tick by tick; `at` is where each cluster's ranks go. */
static void walk(const struct ra__sm90_order_input *in, struct walker *walkers, int64_t *at,
                 int32_t *counts, struct ra__sm90_order *out)
{
    const int clusters = in->schedule->clusters;
    int64_t left = out->starts[clusters];
    for (int64_t tick = 0; left > 0; tick++)
        for (int w = 0; w < clusters; w++) {
            struct walker *walker = &walkers[w];
            if (walker->item == walker->end || walker->tick != tick) continue;
            out->ranks[at[w]++] = counts[target(in, walker)]++;
            advance(in, walker);
            left--;
        }
}

static int has_all(const int32_t *counts, int64_t blocks)
{
    for (int64_t i = 0; i < blocks; i++)
        if (counts[i] == 0) return 0;
    return 1;
}

int ra__sm90_order(const struct ra__sm90_order_input *in, struct ra__sm90_order *out)
{
    const int clusters = in->schedule->clusters;
    const int64_t blocks = (int64_t)in->batch * in->heads * (in->padded_rows / in->block_queries);
    struct walker *walkers = calloc((size_t)clusters, sizeof *walkers);
    int64_t *at = calloc((size_t)clusters, sizeof *at);
    int32_t *counts = calloc((size_t)blocks + 1, sizeof *counts);
    *out = (struct ra__sm90_order){ .starts = calloc((size_t)clusters + 1, sizeof *out->starts) };
    int status = walkers && at && counts && out->starts ? 0 : -1;
    if (status == 0) {
        for (int w = 0; w < clusters; w++) {
            at[w] = out->starts[w];
            out->starts[w + 1] = out->starts[w] + count_adds(in, w);
            walkers[w] = (struct walker){ .item = in->schedule->queues[w],
                                          .end = in->schedule->queues[w + 1] };
            enter(in, &walkers[w]);
        }
        out->ranks = malloc((size_t)(out->starts[clusters] + 1) * sizeof *out->ranks);
        if (out->ranks) walk(in, walkers, at, counts, out);
        else status = -1;
        out->complete = has_all(counts, blocks);
    }
    free(walkers);
    free(at);
    free(counts);
    if (status != 0) ra__sm90_order_clear(out);
    return status;
}

void ra__sm90_order_clear(struct ra__sm90_order *order)
{
    free(order->ranks);
    free(order->starts);
    *order = (struct ra__sm90_order){ 0 };
}
