/* SPDX-License-Identifier: Apache-2.0 */
/* turns.c - how long clusters wait for their turns at dq, by simulation: deterministic gradients of
 * one pattern, full or causal, with the schedule and the order that the library makes. A change of
 * either can so be tried without a GPU. What it predicts is compared with measurements in
 * docs/GPU.md.
 *
 *     turns [NAME=VALUE ...]    names and defaults are below; time is counted in blocks of queries
 *
 * A cluster takes `start` for each item, 1 and some `noise` for each block, and `mask` more for the
 * first block under causal. dq of a block is staged when the block is done, if the buffer is free;
 * it leaves the buffer `read` after its turn has come, and the next turn at that block of dq comes
 * `add` after. Exit status 1 where clusters wait for one another for ever. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/sm90/sm90.h"

static struct {
    double n, heads, queries, causal, clusters, section, spread, split, rotate;
    double item_cost; /* that the schedule and the order assume */
    double any_order; /* nobody waits */
    double start, mask, add, read, noise;
} set = { .n = 16384,
          .heads = 16,
          .queries = 80,
          .causal = 1,
          .clusters = 132,
          .section = 4,
          .spread = 1,
          .split = 1,
          .rotate = 1,
          .item_cost = 2,
          .start = 2,
          .mask = 0.5,
          .add = 0.68,
          .read = 0.3,
          .noise = 0.1 };

static const struct {
    const char *name;
    double *value;
} names[] = {
    { "n", &set.n },
    { "heads", &set.heads },
    { "queries", &set.queries },
    { "causal", &set.causal },
    { "clusters", &set.clusters },
    { "section", &set.section },
    { "spread", &set.spread },
    { "split", &set.split },
    { "rotate", &set.rotate },
    { "item_cost", &set.item_cost },
    { "any_order", &set.any_order },
    { "start", &set.start },
    { "mask", &set.mask },
    { "add", &set.add },
    { "read", &set.read },
    { "noise", &set.noise },
};
enum { NAMES = sizeof names / sizeof *names };

/* Where a cluster is. */
struct cluster {
    int item, end; /* in the schedule */
    int run, block;
    int64_t add; /* in the order */
    int fresh;   /* the next block is the first of its item */
    double time, staging_free, adder_free, waited;
};

struct simulation {
    struct ra__sm90_schedule schedule;
    struct ra__sm90_order order;
    struct cluster *clusters;
    int blocks;     /* of dq, of a head */
    int32_t *added; /* to each block of dq */
    double *turn;   /* when the next one comes */
};

/* 0 to 1, the same in every run. */
static double random_number(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) / 0x1p53;
}

/* Half of a normal distribution. */
static double delay(void)
{
    const double u = 1.0 - random_number(), v = random_number();
    return set.noise * fabs(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

static int make_schedule(struct simulation *s)
{
    const int heads = (int)set.heads, queries = (int)set.queries;
    struct ra__sm90_rows *rows = calloc((size_t)heads, sizeof *rows);
    struct ra__sm90_run *runs = calloc((size_t)heads, sizeof *runs);
    int status = rows && runs ? 0 : -1;
    for (int h = 0; h < heads && status == 0; h++) {
        rows[h] = (struct ra__sm90_rows){ .head = (uint16_t)h,
                                          .kv_head = (uint16_t)h,
                                          .q_count = (int32_t)set.n,
                                          .first_run = h,
                                          .run_count = 1,
                                          .flags = RA__SM90_FIRST | RA__SM90_LAST };
        runs[h] = (struct ra__sm90_run){ .count = (int32_t)set.n,
                                         .lo = set.causal ? 0 : -RA__SM90_FAR,
                                         .hi = RA__SM90_FAR };
    }
    const struct ra__sm90_schedule_input in = { .rows = rows,
                                                .runs = runs,
                                                .row_count = heads,
                                                .tile_rows = 128,
                                                .block_keys = queries,
                                                .clusters = (int)set.clusters,
                                                .section_heads = (int)set.section,
                                                .item_cost = (int)set.item_cost,
                                                .split = (int)set.split,
                                                .spread = (int)set.spread,
                                                .rotate = (int)set.rotate };
    s->blocks = ((int)set.n + queries - 1) / queries;
    const struct ra__sm90_order_input order = { .schedule = &s->schedule,
                                                .batch = 1,
                                                .heads = heads,
                                                .padded_rows = s->blocks * queries,
                                                .block_queries = queries,
                                                .item_cost = (int)set.item_cost };
    if (status == 0) status = ra__sm90_schedule(&in, &s->schedule);
    if (status == 0) status = ra__sm90_order(&order, &s->order);
    free(rows);
    free(runs);
    return status;
}

/* On to the first block of an item that has one. */
static void enter(const struct simulation *s, struct cluster *c)
{
    while (c->item < c->end && s->schedule.items[c->item].run_count == 0) c->item++;
    if (c->item == c->end) return;
    c->run = s->schedule.items[c->item].first_run;
    c->block = s->schedule.runs[c->run].row / (int)set.queries;
    c->time += set.start;
    c->fresh = 1;
}

static void advance(const struct simulation *s, struct cluster *c)
{
    const struct ra__sm90_item *item = &s->schedule.items[c->item];
    const struct ra__sm90_run *run = &s->schedule.runs[c->run];
    c->fresh = 0;
    if (++c->block <= (run->row + run->count - 1) / (int)set.queries) return;
    if (++c->run < item->first_run + item->run_count) {
        c->block = s->schedule.runs[c->run].row / (int)set.queries;
        return;
    }
    c->item++;
    enter(s, c);
}

/* The next add of a cluster, if those before it at that block are done. */
static int add(struct simulation *s, struct cluster *c)
{
    if (c->item == c->end) return 0;
    const int64_t block = (int64_t)s->schedule.items[c->item].head * s->blocks + c->block;
    if (!set.any_order && s->order.ranks[c->add] != s->added[block]) return 0;
    c->time += 1.0 + delay() + (set.causal && c->fresh ? set.mask : 0.0);
    if (c->staging_free > c->time) {
        c->waited += c->staging_free - c->time;
        c->time = c->staging_free;
    }
    double turn = fmax(c->time, c->adder_free);
    if (!set.any_order) turn = fmax(turn, s->turn[block]);
    c->staging_free = turn + set.read;
    c->adder_free = turn + (set.any_order ? set.read : set.add);
    s->turn[block] = turn + set.add;
    s->added[block]++;
    c->add++;
    advance(s, c);
    return 1;
}

static void simulate(struct simulation *s)
{
    const int clusters = s->schedule.clusters;
    int moved = 1;
    for (int i = 0; i < clusters; i++) {
        s->clusters[i] = (struct cluster){ .item = s->schedule.queues[i],
                                           .end = s->schedule.queues[i + 1],
                                           .add = s->order.starts[i] };
        enter(s, &s->clusters[i]);
    }
    while (moved) {
        moved = 0;
        for (int i = 0; i < clusters; i++)
            while (add(s, &s->clusters[i])) moved = 1;
    }
}

/* Is there no cluster with something left to do? */
static int has_ended(const struct simulation *s)
{
    for (int i = 0; i < s->schedule.clusters; i++)
        if (s->clusters[i].item < s->clusters[i].end) return 0;
    return 1;
}

static void print(const struct simulation *s)
{
    const int clusters = s->schedule.clusters;
    const double blocks = (double)s->order.starts[clusters] / clusters;
    double end = 0.0, waited = 0.0;
    for (int i = 0; i < clusters; i++) {
        end = fmax(end, s->clusters[i].time);
        waited += s->clusters[i].waited / clusters;
    }
    printf(
        "blocks of a cluster %.1f, time %.1f, efficiency %.4f, waited %.1f, items %d, parts %d\n",
        blocks, end, blocks / end, waited, s->schedule.item_count, s->schedule.part_count);
}

static int refuse(const char *text)
{
    fprintf(stderr, "turns: \"%s\" is not NAME=VALUE with a value of 0 or more; names:", text);
    for (int i = 0; i < NAMES; i++) fprintf(stderr, " %s", names[i].name);
    fprintf(stderr, "\n");
    return -1;
}

static int take(const char *text)
{
    const size_t length = strcspn(text, "=");
    char *end;
    for (int i = 0; text[length] && i < NAMES; i++) {
        if (strlen(names[i].name) != length || strncmp(text, names[i].name, length)) continue;
        *names[i].value = strtod(text + length + 1, &end);
        if (end == text + length + 1 || *end || !(*names[i].value >= 0)) break;
        return 0;
    }
    return refuse(text);
}

/* What there must be some of. */
static int check(void)
{
    if (set.n >= 1 && set.heads >= 1 && set.queries >= 1 && set.clusters >= 1) return 0;
    fprintf(stderr, "turns: n, heads, queries and clusters must be at least 1\n");
    return -1;
}

int main(int count, char **arguments)
{
    struct simulation s = { .blocks = 0 };
    for (int i = 1; i < count; i++)
        if (take(arguments[i])) return 2;
    if (check()) return 2;
    int status = make_schedule(&s);
    if (status == 0) {
        const size_t blocks = (size_t)set.heads * (size_t)s.blocks;
        s.clusters = calloc((size_t)s.schedule.clusters, sizeof *s.clusters);
        s.added = calloc(blocks, sizeof *s.added);
        s.turn = calloc(blocks, sizeof *s.turn);
        status = s.clusters && s.added && s.turn ? 0 : -1;
    }
    if (status) {
        fprintf(stderr, "turns: out of memory\n");
    } else {
        simulate(&s);
        status = !has_ended(&s);
        if (status) fprintf(stderr, "turns: clusters wait for one another\n");
        else print(&s);
    }
    free(s.clusters);
    free(s.added);
    free(s.turn);
    ra__sm90_order_clear(&s.order);
    ra__sm90_schedule_clear(&s.schedule);
    return status ? 1 : 0;
}
