/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - the suite `compare`: patterns and strategies beside the baseline, over lengths, batch
 * sizes and head shapes, and every system of the reports. */
#include "figures.h"
#include "harness/problem/system.h"
#include "suite.h"

/* The score matrices of longer sequences are refused, as the reports ran out of memory. */
#define BASELINE "--standard --memory 5G"
#define DILATED "dilated:2048/1,4096/2,8192/4"
#define BLOCKS "blocks:64;local=4;global=1"

/* What is compared: a pattern, and how its ranks work. */
static const struct line {
    const char *name, *options, *problem;
} lines[] = {
    { "standard", BASELINE, "full" },
    { "full", "", "full" },
    { "dilated", "", DILATED },
    { "blocks", "", BLOCKS },
    { "hilbert + blocks", "", BLOCKS " order=hilbert" },
    { "ring of 4", "", "full ring=4" },
    { "allgather of 4", "", "full ring=4 allgather" },
    { "standard, causal", BASELINE, "causal" },
    { "full, causal", "", "causal" },
    { "dilated, causal", "", DILATED ";causal" },
    { "blocks, causal", "", BLOCKS ";causal" },
    { "hilbert + blocks, causal", "", BLOCKS ";causal order=hilbert" },
    { "ring of 4, causal", "", "causal ring=4 zigzag" },
    { "allgather of 4, causal", "", "causal ring=4 zigzag allgather" },
};

static void add_all(struct configurations *list, const char *section, const char *shape)
{
    for (const struct line *l = lines; l < lines + COUNT(lines); l++)
        suite_add(list, section, l->name, l->options, "%s %s", l->problem, shape);
}

static void add_lengths(struct configurations *list)
{
    int last = list->quick ? 1 << 11 : 1 << 16;
    for (int n = 1 << 10; n <= last; n *= 2) {
        char shape[64];
        snprintf(shape, sizeof shape, "n=%d h=8 d=64 %s", suite_tokens(list, n), suite_dtype(list));
        add_all(list, "length", shape);
    }
}

static void add_batches(struct configurations *list)
{
    for (int b = list->quick ? 4 : 1; b <= 4; b *= 2) {
        char shape[64];
        snprintf(shape, sizeof shape, "n=%d h=8 d=64 b=%d %s",
                 suite_tokens(list, list->quick ? 512 : 2048), b, suite_dtype(list));
        add_all(list, "batch", shape);
    }
}

static void add_heads(struct configurations *list)
{
    static const char *const shapes[] = { "h=1 d=64", "h=8 d=128", "h=16 d=64", "h=32/8 d=128" };
    for (int i = list->quick ? COUNT(shapes) - 1 : 0; i < COUNT(shapes); i++) {
        char shape[64];
        snprintf(shape, sizeof shape, "n=%d %s bf16", suite_tokens(list, list->quick ? 512 : 2048),
                 shapes[i]);
        add_all(list, "heads", shape);
    }
}

/* Every name of the reports, with the ring it is meant for. */
static void add_systems(struct configurations *list)
{
    for (int i = 0; system_at(i); i++) {
        const struct system *system = system_at(i);
        bool alone = system == system_find("StandardAttention");
        suite_add(list, "systems", system->name, "", "system=%s n=%d h=8 d=64 %s ring=%d",
                  system->name, suite_tokens(list, list->quick ? 1024 : 4096), suite_dtype(list),
                  alone ? 1 : 2);
    }
}

static void list_compare(struct configurations *list)
{
    add_lengths(list);
    add_batches(list);
    add_heads(list);
    add_systems(list);
    figures_list(list, "compare");
}

const struct suite suite_compare = {
    .name = "compare",
    .summary = "patterns and strategies beside standard attention, every system by name",
    .scripts = "single_gpu_comparison.py, comprehensive_ring_benchmark.py",
    .seconds = 8.0,
    .quick_seconds = 0.1,
    .list = list_compare,
};
