/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - the verb `verify`: problems, or the whole grid, against the fp64 oracle. */
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

#include "harness/check/verdict.h"
#include "harness/grid/grid.h"
#include "harness/problem/devices.h"
#include "harness/text/json.h"
#include "harness/base/interrupt.h"
#include "harness/base/machine.h"
#include "harness/text/progress.h"
#include "harness/world/same.h"
#include "harness/text/text.h"
#include "harness/world/world.h"

/* ---- Many cases ------------------------------------------------------------------------------ */

struct group_result {
    const char *name;
    int cases, passed;
    double worst;
};

struct failure {
    char *text, what[200];
};

struct results {
    struct group_result *groups;
    int group_count;
    struct failure *failures;
    int failure_count;
    int cases;
    double seconds;
};

/* NULL: memory is short. */
static struct group_result *group_of(struct results *results, const char *name)
{
    const int last = results->group_count - 1;
    if (last >= 0 && !strcmp(results->groups[last].name, name)) return &results->groups[last];
    struct group_result *groups = realloc(results->groups, ((size_t)last + 2) * sizeof *groups);
    if (!groups) return NULL;
    results->groups = groups;
    groups[results->group_count++] = (struct group_result){ .name = name };
    return &groups[last + 1];
}

static int record(struct results *results, const char *group, const char *text,
                  const struct verdict *verdict)
{
    struct group_result *g = group_of(results, group);
    if (!g) return fault("out of memory");
    results->cases++;
    g->cases++;
    g->passed += verdict->passed;
    if (verdict->worst > g->worst) g->worst = verdict->worst;
    if (verdict->passed) return EXIT_PASS;
    struct failure *failures = realloc(results->failures,
                                       ((size_t)results->failure_count + 1) * sizeof *failures);
    if (!failures) return fault("out of memory");
    results->failures = failures;
    struct failure *failure = &failures[results->failure_count++];
    failure->text = strdup(text);
    memcpy(failure->what, verdict->what, sizeof failure->what);
    return EXIT_PASS;
}

static void results_close(struct results *results)
{
    for (int i = 0; i < results->failure_count; i++) free(results->failures[i].text);
    free(results->failures);
    free(results->groups);
}

static void print_group(const struct group_result *g)
{
    printf("%-22s %6d %7d   %s %5.2f\n", g->name, g->cases, g->passed, text_bar(g->worst, 16).s,
           g->worst);
    fflush(stdout);
}

static void print_failures(const struct results *results)
{
    for (int i = 0; i < results->failure_count; i++)
        printf("\nFAILED  ringattn verify '%s'\n        %s\n",
               results->failures[i].text ? results->failures[i].text : "?",
               results->failures[i].what);
}

static void print_json(const struct results *results)
{
    struct json json = { .stream = stdout };
    json_open(&json, NULL, '{');
    json_text(&json, "version", ra_version());
    json_whole(&json, "cases", results->cases);
    json_whole(&json, "failed", results->failure_count);
    json_real(&json, "seconds", results->seconds);
    json_open(&json, "groups", '[');
    for (int i = 0; i < results->group_count; i++) {
        json_open(&json, NULL, '{');
        json_text(&json, "group", results->groups[i].name);
        json_whole(&json, "cases", results->groups[i].cases);
        json_whole(&json, "passed", results->groups[i].passed);
        json_real(&json, "worst_error_over_bound", results->groups[i].worst);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_open(&json, "failures", '[');
    for (int i = 0; i < results->failure_count; i++) {
        json_open(&json, NULL, '{');
        json_text(&json, "problem", results->failures[i].text);
        json_text(&json, "what", results->failures[i].what);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
}

/* What flags say of the machine counts for every problem. */
static void use_machine(const struct options *options, struct trial *trial)
{
    if (*options->trial.kernel) strcpy(trial->kernel, options->trial.kernel);
    if (*options->trial.device) strcpy(trial->device, options->trial.device);
}

/* ---- The grid -------------------------------------------------------------------------------- */

static int verify_grid_case(const struct options *options, const struct grid_case *c,
                            struct results *results)
{
    struct trial trial;
    struct verdict verdict;
    int status = trial_parse(&trial, c->text);
    if (!status) {
        use_machine(options, &trial);
        if (options->trial.threads && !trial.threads) trial.threads = options->trial.threads;
        verify_trial(&trial, options->wire, &verdict);
        char *text = trial_format(&trial);
        status = record(results, c->group, text ? text : c->text, &verdict);
        free(text);
    }
    trial_clear(&trial);
    return status;
}

/* Which cases of the grid: every step-th one, from the first on. */
struct subset {
    int first, step;
};

static int read_subset(const struct options *options, struct subset *out)
{
    const int each = options->quick ? 8 : 1;
    int number = 1, of = 1;
    char rest;
    *out = (struct subset){ .first = 0, .step = each };
    if (options->subset && (sscanf(options->subset, "%6d/%6d%c", &number, &of, &rest) != 2 ||
                            number < 1 || number > of))
        return refuse("--subset: \"%.40s\" is not I/N with I from 1 to N, and N up to 999999",
                      options->subset);
    out->first = (number - 1) * each;
    out->step = of * each;
    return EXIT_PASS;
}

static int run_grid(const struct options *options, const struct grid *grid, struct subset subset,
                    struct results *results)
{
    int shown = 0;
    if (!options->json)
        printf("%-22s %6s %7s   %s\n", "group", "cases", "passed", "worst error / bound");
    fflush(stdout);
    progress_begin("verify", options->quiet);
    for (int i = subset.first; i < grid->count; i += subset.step) {
        progress_update((double)i / grid->count);
        int status = verify_grid_case(options, &grid->cases[i], results);
        if (status) return status;
        if (interrupt_seen()) return fault("%s after %d cases", interrupt_name(), results->cases);
        bool ends = i + subset.step >= grid->count ||
                    strcmp(grid->cases[i].group, grid->cases[i + subset.step].group);
        if (!ends || options->json) continue;
        progress_hide();
        print_group(&results->groups[shown++]);
    }
    return EXIT_PASS;
}

static int verify_grid(const struct options *options)
{
    struct grid grid;
    struct subset subset;
    struct results results = { .group_count = 0 };
    double start = machine_seconds();
    if (read_subset(options, &subset)) return EXIT_USAGE;
    if (devices_check_kernel(options->trial.device, options->trial.kernel)) return EXIT_USAGE;
    int status = grid_open(&grid, options->trial.device, options->trial.kernel, !options->list);
    if (!status && subset.first >= grid.count)
        status = refuse("--subset %s: the grid has %d cases%s", options->subset, grid.count,
                        options->quick ? ", of which --quick takes every 8th" : "");
    for (int i = subset.first; !status && options->list && i < grid.count; i += subset.step)
        printf("%s\n", grid.cases[i].text);
    if (!status && !options->list) status = run_grid(options, &grid, subset, &results);
    progress_end();
    results.seconds = machine_seconds() - start;
    if (!status && !options->list) {
        if (options->json) print_json(&results);
        else print_failures(&results);
        if (!options->json)
            printf("\n%d cases, %d passed, %d failed, in %s\n", results.cases,
                   results.cases - results.failure_count, results.failure_count,
                   text_seconds(results.seconds).s);
        if (results.failure_count) status = EXIT_CHECK;
    }
    grid_close(&grid, results.failure_count > 0 && !interrupt_seen());
    results_close(&results);
    return status;
}

/* ---- Given problems -------------------------------------------------------------------------- */

static void print_verdict(const char *text, const struct verdict *verdict)
{
    printf("%s  %s\n", verdict->passed ? "passed" : "FAILED", text);
    for (int i = 0; i < verdict->check.count; i++) {
        const struct check_line *line = &verdict->check.lines[i];
        printf("        %-6s error %.3g, allowed %.3g\n", line->name, line->error, line->bound);
    }
    if (!verdict->passed) printf("        %s\n", verdict->what);
}

static int verify_text(const struct options *options, const char *text, struct results *results)
{
    struct trial trial;
    struct verdict verdict;
    int status = trial_parse(&trial, text);
    if (!status) status = world_open(&trial, options->wire);
    if (!status && world_runs(&trial)) status = world_agree(same_command(options, "verify"));
    if (!status) use_machine(options, &trial);
    if (!status && options->trial.threads) trial.threads = options->trial.threads;
    char *full = status ? NULL : trial_format(&trial);
    if (!status) {
        status = verify_trial(&trial, options->wire, &verdict);
        const int recorded = record(results, "given", full ? full : text, &verdict);
        if (!status) status = recorded;
        if (!options->json && !status) print_verdict(full ? full : text, &verdict);
    }
    free(full);
    trial_clear(&trial);
    return status;
}

/* All of them before the first one is run. */
static int check_texts(char *const *texts, int count)
{
    int status = EXIT_PASS;
    for (int i = 0; i < count && !status; i++) {
        struct trial trial;
        status = trial_parse(&trial, texts[i]);
        trial_clear(&trial);
    }
    return status;
}

/* Words without a space are one problem together; otherwise each argument is one. */
static int verify_words(const struct options *options)
{
    struct results results = { .group_count = 0 };
    struct string joined = { .lost = false };
    double start = machine_seconds();
    int status = EXIT_PASS;
    if (strchr(options->words[0], ' ')) {
        status = check_texts(options->words, options->word_count);
        for (int i = 0; i < options->word_count && !status; i++)
            status = verify_text(options, options->words[i], &results);
    } else {
        for (int i = 0; i < options->word_count; i++) string_add(&joined, "%s ", options->words[i]);
        status = joined.s ? verify_text(options, joined.s, &results) : fault("out of memory");
    }
    results.seconds = machine_seconds() - start;
    if (!status && options->json) print_json(&results);
    if (!status && results.failure_count) status = EXIT_CHECK;
    string_free(&joined);
    results_close(&results);
    return status;
}

int verb_verify(struct options *options)
{
    for (int i = 0; i < options->word_count; i++)
        if (!options->words[i][strspn(options->words[i], " \t")])
            return refuse("verify: problem %d is empty; leave it out for the whole grid", i + 1);
    if (options->list && options->json) return refuse("--list prints lines; leave out --json");
    if (options->word_count && (options->list || options->quick || options->subset))
        return refuse("verify: --list, --quick and --subset are about the grid; leave out the "
                      "problem");
    return options->word_count ? verify_words(options) : verify_grid(options);
}
