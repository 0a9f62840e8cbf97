/* test_plan.c - the programs of all ranks together: every message has its counterpart, every query
 * starts and ends once, slots are large enough, keys and gradients go where they belong, and
 * explain prints every step. */
#include "support/walk.h"

#include <stdlib.h>

#include "api/handles.h"

enum { MOST_RANKS = 8, MOST_N = 128, MOST_HEADS = 12 };

/* ---- Plans of all ranks ---------------------------------------------------------------------- */

struct world {
    char text[300]; /* for sentences */
    int ranks;
    int64_t n, k_len; /* queries, keys */
    int q_heads, kv_heads;
    const char *order; /* NULL: sequential */
    ra_plan *plan[MOST_RANKS];
};

/* How often a query of a head sees a key, by index: what all programs together must fold. Kept from
 * one world to the next, for many have the same. */
static struct {
    char text[300];
    int64_t origin[MOST_N]; /* of an index */
    uint8_t count[MOST_HEADS][MOST_N][MOST_N];
} seen;

static void find_seen(const struct world *w, const ra_problem *problem, const char *text)
{
    char key[300];
    uint8_t row[MOST_N];
    snprintf(key, sizeof key, "%.200s %d %d %d %s", text, (int)w->n, (int)w->k_len, w->q_heads,
             w->order ? w->order : "-");
    if (!strcmp(key, seen.text)) return;
    snprintf(seen.text, sizeof seen.text, "%s", key);
    for (int64_t i = 0; i < w->k_len; i++) seen.origin[i] = i;
    if (problem->order) assert_ok(ra_order_positions(problem->order, seen.origin));
    for (int head = 0; head < w->q_heads; head++)
        for (int64_t query = 0; query < w->n; query++) {
            int64_t original = problem->order ? seen.origin[query] : query;
            assert_ok(ra_problem_row(problem, head, original, row));
            for (int64_t key_index = 0; key_index < w->k_len; key_index++)
                seen.count[head][query][key_index] = row[seen.origin[key_index]];
        }
}

static void world_open(struct world *w, const char *text, int ranks, const char *partition,
                       const char *strategy)
{
    ra_pattern *pattern;
    ra_order *order = NULL;
    ra_problem problem = ra_problem_default();
    ra_plan_options options = ra_plan_options_default();
    if (!w->q_heads) w->q_heads = 2;
    if (!w->kv_heads) w->kv_heads = w->q_heads;
    snprintf(w->text, sizeof w->text, "%.80s n=%d nk=%d h=%d/%d ring=%d %s %s%s%s", text, (int)w->n,
             (int)w->k_len, w->q_heads, w->kv_heads, ranks, partition, strategy,
             w->order ? " order=" : "", w->order ? w->order : "");
    w->ranks = ranks;
    assert_ok(ra_pattern_parse(text, &pattern));
    if (w->order) assert_ok(ra_order_parse(w->order, w->n, &order));
    problem.pattern = pattern;
    problem.order = order;
    problem.batch = 2;
    problem.q_len = w->n;
    problem.k_len = w->k_len;
    problem.q_heads = w->q_heads;
    problem.kv_heads = w->kv_heads;
    problem.dim = 4;
    problem.value_dim = 6;
    options.ranks = ranks;
    options.partition = partition;
    options.strategy = strategy;
    options.kernel = "scalar"; /* asking the CPU what it can do takes longer than the plan */
    options.backward = 1;
    for (options.rank = 0; options.rank < ranks; options.rank++)
        assert_ok(ra_plan_create(NULL, &problem, &options, &w->plan[options.rank]));
    find_seen(w, &problem, text);
    ra_order_destroy(order);
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

static const char *direction(bool backward) { return backward ? "backward" : "forward"; }

static const struct shape {
    int64_t n;
    int q_heads, kv_heads;
} shapes[] = { { 37, 4, 2 }, { 23, 6, 3 }, { 64, 3, 1 }, { 41, 12, 4 }, { 37, 5, 5 } };

/* What stands behind the samples, with documents of n positions; and the order. */
static const struct modifier {
    const char *text, *order;
    bool documents;
} modifiers[] = {
    { "", NULL, false },
    { ";causal", NULL, false },
    { ";docs=0,0,3,17,17", NULL, true },
    { ";causal;docs=0,19", NULL, true },
    { "", "hilbert", false },
    { ";causal;docs=0,9", "hilbert", true },
};

static void each_way(struct world *w, const char *text, bool perdoc,
                     void (*check)(const struct world *w))
{
    static int turn;
    const int every = test_slow() ? 11 : 5; /* shares no factor with the length of a list */
    ra_part partition, strategy;
    char cut[64];
    for (int p = 0; walk_part("partition", p / 2, &partition); p++)
        for (int s = 0; walk_usable("strategy", s, &strategy); s++)
            for (int r = 0; r < TEST_COUNT(walk_ranks); r++) {
                int ranks = walk_ranks[r];
                if (p % 2 && !perdoc) continue;                    /* ;perdoc needs documents */
                if (!test_long() && turn++ % every >= 2) continue; /* each now and then */
                snprintf(cut, sizeof cut, "%s%s", partition.name, p % 2 ? ";perdoc" : "");
                world_open(w, text, ranks, cut, strategy.name);
                check(w);
                world_close(w);
            }
}

/* Calls check for worlds of every pattern, partition, strategy and rank count; every pattern meets
 * every shape, but a modifier only some of them. */
static void each_world(void (*check)(const struct world *w))
{
    char sample[64], text[160];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int m = 0; m < TEST_COUNT(modifiers); m++)
            for (int s = 0; s < TEST_COUNT(shapes); s++) {
                if (s != (i + m) % TEST_COUNT(shapes) && !test_long()) continue;
                const struct modifier *modifier = &modifiers[m];
                struct world w = { .n = shapes[s].n,
                                   .k_len = shapes[s].n,
                                   .q_heads = shapes[s].q_heads,
                                   .kv_heads = shapes[s].kv_heads,
                                   .order = modifier->order };
                int used = snprintf(text, sizeof text, "%s%s", sample, modifier->text);
                if (modifier->documents)
                    snprintf(text + used, sizeof text - (size_t)used, ",%d", (int)w.n);
                each_way(&w, text, modifier->documents && !modifier->order, check);
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

static size_t bytes_of(const struct world *w, int rank, const struct ra__transfer *t)
{
    return (size_t)(t->range.hi - t->range.lo) * ra__slot_row_bytes(&w->plan[rank]->steps, t->slot);
}

static void check_partner(const struct world *w, int rank, const struct ra__transfer *mine,
                          int index, bool backward, bool is_send)
{
    const struct ra__program *other = program_of(w, mine->peer, backward);
    const struct ra__transfer *theirs = is_send ? nth(other->recvs, other->recv_count, rank,
                                                      mine->tag, index)
                                                : nth(other->sends, other->send_count, rank,
                                                      mine->tag, index);
    if (!theirs)
        fail_msg("%s %s: rank %d, tag %d, peer %d: nobody there", w->text, direction(backward),
                 rank, mine->tag, mine->peer);
    if (bytes_of(w, rank, mine) != bytes_of(w, mine->peer, theirs) || mine->hop != theirs->hop ||
        mine->range.lo != theirs->range.lo)
        fail_msg("%s %s: rank %d, tag %d, peer %d: the two sides differ", w->text,
                 direction(backward), rank, mine->tag, mine->peer);
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
    if (!done) fail_msg("%s %s: the ranks wait for one another", w->text, direction(backward));
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

/* Where row `row` of a rank's shard is. */
static int64_t position_of(const ra_layout *layout, int rank, int64_t row)
{
    for (int64_t i = layout->first[rank]; i < layout->first[rank + 1]; i++) {
        const struct ra__shard_run *run = &layout->runs[i];
        if (row >= run->row && row < run->row + run->at.count)
            return run->at.start + (row - run->row) * run->at.step;
    }
    fail_msg("rank %d has no row %d", rank, (int)row);
    return -1;
}

/* One query of one row of a family. */
struct look {
    const struct ra__plan *plan;
    const struct ra__program *program;
    const struct ra__plan_row *row;
    int64_t repeat;          /* which row of the family */
    int64_t query, position; /* index among the queries; among the keys */
};

/* Calls `visit` for each query of each row of the family. */
static void each_query(const struct world *w, const struct ra__plan *plan,
                       const struct ra__program *p, const struct ra__plan_row *row,
                       void (*visit)(const struct look *look, void *context), void *context)
{
    const ra_layout *layout = plan->input.q_layout;
    assert_true(row->repeat >= 1 && row->q_count >= 1 && row->heads.count >= 1);
    for (int64_t n = 0; n < row->repeat; n++)
        for (int64_t i = 0; i < row->q_count; i++) {
            int64_t shard_row = row->q_row + n * row->q_row_advance + i * row->q_row_step;
            struct look look = { plan, p, row, n, 0, 0 };
            look.position = row->q_pos + n * row->q_pos_advance + i * row->q_step;
            look.query = look.position - w->k_len + w->n;
            if (position_of(layout, plan->input.rank, shard_row) != look.query)
                fail_msg("%s: rank %d: query %d is not in row %d", w->text, plan->input.rank,
                         (int)look.query, (int)shard_row);
            visit(&look, context);
        }
}

/* Calls `visit` for each key that the query sees: its index, and its row in the slot. */
typedef void (*pair_fn)(const struct look *look, int64_t key, int64_t row, void *context);
static void each_key(const struct look *look, pair_fn visit, void *context)
{
    const struct ra__problem_terms *terms = look->plan->input.terms;
    for (int k = 0; k < look->row->key_count; k++) {
        int index = look->row->first_key + k;
        struct ra__key_run run = ra__key_run_at(&look->program->keys[index],
                                                &look->program->advances[index], look->repeat);
        int64_t lo, hi;
        ra__band_clip(&run, look->position, &lo, &hi);
        for (int64_t j = lo; j < hi; j++) {
            int64_t key = run.pos + j * run.pos_step;
            int32_t origin = terms->see_from ? terms->origin[key] : 0;
            if (terms->see_from && (origin < terms->see_from[look->position] ||
                                    origin >= terms->see_to[look->position]))
                continue;
            visit(look, key, run.row + j * run.row_step, context);
        }
    }
}

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

/* The index-th head of a row, among those of the plan. */
static int head_at(const struct ra__plan_row *row, int64_t index)
{
    return (int)(row->heads.start + index * row->heads.step);
}

/* The same among all heads. */
static int head_of(const struct look *look, int64_t index)
{
    return look->plan->input.first_head + head_at(look->row, index);
}

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
            fail_msg("%s: query %d of head %d starts twice, or goes on behind its end",
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
    const struct ra__plan *plan = &w->plan[rank]->steps;
    const struct ra__program *p = program_of(w, rank, t->backward);
    int rows = 0, keys = 0;
    t->pairs = 0;
    t->spans = false;
    for (int i = 0; i < p->step_count; i++) {
        if (p->steps[i].op != RA__OP_ATTEND) continue;
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
    if (!t->backward) assert_int_equal(plan->state_rows, t->spans ? queries : 0);
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
}

/* ---- Keys and gradients are where the rows look for them ------------------------------------- */

/* Follows the numbers: what lies in each slot, row by row and KV head by KV head, as steps fill it.
 * A key is a number that says which one it is; a gradient is a sum of numbers that say which pair
 * each of them is, so that it does not matter in which order they are added, but every one
 * counts. */
struct shelf {
    const struct world *world;
    const struct ra__plan *plan;
    const struct ra__program *program;
    const struct ra__step *step; /* under way */
    uint64_t *slot[RA__SLOTS];
    int64_t rows[RA__SLOTS];
};

#define NOTHING UINT64_C(0x5eed5eed5eed5eed) /* what a slot holds before somebody writes to it */

static uint64_t key_number(int64_t position, int kv_head)
{
    return (uint64_t)(position * MOST_HEADS + kv_head + 1);
}

static uint64_t pair_number(int64_t query, int head, int64_t key)
{
    uint64_t x = (uint64_t)((query * MOST_HEADS + head) * MOST_N + key) *
                 UINT64_C(0x9E3779B97F4A7C15);
    return (x ^ x >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
}

/* Numbers of a slot that a row has: one per KV head, or one. What swaps send is not followed. */
static int64_t cells_of(const struct shelf *shelf, enum ra__slot slot)
{
    const struct ra__shape *shape = &shelf->plan->input.shape;
    if (ra__slot_row_bytes(shelf->plan, slot) == 1) return 0;
    return ra__slot_width(shelf->plan, slot) / (shape->batch * (shape->dim + shape->value_dim));
}

static uint64_t *cell_at(const struct shelf *shelf, enum ra__slot slot, int64_t row, int kv_head)
{
    const struct ra__shape *shape = &shelf->plan->input.shape;
    int64_t cells = cells_of(shelf, slot), width = shape->dim + shape->value_dim;
    int64_t cell = ra__slot_head(shelf->plan, slot, 0, kv_head) / width;
    if (row < 0 || row >= shelf->rows[slot] || cell < 0 || cell >= cells)
        fail_msg("%s: rank %d: slot %d has no row %d, KV head %d", shelf->world->text,
                 shelf->plan->home.rank, (int)slot, (int)row, kv_head);
    /* Batch items lie one behind the other in a row. */
    assert_int_equal(ra__slot_head(shelf->plan, slot, 1, kv_head), (cells + cell) * width);
    return &shelf->slot[slot][row * cells + cell];
}

/* Keys of a rank, some rows of its shard, come into the own slot. */
static void bring_keys(struct shelf *shelf, int rank, const struct ra__unit *unit)
{
    const struct ra__heads *heads = &shelf->plan->team.share;
    for (int64_t i = 0; i < unit->count; i++)
        for (int head = 0; head < heads->kv_heads; head++) {
            int64_t position = position_of(shelf->plan->home.k_layout, rank, unit->home + i);
            *cell_at(shelf, RA__SLOT_OWN, unit->row + i, head) = key_number(position,
                                                                            heads->kv_first + head);
        }
}

static void shelf_open(struct shelf *shelf, const struct world *w, int rank, bool backward)
{
    const struct ra__plan *plan = &w->plan[rank]->steps;
    *shelf = (struct shelf){ w, plan, program_of(w, rank, backward), NULL, { NULL }, { 0 } };
    for (int slot = 0; slot < RA__SLOTS; slot++) {
        shelf->rows[slot] = slot == RA__SLOT_OWN ? plan->input.k_layout->count[plan->input.rank]
                                                 : plan->slot_rows[slot];
        size_t cells = (size_t)(shelf->rows[slot] * cells_of(shelf, slot));
        shelf->slot[slot] = malloc((cells + 1) * sizeof(uint64_t));
        assert_non_null(shelf->slot[slot]);
        for (size_t i = 0; i < cells; i++) shelf->slot[slot][i] = NOTHING;
    }
    struct ra__unit all = { 0, 0, shelf->rows[RA__SLOT_OWN] };
    if (plan->team.size == 1) bring_keys(shelf, rank, &all);
}

static void shelf_close(struct shelf *shelf)
{
    for (int slot = 0; slot < RA__SLOTS; slot++) free(shelf->slot[slot]);
}

/* One row of a piece, for one KV head: `row` of the block, `at` in the packed slot. */
static void move_row(struct shelf *shelf, int64_t row, int64_t at, int head)
{
    const struct ra__step *step = shelf->step;
    int64_t gathered = -1;
    if (step->op == RA__OP_PLACE || step->op == RA__OP_PICK)
        gathered = position_of(shelf->plan->input.k_layout, step->block, row) -
                   shelf->plan->gather_base;
    switch (step->op) {
    case RA__OP_PACK:
        *cell_at(shelf, step->to, at, head) = *cell_at(shelf, step->from, row, head);
        break;
    case RA__OP_PLACE:
        *cell_at(shelf, step->to, gathered, head) = *cell_at(shelf, step->from, at, head);
        break;
    case RA__OP_PICK:
        *cell_at(shelf, step->to, at, head) = *cell_at(shelf, step->from, gathered, head);
        break;
    case RA__OP_CLEAR: *cell_at(shelf, step->to, at, head) = 0; break;
    default:
        if (*cell_at(shelf, step->from, at, head) == NOTHING)
            fail_msg("%s: hop %d adds a row that nobody filled", shelf->world->text, step->hop);
        *cell_at(shelf, step->to, row, head) += *cell_at(shelf, step->from, at, head);
    }
}

static void move_pieces(struct shelf *shelf)
{
    const struct ra__step *step = shelf->step;
    int kv_heads = step->to == RA__GRAD_SHARED ? shelf->world->kv_heads
                                               : shelf->plan->input.shape.kv_heads;
    assert_true(step->piece_count > 0);
    for (int i = 0; i < step->piece_count; i++) {
        const struct ra__piece *piece = &shelf->program->pieces[step->first_piece + i];
        bool all = piece->kv_head == RA__ALL_HEADS;
        assert_true(piece->rows.count > 0 && piece->rows.step > 0);
        for (int64_t n = 0; n < piece->rows.count; n++)
            for (int head = all ? 0 : piece->kv_head; head < (all ? kv_heads : piece->kv_head + 1);
                 head++)
                move_row(shelf, piece->rows.start + n * piece->rows.step, piece->at + n, head);
    }
}

/* ---- Attend ---- */

static void add_gradients(const struct look *look, int64_t key, int64_t row, void *context)
{
    struct shelf *shelf = context;
    const struct ra__shape *shape = &shelf->plan->input.shape;
    for (int64_t h = 0; h < look->row->heads.count; h++) {
        int kv_head = head_at(look->row, h) / (shape->q_heads / shape->kv_heads);
        *cell_at(shelf, shelf->step->to, row, kv_head) += pair_number(look->query, head_of(look, h),
                                                                      key);
    }
}

static void add_gradients_of_query(const struct look *look, void *context)
{
    each_key(look, add_gradients, context);
}

/* All keys of a row must be there that lie between the first and the last its queries see. */
static void check_keys_of(const struct shelf *shelf, const struct ra__plan_row *row, int64_t repeat)
{
    const struct ra__shape *shape = &shelf->plan->input.shape;
    int group = shape->q_heads / shape->kv_heads, first_kv = shelf->plan->team.share.kv_first;
    for (int k = row->first_key; k < row->first_key + row->key_count; k++) {
        struct ra__key_run run = ra__key_run_at(&shelf->program->keys[k],
                                                &shelf->program->advances[k], repeat);
        for (int64_t i = 0; i < run.count * row->heads.count; i++) {
            int64_t at = run.row + i / row->heads.count * run.row_step;
            int64_t key = run.pos + i / row->heads.count * run.pos_step;
            int64_t first = row->q_pos + repeat * row->q_pos_advance;
            int64_t last = first + (row->q_count - 1) * row->q_step;
            int kv_head = head_at(row, i % row->heads.count) / group;
            if (key < first - run.band.left || key > last + run.band.right) continue;
            if (*cell_at(shelf, shelf->step->from, at, kv_head) !=
                key_number(key, first_kv + kv_head))
                fail_msg("%s: rank %d, hop %d: key %d of KV head %d is not in row %d",
                         shelf->world->text, shelf->plan->home.rank, shelf->step->hop, (int)key,
                         first_kv + kv_head, (int)at);
        }
    }
}

static void attend(struct shelf *shelf)
{
    const struct ra__step *step = shelf->step;
    bool backward = shelf->program == &shelf->plan->backward;
    for (int r = step->first_row; r < step->first_row + step->row_count; r++) {
        const struct ra__plan_row *row = &shelf->program->rows[r];
        for (int64_t n = 0; n < row->repeat; n++) check_keys_of(shelf, row, n);
        if (backward)
            each_query(shelf->world, shelf->plan, shelf->program, row, add_gradients_of_query,
                       shelf);
    }
}

/* dK and dV of the own block are whole: every pair of the share with one of its keys has added its
 * number. */
static void check_gradients(const struct shelf *shelf)
{
    const struct world *w = shelf->world;
    const struct ra__plan_input *input = &shelf->plan->input;
    const struct ra__heads *share = &shelf->plan->team.share;
    int group = w->q_heads / w->kv_heads;
    for (int64_t row = 0; row < shelf->rows[RA__SLOT_OWN]; row++)
        for (int kv_head = 0; kv_head < share->kv_heads; kv_head++) {
            int64_t key = position_of(input->k_layout, input->rank, row);
            uint64_t sum = 0;
            for (int head = share->q_first; head < share->q_first + share->q_heads; head++)
                for (int64_t query = 0; query < w->n && head / group == share->kv_first + kv_head;
                     query++)
                    sum += seen.count[head][query][key] * pair_number(query, head, key);
            if (*cell_at(shelf, RA__GRAD_OWN, row, kv_head) != sum)
                fail_msg("%s: rank %d: the gradient of key %d, KV head %d is not whole", w->text,
                         shelf->plan->home.rank, (int)key, share->kv_first + kv_head);
        }
}

/* ---- Swap ---- */

/* Once all members have swapped, the share has the keys of all of them; it gives away whole
 * sums. */
static void swap(struct shelf *shelf)
{
    const struct ra__step *step = shelf->step;
    const struct ra__team *team = &shelf->plan->team;
    bool backward = shelf->program == &shelf->plan->backward;
    int member = step->block - team->first;
    assert_in_range(member, 0, team->size - 1);
    if (step->from == RA__SWAP_SHARE && backward) check_gradients(shelf);
    if (step->to != RA__SWAP_SHARE) return;
    for (int i = team->k.first[member]; i < team->k.first[member + 1]; i++)
        bring_keys(shelf, step->block, &team->k.units[i]);
}

/* ---- Messages ---- */

/* What a receive brings: the sender's rows when it posted the round. */
struct mail {
    int from, to, tag;
    bool taken;
    size_t count;
    uint64_t *numbers;
};

struct post_office {
    struct mail *mail;
    int count, capacity;
};

/* The numbers of a transfer; none of it may lie outside its slot. */
static uint64_t *numbers_of(const struct shelf *shelf, const struct ra__transfer *t, size_t *count)
{
    int64_t cells = cells_of(shelf, t->slot);
    assert_true(t->range.lo >= 0 && t->range.lo < t->range.hi);
    assert_true(t->range.hi <= shelf->rows[t->slot]);
    *count = (size_t)((t->range.hi - t->range.lo) * cells);
    return &shelf->slot[t->slot][t->range.lo * cells];
}

static void post(struct post_office *office, const struct shelf *shelf,
                 const struct ra__transfer *t)
{
    if (office->count == office->capacity) {
        office->capacity = office->capacity ? 2 * office->capacity : 64;
        office->mail = realloc(office->mail, (size_t)office->capacity * sizeof *office->mail);
        assert_non_null(office->mail);
    }
    struct mail *mail = &office->mail[office->count++];
    *mail = (struct mail){ shelf->plan->home.rank, t->peer, t->tag, false, 0, NULL };
    const uint64_t *numbers = numbers_of(shelf, t, &mail->count);
    mail->numbers = malloc(mail->count * sizeof *numbers);
    assert_non_null(mail->numbers);
    memcpy(mail->numbers, numbers, mail->count * sizeof *numbers);
}

/* The next message of the tag; NULL as long as there is none. */
static struct mail *find_mail(const struct post_office *office, int rank,
                              const struct ra__transfer *t)
{
    for (int i = 0; i < office->count; i++) {
        struct mail *mail = &office->mail[i];
        if (mail->from == t->peer && mail->to == rank && mail->tag == t->tag && !mail->taken)
            return mail;
    }
    return NULL;
}

/* Rows on their way in are nobody's until they have arrived. */
static void start_round(struct post_office *office, struct shelf *shelf,
                        const struct ra__plan_round *round)
{
    for (int i = 0; i < round->send_count; i++)
        post(office, shelf, &shelf->program->sends[round->first_send + i]);
    for (int i = 0; i < round->recv_count; i++) {
        size_t count;
        uint64_t *numbers = numbers_of(shelf, &shelf->program->recvs[round->first_recv + i],
                                       &count);
        for (size_t k = 0; k < count; k++) numbers[k] = NOTHING;
    }
}

/* Rows on their way out must be what they were. */
static void check_sent(const struct post_office *office, const struct shelf *shelf,
                       const struct ra__transfer *t)
{
    size_t count;
    const uint64_t *numbers = numbers_of(shelf, t, &count);
    bool found = false;
    for (int i = 0; i < office->count && !found; i++) {
        const struct mail *mail = &office->mail[i];
        if (mail->from != shelf->plan->home.rank || mail->to != t->peer || mail->tag != t->tag)
            continue;
        found = mail->count == count && !memcmp(mail->numbers, numbers, count * sizeof *numbers);
    }
    if (!found)
        fail_msg("%s: rank %d writes to rows that are on their way to rank %d", shelf->world->text,
                 shelf->plan->home.rank, t->peer);
}

/* False as long as somebody has not sent. */
static bool end_round(struct post_office *office, struct shelf *shelf,
                      const struct ra__plan_round *round)
{
    int rank = shelf->plan->home.rank;
    for (int i = 0; i < round->recv_count; i++) {
        const struct ra__transfer *t = &shelf->program->recvs[round->first_recv + i];
        if (!find_mail(office, rank, t)) return false; /* all of a tag come in one round */
    }
    for (int i = 0; i < round->send_count; i++)
        check_sent(office, shelf, &shelf->program->sends[round->first_send + i]);
    for (int i = 0; i < round->recv_count; i++) {
        const struct ra__transfer *t = &shelf->program->recvs[round->first_recv + i];
        struct mail *mail = find_mail(office, rank, t);
        size_t count;
        uint64_t *numbers = numbers_of(shelf, t, &count);
        assert_int_equal(count, mail->count);
        for (size_t k = 0; k < count; k++)
            if (numbers[k] != NOTHING)
                fail_msg("%s: rank %d writes to rows that are about to arrive", shelf->world->text,
                         rank);
        memcpy(numbers, mail->numbers, count * sizeof *numbers);
        mail->taken = true;
    }
    return true;
}

/* One rank as far as it gets; true if it moved. */
static bool advance(struct shelf *shelf, struct post_office *office, int *at)
{
    const struct ra__program *p = shelf->program;
    int before = *at;
    for (; *at < p->step_count; (*at)++) {
        const struct ra__step *step = shelf->step = &p->steps[*at];
        switch (step->op) {
        case RA__OP_MOVE: start_round(office, shelf, &p->rounds[step->round]); break;
        case RA__OP_WAIT:
            if (!end_round(office, shelf, &p->rounds[step->round])) return *at > before;
            break;
        case RA__OP_ATTEND: attend(shelf); break;
        case RA__OP_SWAP: swap(shelf); break;
        case RA__OP_FINISH: check_gradients(shelf); break;
        default: move_pieces(shelf);
        }
    }
    return *at > before;
}

static void check_numbers_of(const struct world *w, bool backward)
{
    struct shelf shelves[MOST_RANKS];
    struct post_office office = { NULL, 0, 0 };
    int at[MOST_RANKS] = { 0 };
    for (int rank = 0; rank < w->ranks; rank++) shelf_open(&shelves[rank], w, rank, backward);
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < w->ranks; rank++)
            moved |= advance(&shelves[rank], &office, &at[rank]);
    }
    for (int rank = 0; rank < w->ranks; rank++) {
        const struct ra__program *p = program_of(w, rank, backward);
        assert_int_equal(at[rank], p->step_count);
        const struct ra__team *team = &w->plan[rank]->steps.team;
        bool finishes = p->step_count > 0 && p->steps[p->step_count - 1].op == RA__OP_FINISH;
        assert_int_equal(finishes, backward && (team->size == 1 || team->shared));
        shelf_close(&shelves[rank]);
    }
    for (int i = 0; i < office.count; i++) {
        assert_true(office.mail[i].taken);
        free(office.mail[i].numbers);
    }
    free(office.mail);
}

static void check_keys(const struct world *w) { check_numbers_of(w, false); }
static void check_sums(const struct world *w) { check_numbers_of(w, true); }

static void keys_lie_where_rows_look_for_them(void **state)
{
    (void)state;
    each_world(check_keys);
}

static void gradients_come_home_whole(void **state)
{
    (void)state;
    each_world(check_sums);
}

static void check_all(const struct world *w)
{
    check_messages(w);
    check_rounds(w);
    check_rows(w);
    check_keys(w);
    check_sums(w);
}

static int64_t rows_in(const struct ra__ranges *ranges)
{
    int64_t rows = 0;
    for (int i = 0; i < ranges->count; i++) rows += ranges->at[i].hi - ranges->at[i].lo;
    return rows;
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
    check_all(&w);
    world_close(&w);
}

/* Queries that see nothing, keys that nobody sees, and lengths of their own on each side. */
static void other_numbers_of_keys(void **state)
{
    (void)state;
    static const int64_t lengths[][2] = {
        { 37, 11 }, { 11, 37 }, { 1, 20 }, { 20, 1 }, { 16, 50 }
    };
    char sample[64];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int k = 0; k < TEST_COUNT(lengths); k++) {
            ra_pattern *pattern;
            struct world w = { .n = lengths[k][0],
                               .k_len = lengths[k][1],
                               .q_heads = shapes[(i + k) % TEST_COUNT(shapes)].q_heads,
                               .kv_heads = shapes[(i + k) % TEST_COUNT(shapes)].kv_heads };
            assert_ok(ra_pattern_parse(sample, &pattern));
            if (w.n <= w.k_len || pattern->kind->more_queries)
                each_way(&w, sample, false, check_all);
            ra_pattern_destroy(pattern);
        }
}

/* Lengths at which ranks have nothing, blocks and segments end early, and one that is prime. */
static void few_positions(void **state)
{
    (void)state;
    char sample[64];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int64_t n = 1; n <= 13; n += n < 3 ? 1 : 5) {
            struct world w = { .n = n, .k_len = n, .q_heads = 4, .kv_heads = 2 };
            each_way(&w, sample, false, check_all);
        }
}

/* Rates and strides that do not divide one another, segments that repeat often, and unions. */
static void odd_rates_and_strides(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "dilated:4/1,8/2",
        "dilated:7/3,11/5,30/2",
        "dilated:4/6,9/4,10/10;dedup",
        "dilated:13/5,8/3;groups;causal",
        "dilated:2/1,3/2,5/3,7/4",
        "dilated:3/1,6/3",
        "dilated:1/1",
        "blocks:3;levels=2/1,3/2,5/4",
        "blocks:2;strided=3;local=1;random=0.2;seed=5",
        "blocks:1;dilated=3/4;global=2",
        "blocks:1;random=0.4;seed=9;causal",
        "blocks:100;local=0",
    };
    for (int i = 0; i < TEST_COUNT(texts); i++) {
        const struct shape *shape = &shapes[2 + i % 3];
        struct world w = {
            .n = shape->n, .k_len = shape->n, .q_heads = shape->q_heads, .kv_heads = shape->kv_heads
        };
        each_way(&w, texts[i], false, check_all);
    }
}

/* Numbers as large as a text may hold: no product of two of them fits. */
static void the_largest_numbers(void **state)
{
    (void)state;
#define LARGEST "2305843009213693951"
    static const char *const texts[] = {
        "window:" LARGEST "," LARGEST,
        "prefix:" LARGEST,
        "dilated:8/" LARGEST ",8/3",
        "dilated:" LARGEST "/3,5/" LARGEST ",7/2",
        "dilated:" LARGEST "/" LARGEST ";dedup",
        "dilated:" LARGEST "/2305843009213693950," LARGEST "/" LARGEST ",9/7;dedup",
        "dilated:6/2305843009213693950,9/" LARGEST ";groups;causal",
        "blocks:" LARGEST ";local=" LARGEST,
        "blocks:" LARGEST ";strided=" LARGEST ";levels=" LARGEST "/" LARGEST,
        "blocks:4;dilated=" LARGEST "/" LARGEST ";strided=" LARGEST,
        "blocks:4;dilated=2/" LARGEST ";levels=3/" LARGEST "," LARGEST "/1;causal",
        "blocks:4;dilated=" LARGEST "/2;global=" LARGEST,
        "blocks:4;random=0.3;seed=" LARGEST ";levels=2305843009213693950/1," LARGEST "/2",
    };
#undef LARGEST
    for (int i = 0; i < TEST_COUNT(texts); i++) {
        struct world w = { .n = 40, .k_len = 40, .q_heads = 6, .kv_heads = 2 };
        each_way(&w, texts[i], false, check_all);
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
    char sample[64];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++) {
        struct world w = { .n = 37, .k_len = 37, .q_heads = 8, .kv_heads = 2 };
        each_way(&w, sample, false, check_explain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_has_its_counterpart),
        cmocka_unit_test(rounds_are_in_order_and_end),
        cmocka_unit_test(every_pair_is_folded_as_often_as_it_is_seen),
        cmocka_unit_test(keys_lie_where_rows_look_for_them),
        cmocka_unit_test(gradients_come_home_whole),
        cmocka_unit_test(ranges_join_and_cover),
        cmocka_unit_test(ranges_join_the_nearest_when_full),
        cmocka_unit_test(many_documents_keep_messages_few),
        cmocka_unit_test(other_numbers_of_keys),
        cmocka_unit_test(few_positions),
        cmocka_unit_test(odd_rates_and_strides),
        cmocka_unit_test(the_largest_numbers),
        cmocka_unit_test(explain_prints_every_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
