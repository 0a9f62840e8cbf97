/* problems.c - prints problems for `ringattn verify` over processes, one a line, walking the library's
 * lists: every sample of a pattern x strategy x partition.
 *
 *     usage: problems RANKS STEP        every STEP-th of them, from the RANKS-th on
 *
 * Dtypes, orders, sizes and directions take turns, so that a walk over several rank counts meets them
 * all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ringattn.h"

static const char *const turns[] = {
    "n=67 h=4/2 d=16 backward", "n=41 h=2 d=24 dv=8 bf16 b=2",   "n=128 h=6/3 d=8 f16 backward",
    "n=5 h=2 d=16 backward",    "n=67 h=4/1 d=16 bf16 backward",
};

static void print(int index, int ranks, const char *sample, const char *strategy,
                  const char *partition)
{
    const char *turn = turns[index % (int)(sizeof turns / sizeof turns[0])];
    printf("%s %s ring=%d %s %s mpi threads=1 seed=%d\n", sample, turn, ranks, strategy, partition,
           index);
}

/* All strategies x partitions of one sample. */
static int print_sample(int index, int ranks, int step, const char *sample)
{
    ra_part strategy = ra_part_default(), partition = ra_part_default();
    for (int s = 0; ra_part_at("strategy", s, &strategy) == RA_OK; s++)
        for (int p = 0; ra_part_at("partition", p, &partition) == RA_OK; p++, index++)
            if (strategy.usable && partition.usable && (index + ranks) % step == 0)
                print(index, ranks, sample, strategy.name, partition.name);
    return index;
}

int main(int argc, char **argv)
{
    ra_part pattern = ra_part_default();
    int index = 0, ranks = argc > 1 ? atoi(argv[1]) : 0, step = argc > 2 ? atoi(argv[2]) : 0;
    if (ranks < 1 || step < 1) return 2;
    for (int i = 0; ra_part_at("pattern", i, &pattern) == RA_OK; i++) {
        char samples[1024];
        snprintf(samples, sizeof samples, "%s", pattern.samples);
        for (char *at = strtok(samples, " "); at; at = strtok(NULL, " "))
            index = print_sample(index, ranks, step, at);
    }
    return 0;
}
