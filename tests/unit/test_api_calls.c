/* SPDX-License-Identifier: Apache-2.0 */
/* test_api_calls.c - attention itself: wrong tensors, states and merges are refused with a
 * sentence and no change; progress; attention in one call. */
#include "support/desk.h"

#include <math.h>
#include <stdlib.h>

/* ---- Attending ------------------------------------------------------------------------------- */

static void wrong_tensors_are_refused(void **state)
{
    (void)state;
    struct desk d;
    desk_open(&d, 1);
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_attend(NULL, &d.attend));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_attend(d.plan, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_gradient(NULL, &d.gradient));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_gradient(d.plan, NULL));
#define REFUSE(call, field, value, sentence)                                                       \
    do {                                                                                           \
        struct desk spoilt = d;                                                                    \
        spoilt.field = value;                                                                      \
        assert_fails(RA_ERR_ARGUMENT, sentence, call);                                             \
    } while (0)
    REFUSE(ra_attend(d.plan, &spoilt.attend), attend.size, 0, "size is not set");
    REFUSE(ra_attend(d.plan, &spoilt.attend), attend.q.data, NULL, "q: no data");
    REFUSE(ra_attend(d.plan, &spoilt.attend), attend.k.data, NULL, "k: no data");
    REFUSE(ra_attend(d.plan, &spoilt.attend), attend.v.data, NULL, "v: no data");
    REFUSE(ra_attend(d.plan, &spoilt.attend), attend.out.data, NULL, "out: no data");
    REFUSE(ra_attend(d.plan, &spoilt.attend), attend.q.data, (char *)d.q + 1,
           "q: data is not aligned");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.size, 0, "size is not set");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.lse, NULL, "lse is required");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.q.data, NULL, "q: no data");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.out.data, NULL, "out: no data");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.dout.data, NULL, "dout: no data");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.dq.data, NULL, "dq: no data");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.dk.data, NULL, "dk: no data");
    REFUSE(ra_gradient(d.plan, &spoilt.gradient), gradient.dv.data, NULL, "dv: no data");
#undef REFUSE
    for (int i = 0; i < 96; i++) assert_true(d.out[i] == 5.0f && d.dq[i] == 5.0f);
    assert_ok(ra_attend(d.plan, &d.attend)); /* wrong calls did no harm */
    assert_ok(ra_gradient(d.plan, &d.gradient));
    assert_true(d.out[0] == 0.0f && d.dq[0] == 0.0f);
    desk_close(&d);
}

static void plans_that_cannot_run_say_so(void **state)
{
    (void)state;
    struct desk d;
    ra_plan *asked;
    ra_problem problem = desk_problem();
    desk_open(&d, 0);
    assert_ok(ra_plan_create(NULL, &problem, NULL, &asked));
    assert_fails(RA_ERR_ARGUMENT, "made without a group", ra_attend(asked, &d.attend));
    assert_fails(RA_ERR_ARGUMENT, "made without backward", ra_gradient(d.plan, &d.gradient));
    ra_plan_destroy(asked);
    desk_close(&d);
}

static int stop_at_once(void *context, double done)
{
    int *calls = context;
    (*calls)++;
    return done >= 0.0;
}

static int go_on(void *context, double done)
{
    double *last = context;
    if (done < *last || done > 1.0) *last = 1e9; /* never falls */
    else *last = done;
    return 0;
}

static void progress_ends_at_one(void **state)
{
    (void)state;
    struct desk d;
    double last = 0.0;
    desk_open(&d, 0);
    d.attend.progress = go_on;
    d.attend.context = &last;
    assert_ok(ra_attend(d.plan, &d.attend));
    assert_true(last == 1.0);
    desk_close(&d);
}

static void progress_can_stop_a_long_run(void **state)
{
    (void)state;
    ra_group *group;
    ra_plan *plan;
    ra_problem problem = desk_problem();
    int calls = 0;
    problem.q_len = 4096;
    problem.dim = 64;
    float *data = calloc(4096 * 2 * 64, sizeof *data), *out = calloc(4096 * 2 * 64, sizeof *out);
    ra_plan_options options = ra_plan_options_default();
    options.kernel = "scalar";
    assert_ok(ra_group_create_local(1, NULL, &group));
    assert_ok(ra_plan_create(group, &problem, &options, &plan));
    ra_attend_args args = ra_attend_args_default();
    args.q = args.k = args.v = ra_const_tensor_packed(data);
    args.out = ra_tensor_packed(out);
    args.progress = stop_at_once;
    args.context = &calls;
    assert_fails(RA_ERR_ABORTED, "progress", ra_attend(plan, &args));
    assert_int_equal(calls, 1);
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    free(data);
    free(out);
}

/* The same bits as with a plan, and nothing is left behind. */
static void attention_in_one_call(void **state)
{
    (void)state;
    struct desk d;
    float out[96], lse[24];
    size_t before = ra_allocated_bytes();
    desk_open(&d, false);
    for (int i = 0; i < 96; i++) d.q[i] = d.k[i] = d.v[i] = sinf((float)i);
    assert_ok(ra_attend(d.plan, &d.attend));
    ra_problem problem = desk_problem();
    assert_ok(ra_attention(&problem, d.q, d.k, d.v, out, lse));
    assert_memory_equal(out, d.out, sizeof out);
    assert_memory_equal(lse, d.lse, sizeof lse);
    memset(out, 0, sizeof out);
    assert_ok(ra_attention(&problem, d.q, d.k, d.v, out, NULL));
    assert_memory_equal(out, d.out, sizeof out);
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_attention(NULL, d.q, d.k, d.v, out, NULL));
    assert_fails(RA_ERR_ARGUMENT, "k: no data", ra_attention(&problem, d.q, NULL, d.v, out, NULL));
    assert_fails(RA_ERR_ARGUMENT, "out: no data",
                 ra_attention(&problem, d.q, d.k, d.v, NULL, NULL));
    problem.dim = 0;
    assert_fails(RA_ERR_ARGUMENT, "dim is 0", ra_attention(&problem, d.q, d.k, d.v, out, NULL));
    desk_close(&d);
    assert_int_equal(ra_allocated_bytes(), before);
}

/* ---- State ----------------------------------------------------------------------------------- */

static void wrong_states_are_refused(void **state)
{
    (void)state;
    ra_problem problem = desk_problem();
    ra_state *s = DESK_KEPT;
    float data[96] = { 0 }, lse[24];
    ra_tensor to = ra_tensor_packed(data), nowhere = ra_tensor_packed(NULL);
    ra_const_tensor t = ra_tensor_read(to), hollow = ra_tensor_read(nowhere);
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_create(NULL, NULL, &s));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_create(&problem, NULL, NULL));
    assert_fails(RA_ERR_ARGUMENT, "abacus", ra_state_create(&problem, "abacus", &s));
    assert_ptr_equal(s, DESK_KEPT);
    assert_ok(ra_state_create(&problem, NULL, &s));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_init(NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_fold(NULL, &t, &t, &t, 0, 12));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_fold(s, NULL, &t, &t, 0, 12));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_fold(s, &t, NULL, &t, 0, 12));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_fold(s, &t, &t, NULL, 0, 12));
    assert_fails(RA_ERR_ARGUMENT, "k: no data", ra_state_fold(s, &t, &hollow, &t, 0, 12));
    assert_fails(RA_ERR_ARGUMENT, "of 12", ra_state_fold(s, &t, &t, &t, INT64_MAX, 1));
    assert_fails(RA_ERR_ARGUMENT, "of 12", ra_state_fold(s, &t, &t, &t, 1, INT64_MAX));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_merge(s, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_merge(NULL, s));
    assert_fails(RA_ERR_ARGUMENT, "state: merged with itself", ra_state_merge(s, s));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_finish(NULL, &to, lse));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_finish(s, NULL, lse));
    assert_fails(RA_ERR_ARGUMENT, "out: no data", ra_state_finish(s, &nowhere, lse));
    assert_ok(ra_state_finish(s, &to, NULL));
    ra_state_destroy(s);
}

static void wrong_merges_are_refused(void **state)
{
    (void)state;
    float out[4] = { 1, 2, 3, 4 }, lse[2] = { 0, 0 };
    assert_fails(RA_ERR_ARGUMENT, "merge", ra_partial_merge(-1, 2, out, lse, out, lse));
    assert_fails(RA_ERR_ARGUMENT, "merge", ra_partial_merge(2, 0, out, lse, out, lse));
    assert_fails(RA_ERR_ARGUMENT, "merge", ra_partial_merge(2, 2, NULL, lse, out, lse));
    assert_fails(RA_ERR_ARGUMENT, "merge", ra_partial_merge(2, 2, out, NULL, out, lse));
    assert_fails(RA_ERR_ARGUMENT, "merge", ra_partial_merge(2, 2, out, lse, NULL, lse));
    assert_fails(RA_ERR_ARGUMENT, "merge", ra_partial_merge(2, 2, out, lse, out, NULL));
    assert_true(out[0] == 1 && out[3] == 4 && lse[0] == 0);
    assert_ok(ra_partial_merge(0, 2, out, lse, out, lse));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_tensors_are_refused), cmocka_unit_test(plans_that_cannot_run_say_so),
        cmocka_unit_test(progress_ends_at_one),      cmocka_unit_test(progress_can_stop_a_long_run),
        cmocka_unit_test(attention_in_one_call),     cmocka_unit_test(wrong_states_are_refused),
        cmocka_unit_test(wrong_merges_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
