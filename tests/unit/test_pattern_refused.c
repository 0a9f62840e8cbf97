/* SPDX-License-Identifier: Apache-2.0 */
/* test_pattern_refused.c - every refusal of a pattern, as text, as numbers and in a problem that
 * it does not fit, and its sentence. */
#include "support/patterns.h"

static void wrong_text_is_refused_with_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        { "", "\"\" is not known" },
        { "Full", "\"Full\" is not known" },
        { "hexagonal:3", "there are full, causal, window:L[,R], prefix:N, dilated:W/R" },
        { " full", "is not known" },
        { "full ", "is not known" },
        { "full:", "nothing follows the colon" },
        { "full:3", "\"3\" is not understood" },
        { "causal:1", "\"1\" is not understood" },
        { "window", "a number is missing; write window:L[,R]" },
        { "window:", "nothing follows the colon" },
        { "window:-1", "\"-1\" is not understood" },
        { "window:1,", "is not understood; write window:L[,R]" },
        { "window:,1", "is not understood" },
        { "window:1,2,3", "\"3\" is not understood" },
        { "window:1.5", "is not understood" },
        { "window:0x10", "is not understood" },
        { "window:99999999999999999999", "is not understood" },
        { "window:2305843009213693952", "is not understood" },
        { "prefix", "a number is missing; write prefix:N" },
        { "prefix:1,2", "is not understood" },
        { "full;", "pattern full: \"\" is not understood; write full, followed by ;causal or "
                   ";docs=0,...,n" },
        { "full;dedup", "\"dedup\" is not understood" },
        { "window:3;local=1", "\"local=1\" is not understood" },
        { "full;;causal", "\"\" is not understood" },
        { "full;causal;", "is not understood" },
        { "full;Causal", "\"Causal\" is not understood" },
        { "full;docs", "\"docs\" is not understood" },
        { "full;docs=", "bound 1 is not a number" },
        { "full;docs=0", "the bounds start at 0 and end at n" },
        { "full;docs=1,2", "the bounds start at 0" },
        { "full;docs=0,5,4", "bound 4 comes after 5; bounds must not fall" },
        { "full;docs=0,x,4", "bound 2 is not a number" },
        { "full;docs=0,4,", "is not a number" },
        { "full;docs=0,-4", "bound 2 is not a number" },
        { "full;docs=0,4;docs=0,4", "docs= is given twice" },
        { "dilated", "pattern dilated: \"\" is not A/B with A at least 1 and B at least 1; write "
                     "dilated:W/R[,W/R...]" },
        { "dilated:", "nothing follows the colon; write dilated:W/R" },
        { "dilated:8", "\"8\" is not A/B" },
        { "dilated:8/", "\"8/\" is not A/B" },
        { "dilated:/2", "\"/2\" is not A/B" },
        { "dilated:0/1", "\"0/1\" is not A/B with A at least 1" },
        { "dilated:8/0", "\"8/0\" is not A/B" },
        { "dilated:-8/1", "\"-8/1\" is not A/B" },
        { "dilated:8/1.5", "\"8/1.5\" is not A/B" },
        { "dilated:8/1/2", "\"8/1/2\" is not A/B" },
        { "dilated:8/1,", "\"\" is not A/B" },
        { "dilated:8/1,,16/2", "\"\" is not A/B" },
        { "dilated:8/1,16", "\"16\" is not A/B" },
        { "dilated:8/1 ,16/2", "\"8/1 \" is not A/B" },
        { "dilated:8/2305843009213693952", "is not A/B" },
        { "dilated:8/1;dedupe", "\"dedupe\" is not understood; write "
                                "dilated:W/R[,W/R...][;dedup][;groups][;offsets=cyclic|block], "
                                "followed by ;causal" },
        { "dilated:8/1;offsets=", "\"offsets=\" is not understood" },
        { "dilated:8/1;offsets=blocks", "\"offsets=blocks\" is not understood" },
        { "dilated:8/1;offsets=block;offsets=cyclic", "offsets= is given twice" },
        { "dilated:8/1;offsets=cyclic;offsets=block", "offsets= is given twice" },
        { "dilated:8/1;offsets=block;groups", "offsets=block does not go with it" },
        { "dilated:8/1;groups;offsets=block", "groups gives branch i the offset i mod R" },
        { "dilated:8/1;groups=2", "\"groups=2\" is not understood" },
        { "dilated:8/1;local=1", "\"local=1\" is not understood" },
        { "blocks", "pattern blocks: a number is missing; write blocks:B;TERM" },
        { "blocks:", "nothing follows the colon" },
        { "blocks:x;local=1", "\"x\" is not understood" },
        { "blocks:4,4;local=1", "\"4\" is not understood" },
        { "blocks:4;local", "\"local\" is not understood" },
        { "blocks:4;local=", "\"local=\" is not understood; write blocks:B;TERM" },
        { "blocks:4;local=-1", "\"local=-1\" is not understood" },
        { "blocks:4;local=1;local=1", "local is given twice" },
        { "blocks:4;global=1;global=2", "global is given twice" },
        { "blocks:4;strided=0", "\"strided=0\" is not understood" },
        { "blocks:4;strided=2;strided=2", "strided is given twice" },
        { "blocks:4;dilated=3", "\"dilated=3\" is not understood" },
        { "blocks:4;dilated=3/", "\"dilated=3/\" is not understood" },
        { "blocks:4;dilated=0/1", "\"dilated=0/1\" is not understood" },
        { "blocks:4;dilated=1/1;dilated=1/1", "dilated is given twice" },
        { "blocks:4;levels=", "\"\" is not A/B with A at least 1 and B at least 0" },
        { "blocks:4;levels=3", "\"3\" is not A/B" },
        { "blocks:4;levels=0/3", "\"0/3\" is not A/B" },
        { "blocks:4;levels=2/1,x", "\"x\" is not A/B" },
        { "blocks:4;levels=1/1;levels=2/2", "levels is given twice" },
        { "blocks:4;random=", "\"random=\" is not understood" },
        { "blocks:4;random=1.01", "\"random=1.01\" is not understood" },
        { "blocks:4;random=-0.1", "\"random=-0.1\" is not understood" },
        { "blocks:4;random=nan", "\"random=nan\" is not understood" },
        { "blocks:4;random=0.1x", "\"random=0.1x\" is not understood" },
        { "blocks:4;random=0x1p-1", "is not understood" },
        { "blocks:4;random=0.00000000000000000000000008", "is not understood" },
        { "blocks:4;random=0.1;random=0.1", "random is given twice" },
        { "blocks:4;random=0.1;seed=x", "\"seed=x\" is not understood" },
        { "blocks:4;random=0.1;seed=-1", "\"seed=-1\" is not understood" },
        { "blocks:4;random=0.1;seed=1;seed=1", "seed is given twice" },
        { "blocks:4;dedup", "\"dedup\" is not understood; write blocks:B;TERM" },
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        ra_pattern *pattern = (ra_pattern *)&state; /* must stay as it is */
        ra_pattern *kept = pattern;
        size_t held = ra_allocated_bytes();
        assert_fails(RA_ERR_ARGUMENT, cases[i].sentence, ra_pattern_parse(cases[i].text, &pattern));
        assert_ptr_equal(pattern, kept);
        assert_int_equal(ra_allocated_bytes(), held);
    }
}

static void wrong_numbers_are_refused(void **state)
{
    (void)state;
    static const int64_t falling[] = { 0, 5, 4 }, late[] = { 1, 5 };
    ra_pattern *pattern;
    assert_fails(RA_ERR_ARGUMENT, "window: -1, 0 out of range", ra_pattern_window(-1, 0, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "out of range", ra_pattern_window(0, INT64_MAX, &pattern));
    assert_fails(RA_ERR_ARGUMENT, "prefix: -3", ra_pattern_prefix(-3, &pattern));
    assert_ok(ra_pattern_parse("full;docs=0,9", &pattern));
    assert_fails(RA_ERR_ARGUMENT, "must not fall", ra_pattern_set_documents(pattern, falling, 3));
    assert_fails(RA_ERR_ARGUMENT, "start at 0", ra_pattern_set_documents(pattern, late, 2));
    assert_fails(RA_ERR_ARGUMENT, "start at 0", ra_pattern_set_documents(pattern, falling, 1));
    assert_fails(RA_ERR_ARGUMENT, "start at 0", ra_pattern_set_documents(pattern, falling, -1));
    pattern_expect_text(pattern, "full;docs=0,9"); /* unchanged */
    ra_pattern_destroy(pattern);
}

static void lengths_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    ra_pattern *pattern;
    uint8_t seen[16];
    assert_ok(ra_pattern_parse("prefix:3", &pattern));
    assert_fails(RA_ERR_UNSUPPORTED, "more queries (9) than keys (8)",
                 pattern_row(pattern, (struct pattern_size){ 9, 8, 1 }, 0, 0, seen));
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_parse("full;docs=0,8", &pattern));
    assert_fails(RA_ERR_UNSUPPORTED, "as many queries (4) as keys (8)",
                 pattern_row(pattern, (struct pattern_size){ 4, 8, 1 }, 0, 0, seen));
    assert_fails(RA_ERR_ARGUMENT, "the last bound is 8, but there are 7 positions",
                 pattern_row(pattern, (struct pattern_size){ 7, 7, 1 }, 0, 0, seen));
    assert_fails(RA_ERR_ARGUMENT, "query 8 of 8",
                 pattern_row(pattern, (struct pattern_size){ 8, 8, 1 }, 0, 8, seen));
    assert_fails(RA_ERR_ARGUMENT, "query -1 of 8",
                 pattern_row(pattern, (struct pattern_size){ 8, 8, 1 }, 0, -1, seen));
    assert_fails(RA_ERR_ARGUMENT, "head 2 of 2",
                 pattern_row(pattern, (struct pattern_size){ 8, 8, 2 }, 2, 0, seen));
    assert_fails(RA_ERR_ARGUMENT, "head -1 of 2",
                 pattern_row(pattern, (struct pattern_size){ 8, 8, 2 }, -1, 0, seen));
    ra_pattern_destroy(pattern);
}

/* What can be written down, but not used: refused when it is asked for, with a sentence. */
static void patterns_that_are_not_complete_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
        ra_status status;
        struct pattern_size size;
    } cases[] = {
        { "blocks:4", "no term is given; write blocks:B;TERM", RA_ERR_ARGUMENT, { 8, 8, 1 } },
        { "blocks:4;causal", "no term is given", RA_ERR_ARGUMENT, { 8, 8, 1 } },
        { "blocks:0;local=1", "a block has at least 1 position", RA_ERR_ARGUMENT, { 8, 8, 1 } },
        { "blocks:4;local=1;seed=3",
          "seed= is of use only with random=",
          RA_ERR_ARGUMENT,
          { 8, 8, 1 } },
        { "blocks:4;local=1",
          "pattern blocks: more queries (9) than keys (8)",
          RA_ERR_UNSUPPORTED,
          { 9, 8, 1 } },
        { "dilated:4/1",
          "pattern dilated: more queries (9) than keys (8)",
          RA_ERR_UNSUPPORTED,
          { 9, 8, 1 } },
        { "dilated:4/1;docs=0,8",
          "documents: as many queries (3) as keys (8) are needed",
          RA_ERR_UNSUPPORTED,
          { 3, 8, 1 } },
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        ra_pattern *pattern;
        uint8_t seen[16];
        ra_plan *plan;
        ra_problem problem = ra_problem_default();
        assert_ok(ra_pattern_parse(cases[i].text, &pattern));
        assert_fails(cases[i].status, cases[i].sentence,
                     pattern_row(pattern, cases[i].size, 0, 0, seen));
        problem.pattern = pattern;
        problem.q_len = cases[i].size.q_len;
        problem.k_len = cases[i].size.k_len;
        problem.q_heads = problem.dim = 1;
        assert_fails(cases[i].status, cases[i].sentence,
                     ra_plan_create(NULL, &problem, NULL, &plan));
        ra_pattern_destroy(pattern);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_text_is_refused_with_a_sentence),
        cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(lengths_that_make_no_sense_are_refused),
        cmocka_unit_test(patterns_that_are_not_complete_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
