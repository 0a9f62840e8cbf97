/* SPDX-License-Identifier: Apache-2.0 */
/* test_order.c - late messages and messages in another order change no bit of any result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/crew.h"
#include "support/faulty.h"

static ra_group_options patient(void)
{
    ra_group_options options = ra_group_options_default();
    options.timeout = 30;
    options.threads = 1;
    return options;
}

/* Runs the case with this script on every rank and returns its results, to be freed. */
static float *run_scripted(const struct crew_case *is, const struct faulty_script *script)
{
    struct crew crew;
    struct faulty faulty[CREW_MOST];
    ra_group_options options = patient();
    crew_open(&crew, is, &options);
    for (int rank = 0; rank < crew.is.ranks; rank++)
        faulty_wrap(&faulty[rank], crew.at[rank].group, script);
    crew_run(&crew);
    crew_expect_ok(&crew);
    float *results = malloc(crew.floats * sizeof(float));
    assert_non_null(results);
    memcpy(results, crew.results, crew.floats * sizeof(float));
    crew_close(&crew);
    return results;
}

static size_t result_bytes(const struct crew_case *is)
{
    struct crew crew;
    crew_open(&crew, is, NULL);
    size_t bytes = crew.floats * sizeof(float);
    crew_close(&crew);
    return bytes;
}

static void expect_same_bits(const struct crew_case *is)
{
    static const struct faulty_script scripts[] = {
        { .seed = 1, .delay_us = 300 },
        { .seed = 2, .reorder = true },
        { .seed = 3, .delay_us = 200, .reorder = true },
    };
    size_t bytes = result_bytes(is);
    float *want = run_scripted(is, &(struct faulty_script){ 0 });
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        float *got = run_scripted(is, &scripts[i]);
        if (memcmp(got, want, bytes))
            fail_msg("%s n=%d ring=%d %s %s: script %d changes the bits", is->pattern,
                     (int)is->q_len, is->ranks, is->partition, is->strategy, (int)i);
        free(got);
    }
    free(want);
}

/* One pattern over every partition, strategy and a few rank counts. */
static void walk_pattern(const char *pattern, int64_t q_len, int64_t k_len)
{
    ra_part partition = ra_part_default(), strategy = ra_part_default();
    for (int p = 0; ra_part_at("partition", p, &partition) == RA_OK; p++)
        for (int s = 0; ra_part_at("strategy", s, &strategy) == RA_OK; s++)
            for (int ranks = 2; ranks <= (crew_long() ? 7 : 4) && strcmp(strategy.name, "stream");
                 ranks += crew_long() ? 1 : 2)
                expect_same_bits(&(struct crew_case){ .pattern = pattern,
                                                      .partition = partition.name,
                                                      .strategy = strategy.name,
                                                      .ranks = ranks,
                                                      .q_len = q_len,
                                                      .k_len = k_len,
                                                      .q_heads = 4,
                                                      .kv_heads = 2 });
}

static void every_pattern_is_the_same(void **state)
{
    (void)state;
    ra_part part = ra_part_default();
    for (int i = 0; ra_part_at("pattern", i, &part) == RA_OK; i++) {
        char samples[256], *rest = samples;
        snprintf(samples, sizeof samples, "%s", part.samples);
        for (char *sample; (sample = strtok_r(rest, " ", &rest));) walk_pattern(sample, 45, 45);
    }
}

static void documents_are_the_same(void **state)
{
    (void)state;
    walk_pattern("full;docs=0,7,7,20,45", 45, 45);
    walk_pattern("causal;docs=0,31,45", 45, 45);
}

static void other_key_counts_are_the_same(void **state)
{
    (void)state;
    walk_pattern("causal", 5, 61);
    walk_pattern("window:9,2", 33, 40);
}

static void empty_ranks_are_the_same(void **state)
{
    (void)state;
    walk_pattern("causal", 3, 3);
    walk_pattern("full", 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_is_the_same),
        cmocka_unit_test(documents_are_the_same),
        cmocka_unit_test(other_key_counts_are_the_same),
        cmocka_unit_test(empty_ranks_are_the_same),
    };
    crew_watchdog(crew_long() ? 500 : 110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
