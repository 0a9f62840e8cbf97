/* SPDX-License-Identifier: Apache-2.0 */
/* test_counts.c - hops, bytes, pairs and FLOPs of every rank against closed formulas, and against a
 * count by brute force over all pairs of positions. The lab compares every run with its
 * forecast. */
#include "support/dice.h"
#include "support/fixture.h"
#include "support/walk.h"

#include <stdlib.h>

#include "harness/run/forecast.h"
#include "harness/base/half.h"
#include "harness/oracle/mask.h"

/* ---- Asking ---------------------------------------------------------------------------------- */

static void fail_at(const char *problem, int rank, const char *what, int64_t got, int64_t want)
{
    print_error("%s of rank %d: %lld, but %lld is right\n  ringattn verify \"%s\"\n", what, rank,
                (long long)got, (long long)want, problem);
    fail();
}

static ra_stats ask(const char *problem, int rank, int backward)
{
    struct trial trial;
    ra_plan *plan;
    ra_stats stats = ra_stats_default();
    assert_int_equal(trial_parse(&trial, problem), 0);
    assert_int_equal(forecast_plan(&trial, 0, rank, &plan), 0);
    assert_ok(ra_plan_forecast(plan, backward, &stats));
    ra_plan_destroy(plan);
    trial_clear(&trial);
    return stats;
}

static void expect_hops(const char *problem, int rank, int backward, int64_t want)
{
    int64_t got = ask(problem, rank, backward).hops;
    if (got != want) fail_at(problem, rank, backward ? "backward hops" : "hops", got, want);
}

static void expect_bytes(const char *problem, int rank, int backward, int64_t want)
{
    int64_t got = ask(problem, rank, backward).bytes_sent;
    if (got != want) fail_at(problem, rank, backward ? "backward bytes" : "bytes", got, want);
}

/* Where block `rank` of `ranks` starts among n positions. */
static int64_t cut(int64_t n, int ranks, int rank) { return rank * n / ranks; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* h=6/2 d=8 dv=12 b=3 bf16: bytes of a row of K and V, and of its gradients in f32. */
#define SHAPE "h=6/2 d=8 dv=12 b=3 bf16"
enum { ROW = 3 * 2 * (8 + 12) * 2, ROW_GRADIENT = 3 * 2 * (8 + 12) * 4 };

static const int lengths[] = { 8, 16, 31, 64, 97, 240 };

/* ---- Closed formulas ------------------------------------------------------------------------- */

static void full_ring(void **state)
{
    (void)state;
    char problem[128];
    for (int l = 0; l < TEST_COUNT(lengths); l++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                int64_t n = lengths[l];
                int next = (rank + 1) % ranks;
                int64_t of_next = cut(n, ranks, next + 1) - cut(n, ranks, next);
                int64_t own = cut(n, ranks, rank + 1) - cut(n, ranks, rank);
                int64_t keys = ranks > 1 ? (n - of_next) * ROW : 0;
                snprintf(problem, sizeof problem, "full n=%lld %s ring=%d backward", (long long)n,
                         SHAPE, ranks);
                expect_hops(problem, rank, 0, ranks - 1);
                expect_bytes(problem, rank, 0, keys);
                expect_hops(problem, rank, 1, ranks == 1 ? 0 : ranks == 2 ? 2 : ranks + 1);
                /* Every block but its own passes through, and its gradients leave once. */
                expect_bytes(problem, rank, 1, keys + (n - own) * ROW_GRADIENT);
                if (ranks > 1 && n % ranks == 0) /* (P-1)(2c + 2c in f32) */
                    expect_bytes(problem, rank, 1, (ranks - 1) * n / ranks * (ROW + ROW_GRADIENT));
            }
}

static void causal_contiguous_ring(void **state)
{
    (void)state;
    char problem[128];
    for (int l = 0; l < TEST_COUNT(lengths); l++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                bool is_last = rank == ranks - 1;
                snprintf(problem, sizeof problem, "causal n=%d %s ring=%d", lengths[l], SHAPE,
                         ranks);
                /* A rank sends its own block and those before it; there is no rank after the
                 * last. */
                expect_bytes(problem, rank, 0,
                             is_last ? 0 : cut(lengths[l], ranks, rank + 1) * ROW);
                expect_hops(problem, rank, 0, is_last ? ranks - 1 : rank + 1);
            }
}

/* What the queries of `reader` see of the block of `owner`, a rank before it. */
static int64_t window_rows(int64_t n, int ranks, int owner, int reader, int64_t left)
{
    if (owner < 0 || reader >= ranks) return 0;
    int64_t first = cut(n, ranks, reader), start = cut(n, ranks, owner);
    if (first == cut(n, ranks, reader + 1)) return 0; /* it has no queries */
    return most(cut(n, ranks, owner + 1) - most(start, first - left), 0);
}

static void window_contiguous_ring(void **state)
{
    (void)state;
    static const int lefts[] = { 0, 1, 5, 8, 13, 30, 1000 };
    char problem[128];
    for (int l = 0; l < TEST_COUNT(lengths); l++)
        for (int w = 0; w < TEST_COUNT(lefts); w++)
            for (int ranks = 1; ranks <= 8; ranks++)
                for (int rank = 0; rank < ranks; rank++) {
                    int64_t n = lengths[l], rows = 0, hops = 0;
                    for (int h = 1; h < ranks; h++) { /* to rank + h, from rank - h */
                        int64_t sent = window_rows(n, ranks, rank, rank + h, lefts[w]);
                        rows += sent;
                        hops += sent > 0 || window_rows(n, ranks, rank - h, rank, lefts[w]) > 0;
                    }
                    snprintf(problem, sizeof problem, "window:%d n=%lld %s ring=%d", lefts[w],
                             (long long)n, SHAPE, ranks);
                    expect_bytes(problem, rank, 0, rows * ROW);
                    expect_hops(problem, rank, 0, hops);
                }
}

/* With P dividing n: ceil(L / block) hops, and only the tokens inside the window. */
static void window_reaches_no_further_than_it_must(void **state)
{
    (void)state;
    static const int lefts[] = { 0, 1, 15, 16, 17, 40, 111 };
    char problem[128];
    int64_t block = 16;
    for (int w = 0; w < TEST_COUNT(lefts); w++) {
        int64_t rows = 0, hops = (lefts[w] + block - 1) / block;
        for (int64_t h = 0; h < hops; h++) rows += least(block, lefts[w] - h * block);
        snprintf(problem, sizeof problem, "window:%d n=128 %s ring=8", lefts[w], SHAPE);
        expect_hops(problem, 0, 0, hops);
        expect_bytes(problem, 0, 0, rows * ROW);
    }
}

static void causal_zigzag_and_striped_take_all_hops(void **state)
{
    (void)state;
    static const char *const partitions[] = { "zigzag", "striped" };
    char problem[128];
    for (int p = 0; p < TEST_COUNT(partitions); p++)
        for (int ranks = 2; ranks <= 8; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                snprintf(problem, sizeof problem, "causal n=%d %s ring=%d %s", 16 * ranks, SHAPE,
                         ranks, partitions[p]);
                expect_hops(problem, rank, 0, ranks - 1);
            }
}

/* Zigzag and striped give every rank the same causal work, to within a part in the block. */
static void causal_work_is_balanced(void **state)
{
    (void)state;
    char problem[128];
    for (int ranks = 2; ranks <= 8; ranks++)
        for (int rank = 0; rank < ranks; rank++) {
            int64_t n = 16 * ranks, all = n * (n + 1) / 2 * 6 * 3;
            snprintf(problem, sizeof problem, "causal n=%lld %s ring=%d zigzag", (long long)n,
                     SHAPE, ranks);
            int64_t pairs = ask(problem, rank, 0).pairs;
            if (pairs != all / ranks) fail_at(problem, rank, "pairs", pairs, all / ranks);
        }
}

static void full_allgather(void **state)
{
    (void)state;
    char problem[128];
    for (int l = 0; l < TEST_COUNT(lengths); l++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int rank = 0; rank < ranks; rank++) {
                int64_t n = lengths[l], own = cut(n, ranks, rank + 1) - cut(n, ranks, rank);
                snprintf(problem, sizeof problem, "full n=%lld %s ring=%d allgather backward",
                         (long long)n, SHAPE, ranks);
                expect_hops(problem, rank, 0, ranks - 1);
                expect_bytes(problem, rank, 0, (ranks - 1) * own * ROW);
                expect_hops(problem, rank, 1, 2 * (ranks - 1));
                expect_bytes(problem, rank, 1, (ranks - 1) * own * ROW + (n - own) * ROW_GRADIENT);
            }
}

/* A rank sends (P - 1) / P of everything, before and after, and nothing more: h=8/4 d=8 dv=12 b=3
 * bf16, so that every rank has some heads, and 2 or 4 of them the same number. */
static void full_ulysses(void **state)
{
    (void)state;
    char problem[128];
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        for (int64_t n = 8; n <= 64; n *= 2)
            for (int rank = 0; rank < ranks; rank++) {
                int64_t q = 3 * n / ranks * 8 / ranks, k = 3 * n / ranks * 4 / ranks;
                snprintf(problem, sizeof problem,
                         "full n=%lld h=8/4 d=8 dv=12 b=3 bf16 ring=%d ulysses backward",
                         (long long)n, ranks);
                expect_hops(problem, rank, 0, 2 * (ranks - 1));
                expect_hops(problem, rank, 1, 2 * (ranks - 1));
                expect_bytes(problem, rank, 0,
                             (ranks - 1) * (q * (8 * 2 + 12 * 2 + 4) + k * 20 * 2));
                expect_bytes(problem, rank, 1,
                             (ranks - 1) * (q * (20 * 2 + 8 + 8 * 2) + k * 2 * 20 * 2));
            }
}

/* Both: all-to-all among U members, and a ring of R teams with U times as many tokens, 1 / U of the
 * heads. */
static void full_2d(void **state)
{
    (void)state;
    static const int sizes[][2] = { { 1, 4 }, { 2, 2 }, { 4, 1 }, { 2, 3 }, { 2, 4 }, { 4, 2 } };
    char problem[128];
    for (int i = 0; i < TEST_COUNT(sizes); i++)
        for (int rank = 0; rank < sizes[i][0] * sizes[i][1]; rank++) {
            int64_t u = sizes[i][0], r = sizes[i][1], n = 96;
            int64_t q = 3 * n / (u * r) * 8 / u, k = 3 * n / (u * r) * 4 / u;
            int64_t block = 3 * n / r * 4 / u * 20; /* numbers of K and V of a team */
            snprintf(problem, sizeof problem,
                     "full n=%lld h=8/4 d=8 dv=12 b=3 bf16 ring=%d 2d:%dx%d backward", (long long)n,
                     (int)(u * r), (int)u, (int)r);
            expect_hops(problem, rank, 0, 2 * (u - 1) + r - 1);
            expect_bytes(problem, rank, 0,
                         (u - 1) * (q * (8 * 2 + 12 * 2 + 4) + k * 20 * 2) + (r - 1) * block * 2);
            expect_hops(problem, rank, 1, 2 * (u - 1) + (r == 1 ? 0 : r == 2 ? 2 : r + 1));
            expect_bytes(problem, rank, 1,
                         (u - 1) * (q * (20 * 2 + 8 + 8 * 2) + k * 2 * 20 * 2) +
                             (r - 1) * block * (2 + 4));
        }
}

/* ---- By brute force -------------------------------------------------------------------------- */

enum { MOST_N = 256, MOST_RANKS = 8, MOST_KV_HEADS = 8 };

/* Who needs what, pair by pair and head by head. Keys are counted by index: where an order puts
 * them. In teams, who owns a key is the team, and who reads it the member that has the head. */
struct census {
    struct trial trial;
    int ranks;
    /* ranks that exchange heads, and the number of such teams; 1 and ranks otherwise */
    int team, teams;
    bool ring, straight;  /* direct: keys go to their readers, not from neighbour to neighbour */
    int owner[2][MOST_N]; /* of each index; queries, keys */
    int64_t count[2][MOST_RANKS];                 /* positions of each rank */
    bool need[MOST_RANKS][MOST_KV_HEADS][MOST_N]; /* [reader][KV head][key] */
    int64_t pairs[MOST_RANKS];                    /* over heads, of one batch item */
};

/* Heads of a member: whole KV heads, or where there are too few a part of the readers of one. */
struct share {
    int64_t q_first, q_heads, kv_first, kv_heads;
};

static struct share share_of(const struct census *c, int member)
{
    int64_t kv = c->trial.kv_heads, group = c->trial.q_heads / kv, u = c->team;
    struct share s = { .kv_first = member * kv / u, .kv_heads = 1 };
    if (kv >= u) {
        s.kv_heads = (member + 1) * kv / u - s.kv_first;
        s.q_first = s.kv_first * group;
        s.q_heads = s.kv_heads * group;
        return s;
    }
    int64_t place = 0, places = 0; /* among the members with this KV head */
    for (int m = 0; m < u; m++)
        if (m * kv / u == s.kv_first) {
            place += m < member;
            places++;
        }
    s.q_first = s.kv_first * group + place * group / places;
    s.q_heads = s.kv_first * group + (place + 1) * group / places - s.q_first;
    if (s.q_heads == 0) s.kv_heads = 0;
    return s;
}

static int member_with(const struct census *c, int64_t head)
{
    for (int m = 0; m < c->team; m++) {
        struct share s = share_of(c, m);
        if (head >= s.q_first && head < s.q_first + s.q_heads) return m;
    }
    fail_msg("nobody has head %d", (int)head);
    return -1;
}

static void census_owners(struct census *c, const ra_pattern *pattern)
{
    const int64_t lengths_of[2] = { c->trial.q_len, c->trial.k_len };
    ra_run runs[MOST_N];
    for (int side = 0; side < 2; side++) {
        ra_layout *layout;
        assert_ok(
            ra_layout_create(c->trial.partition, lengths_of[side], c->ranks, pattern, &layout));
        for (int rank = 0; rank < c->ranks; rank++) {
            int64_t count = ra_layout_runs(layout, rank, runs, MOST_N);
            for (int64_t i = 0; i < count; i++)
                for (int64_t j = 0; j < runs[i].count; j++)
                    c->owner[side][runs[i].start + j * runs[i].step] = rank;
            c->count[side][rank] = ra_layout_count(layout, rank);
        }
        ra_layout_destroy(layout);
    }
}

/* Under an order a key may be sent although `;causal` or documents hide it: these go by original
 * position and are compared pair by pair. `sent` is the pattern without them. */
static void census_query(struct census *c, const struct mask *mask, const struct mask *sent,
                         int64_t query)
{
    const struct trial *t = &c->trial;
    int64_t position = query + t->k_len - t->q_len, group = t->q_heads / t->kv_heads;
    int owner = c->owner[0][mask->indices ? mask->indices[query] : query];
    for (int64_t head = 0; head < t->q_heads; head++) {
        int reader = owner - owner % c->team + member_with(c, head);
        for (int64_t key = 0; key < t->k_len; key++) {
            int64_t index = mask->indices ? mask->indices[key] : key;
            c->pairs[reader] += mask_count(mask, head, position, key);
            c->need[reader][head / group][index] |= mask_count(sent, head, position, key) > 0;
        }
    }
}

/* Patterns whose keys go to their readers and nowhere else. */
static bool sends_straight(const char *pattern)
{
    static const char *const kinds[] = { "window", "dilated", "blocks" };
    for (int i = 0; i < TEST_COUNT(kinds); i++)
        if (!strncmp(pattern, kinds[i], strlen(kinds[i]))) return true;
    return false;
}

/* An order that changes nothing is none. */
static bool moves_anything(const struct mask *mask, int64_t length)
{
    for (int64_t i = 0; mask->indices && i < length; i++)
        if (mask->indices[i] != i) return true;
    return false;
}

/* How large teams are, from the strategy that was chosen. */
static void census_teams(struct census *c)
{
    ra_plan *plan;
    c->ranks = (int)c->trial.ranks;
    c->team = 1;
    assert_int_equal(forecast_plan(&c->trial, 0, 0, &plan), 0);
    const char *strategy = ra_plan_strategy(plan);
    c->ring = strcmp(strategy, "allgather") != 0;
    if (!strcmp(strategy, "ulysses")) c->team = c->ranks;
    if (!strncmp(strategy, "2d:", 3)) assert_int_equal(sscanf(strategy, "2d:%dx", &c->team), 1);
    c->teams = c->ranks / c->team;
    ra_plan_destroy(plan);
}

static void census_open(struct census *c, const char *problem)
{
    ra_pattern *pattern;
    struct mask mask, sent;
    memset(c, 0, sizeof *c);
    assert_int_equal(trial_parse(&c->trial, problem), 0);
    const struct trial *t = &c->trial;
    struct mask_setup setup = { t->pattern, t->order, t->q_heads, t->k_len };
    census_teams(c);
    assert_true(t->k_len <= MOST_N && c->ranks <= MOST_RANKS && t->kv_heads <= MOST_KV_HEADS);
    assert_ok(ra_pattern_parse(t->pattern, &pattern));
    census_owners(c, pattern);
    ra_pattern_destroy(pattern);
    assert_int_equal(mask_open(&mask, &setup), 0);
    assert_int_equal(mask_open(&sent, &setup), 0);
    c->straight = sends_straight(t->pattern) || !c->ring;
    if (moves_anything(&mask, t->k_len)) {
        sent.causal = false;
        sent.bound_count = 0;
        free(sent.bounds);
        sent.bounds = NULL;
    }
    for (int64_t query = 0; query < t->q_len; query++) census_query(c, &mask, &sent, query);
    mask_close(&mask);
    mask_close(&sent);
}

/* The rank at distance h around the ring: the same member of another team. */
static int places_on(const struct census *c, int rank, int h)
{
    int team = (rank / c->team + h + c->teams) % c->teams;
    return team * c->team + rank % c->team;
}

static int before(const struct census *c, int rank, int h) { return places_on(c, rank, -h); }

/* Keys of `owner`, KV heads apart, that the ranks at distance `from` to `to` after it on the ring
 * need. */
static int64_t census_cells(const struct census *c, int owner, int from, int to)
{
    int64_t cells = 0;
    for (int64_t key = 0; key < c->trial.k_len; key++) {
        if (c->owner[1][key] / c->team != owner / c->team) continue;
        for (int64_t head = 0; head < c->trial.kv_heads; head++) {
            bool needed = false;
            for (int h = from; h <= to; h++) needed |= c->need[places_on(c, owner, h)][head][key];
            cells += needed;
        }
    }
    return cells;
}

/* A block is forwarded while any later rank needs some of it, with the tokens they need; gradients
 * follow. */
static int64_t passed_cells(const struct census *c, int rank, bool gradients)
{
    int64_t cells = 0;
    for (int h = 1; h < c->teams; h++) {
        int sent = before(c, rank, h - 1), visits = before(c, rank, h);
        if (!gradients) cells += census_cells(c, sent, h, c->teams - 1);
        else if (census_cells(c, visits, h, c->teams - 1)) cells += census_cells(c, visits, 1, h);
    }
    return cells;
}

/* What each reader sees goes to it, and its gradients come back: nothing else. */
static int64_t straight_cells(const struct census *c, int rank, bool gradients)
{
    int64_t cells = 0;
    for (int h = 1; h < c->teams; h++)
        cells += census_cells(c, gradients ? before(c, rank, h) : rank, h, h);
    return cells;
}

/* Bytes that `from` sends to `to` in the all-to-all before the program, or after it: of queries
 * with their heads, and of keys. */
static int64_t swapped(const struct census *c, int from, int to, bool in, bool backward)
{
    const struct trial *t = &c->trial;
    struct share s = share_of(c, (in ? to : from) % c->team); /* rows of one, heads of the other */
    int rows_of = in ? from : to;
    int64_t e = (int64_t)half_bytes((ra_dtype)t->dtype), both = t->dim + t->value_dim, q, k;
    if (in) q = backward ? both * e + 8 : t->dim * e;
    else q = backward ? t->dim * e : t->value_dim * e + 4;
    if (in) k = both * e;
    else k = backward ? both * (t->kv_heads < c->team ? 4 : e) : 0;
    return t->batch *
           (c->count[0][rows_of] * s.q_heads * q + c->count[1][rows_of] * s.kv_heads * k);
}

/* Over all members of the team, both ways. */
static int64_t swap_bytes(const struct census *c, int rank, bool backward)
{
    int64_t bytes = 0;
    for (int w = 1; w < c->team; w++) {
        int to = rank - rank % c->team + (rank % c->team + w) % c->team;
        bytes += swapped(c, rank, to, true, backward) + swapped(c, rank, to, false, backward);
    }
    return bytes;
}

/* Rounds in which something is sent or received. */
static int64_t swap_hops(const struct census *c, int rank, bool backward)
{
    int64_t hops = 0;
    int first = rank - rank % c->team, member = rank % c->team;
    for (int w = 1; w < c->team; w++) {
        int to = first + (member + w) % c->team, from = first + (member - w + c->team) % c->team;
        for (int in = 0; in < 2; in++)
            hops += swapped(c, rank, to, in, backward) || swapped(c, from, rank, in, backward);
    }
    return hops;
}

static int64_t census_bytes(const struct census *c, int rank, bool backward)
{
    const struct trial *t = &c->trial;
    int64_t (*count)(const struct census *, int, bool) = c->straight ? straight_cells
                                                                     : passed_cells;
    int64_t width = t->batch * (t->dim + t->value_dim);
    int64_t bytes = count(c, rank, false) * width * (int64_t)half_bytes((ra_dtype)t->dtype);
    bytes += swap_bytes(c, rank, backward);
    return bytes + (backward ? count(c, rank, true) * width * 4 : 0);
}

/* Does rank send to, or receive from, the ranks h places on and before? */
static bool census_meets(const struct census *c, int rank, int h)
{
    return h >= 1 && h < c->teams &&
           (census_cells(c, rank, h, h) || census_cells(c, before(c, rank, h), h, h));
}

/* Rounds with messages if keys go directly: gradients of a hop leave two rounds after its keys, or
 * in rounds of their own. */
static int64_t straight_hops(const struct census *c, int rank, bool backward)
{
    int64_t hops = 0;
    for (int h = 1; h <= c->teams + 1; h++)
        hops += census_meets(c, rank, h) || (backward && c->ring && census_meets(c, rank, h - 2));
    return hops * (backward && !c->ring ? 2 : 1);
}

static void check_stats(const struct census *c, const char *problem, int rank, bool backward,
                        const ra_stats *got)
{
    const struct trial *t = &c->trial;
    int64_t bytes = census_bytes(c, rank, backward), pairs = c->pairs[rank] * t->batch;
    int64_t width = backward ? 3 * t->dim + 2 * t->value_dim : t->dim + t->value_dim;
    int64_t hops = c->straight || c->teams == 1
                       ? straight_hops(c, rank, backward) + swap_hops(c, rank, backward)
                       : got->hops;
    if (got->bytes_sent != bytes) fail_at(problem, rank, "bytes", got->bytes_sent, bytes);
    if (got->pairs != pairs) fail_at(problem, rank, "pairs", got->pairs, pairs);
    if (got->hops != hops) fail_at(problem, rank, "hops", got->hops, hops);
    if (got->flops != 2.0 * (double)(pairs * width))
        fail_at(problem, rank, "flops", (int64_t)got->flops, 2 * pairs * width);
}

static void check_census(const char *problem)
{
    static struct census c;
    census_open(&c, problem);
    for (int rank = 0; rank < c.ranks; rank++)
        for (int backward = 0; backward < 2; backward++) {
            ra_stats got = ask(problem, rank, backward);
            check_stats(&c, problem, rank, backward, &got);
        }
    trial_clear(&c.trial);
}

static void bytes_are_those_of_the_rows_needed(void **state)
{
    (void)state;
    static const char *const modifiers[] = { "", ";causal", ";docs=0,10,10,41,67" };
    static const char *const partitions[] = { "contiguous", "zigzag" };
    ra_part strategy;
    char sample[96], problem[256];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int m = 0; m < TEST_COUNT(modifiers); m++)
            for (int p = 0; p < TEST_COUNT(partitions); p++)
                for (int s = 0; walk_usable("strategy", s, &strategy); s++)
                    for (int r = 0; r < TEST_COUNT(walk_ranks); r++) {
                        snprintf(problem, sizeof problem, "%s%s n=67 %s ring=%d %s %s backward",
                                 sample, modifiers[m], SHAPE, walk_ranks[r], partitions[p],
                                 strategy.name);
                        check_census(problem);
                    }
}

/* Keys go by their index in the order; pairs by all rules. */
static void bytes_in_every_order(void **state)
{
    (void)state;
    static const char *const modifiers[] = { "", ";causal", ";docs=0,10,10,41,67" };
    ra_part strategy, partition;
    char sample[96], order[64], problem[256];
    int turn = 0;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int o = 0; walk_order(o, order, sizeof order); o++)
            for (int s = 0; walk_usable("strategy", s, &strategy); s++, turn++) {
                bool passed_on = strcmp(strategy.name, "allgather") &&
                                 strncmp(sample, "dilated", 7) && strncmp(sample, "blocks", 6);
                /* Causal and prefix are masks of original positions here, like ;causal. */
                if (!strncmp(sample, "causal", 6) || !strncmp(sample, "prefix", 6)) continue;
                walk_usable("partition", passed_on ? turn % 2 : turn % 3, &partition);
                snprintf(problem, sizeof problem, "%s%s n=67 %s order=%s ring=%d %s %s backward",
                         sample, modifiers[turn / 3 % 3], SHAPE, order, walk_ranks[turn % 7],
                         partition.name, strategy.name);
                check_census(problem);
            }
}

static void bytes_of_striped_rings(void **state)
{
    (void)state;
    static const char *const patterns[] = { "full", "causal", "prefix:9" };
    ra_part strategy;
    char problem[256];
    for (int i = 0; i < TEST_COUNT(patterns); i++)
        for (int s = 0; walk_usable("strategy", s, &strategy); s++)
            for (int r = 0; r < TEST_COUNT(walk_ranks); r++) {
                snprintf(problem, sizeof problem, "%s n=67 %s ring=%d striped %s backward",
                         patterns[i], SHAPE, walk_ranks[r], strategy.name);
                check_census(problem);
            }
}

/* Lengths of their own on each side; more queries than keys only where that makes sense. */
static void other_numbers_of_keys(void **state)
{
    (void)state;
    static const int shapes[][2] = { { 20, 7 }, { 50, 1 }, { 7, 20 }, { 1, 50 }, { 19, 60 } };
    char sample[96], problem[256];
    ra_part strategy;
    for (int s = 0; s < TEST_COUNT(shapes); s++)
        for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
            for (int w = 0; walk_usable("strategy", w, &strategy); w++) {
                bool more_queries = shapes[s][0] > shapes[s][1];
                if (more_queries && strncmp(sample, "full", 4) && strncmp(sample, "causal", 6) &&
                    strncmp(sample, "window", 6))
                    continue;
                snprintf(problem, sizeof problem, "%s n=%d nk=%d %s ring=3 zigzag %s backward",
                         sample, shapes[s][0], shapes[s][1], SHAPE, strategy.name);
                check_census(problem);
            }
}

/* Any combination of those that go directly to their readers. */
static void bytes_of_problems_by_dice(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < (test_long() ? 20000 : test_slow() ? 60 : 600); i++) {
        struct dice_problem problem = dice_problem(i);
        bool sparse = !strncmp(problem.text, "dilated", 7) || !strncmp(problem.text, "blocks", 6);
        if (sparse) check_census(problem.text);
    }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* The lab compares every run with its forecast; here with the census as well. */
static void runs_count_what_they_do(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "full n=67 " SHAPE " ring=4 backward",
        "causal n=67 " SHAPE " ring=5 backward",
        "causal n=67 " SHAPE " ring=3 zigzag backward",
        "window:7 n=67 " SHAPE " ring=7 backward",
        "window:3,5 n=67 " SHAPE " ring=8 allgather backward",
        "full;docs=0,10,10,41,67 n=67 " SHAPE " ring=4 zigzag backward",
        "dilated:8/1,16/2,32/4 n=67 " SHAPE " ring=5 backward",
        "dilated:20/3,67/5;dedup;causal n=67 " SHAPE " ring=7 striped backward",
        "blocks:4;local=1;global=1 n=67 " SHAPE " ring=4 zigzag backward",
        "blocks:6;random=0.2;seed=7 n=67 " SHAPE " ring=8 allgather backward",
        "dilated:16/4,40/2 n=67 " SHAPE " ring=4 order=hilbert backward",
        "causal n=67 " SHAPE " ring=3 ulysses backward",
        "full n=67 nk=31 " SHAPE " ring=8 striped ulysses backward",
        "causal n=67 " SHAPE " ring=6 zigzag 2d:2x3 backward",
        "causal n=67 " SHAPE " ring=4 auto backward",
        "full n=67 " SHAPE " ring=6 auto latency=1e-3 bandwidth=1e6 backward",
        "blocks:6;random=0.2;seed=7 n=67 " SHAPE " ring=8 striped 2d:4x2 backward",
    };
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        static struct census c;
        struct fixture fixture;
        fixture_open(&fixture, "%s", cases[i]);
        fixture_run(&fixture);
        census_open(&c, cases[i]);
        for (int rank = 0; rank < c.ranks; rank++)
            for (int backward = 0; backward < 2; backward++)
                check_stats(&c, cases[i], rank, backward,
                            backward ? &fixture.rank[rank].backward : &fixture.rank[rank].forward);
        trial_clear(&c.trial);
        fixture_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_ring),
        cmocka_unit_test(causal_contiguous_ring),
        cmocka_unit_test(window_contiguous_ring),
        cmocka_unit_test(window_reaches_no_further_than_it_must),
        cmocka_unit_test(causal_zigzag_and_striped_take_all_hops),
        cmocka_unit_test(causal_work_is_balanced),
        cmocka_unit_test(full_allgather),
        cmocka_unit_test(full_ulysses),
        cmocka_unit_test(full_2d),
        cmocka_unit_test(bytes_are_those_of_the_rows_needed),
        cmocka_unit_test(bytes_in_every_order),
        cmocka_unit_test(bytes_of_striped_rings),
        cmocka_unit_test(other_numbers_of_keys),
        cmocka_unit_test(bytes_of_problems_by_dice),
        cmocka_unit_test(runs_count_what_they_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
