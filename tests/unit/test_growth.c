/* SPDX-License-Identifier: Apache-2.0 */
/* test_growth.c - planning one rank of a ring takes a time that grows with the ranks, not with
 * their square, and is short enough to end soon after a signal. CPU time, the least of a few tries:
 * other work on the machine does not count, but it empties caches. So it is tried again, a few
 * times, where it takes too long. */
#include "support/test.h"

#include <math.h>
#include <time.h>

enum { ROUNDS = 5, TRIES = 3, SHARD = 64, FEW = 512, MANY = 4096, MOST = 40 };

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Of planning the middle rank, forward and backward. */
static double plan_seconds(const char *text, const char *partition, int ranks)
{
    ra_problem problem = ra_problem_default();
    ra_plan_options options = ra_plan_options_default();
    ra_pattern *pattern;
    double least = 1e9;
    assert_ok(ra_pattern_parse(text, &pattern));
    problem.pattern = pattern;
    problem.q_len = (int64_t)ranks * SHARD;
    problem.q_heads = 4;
    problem.kv_heads = 2;
    problem.dim = 64;
    options.ranks = ranks;
    options.rank = ranks / 2;
    options.partition = partition;
    options.backward = 1;
    for (int i = 0; i < TRIES; i++) {
        ra_plan *plan;
        double start = cpu_seconds();
        assert_ok(ra_plan_create(NULL, &problem, &options, &plan));
        double seconds = cpu_seconds() - start;
        ra_plan_destroy(plan);
        if (seconds < least) least = seconds;
    }
    ra_pattern_destroy(pattern);
    return least;
}

/* Eight times the ranks: eight times as long, and up to 26 times where the larger plan leaves the
 * caches; the square would be 64 times. */
static void planning_grows_with_the_ranks(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "full",       "causal",    "prefix:1000",         "full;docs=0,9000,9000,32768",
        "window:500", "window:40", "dilated:128/1,512/4", "dilated:100/1,300/2,700/6;causal",
    };
    static const char *const partitions[] = { "contiguous", "zigzag", "striped" };
    for (int i = 0; i < TEST_COUNT(patterns); i++)
        for (int p = 0; p < TEST_COUNT(partitions); p++) {
            bool documents = strstr(patterns[i], "docs=") != NULL;
            char text[64];
            snprintf(text, sizeof text, "%s", patterns[i]);
            if (documents) snprintf(text, sizeof text, "full;docs=0,9000,9000,%d", MANY * SHARD);
            /* Shards that interleave make long plans of dilated: half a second, ten times that with
             * a sanitizer. */
            double limit = strcmp(partitions[p], "striped") ? 1.0 : 10.0;
            double few = 1e9, many = 1e9;
            for (int round = 0; round < ROUNDS && (many > MOST * few || many > limit); round++) {
                few = fmin(few, plan_seconds(patterns[i], partitions[p], FEW));
                many = fmin(many, plan_seconds(text, partitions[p], MANY));
            }
            if (many > MOST * few || many > limit)
                fail_msg("%s, %s: %.2g s for %d ranks, %.2g s for %d", text, partitions[p], few,
                         (int)FEW, many, (int)MANY);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planning_grows_with_the_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
