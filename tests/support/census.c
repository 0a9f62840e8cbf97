/* SPDX-License-Identifier: Apache-2.0 */
/* census.c - see census.h. */
#include "support/census.h"

#include <stdlib.h>

#include "harness/base/half.h"
#include "harness/oracle/mask.h"

/* ---- Who needs what -------------------------------------------------------------------------- */

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
    ra_run runs[CENSUS_MOST_N];
    for (int side = 0; side < 2; side++) {
        ra_layout *layout;
        assert_ok(
            ra_layout_create(c->trial.partition, lengths_of[side], c->ranks, pattern, &layout));
        for (int rank = 0; rank < c->ranks; rank++) {
            int64_t count = ra_layout_runs(layout, rank, runs, CENSUS_MOST_N);
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

void census_open(struct census *c, const char *problem)
{
    ra_pattern *pattern;
    struct mask mask, sent;
    memset(c, 0, sizeof *c);
    assert_int_equal(trial_parse(&c->trial, problem), 0);
    const struct trial *t = &c->trial;
    struct mask_setup setup = { t->pattern, t->order, t->q_heads, t->k_len };
    census_teams(c);
    assert_true(t->k_len <= CENSUS_MOST_N && c->ranks <= CENSUS_MOST_RANKS &&
                t->kv_heads <= CENSUS_MOST_KV_HEADS);
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

void census_close(struct census *c) { trial_clear(&c->trial); }

/* ---- What that costs ------------------------------------------------------------------------- */

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

void census_check(const struct census *c, const char *problem, int rank, bool backward,
                  const ra_stats *got)
{
    const struct trial *t = &c->trial;
    int64_t bytes = census_bytes(c, rank, backward), pairs = c->pairs[rank] * t->batch;
    int64_t width = backward ? 3 * t->dim + 2 * t->value_dim : t->dim + t->value_dim;
    int64_t hops = c->straight || c->teams == 1
                       ? straight_hops(c, rank, backward) + swap_hops(c, rank, backward)
                       : got->hops;
    ask_expect(problem, rank, "bytes", got->bytes_sent, bytes);
    ask_expect(problem, rank, "pairs", got->pairs, pairs);
    ask_expect(problem, rank, "hops", got->hops, hops);
    if (got->flops != 2.0 * (double)(pairs * width))
        fail_msg("%s: rank %d counts %.17g FLOPs", problem, rank, got->flops);
}

void census_check_problem(const char *problem)
{
    static struct census c;
    census_open(&c, problem);
    for (int rank = 0; rank < c.ranks; rank++)
        for (int backward = 0; backward < 2; backward++) {
            ra_stats got = ask_stats(problem, rank, backward);
            census_check(&c, problem, rank, backward, &got);
        }
    census_close(&c);
}
