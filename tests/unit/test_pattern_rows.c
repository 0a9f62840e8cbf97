/* SPDX-License-Identifier: Apache-2.0 */
/* test_pattern_rows.c - the rows of patterns, query by query and run by run, against the formulas
 * of the oracle and against small cases by hand. */
#include "support/patterns.h"
#include "support/walk.h"

#include "harness/oracle/mask.h"
#include "pattern/pattern.h"

enum { MOST_N = 64, MOST_HEADS = 8 };

/* ---- Rows ------------------------------------------------------------------------------------ */

/* No query sees more keys than its pattern says, nor keys outside the range that the oracle looks
 * at. */
static void check_limits(const ra_pattern *pattern, const struct mask *mask, int64_t position,
                         int64_t k_len, const uint8_t *seen)
{
    int64_t first, end, count = 0, range = 0;
    mask_range(mask, position, &first, &end);
    for (int64_t key = 0; key < k_len; key++) {
        assert_true(!seen[key] || (key >= first && key < end));
        count += seen[key];
        range += key >= first && key < end;
    }
    assert_true(range <= mask_most(mask, k_len));
    if (pattern->kind->most_keys) assert_true(count <= pattern->kind->most_keys(pattern));
}

/* The oracle's formulas, pair by pair. */
static void check_rows(const char *text, struct pattern_size size)
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
        ra_status status = pattern_row(pattern, size, head, query, seen);
        if (status == RA_ERR_UNSUPPORTED && size.q_len > size.k_len) break;
        assert_int_equal(status, RA_OK);
        assert_int_equal(seen[size.k_len], 0xee);
        for (int64_t key = 0; key < size.k_len; key++)
            if (seen[key] != mask_count(&mask, head, position, key))
                fail_msg("%s n=%d nk=%d h=%d: head %d, query %d, key %d: %d", text, (int)size.q_len,
                         (int)size.k_len, size.heads, head, (int)query, (int)key, seen[key]);
        check_limits(pattern, &mask, position, size.k_len, seen);
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
        struct pattern_size size = { n, n, (int)(n % MOST_HEADS) + 1 };
        for (int i = 0; walk_sample(i, sample, sizeof sample); i++) check_rows(sample, size);
        for (int i = 0; i < TEST_COUNT(more); i++) check_rows(more[i], size);
    }
    for (int64_t n = 1; n <= 12; n++)
        for (int64_t nk = 1; nk <= 25; nk++) {
            struct pattern_size size = { n, nk, (int)(nk % 5) + 1 };
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
                check_rows(text, (struct pattern_size){ 20, 20, 6 });
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
        assert_ok(pattern_row(pattern, (struct pattern_size){ cases[i].q_len, cases[i].k_len, 1 },
                              0, cases[i].query, seen));
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
        assert_int_equal(row->query, row->q.start);
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

static void check_run(const char *text, struct pattern_size size, ra_run q)
{
    static struct collector c;
    ra_pattern *pattern;
    struct mask mask;
    struct mask_setup setup = { .pattern = text, .heads = size.heads, .length = size.k_len };
    c = (struct collector){ .q = q, .k_len = size.k_len, .heads = size.heads };
    assert_ok(ra_pattern_parse(text, &pattern));
    assert_int_equal(mask_open(&mask, &setup), 0);
    const struct ra__shape shape = { .q_len = size.k_len, .k_len = size.k_len };
    const struct ra__sequences one = { NULL, 0 };
    const struct ra__rows rows = { pattern, &shape, &one, size.heads, false };
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
                    struct pattern_size size = { 31, 31, (int)(start % MOST_HEADS) + 1 };
                    snprintf(text, sizeof text, "%s%s", sample, modifiers[m]);
                    check_run(text, size, (ra_run){ start, step, (30 - start) / step + 1 });
                    check_run(text, size, (ra_run){ start, step, 1 });
                    check_run(text, size, (ra_run){ start, step, 0 });
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_follow_the_formulas),
        cmocka_unit_test(documents_cut_rows),
        cmocka_unit_test(small_cases_by_hand),
        cmocka_unit_test(rows_of_runs_follow_the_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
