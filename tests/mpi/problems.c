/* SPDX-License-Identifier: Apache-2.0 */
/* problems.c - prints problems for `ringattn verify` over processes, one a line, walking the
 * library's lists: every sample of a pattern x strategy x partition.
 *
 *     usage: problems RANKS STEP        every STEP-th of them, from the RANKS-th on
 *
 * Dtypes, orders, sizes and directions rotate, so that a walk over several rank counts meets
 * them all. STEP = 1 leaves nothing out: all of them backward too, every shape of teams, and
 * documents. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ringattn.h"

static const struct turn {
    int tokens;
    const char *rest;
} turns[] = {
    { 67, "h=4/2 d=16" }, { 41, "h=2 d=24 dv=8 f16 b=2" }, { 128, "h=6/3 d=8 bf16" },
    { 5, "h=2 d=16" },    { 67, "h=4/1 d=16 bf16" },
};
enum { TURNS = sizeof turns / sizeof turns[0], FORWARD_TURN = 1 };

/* A walk over the lists. */
struct walk {
    int ranks, step, index;
};

static const struct turn *turn_of(const struct walk *walk) { return &turns[walk->index % TURNS]; }

static void print(struct walk *walk, const char *sample, const char *strategy,
                  const char *partition)
{
    const struct turn *turn = turn_of(walk);
    int index = walk->index++;
    if ((index + walk->ranks) % walk->step) return;
    printf("%s n=%d %s%s ring=%d %s %s mpi threads=1 seed=%d\n", sample, turn->tokens, turn->rest,
           walk->step > 1 && turn == &turns[FORWARD_TURN] ? "" : " backward", walk->ranks, strategy,
           partition, index);
}

/* The sample over three documents, one of them empty, each partitioned for itself. */
static void print_documents(struct walk *walk, const char *sample, const char *strategy,
                            const char *partition)
{
    int tokens = turn_of(walk)->tokens;
    char text[300], each[64];
    ra_pattern *pattern;
    snprintf(text, sizeof text, "%s;docs=0,%d,%d,%d", sample, tokens / 3, tokens / 3, tokens);
    snprintf(each, sizeof each, "%s;perdoc", partition);
    if (ra_pattern_parse(text, &pattern) != RA_OK) return; /* where they make no sense */
    ra_pattern_destroy(pattern);
    print(walk, text, strategy, each);
}

/* One sample and strategy, with all partitions. */
static void print_strategy(struct walk *walk, const char *sample, const char *strategy)
{
    ra_part partition = ra_part_default();
    for (int p = 0; ra_part_at("partition", p, &partition) == RA_OK; p++) {
        if (!partition.usable) continue;
        print(walk, sample, strategy, partition.name);
        if (walk->step == 1) print_documents(walk, sample, strategy, partition.name);
    }
}

/* One sample, with all strategies and, where nothing is left out, all shapes of teams. */
static void print_sample(struct walk *walk, const char *sample)
{
    ra_part strategy = ra_part_default();
    for (int s = 0; ra_part_at("strategy", s, &strategy) == RA_OK; s++) {
        if (!strategy.usable || (walk->ranks > 1 && !strcmp(strategy.name, "stream"))) continue;
        print_strategy(walk, sample, strategy.name);
        for (int team = 2; team < walk->ranks && walk->step == 1; team++) {
            char name[32];
            snprintf(name, sizeof name, "2d:%dx%d", team, walk->ranks / team);
            if (!strcmp(strategy.name, "2d") && walk->ranks % team == 0)
                print_strategy(walk, sample, name);
        }
    }
}

int main(int argc, char **argv)
{
    ra_part pattern = ra_part_default();
    struct walk walk = { argc > 1 ? atoi(argv[1]) : 0, argc > 2 ? atoi(argv[2]) : 0, 0 };
    if (walk.ranks < 1 || walk.step < 1) return 2;
    for (int i = 0; ra_part_at("pattern", i, &pattern) == RA_OK; i++) {
        char samples[1024];
        snprintf(samples, sizeof samples, "%s", pattern.samples);
        for (char *at = strtok(samples, " "); at; at = strtok(NULL, " ")) print_sample(&walk, at);
    }
    return 0;
}
