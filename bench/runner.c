/* SPDX-License-Identifier: Apache-2.0 */
/* runner.c - runs suites: each configuration in a process of its own, row after row. */
#include "runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "case.h"
#include "figures.h"
#include "harness/base/interrupt.h"
#include "harness/base/machine.h"
#include "harness/problem/devices.h"
#include "harness/problem/system.h"
#include "harness/text/progress.h"
#include "process.h"
#include "results.h"
#include "rivals/rivals.h"
#include "roof.h"

enum { QUICK_RUNS = 5, ARGUMENTS_MOST = 48 };
#define RIVALS_START 15.0 /* seconds until PyTorch is there and has compiled, roughly */

/* What a suite runs, listed once: it is what the estimate counts too. */
struct work {
    const struct suite *suite;
    struct configurations list;
};

struct runner {
    const struct options *options;
    struct work *works; /* one for each suite */
    int work_count;
    const struct suite *suite; /* the one that runs */
    struct results results;
    char self[4096];
    double done, todo; /* seconds, roughly, over all suites */
    int planned;       /* configurations of all suites */
    bool noted;        /* some were left out, and it will be said why */
    int failed;        /* configurations whose result was wrong, too fast, or missing */
    const char *shown; /* the section whose title was printed last */
};

/* ---- How long will it take? ------------------------------------------------------------------ */

/* The number after a key of a problem string, or a default. */
static double number_of(const char *problem, const char *key, double none)
{
    char word[16];
    snprintf(word, sizeof word, " %s=", key);
    const char *at = strstr(problem, word);
    return at ? strtod(at + strlen(word), NULL) : none;
}

/* The number after a flag, which ends with a space; 0 without it. */
static double flag_of(const char *options, const char *flag)
{
    const char *at = strstr(options, flag);
    return at ? strtod(at + strlen(flag), NULL) : 0.0;
}

/* Pairs of a problem, roughly: sparse patterns see some thousand keys. */
static double guess_pairs(const char *problem)
{
    double n = number_of(problem, "n", 4096.0), keys = number_of(problem, "nk", n);
    double seen = fmin(keys, 4096.0);
    if (!strncmp(problem, "full", 4)) seen = keys;
    if (!strncmp(problem, "causal", 6)) seen = 0.5 * keys;
    return number_of(problem, "b", 1.0) * number_of(problem, "h", 8.0) * n * seen;
}

static double guess_seconds(const struct runner *runner, const struct suite *suite,
                            const struct configuration *c)
{
    double threads = number_of(c->problem, "threads", 0.0) * number_of(c->problem, "ring", 1.0);
    double cores = machine_cores(), busy = threads > 0.0 ? fmin(threads, cores) : cores;
    const bool gpu = strstr(c->problem, " device=") != NULL;
    const double start = gpu ? 1.5 : 0.3, speed = gpu ? 1e14 : 7e10 * busy;
    double limit = runner->options->quick ? suite->quick_seconds : suite->seconds;
    double once = 4.0 * guess_pairs(c->problem) * number_of(c->problem, "d", 64.0) / speed;
    if (strstr(c->problem, " backward")) once *= 3.5;
    if (!strncmp(c->problem, CASE_CEILING, strlen(CASE_CEILING))) once = 0.0;
    if (strstr(c->options, "--rivals")) return RIVALS_START + flag_of(c->options, "--seconds ");
    const char *bound = strstr(c->options, "--limit ");
    if (bound && once > flag_of(bound, "--limit ")) return start; /* refused */
    return start + once + (once > 0.5 * limit ? 0.0 : fmin(once * CASE_RUNS, limit));
}

/* ---- One configuration ----------------------------------------------------------------------- */

struct command {
    char *at[ARGUMENTS_MOST];
    int count;
    char texts[ARGUMENTS_MOST][32]; /* of numbers */
    char options[96];
};

static void push(struct command *command, const char *argument)
{
    if (command->count < ARGUMENTS_MOST - 1) command->at[command->count++] = (char *)argument;
}

static void push_number(struct command *command, const char *flag, double value)
{
    char *text = command->texts[command->count];
    snprintf(text, sizeof command->texts[0], "%.10g", value);
    push(command, flag);
    push(command, text);
}

/* Processes of a problem whose ranks are such; 0: threads of one process. */
static double processes(const char *problem)
{
    static const char key[] = "system=";
    char name[48] = "";
    const char *at = strstr(problem, key);
    if (at) sscanf(at + sizeof key - 1, "%47s", name);
    const struct system *system = at ? system_find(name) : NULL;
    bool mpi = strstr(problem, " mpi") ||
               (system && system->transport && !strcmp(system->transport, "mpi"));
    return mpi ? number_of(problem, "ring", 1.0) : 0.0;
}

static void make_command(const struct runner *runner, const struct configuration *c,
                         struct command *command)
{
    bool quick = runner->options->quick;
    double ranks = processes(c->problem);
    command->count = 0;
    if (ranks > 0.0) {
        push(command, "mpirun");
        push_number(command, "-np", ranks);
    }
    push(command, runner->self);
    push(command, "bench");
    push(command, "case");
    push(command, c->problem);
    snprintf(command->options, sizeof command->options, "%s", c->options);
    char *rest = command->options;
    for (char *word; (word = strtok_r(rest, " ", &rest));) push(command, word);
    if (!strstr(c->options, "--runs"))
        push_number(command, "--runs", quick ? QUICK_RUNS : CASE_RUNS);
    if (!strstr(c->options, "--seconds"))
        push_number(command, "--seconds",
                    quick ? runner->suite->quick_seconds : runner->suite->seconds);
    command->at[command->count] = NULL;
}

static void name_row(const struct runner *runner, const struct configuration *c, struct row *row)
{
    snprintf(row->suite, sizeof row->suite, "%s", runner->suite->name);
    snprintf(row->section, sizeof row->section, "%s", c->section);
    if (strcmp(row->kind, "rival")) snprintf(row->name, sizeof row->name, "%s", c->name);
    snprintf(row->problem, sizeof row->problem, "%s", c->problem);
    snprintf(row->options, sizeof row->options, "%s", c->options);
    row->quick = runner->options->quick;
}

/* In a round with others: how it compares with ours, one call by itself, and what the GPU did. */
static void print_turns(const struct row *row)
{
    if (row->ratio > 0.0)
        printf("  ratio %.3f  %.3f to %.3f", row->ratio, row->ratio_least, row->ratio_most);
    printf("  single %s", text_seconds(row->single_seconds).s);
    if (row->single_ratio > 0.0) printf(", ratio %.3f", row->single_ratio);
    if (row->clock_mhz > 0.0) printf("  %.0f MHz", row->clock_mhz);
    if (row->power_watts > 0.0) printf("  %.0f W", row->power_watts);
    printf("\n");
}

static void print_row(struct runner *runner, const struct row *row)
{
    progress_hide();
    if (!runner->shown || strcmp(runner->shown, row->section))
        printf("\n%s: %s\n", runner->suite->name, row->section);
    printf("  %-28s ", row->name);
    if (*row->absent) {
        printf("%-40s absent: %s\n", row->problem, row->absent);
    } else if (!strcmp(row->kind, "ceiling")) {
        if (row_is_cpu(row)) printf("%3lld threads  ", (long long)row->threads);
        printf("%9.1f  %.1f to %.1f %s\n", row->rate, row->rate_least, row->rate_most, row->unit);
    } else {
        printf("%-40s %-8s %9s  %s to %s  %7.1f %s", row->problem, row->pass,
               text_seconds(row->seconds).s, text_seconds(row->seconds_least).s,
               text_seconds(row->seconds_most).s, row->rate, row->unit);
        if (row->share > 0.0) printf(" %3.0f%%", 100.0 * row->share);
        if (row->single_seconds > 0.0) print_turns(row);
        else
            printf("  %s%s\n", text_bytes(row->bytes_per_rank).s,
                   row->ranks > 1 ? " per rank" : "");
    }
    fflush(stdout);
}

/* What the reports had in the place of a row. */
static void print_theirs(const struct row *row)
{
    struct rows one = { .at = (struct row *)row, .count = 1 };
    for (int i = 0; figure_at(i) && !*row->absent; i++) {
        const struct figure *f = figure_at(i);
        double ours = figure_ours(f, &one);
        if (strcmp(f->suite, row->suite) || !isfinite(ours)) continue;
        printf("  %-28s %s: theirs %s, ours %s%s\n", "", f->what, figure_text(f, f->value).s,
               figure_text(f, ours).s, f->tokens ? "" : " (theirs was not over tokens)");
    }
}

static int keep_row(struct runner *runner, const struct configuration *c, struct row *row)
{
    name_row(runner, c, row);
    print_row(runner, row);
    if (!strcmp(row->section, FIGURE_SECTION)) print_theirs(row);
    runner->shown = c->section;
    if (roof_check(row, &runner->results.rows)) {
        runner->failed++;
        return EXIT_PASS; /* such a figure is not kept */
    }
    return results_add(&runner->results, row);
}

static int keep_rows(struct runner *runner, const struct configuration *c, char *lines)
{
    int status = EXIT_PASS;
    char *rest = lines;
    for (char *line; !status && rest && (line = strtok_r(rest, "\n", &rest));) {
        struct row row;
        if (row_read(line, &row)) status = keep_row(runner, c, &row);
    }
    return status;
}

/* No figures: a reason in their place, which counts as an answer unless it is a fault of ours. */
static int keep_absence(struct runner *runner, const struct configuration *c,
                        const struct process_end *end)
{
    struct row row;
    bool wrong = end->own && end->status != EXIT_USAGE && end->status != 127;
    if (wrong || !*end->last) {
        progress_hide();
        fprintf(stderr, "ringattn: bench: %s: %s (exit status %d)\n", c->problem,
                *end->last ? end->last : "no output", end->status);
        runner->failed++;
        return EXIT_PASS;
    }
    row_default(&row);
    row_machine(&row, runner->options->trial.device);
    snprintf(row.absent, sizeof row.absent, "%s", end->last);
    return keep_row(runner, c, &row);
}

static bool is_done(const struct runner *runner, const struct configuration *c)
{
    struct row row;
    row_default(&row);
    name_row(runner, c, &row);
    for (int i = 0; i < runner->results.rows.count; i++) {
        const struct row *r = &runner->results.rows.at[i];
        snprintf(row.pass, sizeof row.pass, "%s", r->pass);
        if (row_same(r, &row)) return true;
    }
    return false;
}

static int run_configuration(struct runner *runner, const struct configuration *c)
{
    struct command command;
    struct process_end end;
    make_command(runner, c, &command);
    int status = process_run(command.at, &end);
    if (status) return status;
    if (end.status == EXIT_PASS && end.out.s) status = keep_rows(runner, c, end.out.s);
    else status = keep_absence(runner, c, &end);
    string_free(&end.out);
    return status;
}

/* ---- Suites ---------------------------------------------------------------------------------- */

static int list_suite(const struct runner *runner, const struct suite *suite,
                      struct configurations *list)
{
    *list = (struct configurations){ .wishes = runner->options, .quick = runner->options->quick };
    suite->list(list);
    const char *match = runner->options->match;
    int kept = 0;
    for (int i = 0; i < list->count; i++) {
        const struct configuration *c = &list->at[i];
        if (match && !strstr(c->problem, match) && !strstr(c->name, match) &&
            !strstr(c->section, match))
            continue;
        list->at[kept++] = *c;
    }
    list->count = kept;
    int status = list->lost    ? fault("bench %s: a configuration does not fit, or out of memory",
                                       suite->name)
                 : suite->trim ? suite->trim(list)
                               : EXIT_PASS;
    if (!status) return EXIT_PASS;
    free(list->at);
    list->at = NULL;
    return status;
}

/* Lists a suite, and adds what it will take. */
static int add_work(struct runner *runner, const struct suite *suite)
{
    struct work *works = realloc(runner->works, (size_t)(runner->work_count + 1) * sizeof *works);
    if (!works) return fault("bench: out of memory");
    runner->works = works;
    struct work *work = &works[runner->work_count];
    *work = (struct work){ .suite = suite };
    int status = list_suite(runner, suite, &work->list);
    if (status) return status;
    runner->work_count++;
    runner->planned += work->list.count;
    runner->noted |= *work->list.note != 0;
    for (int i = 0; i < work->list.count; i++)
        runner->todo += guess_seconds(runner, suite, &work->list.at[i]);
    return EXIT_PASS;
}

static void free_works(struct runner *runner)
{
    for (int i = 0; i < runner->work_count; i++) free(runner->works[i].list.at);
    free(runner->works);
}

static int run_list(struct runner *runner, const struct configurations *list)
{
    int status = EXIT_PASS, known = 0;
    for (int i = 0; i < list->count && !status; i++) {
        const struct configuration *c = &list->at[i];
        progress_update(runner->done / runner->todo);
        double cost = guess_seconds(runner, runner->suite, c);
        if (!is_done(runner, c)) {
            status = run_configuration(runner, c);
            runner->done += cost;
        } else {
            known++;
            runner->todo -= cost;
        }
    }
    progress_hide();
    if (known)
        printf("  (%d of %d are in %s already)\n", known, list->count, runner->results.folder);
    return status;
}

static int run_work(struct runner *runner, const struct work *work)
{
    if (*work->list.note) printf("\n%s: %s\n", work->suite->name, work->list.note);
    if (!work->list.count) return EXIT_PASS; /* --match may leave nothing of a suite */
    runner->suite = work->suite;
    runner->shown = NULL;
    int status = results_open(&runner->results, work->suite->name, runner->options);
    if (!status && runner->results.stale)
        printf("  (%d rows of another version, machine or mode are measured again)\n",
               runner->results.stale);
    if (!status) status = run_list(runner, &work->list);
    if (!status) status = results_finish(&runner->results);
    results_close(&runner->results);
    return status;
}

static int prepare_suite(struct runner *runner, const struct suite *suite)
{
    int status = add_work(runner, suite);
    if (!status && runner->options->out) status = results_check(runner->options->out, suite->name);
    return status;
}

static int prepare(struct runner *runner, const struct suite *only)
{
    int status = EXIT_PASS;
    ssize_t length = readlink("/proc/self/exe", runner->self, sizeof runner->self - 1);
    if (length <= 0) return fault("this program's own file cannot be found in /proc");
    runner->self[length] = 0;
    const struct trial *given = &runner->options->trial;
    status = row_check_device(given->device);
    if (!status) status = devices_check_kernel(given->device, given->kernel);
    if (!status && runner->options->rivals) status = rivals_check(runner->options->rivals);
    if (status) return status;
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0); /* more ranks than cores are no fault */
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
    if (only) status = prepare_suite(runner, only);
    for (int i = 0; !only && suite_at(i) && !status; i++)
        status = prepare_suite(runner, suite_at(i));
    if (!status && !runner->planned && !runner->noted && runner->options->match)
        return refuse("bench: no configuration contains \"%s\" (--match)", runner->options->match);
    if (!status && runner->options->out) status = results_make_folder(runner->options->out);
    return status;
}

static int run_works(struct runner *runner, const char *name)
{
    const struct options *options = runner->options;
    int status = EXIT_PASS;
    struct row machine;
    row_machine(&machine, options->trial.device);
    printf("ringattn %s, %s; medians of up to %d runs, a process for each row, "
           "roughly %s%s\n",
           ra_version(), row_device_text(&machine).s, options->quick ? QUICK_RUNS : CASE_RUNS,
           text_seconds(runner->todo).s,
           options->quick ? " (--quick: a glance, not a figure)" : "");
    progress_begin(name, options->quiet);
    for (int i = 0; i < runner->work_count && !status; i++)
        status = run_work(runner, &runner->works[i]);
    progress_end();
    if (interrupt_seen())
        return fault("bench: %s%s", interrupt_name(),
                     options->out ? "; the same command goes on from here" : "");
    if (!status && runner->failed) {
        fprintf(stderr, "ringattn: bench: %d failed\n", runner->failed);
        status = EXIT_CHECK;
    }
    return status;
}

int runner_run(const struct suite *only, const struct options *options)
{
    struct runner runner = { .options = options };
    int status = prepare(&runner, only);
    if (!status) status = run_works(&runner, only ? only->name : "bench");
    free_works(&runner);
    return status;
}

char *runner_command(const struct row *row)
{
    struct string text = { .lost = false };
    if (!strcmp(row->transport, "mpi"))
        string_add(&text, "mpirun -np %lld ", (long long)row->ranks);
    string_add(&text, "ringattn bench case '%s'", row->problem);
    if (*row->options) string_add(&text, " %s", row->options);
    if (row->runs != CASE_RUNS && !strstr(row->options, "--runs"))
        string_add(&text, " --runs %lld", (long long)row->runs);
    return text.s;
}
