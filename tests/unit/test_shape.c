/* SPDX-License-Identifier: Apache-2.0 */
/* test_shape.c - runs and bands against plain loops; where keys are split. */
#include "support/test.h"

#include "core/program.h"
#include "core/shape.h"

static bool holds(ra_run run, int64_t position)
{
    for (int64_t i = 0; i < run.count; i++)
        if (run.start + i * run.step == position) return true;
    return false;
}

static void expect_intersection(ra_run a, ra_run b)
{
    ra_run both = ra__run_intersect(a, b);
    for (int64_t position = 0; position < 64; position++)
        assert_int_equal(holds(both, position), holds(a, position) && holds(b, position));
    if (both.count == 0) return;
    /* A key keeps its row: the step of what is shared is a whole number of the block's steps. */
    assert_int_equal(both.step % a.step, 0);
    assert_int_equal(both.step % b.step, 0);
}

static void runs_intersect(void **state)
{
    (void)state;
    for (int64_t step = 1; step <= 7; step++)
        for (int64_t other = 1; other <= 7; other++)
            for (int64_t start = 0; start < 9; start++)
                for (int64_t count = 0; count <= 9; count++) {
                    expect_intersection((ra_run){ start, step, count }, (ra_run){ 3, other, 6 });
                    expect_intersection((ra_run){ 3, other, 6 }, (ra_run){ start, step, count });
                }
}

/* Neither walk may go through a long run position by position. */
static void long_runs_intersect_at_once(void **state)
{
    (void)state;
    int64_t n = INT64_C(1) << 40;
    ra_run all = { 0, 1, n }, sparse = { 5, n / 4, 4 };
    assert_int_equal(ra__run_intersect(all, sparse).count, 4);
    assert_int_equal(ra__run_intersect(sparse, all).count, 4);
    ra_run every_third = ra__run_intersect(all, (ra_run){ 1, 3, n / 3 });
    assert_int_equal(every_third.start, 1);
    assert_int_equal(every_third.count, n / 3);
}

static void runs_are_clipped(void **state)
{
    (void)state;
    for (int64_t step = 1; step <= 5; step++)
        for (int64_t lo = -3; lo < 30; lo++)
            for (int64_t hi = lo; hi < 30; hi++) {
                ra_run run = { 4, step, 5 };
                int64_t skipped;
                ra_run part = ra__run_clip(run, lo, hi, &skipped);
                for (int64_t p = 0; p < 40; p++)
                    assert_int_equal(holds(part, p), holds(run, p) && p >= lo && p < hi);
                if (part.count) assert_int_equal(part.start, run.start + skipped * step);
            }
}

/* Few queries against many keys: ranges cover all positions, and none is short. Which keys a range
 * gets is a matter of the backend (test_schedule.c). */
static void keys_are_split_by_the_problem_alone(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 1, 32767, 32768, 100003, (int64_t)1 << 40 };
    for (int n = 0; n < TEST_COUNT(lengths); n++) {
        struct ra__shape shape = { .q_len = 3, .k_len = lengths[n], .q_heads = 4, .kv_heads = 2 };
        struct ra__key_split split = ra__key_split_for(&shape, 0);
        assert_true(split.ranges >= 1 && split.ranges <= 64);
        assert_int_equal(split.ranges == 1, lengths[n] < 32768);
        assert_true(split.ranges * split.keys >= lengths[n]);
        assert_true((split.ranges - 1) * split.keys < lengths[n]);
        shape.q_len = 9; /* two rows each for a KV head: too many */
        assert_int_equal(ra__key_split_for(&shape, 0).ranges, 1);
    }
}

/* A GPU gets ranges of a thousand keys, as long as there are too few jobs. */
static void devices_want_many_jobs(void **state)
{
    (void)state;
    static const struct {
        int64_t keys, batch;
        int kv_heads, ranges;
    } cases[] = { { 2047, 1, 8, 1 },    { 2048, 1, 8, 2 },     { 65536, 1, 8, 64 },
                  { 131072, 8, 32, 8 }, { 131072, 64, 32, 1 }, { (int64_t)1 << 40, 1, 1, 64 } };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        struct ra__shape shape = { .batch = cases[i].batch,
                                   .q_len = 1,
                                   .k_len = cases[i].keys,
                                   .q_heads = cases[i].kv_heads,
                                   .kv_heads = cases[i].kv_heads };
        struct ra__key_split split = ra__key_split_for(&shape, shape.batch * shape.kv_heads);
        assert_int_equal(split.ranges, cases[i].ranges);
        assert_true(split.ranges * split.keys >= cases[i].keys);
        assert_true((split.ranges - 1) * split.keys < cases[i].keys);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_intersect),
        cmocka_unit_test(long_runs_intersect_at_once),
        cmocka_unit_test(runs_are_clipped),
        cmocka_unit_test(keys_are_split_by_the_problem_alone),
        cmocka_unit_test(devices_want_many_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
