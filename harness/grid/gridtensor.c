/* SPDX-License-Identifier: Apache-2.0 */
/* gridtensor.c - groups of the conformance grid for a device that has kernels for some head dims
 * only: head dims of models, in 16 bits, as its kernels for tensor cores take them. The kernel that
 * takes every problem runs in the other groups. */
#include "gridlist.h"

#include <string.h>

enum { DIMS = 3 };
static const int dims[DIMS] = { 64, 128, 256 };
static const char *const halves[] = { "bf16", "f16" };

static void add_patterns(struct grid_lists *lists)
{
    static const char *const patterns[] = { "full",
                                            "causal",
                                            "window:70",
                                            "full;docs=0,90,91,200,300",
                                            "blocks:32;local=1",
                                            "blocks:16;local=1;global=1;causal",
                                            "dilated:64/1,128/2,256/4",
                                            "prefix:60" };
    for (int p = 0; p < COUNT(patterns); p++)
        for (int d = 0; d < DIMS; d++)
            for (int back = 0; back < 2; back++) {
                const int turn = lists->turn++;
                grid_add(lists, "tensor cores", "%s n=300 h=4/%d d=%d %s ring=%d %s%s kernel=auto",
                         patterns[p], turn % 3 ? 4 : 2, dims[d], halves[turn % 2 ? 0 : 1],
                         1 + turn % 4, lists->partitions.name[turn % lists->partitions.count],
                         back ? " backward" : "");
            }
}

static void add_strategies(struct grid_lists *lists)
{
    for (int s = 0; s < lists->strategies.count; s++)
        for (int d = 0; d < DIMS; d++)
            grid_add(lists, "tensor cores",
                     "%s n=300 h=4/%d d=%d bf16 ring=%d %s backward kernel=auto",
                     d % 2 ? "full" : "causal", d % 2 ? 2 : 4, dims[d], d % 2 ? 4 : 2,
                     lists->strategies.name[s]);
}

/* More tiles than a GPU has SMs, so that its kernels go from one to the next: tiles of few blocks,
 * the last one of a head not full, some without a query. */
static void add_many_tiles(struct grid_lists *lists)
{
    static const char *const cases[] = {
        "window:64 n=1024 h=32 d=64 b=2 bf16 backward",
        "window:64 n=1024 h=32 d=64 b=2 bf16 backward any-order",
        "window:100 n=256 nk=700 h=32 d=64 b=3 bf16 backward",
        "blocks:64;local=1 n=1000 h=32/16 d=64 b=2 f16 backward",
        "causal n=300 h=32 d=64 b=4 f16 backward any-order",
        "full;docs=0,128,384,500,1000 n=1000 h=32 d=64 bf16 ring=2 backward",
        "window:64 n=1024 h=16 d=128 b=2 bf16 backward",
    };
    for (int i = 0; i < COUNT(cases); i++)
        grid_add(lists, "many tiles", "%s kernel=auto", cases[i]);
}

/* Scores of +-200, and blocks of keys whose scores are 200 or 400 apart: weights overflow between
 * blocks of one rank, and between hops. With fewer tokens for each of 8 ranks their tiles would be
 * mostly empty, which kernels for large tiles leave to others. */
static void add_large_scores(struct grid_lists *lists)
{
    static const char *const sizes[] = { "amp=200", "gap=200", "amp=50 gap=400" };
    for (int a = 0; a < COUNT(sizes); a++)
        for (int d = 0; d < DIMS; d++)
            for (int t = 0; t < COUNT(halves); t++)
                for (int back = 0; back < 2; back++) {
                    const bool ring = (a + d + t) % 2;
                    grid_add(lists, "steep scores", "%s n=%d h=%s d=%d %s%s%s %s kernel=auto",
                             (a + t) % 2 ? "full" : "causal", ring ? 1400 : 400, ring ? "1" : "2",
                             dims[d], halves[t], ring ? " ring=8 zigzag" : "",
                             back ? " backward" : "", sizes[a]);
                }
}

/* Blocks that pass through buffers: states and sums go from step to step of one rank. */
static void add_streams(struct grid_lists *lists)
{
    static const char *const patterns[] = { "full", "causal", "window:200", "dilated:256/1,512/2" };
    for (int p = 0; p < COUNT(patterns); p++)
        for (int d = 0; d < DIMS; d++)
            grid_add(lists, "streams", "%s n=1000 h=2 d=%d %s stream:256%s kernel=auto",
                     patterns[p], dims[d], halves[(p + d) % 2], d < 2 ? " backward" : "");
}

void grid_add_tensor(struct grid_lists *lists)
{
    static void (*const groups[])(struct grid_lists *) = {
        add_patterns, add_strategies, add_many_tiles, add_large_scores, add_streams,
    };
    if (strcmp(lists->kernels.name[lists->kernels.count - 1], "auto")) return;
    for (int i = 0; i < COUNT(groups); i++) groups[i](lists);
}
