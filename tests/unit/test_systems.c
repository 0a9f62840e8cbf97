/* SPDX-License-Identifier: Apache-2.0 */
/* test_systems.c - every system of the reports is known, and what it stands for can be used. */
#include "support/test.h"

#include <ctype.h>

#include "harness/problem/system.h"
#include "support/walk.h"

/* As the reports write them. */
static const char *const names[] = {
    "StandardAttention",
    "DilatedAttention",
    "RingAttentionCorrectV2",
    "RingDilatedAttentionV2",
    "RingDilatedAttentionV2Collective",
    "RingDilatedAttentionV2Robust",
    "RingDilatedAttentionV2Flash",
    "RingDilatedAttentionFixed",
    "TrueRingDilatedAttention",
    "RingDilatedAttention",
    "RingDilated",
    "SimulatedRingAttention",
    "StandardRingAttention",
    "DistributedRingAttention",
    "HilbertRingAttention",
    "BlockSparseRingAttention",
};

static void the_reports_names_are_known(void **state)
{
    (void)state;
    for (int i = 0; i < TEST_COUNT(names); i++) {
        char other[64] = "";
        assert_non_null(system_find(names[i]));
        assert_string_equal(system_find(names[i])->name, names[i]);
        for (size_t c = 0; names[i][c]; c++) other[c] = (char)toupper(names[i][c]);
        assert_ptr_equal(system_find(other), system_find(names[i])); /* in any case */
    }
    int rows = 0;
    while (system_at(rows)) rows++;
    assert_int_equal(rows, TEST_COUNT(names));
}

/* Is there a row whose syntax begins with the name in front of the colon? */
static bool is_known(const char *kind, const char *text)
{
    size_t length = strcspn(text, ":;");
    ra_part part;
    for (int i = 0; walk_usable(kind, i, &part); i++)
        if (strcspn(part.name, ":;[") == length && !strncmp(part.name, text, length)) return true;
    return false;
}

static void expect_pattern(const struct system *system)
{
    ra_pattern *pattern;
    if (!system->pattern || !is_known("pattern", system->pattern)) return;
    test_status(RA_OK, ra_pattern_parse(system->pattern, &pattern), system->pattern, __FILE__,
                __LINE__);
    ra_pattern_destroy(pattern);
}

static void expect_order(const struct system *system)
{
    ra_order *order;
    if (!system->order) return;
    test_status(RA_OK, ra_order_parse(system->order, 100, &order), system->order, __FILE__,
                __LINE__);
    ra_order_destroy(order);
}

/* Whatever a system names is there, or it says what is missing. */
static void what_they_stand_for_is_there(void **state)
{
    (void)state;
    for (int i = 0; system_at(i); i++) {
        const struct system *system = system_at(i);
        assert_true(strlen(system->summary) > 10 && strlen(system->summary) < 90);
        expect_pattern(system);
        expect_order(system);
        assert_true(is_known("strategy", system->strategy));
        assert_true(is_known("partition", system->partition));
        bool has_transport = !system->transport || is_known("transport", system->transport);
        if (has_transport) assert_null(system_missing(system));
        else assert_non_null(strstr(system_missing(system), system->transport));
    }
}

static void they_stand_for_what_the_list_says(void **state)
{
    (void)state;
    static const struct {
        const char *name, *pattern, *order, *strategy, *transport;
    } rows[] = {
        { "StandardAttention", "full", "sequential", "ring", "local" },
        { "DilatedAttention", "dilated:2048/1,4096/2,8192/4;groups", "sequential", "ring", NULL },
        { "RingDilatedAttentionV2", "dilated:2048/1,4096/2,8192/4", "sequential", "ring", NULL },
        { "RingDilatedAttentionV2Collective", "dilated:2048/1,4096/2,8192/4", "sequential",
          "allgather", NULL },
        { "DistributedRingAttention", "full", "sequential", "ring", "mpi" },
        { "HilbertRingAttention", "full", "hilbert", "ring", NULL },
        { "BlockSparseRingAttention", "blocks:64;local=4;global=1", "sequential", "ring", NULL },
    };
    for (int i = 0; i < TEST_COUNT(rows); i++) {
        const struct system *system = system_find(rows[i].name);
        assert_non_null(system);
        const char *got[] = { system->pattern, system->order, system->strategy, system->transport };
        const char *want[] = { rows[i].pattern, rows[i].order, rows[i].strategy,
                               rows[i].transport };
        for (int f = 0; f < TEST_COUNT(got); f++) {
            if (want[f]) assert_string_equal(got[f], want[f]);
            else assert_null(got[f]);
        }
    }
}

static void unknown_names_are_refused(void **state)
{
    (void)state;
    static const char *const unknown[] = { "FlashAttention", "Ring", "" };
    for (int i = 0; i < TEST_COUNT(unknown); i++) {
        assert_null(system_find(unknown[i]));
        assert_int_equal(system_check("--system", unknown[i]), EXIT_USAGE);
    }
    assert_int_equal(system_check("--system", "RingDilated"), EXIT_PASS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reports_names_are_known),
        cmocka_unit_test(what_they_stand_for_is_there),
        cmocka_unit_test(they_stand_for_what_the_list_says),
        cmocka_unit_test(unknown_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
