/* test_pattern.c - patterns as text and as rows, against the formulas, and every refusal. */
#include "support/walk.h"

#include <stdlib.h>

#include "mask.h"
#include "pattern/pattern.h"

enum { MOST_N = 64 };

/* ---- Text ------------------------------------------------------------------------------------ */

static void expect_text(const ra_pattern *pattern, const char *want)
{
    char text[256];
    size_t length;
    assert_ok(ra_pattern_format(pattern, text, sizeof text, &length));
    assert_string_equal(text, want);
    assert_int_equal(length, strlen(want));
}

static void text_reads_and_writes_the_same(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "full",
        "causal",
        "window:512",
        "window:256,256",
        "window:0",
        "window:0,0",
        "prefix:128",
        "prefix:0",
        "full;causal",
        "full;docs=0,120,1248,4232",
        "window:3;causal;docs=0,0,7,7",
        "causal;docs=0,1",
        "window:2305843009213693951",
    };
    for (int i = 0; i < TEST_COUNT(texts); i++) {
        ra_pattern *pattern;
        assert_ok(ra_pattern_parse(texts[i], &pattern));
        expect_text(pattern, texts[i]);
        ra_pattern_destroy(pattern);
    }
}

static void samples_read_and_write_the_same(void **state)
{
    (void)state;
    char sample[64];
    int i = 0;
    for (; walk_sample(i, sample, sizeof sample); i++) {
        ra_pattern *pattern;
        assert_ok(ra_pattern_parse(sample, &pattern));
        expect_text(pattern, sample);
        ra_pattern_destroy(pattern);
    }
    assert_true(i >= 5);
}

static void modifiers_come_in_any_order(void **state)
{
    (void)state;
    ra_pattern *pattern;
    assert_ok(ra_pattern_parse("window:4;docs=0,3,9;causal", &pattern));
    expect_text(pattern, "window:4;causal;docs=0,3,9");
    ra_pattern_destroy(pattern);
}

static void text_is_cut_like_snprintf(void **state)
{
    (void)state;
    ra_pattern *pattern;
    char text[8];
    size_t length;
    assert_ok(ra_pattern_parse("window:256,256", &pattern));
    for (size_t capacity = 1; capacity <= sizeof text; capacity++) {
        memset(text, 'x', sizeof text);
        assert_ok(ra_pattern_format(pattern, text, capacity, &length));
        assert_int_equal(length, strlen("window:256,256"));
        assert_int_equal(strlen(text), capacity - 1);
        assert_memory_equal(text, "window:256,256", capacity - 1);
        if (capacity < sizeof text) assert_int_equal(text[capacity], 'x');
    }
    assert_ok(ra_pattern_format(pattern, NULL, 0, &length));
    assert_int_equal(length, strlen("window:256,256"));
    assert_ok(ra_pattern_format(pattern, text, sizeof text, NULL));
    ra_pattern_destroy(pattern);
}

static void constructors_say_the_same_as_text(void **state)
{
    (void)state;
    static const int64_t bounds[] = { 0, 4, 4, 10 };
    ra_pattern *pattern;
    assert_ok(ra_pattern_full(&pattern));
    expect_text(pattern, "full");
    assert_ok(ra_pattern_set_causal(pattern));
    assert_ok(ra_pattern_set_documents(pattern, bounds, 4));
    expect_text(pattern, "full;causal;docs=0,4,4,10");
    assert_ok(ra_pattern_set_documents(pattern, bounds, 3)); /* replaces the old ones */
    expect_text(pattern, "full;causal;docs=0,4,4");
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_causal(&pattern));
    expect_text(pattern, "causal");
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_window(5, 2, &pattern));
    expect_text(pattern, "window:5,2");
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_prefix(9, &pattern));
    expect_text(pattern, "prefix:9");
    ra_pattern_destroy(pattern);
}

static void documents_are_copied(void **state)
{
    (void)state;
    int64_t bounds[] = { 0, 4, 10 };
    ra_pattern *pattern;
    assert_ok(ra_pattern_full(&pattern));
    assert_ok(ra_pattern_set_documents(pattern, bounds, 3));
    memset(bounds, 0xff, sizeof bounds);
    expect_text(pattern, "full;docs=0,4,10");
    ra_pattern_destroy(pattern);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void wrong_text_is_refused_with_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        { "", "\"\" is not known" },
        { "Full", "\"Full\" is not known" },
        { "hexagonal:3", "there are full, causal, window:L[,R], prefix:N" },
        { " full", "is not known" },
        { "full ", "is not known" },
        { "full:", "nothing stands behind the colon" },
        { "full:3", "\"3\" is not understood" },
        { "causal:1", "\"1\" is not understood" },
        { "window", "a number is missing; write window:L[,R]" },
        { "window:", "nothing stands behind the colon" },
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
        { "full;", "\"\" is not understood; behind a semicolon stands causal or docs=0,...,n" },
        { "full;;causal", "\"\" is not understood" },
        { "full;causal;", "is not understood" },
        { "full;Causal", "\"Causal\" is not understood" },
        { "full;docs", "\"docs\" is not understood" },
        { "full;docs=", "bound 1 is not a number" },
        { "full;docs=0", "the bounds start at 0 and end at n" },
        { "full;docs=1,2", "the bounds start at 0" },
        { "full;docs=0,5,4", "bound 4 comes behind 5; bounds must not fall" },
        { "full;docs=0,x,4", "bound 2 is not a number" },
        { "full;docs=0,4,", "is not a number" },
        { "full;docs=0,-4", "bound 2 is not a number" },
        { "full;docs=0,4;docs=0,4", "docs= is given twice" },
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
    expect_text(pattern, "full;docs=0,9"); /* unchanged */
    ra_pattern_destroy(pattern);
}

static void lengths_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    ra_pattern *pattern;
    uint8_t seen[16];
    assert_ok(ra_pattern_parse("prefix:3", &pattern));
    assert_fails(RA_ERR_UNSUPPORTED, "more queries (9) than keys (8)",
                 ra_pattern_row(pattern, 9, 8, 0, 0, seen));
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_parse("full;docs=0,8", &pattern));
    assert_fails(RA_ERR_UNSUPPORTED, "as many queries (4) as keys (8)",
                 ra_pattern_row(pattern, 4, 8, 0, 0, seen));
    assert_fails(RA_ERR_ARGUMENT, "the last bound is 8, but there are 7 positions",
                 ra_pattern_row(pattern, 7, 7, 0, 0, seen));
    assert_fails(RA_ERR_ARGUMENT, "query 8 of 8", ra_pattern_row(pattern, 8, 8, 0, 8, seen));
    assert_fails(RA_ERR_ARGUMENT, "query -1 of 8", ra_pattern_row(pattern, 8, 8, 0, -1, seen));
    ra_pattern_destroy(pattern);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* The formulas, pair by pair, with numbers instead of text where they are simple. */
static bool sees(const struct mask *mask, int64_t position, int64_t key)
{
    int64_t first, end;
    mask_document(mask, position, &first, &end);
    return key >= first && key < end && mask_sees(mask, position, key);
}

static void check_rows(const char *text, int64_t q_len, int64_t k_len)
{
    ra_pattern *pattern;
    struct mask mask;
    uint8_t seen[MOST_N + 1];
    assert_ok(ra_pattern_parse(text, &pattern));
    assert_int_equal(mask_open(&mask, text), 0);
    for (int64_t query = 0; query < q_len; query++) {
        memset(seen, 0xee, sizeof seen);
        ra_status status = ra_pattern_row(pattern, q_len, k_len, 0, query, seen);
        if (status == RA_ERR_UNSUPPORTED && q_len > k_len) break;
        assert_int_equal(status, RA_OK);
        assert_int_equal(seen[k_len], 0xee);
        for (int64_t key = 0; key < k_len; key++)
            if (seen[key] != sees(&mask, query + k_len - q_len, key))
                fail_msg("%s n=%d nk=%d: query %d, key %d: %d", text, (int)q_len, (int)k_len,
                         (int)query, (int)key, seen[key]);
    }
    mask_close(&mask);
    ra_pattern_destroy(pattern);
}

static void rows_follow_the_formulas(void **state)
{
    (void)state;
    static const char *const more[] = { "window:0",          "window:0,0",      "window:1000,1000",
                                        "window:0,4",        "prefix:0",        "prefix:1000",
                                        "window:5,5;causal", "prefix:6;causal", "causal;causal" };
    char sample[64];
    for (int64_t n = 1; n <= 40; n++) {
        for (int i = 0; walk_sample(i, sample, sizeof sample); i++) check_rows(sample, n, n);
        for (int i = 0; i < TEST_COUNT(more); i++) check_rows(more[i], n, n);
    }
    for (int64_t n = 1; n <= 12; n++)
        for (int64_t nk = 1; nk <= 25; nk++) {
            for (int i = 0; walk_sample(i, sample, sizeof sample); i++) check_rows(sample, n, nk);
            for (int i = 0; i < TEST_COUNT(more); i++) check_rows(more[i], n, nk);
        }
}

static void documents_cut_rows(void **state)
{
    (void)state;
    static const char *const documents[] = {
        "0,20", "0,0,20", "0,20,20", "0,1,2,19,20", "0,0,0,7,7,7,13,20,20", "0,10,20"
    };
    char sample[64], text[160];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int d = 0; d < TEST_COUNT(documents); d++)
            for (int causal = 0; causal < 2; causal++) {
                snprintf(text, sizeof text, "%s%s;docs=%s", sample, causal ? ";causal" : "",
                         documents[d]);
                check_rows(text, 20, 20);
            }
}

/* By hand, so that the formulas themselves are tested. */
static void small_cases_by_hand(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int q_len, k_len, query;
        const char *seen;
    } cases[] = {
        { "full", 2, 5, 0, "11111" },
        { "causal", 5, 5, 2, "11100" },
        { "causal", 2, 5, 0, "11110" },
        { "causal", 2, 5, 1, "11111" },
        { "causal", 5, 2, 0, "00" },
        { "causal", 5, 2, 3, "10" },
        { "window:1", 5, 5, 2, "01100" },
        { "window:1,2", 5, 5, 2, "01111" },
        { "window:0,1", 5, 5, 4, "00001" },
        { "prefix:2", 5, 5, 0, "11000" },
        { "prefix:2", 5, 5, 3, "11110" },
        { "prefix:2;causal", 5, 5, 0, "10000" },
        { "full;docs=0,2,2,5", 5, 5, 1, "11000" },
        { "full;docs=0,2,2,5", 5, 5, 2, "00111" },
        { "window:9,9;causal;docs=0,3,5", 5, 5, 4, "00011" },
        { "window:1,1", 2, 5, 0, "00111" },
        { "window:1", 5, 2, 1, "00" },
        { "window:2,0", 5, 2, 4, "11" },
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        ra_pattern *pattern;
        uint8_t seen[8];
        assert_ok(ra_pattern_parse(cases[i].text, &pattern));
        assert_ok(ra_pattern_row(pattern, cases[i].q_len, cases[i].k_len, 0, cases[i].query, seen));
        for (int key = 0; key < cases[i].k_len; key++)
            if (seen[key] != cases[i].seen[key] - '0')
                fail_msg("%s: query %d of %d, key %d of %d", cases[i].text, cases[i].query,
                         cases[i].q_len, key, cases[i].k_len);
        ra_pattern_destroy(pattern);
    }
}

/* ---- Rows of runs ---------------------------------------------------------------------------- */

/* Collects rows: queries must come in order, sights must be clipped to what somebody sees. */
struct collector {
    ra_run q;
    int64_t done;
    int64_t k_len;
    bool seen[MOST_N][MOST_N]; /* [query of the run][key] */
};

static ra_status collect(void *context, const struct ra__row *row)
{
    struct collector *c = context;
    assert_int_equal(row->q.start, c->q.start + c->done * c->q.step);
    assert_int_equal(row->q.step, c->q.step);
    assert_true(row->q.count > 0 && row->sight_count <= RA__SIGHTS);
    for (int i = 0; i < row->sight_count; i++) {
        const struct ra__sight *sight = &row->sights[i];
        assert_true(sight->keys.count > 0 && sight->keys.start >= 0);
        assert_true(ra__run_last(sight->keys) < c->k_len);
        for (int64_t q = 0; q < row->q.count; q++)
            for (int64_t k = 0; k < sight->keys.count; k++) {
                int64_t key = sight->keys.start + k * sight->keys.step;
                int64_t distance = key - (row->q.start + q * row->q.step);
                if (distance < -sight->band.left || distance > sight->band.right) continue;
                assert_false(c->seen[c->done + q][key]); /* once */
                c->seen[c->done + q][key] = true;
            }
    }
    c->done += row->q.count;
    return RA_OK;
}

static void check_run(const char *text, int64_t n, ra_run q)
{
    static struct collector c;
    ra_pattern *pattern;
    struct mask mask;
    c = (struct collector){ .q = q, .k_len = n };
    assert_ok(ra_pattern_parse(text, &pattern));
    assert_int_equal(mask_open(&mask, text), 0);
    assert_ok(ra__pattern_rows(pattern, n, q, (struct ra__row_sink){ collect, &c }));
    assert_int_equal(c.done, q.count);
    for (int64_t i = 0; i < q.count; i++)
        for (int64_t key = 0; key < n; key++)
            if (c.seen[i][key] != sees(&mask, q.start + i * q.step, key))
                fail_msg("%s n=%d: query %d, key %d", text, (int)n, (int)(q.start + i * q.step),
                         (int)key);
    mask_close(&mask);
    ra_pattern_destroy(pattern);
}

static void rows_of_runs_follow_the_formulas(void **state)
{
    (void)state;
    static const char *const modifiers[] = { "", ";causal", ";docs=0,5,5,6,20,31" };
    char sample[64], text[160];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int m = 0; m < TEST_COUNT(modifiers); m++)
            for (int64_t step = 1; step <= 9; step += 2)
                for (int64_t start = 0; start < 31; start += 3) {
                    snprintf(text, sizeof text, "%s%s", sample, modifiers[m]);
                    check_run(text, 31, (ra_run){ start, step, (30 - start) / step + 1 });
                    check_run(text, 31, (ra_run){ start, step, 1 });
                    check_run(text, 31, (ra_run){ start, step, 0 });
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_reads_and_writes_the_same),
        cmocka_unit_test(samples_read_and_write_the_same),
        cmocka_unit_test(modifiers_come_in_any_order),
        cmocka_unit_test(text_is_cut_like_snprintf),
        cmocka_unit_test(constructors_say_the_same_as_text),
        cmocka_unit_test(documents_are_copied),
        cmocka_unit_test(wrong_text_is_refused_with_a_sentence),
        cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(lengths_that_make_no_sense_are_refused),
        cmocka_unit_test(rows_follow_the_formulas),
        cmocka_unit_test(documents_cut_rows),
        cmocka_unit_test(small_cases_by_hand),
        cmocka_unit_test(rows_of_runs_follow_the_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
