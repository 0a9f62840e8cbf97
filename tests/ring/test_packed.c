/* SPDX-License-Identifier: Apache-2.0 */
/* test_packed.c - packed sequences: each is a problem of its own, whatever else is in the tensors.
 * The conformance grid compares them with the oracle; here they are compared with the same
 * sequences one by one. */
#include <math.h>
#include <stdlib.h>

#include "support/fixture.h"

enum { HEADS = 4, KV_HEADS = 2, DIM = 8, Q_ROW = HEADS * DIM, K_ROW = KV_HEADS * DIM };

static void expect_near(const char *what, const float *got, const float *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (isinf(want[i]) && got[i] == want[i]) continue;
        if (!(fabsf(got[i] - want[i]) <= 2e-5f))
            fail_msg("%s: number %d is %g, not %g", what, (int)i, (double)got[i], (double)want[i]);
    }
}

static float *waves(int64_t count, float step)
{
    float *numbers = malloc((size_t)count * sizeof *numbers);
    assert_non_null(numbers);
    for (int64_t i = 0; i < count; i++) numbers[i] = sinf(step * (float)i);
    return numbers;
}

static ra_problem small_problem(const ra_pattern *pattern, int64_t queries, int64_t keys)
{
    ra_problem problem = ra_problem_default();
    problem.pattern = pattern;
    problem.q_len = queries;
    problem.k_len = keys ? keys : RA_NO_KEYS;
    problem.q_heads = HEADS;
    problem.kv_heads = KV_HEADS;
    problem.dim = DIM;
    return problem;
}

/* Queries and keys of some sequences, with gaps between them, and the results. */
struct packed {
    const ra_sequence *sequences;
    int count;
    int64_t q_len, k_len;
    ra_pattern *pattern;
    float *q, *k, *v, *out, *lse;
};

static void packed_open(struct packed *p, const char *pattern)
{
    assert_ok(ra_pattern_parse(pattern, &p->pattern));
    p->q = waves(p->q_len * Q_ROW, 0.7f);
    p->k = waves(p->k_len * K_ROW, 1.1f);
    p->v = waves(p->k_len * K_ROW, 1.9f);
    p->out = waves(p->q_len * Q_ROW, 1.0f);
    p->lse = waves(p->q_len * HEADS, 1.0f);
}

static void packed_close(struct packed *p)
{
    ra_pattern_destroy(p->pattern);
    free(p->q);
    free(p->k);
    free(p->v);
    free(p->out);
    free(p->lse);
}

/* Every sequence alone gives what is in the results; queries of none have 0 and -inf. */
static void packed_expect_parts(const struct packed *p)
{
    float *out = calloc((size_t)(p->q_len * Q_ROW), sizeof *out);
    float *lse = malloc((size_t)(p->q_len * HEADS) * sizeof *lse);
    assert_true(out && lse);
    for (int64_t i = 0; i < p->q_len * HEADS; i++) lse[i] = -INFINITY;
    for (int i = 0; i < p->count; i++) {
        const ra_sequence *s = &p->sequences[i];
        if (s->q_count == 0 || s->k_count == 0) continue;
        const ra_problem one = small_problem(p->pattern, s->q_count, s->k_count);
        assert_ok(ra_attention(&one, p->q + s->q_first * Q_ROW, p->k + s->k_first * K_ROW,
                               p->v + s->k_first * K_ROW, out + s->q_first * Q_ROW,
                               lse + s->q_first * HEADS));
    }
    expect_near("out", p->out, out, p->q_len * Q_ROW);
    expect_near("lse", p->lse, lse, p->q_len * HEADS);
    free(out);
    free(lse);
}

static const char *const patterns[] = { "full",
                                        "causal",
                                        "window:5,1",
                                        "dilated:4/1,8/2",
                                        "blocks:4;random=0.5;seed=2",
                                        "blocks:3;local=1;causal" };

static void each_is_a_problem_of_its_own(void **state)
{
    (void)state;
    static const ra_sequence sequences[] = {
        { 0, 9, 0, 9 }, { 9, 3, 9, 20 }, { 12, 0, 29, 4 }, { 12, 5, 33, 0 }, { 17, 12, 33, 30 }
    };
    /* The same with other queries and keys between them. */
    static const ra_sequence apart[] = {
        { 2, 9, 1, 9 }, { 11, 3, 10, 20 }, { 15, 0, 33, 4 }, { 15, 5, 37, 0 }, { 25, 12, 40, 30 }
    };
    for (int i = 0; i < TEST_COUNT(patterns); i++)
        for (int gaps = 0; gaps < 2; gaps++) {
            struct packed p = { .sequences = gaps ? apart : sequences,
                                .count = TEST_COUNT(sequences),
                                .q_len = gaps ? 40 : 29,
                                .k_len = gaps ? 75 : 63 };
            packed_open(&p, patterns[i]);
            ra_problem problem = small_problem(p.pattern, p.q_len, p.k_len);
            problem.sequences = p.sequences;
            problem.sequence_count = p.count;
            assert_ok(ra_attention(&problem, p.q, p.k, p.v, p.out, p.lse));
            packed_expect_parts(&p);
            packed_close(&p);
        }
}

enum { ITEMS = 3 };

/* A decoding cache [item, capacity], whose items have lengths of their own that grow. */
struct growth {
    int64_t capacity, start[ITEMS], more;
};

/* One step with a state that has sequences. */
static void decode_step(ra_state *cache, const struct packed *p, float *out, float *lse)
{
    const ra_const_tensor q = ra_const_tensor_packed(p->q), k = ra_const_tensor_packed(p->k),
                          v = ra_const_tensor_packed(p->v);
    const ra_tensor to = ra_tensor_packed(out);
    assert_ok(ra_state_set_sequences(cache, p->sequences));
    assert_ok(ra_state_init(cache));
    assert_ok(ra_state_fold(cache, &q, &k, &v, 0, p->k_len));
    assert_ok(ra_state_finish(cache, &to, lse));
}

static void grow_cache(const char *pattern, const struct growth *growth, ra_group *group)
{
    ra_sequence sequences[ITEMS];
    struct packed p = {
        .sequences = sequences, .count = ITEMS, .q_len = ITEMS, .k_len = ITEMS * growth->capacity
    };
    float out[ITEMS * Q_ROW], lse[ITEMS * HEADS];
    for (int64_t item = 0; item < ITEMS; item++)
        sequences[item] = (ra_sequence){ item, 1, item * growth->capacity, growth->start[item] };
    packed_open(&p, pattern);
    ra_problem problem = small_problem(p.pattern, p.q_len, p.k_len);
    problem.sequences = sequences;
    problem.sequence_count = ITEMS;
    ra_state *caches[2]; /* with the threads of a group, and with one */
    for (int i = 0; i < 2; i++) assert_ok(ra_state_create(&problem, NULL, &caches[i]));
    assert_ok(ra_state_use_group(caches[0], group));
    const bool more_runs = strchr(pattern, ':') != NULL; /* with more keys, in longer lists */
    size_t held = 0;
    for (int token = 0; token < 7; token++) {
        decode_step(caches[0], &p, p.out, p.lse);
        packed_expect_parts(&p);
        decode_step(caches[1], &p, out, lse);
        assert_memory_equal(out, p.out, sizeof out);
        assert_memory_equal(lse, p.lse, sizeof lse);
        if (token == 0 || more_runs) held = ra_allocated_bytes();
        assert_int_equal(ra_allocated_bytes(), held);
        for (int item = 0; item < ITEMS; item++) sequences[item].k_count += growth->more;
    }
    for (int i = 0; i < 2; i++) ra_state_destroy(caches[i]);
    packed_close(&p);
}

/* Keys of the long one are split. Neither threads nor growing change a bit, or take memory. */
static void a_cache_has_a_length_for_each_item(void **state)
{
    (void)state;
    static const struct growth growths[] = { { 24, { 1, 17, 5 }, 1 },
                                             { 2000, { 1, 300, 40 }, 270 } };
    const ra_group_options options = { .size = sizeof options, .threads = 3 };
    ra_group *group;
    assert_ok(ra_group_create_local(1, &options, &group));
    for (int i = 0; i < TEST_COUNT(patterns); i++)
        for (int g = 0; g < TEST_COUNT(growths); g++)
            grow_cache(patterns[i], &growths[g], group);
    ra_group_destroy(group);
}

/* Queries somewhere in the middle give what they give among all queries. */
static void an_offset_moves_queries(void **state)
{
    (void)state;
    enum { ALL = 30, SOME = 7, FIRST = 11 };
    for (int i = 0; i < TEST_COUNT(patterns); i++) {
        struct packed p = { .q_len = ALL, .k_len = ALL };
        float out[SOME * Q_ROW], lse[SOME * HEADS];
        packed_open(&p, patterns[i]);
        ra_problem problem = small_problem(p.pattern, ALL, ALL);
        assert_ok(ra_attention(&problem, p.q, p.k, p.v, p.out, p.lse));
        problem.q_len = SOME;
        problem.query_offset = FIRST - (ALL - SOME);
        assert_ok(ra_attention(&problem, p.q + FIRST * Q_ROW, p.k, p.v, out, lse));
        expect_near("out", out, p.out + FIRST * Q_ROW, SOME * Q_ROW);
        expect_near("lse", lse, p.lse + FIRST * HEADS, SOME * HEADS);
        packed_close(&p);
    }
}

/* On a ring each sequence is divided over all ranks. */
static void rings_divide_each(void **state)
{
    (void)state;
    static const char *const ways[] = { "ring=3 zigzag", "ring=4 striped allgather",
                                        "ring=2 ulysses", "ring=4 2d:2x2 zigzag", "stream:16" };
    static const enum tensor results[] = { TENSOR_OUT, TENSOR_LSE, TENSOR_DQ, TENSOR_DK,
                                           TENSOR_DV };
    for (int w = 0; w < TEST_COUNT(ways); w++)
        for (int i = 0; i < TEST_COUNT(patterns); i++) {
            static const char *const format = "%s seqs=24/24,6/30,0/4,9/9 h=4/2 d=8 %s backward";
            struct fixture ring, alone;
            fixture_open(&ring, format, patterns[i], ways[w]);
            fixture_open(&alone, format, patterns[i], "ring=1");
            fixture_run(&ring);
            fixture_run(&alone);
            for (int r = 0; r < TEST_COUNT(results); r++) {
                const float *got = (const float *)(const void *)ring.whole[results[r]].data;
                const float *want = (const float *)(const void *)alone.whole[results[r]].data;
                expect_near(ring.line, got, want, fixture_count(&ring, results[r]));
            }
            fixture_close(&ring);
            fixture_close(&alone);
        }
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static ra_status row_of(const ra_problem *problem)
{
    uint8_t seen[64];
    return ra_problem_row(problem, 0, 0, seen);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const struct {
        ra_sequence at[2];
        const char *says;
    } wrong[] = {
        { { { 0, 4, 0, 4 }, { 3, 4, 4, 4 } },
          "sequence 1 has 4 queries from 3 on; they must be after the first 4" },
        { { { 0, 4, 0, 4 }, { 4, 4, 2, 4 } }, "sequence 1 has 4 keys from 2 on" },
        { { { 0, 4, 0, 4 }, { 4, 9, 4, 4 } }, "sequence 1 has 9 queries" },
        { { { 0, -1, 0, 4 }, { 4, 4, 4, 4 } }, "sequence 0 has -1 queries" },
        { { { 0, 4, 0, INT64_MAX }, { 4, 4, 4, 4 } }, "sequence 0 has 9223372036854775807 keys" },
    };
    for (int i = 0; i < TEST_COUNT(wrong); i++) {
        ra_problem problem = small_problem(NULL, 8, 8);
        problem.sequences = wrong[i].at;
        problem.sequence_count = 2;
        assert_fails(RA_ERR_ARGUMENT, wrong[i].says, row_of(&problem));
    }
    const ra_sequence two[] = { { 0, 5, 0, 3 }, { 5, 3, 3, 5 } };
    ra_problem problem = small_problem(NULL, 8, 8);
    problem.sequence_count = 2;
    assert_fails(RA_ERR_ARGUMENT, "there is no array", row_of(&problem));
    problem.sequences = two;
    problem.sequence_count = 0;
    assert_fails(RA_ERR_ARGUMENT, "there is an array", row_of(&problem));
    problem.sequence_count = -1;
    assert_fails(RA_ERR_ARGUMENT, "-1 of them", row_of(&problem));
    problem.sequence_count = 2;
    ra_pattern *dilated;
    assert_ok(ra_pattern_parse("dilated:4/2", &dilated));
    problem.pattern = dilated;
    assert_fails(RA_ERR_UNSUPPORTED, "more queries (5) than keys (3)", row_of(&problem));
    ra_pattern_destroy(dilated);
    problem.pattern = NULL;
    ra_order *order;
    assert_ok(ra_order_parse("shuffled:1", 8, &order));
    problem.order = order;
    assert_fails(RA_ERR_UNSUPPORTED, "order: it is for one sequence", row_of(&problem));
    problem.sequences = NULL;
    problem.sequence_count = 0;
    problem.query_offset = 1;
    assert_fails(RA_ERR_UNSUPPORTED, "order: query_offset must be 0", row_of(&problem));
    ra_order_destroy(order);
}

static void offsets_out_of_range_are_refused(void **state)
{
    (void)state;
    ra_problem problem = small_problem(NULL, 4, 8);
    problem.query_offset = INT64_MAX;
    assert_fails(RA_ERR_ARGUMENT, "query_offset is 9223372036854775807", row_of(&problem));
    static const char *const inside[] = { "prefix:2", "dilated:4/2", "blocks:2;local=1" };
    for (int i = 0; i < TEST_COUNT(inside); i++) {
        ra_pattern *pattern;
        assert_ok(ra_pattern_parse(inside[i], &pattern));
        problem.pattern = pattern;
        problem.query_offset = -4;
        assert_ok(row_of(&problem));
        problem.query_offset = -5;
        assert_fails(RA_ERR_UNSUPPORTED, "queries at positions -1 to 2", row_of(&problem));
        problem.query_offset = 1;
        assert_fails(RA_ERR_UNSUPPORTED, "positions 5 to 8, where the keys are at 0 to 7",
                     row_of(&problem));
        ra_pattern_destroy(pattern);
    }
}

/* Also where no sequence has both queries and keys. */
static void a_wrong_pattern_is_refused_always(void **state)
{
    (void)state;
    static const char *const wrong[] = { "blocks:0;random=0.5", "blocks:8;seed=3" };
    const ra_sequence blind = { 0, 4, 0, 0 };
    for (int i = 0; i < TEST_COUNT(wrong); i++) {
        ra_pattern *pattern;
        ra_plan *plan;
        assert_ok(ra_pattern_parse(wrong[i], &pattern));
        ra_problem problem = small_problem(pattern, 4, 0);
        problem.sequences = &blind;
        problem.sequence_count = 1;
        assert_fails(RA_ERR_ARGUMENT, "pattern blocks",
                     ra_plan_create(NULL, &problem, NULL, &plan));
        ra_pattern_destroy(pattern);
    }
}

static void a_state_keeps_its_kind(void **state)
{
    (void)state;
    const ra_sequence two[] = { { 0, 1, 0, 4 }, { 1, 1, 4, 4 } };
    ra_problem problem = small_problem(NULL, 2, 8);
    ra_state *plain, *packed;
    assert_ok(ra_state_create(&problem, NULL, &plain));
    problem.sequences = two;
    problem.sequence_count = 2;
    assert_ok(ra_state_create(&problem, NULL, &packed));
    assert_fails(RA_ERR_ARGUMENT, "without sequences", ra_state_set_sequences(plain, two));
    assert_fails(RA_ERR_ARGUMENT, "by ra_state_set_sequences()", ra_state_set_keys(packed, 9));
    assert_fails(RA_ERR_ARGUMENT, "NULL", ra_state_set_sequences(packed, NULL));
    const ra_sequence beyond[] = { { 0, 1, 0, 4 }, { 1, 1, 4, 5 } };
    assert_fails(RA_ERR_ARGUMENT, "sequence 1 has 5 keys", ra_state_set_sequences(packed, beyond));
    ra_state_destroy(plain);
    ra_state_destroy(packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_a_problem_of_its_own),
        cmocka_unit_test(a_cache_has_a_length_for_each_item),
        cmocka_unit_test(an_offset_moves_queries),
        cmocka_unit_test(rings_divide_each),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(offsets_out_of_range_are_refused),
        cmocka_unit_test(a_wrong_pattern_is_refused_always),
        cmocka_unit_test(a_state_keeps_its_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
