/* SPDX-License-Identifier: Apache-2.0 */
/* test_sm90_schedule.c - schedules and orders of random rows for the Hopper kernels, without a GPU.
 * Every pair of a query and a key that the rows see is in exactly one item, every part is merged
 * once, no cluster has much more to do than the others, and the ranks of the adds to a block of dq
 * are 0, 1, 2, ... in an order in which no cluster waits for ever. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/sm90/sm90.h"

enum { QUERIES = 700, KEYS = 900, HEADS = 3, ROUNDS = 300 };

/* What a row of a run is besides its view. */
static int row_in(int row) { return row & RA__SM90_VIEW_ROWS; }

static unsigned char want[HEADS][QUERIES][KEYS], got[HEADS][QUERIES][KEYS];
static int failures;

static int below(int n) { return rand() % n; }

static void expect(int good, const char *what, int round)
{
    if (good) return;
    printf("round %d: %s\n", round, what);
    failures++;
}

/* Counts the pairs of a run for rows [q_row, q_row + q_count), as the kernel would see them. */
static void mark(unsigned char (*pairs)[KEYS], int q_row, int q_count, struct ra__sm90_run run,
                 int flags)
{
    const int stair = flags >> RA__SM90_STAIR_SHIFT & RA__SM90_STAIR_MASK;
    const int run_stair = flags >> RA__SM90_RUN_STAIR_SHIFT & RA__SM90_STAIR_MASK;
    for (int i = 0; i < q_count; i++) {
        const int row = i >> stair << stair;
        for (int j = 0; j < run.count; j++) {
            const int column = j >> run_stair << run_stair;
            if (run.lo + row <= column && column <= run.hi + row)
                pairs[q_row + i][row_in(run.row) + j]++;
        }
    }
}

static struct ra__sm90_run random_run(void)
{
    struct ra__sm90_run run = { .row = below(KEYS - 1), .lo = -RA__SM90_FAR, .hi = RA__SM90_FAR };
    run.count = 1 + below(KEYS - run.row);
    if (below(2)) run.lo = below(600) - 400;
    if (below(2)) run.hi = below(600) - 100;
    return run;
}

/* Rows that cover each head's queries, with up to three runs each. */
static int random_rows(struct ra__sm90_rows *rows, struct ra__sm90_run *runs, bool views)
{
    int count = 0, run_count = 0;
    for (int h = 0; h < HEADS; h++)
        for (int from = 0; from < QUERIES;) {
            const int stair = below(4) ? 0 : 6, run_stair = stair || below(4) ? 0 : 4 + below(3);
            struct ra__sm90_rows *row = &rows[count++];
            *row = (struct ra__sm90_rows){ .head = (uint16_t)h,
                                           .kv_head = (uint16_t)h,
                                           .q_row = from };
            row->q_count = 1 + below(QUERIES - from);
            row->first_run = run_count;
            row->run_count = below(4);
            row->flags = RA__SM90_FIRST | RA__SM90_LAST | stair << RA__SM90_STAIR_SHIFT |
                         run_stair << RA__SM90_RUN_STAIR_SHIFT;
            for (int i = 0; i < row->run_count; i++) {
                runs[run_count] = random_run();
                if (views) runs[run_count].row |= below(RA__SM90_VIEWS) << RA__SM90_RUN_VIEW_SHIFT;
                mark(want[h], from, row->q_count, runs[run_count++], row->flags);
            }
            from += row->q_count;
        }
    return count;
}

static void check_items(const struct ra__sm90_schedule_input *in,
                        const struct ra__sm90_schedule *made, int round)
{
    int parts = 0, whole = 0; /* whole: blocks of rows that may not be split */
    int64_t total = 0, longest = 0;
    for (int w = 0; w < made->clusters; w++) {
        int64_t load = 0;
        for (int i = made->queues[w]; i < made->queues[w + 1]; i++) {
            const struct ra__sm90_item *item = &made->items[i];
            expect(item->q_count <= in->tile_rows, "an item has more rows than a tile", round);
            parts += item->part >= 0;
            if (item->flags >> RA__SM90_RUN_STAIR_SHIFT) whole = 3 * (KEYS / in->block_keys + 1);
            load += in->item_cost;
            for (int r = 0; r < item->run_count; r++) {
                const struct ra__sm90_run run = made->runs[item->first_run + r];
                mark(got[item->head], item->q_row, item->q_count, run, item->flags);
                load += (run.count - 1) / in->block_keys + 1;
            }
        }
        total += load;
        longest = load > longest ? load : longest;
    }
    expect(!memcmp(want, got, sizeof want), "pairs are missing or twice", round);
    int merged = 0;
    for (int i = 0; i < made->merge_count; i++) merged += made->merges[i].part_count;
    expect(parts == made->part_count && merged == parts, "parts and merges differ", round);
    if (in->split)
        expect(longest <= total / made->clusters + 40 + whole, "a cluster is late", round);
}

/* Runs the adds as clusters would: whoever's next add has its turn goes on. */
static void check_order(const struct ra__sm90_schedule *made, int padded, int block, bool views,
                        int round)
{
    struct ra__sm90_order order;
    const int walks = 1 + below(2);
    const struct ra__sm90_order_input in = { made, 1, HEADS, padded, block, 2, walks, views };
    if (ra__sm90_order(&in, &order)) exit(2);
    const int blocks = HEADS * (padded / block);
    int *turn = calloc((size_t)blocks, sizeof *turn);
    int *block_of = malloc((size_t)(order.starts[made->clusters] + 1) * sizeof *block_of);
    int64_t *at = malloc((size_t)made->clusters * sizeof *at);
    if (!turn || !block_of || !at) exit(2);
    for (int w = 0; w < made->clusters; w++) {
        int64_t n = at[w] = order.starts[w];
        for (int i = made->queues[w]; i < made->queues[w + 1]; i++)
            for (int r = 0; r < walks * made->items[i].run_count; r++) {
                const int of_item = r % made->items[i].run_count;
                const struct ra__sm90_run run = made->runs[made->items[i].first_run + of_item];
                const int row = row_in(run.row);
                for (int t = row / block; t <= (row + run.count - 1) / block; t++)
                    block_of[n++] = made->items[i].head * (padded / block) + t;
            }
        expect(n == order.starts[w + 1], "adds of a cluster", round);
    }
    int64_t left = order.starts[made->clusters];
    for (int moved = 1; moved;) {
        moved = 0;
        for (int w = 0; w < made->clusters; w++)
            while (at[w] < order.starts[w + 1] && turn[block_of[at[w]]] == order.ranks[at[w]])
                turn[block_of[at[w]++]]++, left--, moved = 1;
    }
    expect(left == 0 && order.starts[made->clusters] == ra__sm90_order_adds(&in),
           "clusters wait for ever", round);
    int complete = 1;
    for (int i = 0; i < blocks; i++) complete = complete && turn[i] > 0;
    expect(order.complete == complete, "blocks without an add", round);
    free(turn);
    free(block_of);
    free(at);
    ra__sm90_order_clear(&order);
}

int main(void)
{
    static struct ra__sm90_rows rows[HEADS * QUERIES];
    static struct ra__sm90_run runs[HEADS * QUERIES * 3];
    for (int round = 0; round < ROUNDS; round++) {
        srand((unsigned)round);
        memset(want, 0, sizeof want);
        memset(got, 0, sizeof got);
        const int block = 16 * (1 + below(10));
        struct ra__sm90_schedule_input in = { .rows = rows, .runs = runs, .block_keys = block };
        in.views = below(2);
        in.row_count = random_rows(rows, runs, in.views);
        in.tile_rows = 64 * (1 + below(6));
        in.clusters = 1 + below(40);
        in.section_heads = 1 + below(3);
        in.item_cost = below(4);
        in.split = below(2);
        in.spread = below(5);
        in.rotate = below(2);
        struct ra__sm90_schedule made;
        if (ra__sm90_schedule(&in, &made)) exit(2);
        check_items(&in, &made, round);
        check_order(&made, (KEYS / block + 1) * block, block, in.views, round);
        ra__sm90_schedule_clear(&made);
    }
    printf("%d schedules, %d failures\n", ROUNDS, failures);
    return failures != 0;
}
