/* test_counts.c - hops, bytes, pairs and FLOPs of every rank against closed formulas, and against a
 * count by brute force over all pairs of positions. The lab holds
 * every run against its forecast. */
#include "support/lab.h"
#include "support/walk.h"

#include <stdlib.h>

#include "forecast.h"
#include "half.h"

/* ---- Asking ---------------------------------------------------------------------------------- */

static void fail_at(const char *problem, int rank, const char *what, int64_t got, int64_t want)
{
    print_error("%s of rank %d: %lld, but %lld is right\n  ringattn verify \"%s\"\n", what, rank,
                (long long)got, (long long)want, problem);
    fail();
}

static ra_stats ask(const char *problem, int rank, int backward)
{
    struct trial trial;
    ra_plan *plan;
    ra_stats stats = ra_stats_default();
    assert_int_equal(trial_parse(&trial, problem), 0);
    assert_int_equal(forecast_plan(&trial, 0, rank, &plan), 0);
    assert_ok(ra_plan_forecast(plan, backward, &stats));
    ra_plan_destroy(plan);
    trial_clear(&trial);
    return stats;
}

static void expect_hops(const char *problem, int rank, int backward, int64_t want)
{
    int64_t got = ask(problem, rank, backward).hops;
    if (got != want) fail_at(problem, rank, backward ? "backward hops" : "hops", got, want);
}

static void expect_bytes(const char *problem, int rank, int backward, int64_t want)
{
    int64_t got = ask(problem, rank, backward).bytes_sent;
    if (got != want) fail_at(problem, rank, backward ? "backward bytes" : "bytes", got, want);
}

/* Where block `rank` of `ranks` starts among n positions. */
static int64_t cut(int64_t n, int ranks, int rank) { return rank * n / ranks; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* h=6/2 d=8 dv=12 b=3 bf16: bytes of a row of K and V, and of its gradients in f32. */
#define SHAPE "h=6/2 d=8 dv=12 b=3 bf16"
enum { ROW = 3 * 2 * (8 + 12) * 2, ROW_GRADIENT = 3 * 2 * (8 + 12) * 4 };

static const int lengths[] = { 8, 16, 31, 64, 97, 240 };

/* ---- Closed formulas ------------------------------------------------------------------------- */

static void full_ring(void **state)
{
    (void)state;
    char problem[128];
    for (int l = 0; l < TEST_COUNT(lengths); l++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                int64_t n = lengths[l];
                int next = (rank + 1) % ranks;
                int64_t of_next = cut(n, ranks, next + 1) - cut(n, ranks, next);
                int64_t own = cut(n, ranks, rank + 1) - cut(n, ranks, rank);
                int64_t keys = ranks > 1 ? (n - of_next) * ROW : 0;
                snprintf(problem, sizeof problem, "full n=%lld %s ring=%d backward", (long long)n,
                         SHAPE, ranks);
                expect_hops(problem, rank, 0, ranks - 1);
                expect_bytes(problem, rank, 0, keys);
                expect_hops(problem, rank, 1, ranks == 1 ? 0 : ranks == 2 ? 2 : ranks + 1);
                /* Every block but its own passes through, and its gradients leave once. */
                expect_bytes(problem, rank, 1, keys + (n - own) * ROW_GRADIENT);
                if (ranks > 1 && n % ranks == 0) /* (P-1)(2c + 2c in f32) */
                    expect_bytes(problem, rank, 1, (ranks - 1) * n / ranks * (ROW + ROW_GRADIENT));
            }
}

static void causal_contiguous_ring(void **state)
{
    (void)state;
    char problem[128];
    for (int l = 0; l < TEST_COUNT(lengths); l++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                bool is_last = rank == ranks - 1;
                snprintf(problem, sizeof problem, "causal n=%d %s ring=%d", lengths[l], SHAPE,
                         ranks);
                /* A rank sends its own block and those before it; nobody is behind the last. */
                expect_bytes(problem, rank, 0,
                             is_last ? 0 : cut(lengths[l], ranks, rank + 1) * ROW);
                expect_hops(problem, rank, 0, is_last ? ranks - 1 : rank + 1);
            }
}

static void window_contiguous_ring(void **state)
{
    (void)state;
    static const int lefts[] = { 0, 1, 5, 8, 13, 30, 1000 };
    char problem[128];
    for (int l = 0; l < TEST_COUNT(lengths); l++)
        for (int w = 0; w < TEST_COUNT(lefts); w++)
            for (int ranks = 1; ranks <= 8; ranks++)
                for (int rank = 0; rank < ranks; rank++) {
                    int64_t n = lengths[l], rows = 0, sends = 0, arrives = 0;
                    for (int owner = 0; owner <= rank; owner++) {
                        int64_t end = cut(n, ranks, owner + 1), start = cut(n, ranks, owner);
                        /* What the next rank, and so anyone behind it, sees of this block. */
                        int64_t seen = end - most(start, cut(n, ranks, rank + 1) - lefts[w]);
                        if (rank + 1 < ranks && seen > 0) rows += seen, sends++;
                        if (owner < rank && end > cut(n, ranks, rank) - lefts[w]) arrives++;
                    }
                    snprintf(problem, sizeof problem, "window:%d n=%lld %s ring=%d", lefts[w],
                             (long long)n, SHAPE, ranks);
                    expect_bytes(problem, rank, 0, rows * ROW);
                    expect_hops(problem, rank, 0, most(sends, arrives));
                }
}

/* With P dividing n: ceil(L / block) hops, and only the rows within reach. */
static void window_reaches_no_further_than_it_must(void **state)
{
    (void)state;
    static const int lefts[] = { 0, 1, 15, 16, 17, 40, 111 };
    char problem[128];
    int64_t block = 16;
    for (int w = 0; w < TEST_COUNT(lefts); w++) {
        int64_t rows = 0, hops = (lefts[w] + block - 1) / block;
        for (int64_t h = 0; h < hops; h++) rows += least(block, lefts[w] - h * block);
        snprintf(problem, sizeof problem, "window:%d n=128 %s ring=8", lefts[w], SHAPE);
        expect_hops(problem, 6, 0, hops);
        expect_bytes(problem, 6, 0, rows * ROW);
    }
}

static void causal_zigzag_and_striped_take_all_hops(void **state)
{
    (void)state;
    static const char *const partitions[] = { "zigzag", "striped" };
    char problem[128];
    for (int p = 0; p < TEST_COUNT(partitions); p++)
        for (int ranks = 2; ranks <= 8; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                snprintf(problem, sizeof problem, "causal n=%d %s ring=%d %s", 16 * ranks, SHAPE,
                         ranks, partitions[p]);
                expect_hops(problem, rank, 0, ranks - 1);
            }
}

/* Zigzag and striped give every rank the same causal work, to within a part in the block. */
static void causal_work_is_balanced(void **state)
{
    (void)state;
    char problem[128];
    for (int ranks = 2; ranks <= 8; ranks++)
        for (int rank = 0; rank < ranks; rank++) {
            int64_t n = 16 * ranks, all = n * (n + 1) / 2 * 6 * 3;
            snprintf(problem, sizeof problem, "causal n=%lld %s ring=%d zigzag", (long long)n,
                     SHAPE, ranks);
            int64_t pairs = ask(problem, rank, 0).pairs;
            if (pairs != all / ranks) fail_at(problem, rank, "pairs", pairs, all / ranks);
        }
}

static void full_allgather(void **state)
{
    (void)state;
    char problem[128];
    for (int l = 0; l < TEST_COUNT(lengths); l++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                int64_t n = lengths[l], own = cut(n, ranks, rank + 1) - cut(n, ranks, rank);
                snprintf(problem, sizeof problem, "full n=%lld %s ring=%d allgather backward",
                         (long long)n, SHAPE, ranks);
                expect_hops(problem, rank, 0, ranks - 1);
                expect_bytes(problem, rank, 0, (ranks - 1) * own * ROW);
                expect_hops(problem, rank, 1, 2 * (ranks - 1));
                expect_bytes(problem, rank, 1, (ranks - 1) * own * ROW + (n - own) * ROW_GRADIENT);
            }
}

/* ---- By brute force -------------------------------------------------------------------------- */

enum { MOST_N = 256, MOST_RANKS = 8 };

/* Who needs what, pair by pair of positions. */
struct census {
    struct trial trial;
    int ranks;
    int64_t n;
    int owner[MOST_N];             /* of each position */
    bool need[MOST_RANKS][MOST_N]; /* [reader][key] */
    int64_t pairs[MOST_RANKS];
};

static void census_owners(struct census *c, const ra_pattern *pattern)
{
    ra_layout *layout;
    ra_run runs[MOST_N];
    assert_ok(ra_layout_create(c->trial.partition, c->n, c->ranks, pattern, &layout));
    for (int rank = 0; rank < c->ranks; rank++) {
        int64_t count = ra_layout_runs(layout, rank, runs, MOST_N);
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = 0; j < runs[i].count; j++)
                c->owner[runs[i].start + j * runs[i].step] = rank;
    }
    ra_layout_destroy(layout);
}

static void census_open(struct census *c, const char *problem)
{
    ra_pattern *pattern;
    uint8_t seen[MOST_N];
    memset(c, 0, sizeof *c);
    assert_int_equal(trial_parse(&c->trial, problem), 0);
    c->ranks = (int)c->trial.ranks;
    c->n = c->trial.q_len;
    assert_ok(ra_pattern_parse(c->trial.pattern, &pattern));
    census_owners(c, pattern);
    for (int64_t query = 0; query < c->n; query++) {
        assert_ok(ra_pattern_row(pattern, c->n, c->n, 0, query, seen));
        for (int64_t key = 0; key < c->n; key++) {
            c->need[c->owner[query]][key] |= seen[key] > 0;
            c->pairs[c->owner[query]] += seen[key];
        }
    }
    ra_pattern_destroy(pattern);
}

/* Keys of `owner` that its visitors `from` to `to` (places behind it on the ring) need. */
static int64_t census_rows(const struct census *c, int owner, int from, int to)
{
    int64_t rows = 0;
    for (int64_t key = 0; key < c->n; key++) {
        bool needed = false;
        for (int h = from; h <= to; h++) needed |= c->need[(owner + h) % c->ranks][key];
        rows += needed && c->owner[key] == owner;
    }
    return rows;
}

/* A block goes on while anyone behind needs some of it, with the rows they need; gradients
 * follow. */
static int64_t ring_bytes(const struct census *c, int rank, bool backward)
{
    int64_t bytes = 0;
    for (int h = 1; h < c->ranks; h++) {
        int sent = (rank + 1 - h + c->ranks) % c->ranks, visits = (rank - h + c->ranks) % c->ranks;
        bytes += census_rows(c, sent, h, c->ranks - 1) * ROW;
        if (backward && census_rows(c, visits, h, c->ranks - 1))
            bytes += census_rows(c, visits, 1, h) * ROW_GRADIENT;
    }
    return bytes;
}

static int64_t allgather_bytes(const struct census *c, int rank, bool backward)
{
    int64_t bytes = 0;
    for (int h = 1; h < c->ranks; h++) {
        int owner = (rank - h + c->ranks) % c->ranks;
        bytes += census_rows(c, rank, h, h) * ROW;
        if (backward) bytes += census_rows(c, owner, h, h) * ROW_GRADIENT;
    }
    return bytes;
}

static void check_census(const char *problem)
{
    struct census c;
    census_open(&c, problem);
    bool ring = !strcmp(c.trial.strategy, "ring");
    for (int rank = 0; rank < c.ranks; rank++)
        for (int backward = 0; backward < 2; backward++) {
            ra_stats got = ask(problem, rank, backward);
            int64_t want = ring ? ring_bytes(&c, rank, backward)
                                : allgather_bytes(&c, rank, backward);
            int64_t pairs = c.pairs[rank] * 6 * 3;
            if (got.bytes_sent != want) fail_at(problem, rank, "bytes", got.bytes_sent, want);
            if (got.pairs != pairs) fail_at(problem, rank, "pairs", got.pairs, pairs);
            double flops = 2.0 * (double)pairs * (backward ? 3 * 8 + 2 * 12 : 8 + 12);
            if (got.flops != flops)
                fail_at(problem, rank, "flops", (int64_t)got.flops, (int64_t)flops);
        }
    trial_clear(&c.trial);
}

static void bytes_are_those_of_the_rows_needed(void **state)
{
    (void)state;
    static const char *const modifiers[] = { "", ";causal", ";docs=0,10,10,41,67" };
    static const char *const partitions[] = { "contiguous", "zigzag" };
    ra_part strategy;
    char sample[64], problem[256];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int m = 0; m < TEST_COUNT(modifiers); m++)
            for (int p = 0; p < TEST_COUNT(partitions); p++)
                for (int s = 0; walk_usable("strategy", s, &strategy); s++)
                    for (int r = 0; r < TEST_COUNT(walk_ranks); r++) {
                        snprintf(problem, sizeof problem, "%s%s n=67 %s ring=%d %s %s backward",
                                 sample, modifiers[m], SHAPE, walk_ranks[r], partitions[p],
                                 strategy.name);
                        check_census(problem);
                    }
}

static void bytes_of_striped_rings(void **state)
{
    (void)state;
    static const char *const patterns[] = { "full", "causal", "prefix:9" };
    ra_part strategy;
    char problem[256];
    for (int i = 0; i < TEST_COUNT(patterns); i++)
        for (int s = 0; walk_usable("strategy", s, &strategy); s++)
            for (int r = 0; r < TEST_COUNT(walk_ranks); r++) {
                snprintf(problem, sizeof problem, "%s n=67 %s ring=%d striped %s backward",
                         patterns[i], SHAPE, walk_ranks[r], strategy.name);
                check_census(problem);
            }
}

/* Pairs with a length of its own on each side. */
static void pairs_with_other_numbers_of_keys(void **state)
{
    (void)state;
    static const int shapes[][2] = { { 7, 20 }, { 20, 7 }, { 1, 50 }, { 50, 1 } };
    static const char *const patterns[] = { "full", "causal", "window:4", "window:3,6" };
    for (int s = 0; s < TEST_COUNT(shapes); s++)
        for (int p = 0; p < TEST_COUNT(patterns); p++) {
            ra_pattern *pattern;
            uint8_t seen[64];
            char problem[128];
            int64_t want = 0, got = 0;
            assert_ok(ra_pattern_parse(patterns[p], &pattern));
            for (int query = 0; query < shapes[s][0]; query++) {
                assert_ok(ra_pattern_row(pattern, shapes[s][0], shapes[s][1], 0, query, seen));
                for (int key = 0; key < shapes[s][1]; key++) want += seen[key];
            }
            ra_pattern_destroy(pattern);
            snprintf(problem, sizeof problem, "%s n=%d nk=%d h=2 d=4 ring=3 zigzag", patterns[p],
                     shapes[s][0], shapes[s][1]);
            for (int rank = 0; rank < 3; rank++) got += ask(problem, rank, 0).pairs;
            if (got != 2 * want) fail_at(problem, -1, "pairs", got, 2 * want);
        }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* The lab compares every run with its forecast; here with the census as well. */
static void runs_count_what_they_do(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "full n=67 " SHAPE " ring=4 backward",
        "causal n=67 " SHAPE " ring=5 backward",
        "causal n=67 " SHAPE " ring=3 zigzag backward",
        "window:7 n=67 " SHAPE " ring=7 backward",
        "window:3,5 n=67 " SHAPE " ring=8 allgather backward",
        "full;docs=0,10,10,41,67 n=67 " SHAPE " ring=4 zigzag backward",
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        struct lab lab;
        struct census c;
        lab_open(&lab, "%s", cases[i]);
        lab_run(&lab);
        census_open(&c, cases[i]);
        bool ring = !strcmp(c.trial.strategy, "ring");
        for (int rank = 0; rank < c.ranks; rank++)
            for (int backward = 0; backward < 2; backward++) {
                const ra_stats *got = backward ? &lab.rank[rank].backward : &lab.rank[rank].forward;
                int64_t want = ring ? ring_bytes(&c, rank, backward)
                                    : allgather_bytes(&c, rank, backward);
                if (got->bytes_sent != want)
                    fail_at(cases[i], rank, "bytes", got->bytes_sent, want);
                if (got->pairs != c.pairs[rank] * 18)
                    fail_at(cases[i], rank, "pairs", got->pairs, c.pairs[rank] * 18);
            }
        trial_clear(&c.trial);
        lab_close(&lab);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_ring),
        cmocka_unit_test(causal_contiguous_ring),
        cmocka_unit_test(window_contiguous_ring),
        cmocka_unit_test(window_reaches_no_further_than_it_must),
        cmocka_unit_test(causal_zigzag_and_striped_take_all_hops),
        cmocka_unit_test(causal_work_is_balanced),
        cmocka_unit_test(full_allgather),
        cmocka_unit_test(bytes_are_those_of_the_rows_needed),
        cmocka_unit_test(bytes_of_striped_rings),
        cmocka_unit_test(pairs_with_other_numbers_of_keys),
        cmocka_unit_test(runs_count_what_they_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
