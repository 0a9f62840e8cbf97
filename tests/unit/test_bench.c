/* SPDX-License-Identifier: Apache-2.0 */
/* test_bench.c - what a benchmark rests on: medians, ceilings on threads that run at once, and the
 * rule that nothing is faster than its ceiling. Figures themselves are not tested. */
#include "support/test.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "bench/ceilings/ceiling.h"
#include "bench/record.h"
#include "bench/sampler.h"
#include "bench/spread.h"
#include "bench/truth.h"

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
        assert_true(strlen(ceiling->name) < sizeof((struct record *)0)->name);
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

/* ---- Truth ----------------------------------------------------------------------------------- */

static struct record row(const char *kind, int threads, double rate, double peak)
{
    return (struct record){ .kind = kind,
                            .name = "kernel",
                            .threads = threads,
                            .runs = 1,
                            .dtype = "f32",
                            .pass = "forward",
                            .pattern = "full",
                            .unit = "GFLOP/s",
                            .rate = { rate, rate, rate },
                            .ceiling = "roof",
                            .peak = peak };
}

static int check(const struct record *rows, int count)
{
    struct records records = { 0 };
    for (int i = 0; i < count; i++) assert_int_equal(records_add(&records, &rows[i]), 0);
    int status = truth_check(&records);
    records_free(&records);
    return status;
}

static void nothing_is_faster_than_its_ceiling(void **state)
{
    (void)state;
    struct record roof = { .kind = "ceiling", .name = "roof", .threads = 2, .peak = 120.0 };
    struct record rows[] = { roof, row("attention", 2, 125.0, 100.0) };
    assert_int_equal(check(rows, 2), EXIT_PASS); /* the best peak counts, and some noise */
    rows[1] = row("attention", 2, 127.0, 100.0);
    assert_int_equal(check(rows, 2), EXIT_CHECK);
    rows[1] = row("attention", 1, 110.0, 100.0); /* other threads, other ceiling */
    assert_int_equal(check(rows, 2), EXIT_CHECK);
    rows[1] = row("decode", 2, 110.0, 100.0); /* other bytes, too */
    assert_int_equal(check(rows, 2), EXIT_CHECK);
    rows[0] = row("attention", 2, 50.0, 120.0); /* samples beside another row are as good */
    rows[1] = row("attention", 2, 125.0, 100.0);
    assert_int_equal(check(rows, 2), EXIT_PASS);
    rows[1].ceiling = NULL;
    assert_int_equal(check(rows, 2), EXIT_PASS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(medians_are_in_the_middle),
        cmocka_unit_test(a_team_runs_at_once),
        cmocka_unit_test(every_ceiling_works_or_says_why),
        cmocka_unit_test(nothing_is_faster_than_its_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
