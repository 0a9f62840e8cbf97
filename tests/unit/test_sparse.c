/* SPDX-License-Identifier: Apache-2.0 */
/* test_sparse.c - dilated and blocks against the formulas of the design (support/spec.h): cases by
 * hand, and any combination of words by chance. */
#include "support/spec.h"

/* ---- Cases by hand --------------------------------------------------------------------------- */

static void dilated_follows_its_formula(void **state)
{
    (void)state;
    static const struct {
        int count;
        struct spec_ratio branches[SPEC_MOST_RATIOS];
    } cases[] = {
        { 1, { { 8, 1 } } },
        { 1, { { 7, 3 } } },   /* the rate does not divide the segment */
        { 1, { { 100, 4 } } }, /* longer than everything */
        { 1, { { 3, 5 } } },   /* a rate beyond the segment: heads that select nothing */
        { 1, { { 1, 1 } } },
        { 2, { { 16, 2 }, { 16, 2 } } }, /* every key twice */
        { 3, { { 8, 1 }, { 16, 2 }, { 32, 4 } } },
        { 3, { { 32, 4 }, { 8, 1 }, { 16, 2 } } },
        { 3, { { 5, 2 }, { 12, 3 }, { 64, 7 } } },
        { 4, { { 10, 6 }, { 15, 10 }, { 21, 15 }, { 9, 4 } } },
        { 5, { { 4, 1 }, { 10, 2 }, { 16, 3 }, { 20, 4 }, { 300, 5 } } },
    };
    static const int heads[] = { 1, 4, 8, 12 };
    static const int64_t lengths[] = { 1, 7, 16, 37, 60 };
    for (int c = 0; c < TEST_COUNT(cases); c++)
        for (int h = 0; h < TEST_COUNT(heads); h++)
            for (int l = 0; l < TEST_COUNT(lengths); l++)
                for (int option = 0; option < 12; option++) {
                    struct spec s = spec_empty(lengths[l], lengths[l], heads[h]);
                    s.branch_count = cases[c].count;
                    memcpy(s.branches, cases[c].branches, sizeof s.branches);
                    s.dedup = option & 1;
                    s.groups = option & 2;
                    s.causal = option & 4;
                    s.block_offsets = option >= 8; /* which groups do not have */
                    if (s.block_offsets) s.causal = option & 2, s.groups = false;
                    spec_check(&s, NULL);
                }
}

static void every_term_follows_its_formula(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= SPEC_MOST_N; n += 7)
        for (int64_t block = 1; block <= 9; block += 2)
            for (int64_t x = 0; x < 5; x++) {
                struct spec s = spec_empty(n, n, 3);
                s.block = block;
                s.local = x;
                spec_check(&s, NULL);
                s.local = SPEC_ABSENT;
                s.global = x;
                spec_check(&s, NULL);
                s.global = SPEC_ABSENT;
                s.strided = x + 1;
                spec_check(&s, NULL);
                s.strided = SPEC_ABSENT;
                s.dilated = (struct spec_ratio){ x + 1, 5 - x };
                spec_check(&s, NULL);
                s.dilated.a = SPEC_ABSENT;
                s.level_count = 2;
                s.levels[0] = (struct spec_ratio){ x + 1, x };
                s.levels[1] = (struct spec_ratio){ 2 * x + 3, 9 };
                spec_check(&s, NULL);
                s.level_count = 0;
                s.density = 0.25 * (double)x;
                s.seed = (uint32_t)(n * x);
                spec_check(&s, NULL);
            }
}

/* ---- Cases by chance ------------------------------------------------------------------------- */

static uint32_t chance_state = 12345;

/* 0 to below `limit`. */
static int64_t chance(int64_t limit)
{
    chance_state = chance_state * 1664525u + 1013904223u;
    return (int64_t)(chance_state >> 8) % limit;
}

static struct spec chance_spec(void)
{
    static const int heads[] = { 1, 2, 3, 5, 8, 12 };
    int64_t nk = 1 + chance(SPEC_MOST_N), n = chance(3) ? nk : 1 + chance(nk);
    struct spec s = spec_empty(n, nk, heads[chance(TEST_COUNT(heads))]);
    s.causal = chance(3) == 0;
    if (n == nk && chance(3) == 0) {
        int64_t a = chance(n + 1), b = chance(n + 1);
        s.bound_count = 4;
        s.bounds[1] = a < b ? a : b;
        s.bounds[2] = a < b ? b : a;
        s.bounds[3] = n;
    }
    return s;
}

static struct spec chance_dilated(void)
{
    struct spec s = chance_spec();
    s.branch_count = 1 + (int)chance(SPEC_MOST_RATIOS);
    for (int i = 0; i < s.branch_count; i++)
        s.branches[i] = (struct spec_ratio){ 1 + chance(chance(2) ? 12 : 80), 1 + chance(9) };
    s.dedup = chance(3) == 0;
    s.groups = chance(3) == 0;
    s.block_offsets = !s.groups && chance(3) == 0;
    return s;
}

static struct spec chance_blocks(uint8_t *bitmap)
{
    struct spec s = chance_spec();
    s.block = 1 + chance(9);
    if (chance(3) == 0) s.local = chance(4);
    if (chance(4) == 0) s.global = chance(4);
    if (chance(3) == 0) s.strided = 1 + chance(6);
    if (chance(3) == 0) s.dilated = (struct spec_ratio){ 1 + chance(5), chance(5) };
    if (chance(3) == 0) s.level_count = 1 + (int)chance(3);
    for (int i = 0; i < s.level_count; i++)
        s.levels[i] = (struct spec_ratio){ 1 + chance(6), chance(9) };
    if (chance(4) == 0) {
        s.density = (double)chance(101) / 100;
        s.seed = (uint32_t)chance(1000);
    }
    bool none = s.local == SPEC_ABSENT && s.global == SPEC_ABSENT && s.strided == SPEC_ABSENT &&
                s.dilated.a == SPEC_ABSENT && !s.level_count && s.density < 0;
    if (s.n == s.nk && (none || chance(4) == 0)) {
        s.bitmap = bitmap;
        s.bitmap_heads = chance(2) ? 1 : s.heads;
        for (int i = 0; i < SPEC_MOST_HEADS * SPEC_MOST_N * SPEC_MOST_N; i++)
            bitmap[i] = (uint8_t)(chance(4) == 0);
    } else if (none) {
        s.local = 1;
    }
    return s;
}

/* A permutation, and where each position went. */
static ra_order *chance_order(int64_t n, int64_t index[SPEC_MOST_N])
{
    int64_t positions[SPEC_MOST_N];
    ra_order *order;
    for (int64_t i = 0; i < n; i++) positions[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t other = chance(i + 1), kept = positions[i];
        positions[i] = positions[other];
        positions[other] = kept;
    }
    for (int64_t i = 0; i < n; i++) index[positions[i]] = i;
    assert_ok(ra_order_custom(positions, n, &order));
    return order;
}

static void any_pattern_follows_its_formula(void **state)
{
    (void)state;
    static uint8_t bitmap[SPEC_MOST_HEADS * SPEC_MOST_N * SPEC_MOST_N];
    int rounds = test_long() ? 20000 : 1000;
    for (int round = 0; round < rounds; round++) {
        struct spec s = round % 2 ? chance_dilated() : chance_blocks(bitmap);
        int64_t index[SPEC_MOST_N];
        spec_check(&s, NULL);
        if (s.n != s.nk) continue;
        ra_order *order = chance_order(s.n, index);
        s.index = index;
        spec_check(&s, order);
        ra_order_destroy(order);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dilated_follows_its_formula),
        cmocka_unit_test(every_term_follows_its_formula),
        cmocka_unit_test(any_pattern_follows_its_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
