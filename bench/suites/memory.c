/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - the suite `memory`: bytes per rank against ring size and length, counted by allocation
 * and by the operating system, beside the baseline's score matrices. */
#include "figures.h"
#include "suite.h"

/* The score matrices of longer sequences are refused, as the reports ran out of memory. */
#define BASELINE "--standard --memory 5G"

/* The tables and plots of the reports: full attention in 16 bit. */
static void add_rings(struct configurations *list)
{
    int last = list->quick ? 1 << 11 : 1 << 14;
    for (int n = 1 << 10; n <= last; n *= 2) {
        suite_add(list, "ring", "standard", BASELINE, "full n=%d h=8 d=64 f16", n);
        for (int ring = 1; ring <= 32; ring *= 2) {
            char name[24];
            snprintf(name, sizeof name, "ring %d", ring);
            suite_add(list, "ring", name, "", "full n=%d h=8 d=64 f16 ring=%d", n, ring);
        }
    }
}

/* One rank; sparse patterns need no more than dense ones, and nothing grows as the square. */
static void add_lengths(struct configurations *list)
{
    static const struct {
        const char *name, *options, *pattern;
    } lines[] = {
        { "standard", BASELINE, "full" },
        { "full", "", "full" },
        { "dilated", "", "dilated:2048/1,4096/2,8192/4" },
        { "blocks", "", "blocks:64;local=4;global=1" },
    };
    int last = list->quick ? 1 << 11 : 1 << 14;
    for (int i = 0; i < COUNT(lines); i++)
        for (int n = 1 << 9; n <= last; n *= 2)
            suite_add(list, "length", lines[i].name, lines[i].options, "%s n=%d h=8 d=64 %s",
                      lines[i].pattern, suite_tokens(list, n), suite_dtype(list));
}

/* Ranks as processes, so that the operating system counts each one's memory. */
static void add_processes(struct configurations *list)
{
    for (int ring = 1; ring <= (list->quick ? 2 : 8); ring *= 2) {
        char name[24];
        snprintf(name, sizeof name, "%d process%s", ring, ring == 1 ? "" : "es");
        suite_add(list, "processes", name, "", "full n=%d h=8 d=64 f16 ring=%d mpi",
                  list->quick ? 2048 : 16384, ring);
    }
}

static void list_memory(struct configurations *list)
{
    add_rings(list);
    add_lengths(list);
    add_processes(list);
    figures_list(list, "memory");
}

const struct suite suite_memory = {
    .name = "memory",
    .summary = "bytes per rank against ring size and length",
    .scripts = "memory_scaling_analysis.py",
    .seconds = 8.0,
    .quick_seconds = 0.1,
    .list = list_memory,
};
