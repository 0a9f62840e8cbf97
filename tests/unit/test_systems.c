/* test_systems.c - every system of the reports is known, and what it stands for can be used. */
#include "support/test.h"

#include <ctype.h>

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
        ra_system system = ra_system_default();
        char other[64] = "";
        assert_ok(ra_system_find(names[i], &system));
        assert_string_equal(system.name, names[i]);
        for (size_t c = 0; names[i][c]; c++) other[c] = (char)toupper(names[i][c]);
        assert_ok(ra_system_find(other, &system)); /* in any case */
        assert_string_equal(system.name, names[i]);
    }
    int rows = 0;
    ra_system system = ra_system_default();
    while (ra_system_at(rows, &system) == RA_OK) rows++;
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

static void expect_pattern(const ra_system *system)
{
    ra_pattern *pattern;
    if (!system->pattern || !is_known("pattern", system->pattern)) return;
    test_status(RA_OK, ra_pattern_parse(system->pattern, &pattern), system->pattern, __FILE__,
                __LINE__);
    ra_pattern_destroy(pattern);
}

static void expect_order(const ra_system *system)
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
    ra_system system = ra_system_default();
    for (int i = 0; ra_system_at(i, &system) == RA_OK; i++) {
        assert_true(strlen(system.summary) > 10 && strlen(system.summary) < 90);
        expect_pattern(&system);
        expect_order(&system);
        assert_true(is_known("strategy", system.strategy));
        assert_true(is_known("partition", system.partition));
        bool has_transport = !system.transport || is_known("transport", system.transport);
        if (has_transport) assert_null(system.missing);
        else assert_non_null(strstr(system.missing, system.transport));
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
        ra_system system = ra_system_default();
        assert_ok(ra_system_find(rows[i].name, &system));
        const char *got[] = { system.pattern, system.order, system.strategy, system.transport };
        const char *want[] = { rows[i].pattern, rows[i].order, rows[i].strategy,
                               rows[i].transport };
        for (int f = 0; f < TEST_COUNT(got); f++) {
            if (want[f]) assert_string_equal(got[f], want[f]);
            else assert_null(got[f]);
        }
    }
}

static void unknown_names_are_told_all_others(void **state)
{
    (void)state;
    ra_system system = ra_system_default();
    assert_fails(RA_ERR_ARGUMENT, "system: \"FlashAttention\" is not known; there are Standard",
                 ra_system_find("FlashAttention", &system));
    for (int i = 0; i < TEST_COUNT(names); i++) assert_non_null(strstr(ra_last_error(), names[i]));
    assert_fails(RA_ERR_ARGUMENT, "\"Ring\" is not known", ra_system_find("Ring", &system));
    assert_fails(RA_ERR_ARGUMENT, "\"\" is not known", ra_system_find("", &system));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_system_find(NULL, &system));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_system_find("RingDilated", NULL));
    assert_fails(RA_ERR_ARGUMENT, "there is no row -1", ra_system_at(-1, &system));
    assert_fails(RA_ERR_ARGUMENT, "there is no row 99", ra_system_at(99, &system));
    assert_null(system.name); /* nothing was written */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reports_names_are_known),
        cmocka_unit_test(what_they_stand_for_is_there),
        cmocka_unit_test(they_stand_for_what_the_list_says),
        cmocka_unit_test(unknown_names_are_told_all_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
