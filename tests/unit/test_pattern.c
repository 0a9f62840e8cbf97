/* SPDX-License-Identifier: Apache-2.0 */
/* test_pattern.c - patterns as text and as rows, against the formulas, and every refusal. */
#include "support/walk.h"

#include <stdlib.h>

#include "harness/oracle/mask.h"
#include "pattern/pattern.h"

enum { MOST_N = 64, MOST_HEADS = 8 };

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
        "dilated:2048/1,4096/2,8192/4",
        "dilated:1/1",
        "dilated:5/7;dedup",
        "dilated:8/1,16/2;dedup;groups;causal",
        "dilated:8/1;groups;causal;docs=0,8",
        "dilated:2305843009213693951/2305843009213693951",
        "dilated:8/2,12/3;offsets=block",
        "dilated:8/2;dedup;offsets=block;causal",
        "blocks:64;local=4;global=1",
        "blocks:1;local=0",
        "blocks:64;global=0",
        "blocks:64;strided=8",
        "blocks:64;dilated=3/2",
        "blocks:64;dilated=1/0",
        "blocks:64;levels=1/1,4/8,16/64",
        "blocks:64;random=0.1;seed=7",
        "blocks:64;random=0",
        "blocks:64;random=1",
        "blocks:64;random=0.00001;seed=0",
        "blocks:64;random=0.30000000000000004;seed=2305843009213693951",
        ("blocks:9;local=1;global=2;strided=3;dilated=4/5;levels=6/7;random=0.5;seed=8;causal;"
         "docs=0,9"),
    };
    for (int i = 0; i < TEST_COUNT(texts); i++) {
        ra_pattern *pattern;
        assert_ok(ra_pattern_parse(texts[i], &pattern));
        expect_text(pattern, texts[i]);
        ra_pattern_destroy(pattern);
    }
}

/* Terms may come in another order than they are written in; what they say is the same. */
static void samples_read_and_write_the_same(void **state)
{
    (void)state;
    char sample[64], text[160];
    int i = 0;
    for (; walk_sample(i, sample, sizeof sample); i++) {
        ra_pattern *pattern, *again;
        size_t length;
        assert_ok(ra_pattern_parse(sample, &pattern));
        assert_ok(ra_pattern_format(pattern, text, sizeof text, &length));
        assert_int_equal(length, strlen(sample));
        assert_ok(ra_pattern_parse(text, &again));
        expect_text(again, text);
        assert_true(ra__pattern_hash(again) == ra__pattern_hash(pattern));
        ra_pattern_destroy(pattern);
        ra_pattern_destroy(again);
    }
    assert_true(i >= 17);
}

/* A copy is the same pattern, stands alone, and what it takes is charged to its account. */
static void copies_stand_alone(void **state)
{
    (void)state;
    char sample[64];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++) {
        struct ra__account account = { { 0 } };
        ra_pattern *pattern, *copy;
        size_t before = ra_allocated_bytes();
        assert_ok(ra_pattern_parse(sample, &pattern));
        assert_ok(ra_pattern_add(pattern, "docs=0,5,9"));
        size_t given = ra_allocated_bytes() - before;
        assert_ok(ra__pattern_copy(pattern, &account, &copy));
        uint64_t hash = ra__pattern_hash(pattern);
        ra_pattern_destroy(pattern);
        assert_true(ra__pattern_hash(copy) == hash);
        char text[160];
        assert_ok(ra_pattern_format(copy, text, sizeof text, NULL));
        assert_ok(ra_pattern_parse(text, &pattern));
        assert_true(ra__pattern_hash(pattern) == hash);
        size_t charged = account.bytes[RA__FOR_BOOKKEEPING];
        size_t plain = sizeof *copy + copy->kind->state_bytes + 3 * sizeof(int64_t);
        bool lists = !strcmp(copy->kind->name, "dilated"); /* which always keeps branches */
        assert_true(lists ? charged > plain : charged >= plain);
        assert_true(charged <= given);
        ra_pattern_destroy(pattern);
        ra_pattern_destroy(copy);
        assert_int_equal(account.bytes[RA__FOR_BOOKKEEPING], 0);
        assert_int_equal(ra_allocated_bytes(), before);
    }
}

/* What a kind keeps must count where ranks compare their patterns. */
static void kinds_that_keep_something_hash_it(void **state)
{
    (void)state;
    for (int i = 0; ra__pattern_kind_at(i); i++)
        assert_true(!ra__pattern_kind_at(i)->state_bytes || ra__pattern_kind_at(i)->hash);
}

/* The default may be written out; it is the same pattern, and its text is the shorter one. */
static void cyclic_offsets_are_the_default(void **state)
{
    (void)state;
    ra_pattern *plain, *said;
    assert_ok(ra_pattern_parse("dilated:8/2,12/3;groups", &plain));
    assert_ok(ra_pattern_parse("dilated:8/2,12/3;offsets=cyclic;groups", &said));
    expect_text(said, "dilated:8/2,12/3;groups");
    assert_true(ra__pattern_hash(plain) == ra__pattern_hash(said));
    assert_fails(RA_ERR_ARGUMENT, "does not go with it", ra_pattern_add(plain, "offsets=block"));
    expect_text(plain, "dilated:8/2,12/3;groups"); /* unchanged */
    ra_pattern_destroy(plain);
    ra_pattern_destroy(said);
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
    static const ra_branch branches[] = { { 2048, 1 }, { 4096, 2 } };
    assert_ok(ra_pattern_dilated(branches, 2, &pattern));
    expect_text(pattern, "dilated:2048/1,4096/2");
    assert_ok(ra_pattern_add(pattern, "groups"));
    assert_ok(ra_pattern_add(pattern, "dedup"));
    assert_ok(ra_pattern_add(pattern, "causal"));
    assert_ok(ra_pattern_add(pattern, "docs=0,3,9"));
    expect_text(pattern, "dilated:2048/1,4096/2;dedup;groups;causal;docs=0,3,9");
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_blocks(64, &pattern));
    expect_text(pattern, "blocks:64");
    static const char *const terms[] = { "seed=7",      "random=0.25", "levels=2/1,4/3",
                                         "dilated=2/3", "strided=5",   "global=1",
                                         "local=2" };
    for (int i = 0; i < TEST_COUNT(terms); i++) assert_ok(ra_pattern_add(pattern, terms[i]));
    expect_text(pattern,
                "blocks:64;local=2;global=1;strided=5;dilated=2/3;levels=2/1,4/3;random=0.25"
                ";seed=7");
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
    expect_text(pattern, "full;docs=0,9"); /* unchanged */
    ra_pattern_destroy(pattern);
}

/* Numbers of a problem that matter for the mask only. */
struct size {
    int64_t q_len, k_len;
    int heads;
};

static ra_status ask_row(const ra_pattern *pattern, struct size size, int head, int64_t query,
                         uint8_t *seen)
{
    ra_problem problem = ra_problem_default();
    problem.pattern = pattern;
    problem.q_len = size.q_len;
    problem.k_len = size.k_len;
    problem.q_heads = size.heads;
    problem.dim = 1;
    return ra_problem_row(&problem, head, query, seen);
}

static void lengths_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    ra_pattern *pattern;
    uint8_t seen[16];
    assert_ok(ra_pattern_parse("prefix:3", &pattern));
    assert_fails(RA_ERR_UNSUPPORTED, "more queries (9) than keys (8)",
                 ask_row(pattern, (struct size){ 9, 8, 1 }, 0, 0, seen));
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_parse("full;docs=0,8", &pattern));
    assert_fails(RA_ERR_UNSUPPORTED, "as many queries (4) as keys (8)",
                 ask_row(pattern, (struct size){ 4, 8, 1 }, 0, 0, seen));
    assert_fails(RA_ERR_ARGUMENT, "the last bound is 8, but there are 7 positions",
                 ask_row(pattern, (struct size){ 7, 7, 1 }, 0, 0, seen));
    assert_fails(RA_ERR_ARGUMENT, "query 8 of 8",
                 ask_row(pattern, (struct size){ 8, 8, 1 }, 0, 8, seen));
    assert_fails(RA_ERR_ARGUMENT, "query -1 of 8",
                 ask_row(pattern, (struct size){ 8, 8, 1 }, 0, -1, seen));
    assert_fails(RA_ERR_ARGUMENT, "head 2 of 2",
                 ask_row(pattern, (struct size){ 8, 8, 2 }, 2, 0, seen));
    assert_fails(RA_ERR_ARGUMENT, "head -1 of 2",
                 ask_row(pattern, (struct size){ 8, 8, 2 }, -1, 0, seen));
    ra_pattern_destroy(pattern);
}

/* What can be written down, but not used: refused when it is asked for, with a sentence. */
static void patterns_that_are_not_complete_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
        ra_status status;
        struct size size;
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
                     ask_row(pattern, cases[i].size, 0, 0, seen));
        problem.pattern = pattern;
        problem.q_len = cases[i].size.q_len;
        problem.k_len = cases[i].size.k_len;
        problem.q_heads = problem.dim = 1;
        assert_fails(cases[i].status, cases[i].sentence,
                     ra_plan_create(NULL, &problem, NULL, &plan));
        ra_pattern_destroy(pattern);
    }
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* The oracle's formulas, pair by pair. */
static void check_rows(const char *text, struct size size)
{
    ra_pattern *pattern;
    struct mask mask;
    struct mask_setup setup = { .pattern = text, .heads = size.heads, .length = size.k_len };
    uint8_t seen[MOST_N + 1];
    assert_ok(ra_pattern_parse(text, &pattern));
    assert_int_equal(mask_open(&mask, &setup), 0);
    for (int64_t i = 0; i < size.q_len * size.heads; i++) {
        int64_t query = i / size.heads, position = query + size.k_len - size.q_len;
        int head = (int)(i % size.heads);
        memset(seen, 0xee, sizeof seen);
        ra_status status = ask_row(pattern, size, head, query, seen);
        if (status == RA_ERR_UNSUPPORTED && size.q_len > size.k_len) break;
        assert_int_equal(status, RA_OK);
        assert_int_equal(seen[size.k_len], 0xee);
        for (int64_t key = 0; key < size.k_len; key++)
            if (seen[key] != mask_count(&mask, head, position, key))
                fail_msg("%s n=%d nk=%d h=%d: head %d, query %d, key %d: %d", text, (int)size.q_len,
                         (int)size.k_len, size.heads, head, (int)query, (int)key, seen[key]);
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
        struct size size = { n, n, (int)(n % MOST_HEADS) + 1 };
        for (int i = 0; walk_sample(i, sample, sizeof sample); i++) check_rows(sample, size);
        for (int i = 0; i < TEST_COUNT(more); i++) check_rows(more[i], size);
    }
    for (int64_t n = 1; n <= 12; n++)
        for (int64_t nk = 1; nk <= 25; nk++) {
            struct size size = { n, nk, (int)(nk % 5) + 1 };
            for (int i = 0; walk_sample(i, sample, sizeof sample); i++) check_rows(sample, size);
            for (int i = 0; i < TEST_COUNT(more); i++) check_rows(more[i], size);
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
                check_rows(text, (struct size){ 20, 20, 6 });
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
        { "dilated:4/1,8/2", 8, 8, 0, "21211010" },
        { "dilated:4/1,8/2", 8, 8, 1, "11110000" },
        { "dilated:4/1,8/2;dedup", 8, 8, 2, "11111010" },
        { "dilated:4/1,8/2;causal", 8, 8, 4, "10102000" },
        { "dilated:3/2", 8, 8, 6, "00000010" },
        { "dilated:3/2", 8, 8, 7, "00000000" },
        { "dilated:3/1", 2, 8, 1, "00000011" },
        { "blocks:2;local=1", 7, 7, 2, "1111110" },
        { "blocks:2;global=1", 7, 7, 1, "1111111" },
        { "blocks:2;global=1", 7, 7, 6, "1100000" },
        { "blocks:2;strided=2", 7, 7, 3, "1111110" },
        { "blocks:2;dilated=2/1", 7, 7, 2, "0011001" },
        { "blocks:2;levels=2/1", 7, 7, 4, "0011111" },
        { "blocks:2;levels=2/1", 7, 7, 6, "0000001" },
        { "blocks:2;random=0", 7, 7, 6, "0000001" },
        { "blocks:2;random=1", 7, 7, 6, "1111111" },
        { "blocks:2;local=0", 2, 7, 0, "0000110" },
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        ra_pattern *pattern;
        uint8_t seen[8];
        assert_ok(ra_pattern_parse(cases[i].text, &pattern));
        assert_ok(ask_row(pattern, (struct size){ cases[i].q_len, cases[i].k_len, 1 }, 0,
                          cases[i].query, seen));
        for (int key = 0; key < cases[i].k_len; key++)
            if (seen[key] != cases[i].seen[key] - '0')
                fail_msg("%s: query %d of %d, key %d of %d", cases[i].text, cases[i].query,
                         cases[i].q_len, key, cases[i].k_len);
        ra_pattern_destroy(pattern);
    }
}

/* ---- Rows of runs ---------------------------------------------------------------------------- */

/* Collects rows: each query of each head comes once, tiles are clipped to visible keys. */
struct collector {
    ra_run q;
    int64_t k_len;
    int heads;
    bool done[MOST_HEADS][MOST_N];            /* [head][query of the run] */
    uint8_t seen[MOST_HEADS][MOST_N][MOST_N]; /* [head][query of the run][key] */
};

static void collect_pair(struct collector *c, const struct ra__row *row, int64_t query, int64_t key)
{
    for (int64_t h = 0; h < row->heads.count; h++)
        c->seen[row->heads.start + h * row->heads.step][query][key]++;
}

static void collect_queries(struct collector *c, const struct ra__row *row)
{
    for (int64_t i = 0; i < row->q.count; i++) {
        int64_t away = row->q.start + i * row->q.step - c->q.start, query = away / c->q.step;
        assert_true(away >= 0 && away % c->q.step == 0 && query < c->q.count);
        for (int64_t h = 0; h < row->heads.count; h++) {
            int64_t head = row->heads.start + h * row->heads.step;
            assert_true(head >= 0 && head < c->heads);
            assert_false(c->done[head][query]);
            c->done[head][query] = true;
        }
    }
}

static ra_status collect(void *context, const struct ra__row *row)
{
    struct collector *c = context;
    assert_true(row->q.count > 0 && row->q.step > 0);
    assert_true(row->heads.count > 0 && row->heads.step > 0);
    collect_queries(c, row);
    for (int i = 0; i < row->tile_count; i++) {
        const struct ra__tile *tile = &row->tiles[i];
        assert_true(tile->keys.count > 0 && tile->keys.start >= 0 && tile->keys.step > 0);
        assert_true(ra__run_last(tile->keys) < c->k_len);
        ra_run seen = ra__row_keys(row, tile);
        assert_true(tile->whole || seen.count == tile->keys.count);
        assert_true(seen.count == 0 || seen.start >= row->q.start - tile->band.left);
        assert_true(seen.count == 0 ||
                    ra__run_last(seen) <= ra__run_last(row->q) + tile->band.right);
        for (int64_t q = 0; q < row->q.count; q++)
            for (int64_t k = 0; k < tile->keys.count; k++) {
                int64_t key = tile->keys.start + k * tile->keys.step;
                int64_t position = row->q.start + q * row->q.step, distance = key - position;
                if (distance < -tile->band.left || distance > tile->band.right) continue;
                collect_pair(c, row, (position - c->q.start) / c->q.step, key);
            }
    }
    return RA_OK;
}

static void check_run(const char *text, struct size size, ra_run q)
{
    static struct collector c;
    ra_pattern *pattern;
    struct mask mask;
    struct mask_setup setup = { .pattern = text, .heads = size.heads, .length = size.k_len };
    c = (struct collector){ .q = q, .k_len = size.k_len, .heads = size.heads };
    assert_ok(ra_pattern_parse(text, &pattern));
    assert_int_equal(mask_open(&mask, &setup), 0);
    struct ra__rows rows = { pattern, size.k_len, size.heads, false };
    assert_ok(ra__pattern_rows(&rows, q, (struct ra__row_sink){ collect, &c }));
    for (int head = 0; head < size.heads; head++)
        for (int64_t i = 0; i < q.count; i++) {
            assert_true(c.done[head][i]);
            for (int64_t key = 0; key < size.k_len; key++)
                if (c.seen[head][i][key] != mask_count(&mask, head, q.start + i * q.step, key))
                    fail_msg("%s n=%d h=%d: head %d, query %d, key %d: %d", text, (int)size.k_len,
                             size.heads, head, (int)(q.start + i * q.step), (int)key,
                             c.seen[head][i][key]);
        }
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
                    struct size size = { 31, 31, (int)(start % MOST_HEADS) + 1 };
                    snprintf(text, sizeof text, "%s%s", sample, modifiers[m]);
                    check_run(text, size, (ra_run){ start, step, (30 - start) / step + 1 });
                    check_run(text, size, (ra_run){ start, step, 1 });
                    check_run(text, size, (ra_run){ start, step, 0 });
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_reads_and_writes_the_same),
        cmocka_unit_test(samples_read_and_write_the_same),
        cmocka_unit_test(copies_stand_alone),
        cmocka_unit_test(kinds_that_keep_something_hash_it),
        cmocka_unit_test(cyclic_offsets_are_the_default),
        cmocka_unit_test(modifiers_come_in_any_order),
        cmocka_unit_test(text_is_cut_like_snprintf),
        cmocka_unit_test(constructors_say_the_same_as_text),
        cmocka_unit_test(documents_are_copied),
        cmocka_unit_test(wrong_text_is_refused_with_a_sentence),
        cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(lengths_that_make_no_sense_are_refused),
        cmocka_unit_test(patterns_that_are_not_complete_are_refused),
        cmocka_unit_test(rows_follow_the_formulas),
        cmocka_unit_test(documents_cut_rows),
        cmocka_unit_test(small_cases_by_hand),
        cmocka_unit_test(rows_of_runs_follow_the_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
