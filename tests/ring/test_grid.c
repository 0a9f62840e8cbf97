/* SPDX-License-Identifier: Apache-2.0 */
/* test_grid.c - every kernel x pattern x partition x strategy x rank count, forward and backward,
 * against the fp64 oracle. The lists are walked, so a new row is tested without an edit. Short runs
 * take every eleventh point. */
#include "support/dice.h"
#include "support/expect.h"
#include "support/walk.h"

static const char *const strides[] = { "packed", "padded", "heads" };

/* ---- Cases ----------------------------------------------------------------------------------- */

/* One point of the grid. */
struct point {
    const char *pattern, *shape;
    const ra_part *kernel;
    const char *partition, *strategy; /* partition NULL: a layout of our own */
    int ranks;
    int turn; /* counts points; dtype, threads and strides rotate by it */
};

/* How many of first, first + step, ... are below `end`. */
static int64_t steps_below(int64_t first, int64_t step, int64_t end)
{
    return first < end ? (end - first - 1) / step + 1 : 0;
}

/* Runs that interleave and come out of order: the outer thirds are distributed over all ranks but
 * the last, which owns the middle. */
static ra_layout *odd_layout(int64_t length, int ranks)
{
    ra_run runs[2 * 8 + 1];
    int64_t counts[8] = { 0 }, third = length / 3, high = length - third;
    int dealt = ranks > 1 ? ranks - 1 : 1, used = 0;
    for (int rank = 0; rank < dealt; rank++) {
        int64_t behind = steps_below(high + rank, dealt, length),
                before = steps_below(rank, dealt, third);
        if (behind) runs[used++] = (ra_run){ high + rank, dealt, behind };
        if (before) runs[used++] = (ra_run){ rank, dealt, before };
        counts[rank] = (behind > 0) + (before > 0);
    }
    runs[used] = (ra_run){ third, 1, high - third };
    counts[ranks - 1]++;
    ra_layout *layout;
    assert_ok(ra_layout_create_custom(length, ranks, runs, counts, &layout));
    return layout;
}

static void run_point(const struct point *p, const char *dtype)
{
    struct fixture fixture;
    fixture_open(&fixture, "%s %s %s kernel=%s ring=%d %s %s threads=%d strides=%s backward",
                 p->pattern, p->shape, dtype, p->kernel->name, p->ranks,
                 p->partition ? p->partition : "contiguous", p->strategy, 1 + p->turn % 2,
                 strides[p->turn / 3 % 3]);
    if (!p->partition)
        fixture_use_layouts(&fixture, odd_layout(fixture.trial.q_len, p->ranks),
                            fixture.trial.k_len == fixture.trial.q_len
                                ? NULL
                                : odd_layout(fixture.trial.k_len, p->ranks));
    fixture_run(&fixture);
    expect_lab(&fixture);
    fixture_close(&fixture);
}

/* Every how many-th point is run. No list has a length that shares a factor with these numbers, so
 * every entry of every list is combined with every entry of the others, if not with all at once. */
static int stride(void) { return test_long() ? 1 : test_slow() ? 101 : 23; }

static void run_dtypes(struct point *p)
{
    p->turn++;
    if (p->turn % stride()) return;
    for (int i = 0; i < (test_long() ? 3 : 1); i++)
        run_point(p, walk_dtype(p->kernel, p->turn + i));
}

/* Every strategy and rank count. */
static void run_rings(struct point *p)
{
    ra_part part;
    for (int s = 0; walk_usable("strategy", s, &part); s++)
        for (int r = 0; r < TEST_COUNT(walk_ranks); r++) {
            p->strategy = part.name;
            p->ranks = walk_ranks[r];
            run_dtypes(p);
        }
}

/* Every partition; ;perdoc too where the pattern has documents; and a layout of our own. */
static void run_partitions(struct point *p)
{
    ra_part part;
    char text[64];
    for (int i = 0; walk_usable("partition", i, &part); i++) {
        p->partition = part.name;
        run_rings(p);
        if (!strstr(p->pattern, "docs=") || strstr(p->shape, "order=")) continue;
        snprintf(text, sizeof text, "%s;perdoc", part.name);
        p->partition = text;
        run_rings(p);
    }
    p->partition = NULL;
    run_rings(p);
}

static void run_kernels(const char *pattern, const char *shape)
{
    static int turn;
    ra_part part;
    for (int i = 0; walk_usable("kernel", i, &part); i++) {
        struct point p = { .pattern = pattern, .shape = shape, .kernel = &part, .turn = turn++ };
        run_partitions(&p);
    }
}

static void run_modified(const char *modifier)
{
    char sample[96], pattern[160];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++) {
        snprintf(pattern, sizeof pattern, "%s%s", sample, modifier);
        run_kernels(pattern, "n=67 h=4/2 d=8 dv=12 b=2");
        expect_forget();
    }
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void patterns_as_they_are(void **state)
{
    (void)state;
    run_modified("");
}

static void patterns_with_causal(void **state)
{
    (void)state;
    run_modified(";causal");
}

static void patterns_with_documents(void **state)
{
    (void)state;
    run_modified(";docs=0,0,5,30,30,31,67,67");
}

static void patterns_with_causal_and_documents(void **state)
{
    (void)state;
    run_modified(";causal;docs=0,13,14,50,67");
}

/* Every order, with all that goes by original position. */
static void patterns_in_every_order(void **state)
{
    (void)state;
    static const char *const modifiers[] = { "", ";causal", ";docs=0,0,5,30,30,31,67,67" };
    char sample[96], order[64], pattern[192], shape[192];
    int turn = 0;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int o = 0; walk_order(o, order, sizeof order); o++, turn++) {
            if (!strcmp(order, "sequential")) continue; /* as without one */
            snprintf(pattern, sizeof pattern, "%s%s", sample, modifiers[turn % 3]);
            snprintf(shape, sizeof shape, "n=67 h=4/2 d=8 dv=12 b=2 order=%s", order);
            run_kernels(pattern, shape);
            expect_forget();
        }
}

/* More keys than queries, as in decoding; and more queries than keys, where that makes sense. */
static void other_numbers_of_keys(void **state)
{
    (void)state;
    char sample[96];
    int turn = 0;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++) {
        struct point p = { .pattern = sample, .turn = turn++ };
        ra_problem problem = ra_problem_default();
        ra_pattern *pattern;
        uint8_t seen[19];
        assert_ok(ra_pattern_parse(sample, &pattern));
        problem.pattern = pattern;
        problem.q_len = 60;
        problem.k_len = 19;
        problem.q_heads = problem.dim = 1;
        bool more_queries = ra_problem_row(&problem, 0, 0, seen) == RA_OK;
        ra_pattern_destroy(pattern);
        ra_part part;
        for (int k = 0; walk_usable("kernel", k, &part); k++) {
            p.kernel = &part;
            p.shape = "n=19 nk=60 h=3 d=5 dv=9";
            run_partitions(&p);
            p.shape = "n=1 nk=41 h=4/1 d=16";
            run_partitions(&p);
            p.shape = "n=60 nk=19 h=3 d=5 dv=9";
            if (more_queries) run_partitions(&p);
        }
        expect_forget();
    }
}

/* Long enough that kernels work in several blocks of keys and of queries, with every kernel. */
static void blocks_inside_blocks(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "full n=613 h=2/1 d=24 ring=3",
        "causal n=613 h=2/1 d=24 ring=4 zigzag",
        "causal n=613 h=2/1 d=24 ring=2 striped",
        "window:200,77 n=613 h=2/1 d=24 ring=5 allgather zigzag",
        "prefix:130 n=613 h=2/1 d=24 ring=3 striped allgather",
        "causal;docs=0,257,300,613 n=613 h=2/1 d=24 ring=4 zigzag;perdoc",
        "dilated:128/1,300/2,613/3 n=613 h=4/2 d=24 ring=4",
        "dilated:64/2,613/4;causal n=613 h=4/2 d=24 ring=3 striped allgather",
        "blocks:64;local=1;global=1;random=0.1 n=613 h=2/1 d=24 ring=5 zigzag",
        "dilated:300/2;causal n=613 h=2 d=24 ring=3 order=hilbert",
        "causal n=613 h=2/1 d=24 ring=4 order=shuffled:3 alibi dropout=0.1",
    };
    ra_part part;
    for (int c = 0; c < TEST_COUNT(cases); c++)
        for (int k = 0; walk_usable("kernel", k, &part); k++)
            for (int i = 0; i < (test_long() ? 3 : 1); i++) {
                struct fixture fixture;
                fixture_open(&fixture, "%s %s kernel=%s backward threads=2", cases[c],
                             walk_dtype(&part, c + i), part.name);
                fixture_run(&fixture);
                expect_lab(&fixture);
                fixture_close(&fixture);
            }
    expect_forget();
}

/* Scores are multiplied by the scale that was given. */
static void a_scale_of_its_own(void **state)
{
    (void)state;
    ra_part kernel;
    for (int k = 0; walk_usable("kernel", k, &kernel); k++)
        for (int i = 0; i < 6; i++) {
            struct fixture fixture;
            fixture_open(&fixture, "causal n=40 h=2/1 d=8 %s scale=%s ring=%d kernel=%s backward",
                         walk_dtype(&kernel, i), i < 3 ? "1.7" : "0.03", 1 + i % 4, kernel.name);
            fixture_run(&fixture);
            expect_lab(&fixture);
            fixture_close(&fixture);
        }
    expect_forget();
}

/* Documents of three, distributed over the ranks by query but not by key: a rank needs tokens here
 * and there of every block, more ranges than a message list keeps apart. */
static void scattered_needs(void **state)
{
    (void)state;
    enum { DOCUMENTS = 40, RANKS = 4 };
    static const char *const partitions[] = { "contiguous", "zigzag", "striped" };
    char docs[400] = "0";
    ra_run runs[DOCUMENTS];
    int64_t counts[RANKS] = { 0 };
    for (int i = 0; i < DOCUMENTS; i++) {
        size_t used = strlen(docs);
        snprintf(docs + used, sizeof docs - used, ",%d", 3 * (i + 1));
        runs[i] = (ra_run){ 3 * (i % (DOCUMENTS / RANKS) * RANKS + i / (DOCUMENTS / RANKS)), 1, 3 };
        counts[i / (DOCUMENTS / RANKS)]++;
    }
    for (int i = 0; i < 2 * TEST_COUNT(partitions); i++) {
        struct fixture fixture;
        ra_layout *queries, *keys;
        fixture_open(&fixture, "full;docs=%s n=120 h=2 d=8 ring=4 %s backward", docs,
                     i % 2 ? "allgather" : "ring");
        assert_ok(ra_layout_create_custom(120, RANKS, runs, counts, &queries));
        assert_ok(ra_layout_create(partitions[i / 2], 120, RANKS, NULL, &keys));
        fixture_use_layouts(&fixture, queries, keys);
        fixture_run(&fixture);
        expect_lab(&fixture);
        fixture_close(&fixture);
    }
    expect_forget();
}

/* Combinations nobody thought of. */
static void problems_by_dice(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < (test_long() ? 6000 : test_slow() ? 30 : 150); i++) {
        struct fixture fixture;
        fixture_open(&fixture, "%s", dice_run(i).text);
        fixture_run(&fixture);
        expect_lab(&fixture);
        fixture_close(&fixture);
    }
    expect_forget();
}

/* The LSE array is optional. */
static void without_an_lse_array(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct fixture fixture;
        fixture_open(&fixture, "causal n=33 h=2 d=8 ring=%d", ranks);
        fixture.no_lse = true;
        fixture_run(&fixture);
        expect_lab(&fixture);
        fixture_close(&fixture);
    }
    expect_forget();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_as_they_are),
        cmocka_unit_test(patterns_with_causal),
        cmocka_unit_test(patterns_with_documents),
        cmocka_unit_test(patterns_with_causal_and_documents),
        cmocka_unit_test(patterns_in_every_order),
        cmocka_unit_test(other_numbers_of_keys),
        cmocka_unit_test(blocks_inside_blocks),
        cmocka_unit_test(a_scale_of_its_own),
        cmocka_unit_test(scattered_needs),
        cmocka_unit_test(problems_by_dice),
        cmocka_unit_test(without_an_lse_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
