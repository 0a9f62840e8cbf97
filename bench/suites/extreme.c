/* SPDX-License-Identifier: Apache-2.0 */
/* extreme.c - the suite `extreme`: long sequences, and the longest within a limit of time and
 * memory. */
#include "figures.h"
#include "suite.h"

#define DILATED "dilated:2048/1,4096/2,8192/4"

static void add_long(struct configurations *list)
{
    static const int lengths[] = { 100000, 250000, 500000, 1000000 };
    for (int i = 0; i < (list->quick ? 1 : COUNT(lengths)); i++) {
        suite_add(list, "long", "dilated", "", DILATED " n=%d h=8 d=64 bf16",
                  list->quick ? suite_tokens(list, 65536) : lengths[i]);
        suite_add(list, "long", "window", "", "window:4096 n=%d h=8 d=64 bf16",
                  list->quick ? suite_tokens(list, 16384) : lengths[i]);
    }
    suite_add(list, "long", "full", "", "full n=%d h=8 d=64 bf16",
              list->quick ? suite_tokens(list, 8192) : 100000);
    if (suite_device(list) && !list->quick)
        suite_add(list, "long", "causal", "", "causal n=1048576 h=8 d=128 bf16");
}

/* Doubled until a run would take too long or too much; the rows that are refused say which. */
static void add_longest(struct configurations *list)
{
    static const struct {
        const char *name, *problem, *options, *quick_options;
    } lines[] = {
        { "dilated", DILATED, "--limit 60 --memory 4G", "--limit 1 --memory 256M" },
        { "dilated, streamed", DILATED " stream", "--limit 120 --memory 512M",
          "--limit 1 --memory 64M" },
        { "causal", "causal", "--limit 60 --memory 4G", "--limit 1 --memory 256M" },
        { "causal, streamed", "causal stream", "--limit 60 --memory 512M",
          "--limit 1 --memory 64M" },
    };
    int first = list->quick ? 1 << 12 : 1 << 16, last = list->quick ? 1 << 15 : 1 << 22;
    for (int i = 0; i < COUNT(lines); i++)
        for (int n = first; n <= last; n *= 2)
            suite_add(list, "longest", lines[i].name,
                      list->quick ? lines[i].quick_options : lines[i].options,
                      "%s n=%d h=8 d=64 bf16", lines[i].problem, n);
}

static void list_extreme(struct configurations *list)
{
    add_long(list);
    add_longest(list);
    if (!list->quick) figures_list(list, "extreme");
}

const struct suite suite_extreme = {
    .name = "extreme",
    .summary = "100,000 to millions of tokens, and the longest within a limit",
    .scripts = "extreme_sequence_benchmark.py",
    .seconds = 10.0,
    .quick_seconds = 0.1,
    .list = list_extreme,
};
