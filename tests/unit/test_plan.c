/* test_plan.c - the programs of all ranks together: every message has its counterpart, every query
 * starts and ends once, slots are large enough, and explain prints every step. */
#include "support/walk.h"

#include <stdlib.h>

#include "api/handles.h"

enum { MOST_RANKS = 9, MOST_N = 128 };

/* ---- Plans of all ranks ---------------------------------------------------------------------- */

struct world {
    char text[200]; /* for sentences */
    int ranks;
    int64_t n, k_len; /* queries, keys */
    ra_plan *plan[MOST_RANKS];
};

static void world_open(struct world *w, const char *text, int ranks, const char *partition,
                       const char *strategy)
{
    ra_pattern *pattern;
    ra_problem problem = ra_problem_default();
    ra_plan_options options = ra_plan_options_default();
    snprintf(w->text, sizeof w->text, "%.80s n=%d nk=%d ring=%d %s %s", text, (int)w->n,
             (int)w->k_len, ranks, partition, strategy);
    w->ranks = ranks;
    assert_ok(ra_pattern_parse(text, &pattern));
    problem.pattern = pattern;
    problem.q_len = w->n;
    problem.k_len = w->k_len;
    problem.q_heads = 2;
    problem.dim = 4;
    problem.value_dim = 6;
    options.ranks = ranks;
    options.partition = partition;
    options.strategy = strategy;
    options.backward = 1;
    for (options.rank = 0; options.rank < ranks; options.rank++)
        assert_ok(ra_plan_create(NULL, &problem, &options, &w->plan[options.rank]));
    ra_pattern_destroy(pattern);
}

static void world_close(struct world *w)
{
    for (int rank = 0; rank < w->ranks; rank++) ra_plan_destroy(w->plan[rank]);
}

static const struct ra__program *program_of(const struct world *w, int rank, bool backward)
{
    const struct ra__plan *steps = &w->plan[rank]->steps;
    return backward ? &steps->backward : &steps->forward;
}

/* Calls check for worlds of every pattern, partition, strategy and rank count. */
static void each_world(void (*check)(const struct world *w))
{
    static const char *const modifiers[] = { "", ";causal", ";docs=0,0,3,17,17,37",
                                             ";causal;docs=0,30,37" };
    ra_part partition, strategy;
    char sample[64], text[160], cut[64];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int m = 0; m < TEST_COUNT(modifiers); m++)
            for (int p = 0; walk_part("partition", p / 2, &partition); p++)
                for (int s = 0; walk_part("strategy", s, &strategy); s++)
                    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
                        if (p % 2 && m < 2) continue; /* ;perdoc needs documents */
                        struct world w = { .n = 37, .k_len = 37 };
                        snprintf(text, sizeof text, "%s%s", sample, modifiers[m]);
                        snprintf(cut, sizeof cut, "%s%s", partition.name, p % 2 ? ";perdoc" : "");
                        world_open(&w, text, ranks, cut, strategy.name);
                        check(&w);
                        world_close(&w);
                    }
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* The index-th send of `from` that goes to `to` with this tag, or NULL. */
static const struct ra__transfer *nth(const struct ra__transfer *list, int count, int peer, int tag,
                                      int index)
{
    for (int i = 0; i < count; i++)
        if (list[i].peer == peer && list[i].tag == tag && index-- == 0) return &list[i];
    return NULL;
}

static size_t bytes_of(const struct world *w, const struct ra__transfer *t)
{
    return (size_t)(t->range.hi - t->range.lo) *
           ra__slot_row_bytes(&w->plan[0]->steps.input.shape, t->slot);
}

static void check_partner(const struct world *w, int rank, const struct ra__transfer *mine,
                          int index, bool backward, bool is_send)
{
    const struct ra__program *other = program_of(w, mine->peer, backward);
    const struct ra__transfer *theirs = is_send ? nth(other->recvs, other->recv_count, rank,
                                                      mine->tag, index)
                                                : nth(other->sends, other->send_count, rank,
                                                      mine->tag, index);
    const char *direction = backward ? "backward" : "forward";
    if (!theirs)
        fail_msg("%s %s: rank %d, tag %d, peer %d: nobody there", w->text, direction, rank,
                 mine->tag, mine->peer);
    if (bytes_of(w, mine) != bytes_of(w, theirs) || mine->hop != theirs->hop ||
        mine->range.lo != theirs->range.lo)
        fail_msg("%s %s: rank %d, tag %d, peer %d: the two sides differ", w->text, direction, rank,
                 mine->tag, mine->peer);
}

static void check_list(const struct world *w, int rank, bool backward, bool is_send)
{
    const struct ra__program *p = program_of(w, rank, backward);
    const struct ra__transfer *list = is_send ? p->sends : p->recvs;
    int count = is_send ? p->send_count : p->recv_count;
    for (int i = 0; i < count; i++) {
        int index = 0;
        for (int j = 0; j < i; j++)
            index += list[j].peer == list[i].peer && list[j].tag == list[i].tag;
        assert_true(list[i].peer >= 0 && list[i].peer < w->ranks && list[i].peer != rank);
        assert_true(list[i].range.lo >= 0 && list[i].range.lo < list[i].range.hi);
        assert_true(list[i].range.hi <= w->plan[rank]->steps.slot_rows[list[i].slot]);
        assert_int_not_equal(list[i].slot, RA__SLOT_OWN);
        check_partner(w, rank, &list[i], index, backward, is_send);
    }
}

static void check_messages(const struct world *w)
{
    for (int rank = 0; rank < w->ranks; rank++)
        for (int backward = 0; backward < 2; backward++) {
            check_list(w, rank, backward, true);
            check_list(w, rank, backward, false);
        }
}

static void every_message_has_its_counterpart(void **state)
{
    (void)state;
    each_world(check_messages);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* Moves and waits alternate, each names its round, and no round is left out. Then running all ranks
 * side by side, where a wait needs the peers' moves, comes to an end. */
static void check_rounds_of(const struct world *w, int rank, bool backward)
{
    const struct ra__program *p = program_of(w, rank, backward);
    int open = -1, sends = 0, recvs = 0;
    for (int i = 0; i < p->step_count; i++) {
        const struct ra__step *step = &p->steps[i];
        if (step->op == RA__OP_MOVE) {
            const struct ra__plan_round *round = &p->rounds[step->round];
            if (open >= 0) fail_msg("%s: two rounds at once on rank %d", w->text, rank);
            assert_true(round->send_count + round->recv_count > 0);
            assert_int_equal(round->first_send, sends);
            assert_int_equal(round->first_recv, recvs);
            sends += round->send_count;
            recvs += round->recv_count;
            open = step->round;
        } else if (step->op == RA__OP_WAIT) {
            assert_int_equal(open, step->round);
            open = -1;
        }
    }
    assert_int_equal(open, -1);
    assert_int_equal(sends, p->send_count);
    assert_int_equal(recvs, p->recv_count);
}

/* The place of a rank in its program, and which of its rounds are posted. */
struct walker {
    int step;
    bool posted[256];
};

/* Does the round of this wait find all its peers' rounds posted? */
static bool may_pass(const struct world *w, const struct walker *walkers, int rank, int round,
                     bool backward)
{
    const struct ra__program *p = program_of(w, rank, backward);
    const struct ra__plan_round *r = &p->rounds[round];
    for (int side = 0; side < 2; side++) {
        const struct ra__transfer *list = side ? p->recvs + r->first_recv
                                               : p->sends + r->first_send;
        for (int i = 0; i < (side ? r->recv_count : r->send_count); i++) {
            const struct ra__program *other = program_of(w, list[i].peer, backward);
            bool found = false;
            for (int j = 0; j < other->round_count; j++) {
                const struct ra__plan_round *theirs = &other->rounds[j];
                const struct ra__transfer *partners = side ? other->sends + theirs->first_send
                                                           : other->recvs + theirs->first_recv;
                int count = side ? theirs->send_count : theirs->recv_count;
                if (walkers[list[i].peer].posted[j])
                    found |= nth(partners, count, rank, list[i].tag, 0) != NULL;
            }
            if (!found) return false;
        }
    }
    return true;
}

static void check_progress(const struct world *w, bool backward)
{
    static struct walker walkers[MOST_RANKS];
    memset(walkers, 0, sizeof walkers);
    bool moved = true, done = false;
    while (moved && !done) {
        moved = false;
        done = true;
        for (int rank = 0; rank < w->ranks; rank++) {
            const struct ra__program *p = program_of(w, rank, backward);
            struct walker *at = &walkers[rank];
            assert_true(p->round_count <= 256);
            while (at->step < p->step_count) {
                const struct ra__step *step = &p->steps[at->step];
                if (step->op == RA__OP_MOVE) at->posted[step->round] = true;
                if (step->op == RA__OP_WAIT && !may_pass(w, walkers, rank, step->round, backward))
                    break;
                at->step++;
                moved = true;
            }
            done = done && at->step == p->step_count;
        }
    }
    if (!done)
        fail_msg("%s %s: the ranks wait for one another", w->text,
                 backward ? "backward" : "forward");
}

static void check_rounds(const struct world *w)
{
    for (int backward = 0; backward < 2; backward++) {
        for (int rank = 0; rank < w->ranks; rank++) check_rounds_of(w, rank, backward);
        check_progress(w, backward);
    }
}

static void rounds_are_in_order_and_end(void **state)
{
    (void)state;
    each_world(check_rounds);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Forward: each query has one first and one last row, in that order. Both ways: every pair of the
 * pattern is folded once, by the rank that owns the query. */
struct tracks {
    bool begun[MOST_N], ended[MOST_N];
    uint8_t folded[MOST_N][MOST_N]; /* [query][key] */
};

static void follow_row(const struct world *w, struct tracks *t, const struct ra__program *p,
                       const struct ra__plan_row *row, bool backward)
{
    for (int64_t i = 0; i < row->q_count; i++) {
        int64_t position = row->q_pos + i * row->q_step, query = position - w->k_len + w->n;
        assert_true(query >= 0 && query < w->n);
        if (!backward) {
            if (row->first == t->begun[query] || t->ended[query])
                fail_msg("%s: query %d starts twice, or goes on behind its end", w->text,
                         (int)query);
            t->begun[query] = true;
            t->ended[query] = row->last;
        }
        for (int k = 0; k < row->key_count; k++) {
            const struct ra__key_run *run = &p->keys[row->first_key + k];
            int64_t lo, hi;
            ra__band_clip(run, position, &lo, &hi);
            for (int64_t j = lo; j < hi; j++) t->folded[query][run->pos + j * run->pos_step]++;
        }
    }
}

static void check_rows_of(const struct world *w, bool backward)
{
    static struct tracks t;
    uint8_t seen[MOST_N];
    memset(&t, 0, sizeof t);
    for (int rank = 0; rank < w->ranks; rank++) {
        const struct ra__program *p = program_of(w, rank, backward);
        int rows = 0;
        for (int i = 0; i < p->step_count; i++) {
            if (p->steps[i].op != RA__OP_ATTEND) continue;
            assert_int_equal(p->steps[i].first_row, rows);
            rows += p->steps[i].row_count;
        }
        assert_int_equal(rows, p->row_count);
        for (int r = 0; r < p->row_count; r++) follow_row(w, &t, p, &p->rows[r], backward);
    }
    for (int64_t query = 0; query < w->n; query++) {
        if (!backward && !(t.begun[query] && t.ended[query]))
            fail_msg("%s: query %d has no end", w->text, (int)query);
        assert_ok(ra_pattern_row(w->plan[0]->pattern, w->n, w->k_len, 0, query, seen));
        for (int64_t key = 0; key < w->k_len; key++)
            if (t.folded[query][key] != seen[key])
                fail_msg("%s %s: query %d, key %d: folded %d times, seen %d times", w->text,
                         backward ? "backward" : "forward", (int)query, (int)key,
                         t.folded[query][key], seen[key]);
    }
}

static void check_rows(const struct world *w)
{
    check_rows_of(w, false);
    check_rows_of(w, true);
}

static void every_pair_is_folded_once(void **state)
{
    (void)state;
    each_world(check_rows);
}

/* ---- Keys are where the rows look for them --------------------------------------------------- */

/* Follows the bytes: what lies in each slot, row by row, as steps fill it; a row that is folded
 * must hold the key that the program believes to be there. Ranks take turns hop by hop. */
struct shelf {
    int64_t key[RA__SLOTS][MOST_N]; /* position + 1; 0 for nothing */
};

static int64_t own_position(const struct world *w, int rank, int64_t row)
{
    const ra_layout *layout = w->plan[rank]->k_layout;
    for (int64_t i = layout->first[rank]; i < layout->first[rank + 1]; i++) {
        const struct ra__shard_run *run = &layout->runs[i];
        if (row >= run->row && row < run->row + run->at.count)
            return run->at.start + (row - run->row) * run->at.step;
    }
    fail();
    return -1;
}

static void shelf_copy(const struct world *w, struct shelf *shelf, int rank,
                       const struct ra__step *step)
{
    for (int i = 0; i < step->range.count; i++)
        for (int64_t row = step->range.at[i].lo; row < step->range.at[i].hi; row++) {
            int64_t key = own_position(w, step->block, row);
            int64_t to = step->op == RA__OP_PLACE ? key - w->plan[rank]->steps.gather_base : row;
            assert_true(to >= 0 && to < w->plan[rank]->steps.slot_rows[step->to]);
            shelf->key[step->to][to] = shelf->key[step->from][row];
        }
}

static void shelf_check_attend(const struct world *w, const struct shelf *shelf, int rank,
                               const struct ra__program *p, const struct ra__step *step)
{
    for (int r = step->first_row; r < step->first_row + step->row_count; r++) {
        const struct ra__plan_row *row = &p->rows[r];
        for (int k = 0; k < row->key_count; k++) {
            const struct ra__key_run *run = &p->keys[row->first_key + k];
            for (int64_t i = 0; i < run->count; i++)
                if (shelf->key[step->from][run->row + i * run->row_step] !=
                    run->pos + i * run->pos_step + 1)
                    fail_msg("%s: rank %d, hop %d: key %d is not in row %d", w->text, rank,
                             step->hop, (int)(run->pos + i * run->pos_step),
                             (int)(run->row + i * run->row_step));
        }
    }
}

/* What a receive brings: the sender's rows at the time it posted the round of the same tag. */
struct mail {
    int from, to, tag;
    struct ra__range range;
    int64_t key[MOST_N];
};

struct post_office {
    struct mail *mail;
    int count, capacity;
};

static void post(struct post_office *office, const struct shelf *shelf, int rank,
                 const struct ra__transfer *t)
{
    if (office->count == office->capacity) {
        office->capacity = office->capacity ? 2 * office->capacity : 64;
        office->mail = realloc(office->mail, (size_t)office->capacity * sizeof *office->mail);
        assert_non_null(office->mail);
    }
    struct mail *mail = &office->mail[office->count++];
    *mail = (struct mail){ rank, t->peer, t->tag, t->range, { 0 } };
    for (int64_t row = t->range.lo; row < t->range.hi; row++)
        mail->key[row] = shelf->key[t->slot][row];
}

static bool collect(const struct post_office *office, struct shelf *shelf, int rank,
                    const struct ra__transfer *t)
{
    for (int i = 0; i < office->count; i++) {
        const struct mail *mail = &office->mail[i];
        if (mail->from != t->peer || mail->to != rank || mail->tag != t->tag ||
            mail->range.lo != t->range.lo)
            continue;
        for (int64_t row = t->range.lo; row < t->range.hi; row++)
            shelf->key[t->slot][row] = mail->key[row];
        return true;
    }
    return false;
}

/* One rank as far as it gets; true if it moved. */
static bool advance(const struct world *w, int rank, struct shelf *shelf,
                    struct post_office *office, int *at)
{
    const struct ra__program *p = program_of(w, rank, false);
    int before = *at;
    for (; *at < p->step_count; (*at)++) {
        const struct ra__step *step = &p->steps[*at];
        const struct ra__plan_round *round = &p->rounds[step->round];
        if (step->op == RA__OP_PACK || step->op == RA__OP_PLACE) shelf_copy(w, shelf, rank, step);
        if (step->op == RA__OP_ATTEND && step->block >= -1)
            shelf_check_attend(w, shelf, rank, p, step);
        if (step->op == RA__OP_MOVE)
            for (int i = 0; i < round->send_count; i++)
                post(office, shelf, rank, &p->sends[round->first_send + i]);
        if (step->op != RA__OP_WAIT) continue;
        for (int i = 0; i < round->recv_count; i++)
            if (!collect(office, shelf, rank, &p->recvs[round->first_recv + i]))
                return *at > before;
    }
    return *at > before;
}

static void check_keys(const struct world *w)
{
    static struct shelf shelves[MOST_RANKS];
    struct post_office office = { NULL, 0, 0 };
    int at[MOST_RANKS] = { 0 };
    memset(shelves, 0, sizeof shelves);
    for (int rank = 0; rank < w->ranks; rank++)
        for (int64_t row = 0; row < ra_plan_k_count(w->plan[rank]); row++)
            shelves[rank].key[RA__SLOT_OWN][row] = own_position(w, rank, row) + 1;
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < w->ranks; rank++)
            moved |= advance(w, rank, &shelves[rank], &office, &at[rank]);
    }
    for (int rank = 0; rank < w->ranks; rank++)
        assert_int_equal(at[rank], program_of(w, rank, false)->step_count);
    free(office.mail);
}

static void keys_lie_where_rows_look_for_them(void **state)
{
    (void)state;
    each_world(check_keys);
}

/* ---- Ranges ---------------------------------------------------------------------------------- */

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
        assert_int_equal(ra__ranges_rows(&ranges), rows);
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
    assert_int_equal(ra__ranges_rows(&ranges), 2 * RA__RANGES + 2);
    ra__ranges_add(&ranges, 5, 5); /* nothing */
    assert_int_equal(ra__ranges_rows(&ranges), 2 * RA__RANGES + 2);
}

/* More runs than ranges: rows travel for nothing, but the result is whole. */
static void many_documents_keep_messages_few(void **state)
{
    (void)state;
    struct world w = { .n = 120, .k_len = 120 };
    char text[400] = "full;docs=0";
    for (int i = 1; i <= 40; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, ",%d", 3 * i);
    }
    world_open(&w, text, 4, "striped", "ring");
    check_messages(&w);
    check_rounds(&w);
    check_rows(&w);
    check_keys(&w);
    world_close(&w);
}

/* Queries that see nothing, keys that nobody sees, and lengths of their own on each side. */
static void other_numbers_of_keys(void **state)
{
    (void)state;
    static const int64_t lengths[][2] = { { 37, 11 }, { 11, 37 }, { 1, 20 }, { 20, 1 } };
    static const char *const patterns[] = { "full", "causal", "window:3", "window:2,4" };
    ra_part partition, strategy;
    for (int i = 0; i < TEST_COUNT(lengths) * TEST_COUNT(patterns); i++)
        for (int p = 0; walk_part("partition", p, &partition); p++)
            for (int s = 0; walk_part("strategy", s, &strategy); s++)
                for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
                    struct world w = { .n = lengths[i / 4][0], .k_len = lengths[i / 4][1] };
                    world_open(&w, patterns[i % 4], ranks, partition.name, strategy.name);
                    check_messages(&w);
                    check_rounds(&w);
                    check_rows(&w);
                    check_keys(&w);
                    world_close(&w);
                }
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
            assert_ok(ra_plan_explain(w->plan[rank], backward, count_line, &lines));
            assert_int_equal(lines.steps, p->step_count);
            assert_int_equal(lines.others, p->send_count + p->recv_count + p->row_count);
        }
}

static void explain_prints_every_step(void **state)
{
    (void)state;
    struct world w = { .n = 37, .k_len = 37 };
    static const char *const strategies[] = { "ring", "allgather" };
    for (int s = 0; s < TEST_COUNT(strategies); s++)
        for (int ranks = 1; ranks <= 5; ranks++) {
            world_open(&w, "causal", ranks, "zigzag", strategies[s]);
            check_explain(&w);
            world_close(&w);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_has_its_counterpart),
        cmocka_unit_test(rounds_are_in_order_and_end),
        cmocka_unit_test(every_pair_is_folded_once),
        cmocka_unit_test(keys_lie_where_rows_look_for_them),
        cmocka_unit_test(ranges_join_and_cover),
        cmocka_unit_test(ranges_join_the_nearest_when_full),
        cmocka_unit_test(many_documents_keep_messages_few),
        cmocka_unit_test(other_numbers_of_keys),
        cmocka_unit_test(explain_prints_every_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
