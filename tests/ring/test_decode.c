/* SPDX-License-Identifier: Apache-2.0 */
/* test_decode.c - few queries at the end of many keys that are distributed over ranks: by plans,
 * and token by token with states that the ranks fold and merge. Both give what one pass over the
 * whole sequence gives for the same queries. */
#include "support/expect.h"
#include "support/walk.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/half.h"

static const char *const patterns[] = {
    "causal",
    "window:9",
    "dilated:8/1,32/2,61/3;causal",
    "dilated:16/2,40/3;dedup;causal",
    "dilated:16/1,61/2,61/4;groups;causal",
    "blocks:8;local=1;global=1;causal",
    "blocks:5;strided=3;causal",
    "blocks:4;random=0.3;seed=7;causal",
};
static const char *const dtypes[] = { "f32", "bf16", "f16" };

enum { KEYS = 61 };
#define SHAPE "h=4/2 d=8 dv=12"

/* ---- Plans ----------------------------------------------------------------------------------- */

/* The last queries of `from` become those of `to`. */
static void take_queries(const struct fixture *from, struct fixture *to)
{
    int64_t skipped = from->trial.q_len - to->trial.q_len;
    const struct view *q = &to->whole[TENSOR_Q];
    for (int64_t i = 0; i < to->trial.q_len; i++)
        for (int64_t h = 0; h < to->trial.q_heads; h++)
            memcpy(view_row(q, 0, i, h), view_row(&from->whole[TENSOR_Q], 0, skipped + i, h),
                   (size_t)q->dim * (q->dtype == RA_F32 ? 4 : 2));
}

/* How far two outputs may be apart, with values up to 1: each is rounded, and its weights may
 * be. */
static double apart(const struct fixture *fixture)
{
    return 4.0 * half_unit((ra_dtype)fixture->trial.dtype) + 2e-6;
}

/* The rows of `some` are the last ones of `all`: with the same bits, or all but rounding. */
static void expect_rows(const struct fixture *all, const struct fixture *some, bool same_bits)
{
    static const enum tensor results[] = { TENSOR_OUT, TENSOR_LSE };
    const struct trial *t = &some->trial;
    for (int r = 0; r < TEST_COUNT(results); r++)
        for (int64_t row = 0; row < t->q_len * t->q_heads; row++)
            for (int64_t d = 0; d < tensor_dim(t, results[r]); d++) {
                int64_t q = row / t->q_heads, h = row % t->q_heads;
                double want = fixture_number(all, results[r], 0, KEYS - t->q_len + q, h, d);
                double got = fixture_number(some, results[r], 0, q, h, d);
                double allowed = same_bits ? 0.0 : results[r] == TENSOR_LSE ? 2e-6 : apart(some);
                if (got != want && !(fabs(got - want) <= allowed))
                    fixture_fail(some, "%s of query %lld: %.9g, but %.9g in one pass",
                                 tensor_name(results[r]), (long long)q, got, want);
            }
}

static void run_decode(const struct fixture *all, const char *pattern, int queries, const char *way)
{
    struct fixture fixture;
    bool gathers = strstr(way, "allgather");
    fixture_open(&fixture, "%s n=%d nk=%d " SHAPE " %s", pattern, queries, KEYS, way);
    take_queries(all, &fixture);
    fixture_run(&fixture);
    expect_rows(all, &fixture, gathers);
    fixture_close(&fixture);
}

/* A row has the same bits whichever rows are computed beside it, where all its keys come at
 * once. */
static void plans_decode_what_one_pass_computes(void **state)
{
    (void)state;
    static const int queries[] = { 1, 2, 7 };
    ra_part partition, strategy, kernel;
    char way[128];
    int turn = 0;
    for (int i = 0; i < TEST_COUNT(patterns); i++)
        for (int k = 0; walk_usable("kernel", k, &kernel); k++) {
            struct fixture all;
            const char *dtype = walk_dtype(&kernel, 0);
            fixture_open(&all, "%s n=%d " SHAPE " %s kernel=%s", patterns[i], KEYS, dtype,
                         kernel.name);
            fixture_run(&all);
            for (int p = 0; walk_usable("partition", p, &partition); p++)
                for (int s = 0; walk_usable("strategy", s, &strategy); s++)
                    for (int r = 0; r < TEST_COUNT(walk_ranks); r++) {
                        if (turn++ % (test_long() ? 1 : 5)) continue;
                        snprintf(way, sizeof way, "%s ring=%d %s %s kernel=%s", dtype,
                                 walk_ranks[r], partition.name, strategy.name, kernel.name);
                        run_decode(&all, patterns[i], queries[turn / 5 % 3], way);
                    }
            fixture_close(&all);
        }
}

/* Backward too, in every dtype, against the oracle; with terms that go by position. */
static void plans_decode_backward(void **state)
{
    (void)state;
    static const char *const terms[] = { "", "alibi", "sinks softcap=9", "bias=heads dropout=0.2" };
    ra_part partition, strategy;
    int turn = 0;
    for (int i = 0; i < TEST_COUNT(patterns); i++) {
        for (int p = 0; walk_usable("partition", p, &partition); p++)
            for (int s = 0; walk_usable("strategy", s, &strategy); s++)
                for (int r = 0; r < TEST_COUNT(walk_ranks); r++) {
                    struct fixture fixture;
                    if (turn++ % (test_long() ? 1 : 5)) continue;
                    fixture_open(&fixture,
                                 "%s n=%d nk=%d " SHAPE " b=2 %s %s ring=%d %s %s backward",
                                 patterns[i], turn % 2 ? 1 : 6, KEYS, dtypes[i % 3],
                                 terms[turn / 2 % 4], walk_ranks[r], partition.name,
                                 walk_strategy(&strategy, terms[turn / 2 % 4]));
                    fixture_run(&fixture);
                    expect_lab(&fixture);
                    fixture_close(&fixture);
                }
        expect_forget();
    }
}

/* One query whose KV heads, side by side in memory, are read together where nothing comes to the
 * scores, and one after the other where something does. Against the oracle. */
static void one_query_of_many_kv_heads(void **state)
{
    (void)state;
    static const char *const terms[] = { "", "alibi", "sinks softcap=9", "dropout=0.2",
                                         "bias=heads dropout=0.2" };
    static const char *const heads[] = { "5", "15/5" };
    const char *dtype;
    ra_part kernel;
    for (int k = 0; walk_kernel(k, &kernel, &dtype); k++)
        for (int t = 0; t < TEST_COUNT(terms); t++)
            for (int n = 0; n < 4; n++) {
                struct fixture fixture;
                fixture_open(&fixture,
                             "causal n=1 nk=700 h=%s d=19 dv=32 b=2 %s %s ring=%d kernel=%s",
                             heads[n / 2], dtype, terms[t], 1 + n % 2, kernel.name);
                fixture_run(&fixture);
                expect_lab(&fixture);
                fixture_close(&fixture);
            }
    expect_forget();
}

/* More query heads of one query than a job is made smaller for: with several threads, which would
 * have less to do each. In one KV head, or in several that are read together. */
static void one_query_of_many_heads(void **state)
{
    (void)state;
    static const char *const shapes[] = { "n=1 nk=700 h=32/1 d=8 threads=3",
                                          "n=2 nk=300 h=64/1 d=8 b=2 threads=3",
                                          "n=1 nk=66000 h=24/8 d=8 threads=2" };
    const char *dtype;
    ra_part kernel;
    for (int k = 0; walk_kernel(k, &kernel, &dtype); k++)
        for (int i = 0; i < TEST_COUNT(shapes); i++) {
            struct fixture fixture;
            fixture_open(&fixture, "full %s %s kernel=%s", shapes[i], dtype, kernel.name);
            fixture_run(&fixture);
            expect_lab(&fixture);
            fixture_close(&fixture);
        }
    expect_forget();
}

/* So many keys that they are split. Against the oracle; rings, partitions, strategies, dtypes and
 * terms in rotation. */
static void many_keys_are_split(void **state)
{
    (void)state;
    static const char *const shapes[] = { "n=1 nk=32768 h=4 d=16", "n=3 nk=40707 h=4/2 d=8",
                                          "n=5 nk=66000 h=3/1 d=5 dv=3 b=2" };
    static const char *const terms[] = { "", "alibi", "sinks softcap=9", "bias=heads dropout=0.2" };
    char sample[96];
    ra_part partition, strategy;
    int turn = 0;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int s = 0; s < TEST_COUNT(shapes); s++, turn++) {
            struct fixture fixture;
            const char *more = terms[turn / 3 % TEST_COUNT(terms)];
            if (test_slow() && turn % 5) continue;
            walk_turn("partition", turn, &partition);
            walk_turn("strategy", turn / 2, &strategy);
            fixture_open(&fixture, "%s;causal %s %s %s ring=%d %s %s threads=%d", sample, shapes[s],
                         dtypes[turn % 3], more, 1 + turn % 3, partition.name,
                         walk_strategy(&strategy, more), 1 + turn % 2);
            fixture_run(&fixture);
            expect_lab(&fixture);
            fixture_close(&fixture);
        }
    expect_forget();
}

/* Key splits follow from the problem: neither threads nor ranks that have all keys change a bit. */
static void stretches_do_not_know_threads_or_ranks(void **state)
{
    (void)state;
    static const char *const ways[] = { "threads=2", "threads=3", "ring=3 allgather" };
    ra_part kernel;
    for (int k = 0; walk_usable("kernel", k, &kernel); k++) {
        struct fixture alone, other;
        char problem[128];
        snprintf(problem, sizeof problem, "causal n=1 nk=33000 h=4 d=16 sinks %s kernel=%s",
                 walk_dtype(&kernel, 0), kernel.name);
        fixture_open(&alone, "%s threads=1", problem);
        fixture_run(&alone);
        expect_lab(&alone);
        for (int i = 0; i < TEST_COUNT(ways); i++) {
            fixture_open(&other, "%s %s", problem, ways[i]);
            fixture_run(&other);
            if (!fixture_same(&alone, &other, TENSOR_OUT) ||
                !fixture_same(&alone, &other, TENSOR_LSE))
                fixture_fail(&other, "other bits than with one thread and one rank");
            fixture_close(&other);
        }
        fixture_close(&alone);
    }
    expect_forget();
}

/* ---- States, token by token ------------------------------------------------------------------ */

/* Keys come one by one and stay with rank (key / 3) mod ranks; every rank keeps one state. */
struct cache {
    const struct fixture *all; /* q, k, v, and what one pass gives */
    int ranks;
    int64_t queries, keys; /* of this token */
    const float *sinks;
    ra_state *states[8];
    float out[8][7 * 4 * 12], lse[8][7 * 4]; /* as each rank has them; out in the dtype */
};

static ra_const_tensor rows_from(const struct view *view, int64_t position)
{
    ra_const_tensor t = view_input(view);
    t.data = view_row(view, 0, position, 0);
    return t;
}

/* Ranges of own keys, then the sum over the ranks. */
static ra_status fold_token(ra_group *group, void *context)
{
    struct cache *c = context;
    int rank = ra_group_rank(group);
    ra_state *state = c->states[rank];
    ra_const_tensor q = rows_from(&c->all->whole[TENSOR_Q], c->keys - c->queries);
    ra_status status = ra_state_init(state);
    if (status == RA_OK) status = ra_state_set_keys(state, c->keys);
    for (int64_t first = 3 * rank; first < c->keys && status == RA_OK; first += 3 * c->ranks) {
        ra_const_tensor k = rows_from(&c->all->whole[TENSOR_K], first);
        ra_const_tensor v = rows_from(&c->all->whole[TENSOR_V], first);
        status = ra_state_fold(state, &q, &k, &v, first, c->keys - first < 3 ? c->keys - first : 3);
    }
    if (status == RA_OK) status = ra_state_reduce(state, group);
    ra_tensor out = ra_tensor_packed(c->out[rank]);
    if (status != RA_OK) return status;
    return c->sinks ? ra_state_finish_sinks(state, c->sinks, &out, c->lse[rank])
                    : ra_state_finish(state, &out, c->lse[rank]);
}

static void check_token(const struct cache *c)
{
    const struct trial *t = &c->all->trial;
    const ra_dtype dtype = (ra_dtype)t->dtype;
    const int64_t numbers = c->queries * t->q_heads * t->value_dim;
    float out[7 * 4 * 12];
    half_to_float(dtype, c->out[0], numbers, out);
    for (int64_t row = 0; row < c->queries * t->q_heads; row++) {
        int64_t q = c->keys - c->queries + row / t->q_heads, h = row % t->q_heads;
        double lse = fixture_number(c->all, TENSOR_LSE, 0, q, h, 0), got = (double)c->lse[0][row];
        bool good = got == lse || fabs(got - lse) <= 4e-6;
        for (int64_t d = 0; d < t->value_dim; d++)
            good &= fabs((double)out[row * t->value_dim + d] -
                         fixture_number(c->all, TENSOR_OUT, 0, q, h, d)) <= apart(c->all);
        if (!good)
            fixture_fail(c->all, "token %lld by states on %d ranks: head %d differs", (long long)q,
                         c->ranks, (int)h);
    }
    for (int rank = 1; rank < c->ranks; rank++) {
        assert_memory_equal(c->out[rank], c->out[0], (size_t)numbers * half_bytes(dtype));
        assert_memory_equal(c->lse[rank], c->lse[0],
                            (size_t)(c->queries * t->q_heads) * sizeof(float));
    }
}

static void decode_all(struct cache *c, ra_group *const *groups, const char *kernel)
{
    ra_problem problem = trial_problem(&c->all->trial);
    problem.pattern = c->all->pattern;
    problem.q_len = c->queries;
    for (int i = 0; i < c->ranks; i++) assert_ok(ra_state_create(&problem, kernel, &c->states[i]));
    for (c->keys = c->queries; c->keys <= KEYS; c->keys += c->queries) {
        assert_ok(ra_group_run(groups, c->ranks, fold_token, c));
        check_token(c);
    }
    for (int i = 0; i < c->ranks; i++) ra_state_destroy(c->states[i]);
}

/* The sequence is gone through with 1 or 7 tokens at a time. */
static void states_decode_what_one_pass_computes(void **state)
{
    (void)state;
    static const char *const terms[] = { "", "alibi", "softcap=2", "sinks" };
    static struct cache cache;
    ra_part kernel;
    int turn = 0;
    for (int i = 0; i < TEST_COUNT(patterns); i++)
        for (int k = 0; walk_usable("kernel", k, &kernel); k++, turn++) {
            int ranks = walk_ranks[turn % 7];
            ra_group *groups[8];
            struct fixture all;
            fixture_open(&all, "%s n=%d " SHAPE " %s %s kernel=%s", patterns[i], KEYS,
                         walk_dtype(&kernel, 0), terms[turn / 2 % 4], kernel.name);
            fixture_run(&all);
            assert_ok(ra_group_create_local(ranks, NULL, groups));
            cache = (struct cache){
                .all = &all, .ranks = ranks, .queries = turn % 2 ? 1 : 7, .sinks = all.terms.sinks
            };
            decode_all(&cache, groups, kernel.name);
            for (int r = 0; r < ranks; r++) ra_group_destroy(groups[r]);
            fixture_close(&all);
            assert_int_equal(ra_allocated_bytes(), 0);
        }
}

/* What was folded stays when the cache grows: queries that see all keys need only the new ones. */
static void a_cache_grows(void **state)
{
    (void)state;
    struct fixture all;
    ra_state *grown;
    float out[KEYS * 4 * 12], lse[KEYS * 4];
    ra_tensor result = ra_tensor_packed(out);
    fixture_open(&all, "full n=%d " SHAPE, KEYS);
    fixture_run(&all);
    ra_problem problem = trial_problem(&all.trial);
    problem.k_len = 1;
    assert_ok(ra_state_create(&problem, NULL, &grown));
    ra_const_tensor q = view_input(&all.whole[TENSOR_Q]);
    for (int64_t keys = 0, more = 1; keys < KEYS; keys += more, more = more % 9 + 2) {
        if (more > KEYS - keys) more = KEYS - keys;
        ra_const_tensor k = rows_from(&all.whole[TENSOR_K], keys),
                        v = rows_from(&all.whole[TENSOR_V], keys);
        assert_ok(ra_state_set_keys(grown, keys + more));
        assert_ok(ra_state_fold(grown, &q, &k, &v, keys, more));
    }
    assert_ok(ra_state_finish(grown, &result, lse));
    for (int64_t i = 0; i < fixture_count(&all, TENSOR_OUT); i++)
        assert_true(fabsf(out[i] - ((float *)(void *)all.whole[TENSOR_OUT].data)[i]) <= 2e-6f);
    ra_state_destroy(grown);
    fixture_close(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_decode_what_one_pass_computes),
        cmocka_unit_test(plans_decode_backward),
        cmocka_unit_test(one_query_of_many_kv_heads),
        cmocka_unit_test(one_query_of_many_heads),
        cmocka_unit_test(many_keys_are_split),
        cmocka_unit_test(stretches_do_not_know_threads_or_ranks),
        cmocka_unit_test(states_decode_what_one_pass_computes),
        cmocka_unit_test(a_cache_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
