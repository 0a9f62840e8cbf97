/* SPDX-License-Identifier: Apache-2.0 */
/* test_layout.c - which positions a rank owns, by rule and by hand, and moving arrays there and
 * back. */
#include "support/walk.h"

#include <stdlib.h>

#include "plan/layout.h"

enum { MOST_N = 128, MOST_RUNS = 160 };

/* ---- Rules ----------------------------------------------------------------------------------- */

/* The owner of position i of n, by the formulas. -1 for a rule that is not known here. */
static int owner_by_formula(const char *partition, int64_t n, int ranks, int64_t i)
{
    if (!strncmp(partition, "striped", 7)) return (int)(i % ranks);
    int64_t chunks = !strncmp(partition, "zigzag", 6) ? 2 * ranks : ranks;
    if (chunks == ranks && strncmp(partition, "contiguous", 10)) return -1;
    int chunk = 0;
    while ((chunk + 1) * n / chunks <= i) chunk++;
    return chunk < ranks ? chunk : 2 * ranks - 1 - chunk;
}

/* Fills owner[] from a layout; every position must be owned once, runs ascending and apart. */
static void read_owners(const ra_layout *layout, int64_t n, int ranks, int *owner)
{
    ra_run runs[MOST_RUNS];
    for (int64_t i = 0; i < n; i++) owner[i] = -1;
    for (int rank = 0; rank < ranks; rank++) {
        int64_t count = ra_layout_runs(layout, rank, runs, MOST_RUNS), positions = 0, last = -1;
        assert_true(count <= MOST_RUNS);
        for (int64_t i = 0; i < count; i++) {
            assert_true(runs[i].count > 0 && runs[i].step >= 1);
            assert_true(runs[i].start > last);
            last = runs[i].start + (runs[i].count - 1) * runs[i].step;
            assert_true(last < n);
            for (int64_t j = 0; j < runs[i].count; j++) {
                int *slot = &owner[runs[i].start + j * runs[i].step];
                assert_int_equal(*slot, -1);
                *slot = rank;
            }
            positions += runs[i].count;
        }
        assert_int_equal(positions, ra_layout_count(layout, rank));
    }
    for (int64_t i = 0; i < n; i++) assert_true(owner[i] >= 0);
}

static void check_rule(const char *partition, int64_t n, int ranks)
{
    ra_layout *layout;
    int owner[MOST_N];
    assert_ok(ra_layout_create(partition, n, ranks, NULL, &layout));
    read_owners(layout, n, ranks, owner);
    for (int64_t i = 0; i < n; i++) {
        int want = owner_by_formula(partition, n, ranks, i);
        if (want >= 0 && owner[i] != want)
            fail_msg("%s n=%d ring=%d: position %d belongs to rank %d, not %d", partition, (int)n,
                     ranks, (int)i, want, owner[i]);
    }
    ra_layout_destroy(layout);
}

static void rules_follow_the_formulas(void **state)
{
    (void)state;
    ra_part part;
    for (int p = 0; walk_part("partition", p, &part); p++)
        for (int64_t n = 0; n <= 70; n++)
            for (int ranks = 1; ranks <= 12; ranks++) check_rule(part.name, n, ranks);
}

/* floor(p n / P) where p n does not fit into 64 bits. */
__extension__ typedef unsigned __int128 wide;

static void long_sequences_are_cut_right(void **state)
{
    (void)state;
    ra_layout *layout;
    ra_run run;
    int64_t n = (INT64_C(1) << 60) + 7, sum = 0;
    assert_ok(ra_layout_create("contiguous", n, 1000, NULL, &layout));
    for (int rank = 0; rank < 1000; rank++) {
        assert_int_equal(ra_layout_runs(layout, rank, &run, 1), 1);
        assert_true(run.start == sum);
        assert_true(run.start == (int64_t)((wide)n * (wide)rank / 1000));
        sum += run.count;
    }
    assert_true(sum == n);
    ra_layout_destroy(layout);
}

static void perdoc_applies_the_rule_inside_each_document(void **state)
{
    (void)state;
    static const int64_t bounds[] = { 0, 0, 7, 8, 8, 30, 61, 61 };
    ra_pattern *pattern;
    ra_part part;
    char text[64];
    assert_ok(ra_pattern_full(&pattern));
    assert_ok(ra_pattern_set_documents(pattern, bounds, TEST_COUNT(bounds)));
    for (int p = 0; walk_part("partition", p, &part); p++)
        for (int ranks = 1; ranks <= 9; ranks++) {
            ra_layout *layout;
            int owner[MOST_N];
            snprintf(text, sizeof text, "%s;perdoc", part.name);
            assert_ok(ra_layout_create(text, 61, ranks, pattern, &layout));
            read_owners(layout, 61, ranks, owner);
            for (int d = 0; d + 1 < TEST_COUNT(bounds); d++)
                for (int64_t i = bounds[d]; i < bounds[d + 1]; i++) {
                    int want = owner_by_formula(part.name, bounds[d + 1] - bounds[d], ranks,
                                                i - bounds[d]);
                    if (want >= 0) assert_int_equal(owner[i], want);
                }
            ra_layout_destroy(layout);
        }
    ra_pattern_destroy(pattern);
}

/* Parts of their own are divided as documents are; bounds that are none are refused. */
static void parts_are_divided_like_documents(void **state)
{
    (void)state;
    static const int64_t bounds[] = { 0, 0, 7, 8, 8, 30, 61, 61 }, late[] = { 1, 5 },
                         down[] = { 0, 5, 4 };
    ra_pattern *pattern;
    ra_layout *parts, *documents;
    int owners[2][MOST_N];
    assert_ok(ra_pattern_full(&pattern));
    assert_ok(ra_pattern_set_documents(pattern, bounds, TEST_COUNT(bounds)));
    assert_ok(ra_layout_create_parts("zigzag", bounds, TEST_COUNT(bounds), 4, &parts));
    assert_ok(ra_layout_create("zigzag;perdoc", 61, 4, pattern, &documents));
    read_owners(parts, 61, 4, owners[0]);
    read_owners(documents, 61, 4, owners[1]);
    assert_memory_equal(owners[0], owners[1], 61 * sizeof(int));
    ra_layout_destroy(parts);
    ra_layout_destroy(documents);
    ra_pattern_destroy(pattern);
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_create_parts("zigzag", NULL, 2, 4, &parts));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_layout_create_parts("zigzag", bounds, 2, 4, NULL));
    assert_fails(RA_ERR_ARGUMENT, "", ra_layout_create_parts("zigzag", bounds, 1, 4, &parts));
    assert_fails(RA_ERR_ARGUMENT, "", ra_layout_create_parts("zigzag", late, 2, 4, &parts));
    assert_fails(RA_ERR_ARGUMENT, "", ra_layout_create_parts("zigzag", down, 3, 4, &parts));
    assert_fails(RA_ERR_ARGUMENT, "", ra_layout_create_parts("zigzag", bounds, 2, 0, &parts));
    assert_fails(RA_ERR_ARGUMENT, "", ra_layout_create_parts("zig", bounds, 2, 4, &parts));
}

static void no_name_means_contiguous(void **state)
{
    (void)state;
    ra_layout *layout;
    ra_run run;
    assert_ok(ra_layout_create(NULL, 10, 3, NULL, &layout));
    assert_int_equal(ra_layout_runs(layout, 1, &run, 1), 1);
    assert_int_equal(run.start, 3);
    assert_int_equal(run.count, 3);
    ra_layout_destroy(layout);
}

/* Capacity is respected, and ranks that are not there own nothing. */
static void runs_are_written_up_to_capacity(void **state)
{
    (void)state;
    ra_layout *layout;
    ra_run runs[2] = { { -1, -1, -1 }, { -1, -1, -1 } };
    assert_ok(ra_layout_create("zigzag", 40, 4, NULL, &layout));
    assert_int_equal(ra_layout_runs(layout, 0, NULL, 0), 2);
    assert_int_equal(ra_layout_runs(layout, 0, runs, 1), 2);
    assert_int_equal(runs[0].count, 5);
    assert_int_equal(runs[1].count, -1);
    assert_int_equal(ra_layout_runs(layout, 4, runs, 2), 0);
    assert_int_equal(ra_layout_runs(layout, -1, runs, 2), 0);
    assert_int_equal(ra_layout_count(layout, 4), 0);
    assert_int_equal(ra_layout_count(layout, -1), 0);
    assert_int_equal(ra_layout_count(NULL, 0), 0);
    ra_layout_destroy(layout);
}

/* ---- Custom ---------------------------------------------------------------------------------- */

static void custom_runs_may_interleave_in_any_order(void **state)
{
    (void)state;
    /* Rank 0: 8, 9, then 0, 2, 4; rank 1: nothing; rank 2: 1, 3, 5 and 7, 6. */
    static const ra_run runs[] = {
        { 8, 1, 2 }, { 0, 2, 3 }, { 1, 2, 3 }, { 7, 1, 1 }, { 6, 5, 1 }
    };
    static const int64_t counts[] = { 2, 0, 3 };
    static const int want[] = { 0, 2, 0, 2, 0, 2, 2, 2, 0, 0 };
    ra_layout *layout;
    int owner[MOST_N];
    assert_ok(ra_layout_create_custom(10, 3, runs, counts, &layout));
    read_owners(layout, 10, 3, owner);
    for (int i = 0; i < 10; i++) assert_int_equal(owner[i], want[i]);
    ra_layout_destroy(layout);
}

/* Random owners: whatever the runs, the layout says the same. */
static void custom_layouts_of_random_owners(void **state)
{
    (void)state;
    uint32_t seed = 3;
    for (int round = 0; round < 200; round++) {
        ra_run runs[MOST_N];
        int64_t counts[5] = { 0 }, used = 0;
        int ranks = 1 + round % 5, want[MOST_N], owner[MOST_N];
        int64_t n = round % 60 + 1;
        for (int64_t i = 0; i < n; i++)
            want[i] = (int)((seed = seed * 1664525u + 1013904223u) >> 24) % ranks;
        for (int rank = 0; rank < ranks; rank++)
            for (int64_t i = n - 1; i >= 0; i--) /* descending: the library sorts */
                if (want[i] == rank) runs[used++] = (ra_run){ i, 1 + i % 3, 1 }, counts[rank]++;
        ra_layout *layout, *copy;
        for (int64_t i = 0; i < used; i++)
            if (runs[i].step > n) runs[i].step = n;
        assert_ok(ra_layout_create_custom(n, ranks, runs, counts, &layout));
        read_owners(layout, n, ranks, owner);
        for (int64_t i = 0; i < n; i++) assert_int_equal(owner[i], want[i]);
        assert_ok(ra__layout_copy(layout, &copy));
        read_owners(copy, n, ranks, owner);
        for (int64_t i = 0; i < n; i++) assert_int_equal(owner[i], want[i]);
        assert_true(ra__layout_hash(layout) == ra__layout_hash(copy));
        ra_layout_destroy(copy);
        ra_layout_destroy(layout);
    }
}

/* A single run, so that a custom layout equals the rule's. */
static void a_custom_layout_can_equal_a_rule(void **state)
{
    (void)state;
    static const ra_run runs[] = { { 0, 2, 5 }, { 1, 2, 5 } };
    static const int64_t counts[] = { 1, 1 };
    ra_layout *custom, *striped, *contiguous;
    assert_ok(ra_layout_create_custom(10, 2, runs, counts, &custom));
    assert_ok(ra_layout_create("striped", 10, 2, NULL, &striped));
    assert_ok(ra_layout_create("contiguous", 10, 2, NULL, &contiguous));
    assert_true(ra__layout_hash(custom) == ra__layout_hash(striped));
    assert_true(ra__layout_hash(custom) != ra__layout_hash(contiguous));
    ra_layout_destroy(custom);
    ra_layout_destroy(striped);
    ra_layout_destroy(contiguous);
}

static void refuse_custom(int64_t n, int ranks, const ra_run *runs, const int64_t *counts,
                          const char *sentence)
{
    ra_layout *layout = NULL;
    size_t held = ra_allocated_bytes();
    assert_fails(RA_ERR_ARGUMENT, sentence,
                 ra_layout_create_custom(n, ranks, runs, counts, &layout));
    assert_null(layout);
    assert_int_equal(ra_allocated_bytes(), held);
}

static void wrong_custom_layouts_are_refused(void **state)
{
    (void)state;
    static const int64_t one_each[] = { 1, 1 };
    refuse_custom(10, 2, (ra_run[]){ { 0, 1, 5 }, { 4, 1, 6 } }, one_each,
                  "position 4 is owned by rank 0 and by rank 1");
    refuse_custom(10, 2, (ra_run[]){ { 0, 1, 5 }, { 6, 1, 4 } }, one_each,
                  "position 5 is owned by nobody");
    refuse_custom(10, 2, (ra_run[]){ { 0, 1, 5 }, { 5, 1, 6 } }, one_each,
                  "run 5 step 1 count 6 of rank 1 leaves the 10 positions");
    refuse_custom(10, 2, (ra_run[]){ { -1, 1, 5 }, { 5, 1, 5 } }, one_each,
                  "run -1 step 1 count 5");
    refuse_custom(10, 2, (ra_run[]){ { 0, 0, 5 }, { 5, 1, 5 } }, one_each, "step 0");
    refuse_custom(10, 2, (ra_run[]){ { 0, 1, -5 }, { 5, 1, 5 } }, one_each, "count -5");
    refuse_custom(10, 2, (ra_run[]){ { 0, INT64_MAX, 2 }, { 5, 1, 5 } }, one_each, "leaves the 10");
    refuse_custom(10, 2, (ra_run[]){ { INT64_MAX, 1, 2 }, { 5, 1, 5 } }, one_each, "leaves the 10");
    refuse_custom(10, 2, (ra_run[]){ { 0, 1, INT64_MAX }, { 5, 1, 5 } }, one_each, "leaves the 10");
    refuse_custom(10, 0, (ra_run[]){ { 0, 1, 10 } }, one_each, "0 ranks; there may be 1 to 4096");
    refuse_custom(-1, 1, (ra_run[]){ { 0, 1, 10 } }, one_each, "-1 positions over 1 ranks");
}

static void a_negative_count_of_runs_is_refused(void **state)
{
    (void)state;
    static const int64_t counts[] = { -1, 1 };
    refuse_custom(10, 2, (ra_run[]){ { 0, 1, 10 } }, counts, "");
}

static void wrong_rules_are_refused(void **state)
{
    (void)state;
    ra_layout *layout = NULL;
    ra_pattern *pattern;
    assert_fails(RA_ERR_ARGUMENT, "\"spiral\" is not known; there are contiguous, zigzag, striped",
                 ra_layout_create("spiral", 10, 2, NULL, &layout));
    assert_fails(RA_ERR_ARGUMENT, "there is ;perdoc",
                 ra_layout_create("zigzag;x", 10, 2, NULL, &layout));
    assert_fails(RA_ERR_ARGUMENT, "is not known", ra_layout_create("", 10, 2, NULL, &layout));
    assert_fails(RA_ERR_ARGUMENT, "is not known", ra_layout_create("zig", 10, 2, NULL, &layout));
    assert_fails(RA_ERR_ARGUMENT, "the pattern has no documents",
                 ra_layout_create("zigzag;perdoc", 10, 2, NULL, &layout));
    assert_fails(RA_ERR_ARGUMENT, "-4 positions", ra_layout_create("zigzag", -4, 2, NULL, &layout));
    assert_fails(RA_ERR_ARGUMENT, "0 ranks", ra_layout_create("zigzag", 4, 0, NULL, &layout));
    assert_ok(ra_pattern_parse("full;docs=0,9", &pattern));
    assert_fails(RA_ERR_ARGUMENT, "the last bound is 9",
                 ra_layout_create("zigzag;perdoc", 10, 2, pattern, &layout));
    ra_pattern_destroy(pattern);
    assert_null(layout);
}

/* ---- Moving arrays --------------------------------------------------------------------------- */

/* Labels of 4 bytes, tensors of 12, of one batch and of three. */
struct arrays {
    int32_t labels[MOST_N], there[MOST_N], back[MOST_N];
    float tensor[3 * MOST_N][3], tensor_there[3 * MOST_N][3], tensor_back[3 * MOST_N][3];
};

static void fill_arrays(struct arrays *a, int64_t n)
{
    memset(a, 0xff, sizeof *a);
    for (int64_t i = 0; i < n; i++) a->labels[i] = (int32_t)i;
    for (int64_t i = 0; i < 3 * n; i++)
        for (int d = 0; d < 3; d++) a->tensor[i][d] = (float)(i * 3 + d);
}

static void check_moves(const ra_layout *layout, int64_t n, int ranks)
{
    static struct arrays a;
    fill_arrays(&a, n);
    ra_array away[] = { { a.labels, a.there, 1, 4 }, { a.tensor, a.tensor_there, 3, 12 } };
    ra_array home[] = { { a.there, a.back, 1, 4 }, { a.tensor_there, a.tensor_back, 3, 12 } };
    assert_ok(ra_layout_permute(layout, away, 2));
    /* Shard after shard, each in ascending positions. */
    int64_t at = 0;
    for (int rank = 0; rank < ranks; rank++) {
        int32_t shard[MOST_N], before = -1;
        float wide[3 * MOST_N][3];
        ra_array one[] = { { a.labels, shard, 1, 4 }, { a.tensor, wide, 3, 12 } };
        int64_t count = ra_layout_count(layout, rank);
        assert_ok(ra_layout_take(layout, rank, one, 2));
        for (int64_t i = 0; i < count; i++) {
            assert_true(shard[i] > before && shard[i] < n);
            before = shard[i];
            assert_int_equal(a.there[at + i], shard[i]);
            for (int b = 0; b < 3; b++) {
                assert_memory_equal(wide[b * count + i], a.tensor[b * n + shard[i]], 12);
                assert_memory_equal(a.tensor_there[b * n + at + i], a.tensor[b * n + shard[i]], 12);
            }
        }
        at += count;
    }
    assert_int_equal(at, n);
    assert_ok(ra_layout_restore(layout, home, 2));
    assert_memory_equal(a.back, a.labels, (size_t)n * 4);
    assert_memory_equal(a.tensor_back, a.tensor, (size_t)n * 36);
}

/* take then give, rank by rank, rebuilds the array; others' positions are left alone. */
static void check_give(const ra_layout *layout, int64_t n, int ranks)
{
    static struct arrays a;
    fill_arrays(&a, n);
    int owner[MOST_N];
    read_owners(layout, n, ranks, owner);
    for (int rank = 0; rank < ranks; rank++) {
        float shard[3 * MOST_N][3];
        ra_array take = { a.tensor, shard, 3, 12 }, give = { shard, a.tensor_back, 3, 12 };
        assert_ok(ra_layout_take(layout, rank, &take, 1));
        assert_ok(ra_layout_give(layout, rank, &give, 1));
        for (int64_t i = 0; i < 3 * n; i++) {
            bool given = owner[i % n] <= rank;
            if (given) assert_memory_equal(a.tensor_back[i], a.tensor[i], 12);
            else assert_int_equal(((unsigned char *)a.tensor_back[i])[0], 0xff);
        }
    }
}

static void arrays_go_there_and_back(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 1, 2, 7, 16, 31, 61 };
    ra_part part;
    ra_layout *layout;
    for (int p = 0; walk_part("partition", p, &part); p++)
        for (int l = 0; l < TEST_COUNT(lengths); l++)
            for (int ranks = 1; ranks <= 9; ranks++) {
                assert_ok(ra_layout_create(part.name, lengths[l], ranks, NULL, &layout));
                check_moves(layout, lengths[l], ranks);
                check_give(layout, lengths[l], ranks);
                ra_layout_destroy(layout);
            }
    static const ra_run runs[] = { { 8, 1, 2 }, { 0, 2, 3 }, { 1, 2, 3 }, { 6, 1, 2 } };
    static const int64_t counts[] = { 2, 0, 2 };
    assert_ok(ra_layout_create_custom(10, 3, runs, counts, &layout));
    check_moves(layout, 10, 3);
    check_give(layout, 10, 3);
    ra_layout_destroy(layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_follow_the_formulas),
        cmocka_unit_test(long_sequences_are_cut_right),
        cmocka_unit_test(perdoc_applies_the_rule_inside_each_document),
        cmocka_unit_test(parts_are_divided_like_documents),
        cmocka_unit_test(no_name_means_contiguous),
        cmocka_unit_test(runs_are_written_up_to_capacity),
        cmocka_unit_test(custom_runs_may_interleave_in_any_order),
        cmocka_unit_test(custom_layouts_of_random_owners),
        cmocka_unit_test(a_custom_layout_can_equal_a_rule),
        cmocka_unit_test(wrong_custom_layouts_are_refused),
        cmocka_unit_test(a_negative_count_of_runs_is_refused),
        cmocka_unit_test(wrong_rules_are_refused),
        cmocka_unit_test(arrays_go_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
