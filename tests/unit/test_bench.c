/* SPDX-License-Identifier: Apache-2.0 */
/* test_bench.c - what a benchmark rests on: medians, ceilings on threads that run at once, rows of
 * results, the rule that nothing is faster than its ceiling, and the lists of suites. Figures
 * themselves are not tested. */
#include "support/test.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "bench/ceilings/ceiling.h"
#include "bench/figures.h"
#include "bench/roof.h"
#include "bench/runner.h"
#include "bench/sampler.h"
#include "bench/spread.h"
#include "bench/suite.h"
#include "harness/problem/system.h"

static void expect_spread(struct spread got, double median, double least, double most)
{
    assert_true(got.median == median && got.least == least && got.most == most);
}

static void medians_are_in_the_middle(void **state)
{
    (void)state;
    expect_spread(spread_of((double[]){ 7.0 }, 1), 7.0, 7.0, 7.0);
    expect_spread(spread_of((double[]){ 9.0, -2.0, 4.0 }, 3), 4.0, -2.0, 9.0);
    expect_spread(spread_of((double[]){ 10.0, 1.0, 4.0, 2.0 }, 4), 3.0, 1.0, 10.0);
}

/* ---- Samplers -------------------------------------------------------------------------------- */

enum { TEAM = 3, SHARE = 2 * CEILING_LINE };

static pthread_barrier_t meeting;
static atomic_uint shares_seen; /* a bit for each */
static unsigned char *first_share;

static double busy_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Passes only if all threads of the team are in it; one is busy long enough for a whole sample. */
static double meet(int64_t rounds, const unsigned char *data, size_t bytes)
{
    double until = busy_seconds() + 0.015;
    if (pthread_barrier_wait(&meeting) == PTHREAD_BARRIER_SERIAL_THREAD)
        while (busy_seconds() < until) {
        }
    pthread_barrier_wait(&meeting);
    if (first_share && bytes == SHARE)
        atomic_fetch_or(&shares_seen, 1u << (data - first_share) / SHARE);
    return 1e6 * (double)rounds;
}

static bool always(void) { return true; }

static void a_team_runs_at_once(void **state)
{
    (void)state;
    const struct ceiling ceiling = {
        .name = "meet", .usable = always, .bytes = CEILING_MEMORY, .work = meet
    };
    struct sampler sampler;
    double rate;
    pthread_barrier_init(&meeting, NULL, TEAM);
    assert_int_equal(sampler_open(&sampler, &ceiling, TEAM, TEAM * SHARE + CEILING_LINE), 0);
    first_share = sampler.data;
    assert_int_equal(sampler_take(&sampler, &rate), 0);
    assert_int_equal(atomic_load(&shares_seen), (1u << TEAM) - 1);
    assert_true(rate > 0.0 && rate * 1e9 <= TEAM * 1e6 * (double)sampler.rounds / 0.015);
    assert_true(sampler.peak >= rate);
    sampler_close(&sampler);
    pthread_barrier_destroy(&meeting);
}

/* Every ceiling is there or says why not, and does the work it says it does: twice the rounds,
 * twice the work. */
static void every_ceiling_works_or_says_why(void **state)
{
    (void)state;
    for (int i = 0; ceiling_at(i); i++) {
        const struct ceiling *ceiling = ceiling_at(i);
        assert_ptr_equal(ceiling_find(ceiling->name), ceiling);
        assert_true(strlen(ceiling->name) < sizeof((struct row *)0)->ceiling);
        if (ceiling_absent(ceiling)) continue;
        void *data = aligned_alloc(64, CEILING_LINE);
        assert_non_null(data);
        memset(data, 1, CEILING_LINE);
        double once = ceiling->work(1, data, CEILING_LINE);
        assert_true(once > 0.0 && ceiling->work(2, data, CEILING_LINE) == 2.0 * once);
        free(data);
    }
    assert_null(ceiling_find("fma"));
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void rows_survive_a_file(void **state)
{
    (void)state;
    struct row row, back;
    char *line = NULL;
    size_t bytes;
    row_default(&row);
    row_machine(&row, "");
    strcpy(row.problem, "blocks:64;local=\"4\\\" n=16");
    row.ranks = 4;
    row.seconds = 0.125;
    FILE *stream = open_memstream(&line, &bytes);
    row_write(stream, &row);
    fclose(stream);
    assert_true(row_read(line, &back));
    assert_memory_equal(&row, &back, offsetof(struct row, seconds_least));
    assert_true(isnan(back.seconds_least) && back.cores == row.cores);
    assert_string_equal(back.device_name, row.device_name);
    for (size_t cut = 0; cut + 2 < bytes; cut += 7) { /* the end "}\n" makes it whole */
        char *piece = strndup(line, cut);
        assert_false(row_read(piece, &back));
        free(piece);
    }
    assert_true(
        row_read("{\"schema\": 1, \"later\": [1, 2], \"more\": \"x\", \"ranks\": 3}", &back));
    assert_int_equal(back.ranks, 3);
    free(line);
}

/* ---- Truth ----------------------------------------------------------------------------------- */

static struct row row_of(const char *kind, int threads, double rate, double peak)
{
    struct row row;
    row_default(&row);
    snprintf(row.kind, sizeof row.kind, "%s", kind);
    strcpy(row.ceiling, "roof");
    row.ranks = 1;
    row.cores = 8;
    row.threads = threads;
    row.rate_most = rate;
    row.ceiling_peak = peak;
    return row;
}

static int check(struct row row, struct row other)
{
    struct rows rows = { 0 };
    assert_int_equal(rows_add(&rows, &other), 0);
    int status = roof_check(&row, &rows);
    rows_free(&rows);
    return status;
}

static void nothing_is_faster_than_its_ceiling(void **state)
{
    (void)state;
    struct row roof = row_of("ceiling", 2, 120.0, 120.0);
    assert_int_equal(check(row_of("attention", 2, 125.0, 100.0), roof), EXIT_PASS); /* some noise */
    assert_int_equal(check(row_of("attention", 2, 127.0, 100.0), roof), EXIT_CHECK);
    assert_int_equal(check(row_of("attention", 4, 110.0, 100.0), roof), EXIT_CHECK);
    assert_int_equal(check(row_of("decode", 2, 110.0, 100.0), roof), EXIT_CHECK); /* other bytes */
    struct row beside = row_of("attention", 2, 50.0, 120.0); /* its samples are as good */
    assert_int_equal(check(row_of("attention", 2, 125.0, 100.0), beside), EXIT_PASS);
    struct row bare = row_of("attention", 2, 1e9, NAN);
    *bare.ceiling = 0;
    assert_int_equal(check(bare, roof), EXIT_PASS);
}

/* ---- Suites ---------------------------------------------------------------------------------- */

static void list_of(const struct suite *suite, bool quick, struct configurations *list)
{
    static struct options wishes;
    trial_default(&wishes.trial);
    *list = (struct configurations){ .wishes = &wishes, .quick = quick };
    suite->list(list);
    assert_false(list->lost);
    assert_true(list->count > 0);
}

/* Every problem of every suite is understood, and fits its row. */
static void every_configuration_is_a_problem(void **state)
{
    (void)state;
    for (int s = 0; suite_at(s); s++)
        for (int quick = 0; quick < 2; quick++) {
            struct configurations list;
            list_of(suite_at(s), quick, &list);
            assert_ptr_equal(suite_find(suite_at(s)->name), suite_at(s));
            for (int i = 0; i < list.count; i++) {
                const char *problem = list.at[i].problem;
                bool ceiling = !strncmp(problem, "ceiling:", 8);
                bool missing = strstr(problem, "Distributed") || strstr(problem, " mpi") ||
                               strstr(problem, " stream");
                struct trial trial;
                if (ceiling || missing) continue; /* a transport or strategy may be absent */
                assert_int_equal(trial_parse(&trial, problem), EXIT_PASS);
                trial_clear(&trial);
            }
            free(list.at);
        }
}

static int times_listed;

static void list_nothing(struct configurations *list)
{
    (void)list;
    times_listed++;
}

/* The estimate and the run share one list: making it asks the library for hundreds of plans. */
static void a_suite_is_listed_once(void **state)
{
    (void)state;
    static const struct suite empty = { .name = "empty", .list = list_nothing };
    struct options options = { .quiet = true };
    assert_int_equal(runner_run(&empty, &options), EXIT_PASS);
    assert_int_equal(times_listed, 1);
}

static void every_system_is_compared(void **state)
{
    (void)state;
    struct configurations list;
    list_of(suite_find("compare"), false, &list);
    for (int i = 0; system_at(i); i++) {
        bool there = false;
        for (int c = 0; c < list.count; c++)
            there |= !strcmp(list.at[c].section, "systems") &&
                     !strcmp(list.at[c].name, system_at(i)->name);
        assert_true(there);
    }
    free(list.at);
}

/* Every figure of the reports has a configuration in the suite it names. */
static void every_figure_is_measured(void **state)
{
    (void)state;
    for (int i = 0; figure_at(i); i++) {
        const struct figure *figure = figure_at(i);
        struct configurations list;
        struct rows rows = { 0 };
        assert_non_null(suite_find(figure->suite));
        list_of(suite_find(figure->suite), false, &list);
        for (int c = 0; c < list.count; c++) {
            struct row row;
            row_default(&row);
            strcpy(row.section, list.at[c].section);
            strcpy(row.problem, list.at[c].problem);
            strcpy(row.options, list.at[c].options);
            row.batch = row.queries = 1;
            row.seconds = row.bytes_per_rank = row.tokens_per_second = 1.0;
            assert_int_equal(rows_add(&rows, &row), 0);
        }
        assert_true(isfinite(figure_ours(figure, &rows)));
        assert_non_null(system_find(figure->system));
        rows_free(&rows);
        free(list.at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(medians_are_in_the_middle),
        cmocka_unit_test(a_team_runs_at_once),
        cmocka_unit_test(every_ceiling_works_or_says_why),
        cmocka_unit_test(rows_survive_a_file),
        cmocka_unit_test(nothing_is_faster_than_its_ceiling),
        cmocka_unit_test(every_configuration_is_a_problem),
        cmocka_unit_test(a_suite_is_listed_once),
        cmocka_unit_test(every_system_is_compared),
        cmocka_unit_test(every_figure_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
