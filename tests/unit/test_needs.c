/* SPDX-License-Identifier: Apache-2.0 */
/* test_needs.c - what is sent when keys go directly to their readers: exactly the tokens that the
 * reader sees, for the KV heads that need them; owner and reader find the same pieces. */
#include "support/walk.h"

#include <stdlib.h>

#include "api/handles.h"
#include "plan/builder.h"

enum { MOST_N = 150, MOST_RANKS = 6, MOST_HEADS = 8 };

static uint32_t chance_state = 99;

/* 0 to below `limit`. */
static int64_t chance(int64_t limit)
{
    chance_state = chance_state * 1664525u + 1013904223u;
    return (int64_t)(chance_state >> 8) % limit;
}

/* ---- The needs of all ranks ------------------------------------------------------------------ */

struct world {
    char text[200];
    int64_t n;
    int ranks, q_heads, kv_heads;
    ra_pattern *pattern;
    ra_layout *layout;
    struct ra__plan_input input[MOST_RANKS];
    struct ra__plan plan[MOST_RANKS];
    struct ra__builder builder[MOST_RANKS];
    int owner[MOST_N]; /* of a position */
    int64_t row[MOST_N];
};

static void find_owners(struct world *w)
{
    for (int rank = 0; rank < w->ranks; rank++)
        for (int64_t i = w->layout->first[rank]; i < w->layout->first[rank + 1]; i++) {
            const struct ra__shard_run *run = &w->layout->runs[i];
            for (int64_t k = 0; k < run->at.count; k++) {
                w->owner[run->at.start + k * run->at.step] = rank;
                w->row[run->at.start + k * run->at.step] = run->token + k;
            }
        }
}

/* The pattern becomes the world's. */
static void world_open(struct world *w, ra_pattern *pattern, const char *partition, bool by_head)
{
    w->pattern = pattern;
    assert_ok(ra_layout_create(partition, w->n, w->ranks, NULL, &w->layout));
    find_owners(w);
    for (int rank = 0; rank < w->ranks; rank++) {
        w->input[rank] = (struct ra__plan_input){
            .shape = { .batch = 1,
                       .q_len = w->n,
                       .k_len = w->n,
                       .q_heads = w->q_heads,
                       .kv_heads = w->kv_heads,
                       .dim = 4,
                       .value_dim = 4 },
            .all_heads = w->q_heads,
            .team = 1,
            .pattern = pattern,
            .q_layout = w->layout,
            .k_layout = w->layout,
            .strategy = ra__strategy_at(0),
            .ranks = w->ranks,
            .rank = rank,
        };
        w->plan[rank] = (struct ra__plan){ .input = w->input[rank], .by_head = by_head };
        w->builder[rank] = (struct ra__builder){ .input = &w->input[rank],
                                                 .plan = &w->plan[rank],
                                                 .ranks = w->ranks,
                                                 .rank = rank,
                                                 .direct = true,
                                                 .split_heads = by_head };
        assert_ok(ra__find_owners(&w->builder[rank]));
        assert_ok(ra__find_needs(&w->builder[rank]));
    }
}

static void world_close(struct world *w)
{
    for (int rank = 0; rank < w->ranks; rank++) {
        ra__free(w->builder[rank].owners);
        ra__needs_clear(w->builder[rank].incoming, w->ranks);
        ra__needs_clear(w->builder[rank].outgoing, w->ranks);
    }
    ra_layout_destroy(w->layout);
    ra_pattern_destroy(w->pattern);
    assert_int_equal(ra_allocated_bytes(), 0);
}

/* ---- What they must be ----------------------------------------------------------------------- */

/* [reader][KV head][position]: does anybody there see it? */
static bool needed[MOST_RANKS][MOST_HEADS][MOST_N];

static void find_needed(const struct world *w)
{
    ra_problem problem = ra_problem_default();
    uint8_t seen[MOST_N];
    memset(needed, 0, sizeof needed);
    problem.pattern = w->pattern;
    problem.q_len = w->n;
    problem.q_heads = w->q_heads;
    problem.dim = 4;
    for (int head = 0; head < w->q_heads; head++)
        for (int64_t query = 0; query < w->n; query++) {
            bool *row = needed[w->owner[query]][head * w->kv_heads / w->q_heads];
            assert_ok(ra_problem_row(&problem, head, query, seen));
            for (int64_t key = 0; key < w->n; key++) row[key] |= seen[key] > 0;
        }
}

/* Pieces are stored one after the other, by KV head and by first token, and no token is in two;
 * expands them to marks. `max_last` is the key of a search. */
static void expand(const struct world *w, const struct ra__needs *needs, bool by_head,
                   bool marks[MOST_HEADS][MOST_N])
{
    int64_t at = 0, first = -1, max_last = 0;
    int head = RA__ALL_HEADS - 1;
    for (int i = 0; i < needs->count; i++) {
        const struct ra__needed *piece = &needs->pieces[i];
        assert_int_equal(piece->kv_head == RA__ALL_HEADS, !by_head);
        assert_true(piece->kv_head >= head && piece->kv_head < w->kv_heads);
        if (piece->kv_head > head) first = -1, max_last = 0;
        head = piece->kv_head;
        assert_int_equal(piece->at, at);
        assert_true(piece->tokens.count > 0 && piece->tokens.step > 0 &&
                    piece->tokens.start > first);
        first = piece->tokens.start;
        for (int64_t k = 0; k < piece->tokens.count; k++) {
            int64_t row = first + k * piece->tokens.step;
            assert_true(row < MOST_N && !marks[by_head ? head : 0][row]);
            marks[by_head ? head : 0][row] = true;
            if (row > max_last) max_last = row;
        }
        assert_int_equal(piece->max_last, max_last);
        at += piece->tokens.count;
    }
    assert_int_equal(needs->tokens, at);
}

static void check_pair(const struct world *w, int reader, int owner, bool by_head, bool exact)
{
    static bool marks[MOST_HEADS][MOST_N];
    const struct ra__needs *in = &w->builder[reader].incoming[owner];
    const struct ra__needs *out = &w->builder[owner].outgoing[reader];
    assert_int_equal(in->count, out->count);
    assert_int_equal(in->tokens, out->tokens);
    for (int i = 0; i < in->count; i++) {
        const struct ra__needed *a = &in->pieces[i], *b = &out->pieces[i];
        assert_true(a->kv_head == b->kv_head && a->at == b->at &&
                    a->tokens.start == b->tokens.start && a->tokens.step == b->tokens.step &&
                    a->tokens.count == b->tokens.count);
    }
    memset(marks, 0, sizeof marks);
    expand(w, in, by_head, marks);
    for (int head = 0; head < (by_head ? w->kv_heads : 1); head++)
        for (int64_t key = 0; key < w->n; key++) {
            if (w->owner[key] != owner) continue;
            bool want = needed[reader][head][key], got = marks[head][w->row[key]];
            for (int other = 1; other < w->kv_heads && !by_head; other++)
                want |= needed[reader][other][key];
            if (reader == owner) want = false;
            if (exact ? got != want : want && !got)
                fail_msg("%s n=%d: rank %d %s key %d of rank %d, KV head %d", w->text, (int)w->n,
                         reader, got ? "gets, but does not see," : "does not get", (int)key, owner,
                         head);
        }
}

static void check(const struct world *w, bool by_head, bool exact)
{
    find_needed(w);
    for (int reader = 0; reader < w->ranks; reader++)
        for (int owner = 0; owner < w->ranks; owner++)
            if (reader != owner) check_pair(w, reader, owner, by_head, exact);
            else assert_int_equal(w->builder[reader].incoming[owner].count, 0);
}

/* ---- Patterns -------------------------------------------------------------------------------- */

/* Blocks of one position: any set of rows at all. */
static void any_set_of_rows_becomes_pieces(void **state)
{
    (void)state;
    static uint8_t bits[MOST_HEADS * MOST_N * MOST_N];
    static const int64_t densities[] = { 2, 3, 10, 50, 100, 400 }; /* one in so many */
    for (int round = 0; round < 200; round++) {
        struct world w = { .n = 1 + chance(round % 10 ? 40 : MOST_N) };
        int64_t density = densities[chance(TEST_COUNT(densities))];
        bool inverse = chance(3) == 0;
        ra_part partition;
        ra_pattern *pattern;
        w.ranks = 1 + (int)chance(MOST_RANKS);
        w.kv_heads = 1 << chance(3);
        w.q_heads = w.kv_heads * (1 + (int)chance(2));
        bool each = chance(2);
        for (size_t i = 0; i < sizeof bits; i++) bits[i] = (chance(density) == 0) != inverse;
        assert_true(walk_part("partition", round % 3, &partition));
        snprintf(w.text, sizeof w.text, "round %d, %s, ring=%d", round, partition.name, w.ranks);
        assert_ok(ra_pattern_blocks(1, &pattern));
        assert_ok(ra_pattern_add_bitmap(pattern, each ? w.q_heads : 1, w.n, bits));
        world_open(&w, pattern, partition.name, each && w.kv_heads > 1);
        check(&w, each && w.kv_heads > 1, true);
        world_close(&w);
    }
}

/* Every sample, whichever way it travels; what a mask hides inside a row may travel for nothing. */
static void nothing_that_is_seen_is_left_out(void **state)
{
    (void)state;
    char sample[64];
    ra_part partition;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int p = 0; walk_part("partition", p, &partition); p++)
            for (int by_head = 0; by_head < 2; by_head++)
                for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
                    struct world w = { .n = 83, .ranks = ranks, .q_heads = 8, .kv_heads = 4 };
                    ra_pattern *pattern;
                    assert_ok(ra_pattern_parse(sample, &pattern));
                    bool exact = pattern->kind->sparse && !pattern->causal;
                    snprintf(w.text, sizeof w.text, "%s, %s, ring=%d", sample, partition.name,
                             ranks);
                    world_open(&w, pattern, partition.name, by_head);
                    check(&w, by_head, exact);
                    world_close(&w);
                }
}

/* Rows at equal distances are one piece, however many there are. */
static void regular_rows_are_one_piece(void **state)
{
    (void)state;
    for (int rate = 1; rate <= 7; rate++) {
        struct world w = { .n = 140, .ranks = 2, .q_heads = 1, .kv_heads = 1 };
        ra_pattern *pattern;
        snprintf(w.text, sizeof w.text, "dilated:140/%d", rate);
        assert_ok(ra_pattern_parse(w.text, &pattern));
        world_open(&w, pattern, "contiguous", false);
        const struct ra__needs *needs = &w.builder[0].incoming[1];
        assert_int_equal(needs->count, 1);
        assert_int_equal(needs->pieces[0].tokens.step, rate);
        assert_int_equal(needs->tokens, 139 / rate - 69 / rate); /* multiples from 70 to 139 */
        world_close(&w);
    }
}

/* Two query heads that share a KV head and select other rows: a piece each, not a piece per
 * pair. */
static void rows_of_two_heads_are_two_pieces(void **state)
{
    (void)state;
    struct world w = { .n = 144, .ranks = 2, .q_heads = 4, .kv_heads = 2 };
    ra_pattern *pattern;
    snprintf(w.text, sizeof w.text, "dilated:144/4");
    assert_ok(ra_pattern_parse(w.text, &pattern));
    world_open(&w, pattern, "contiguous", true);
    const struct ra__needs *needs = &w.builder[0].incoming[1];
    assert_int_equal(needs->count, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(needs->pieces[i].tokens.step, 4);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_set_of_rows_becomes_pieces),
        cmocka_unit_test(nothing_that_is_seen_is_left_out),
        cmocka_unit_test(regular_rows_are_one_piece),
        cmocka_unit_test(rows_of_two_heads_are_two_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
