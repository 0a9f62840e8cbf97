/* SPDX-License-Identifier: Apache-2.0 */
/* ablate.c - the suite `ablate`: what each optimisation of the reports is worth here. A section is
 * an optimisation; its first line is what the others are compared with. */
#include "figures.h"
#include "suite.h"

#define DILATED "dilated:2048/1,4096/2,8192/4"

/* The index cache of the reports. Short rows of many blocks: planning is much of the work. */
static void add_plans(struct configurations *list)
{
    static const char *const problems[][2] = {
        { "blocks", "blocks:64;random=0.05;seed=1;local=1" },
        { "dilated", DILATED },
        { "causal", "causal ring=4 zigzag" },
    };
    const int tokens = suite_tokens(list, list->quick ? 1024 : 4096);
    for (int i = 0; i < COUNT(problems); i++) {
        char name[40];
        snprintf(name, sizeof name, "%s, kept", problems[i][0]);
        suite_add(list, "plan", name, "", "%s n=%d h=8 d=64 %s", problems[i][1], tokens,
                  suite_dtype(list));
        snprintf(name, sizeof name, "%s, made anew", problems[i][0]);
        suite_add(list, "plan", name, "--replan", "%s n=%d h=8 d=64 %s", problems[i][1], tokens,
                  suite_dtype(list));
    }
}

/* Plans that are made anew draw their buffers from the pool, or from the system. */
static void add_pool(struct configurations *list)
{
    static const char *const pools[][2] = {
        { "off", "--replan --pool off" },
        { "all buffers", "--replan --pool 1" },
        { "from 16 MiB", "--replan --pool 16M" },
    };
    for (int i = 0; i < COUNT(pools); i++)
        suite_add(list, "pool", pools[i][0], pools[i][1],
                  "window:512 n=%d h=8 d=64 %s ring=2 backward", list->quick ? 4096 : 65536,
                  suite_dtype(list));
}

static void add_dtypes(struct configurations *list)
{
    static const char *const dtypes[] = { "f32", "bf16", "f16" };
    for (int i = 0; i < COUNT(dtypes); i++)
        suite_add(list, "dtype", dtypes[i], "", "full n=%d h=8 d=64 %s backward",
                  suite_tokens(list, list->quick ? 1024 : 8192), dtypes[i]);
}

static void add_kernels(struct configurations *list)
{
    static const char *const dtypes[] = { "f32", "bf16" };
    ra_part part = ra_part_default();
    for (int d = 0; d < COUNT(dtypes); d++)
        for (int i = 0; ra_part_at("kernel", i, &part) == RA_OK; i++) {
            char name[40], problem[96];
            snprintf(name, sizeof name, "%s, %s", part.name, dtypes[d]);
            snprintf(problem, sizeof problem, "full n=%d h=8 d=64 %s kernel=%s",
                     suite_tokens(list, list->quick ? 256 : 1024), dtypes[d], part.name);
            if (part.usable && suite_serves(list, part.device, problem))
                suite_add(list, "kernel", name, "", "%s", problem);
        }
}

static void add_partitions(struct configurations *list)
{
    static const char *const partitions[] = { "contiguous", "zigzag", "striped" };
    for (int i = 0; i < COUNT(partitions); i++)
        suite_add(list, "partition", partitions[i], "",
                  "causal n=%d h=8 d=64 %s ring=2 %s threads=1",
                  suite_tokens(list, list->quick ? 1024 : 8192), suite_dtype(list), partitions[i]);
}

/* A link as slow as the work of a hop: with overlap it costs nothing, without it all of its
 * time. */
static void add_overlap(struct configurations *list)
{
    static const char *const links[][2] = { { "overlapped", "--link 100e6" },
                                            { "blocking", "--link 100e6 --blocking" } };
    for (int i = 0; i < COUNT(links); i++)
        suite_add(list, "overlap", links[i][0], links[i][1],
                  "full n=%d h=8 d=64 f32 ring=2 threads=1", list->quick ? 1024 : 4096);
}

static void list_ablate(struct configurations *list)
{
    add_plans(list);
    add_pool(list);
    add_dtypes(list);
    add_kernels(list);
    add_partitions(list);
    add_overlap(list);
    figures_list(list, "ablate");
}

const struct suite suite_ablate = {
    .name = "ablate",
    .summary = "what plan reuse, pool, dtype, kernel, partition and overlap are worth",
    .seconds = 8.0,
    .quick_seconds = 0.1,
    .list = list_ablate,
};
