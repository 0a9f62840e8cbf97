/* SPDX-License-Identifier: Apache-2.0 */
/* test_families.c - plans of long sequences stay small: rows of a regular pattern are folded into
 * families, so that neither time nor memory grows with the number of segments or blocks. What they
 * fold is counted by closed formulas; unit/plan has every pair of short ones. */
#include "support/test.h"

#include "api/handles.h"
#include "core/clock.h"

enum { MIB = 1 << 20 };

struct giant {
    const char *text, *partition;
    int64_t n;
    int ranks, q_heads, kv_heads;
};

/* Seconds it took. */
static double open_plan(const struct giant *g, int rank, ra_plan **plan)
{
    ra_pattern *pattern;
    ra_problem problem = ra_problem_default();
    ra_plan_options options = ra_plan_options_default();
    assert_ok(ra_pattern_parse(g->text, &pattern));
    problem.pattern = pattern;
    problem.q_len = g->n;
    problem.q_heads = g->q_heads;
    problem.kv_heads = g->kv_heads;
    problem.dim = 64;
    options.ranks = g->ranks;
    options.rank = rank;
    options.partition = g->partition;
    options.backward = 1;
    double start = ra__now();
    assert_ok(ra_plan_create(NULL, &problem, &options, plan));
    double seconds = ra__now() - start;
    ra_pattern_destroy(pattern);
    return seconds;
}

static int most_rows(const ra_plan *plan)
{
    int forward = plan->programs.forward.row_count, backward = plan->programs.backward.row_count;
    return forward > backward ? forward : backward;
}

/* A plan of every rank: how long the slowest took, how large the largest is. */
struct sizes {
    double seconds;
    size_t bytes; /* bookkeeping */
    int rows;     /* of one program */
    int64_t pairs[2];
};

static struct sizes measure(const struct giant *g)
{
    struct sizes sizes = { 0, 0, 0, { 0, 0 } };
    for (int rank = 0; rank < g->ranks; rank++) {
        ra_plan *plan;
        ra_memory memory = ra_memory_default();
        double seconds = open_plan(g, rank, &plan);
        assert_ok(ra_plan_memory(plan, &memory));
        for (int backward = 0; backward < 2; backward++) {
            ra_stats stats = ra_stats_default();
            assert_ok(ra_plan_forecast(plan, backward, &stats));
            sizes.pairs[backward] += stats.pairs;
        }
        if (seconds > sizes.seconds) sizes.seconds = seconds;
        if (memory.bookkeeping > sizes.bytes) sizes.bytes = memory.bookkeeping;
        if (most_rows(plan) > sizes.rows) sizes.rows = most_rows(plan);
        ra_plan_destroy(plan);
    }
    return sizes;
}

static void expect_small(const struct giant *g, const struct sizes *sizes, int rows, size_t bytes)
{
    print_message("%s n=%d h=%d/%d ring=%d %s: %d rows, %zu bytes, %.1f ms\n", g->text, (int)g->n,
                  g->q_heads, g->kv_heads, g->ranks, g->partition ? g->partition : "contiguous",
                  sizes->rows, sizes->bytes, 1e3 * sizes->seconds);
    const bool late = sizes->seconds > 1.0 && !test_slow();
    if (sizes->rows > rows || sizes->bytes > bytes || late)
        fail_msg("%s over %d ranks: at most %d rows, %zu bytes and a second were promised", g->text,
                 g->ranks, rows, bytes);
}

/* ---- A million tokens ------------------------------------------------------------------------ */

/* n / w segments of (w / r)^2 pairs per head and branch. */
static void dilated_plans_of_a_million_tokens(void **state)
{
    (void)state;
    static const struct giant giants[] = {
        { "dilated:2048/1,4096/2,8192/4", NULL, MIB, 1, 8, 8 },
        { "dilated:2048/1,4096/2,8192/4", NULL, MIB, 8, 8, 8 },
        { "dilated:2048/1,4096/2,8192/4", NULL, MIB, 8, 8, 2 },
        { "dilated:2048/1,4096/2,8192/4", "zigzag", MIB, 8, 8, 8 },
        { "dilated:2048/1,4096/2,8192/4", "striped", MIB, 8, 8, 4 },
    };
    for (int i = 0; i < TEST_COUNT(giants); i++) {
        struct sizes sizes = measure(&giants[i]);
        bool alone = giants[i].ranks == 1;
        expect_small(&giants[i], &sizes, alone ? 64 : 400, alone ? MIB : 10 * MIB);
        int64_t pairs = 8 * (INT64_C(512) * 2048 * 2048 + INT64_C(256) * 2048 * 2048 +
                             INT64_C(128) * 2048 * 2048);
        assert_int_equal(sizes.pairs[0], pairs);
        assert_int_equal(sizes.pairs[1], pairs);
    }
}

/* Rates that do not divide one another: the queries of a segment form as many rows as the least
 * common multiple of the rates, 15 here, for each of 4 segments of a period and 8 heads; none of
 * them is split further, so each has a fifteenth of the 2,048 queries. */
static void rates_that_do_not_divide_have_few_rows(void **state)
{
    (void)state;
    static const struct giant giant = { "dilated:2048/1,4096/3,8192/5", NULL, MIB, 1, 8, 8 };
    ra_plan *plan;
    struct sizes sizes = measure(&giant);
    expect_small(&giant, &sizes, 15 * 4 * 8, MIB);
    open_plan(&giant, 0, &plan);
    for (int i = 0; i < plan->programs.forward.row_count; i++)
        assert_true(plan->programs.forward.rows[i].q_count >= 2048 / 15);
    ra_plan_destroy(plan);
}

static void block_plans_of_a_million_tokens(void **state)
{
    (void)state;
    static const struct giant giants[] = {
        { "blocks:64;local=8", NULL, MIB, 1, 8, 8 },
        { "blocks:64;local=8", NULL, MIB, 8, 8, 2 },
        { "blocks:64;local=8", "zigzag", MIB, 8, 8, 2 },
    };
    for (int i = 0; i < TEST_COUNT(giants); i++) {
        struct sizes sizes = measure(&giants[i]);
        expect_small(&giants[i], &sizes, 100, MIB);
        int64_t blocks = MIB / 64, missing = 8 * 9; /* at the two ends */
        assert_int_equal(sizes.pairs[0], 8 * (17 * blocks - missing) * 64 * 64);
        assert_int_equal(sizes.pairs[1], sizes.pairs[0]);
    }
}

/* Every query block has the same strided blocks before it: they are listed once per phase, not once
 * per block. */
static void strided_plans_of_many_tokens(void **state)
{
    (void)state;
    static const struct giant giants[] = {
        { "blocks:64;strided=16", NULL, MIB / 16, 1, 8, 8 },
        { "blocks:64;strided=16;causal", NULL, MIB / 16, 1, 8, 8 },
    };
    for (int i = 0; i < TEST_COUNT(giants); i++) {
        struct sizes sizes = measure(&giants[i]);
        expect_small(&giants[i], &sizes, 100, MIB);
    }
}

/* ---- Twice as many tokens -------------------------------------------------------------------- */

/* What repeats twice as often needs no more rows. */
static void rows_do_not_grow_with_the_sequence(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "full",
        "window:100,3",
        "dilated:256/1,512/2,1024/4",
        "dilated:256/1,512/2,1024/4;causal",
        "dilated:256/1,512/2,1024/4;dedup",
        "dilated:256/1,512/2;groups",
        "dilated:512/2",
        "blocks:32;local=3",
        "blocks:32;local=3;causal",
        "blocks:32;local=2;global=1",
        "blocks:32;dilated=4/4",
        "blocks:32;levels=1/1,4/3,16/20",
    };
    static const char *const partitions[] = { "contiguous", "zigzag", "striped" };
    for (int i = 0; i < TEST_COUNT(texts); i++)
        for (int p = 0; p < TEST_COUNT(partitions); p++)
            for (int ranks = 1; ranks <= 4; ranks += 3) {
                struct giant g = { texts[i], partitions[p], 1 << 16, ranks, 4, 2 };
                struct sizes once = measure(&g);
                g.n *= 2;
                struct sizes twice = measure(&g);
                if (twice.rows > once.rows)
                    fail_msg("%s over %d ranks, %s: %d rows, but %d for twice the tokens", texts[i],
                             ranks, partitions[p], once.rows, twice.rows);
            }
}

/* ---- Advances -------------------------------------------------------------------------------- */

/* A family by its numbers: 128 segments of 8 with one branch, head 0 of 1. */
static void a_family_says_how_it_advances(void **state)
{
    (void)state;
    struct giant g = { "dilated:8/2", NULL, 1024, 1, 1, 1 };
    ra_plan *plan;
    open_plan(&g, 0, &plan);
    const struct ra__program *p = &plan->programs.forward;
    const struct ra__plan_row *row = &p->rows[0];
    assert_int_equal(row->repeat, 128);
    assert_int_equal(row->q_count, 4);
    assert_int_equal(row->q_step, 2);
    assert_int_equal(row->q_pos_advance, 8);
    assert_int_equal(row->q_token_advance, 8);
    assert_int_equal(row->key_count, 1);
    assert_int_equal(p->advances[row->first_key].pos, 8);
    assert_int_equal(p->advances[row->first_key].token, 8);
    struct ra__key_run last = ra__key_run_at(&p->keys[row->first_key], &p->advances[row->first_key],
                                             127);
    assert_int_equal(last.pos, 1016);
    assert_int_equal(last.token, 1016);
    assert_int_equal(last.count, 4);
    ra_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dilated_plans_of_a_million_tokens),
        cmocka_unit_test(rates_that_do_not_divide_have_few_rows),
        cmocka_unit_test(block_plans_of_a_million_tokens),
        cmocka_unit_test(strided_plans_of_many_tokens),
        cmocka_unit_test(rows_do_not_grow_with_the_sequence),
        cmocka_unit_test(a_family_says_how_it_advances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
