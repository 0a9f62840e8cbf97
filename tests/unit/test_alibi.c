/* SPDX-License-Identifier: Apache-2.0 */
/* test_alibi.c - the standard slopes, against numbers computed by hand from the original
 * definition, in exponents and in decimals. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>

#include "harness/problem/trial.h"

/* Exponents of 1/2; the first rows are those of a power of two heads, the last of twice as many. */
static const struct slopes {
    int heads;
    double exponents[40];
} cases[] = {
    { 1, { 8 } },
    { 2, { 4, 8 } },
    { 3, { 4, 8, 2 } },
    { 8, { 1, 2, 3, 4, 5, 6, 7, 8 } },
    { 12, { 1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5 } },
    { 20,
      { 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8, 0.25, 0.75, 1.25, 1.75 } },
    { 40, { 0.25, 0.5, 0.75, 1,   1.25,  1.5,   1.75,  2,     2.25,  2.5,   2.75,  3,    3.25, 3.5,
            3.75, 4,   4.25, 4.5, 4.75,  5,     5.25,  5.5,   5.75,  6,     6.25,  6.5,  6.75, 7,
            7.25, 7.5, 7.75, 8,   0.125, 0.375, 0.625, 0.875, 1.125, 1.375, 1.625, 1.875 } },
};

static void standard_slopes_are_those_of_the_original(void **state)
{
    (void)state;
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        struct trial trial;
        char text[64];
        snprintf(text, sizeof text, "causal n=4 h=%d d=8 alibi", cases[i].heads);
        assert_int_equal(trial_parse(&trial, text), 0);
        for (int h = 0; h < cases[i].heads; h++) {
            float want = (float)pow(0.5, cases[i].exponents[h]);
            if (fabsf(trial.slopes[h] - want) > 1e-7f * want)
                fail_msg("%s: head %d has slope %.9g, not %.9g", text, h, (double)trial.slopes[h],
                         (double)want);
        }
        trial_clear(&trial);
    }
}

/* The same in decimals, so that the exponents above are not taken on trust. */
static void slopes_in_decimals(void **state)
{
    (void)state;
    static const struct {
        int heads, head;
        double slope;
    } known[] = {
        { 12, 0, 0.5 },         { 12, 7, 0.00390625 },  { 12, 8, 0.70710678 },
        { 12, 11, 0.08838835 }, { 20, 0, 0.70710678 },  { 20, 16, 0.84089642 },
        { 20, 19, 0.29730178 }, { 40, 31, 0.00390625 }, { 40, 32, 0.91700404 },
        { 40, 39, 0.27262693 },
    };
    for (int i = 0; i < TEST_COUNT(known); i++) {
        struct trial trial;
        char text[64];
        snprintf(text, sizeof text, "causal n=4 h=%d d=8 alibi", known[i].heads);
        assert_int_equal(trial_parse(&trial, text), 0);
        if (fabs((double)trial.slopes[known[i].head] - known[i].slope) > 1e-7)
            fail_msg("%s: head %d has slope %.9g, not %.9g", text, known[i].head,
                     (double)trial.slopes[known[i].head], known[i].slope);
        trial_clear(&trial);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(standard_slopes_are_those_of_the_original),
                                        cmocka_unit_test(slopes_in_decimals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
