/* SPDX-License-Identifier: Apache-2.0 */
/* test_busy.c - a handle serves one thread at a time: a second one is refused with a sentence, and
 * harms neither the call that is running nor later ones. */
#include <math.h>
#include <pthread.h>

#include "support/test.h"

enum { TOKENS = 8, HEADS = 2, DIM = 4, NUMBERS = TOKENS * HEADS * DIM };

struct desk {
    ra_group *group;
    ra_plan *plan, *other;
    float numbers[8][NUMBERS], lse[TOKENS * HEADS];
    ra_attend_args forward;
    ra_gradient_args backward;
    int calls;       /* of the progress callback */
    char wrong[160]; /* what the second thread met besides refusal; checked by the first */
};

static ra_problem small_problem(void)
{
    ra_problem problem = ra_problem_default();
    problem.q_len = TOKENS;
    problem.q_heads = HEADS;
    problem.dim = DIM;
    return problem;
}

static void desk_open(struct desk *d)
{
    ra_problem problem = small_problem();
    ra_plan_options options = ra_plan_options_default();
    memset(d, 0, sizeof *d);
    options.backward = 1;
    assert_ok(ra_group_create_local(1, NULL, &d->group));
    assert_ok(ra_plan_create(d->group, &problem, &options, &d->plan));
    assert_ok(ra_plan_create(d->group, &problem, &options, &d->other));
    d->forward = ra_attend_args_default();
    d->forward.q = d->forward.k = d->forward.v = ra_const_tensor_packed(d->numbers[0]);
    d->forward.out = ra_tensor_packed(d->numbers[1]);
    d->forward.lse = d->lse;
    d->backward = ra_gradient_args_default();
    d->backward.q = d->backward.k = d->backward.v = ra_const_tensor_packed(d->numbers[0]);
    d->backward.out = ra_const_tensor_packed(d->numbers[1]);
    d->backward.dout = ra_const_tensor_packed(d->numbers[0]);
    d->backward.lse = d->lse;
    d->backward.dq = ra_tensor_packed(d->numbers[2]);
    d->backward.dk = ra_tensor_packed(d->numbers[3]);
    d->backward.dv = ra_tensor_packed(d->numbers[4]);
}

static void desk_close(struct desk *d)
{
    ra_plan_destroy(d->other);
    ra_plan_destroy(d->plan);
    ra_group_destroy(d->group);
}

/* ---- Plans and groups ------------------------------------------------------------------------ */

static void expect_busy(struct desk *d, ra_status status, const char *call)
{
    if (status == RA_ERR_BUSY && strstr(ra_last_error(), "one thread at a time")) return;
    snprintf(d->wrong, sizeof d->wrong, "%s: %s: %.80s", call, ra_status_name(status),
             ra_last_error());
}

/* Every call that plans, computes or sends, on a second thread. */
static void *intrude(void *context)
{
    struct desk *d = context;
    ra_problem problem = small_problem();
    ra_attend_args forward = ra_attend_args_default(); /* refused before they are looked at */
    ra_gradient_args backward = ra_gradient_args_default();
    ra_machine machine = ra_machine_default();
    ra_plan *plan;
    ra_state *state;
    char mine = 1, all;
    expect_busy(d, ra_attend(d->plan, &forward), "ra_attend");
    expect_busy(d, ra_attend(d->other, &forward), "ra_attend of another plan");
    expect_busy(d, ra_gradient(d->plan, &backward), "ra_gradient");
    expect_busy(d, ra_plan_create(d->group, &problem, NULL, &plan), "ra_plan_create");
    expect_busy(d, ra_group_measure(d->group, &problem, NULL, &machine), "ra_group_measure");
    expect_busy(d, ra_group_share(d->group, &mine, &all, 1), "ra_group_share");
    expect_busy(d, ra_group_trim(d->group), "ra_group_trim");
    if (ra_state_create(&problem, NULL, &state) != RA_OK) return NULL;
    expect_busy(d, ra_state_reduce(state, d->group), "ra_state_reduce");
    ra_state_destroy(state);
    return NULL;
}

static int on_progress(void *context, double done)
{
    struct desk *d = context;
    pthread_t thread;
    (void)done;
    if (pthread_create(&thread, NULL, intrude, d) == 0 && pthread_join(thread, NULL) == 0)
        d->calls++;
    return 0;
}

static void a_second_thread_is_refused(void **state)
{
    (void)state;
    struct desk d;
    desk_open(&d);
    d.forward.progress = d.backward.progress = on_progress;
    d.forward.context = d.backward.context = &d;
    assert_ok(ra_attend(d.plan, &d.forward));
    assert_ok(ra_gradient(d.plan, &d.backward));
    assert_string_equal(d.wrong, "");
    assert_true(d.calls >= 2);
    /* The group was not aborted, and is free again, also after calls that are refused. */
    d.forward.progress = NULL;
    assert_int_equal(ra_attend(d.plan, NULL), RA_ERR_ARGUMENT);
    desk_close(&d);
    desk_open(&d);
    assert_ok(ra_attend(d.plan, &d.forward));
    assert_ok(ra_attend(d.other, &d.forward));
    desk_close(&d);
}

/* ---- Races: nothing but success and refusal -------------------------------------------------- */

enum { ROUNDS = 300 };

struct racer {
    struct desk *desk;
    ra_state *state;
    float out[NUMBERS];
    int done, busy, wrong;
};

static void count(struct racer *r, ra_status status)
{
    if (status == RA_OK) r->done++;
    else if (status == RA_ERR_BUSY) r->busy++;
    else r->wrong++;
}

static void *run_often(void *context)
{
    struct racer *r = context;
    ra_attend_args args = r->desk->forward;
    args.out = ra_tensor_packed(r->out);
    args.lse = NULL;
    for (int i = 0; i < ROUNDS; i++) count(r, ra_attend(r->desk->plan, &args));
    return NULL;
}

static void race(void *(*body)(void *), struct racer racers[2])
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, body, &racers[i]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(racers[i].wrong, 0);
        assert_int_equal(racers[i].done + racers[i].busy, ROUNDS);
    }
    assert_true(racers[0].done + racers[1].done > 0);
}

static void two_threads_share_a_plan(void **state)
{
    (void)state;
    struct desk d;
    desk_open(&d);
    struct racer racers[2] = { { .desk = &d }, { .desk = &d } };
    race(run_often, racers);
    desk_close(&d);
}

static void *fold_often(void *context)
{
    struct racer *r = context;
    float zero[HEADS * DIM * TOKENS] = { 0 };
    ra_const_tensor t = ra_const_tensor_packed(zero);
    for (int i = 0; i < ROUNDS; i++) count(r, ra_state_fold(r->state, &t, &t, &t, 0, 1));
    return NULL;
}

/* Every fold adds one key of score 0, and none is lost: the LSE is the log of their number. */
static void two_threads_share_a_state(void **state)
{
    (void)state;
    ra_problem problem = small_problem();
    ra_state *shared;
    float out[NUMBERS], lse[TOKENS * HEADS];
    ra_tensor to = ra_tensor_packed(out);
    assert_ok(ra_state_create(&problem, NULL, &shared));
    struct racer racers[2] = { { .state = shared }, { .state = shared } };
    race(fold_often, racers);
    assert_ok(ra_state_finish(shared, &to, lse));
    double folded = exp((double)lse[0]);
    assert_true(fabs(folded - (racers[0].done + racers[1].done)) < 0.01);
    ra_state_destroy(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_thread_is_refused),
        cmocka_unit_test(two_threads_share_a_plan),
        cmocka_unit_test(two_threads_share_a_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
