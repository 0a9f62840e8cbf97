/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c - the verb `bench`: suites, one configuration by itself, and the difference between two
 * sets of results. */
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "harness/text/text.h"

/* The scripts of the last report that a suite stands for, and two that no suite is. */
void bench_help(void)
{
    printf("\nSuites:\n");
    for (int i = 0; suite_at(i); i++)
        printf("  %-9s %s\n", suite_at(i)->name, suite_at(i)->summary);
    printf("  %-9s all of them, in this order\n", "all");
    printf("\nScripts of the reports, and what stands for them:\n");
    for (int i = 0; suite_at(i); i++) {
        char *names = suite_at(i)->scripts ? strdup(suite_at(i)->scripts) : NULL, *rest = names;
        for (char *name; names && (name = strtok_r(rest, ", ", &rest));)
            printf("  %-34s ringattn bench %s\n", name, suite_at(i)->name);
        free(names);
    }
    printf("  %-34s ringattn report\n", "generate_report.py");
    printf("  %-34s ringattn bench all\n", "run_all_benchmarks.sh");
}

/* Flags that only one configuration, or only some suites, understand. */
static int check_flags(const struct options *options, bool one, bool wishes)
{
    static const char *const ones[] = { "--runs",   "--seconds",  "--limit", "--memory",  "--pool",
                                        "--replan", "--standard", "--link",  "--blocking" };
    static const char *const suites[] = { "--tokens", "--heads", "--kernel" };
    for (int i = 0; i < COUNT(ones) && !one; i++)
        if (flags_given(options, ones[i])) return refuse("%s is for bench case", ones[i]);
    for (int i = 0; i < COUNT(suites) && !wishes; i++)
        if (flags_given(options, suites[i])) return refuse("%s is for bench kernels", suites[i]);
    if (!one && !wishes && flags_given(options, "--threads"))
        return refuse("--threads is for bench kernels");
    return EXIT_PASS;
}

static int refuse_suite(const char *name)
{
    struct string names = { .lost = false };
    for (int i = 0; suite_at(i); i++) string_add(&names, "%s, ", suite_at(i)->name);
    int status = name ? refuse("bench: there is no suite \"%.40s\"; there are %sall, case and diff",
                               name, names.s ? names.s : "")
                      : refuse("bench: its suite is missing; there are %sall, case and diff",
                               names.s ? names.s : "");
    string_free(&names);
    return status;
}

static int run_suites(const struct options *options)
{
    const char *name = options->words[0];
    const struct suite *suite = suite_find(name);
    if (!suite && strcmp(name, "all")) return refuse_suite(name);
    if (options->word_count > 1)
        return refuse("bench: one suite at a time, not \"%.40s\" too", options->words[1]);
    int status = check_flags(options, false, suite && suite->takes_wishes);
    if (!status && suite && !suite->takes_wishes && options->rivals)
        status = refuse("--rivals is for bench kernels, all and case");
    return status ? status : runner_run(suite, options);
}

int verb_bench(struct options *options)
{
    if (options->word_count == 0) return refuse_suite(NULL);
    if (!strcmp(options->words[0], "case")) {
        int status = check_flags(options, true, false);
        return status ? status : case_run(options);
    }
    return !strcmp(options->words[0], "diff") ? diff_run(options) : run_suites(options);
}
