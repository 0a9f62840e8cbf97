/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory_formulas.c - bytes per rank: what plans say against formulas, and what does not grow
 * with the sequence. */
#include "support/ask.h"
#include "support/walk.h"

static void expect_bytes(const char *problem, const char *what, size_t got, size_t want)
{
    if (got == want) return;
    print_error("%s: %zu bytes, but %zu are right\n  ringattn plan: %s\n", what, got, want,
                problem);
    fail();
}

/* n=960 h=6/2 d=8 dv=12 b=3, e bytes per element. */
static void check_formulas(int ranks, const char *dtype, size_t e, const char *pattern, int rank)
{
    char problem[128];
    size_t q = 960 / (size_t)ranks, k = q, several = ranks > 1,
           visitors = ranks > 2 ? 3 : several * 2;
    size_t shard = 3 * (q * 6 + k * 2) * 20 * e, block = 3 * k * 2 * 20;
    snprintf(problem, sizeof problem, "%s n=960 h=6/2 d=8 dv=12 b=3 %s ring=%d", pattern, dtype,
             ranks);
    ra_memory m = ask_memory(problem, rank);
    expect_bytes(problem, "shard", m.shard, shard);
    expect_bytes(problem, "travel", m.travel, several * 2 * block * e);
    expect_bytes(problem, "state", m.state, several * 3 * q * 6 * (12 + 2) * 4);
    expect_bytes(problem, "gradient", m.gradient, 0);
    expect_bytes(problem, "total", m.total,
                 m.shard + m.travel + m.state + m.gradient + m.workspace + m.bookkeeping);
    strcat(problem, " backward");
    m = ask_memory(problem, rank);
    expect_bytes(problem, "shard", m.shard, 2 * shard + 3 * q * 6 * 4);
    expect_bytes(problem, "travel", m.travel, several * 2 * block * e);
    expect_bytes(problem, "state", m.state, several * 3 * q * 6 * (12 + 2) * 4);
    expect_bytes(problem, "gradient", m.gradient,
                 3 * q * 6 * (8 + 1) * 4 + (1 + visitors) * block * 4);
}

static void ring_bytes_follow_the_formulas(void **state)
{
    (void)state;
    static const int ranks[] = { 1, 2, 4, 16 };
    for (int i = 0; i < TEST_COUNT(ranks); i++)
        for (int rank = 0; rank<ranks[i]; rank += ranks[i]> 4 ? 5 : 1) {
            check_formulas(ranks[i], "f32", 4, "full", rank);
            check_formulas(ranks[i], "bf16", 2, "full", rank);
            check_formulas(ranks[i], "f16", 2, "full", rank);
        }
}

/* State only where rows span hops: a rank that sees its own keys alone needs none, nor blocks. */
static void rows_that_stay_need_no_state(void **state)
{
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        ra_memory m = ask_memory("full;docs=0,16,32,48,64 n=64 h=2 d=8 ring=4 backward", rank);
        assert_int_equal(m.state, 0);
        assert_int_equal(m.travel, 0);
        assert_int_equal(m.gradient, (16 * 2 * 9 + 16 * 2 * 16) * 4);
    }
    assert_int_equal(ask_memory("causal n=64 h=2 d=8 ring=4", 0).state, 0);
    assert_int_equal(ask_memory("causal n=64 h=2 d=8 ring=4 allgather", 3).state, 0);
    assert_int_not_equal(ask_memory("causal n=64 h=2 d=8 ring=4", 1).state, 0);
}

/* Allgather: all keys seen, the own block packed, and two on their way. */
static void allgather_bytes_follow_the_formulas(void **state)
{
    (void)state;
    char problem[128];
    for (int ranks = 1; ranks <= 16; ranks *= 2) {
        size_t q = 960 / (size_t)ranks, several = ranks > 1, waves = ranks > 2 ? 2 : several;
        size_t row = 3 * 2 * 20;
        snprintf(problem, sizeof problem,
                 "full n=960 h=6/2 d=8 dv=12 b=3 bf16 ring=%d allgather backward", ranks);
        ra_memory m = ask_memory(problem, ranks / 2);
        expect_bytes(problem, "travel", m.travel, several * (960 + (1 + waves) * q) * row * 2);
        expect_bytes(problem, "state", m.state, 0);
        expect_bytes(problem, "gradient", m.gradient,
                     3 * q * 6 * 9 * 4 + (q + several * (960 + (1 + waves) * q)) * row * 4);
    }
}

/* Teams: the head slice with its LSE, and a message out, one or two in; h=8/4, so that slices are
 * equal, or, 8 members, h=8/2, where 4 members share a KV head. */
static void check_team(int u, int r, const char *dtype, size_t e, bool shared)
{
    char problem[128];
    size_t ranks = (size_t)(u * r), kv = shared ? 2 : 4, hq = 8 / (size_t)u;
    size_t hkv = shared ? 1 : kv / (size_t)u, n = 960 / (size_t)r, q = 960 / ranks;
    size_t sums = shared ? 4 : e, several = r > 1, visitors = r > 2 ? 3 : several * 2;
    size_t arrivals = u > 2 ? 2 : u > 1, block = 3 * n * hkv * 20;
    size_t in = 3 * q * (hq * 8 * e + hkv * 20 * e), out = 3 * q * hq * (12 * e + 4);
    size_t share = u > 1 ? 3 * n * ((hq + hkv) * 20 * e + hq * 4) : 0;
    snprintf(problem, sizeof problem, "full n=960 h=8/%d d=8 dv=12 b=3 %s ring=%d 2d:%dx%d",
             (int)kv, dtype, (int)ranks, u, r);
    ra_memory m = ask_memory(problem, (int)ranks / 2);
    size_t message = in > out ? in : out;
    expect_bytes(problem, "travel", m.travel,
                 share + (u > 1) * (1 + arrivals) * message + several * 2 * block * e);
    expect_bytes(problem, "state", m.state, several * 3 * n * hq * 14 * 4);
    expect_bytes(problem, "shard", m.shard, 3 * q * (8 + kv) * 20 * e);
    strcat(problem, " backward");
    m = ask_memory(problem, (int)ranks / 2);
    size_t in_back = 3 * q * (hq * (20 * e + 8) + hkv * 20 * e);
    size_t out_back = 3 * q * (hq * 8 * e + hkv * 20 * sums);
    message = in_back > out_back ? in_back : out_back;
    expect_bytes(problem, "travel", m.travel,
                 share + (u > 1) * (1 + arrivals) * message + several * 2 * block * e);
    expect_bytes(problem, "gradient", m.gradient,
                 3 * n * hq * 9 * 4 + (1 + visitors) * block * 4 + (u > 1) * 3 * q * 8 * 4 +
                     shared * 3 * q * kv * 20 * 4);
}

static void team_bytes_follow_the_formulas(void **state)
{
    (void)state;
    static const int sizes[][2] = { { 1, 1 }, { 1, 4 }, { 2, 1 }, { 2, 2 },
                                    { 2, 4 }, { 4, 1 }, { 4, 2 }, { 4, 4 } };
    for (int i = 0; i < TEST_COUNT(sizes); i++) {
        check_team(sizes[i][0], sizes[i][1], "f32", 4, false);
        check_team(sizes[i][0], sizes[i][1], "bf16", 2, false);
    }
    for (int r = 1; r <= 4; r *= 2) {
        check_team(8, r, "f32", 4, true);
        check_team(8, r, "bf16", 2, true);
    }
}

static void total_is_near_the_formula_and_falls_with_ranks(void **state)
{
    (void)state;
    char problem[128];
    double before = 0;
    for (int ranks = 1; ranks <= 16; ranks *= 2) {
        snprintf(problem, sizeof problem, "full n=65536 h=8 d=64 ring=%d", ranks);
        ra_memory m = ask_memory(problem, ranks - 1);
        double q = 65536.0 / ranks, formula = 4 * q * 8 * 64 * 4;
        if (ranks > 1) formula += 2 * q * 8 * 128 * 4 + q * 8 * 66 * 4;
        if ((double)m.total < formula || (double)m.total > 1.05 * formula)
            fail_msg("%s: %zu bytes, the formula says %.0f", problem, m.total, formula);
        if (ranks > 2 && ((double)m.total > 0.525 * before || (double)m.total < 0.475 * before))
            fail_msg("%s: %zu bytes, %.0f on half as many ranks", problem, m.total, before);
        before = (double)m.total;
    }
}

/* Scratch is for the largest job: little where queries and keys are few, and never more than a
 * bound. A kernel that holds one row at a time has nothing to save. */
static void check_workspace(const char *kernel, const char *dtype, const char *more)
{
    enum { SHORT = 4, LONG = 1 << 18, ONE_ROW = 1 << 16 };
    char problem[128];
    size_t least = 0, before = 0;
    for (int64_t n = SHORT; n <= (int64_t)1 << 26; n *= 16) {
        snprintf(problem, sizeof problem, "causal n=%lld h=4 d=64 ring=2 threads=3 kernel=%s %s %s",
                 (long long)n, kernel, dtype, more);
        size_t bytes = ask_memory(problem, 1).workspace;
        if (n == SHORT) least = bytes;
        if (bytes < before || n > LONG) expect_bytes(problem, "workspace", bytes, before);
        before = bytes;
    }
    assert_true(least > 0);
    if (before > ONE_ROW && least > before / 4 * 3)
        fail_msg("%s: %zu bytes, and %zu for 4 tokens", problem, before, least);
}

static void workspace_is_for_the_largest_job(void **state)
{
    (void)state;
    static const char *const more[] = { "", "backward", "allgather backward" };
    ra_part kernel;
    const char *dtype;
    for (int k = 0; walk_kernel(k, &kernel, &dtype); k++)
        for (int i = 0; i < TEST_COUNT(more); i++) check_workspace(kernel.name, dtype, more[i]);
}

/* A plan is a few steps per rank, however long the sequence. */
static void bookkeeping_does_not_grow_with_n(void **state)
{
    (void)state;
    static const char *const partitions[] = { "contiguous", "zigzag", "striped" };
    static const char *const strategies[] = { "ring", "ulysses", "2d:2x4" };
    char problem[128];
    for (int i = 0; i < 3 * TEST_COUNT(partitions); i++) {
        snprintf(problem, sizeof problem, "causal n=1024 ring=8 %s %s backward", partitions[i % 3],
                 strategies[i / 3]);
        size_t small = ask_memory(problem, 3).bookkeeping;
        snprintf(problem, sizeof problem, "causal n=536870912 ring=8 %s %s backward",
                 partitions[i % 3], strategies[i / 3]);
        expect_bytes(problem, "bookkeeping", ask_memory(problem, 3).bookkeeping, small);
    }
}

/* Rows that repeat are kept once, so the same holds for regular sparse patterns. */
static void bookkeeping_of_sparse_plans_does_not_grow_with_n(void **state)
{
    (void)state;
    static const char *const patterns[] = { "dilated:512/1,1024/2,2048/4", "dilated:2048/4;causal",
                                            "blocks:64;local=4;global=1",
                                            "blocks:64;dilated=4/2;levels=4/2;causal" };
    static const char *const partitions[] = { "contiguous", "zigzag", "striped" };
    char problem[160];
    for (int i = 0; i < 3 * TEST_COUNT(patterns); i++) {
        size_t bytes[2];
        for (int large = 0; large < 2; large++) {
            snprintf(problem, sizeof problem, "%s n=%d h=4 d=64 ring=8 %s backward",
                     patterns[i / 3], large ? 524288 : 131072, partitions[i % 3]);
            bytes[large] = ask_memory(problem, 3).bookkeeping;
        }
        if (bytes[1] > bytes[0] + 1024)
            fail_msg("%s: %zu bytes, but %zu at a quarter of the length", problem, bytes[1],
                     bytes[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_bytes_follow_the_formulas),
        cmocka_unit_test(rows_that_stay_need_no_state),
        cmocka_unit_test(allgather_bytes_follow_the_formulas),
        cmocka_unit_test(team_bytes_follow_the_formulas),
        cmocka_unit_test(total_is_near_the_formula_and_falls_with_ranks),
        cmocka_unit_test(workspace_is_for_the_largest_job),
        cmocka_unit_test(bookkeeping_does_not_grow_with_n),
        cmocka_unit_test(bookkeeping_of_sparse_plans_does_not_grow_with_n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
