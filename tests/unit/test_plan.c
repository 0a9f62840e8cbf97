/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c - the rows of all ranks together: every query starts and ends once, every pair is
 * folded as often as it is seen; ranges; and explain prints every step. */
#include "support/worlds.h"

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Forward: each query of a head has one first and one last row, in that order. Both ways: every
 * pair of the pattern is folded as often as it is seen, by the rank that owns the query, or in a
 * team the head. */
struct tracks {
    const struct world *world;
    bool backward, spans;
    int64_t pairs;
    bool begun[MOST_HEADS][MOST_N], ended[MOST_HEADS][MOST_N];
    uint8_t folded[MOST_HEADS][MOST_N][MOST_N]; /* [head][query][key] */
};

static void track_pair(const struct look *look, int64_t key, int64_t row, void *context)
{
    struct tracks *t = context;
    (void)row;
    assert_true(key >= 0 && key < t->world->k_len);
    for (int64_t h = 0; h < look->row->heads.count; h++)
        t->folded[head_of(look, h)][look->query][key]++;
    t->pairs += look->row->heads.count;
}

static void track_query(const struct look *look, void *context)
{
    struct tracks *t = context;
    const struct ra__plan_row *row = look->row;
    for (int64_t h = 0; h < row->heads.count && !t->backward; h++) {
        int head = head_of(look, h);
        assert_in_range(head, 0, t->world->q_heads - 1);
        if (row->first == t->begun[head][look->query] || t->ended[head][look->query])
            fail_msg("%s: query %d of head %d starts twice, or goes on after its end",
                     t->world->text, (int)look->query, head);
        t->begun[head][look->query] = true;
        t->ended[head][look->query] = row->last;
        t->spans |= !row->first || !row->last;
    }
    each_key(look, track_pair, t);
}

static void track_rank(struct tracks *t, int rank)
{
    const struct world *w = t->world;
    const struct ra__plan *plan = &w->steps[rank];
    const struct ra__program *p = program_of(w, rank, t->backward);
    int rows = 0, keys = 0;
    t->pairs = 0;
    t->spans = false;
    for (int i = 0; i < p->step_count; i++) {
        if (p->steps[i].op != (t->backward ? RA__OP_GRADIENT : RA__OP_ATTEND)) continue;
        assert_int_equal(p->steps[i].first_row, rows);
        rows += p->steps[i].row_count;
    }
    assert_int_equal(rows, p->row_count);
    for (int r = 0; r < p->row_count; r++) {
        assert_int_equal(p->rows[r].first_key, keys);
        keys += p->rows[r].key_count;
        each_query(w, plan, p, &p->rows[r], track_query, t);
    }
    assert_int_equal(keys, p->key_count);
    assert_int_equal(ra__program_pairs(plan, p), 2 * t->pairs); /* the batch is 2 */
    int64_t queries = plan->input.q_layout->count[plan->input.rank];
    if (!t->backward) assert_int_equal(plan->storage[RA__STATE_ACC].tokens, t->spans ? queries : 0);
}

static void check_rows_of(const struct world *w, bool backward)
{
    static struct tracks t;
    memset(&t, 0, sizeof t);
    t.world = w;
    t.backward = backward;
    for (int rank = 0; rank < w->ranks; rank++) track_rank(&t, rank);
    for (int head = 0; head < w->q_heads; head++)
        for (int64_t query = 0; query < w->n; query++) {
            if (!backward && !(t.begun[head][query] && t.ended[head][query]))
                fail_msg("%s: query %d of head %d has no end", w->text, (int)query, head);
            for (int64_t key = 0; key < w->k_len; key++)
                if (t.folded[head][query][key] != seen.count[head][query][key])
                    fail_msg("%s %s: head %d, query %d, key %d: folded %d times, seen %d times",
                             w->text, direction(backward), head, (int)query, (int)key,
                             t.folded[head][query][key], seen.count[head][query][key]);
        }
}

static void check_rows(const struct world *w)
{
    check_rows_of(w, false);
    check_rows_of(w, true);
}

static void every_pair_is_folded_as_often_as_it_is_seen(void **state)
{
    (void)state;
    each_world(check_rows);
    each_odd_world(check_rows);
}

/* ---- Ranges ---------------------------------------------------------------------------------- */

static int64_t rows_in(const struct ra__ranges *ranges)
{
    int64_t rows = 0;
    for (int i = 0; i < ranges->count; i++) rows += ranges->at[i].hi - ranges->at[i].lo;
    return rows;
}

static void ranges_join_and_cover(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        struct ra__ranges ranges = { 0 };
        bool in[100] = { false };
        int adds = 1 + round % 12;
        for (int i = 0; i < adds; i++) {
            seed = seed * 1664525u + 1013904223u;
            int64_t lo = (int64_t)(seed >> 8) % 100, hi = lo + (int64_t)(seed >> 20) % 9;
            if (hi > 100) hi = 100;
            ra__ranges_add(&ranges, lo, hi);
            for (int64_t j = lo; j < hi; j++) in[j] = true;
        }
        int64_t rows = 0, pieces = 0, last = -1;
        for (int i = 0; i < ranges.count; i++) {
            assert_true(ranges.at[i].lo < ranges.at[i].hi);
            assert_true(ranges.at[i].lo > last); /* apart: touching ones are one */
            last = ranges.at[i].hi;
            rows += ranges.at[i].hi - ranges.at[i].lo;
        }
        assert_true(ranges.count <= RA__RANGES);
        assert_int_equal(rows_in(&ranges), rows);
        for (int j = 0; j < 100; j++) pieces += in[j] && (j == 0 || !in[j - 1]);
        for (int j = 0; j < 100; j++) {
            bool covered = false;
            for (int i = 0; i < ranges.count; i++)
                covered |= j >= ranges.at[i].lo && j < ranges.at[i].hi;
            if (in[j]) assert_true(covered);
            else if (adds <= RA__RANGES && pieces <= RA__RANGES) assert_false(covered);
        }
    }
}

static void ranges_join_the_nearest_when_full(void **state)
{
    (void)state;
    struct ra__ranges ranges = { 0 };
    for (int i = 0; i < RA__RANGES; i++) ra__ranges_add(&ranges, 10 * i, 10 * i + 2);
    assert_int_equal(ranges.count, RA__RANGES);
    ra__ranges_add(&ranges, 33, 34); /* next to 30 .. 32 */
    assert_int_equal(ranges.count, RA__RANGES);
    assert_int_equal(rows_in(&ranges), 2 * RA__RANGES + 2);
    ra__ranges_add(&ranges, 5, 5); /* nothing */
    assert_int_equal(rows_in(&ranges), 2 * RA__RANGES + 2);
}

/* ---- Explain --------------------------------------------------------------------------------- */

struct lines {
    int steps, others;
    int next; /* the step whose line must come next */
};

static void count_line(void *context, const char *line)
{
    struct lines *lines = context;
    int step;
    assert_null(strchr(line, '\n'));
    if (line[0] == ' ' && sscanf(line, "%d hop", &step) == 1 && strstr(line, " hop ")) {
        assert_int_equal(step, lines->next++);
        lines->steps++;
    } else {
        lines->others++;
    }
}

static void check_explain(const struct world *w)
{
    for (int rank = 0; rank < w->ranks; rank++)
        for (int backward = 0; backward < 2; backward++) {
            const struct ra__program *p = program_of(w, rank, backward);
            struct lines lines = { 0 };
            ra__plan_explain(&w->steps[rank], p, count_line, &lines);
            assert_int_equal(lines.steps, p->step_count);
            assert_int_equal(lines.others, p->send_count + p->recv_count + p->row_count);
        }
}

static void explain_prints_every_step(void **state)
{
    (void)state;
    char sample[64];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++) {
        struct world w = { .n = 37, .k_len = 37, .q_heads = 8, .kv_heads = 2 };
        each_way(&w, sample, false, check_explain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_is_folded_as_often_as_it_is_seen),
        cmocka_unit_test(ranges_join_and_cover),
        cmocka_unit_test(ranges_join_the_nearest_when_full),
        cmocka_unit_test(explain_prints_every_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
