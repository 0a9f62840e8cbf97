/* SPDX-License-Identifier: Apache-2.0 */
/* test_deadlock.c - ranks that all live and all wait, because they run different plans: each
 * waits for what the other will never send. That too must end within the timeout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/crew.h"

#define TIMEOUT 0.3
#define SLACK 3.0

enum { RANKS = 2, TOKENS = 8, DIM = 4 };

struct rank {
    ra_group *group;
    int rank;
    ra_status status;
    char sentence[1024];
    atomic_bool done;
};

static ra_status make_plan(ra_group *group, ra_plan **plan)
{
    ra_problem problem = ra_problem_default();
    problem.q_len = TOKENS;
    problem.q_heads = 1;
    problem.dim = DIM;
    return ra_plan_create(group, &problem, NULL, plan);
}

static ra_status attend(ra_plan *plan)
{
    float in[TOKENS * DIM] = { 0 }, out[TOKENS * DIM];
    ra_attend_args args = ra_attend_args_default();
    args.q = args.k = args.v = ra_const_tensor_packed(in);
    args.out = ra_tensor_packed(out);
    return ra_attend(plan, &args);
}

/* Both run the first plan; then rank 0 goes on to a second one, and rank 1 does not. */
static void *run(void *argument)
{
    struct rank *self = argument;
    ra_plan *first = NULL, *second = NULL;
    self->status = make_plan(self->group, &first);
    if (self->status == RA_OK) self->status = make_plan(self->group, &second);
    if (self->status == RA_OK) self->status = attend(first);
    if (self->status == RA_OK) self->status = attend(self->rank == 0 ? second : first);
    snprintf(self->sentence, sizeof self->sentence, "%s", ra_last_error());
    ra_plan_destroy(first);
    ra_plan_destroy(second);
    atomic_store(&self->done, true);
    return NULL;
}

static bool all_done(const struct rank *ranks)
{
    return atomic_load(&ranks[0].done) && atomic_load(&ranks[1].done);
}

static void ranks_that_run_different_plans_end(void **state)
{
    (void)state;
    ra_group *groups[RANKS];
    struct rank ranks[RANKS];
    pthread_t threads[RANKS];
    ra_group_options options = ra_group_options_default();
    options.timeout = TIMEOUT;
    options.threads = 1;
    assert_int_equal(ra_group_create_local(RANKS, &options, groups), RA_OK);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (struct rank){ .group = groups[i], .rank = i };
        assert_int_equal(pthread_create(&threads[i], NULL, run, &ranks[i]), 0);
    }
    double until = crew_now() + TIMEOUT + SLACK;
    while (!all_done(ranks) && crew_now() < until) crew_sleep(0.001);
    bool in_time = all_done(ranks);
    if (!in_time) ra_group_abort(groups[0], "the test lost patience");
    for (int i = 0; i < RANKS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < RANKS; i++) ra_group_destroy(groups[i]);
    if (!in_time) fail_msg("both ranks wait for one another without end");
    for (int i = 0; i < RANKS; i++) {
        char self[32];
        snprintf(self, sizeof self, "rank %d, hop ", i);
        assert_true(ranks[i].status != RA_OK);
        assert_int_equal(strncmp(ranks[i].sentence, self, strlen(self)), 0);
    }
    assert_int_equal(ra_allocated_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ranks_that_run_different_plans_end) };
    crew_watchdog(110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
