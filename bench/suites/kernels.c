/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the suite `kernels`: the ceilings of this machine, how near every kernel comes, and
 * the attention of PyTorch beside ours. */
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "ceilings/ceiling.h"
#include "harness/base/machine.h"
#include "harness/device/maker.h"
#include "rivals/problems.h"
#include "suite.h"

enum { TOKENS = 4096, QUICK_TOKENS = 512, SLOW = 16 /* the plain kernel gets this part */ };
enum { HEADS = 8, DECODE_KEYS = 16 /* for each token */ };

static const char *const dtypes[] = { "f32", "bf16", "f16" };
static const int dims[] = { 64, 128 };
static const char *const patterns[] = { "full", "causal" };
enum { DECODE_DTYPES = 2 /* the first of them */ };

/* With gradients, or perhaps without. */
static void add(struct configurations *list, const ra_part *kernel, const char *problem)
{
    char backward[160];
    snprintf(backward, sizeof backward, "%s backward", problem);
    if (!strstr(problem, " nk=") && suite_serves(list, kernel->device, backward))
        suite_add(list, "kernels", kernel->name, "", "%s", backward);
    else if (suite_serves(list, kernel->device, problem))
        suite_add(list, "kernels", kernel->name, "", "%s", problem);
}

static long long tokens_of(const struct configurations *list, const char *kernel)
{
    int64_t wish = list->wishes->trial.q_len;
    int64_t tokens = suite_tokens(list, list->quick ? QUICK_TOKENS : TOKENS);
    if (wish) return (long long)wish;
    return (long long)(strcmp(kernel, "scalar") ? tokens : tokens / SLOW);
}

static void add_kernel(struct configurations *list, const ra_part *part, int threads)
{
    const char *kernel = part->name;
    long long tokens = tokens_of(list, kernel);
    long long heads = list->wishes->trial.q_heads ? (long long)list->wishes->trial.q_heads : HEADS;
    char problem[128];
    for (int i = 0; i < COUNT(dtypes) * COUNT(dims) * COUNT(patterns); i++) {
        snprintf(problem, sizeof problem, "%s n=%lld h=%lld d=%d %s kernel=%s threads=%d",
                 patterns[i % COUNT(patterns)], tokens, heads,
                 dims[i / COUNT(patterns) % COUNT(dims)],
                 dtypes[i / (COUNT(dims) * COUNT(patterns))], kernel, threads);
        add(list, part, problem);
    }
    for (int i = 0; i < DECODE_DTYPES * COUNT(dims); i++) {
        snprintf(problem, sizeof problem, "full n=1 nk=%lld h=%lld d=%d %s kernel=%s threads=%d",
                 tokens * DECODE_KEYS, heads, dims[i % COUNT(dims)], dtypes[i / COUNT(dims)],
                 kernel, threads);
        add(list, part, problem);
    }
}

static void add_ceilings(struct configurations *list, int threads)
{
    for (int i = 0; ceiling_at(i); i++) {
        char options[32];
        snprintf(options, sizeof options, "--threads %d", threads);
        suite_add(list, "ceilings", ceiling_at(i)->name, options, CASE_CEILING "%s",
                  ceiling_at(i)->name);
    }
}

static void add_device_ceilings(struct configurations *list, const char *device)
{
    const struct maker *maker = maker_open(device);
    if (!maker || maker->use(maker_number(device))) return;
    for (int i = 0; maker->ceiling_at(i); i++)
        suite_add(list, "ceilings", maker->ceiling_at(i)->name, "", CASE_CEILING "%s",
                  maker->ceiling_at(i)->name);
}

static void list_kernels(struct configurations *list)
{
    const struct trial *wish = &list->wishes->trial;
    int one = list->quick ? machine_cores() : 1; /* and all, in a full run */
    int counts[2] = { wish->threads ? (int)wish->threads : one, machine_cores() };
    int ways = wish->threads || counts[0] == counts[1] || suite_device(list) ? 1 : 2;
    ra_part part = ra_part_default();
    if (suite_device(list)) add_device_ceilings(list, suite_device(list));
    for (int t = 0; t < ways && !suite_device(list); t++) add_ceilings(list, counts[t]);
    for (int i = 0; ra_part_at("kernel", i, &part) == RA_OK; i++)
        for (int t = 0; t < ways && part.usable; t++)
            if (!*wish->kernel || !strcmp(wish->kernel, part.name))
                add_kernel(list, &part, counts[t]);
    rival_problems_list(list);
}

const struct suite suite_kernels = {
    .name = "kernels",
    .summary = "the ceilings of this machine, how near every kernel comes, and rivals",
    .seconds = 8.0,
    .quick_seconds = 0.05,
    .list = list_kernels,
    .trim = rival_problems_trim,
    .takes_wishes = true,
};
