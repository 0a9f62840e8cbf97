/* SPDX-License-Identifier: Apache-2.0 */
/* test_empty.c - a cache without keys: every row of the result is 0 and its LSE -inf, and gradients
 * are 0, for every kernel, strategy, partition and number of ranks. */
#include <math.h>

#include "support/fixture.h"
#include "support/walk.h"

static void expect_nothing(struct fixture *fixture)
{
    const struct trial *t = &fixture->trial;
    for (int64_t p = 0; p < t->q_len; p++)
        for (int64_t h = 0; h < t->q_heads; h++) {
            if (fixture_number(fixture, TENSOR_LSE, 0, p, h, 0) != -INFINITY)
                fixture_fail(fixture, "an LSE");
            for (int64_t d = 0; d < t->value_dim; d++)
                if (fixture_number(fixture, TENSOR_OUT, 0, p, h, d) != 0.0)
                    fixture_fail(fixture, "a result");
            for (int64_t d = 0; d < t->dim && t->backward; d++)
                if (fixture_number(fixture, TENSOR_DQ, 0, p, h, d) != 0.0)
                    fixture_fail(fixture, "a gradient");
        }
}

static void no_keys_give_nothing(void **state)
{
    (void)state;
    static const char *const patterns[] = { "full", "causal", "window:4" };
    static const char *const ways[] = { "ring=1", "ring=3 zigzag", "ring=2 allgather",
                                        "ring=2 ulysses", "ring=4 2d:2x2" };
    ra_part kernel;
    for (int k = 0; walk_part("kernel", k, &kernel); k++) {
        if (!kernel.usable) continue;
        for (int p = 0; p < TEST_COUNT(patterns); p++)
            for (int w = 0; w < TEST_COUNT(ways); w++)
                for (int dtype = 0; dtype < 3; dtype++) {
                    static const char *const dtypes[] = { "f32", "bf16", "f16" };
                    if (!(kernel.dtypes & 1u << dtype)) continue;
                    struct fixture fixture;
                    fixture_open(&fixture, "%s n=5 nk=0 h=4/2 d=16 %s %s backward kernel=%s",
                                 patterns[p], dtypes[dtype], ways[w], kernel.name);
                    fixture_run(&fixture);
                    expect_nothing(&fixture);
                    fixture_close(&fixture);
                }
    }
}

/* Keys that come later are folded as into any other state. */
static void a_cache_starts_empty(void **state)
{
    (void)state;
    enum { HEADS = 2, DIM = 4, ROW = HEADS * DIM };
    float q[ROW], k[3 * ROW], out[ROW], lse[HEADS], want[ROW];
    for (int i = 0; i < 3 * ROW; i++) k[i] = sinf((float)i);
    memcpy(q, k, sizeof q);
    ra_problem problem = ra_problem_default();
    problem.q_len = 1;
    problem.k_len = RA_NO_KEYS;
    problem.q_heads = HEADS;
    problem.dim = DIM;
    ra_const_tensor qt = ra_const_tensor_packed(q), kt = ra_const_tensor_packed(k);
    ra_tensor to = ra_tensor_packed(out);
    ra_state *cache;
    assert_ok(ra_state_create(&problem, NULL, &cache));
    assert_int_equal(ra_state_fold(cache, &qt, &kt, &kt, 0, 1), RA_ERR_ARGUMENT); /* it has none */
    assert_ok(ra_state_fold(cache, &qt, &kt, &kt, 0, 0));
    assert_ok(ra_state_finish(cache, &to, lse));
    for (int i = 0; i < ROW; i++) assert_true(out[i] == 0.0f);
    for (int i = 0; i < HEADS; i++) assert_true(lse[i] == -INFINITY);
    assert_ok(ra_state_set_keys(cache, 3));
    assert_ok(ra_state_fold(cache, &qt, &kt, &kt, 0, 3));
    assert_ok(ra_state_finish(cache, &to, lse));
    problem.k_len = 3;
    assert_ok(ra_attention(&problem, q, k, k, want, NULL));
    for (int i = 0; i < ROW; i++) assert_true(fabsf(out[i] - want[i]) < 1e-6f);
    ra_state_destroy(cache);
}

/* 0 stays what it was: as many keys as queries. Other negative numbers are none. */
static void other_lengths_mean_what_they_meant(void **state)
{
    (void)state;
    ra_problem problem = ra_problem_default();
    ra_plan *plan;
    problem.q_len = 7;
    problem.q_heads = 1;
    problem.dim = 4;
    assert_ok(ra_plan_create(NULL, &problem, NULL, &plan));
    assert_int_equal(ra_plan_k_count(plan), 7);
    ra_plan_destroy(plan);
    problem.k_len = RA_NO_KEYS;
    assert_ok(ra_plan_create(NULL, &problem, NULL, &plan));
    assert_int_equal(ra_plan_k_count(plan), 0);
    ra_plan_destroy(plan);
    problem.k_len = -2;
    assert_fails(RA_ERR_ARGUMENT, "k_len is -2", ra_plan_create(NULL, &problem, NULL, &plan));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_keys_give_nothing),
        cmocka_unit_test(a_cache_starts_empty),
        cmocka_unit_test(other_lengths_mean_what_they_meant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
