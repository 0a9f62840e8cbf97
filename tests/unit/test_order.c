/* SPDX-License-Identifier: Apache-2.0 */
/* test_order.c - orders: the curve cell by cell, that every rule is a permutation for every length
 * and grid, that what is permuted comes back, and the sentences of what is refused. */
#include "support/test.h"

#include <stdlib.h>

#include "core/philox.h"
#include "pattern/order.h"
#include "support/counter.h"

/* The positions of an order; to be freed. */
static int64_t *list(const char *text, int64_t length)
{
    ra_order *order;
    test_status(RA_OK, ra_order_parse(text, length, &order), text, __FILE__, __LINE__);
    assert_int_equal(ra_order_length(order), length);
    int64_t *positions = malloc((size_t)(length + 1) * sizeof *positions);
    assert_non_null(positions);
    assert_ok(ra_order_positions(order, positions));
    ra_order_destroy(order);
    return positions;
}

static void expect_list(const char *text, int64_t length, const int64_t *want)
{
    int64_t *got = list(text, length);
    for (int64_t i = 0; i < length; i++)
        if (got[i] != want[i])
            fail_msg("%s of %lld: index %lld is position %lld, not %lld", text, (long long)length,
                     (long long)i, (long long)got[i], (long long)want[i]);
    free(got);
}

static void expect_permutation(const char *text, int64_t length)
{
    int64_t *got = list(text, length);
    char *seen = calloc((size_t)length + 1, 1);
    assert_non_null(seen);
    for (int64_t i = 0; i < length; i++) {
        if (got[i] < 0 || got[i] >= length || seen[got[i]])
            fail_msg("%s of %lld: index %lld holds position %lld", text, (long long)length,
                     (long long)i, (long long)got[i]);
        seen[got[i]] = 1;
    }
    free(seen);
    free(got);
}

/* ---- Rules ----------------------------------------------------------------------------------- */

static void sequential_changes_nothing(void **state)
{
    (void)state;
    static const int64_t want[] = { 0, 1, 2, 3, 4 };
    expect_list("sequential", 5, want);
    ra_order *order;
    assert_ok(ra_order_parse("sequential", INT64_C(1) << 40, &order)); /* it is not a list */
    assert_int_equal(ra__order_hash(order), 0);
    ra_order_destroy(order);
}

static void hilbert_by_hand(void **state)
{
    (void)state;
    static const int64_t four[] = { 0, 1, 5, 4, 8, 12, 13, 9, 10, 14, 15, 11, 7, 6, 2, 3 };
    static const int64_t two[] = { 0, 2, 3, 1 };
    static const int64_t eleven[] = { 0, 1, 5, 4, 8, 9, 10, 7, 6, 2, 3 };
    static const int64_t three[] = { 0, 1, 4, 3, 6, 7, 8, 5, 2 }; /* 3x3 inside 4x4 */
    expect_list("hilbert:4x4", 16, four);
    expect_list("hilbert", 16, four);
    expect_list("hilbert", 4, two);
    expect_list("hilbert", 11, eleven);
    expect_list("hilbert:3x3", 9, three);
}

/* On a whole square each step goes to a neighbour; it starts and ends at the top. */
static void neighbours_on_the_curve_are_neighbours(void **state)
{
    (void)state;
    for (int64_t side = 1; side <= 64; side *= 2) {
        int64_t *at = list("hilbert", side * side), last = side * side - 1;
        assert_int_equal(at[0], 0);
        assert_int_equal(at[last], side - 1);
        for (int64_t i = 0; i < last; i++) {
            int64_t down = llabs(at[i + 1] / side - at[i] / side);
            int64_t right = llabs(at[i + 1] % side - at[i] % side);
            if (down + right != 1)
                fail_msg("side %lld: from %lld to %lld", (long long)side, (long long)at[i],
                         (long long)at[i + 1]);
        }
        free(at);
    }
}

/* A smaller grid visits its cells in the same sequence as the square that contains it. */
static void grids_are_cut_out_of_squares(void **state)
{
    (void)state;
    int64_t *square = list("hilbert:16x16", 256), *grid = list("hilbert:11x13", 140);
    int64_t found = 0;
    for (int i = 0; i < 256; i++) {
        int64_t row = square[i] / 16, column = square[i] % 16, position = row * 13 + column;
        if (row >= 11 || column >= 13 || position >= 140) continue;
        assert_int_equal(grid[found++], position);
    }
    assert_int_equal(found, 140);
    free(square);
    free(grid);
}

static void every_order_is_a_permutation(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 0, 1, 2, 3, 5, 16, 17, 97, 128, 1000, 1021, 4096 };
    static const char *const texts[] = { "sequential",    "hilbert",        "shuffled:0",
                                         "shuffled:77",   "hilbert:1x4096", "hilbert:4096x1",
                                         "hilbert:61x71", "hilbert:2x2999", "hilbert:2048x2" };
    for (int t = 0; t < TEST_COUNT(texts); t++)
        for (int n = 0; n < TEST_COUNT(lengths); n++) expect_permutation(texts[t], lengths[n]);
    for (int rows = 1; rows <= 20; rows++)
        for (int columns = 1; columns <= 20; columns++) {
            char text[40];
            snprintf(text, sizeof text, "hilbert:%dx%d", rows, columns);
            expect_permutation(text, rows * columns);
            expect_permutation(text, rows * columns - 1);
        }
}

static void every_sample_of_the_table_is_a_permutation(void **state)
{
    (void)state;
    for (int i = 0; ra__order_kind_at(i); i++) {
        char samples[200];
        snprintf(samples, sizeof samples, "%s", ra__order_kind_at(i)->samples);
        for (char *word = strtok(samples, " "); word; word = strtok(NULL, " "))
            expect_permutation(word, 128);
    }
}

/* Long thin grids are in squares of 2^40 cells and more, too large to walk through. */
static void a_million_tokens(void **state)
{
    (void)state;
    static const char *const texts[] = { "hilbert",           "hilbert:1x1000000",
                                         "hilbert:1000000x1", "hilbert:3x400000",
                                         "shuffled:1",        "hilbert:2147483647x2147483647" };
    for (int t = 0; t < TEST_COUNT(texts); t++) expect_permutation(texts[t], 1000000);
}

static void shuffles_follow_their_seed(void **state)
{
    (void)state;
    int64_t *a = list("shuffled:5", 300), *b = list("shuffled:5", 300),
            *c = list("shuffled:6", 300);
    assert_memory_equal(a, b, 300 * sizeof *a);
    int same = 0, at_home = 0;
    for (int i = 0; i < 300; i++) same += a[i] == c[i], at_home += a[i] == i;
    assert_true(same < 12 && at_home < 12);
    free(a);
    free(b);
    free(c);
    /* Of three positions, all six orders come up about equally often. */
    int counts[27] = { 0 };
    for (int seed = 0; seed < 3000; seed++) {
        char text[40];
        snprintf(text, sizeof text, "shuffled:%d", seed);
        int64_t *at = list(text, 3);
        counts[at[0] * 9 + at[1] * 3 + at[2]]++;
        free(at);
    }
    int seen = 0;
    for (int i = 0; i < 27; i++) {
        if (!counts[i]) continue;
        seen++;
        assert_in_range(counts[i], 400, 600);
    }
    assert_int_equal(seen, 6);
}

/* The numbers of the paper's reference implementation. */
static void philox_is_philox(void **state)
{
    (void)state;
    struct ra__philox zero = ra__philox(0, 0, 0, 0, 0);
    static const uint32_t want[4] = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 };
    assert_memory_equal(zero.word, want, sizeof want);
}

/* ---- Moving arrays -------------------------------------------------------------------------- */

static void what_is_permuted_comes_back(void **state)
{
    (void)state;
    enum { N = 45, BATCH = 3 };
    int32_t labels[BATCH * N], moved[BATCH * N], back[BATCH * N];
    double wide[N * 2], wide_moved[N * 2], wide_back[N * 2];
    for (int i = 0; i < BATCH * N; i++) labels[i] = 1000 + i;
    for (int i = 0; i < N * 2; i++) wide[i] = i;
    static const char *const texts[] = { "sequential", "hilbert", "hilbert:5x9", "shuffled:3" };
    for (int t = 0; t < TEST_COUNT(texts); t++) {
        ra_order *order;
        assert_ok(ra_order_parse(texts[t], N, &order));
        ra_array away[] = { { labels, moved, BATCH, sizeof *labels },
                            { wide, wide_moved, 1, 2 * sizeof *wide } };
        ra_array home[] = { { moved, back, BATCH, sizeof *labels },
                            { wide_moved, wide_back, 1, 2 * sizeof *wide } };
        assert_ok(ra_order_permute(order, away, 2));
        int64_t *positions = list(texts[t], N);
        for (int i = 0; i < BATCH * N; i++)
            assert_int_equal(moved[i], 1000 + i / N * N + positions[i % N]);
        for (int i = 0; i < N; i++) assert_true(wide_moved[2 * i] == 2.0 * (double)positions[i]);
        assert_ok(ra_order_restore(order, home, 2));
        assert_memory_equal(back, labels, sizeof labels);
        assert_memory_equal(wide_back, wide, sizeof wide);
        free(positions);
        ra_order_destroy(order);
    }
}

/* ---- Custom orders, copies, hashes ---------------------------------------------------------- */

static void custom_orders_are_copied(void **state)
{
    (void)state;
    int64_t given[] = { 2, 0, 3, 1 }, got[4];
    ra_order *order, *copy;
    assert_ok(ra_order_custom(given, 4, &order));
    given[0] = 9;
    assert_ok(ra__order_copy(order, &copy));
    assert_true(ra__order_hash(order) == ra__order_hash(copy) && ra__order_hash(order) != 0);
    ra_order_destroy(order);
    given[0] = 2;
    assert_ok(ra_order_positions(copy, got));
    assert_memory_equal(got, given, sizeof given);
    ra_order_destroy(copy);

    int64_t same[] = { 0, 1, 2 };
    assert_ok(ra_order_custom(same, 3, &order));
    assert_int_equal(ra__order_hash(order), 0);
    ra_order_destroy(order);
    assert_ok(ra_order_custom(NULL, 0, &order));
    ra_order_destroy(order);
    assert_ok(ra__order_copy(NULL, &copy));
    assert_null(copy);
    assert_int_equal(ra__order_hash(NULL), 0);
}

static void what_is_refused(void **state)
{
    (void)state;
    ra_order *order = NULL;
    static const struct {
        const char *text, *words;
    } cases[] = {
        { "", "\"\" is not known; there are sequential, hilbert[:HxW], shuffled:SEED" },
        { "spiral", "\"spiral\" is not known" },
        { "Hilbert", "is not known" },
        { "sequential:3", "order sequential: \"3\" is not understood; write sequential" },
        { "hilbert:", "something is missing; write hilbert[:HxW]" },
        { "hilbert:4", "order hilbert: \"4\" is not understood; write hilbert[:HxW]" },
        { "hilbert:4x", "is not understood" },
        { "hilbert:4x4x4", "is not understood" },
        { "hilbert:0x16", "is not understood" },
        { "hilbert:-4x4", "is not understood" },
        { "hilbert:4x4294967296", "is not understood" },
        { "hilbert:4x99999999999999999999999", "is not understood" },
        { "hilbert:3x3", "a grid of 3x3 has too few cells for 10 positions" },
        { "shuffled", "something is missing; write shuffled:SEED" },
        { "shuffled:x", "is not understood; write shuffled:SEED" },
        { "shuffled:18446744073709551616", "is not understood" },
    };
    for (int i = 0; i < TEST_COUNT(cases); i++)
        assert_fails(RA_ERR_ARGUMENT, cases[i].words, ra_order_parse(cases[i].text, 10, &order));
    assert_fails(RA_ERR_UNSUPPORTED, "2147483648 positions; an order lists at most 2^31 - 1",
                 ra_order_parse("hilbert", INT64_C(1) << 31, &order));
    assert_fails(RA_ERR_ARGUMENT, "-1 positions", ra_order_parse("hilbert", -1, &order));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_order_parse(NULL, 1, &order));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_order_parse("hilbert", 1, NULL));

    static const int64_t twice[] = { 1, 3, 0, 3 }, outside[] = { 1, 0, 4, 4 }, below[] = { 0, -2 };
    assert_fails(RA_ERR_ARGUMENT, "index 1 holds position 3, and so does index 3",
                 ra_order_custom(twice, 4, &order));
    assert_fails(RA_ERR_ARGUMENT, "index 2 holds position 4 of 4",
                 ra_order_custom(outside, 4, &order));
    assert_fails(RA_ERR_ARGUMENT, "index 1 holds position -2 of 2",
                 ra_order_custom(below, 2, &order));
    assert_fails(RA_ERR_UNSUPPORTED, "2^31 - 1", ra_order_custom(twice, INT64_C(1) << 31, &order));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_order_custom(NULL, 2, &order));
    assert_null(order);
    assert_int_equal(ra_order_length(NULL), 0);
    ra_order_destroy(NULL);
}

static void bad_arrays_are_refused(void **state)
{
    (void)state;
    ra_order *order;
    int64_t positions[4];
    assert_ok(ra_order_parse("hilbert", 4, &order));
    ra_array none = { NULL, positions, 1, 8 }, negative = { positions, positions, -1, 8 };
    assert_fails(RA_ERR_ARGUMENT, "order: array 0 has no data", ra_order_permute(order, &none, 1));
    assert_fails(RA_ERR_ARGUMENT, "order: array 0 has a batch of -1",
                 ra_order_restore(order, &negative, 1));
    assert_fails(RA_ERR_ARGUMENT, "order: -1 arrays", ra_order_permute(order, &none, -1));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_order_permute(order, NULL, 1));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_order_permute(NULL, NULL, 0));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_order_positions(order, NULL));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_order_positions(NULL, positions));
    assert_ok(ra_order_permute(order, NULL, 0));
    ra_order_destroy(order);
}

static void without_memory_it_says_so(void **state)
{
    (void)state;
    struct counter counter;
    static const int64_t given[] = { 1, 2, 0 };
    counter_install(&counter);
    for (int calls = 0; calls < 2; calls++) {
        ra_order *order = NULL;
        atomic_store(&counter.left, calls);
        assert_fails(RA_ERR_MEMORY, "order: ", ra_order_parse("hilbert", 9, &order));
        atomic_store(&counter.left, calls);
        assert_fails(RA_ERR_MEMORY, "order: ", ra_order_custom(given, 3, &order));
        assert_null(order);
        assert_int_equal(ra_allocated_bytes(), 0);
    }
    counter_remove(&counter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequential_changes_nothing),
        cmocka_unit_test(hilbert_by_hand),
        cmocka_unit_test(neighbours_on_the_curve_are_neighbours),
        cmocka_unit_test(grids_are_cut_out_of_squares),
        cmocka_unit_test(every_order_is_a_permutation),
        cmocka_unit_test(every_sample_of_the_table_is_a_permutation),
        cmocka_unit_test(a_million_tokens),
        cmocka_unit_test(shuffles_follow_their_seed),
        cmocka_unit_test(philox_is_philox),
        cmocka_unit_test(what_is_permuted_comes_back),
        cmocka_unit_test(custom_orders_are_copied),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(bad_arrays_are_refused),
        cmocka_unit_test(without_memory_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
