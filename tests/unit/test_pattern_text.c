/* SPDX-License-Identifier: Apache-2.0 */
/* test_pattern_text.c - patterns as text: what is read is written the same, by constructors too,
 * and copies are the same pattern. */
#include "support/patterns.h"
#include "support/walk.h"

#include "pattern/pattern.h"

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
        pattern_expect_text(pattern, texts[i]);
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
        pattern_expect_text(again, text);
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
    pattern_expect_text(said, "dilated:8/2,12/3;groups");
    assert_true(ra__pattern_hash(plain) == ra__pattern_hash(said));
    assert_fails(RA_ERR_ARGUMENT, "does not go with it", ra_pattern_add(plain, "offsets=block"));
    pattern_expect_text(plain, "dilated:8/2,12/3;groups"); /* unchanged */
    ra_pattern_destroy(plain);
    ra_pattern_destroy(said);
}

static void modifiers_come_in_any_order(void **state)
{
    (void)state;
    ra_pattern *pattern;
    assert_ok(ra_pattern_parse("window:4;docs=0,3,9;causal", &pattern));
    pattern_expect_text(pattern, "window:4;causal;docs=0,3,9");
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
    pattern_expect_text(pattern, "full");
    assert_ok(ra_pattern_set_causal(pattern));
    assert_ok(ra_pattern_set_documents(pattern, bounds, 4));
    pattern_expect_text(pattern, "full;causal;docs=0,4,4,10");
    assert_ok(ra_pattern_set_documents(pattern, bounds, 3)); /* replaces the old ones */
    pattern_expect_text(pattern, "full;causal;docs=0,4,4");
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_causal(&pattern));
    pattern_expect_text(pattern, "causal");
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_window(5, 2, &pattern));
    pattern_expect_text(pattern, "window:5,2");
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_prefix(9, &pattern));
    pattern_expect_text(pattern, "prefix:9");
    ra_pattern_destroy(pattern);
    static const ra_branch branches[] = { { 2048, 1 }, { 4096, 2 } };
    assert_ok(ra_pattern_dilated(branches, 2, &pattern));
    pattern_expect_text(pattern, "dilated:2048/1,4096/2");
    assert_ok(ra_pattern_add(pattern, "groups"));
    assert_ok(ra_pattern_add(pattern, "dedup"));
    assert_ok(ra_pattern_add(pattern, "causal"));
    assert_ok(ra_pattern_add(pattern, "docs=0,3,9"));
    pattern_expect_text(pattern, "dilated:2048/1,4096/2;dedup;groups;causal;docs=0,3,9");
    ra_pattern_destroy(pattern);
    assert_ok(ra_pattern_blocks(64, &pattern));
    pattern_expect_text(pattern, "blocks:64");
    static const char *const terms[] = { "seed=7",      "random=0.25", "levels=2/1,4/3",
                                         "dilated=2/3", "strided=5",   "global=1",
                                         "local=2" };
    for (int i = 0; i < TEST_COUNT(terms); i++) assert_ok(ra_pattern_add(pattern, terms[i]));
    pattern_expect_text(
        pattern, "blocks:64;local=2;global=1;strided=5;dilated=2/3;levels=2/1,4/3;random=0.25"
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
    pattern_expect_text(pattern, "full;docs=0,4,10");
    ra_pattern_destroy(pattern);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
