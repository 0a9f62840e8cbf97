/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory_pool.c - plans of one group share their large buffers through its pool, and get the
 * bits they would get alone. */
#include "support/fixture.h"

static ra_pool pool_of(const struct fixture *fixture, int rank)
{
    ra_pool pool = ra_pool_default();
    assert_ok(ra_group_pool(fixture->groups[rank], &pool));
    return pool;
}

/* Bytes of a plan that can be in the pool: all but shards and bookkeeping. */
static size_t pooled(const struct fixture *fixture, int rank)
{
    const ra_memory *m = &fixture->rank[rank].memory;
    return m->travel + m->state + m->gradient + m->workspace;
}

static void expect_same(const struct fixture *got, const struct fixture *alone)
{
    for (enum tensor t = TENSOR_OUT; t < TENSOR_COUNT; t++)
        if (!fixture_same(got, alone, t))
            fixture_fail(got, "%s: other bits than alone in its group", tensor_name(t));
}

/* Two plans of one group, one after the other in every way: forward and backward of one may have
 * the other's work between them. */
static void check_pair(const char *one, const char *other)
{
    struct fixture labs[2], alone[2];
    const char *const problems[2] = { one, other };
    for (int i = 0; i < 2; i++) {
        fixture_open(&alone[i], "%s backward", problems[i]);
        fixture_run(&alone[i]);
        fixture_open(&labs[i], "%s backward", problems[i]);
    }
    labs[0].pool_threshold = 1;
    labs[1].host = &labs[0];
    fixture_start(&labs[0]);
    fixture_start(&labs[1]);
    for (int round = 0; round < 2; round++) {
        fixture_forward(&labs[0]);
        fixture_forward(&labs[1]);
        fixture_backward(&labs[0]);
        fixture_backward(&labs[1]);
        fixture_forward(&labs[round]);
    }
    for (int rank = 0; rank < labs[0].trial.ranks; rank++) {
        size_t a = pooled(&labs[0], rank), b = pooled(&labs[1], rank);
        ra_pool pool = pool_of(&labs[0], rank);
        if (pool.bytes >= a + b || pool.bytes < (a > b ? a : b) || !pool.hits)
            fixture_fail(&labs[1],
                         "rank %d: a pool of %zu bytes (%lld hits) for plans of %zu and %zu", rank,
                         pool.bytes, (long long)pool.hits, a, b);
        assert_int_equal(pool.bytes_idle, 0);
    }
    for (int i = 1; i >= 0; i--) {
        expect_same(&labs[i], &alone[i]);
        fixture_close(&labs[i]);
        fixture_close(&alone[i]);
    }
}

static void plans_of_a_group_share_their_buffers(void **state)
{
    (void)state;
    check_pair("causal n=90 h=4/2 d=8 ring=3", "full n=90 h=4/2 d=8 ring=3");
    check_pair("dilated:20/1,90/2 n=90 h=4/2 d=8 ring=3", "causal n=70 h=4/2 d=8 ring=3 zigzag");
    check_pair("blocks:8;local=2;global=1 n=90 h=4/2 d=8 ring=4",
               "dilated:60/2;causal n=90 h=4/2 d=8 ring=4 order=hilbert alibi");
    check_pair("window:9 n=90 h=4/2 d=8 ring=4 allgather",
               "full n=64 h=4/2 d=8 ring=4 dropout=0.2");
    check_pair("full n=90 h=4/2 d=8 bf16 ring=2", "full n=90 h=2 d=16 dv=4 ring=2 sinks bias=add");
}

/* The figures: the same plan again costs nothing, and idle buffers can be freed. */
static void the_pool_counts(void **state)
{
    (void)state;
    struct fixture labs[2];
    for (int i = 0; i < 2; i++)
        fixture_open(&labs[i], "dilated:40/1,120/2 n=120 h=4/2 d=8 ring=3 backward");
    labs[0].pool_threshold = 1;
    labs[1].host = &labs[0];
    fixture_start(&labs[0]);
    for (int rank = 0; rank < 3; rank++) {
        ra_pool pool = pool_of(&labs[0], rank);
        assert_int_equal(pool.threshold, 1);
        assert_int_equal(pool.bytes, pooled(&labs[0], rank));
        assert_int_equal(pool.misses, pool.buffers);
        assert_int_equal(pool.hits, 0);
        assert_int_equal(pool.bytes_idle, 0);
    }
    fixture_start(&labs[1]);
    for (int rank = 0; rank < 3; rank++) {
        ra_pool pool = pool_of(&labs[0], rank);
        assert_int_equal(pool.bytes, pooled(&labs[0], rank)); /* two plans, the bytes of one */
        assert_int_equal(pool.hits, pool.buffers);
        assert_int_equal(pool.misses, pool.buffers);
        assert_int_equal(pooled(&labs[1], rank), pooled(&labs[0], rank));
    }
    for (int i = 0; i < 2; i++)
        for (int rank = 0; rank < 3; rank++) {
            ra_plan_destroy(labs[i].rank[rank].plan);
            labs[i].rank[rank].plan = NULL;
            ra_pool pool = pool_of(&labs[0], rank);
            assert_int_equal(pool.bytes_idle, i ? pool.bytes : 0);
            assert_ok(ra_group_trim(labs[0].groups[rank]));
            assert_int_equal(pool_of(&labs[0], rank).bytes, i ? 0 : pool.bytes);
        }
    fixture_close(&labs[1]);
    fixture_close(&labs[0]);
}

/* Below the threshold buffers are a plan's own. */
static void small_buffers_stay_out_of_the_pool(void **state)
{
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, "full n=64 h=2 d=8 ring=2");
    fixture_start(&fixture);
    for (int rank = 0; rank < 2; rank++) {
        ra_pool pool = pool_of(&fixture, rank);
        assert_int_equal(pool.threshold, (size_t)16 << 20);
        assert_int_equal(pool.buffers, 0);
        assert_int_equal(pool.hits + pool.misses, 0);
    }
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_a_group_share_their_buffers),
        cmocka_unit_test(the_pool_counts),
        cmocka_unit_test(small_buffers_stay_out_of_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
