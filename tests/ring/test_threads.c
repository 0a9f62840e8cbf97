/* SPDX-License-Identifier: Apache-2.0 */
/* test_threads.c - results do not depend on the number of threads, bit for bit, forward and
 * backward, on problems large enough that a backward step is split into chunks of keys and queries;
 * and with many threads they are still right. */
#include "support/expect.h"
#include "support/walk.h"

static const enum tensor results[] = { TENSOR_OUT, TENSOR_LSE, TENSOR_DQ, TENSOR_DK, TENSOR_DV };

static void run(struct fixture *fixture, const char *problem, int threads)
{
    fixture_open(fixture, "%s backward threads=%d", problem, threads);
    fixture_run(fixture);
}

static void check_bits(const char *problem)
{
    static const int threads[] = { 2, 3, 5 };
    struct fixture alone, many;
    run(&alone, problem, 1);
    for (int t = 0; t < TEST_COUNT(threads); t++) {
        if (test_slow() && t > 0) break;
        run(&many, problem, threads[t]);
        for (int i = 0; i < TEST_COUNT(results); i++)
            if (!fixture_same(&alone, &many, results[i]))
                fixture_fail(&many, "%s has other bits than with one thread",
                             tensor_name(results[i]));
        fixture_close(&many);
    }
    fixture_close(&alone);
}

/* Every pattern; shapes, rings, partitions and strategies in rotation. */
static void every_pattern_has_the_same_bits(void **state)
{
    (void)state;
    static const char *const shapes[] = { "n=1100 h=2 d=4", "n=1100 h=4/2 d=4",
                                          "n=1300 h=3/1 d=5 dv=3", "n=2100 h=1 d=4 ring=2",
                                          "n=3300 h=2/1 d=3 ring=3" };
    static const char *const modifiers[] = { "", ";causal" };
    char sample[96], problem[256];
    ra_part partition, strategy;
    int turn = 0;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int s = 0; s < TEST_COUNT(shapes); s++, turn++) {
            if (test_slow() && turn % 7) continue;
            walk_turn("partition", turn, &partition);
            walk_turn("strategy", turn / 2, &strategy);
            snprintf(problem, sizeof problem, "%s%s %s %s %s", sample, modifiers[turn % 2],
                     shapes[s], partition.name, strategy.name);
            check_bits(problem);
        }
}

/* Hops overlap: the last jobs of one are under way while the first of the next begin, and while
 * keys arrive in the slot they read from as soon as they are done. More threads than cores, again
 * and again, so that some are late. */
static void late_jobs_keep_their_keys(void **state)
{
    (void)state;
    const int runs = test_slow() ? 10 : 60;
    struct fixture alone, many;
    fixture_open(&alone, "full n=3072 h=1 d=32 ring=4 contiguous ring threads=1");
    fixture_run(&alone);
    fixture_open(&many, "full n=3072 h=1 d=32 ring=4 contiguous ring threads=2");
    fixture_start(&many);
    for (int i = 0; i < runs; i++) {
        fixture_forward(&many);
        if (!fixture_same(&alone, &many, TENSOR_OUT))
            fixture_fail(&many, "out has other bits in run %d", i);
    }
    fixture_close(&many);
    fixture_close(&alone);
}

/* Rows that see many runs of keys, in one block, spread over all chunks. */
static void many_runs_have_the_same_bits(void **state)
{
    (void)state;
    check_bits("blocks:64;local=4;global=1;random=0.05;seed=7 n=4096 h=4/2 d=4");
    check_bits("blocks:16;strided=2 n=2200 h=2/1 d=4");
    check_bits("dilated:512/1,1024/2,2048/4 n=4100 h=4/2 d=4");
    check_bits("dilated:512/1,1024/2,2048/4 n=6200 h=4/2 d=4 ring=2");
    check_bits("causal n=2200 h=2/1 d=4 order=shuffled:3");
}

/* Against the oracle: chunks that do not divide, rows of single heads, terms, batches. */
static void chunks_are_right(void **state)
{
    (void)state;
    static const char *const problems[] = {
        "full n=1111 h=1 d=8",
        "causal n=1700 h=2/1 d=5",
        "window:600,40 n=1700 h=1 d=8 b=2",
        "causal n=2111 h=1 d=4 ring=2 zigzag",
        "causal n=2111 h=1 d=4 ring=2 striped allgather",
        "full n=300 nk=1500 h=4/1 d=4",
        "causal n=1111 h=64/32 d=4", /* jobs of 512 and of 1024 rows: there are enough */
        "full n=1111 nk=300 h=64 d=4",
        "dilated:600/1,1400/3 n=1400 h=3 d=4 ring=2",
        "blocks:256;local=1;global=1 n=1600 h=2/1 d=4",
        "causal n=1111 h=2/1 d=8 softcap=3 alibi sinks dropout=0.2",
    };
    for (int i = 0; i < TEST_COUNT(problems); i++) {
        struct fixture fixture;
        if (test_slow() && i % 3) continue;
        run(&fixture, problems[i], 3);
        expect_lab(&fixture);
        fixture_close(&fixture);
    }
    expect_forget();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_has_the_same_bits),
        cmocka_unit_test(late_jobs_keep_their_keys),
        cmocka_unit_test(many_runs_have_the_same_bits),
        cmocka_unit_test(chunks_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
