/* SPDX-License-Identifier: Apache-2.0 */
/* test_census.c - hops, bytes, pairs and FLOPs of every rank against a count by brute force
 * (support/census.h): every pattern, order, partition, strategy and rank count. The lab compares
 * every run with its forecast. */
#include "support/census.h"
#include "support/dice.h"
#include "support/fixture.h"
#include "support/walk.h"

/* ---- Forecasts ------------------------------------------------------------------------------- */

static void bytes_are_those_of_the_rows_needed(void **state)
{
    (void)state;
    static const char *const modifiers[] = { "", ";causal", ";docs=0,10,10,41,67" };
    static const char *const partitions[] = { "contiguous", "zigzag" };
    ra_part strategy;
    char sample[96], problem[256];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int m = 0; m < TEST_COUNT(modifiers); m++)
            for (int p = 0; p < TEST_COUNT(partitions); p++)
                for (int s = 0; walk_usable("strategy", s, &strategy); s++)
                    for (int r = 0; r < TEST_COUNT(walk_ranks); r++) {
                        snprintf(problem, sizeof problem, "%s%s n=67 %s ring=%d %s %s backward",
                                 sample, modifiers[m], ASK_SHAPE, walk_ranks[r], partitions[p],
                                 strategy.name);
                        census_check_problem(problem);
                    }
}

/* Keys go by their index in the order; pairs by all rules. */
static void bytes_in_every_order(void **state)
{
    (void)state;
    static const char *const modifiers[] = { "", ";causal", ";docs=0,10,10,41,67" };
    ra_part strategy, partition;
    char sample[96], order[64], problem[256];
    int turn = 0;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int o = 0; walk_order(o, order, sizeof order); o++)
            for (int s = 0; walk_usable("strategy", s, &strategy); s++, turn++) {
                bool passed_on = strcmp(strategy.name, "allgather") &&
                                 strncmp(sample, "dilated", 7) && strncmp(sample, "blocks", 6);
                /* Causal and prefix are masks of original positions here, like ;causal. */
                if (!strncmp(sample, "causal", 6) || !strncmp(sample, "prefix", 6)) continue;
                walk_usable("partition", passed_on ? turn % 2 : turn % 3, &partition);
                snprintf(problem, sizeof problem, "%s%s n=67 %s order=%s ring=%d %s %s backward",
                         sample, modifiers[turn / 3 % 3], ASK_SHAPE, order, walk_ranks[turn % 7],
                         partition.name, strategy.name);
                census_check_problem(problem);
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
                         patterns[i], ASK_SHAPE, walk_ranks[r], strategy.name);
                census_check_problem(problem);
            }
}

/* Lengths of their own on each side; more queries than keys only where that makes sense. */
static void other_numbers_of_keys(void **state)
{
    (void)state;
    static const int shapes[][2] = { { 20, 7 }, { 50, 1 }, { 7, 20 }, { 1, 50 }, { 19, 60 } };
    char sample[96], problem[256];
    ra_part strategy;
    for (int s = 0; s < TEST_COUNT(shapes); s++)
        for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
            for (int w = 0; walk_usable("strategy", w, &strategy); w++) {
                bool more_queries = shapes[s][0] > shapes[s][1];
                if (more_queries && strncmp(sample, "full", 4) && strncmp(sample, "causal", 6) &&
                    strncmp(sample, "window", 6))
                    continue;
                snprintf(problem, sizeof problem, "%s n=%d nk=%d %s ring=3 zigzag %s backward",
                         sample, shapes[s][0], shapes[s][1], ASK_SHAPE, strategy.name);
                census_check_problem(problem);
            }
}

/* Any combination of those that go directly to their readers. */
static void bytes_of_problems_by_dice(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < (test_long() ? 20000 : test_slow() ? 60 : 600); i++) {
        struct dice_problem problem = dice_problem(i);
        bool sparse = !strncmp(problem.text, "dilated", 7) || !strncmp(problem.text, "blocks", 6);
        if (sparse) census_check_problem(problem.text);
    }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* The lab compares every run with its forecast; here with the census as well. */
static void runs_count_what_they_do(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "full n=67 " ASK_SHAPE " ring=4 backward",
        "causal n=67 " ASK_SHAPE " ring=5 backward",
        "causal n=67 " ASK_SHAPE " ring=3 zigzag backward",
        "window:7 n=67 " ASK_SHAPE " ring=7 backward",
        "window:3,5 n=67 " ASK_SHAPE " ring=8 allgather backward",
        "full;docs=0,10,10,41,67 n=67 " ASK_SHAPE " ring=4 zigzag backward",
        "dilated:8/1,16/2,32/4 n=67 " ASK_SHAPE " ring=5 backward",
        "dilated:20/3,67/5;dedup;causal n=67 " ASK_SHAPE " ring=7 striped backward",
        "blocks:4;local=1;global=1 n=67 " ASK_SHAPE " ring=4 zigzag backward",
        "blocks:6;random=0.2;seed=7 n=67 " ASK_SHAPE " ring=8 allgather backward",
        "dilated:16/4,40/2 n=67 " ASK_SHAPE " ring=4 order=hilbert backward",
        "causal n=67 " ASK_SHAPE " ring=3 ulysses backward",
        "full n=67 nk=31 " ASK_SHAPE " ring=8 striped ulysses backward",
        "causal n=67 " ASK_SHAPE " ring=6 zigzag 2d:2x3 backward",
        "causal n=67 " ASK_SHAPE " ring=4 auto backward",
        "full n=67 " ASK_SHAPE " ring=6 auto latency=1e-3 bandwidth=1e6 backward",
        "blocks:6;random=0.2;seed=7 n=67 " ASK_SHAPE " ring=8 striped 2d:4x2 backward",
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        static struct census c;
        struct fixture fixture;
        fixture_open(&fixture, "%s", cases[i]);
        fixture_run(&fixture);
        census_open(&c, cases[i]);
        for (int rank = 0; rank < c.ranks; rank++)
            for (int backward = 0; backward < 2; backward++)
                census_check(&c, cases[i], rank, backward,
                             backward ? &fixture.rank[rank].backward : &fixture.rank[rank].forward);
        census_close(&c);
        fixture_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_rows_needed),
        cmocka_unit_test(bytes_in_every_order),
        cmocka_unit_test(bytes_of_striped_rings),
        cmocka_unit_test(other_numbers_of_keys),
        cmocka_unit_test(bytes_of_problems_by_dice),
        cmocka_unit_test(runs_count_what_they_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
