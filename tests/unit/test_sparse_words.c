/* SPDX-License-Identifier: Apache-2.0 */
/* test_sparse_words.c - the words of dilated and blocks patterns, one by one: numbers that are
 * refused leave nothing behind, and what is written is read back the same in any locale. */
#include "support/test.h"

#include <locale.h>

#include "pattern/pattern.h"

/* A host program may have set a locale that writes numbers with a comma. */
static void numbers_do_not_follow_the_locale(void **state)
{
    (void)state;
    static const char *const locales[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "C.UTF-8" };
    static const char *const texts[] = { "blocks:4;random=0.25", "blocks:4;random=0.001;seed=7",
                                         "blocks:4;random=0", "blocks:4;random=1",
                                         "blocks:4;random=0.1;seed=18446744073709551615" };
    for (int l = 0; l < TEST_COUNT(locales); l++) {
        if (!setlocale(LC_ALL, locales[l])) continue;
        for (int i = 0; i < TEST_COUNT(texts); i++) {
            ra_pattern *pattern;
            char text[80];
            assert_ok(ra_pattern_parse(texts[i], &pattern));
            assert_ok(ra_pattern_format(pattern, text, sizeof text, NULL));
            assert_string_equal(text, texts[i]);
            ra_pattern_destroy(pattern);
        }
    }
    setlocale(LC_ALL, "C");
}

/* Written and read back, any density is the same number. */
static void densities_come_back(void **state)
{
    (void)state;
    static const double given[] = { 0.26, 1.0 / 3.0, 0.1 + 0.2, 1e-9, 0x1p-30, 0.9999999999999999 };
    for (int i = 0; i < TEST_COUNT(given); i++) {
        char text[80], again[80];
        ra_pattern *pattern, *back;
        snprintf(text, sizeof text, "blocks:4;random=%.17g", given[i]);
        assert_ok(ra_pattern_parse(text, &pattern));
        assert_ok(ra_pattern_format(pattern, again, sizeof again, NULL));
        assert_ok(ra_pattern_parse(again, &back));
        double density;
        assert_true(ra__text_fraction(ra__text_of(strstr(again, "random=") + 7), &density));
        assert_true(density == given[i]);
        assert_true(ra__pattern_hash(back) == ra__pattern_hash(pattern));
        ra_pattern_destroy(pattern);
        ra_pattern_destroy(back);
    }
}

static void constructors_refuse_wrong_numbers(void **state)
{
    (void)state;
    static const ra_branch short_one[] = { { 4, 1 }, { 0, 1 } }, slow[] = { { 4, 0 } },
                           far[] = { { INT64_MAX, 1 } };
    static const uint8_t active[9] = { 1, 0, 0, 1, 1, 0, 0, 0, 1 };
    ra_pattern *pattern = NULL;
    assert_fails(RA_ERR_ARGUMENT, "pattern dilated: 0 branches",
                 ra_pattern_dilated(short_one, 0, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "-3 branches", ra_pattern_dilated(short_one, -3, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "branch 1 has segment 0 and rate 1; both are at least 1",
                 ra_pattern_dilated(short_one, 2, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "branch 0 has segment 4 and rate 0",
                 ra_pattern_dilated(slow, 1, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "branch 0 has segment", ra_pattern_dilated(far, 1, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "a block of 0 positions", ra_pattern_blocks(0, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "a block of -4 positions", ra_pattern_blocks(-4, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "out of range", ra_pattern_blocks(INT64_MAX, &pattern));
    assert_null(pattern);
    assert_ok(ra_pattern_full(&pattern));
    assert_fails(RA_ERR_ARGUMENT, "pattern full: a bitmap is a term of blocks",
                 ra_pattern_add_bitmap(pattern, 1, 3, active));
    assert_fails(RA_ERR_ARGUMENT, "\"local=1\" is not understood",
                 ra_pattern_add(pattern, "local=1"));
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_blocks(4, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "bitmap: 0 heads of 3 blocks",
                 ra_pattern_add_bitmap(pattern, 0, 3, active));
    assert_fails(RA_ERR_ARGUMENT, "bitmap: 1 heads of -1 blocks",
                 ra_pattern_add_bitmap(pattern, 1, -1, active));
    assert_fails(RA_ERR_ARGUMENT, "bitmap: 1 heads of",
                 ra_pattern_add_bitmap(pattern, 1, INT64_MAX, active));
    ra_pattern_destroy(pattern);
}

/* A term that is refused leaves nothing behind. */
static void refused_terms_change_nothing(void **state)
{
    (void)state;
    static const char *const wrong[] = { "levels=1/5,x", "dilated=3/x", "local=-1",
                                         "random=2",     "seed=x",      "bitmap=/nowhere/map.npy" };
    ra_pattern *pattern, *clean;
    char text[128];
    assert_ok(ra_pattern_parse("blocks:4;levels=2/0;local=1;random=0.5;seed=1", &clean));
    assert_ok(ra_pattern_blocks(4, &pattern));
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < TEST_COUNT(wrong); i++)
            assert_int_not_equal(ra_pattern_add(pattern, wrong[i]), RA_OK);
    assert_ok(ra_pattern_format(pattern, text, sizeof text, NULL));
    assert_string_equal(text, "blocks:4");
    assert_ok(ra_pattern_add(pattern, "levels=2/0"));
    assert_ok(ra_pattern_add(pattern, "local=1"));
    assert_ok(ra_pattern_add(pattern, "random=0.5"));
    assert_ok(ra_pattern_add(pattern, "seed=1"));
    assert_ok(ra_pattern_format(pattern, text, sizeof text, NULL));
    assert_string_equal(text, "blocks:4;local=1;levels=2/0;random=0.5;seed=1");
    assert_true(ra__pattern_hash(pattern) == ra__pattern_hash(clean));
    ra_pattern_destroy(pattern);
    ra_pattern_destroy(clean);
    assert_int_equal(ra_allocated_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_do_not_follow_the_locale),
        cmocka_unit_test(densities_come_back),
        cmocka_unit_test(constructors_refuse_wrong_numbers),
        cmocka_unit_test(refused_terms_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
