/* SPDX-License-Identifier: Apache-2.0 */
/* bits.c - do two versions of the library give the same bits?
 *
 *     bits record  FILE [--step N] [KERNEL...]   runs the conformance grid with each kernel, writes
 *                                                a line for each case: digests, then its problem
 *     bits compare FILE [--step N] [KERNEL...]   runs the problems of that file, and compares
 *
 * The grid is that of `ringattn verify`; without kernels it is run with every kernel of this
 * machine. --step N takes every Nth case. There is no oracle here: a recording says what a version
 * computed, not whether it was right. A file of the grid is written as @bitmap@, @bitmaps@ or
 * @order@. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check/digest.h"
#include "harness/grid/grid.h"
#include "harness/base/interrupt.h"
#include "harness/text/text.h"

enum { KERNELS_MOST = 16, LINE_MOST = 4096, FIELDS = 6 };

static const char *const field_names[FIELDS] = { "out", "lse", "dq", "dk", "dv", "dsinks" };
static const char *const file_marks[GRIDFILE_COUNT] = { "@bitmap@", "@bitmaps@", "@order@" };

struct job {
    const char *path;
    const char *kernels[KERNELS_MOST];
    int kernel_count, step;
};

struct tally {
    int same, different, not_run;
};

/* ---- One case -------------------------------------------------------------------------------- */

/* What a case gave: an exit status, and digests where that is EXIT_PASS. */
struct outcome {
    int status;
    uint64_t digests[FIELDS];
};

static struct outcome run_trial(const struct trial *trial)
{
    struct outcome outcome = { .status = EXIT_PASS };
    struct engine engine;
    struct engine_setup setup = { .trial = trial, .quiet = true };
    outcome.status = engine_open(&engine, &setup);
    if (outcome.status) return outcome;
    outcome.status = engine_forward(&engine);
    if (!outcome.status && trial->backward) outcome.status = engine_backward(&engine);
    if (!outcome.status) {
        struct digests all = digest_all(&engine, &engine);
        memcpy(outcome.digests, &all.of[TENSOR_OUT], (FIELDS - 1) * sizeof all.of[0]);
        outcome.digests[FIELDS - 1] = all.dsinks;
    }
    engine_close(&engine);
    return outcome;
}

static struct outcome run_text(const char *text)
{
    struct trial trial;
    struct outcome outcome = { .status = trial_parse(&trial, text) };
    if (!outcome.status) outcome = run_trial(&trial);
    trial_clear(&trial);
    return outcome;
}

static bool same_outcome(const struct outcome *a, const struct outcome *b)
{
    return a->status == b->status && !memcmp(a->digests, b->digests, sizeof a->digests);
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static char *replace_all(const char *text, const char *from, const char *to)
{
    struct string result = { .lost = false };
    const char *found;
    for (; (found = strstr(text, from)); text = found + strlen(from))
        string_add(&result, "%.*s%s", (int)(found - text), text, to);
    string_add(&result, "%s", text);
    return result.lost ? NULL : result.s;
}

/* Names of temporary files to marks, or back; NULL if memory ran out. `text` is freed. */
static char *rename_files(char *text, const struct gridfiles *files, bool to_marks)
{
    for (int i = 0; text && i < GRIDFILE_COUNT; i++) {
        const char *path = files->path[i], *mark = file_marks[i];
        char *renamed = to_marks ? replace_all(text, path, mark) : replace_all(text, mark, path);
        free(text);
        text = renamed;
    }
    return text;
}

static void write_line(FILE *file, const struct outcome *outcome, const char *problem)
{
    fprintf(file, "%d", outcome->status);
    for (int i = 0; i < FIELDS; i++) fprintf(file, " %016" PRIx64, outcome->digests[i]);
    fprintf(file, " %s\n", problem);
}

/* The problem of a line, inside of it; NULL where that is no line of a recording. */
static char *read_line(char *line, struct outcome *outcome)
{
    char *at = line;
    line[strcspn(line, "\n")] = 0;
    outcome->status = (int)strtol(at, &at, 10);
    for (int i = 0; i < FIELDS; i++) outcome->digests[i] = strtoull(at, &at, 16);
    return *at == ' ' && at[1] ? at + 1 : NULL;
}

/* ---- Recording ------------------------------------------------------------------------------- */

static int record_case(FILE *file, const struct grid *grid, int index, const char *kernel)
{
    const char *text = grid->cases[index].text;
    struct string problem = { .lost = false };
    if (strstr(text, " kernel=")) string_add(&problem, "%s", text);
    else string_add(&problem, "%s kernel=%s", text, kernel);
    if (problem.lost) return fault("out of memory for a problem");
    struct outcome outcome = run_text(problem.s);
    char *marked = rename_files(problem.s, &grid->files, true);
    if (!marked) return fault("out of memory for a problem");
    write_line(file, &outcome, marked);
    free(marked);
    return interrupt_check();
}

static int record_kernel(FILE *file, const struct job *job, const char *kernel)
{
    struct grid grid;
    setenv("RINGATTN_KERNEL", kernel, 1); /* the grid gives its cases dtypes that it takes */
    int status = grid_open(&grid, NULL, kernel, true);
    for (int i = 0; !status && i < grid.count; i += job->step)
        status = record_case(file, &grid, i, kernel);
    if (!status) printf("%-12s %d cases\n", kernel, (grid.count + job->step - 1) / job->step);
    fflush(stdout);
    grid_close(&grid, false);
    return status;
}

static int record(const struct job *job, FILE *file)
{
    int status = EXIT_PASS;
    fprintf(file, "# ringattn %s\n", ra_version());
    for (int i = 0; !status && i < job->kernel_count; i++)
        status = record_kernel(file, job, job->kernels[i]);
    return status;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static bool is_wanted(const struct job *job, const char *problem)
{
    const char *kernel = strstr(problem, " kernel=");
    size_t length = kernel ? strcspn(kernel + 8, " ") : 0;
    for (int i = 0; kernel && i < job->kernel_count; i++)
        if (strlen(job->kernels[i]) == length && !memcmp(job->kernels[i], kernel + 8, length))
            return true;
    return false;
}

static void print_difference(const struct outcome *was, const struct outcome *is,
                             const char *problem)
{
    printf("DIFFERS ");
    if (was->status != is->status) printf(" exit status %d, now %d", was->status, is->status);
    for (int i = 0; was->status == is->status && i < FIELDS; i++)
        if (was->digests[i] != is->digests[i]) printf(" %s", field_names[i]);
    printf("  ringattn verify '%s'\n", problem);
    fflush(stdout);
}

static int compare_line(char *line, const struct job *job, const struct gridfiles *files,
                        struct tally *tally)
{
    struct outcome was, is;
    const char *recorded = read_line(line, &was);
    if (!recorded) return refuse("bits: %s: not a line of a recording: %.60s", job->path, line);
    if (!is_wanted(job, recorded)) {
        tally->not_run++;
        return EXIT_PASS;
    }
    char *problem = strdup(recorded);
    problem = problem ? rename_files(problem, files, false) : NULL;
    if (!problem) return fault("out of memory for a problem");
    is = run_text(problem);
    int status = interrupt_check();
    bool same = same_outcome(&was, &is);
    if (!status && !same) print_difference(&was, &is, recorded);
    tally->same += same;
    tally->different += !same;
    free(problem);
    return status;
}

static int compare(const struct job *job, FILE *file)
{
    char line[LINE_MOST];
    struct gridfiles files = { { NULL } };
    struct tally tally = { 0, 0, 0 };
    int status = gridfiles_make(&files);
    for (int i = 0; !status && fgets(line, sizeof line, file);)
        if (*line != '#' && i++ % job->step == 0) status = compare_line(line, job, &files, &tally);
    gridfiles_close(&files, false);
    if (status) return status;
    printf("%d the same, %d different, %d with kernels that are not run\n", tally.same,
           tally.different, tally.not_run);
    return tally.same && !tally.different ? EXIT_PASS : EXIT_CHECK;
}

/* ---- The command ----------------------------------------------------------------------------- */

static void list_kernels(struct job *job)
{
    ra_part part = ra_part_default();
    for (int i = 0; ra_part_at("kernel", i, &part) == RA_OK && job->kernel_count < KERNELS_MOST;
         i++)
        if (part.usable) job->kernels[job->kernel_count++] = part.name;
}

static int read_words(int argc, char **argv, struct job *job)
{
    *job = (struct job){ .path = argv[2], .step = 1 };
    for (int i = 3; i < argc; i++)
        if (!strcmp(argv[i], "--step") && i + 1 < argc) job->step = atoi(argv[++i]);
        else if (job->kernel_count < KERNELS_MOST) job->kernels[job->kernel_count++] = argv[i];
    if (job->step < 1) return refuse("bits: --step takes a number from 1");
    if (!job->kernel_count) list_kernels(job);
    return EXIT_PASS;
}

int main(int argc, char **argv)
{
    struct job job;
    bool records = argc > 2 && !strcmp(argv[1], "record");
    if (argc < 3 || (!records && strcmp(argv[1], "compare") != 0))
        return refuse("usage: bits record|compare FILE [--step N] [KERNEL...]");
    int status = read_words(argc, argv, &job);
    if (status) return status;
    interrupt_catch();
    FILE *file = fopen(job.path, records ? "w" : "r");
    if (!file) return refuse("bits: %s: %s", job.path, strerror(errno));
    status = records ? record(&job, file) : compare(&job, file);
    bool good = !ferror(file);
    if (fclose(file) || !good) status = fault("bits: %s: %s", job.path, strerror(errno));
    return status;
}
