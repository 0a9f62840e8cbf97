/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c - the verb `bench`: a table of suites. */
#include "verbs.h"

#include <string.h>

#include "bench/bench.h"

static const struct suite {
    const char *name;
    int (*run)(const struct options *options);
} suites[] = {
    { "kernels", bench_kernels },
};

/* Suites that users meet in the documentation and that a later version brings. */
static const char *const later_suites[] = { "compare", "memory", "scaling",
                                            "extreme", "ablate", "all" };

static int run_suite(const char *name, const struct options *options)
{
    for (int i = 0; i < COUNT(suites); i++)
        if (!strcmp(suites[i].name, name)) return suites[i].run(options);
    for (int i = 0; i < COUNT(later_suites); i++)
        if (!strcmp(later_suites[i], name))
            return refuse("bench: '%s' is not in this version", name);
    return refuse("bench: there is no suite \"%.40s\"; there is kernels", name);
}

int verb_bench(struct options *options)
{
    if (options->word_count == 0) return refuse("bench: its suite is missing; there is kernels");
    if (options->word_count > 1)
        return refuse("bench: one suite at a time, not \"%.40s\" too", options->words[1]);
    return run_suite(options->words[0], options);
}
