/* SPDX-License-Identifier: Apache-2.0 */
/* test_growing.c - a plan for a capacity, whose runs say how many keys there are: each batch item
 * is as one that has so many keys and no more, whatever is in the memory after them.
 * RINGATTN_TEST_DEVICE names another device than the CPU. */
#include <math.h>
#include <stdlib.h>

#include "support/test.h"

enum { BATCH = 3, HEADS = 4, KV_HEADS = 2, DIM = 16, MOST_QUERIES = 5 };
enum { Q_ROW = HEADS * DIM, K_ROW = KV_HEADS * DIM };

/* Queries, keys and values of all batch items, and what a call writes. */
struct numbers {
    int queries;
    int64_t capacity;
    float *q, *k, *v, *out, *lse;
};

static float *fill(int64_t count, float step)
{
    float *to = malloc((size_t)count * sizeof *to + 1);
    assert_non_null(to);
    for (int64_t i = 0; i < count; i++) to[i] = 1.5f * sinf(step * (float)(i % 9973 + 1));
    return to;
}

static struct numbers numbers_of(int queries, int64_t capacity)
{
    return (struct numbers){ .queries = queries,
                             .capacity = capacity,
                             .q = fill(BATCH * queries * Q_ROW, 0.7f),
                             .k = fill(BATCH * capacity * K_ROW, 1.3f),
                             .v = fill(BATCH * capacity * K_ROW, 1.9f),
                             .out = fill(BATCH * queries * Q_ROW, 0.1f),
                             .lse = fill(BATCH * queries * HEADS, 0.1f) };
}

static void numbers_free(struct numbers *n)
{
    float *const all[] = { n->q, n->k, n->v, n->out, n->lse };
    for (int i = 0; i < TEST_COUNT(all); i++) free(all[i]);
}

static ra_problem problem_of(const char *pattern, int queries, int64_t keys, int batch)
{
    static ra_pattern *parsed;
    static const float slopes[HEADS] = { 0.5f, 0.25f, 0.125f, 0.0625f };
    ra_pattern_destroy(parsed);
    assert_ok(ra_pattern_parse(pattern, &parsed));
    ra_problem problem = ra_problem_default();
    problem.pattern = parsed;
    problem.batch = batch;
    problem.q_len = queries;
    problem.k_len = keys ? keys : RA_NO_KEYS;
    problem.q_heads = HEADS;
    problem.kv_heads = KV_HEADS;
    problem.dim = DIM;
    problem.alibi = slopes;
    return problem;
}

static ra_group *open_group(const char *device, int threads)
{
    ra_group *group;
    ra_group_options options = ra_group_options_default();
    options.threads = threads;
    options.device = device;
    assert_ok(ra_group_create_local(1, &options, &group));
    return group;
}

static ra_attend_args args_of(const struct numbers *n)
{
    ra_attend_args args = ra_attend_args_default();
    args.q = ra_const_tensor_packed(n->q);
    args.k = ra_const_tensor_packed(n->k);
    args.v = ra_const_tensor_packed(n->v);
    args.out = ra_tensor_packed(n->out);
    args.lse = n->lse;
    return args;
}

/* One batch item by itself, with `count` keys, on the CPU. */
static void check_item(const char *pattern, const struct numbers *n, int item, int64_t count)
{
    const ra_problem problem = problem_of(pattern, n->queries, count, 1);
    float out[MOST_QUERIES * Q_ROW], lse[MOST_QUERIES * HEADS];
    ra_group *group = open_group(NULL, 1);
    ra_plan *plan;
    assert_ok(ra_plan_create(group, &problem, NULL, &plan));
    ra_attend_args args = args_of(n);
    args.q = ra_const_tensor_packed(n->q + item * n->queries * Q_ROW);
    args.k = ra_const_tensor_packed(n->k + item * n->capacity * K_ROW);
    args.v = ra_const_tensor_packed(n->v + item * n->capacity * K_ROW);
    args.out = ra_tensor_packed(out);
    args.lse = lse;
    assert_ok(ra_attend(plan, &args));
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    for (int i = 0; i < n->queries * Q_ROW; i++) {
        const float got = n->out[item * n->queries * Q_ROW + i];
        if (!(fabsf(got - out[i]) <= 2e-5f))
            fail_msg("%s, %d queries, %lld of %lld keys: number %d is %g, not %g", pattern,
                     n->queries, (long long)count, (long long)n->capacity, i, (double)got,
                     (double)out[i]);
    }
    for (int i = 0; i < n->queries * HEADS; i++) {
        const float got = n->lse[item * n->queries * HEADS + i];
        assert_true(got == lse[i] || fabsf(got - lse[i]) <= 2e-5f);
    }
}

/* Several calls of one plan; nothing may read the keys that are not there. */
static void check_plan(const char *pattern, int queries, int64_t capacity, int threads)
{
    struct numbers n = numbers_of(queries, capacity);
    ra_group *group = open_group(getenv("RINGATTN_TEST_DEVICE"), threads);
    const ra_problem problem = problem_of(pattern, queries, capacity, BATCH);
    ra_plan_options options = ra_plan_options_default();
    ra_plan *plan;
    options.counts = 1;
    assert_ok(ra_plan_create(group, &problem, &options, &plan));
    const int64_t counts[][BATCH] = { { capacity, 17, 0 },
                                      { 3, capacity - 1, capacity / 2 },
                                      { 1, capacity, 40 } };
    for (int call = 0; call < TEST_COUNT(counts); call++) {
        float *kept = fill(2 * BATCH * capacity * K_ROW, 0.1f), *tensors[] = { n.k, n.v };
        const size_t bytes = (size_t)(BATCH * capacity * K_ROW) * sizeof *kept;
        for (int t = 0; t < 2; t++) {
            memcpy((char *)kept + (size_t)t * bytes, tensors[t], bytes);
            for (int64_t i = 0; i < BATCH * capacity * K_ROW; i++)
                if (i / K_ROW % capacity >= counts[call][i / K_ROW / capacity]) tensors[t][i] = NAN;
        }
        ra_attend_args args = args_of(&n);
        args.counts = counts[call];
        assert_ok(ra_attend(plan, &args));
        for (int t = 0; t < 2; t++) memcpy(tensors[t], (char *)kept + (size_t)t * bytes, bytes);
        free(kept);
        for (int i = 0; i < BATCH; i++) check_item(pattern, &n, i, counts[call][i]);
    }
    ra_attend_args args = args_of(&n);
    assert_ok(ra_attend(plan, &args)); /* all are there */
    for (int i = 0; i < BATCH; i++) check_item(pattern, &n, i, capacity);
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    numbers_free(&n);
}

static void items_are_as_long_as_they_say(void **state)
{
    (void)state;
    static const char *const patterns[] = { "full", "causal", "window:20", "window:7,5" };
    static const int queries[] = { 1, 2, MOST_QUERIES };
    for (int p = 0; p < TEST_COUNT(patterns); p++)
        for (int q = 0; q < TEST_COUNT(queries); q++)
            check_plan(patterns[p], queries[q], 300, 1 + q % 2);
}

static void split_keys_too(void **state)
{
    (void)state;
    const int64_t capacity = getenv("RINGATTN_TEST_DEVICE") ? 2500 : 40000;
    check_plan("causal", 1, capacity, 2);
    check_plan("window:900", 2, capacity, 2);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void refuse(const char *pattern, ra_plan_options options, const char *sentence)
{
    const ra_problem problem = problem_of(pattern, 4, 4, 1);
    ra_plan *plan;
    options.counts = 1;
    assert_fails(RA_ERR_UNSUPPORTED, sentence, ra_plan_create(NULL, &problem, &options, &plan));
}

static void what_depends_on_positions_is_refused(void **state)
{
    (void)state;
    ra_plan_options options = ra_plan_options_default(), backward = options, ranks = options;
    backward.backward = 1;
    ranks.ranks = 2;
    refuse("dilated:2/1,4/2", options, "counts of keys are for full, causal or window");
    refuse("causal;docs=0,2,4", options, "without documents");
    refuse("causal", backward, "forward runs");
    refuse("causal", ranks, "one rank");
}

static void wrong_counts_are_refused(void **state)
{
    (void)state;
    struct numbers n = numbers_of(1, 8);
    ra_group *group = open_group(NULL, 1);
    const ra_problem problem = problem_of("causal", 1, 8, BATCH);
    ra_plan_options options = ra_plan_options_default();
    const int64_t counts[BATCH] = { 8, 9, 8 };
    ra_plan *plan;
    ra_attend_args args = args_of(&n);
    args.counts = counts;
    assert_ok(ra_plan_create(group, &problem, NULL, &plan));
    assert_fails(RA_ERR_ARGUMENT, "set counts in ra_plan_options", ra_attend(plan, &args));
    ra_plan_destroy(plan);
    options.counts = 1;
    assert_ok(ra_plan_create(group, &problem, &options, &plan));
    assert_fails(RA_ERR_ARGUMENT, "counts[1] is 9, but must be 0 to 8", ra_attend(plan, &args));
    ra_plan_destroy(plan);
    ra_group_destroy(group);
    numbers_free(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_as_long_as_they_say),
        cmocka_unit_test(split_keys_too),
        cmocka_unit_test(what_depends_on_positions_is_refused),
        cmocka_unit_test(wrong_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
