/* SPDX-License-Identifier: Apache-2.0 */
/* test_terms.c - score terms in rings: softcap, ALiBi, bias, sinks and dropout must not depend on
 * which rank computes a row, in which order its keys arrive, or where they are stored. Against the
 * oracle, and directly: what was dropped is read off the output, sinks follow from the result
 * without them, and a bias can express a pattern or ALiBi. */
#include "support/expect.h"
#include "support/walk.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/half.h"
#include "harness/base/philox.h"
#include "harness/grid/gridlist.h"
#include "harness/oracle/mask.h"

/* Every how many-th point of a grid is run; shares no factor with the length of a list. */
static int stride(void) { return test_long() ? 1 : test_slow() ? 61 : 23; }

/* ---- Against the oracle ---------------------------------------------------------------------- */

static const char *const patterns[] = {
    "full",
    "causal",
    "window:9,3",
    "dilated:8/1,16/2,67/3",
    "dilated:30/2,67/5;dedup;causal",
    "blocks:8;local=1;global=1;random=0.1",
    "causal order=hilbert",
    "dilated:8/2,20/3;causal order=shuffled:3",
};

/* Every partition, strategy and rank count, some of them. */
static void run_rings(const char *problem, int *turn)
{
    ra_part partition, strategy, kernel;
    for (int p = 0; walk_usable("partition", p, &partition); p++)
        for (int s = 0; walk_usable("strategy", s, &strategy); s++)
            for (int r = 0; r < TEST_COUNT(walk_ranks); r++) {
                struct fixture fixture;
                if (++*turn % stride()) continue;
                int kernels = 0;
                while (walk_usable("kernel", kernels, &kernel)) kernels++;
                walk_usable("kernel", *turn / stride() % kernels, &kernel);
                fixture_open(&fixture, "%s %s ring=%d %s %s kernel=%s threads=%d backward", problem,
                             walk_dtype(&kernel, *turn / stride() / kernels), walk_ranks[r],
                             partition.name, walk_strategy(&strategy, problem), kernel.name,
                             1 + *turn % 2);
                fixture_run(&fixture);
                expect_lab(&fixture);
                fixture_close(&fixture);
            }
}

static void terms_round_rings(void **state)
{
    (void)state;
    int turn = 0;
    char problem[256];
    for (int p = 0; p < TEST_COUNT(patterns); p++)
        for (int i = 0; i < GRID_SCORE_TERMS; i++) {
            snprintf(problem, sizeof problem, "%s n=67 h=4/2 d=12 dv=8 b=2 %s", patterns[p],
                     grid_score_terms[i]);
            run_rings(problem, &turn);
            expect_forget();
        }
}

/* ---- Dropout, read off the output ------------------------------------------------------------ */

enum { N = 48, HEADS = 4 };

static float *floats(const struct fixture *fixture, enum tensor tensor)
{
    return (float *)(void *)fixture->whole[tensor].data;
}

static void put_number(const struct fixture *fixture, enum tensor tensor, int64_t i, float x)
{
    ra_dtype dtype = (ra_dtype)fixture->trial.dtype;
    half_from_float(dtype, &x, 1, fixture->whole[tensor].data + (size_t)i * half_bytes(dtype));
}

/* Q = 0 makes all scores alike; V of key j and dOut of query i are the unit vectors of j and i.
 * Then out[i][j] and dV[j][i] are 0 where the key was dropped, and nowhere else. */
static void make_unit_vectors(struct fixture *fixture)
{
    static const enum tensor units[] = { TENSOR_V, TENSOR_DOUT };
    memset(fixture->whole[TENSOR_Q].data, 0, fixture_bytes(fixture, TENSOR_Q));
    memset(fixture->whole[TENSOR_DLSE].data, 0, fixture_bytes(fixture, TENSOR_DLSE));
    for (int t = 0; t < TEST_COUNT(units); t++)
        for (int64_t i = 0; i < fixture_count(fixture, units[t]); i++) {
            int64_t row = i / fixture->trial.value_dim / tensor_heads(&fixture->trial, units[t]);
            int64_t position = row % tensor_length(&fixture->trial, units[t]);
            put_number(fixture, units[t], i,
                       i % fixture->trial.value_dim == position ? 1.0f : 0.0f);
        }
}

/* The formula of the generator: by original positions, and by the global query head. */
static bool kept(const struct trial *t, int64_t batch, int64_t head, int64_t position, int64_t key)
{
    const uint32_t counter[4] = { (uint32_t)(key / 4), (uint32_t)position, (uint32_t)head,
                                  (uint32_t)batch };
    return (double)philox_word((uint64_t)t->seed, counter, (int)(key % 4)) >= t->dropout * 0x1p32;
}

/* One row: a kept weight has its fraction of the sum, a dropped one has none. A number is rounded
 * to the dtype, and its weight may have been before. */
static void check_row(const struct fixture *fixture, const struct mask *mask, int64_t batch,
                      int64_t query, int64_t head)
{
    const struct trial *t = &fixture->trial;
    int64_t position = query + t->k_len - t->q_len, total = 0;
    double unit = half_unit((ra_dtype)t->dtype), lost = (2.0 + unit) * unit;
    for (int64_t key = 0; key < t->k_len; key++) total += mask_count(mask, head, position, key);
    for (int64_t key = 0; key < t->k_len; key++) {
        double share = (double)mask_count(mask, head, position, key) / (double)(total ? total : 1);
        double want = kept(t, batch, head, position, key) ? share / (1.0 - t->dropout) : 0.0;
        double out = fixture_number(fixture, TENSOR_OUT, batch, query, head, key);
        double dv = fixture_number(fixture, TENSOR_DV, batch, key, head, query);
        if ((out != 0.0) != (want != 0.0) || (dv != 0.0) != (want != 0.0))
            fixture_fail(fixture, "head %d, query %d, key %d: %s, but out says %g and dv %g",
                         (int)head, (int)query, (int)key,
                         want != 0.0 ? "kept" : "dropped or not seen", out, dv);
        if (fabs(out - want) > 1e-6 + lost * want || fabs(dv - want) > 1e-6 + lost * want)
            fixture_fail(fixture, "head %d, query %d, key %d: weight %g (dv %g), not %g", (int)head,
                         (int)query, (int)key, out, dv, want);
    }
}

static void check_dropout(const char *problem)
{
    struct fixture fixture;
    struct mask mask;
    fixture_open(&fixture, "%s backward", problem);
    const struct trial *t = &fixture.trial;
    struct mask_setup setup = { t->pattern, t->order, t->q_heads, t->k_len };
    make_unit_vectors(&fixture);
    fixture_run(&fixture);
    assert_int_equal(mask_open(&mask, &setup), 0);
    for (int64_t row = 0; row < t->batch * t->q_len * t->q_heads; row++)
        check_row(&fixture, &mask, row / t->q_heads / t->q_len, row / t->q_heads % t->q_len,
                  row % t->q_heads);
    mask_close(&mask);
    fixture_close(&fixture);
}

/* The same decisions in every ring, partition, strategy, order and kernel; a key that two branches
 * see gets one. */
static void every_ring_drops_the_same_keys(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "full",
        "causal",
        "window:20,9",
        "dilated:8/1,16/2,48/3",
        "dilated:12/1,48/5;dedup",
        "blocks:8;local=1;random=0.2",
        "full order=shuffled:3",
        "causal order=hilbert",
        "dilated:16/1,24/2;causal order=hilbert:7x7",
    };
    ra_part partition, strategy, kernel;
    char problem[256];
    int turn = 0;
    for (int i = 0; i < TEST_COUNT(cases); i++)
        for (int p = 0; walk_usable("partition", p, &partition); p++)
            for (int s = 0; walk_usable("strategy", s, &strategy); s++)
                for (int r = 0; r < TEST_COUNT(walk_ranks); r++)
                    for (int k = 0; walk_usable("kernel", k, &kernel); k++) {
                        if (++turn % stride()) continue;
                        snprintf(problem, sizeof problem,
                                 "%s n=%d h=%d d=4 dv=%d b=2 %s dropout=%s seed=%s ring=%d %s %s "
                                 "kernel=%s threads=%d",
                                 cases[i], N, HEADS, N, walk_dtype(&kernel, 0),
                                 turn % 2 ? "0.3" : "0.75", turn % 3 ? "5" : "987654321987",
                                 walk_ranks[r], partition.name, strategy.name, kernel.name,
                                 1 + turn % 3);
                        check_dropout(problem);
                    }
}

/* Queries at the end of more keys: the position counts, not the index of the query. */
static void dropout_goes_by_position(void **state)
{
    (void)state;
    check_dropout("causal n=1 nk=48 h=4 d=4 dv=48 dropout=0.5 ring=5");
    check_dropout("causal n=13 nk=48 h=4 d=4 dv=48 dropout=0.5 ring=3 zigzag");
    check_dropout("dilated:8/1,40/3 n=13 nk=48 h=4 d=4 dv=48 dropout=0.5 ring=4 striped");
    check_dropout("window:9 n=7 nk=48 h=4 d=4 dv=48 dropout=0.5 ring=4 allgather");
}

/* ---- Sinks ----------------------------------------------------------------------------------- */

/* With a sink z: LSE' = logaddexp(LSE, z), out' = exp(LSE - LSE') out, and
 * dz = -sum exp(z - LSE') (rowsum(dOut out') - dLSE). */
static void check_sinks(const struct fixture *plain, const struct fixture *sunk)
{
    const struct trial *t = &plain->trial;
    double slopes[HEADS] = { 0 }, sizes[HEADS] = { 0 };
    for (int64_t row = 0; row < t->batch * t->q_len * t->q_heads; row++) {
        int64_t h = row % t->q_heads, q = row / t->q_heads % t->q_len;
        int64_t b = row / t->q_heads / t->q_len;
        double z = (double)sunk->terms.sinks[h],
               lse = fixture_number(plain, TENSOR_LSE, b, q, h, 0);
        double high = fmax(lse, z), want = high + log(exp(lse - high) + exp(z - high)), dot = 0.0;
        double got = fixture_number(sunk, TENSOR_LSE, b, q, h, 0);
        if (!(fabs(got - want) <= 1e-5))
            fixture_fail(sunk, "LSE %.8g, but %.8g is right", got, want);
        for (int64_t d = 0; d < t->value_dim; d++) {
            double out = fixture_number(plain, TENSOR_OUT, b, q, h, d) * exp(lse - want);
            got = fixture_number(sunk, TENSOR_OUT, b, q, h, d);
            if (!(fabs(got - out) <= 1e-5))
                fixture_fail(sunk, "out %.8g, but %.8g is right", got, out);
            dot += out * fixture_number(sunk, TENSOR_DOUT, b, q, h, d);
        }
        double slope = exp(z - want) * (dot - fixture_number(sunk, TENSOR_DLSE, b, q, h, 0));
        slopes[h] -= slope;
        sizes[h] += fabs(slope);
    }
    for (int64_t h = 0; h < t->q_heads; h++)
        if (!(fabs((double)sunk->dsinks[h] - slopes[h]) <= 1e-6 + 1e-5 * sizes[h]))
            fixture_fail(sunk, "dsinks of head %d: %.8g, but %.8g is right", (int)h,
                         (double)sunk->dsinks[h], slopes[h]);
}

static void sinks_are_folded_once_in_every_ring(void **state)
{
    (void)state;
    static const char *const cases[] = { "full n=37",
                                         "causal n=37",
                                         "causal n=37 nk=11",
                                         "dilated:8/1,37/5 n=37",
                                         "dilated:9/5 n=37",
                                         "blocks:6;local=1 n=37",
                                         "causal order=hilbert n=37" };
    ra_part partition, strategy;
    int turn = 0;
    for (int i = 0; i < TEST_COUNT(cases); i++) {
        struct fixture plain;
        fixture_open(&plain, "%s h=4/2 d=8 b=2 backward", cases[i]);
        fixture_run(&plain);
        for (int p = 0; walk_usable("partition", p, &partition); p++)
            for (int s = 0; walk_usable("strategy", s, &strategy); s++)
                for (int r = 0; r < TEST_COUNT(walk_ranks); r++) {
                    struct fixture sunk;
                    if (++turn % 3 && !test_long()) continue;
                    fixture_open(&sunk, "%s h=4/2 d=8 b=2 sinks ring=%d %s %s backward", cases[i],
                                 walk_ranks[r], partition.name, strategy.name);
                    fixture_run(&sunk);
                    check_sinks(&plain, &sunk);
                    fixture_close(&sunk);
                }
        fixture_close(&plain);
    }
}

/* ---- Bias ------------------------------------------------------------------------------------ */

static void expect_alike(const struct fixture *a, const struct fixture *b)
{
    for (enum tensor t = TENSOR_OUT; t < TENSOR_COUNT; t++)
        for (int64_t i = 0; i < fixture_count(a, t); i++) {
            double x = (double)floats(a, t)[i], y = (double)floats(b, t)[i];
            if (isinf(x) ? x != y : !(fabs(x - y) <= 1e-5 * (1.0 + fabs(x))))
                fixture_fail(b, "%s, element %lld: %.8g, but %.8g by \"%s\"", tensor_name(t),
                             (long long)i, y, x, a->line);
        }
}

/* A mask that says what a pattern says, in original positions. */
static void write_mask(struct fixture *fixture, const char *pattern)
{
    struct mask mask;
    const struct trial *t = &fixture->trial;
    struct mask_setup setup = { pattern, t->order, t->q_heads, t->k_len };
    unsigned char *at = fixture->terms.bias;
    assert_int_equal(mask_open(&mask, &setup), 0);
    for (int64_t h = 0; h < fixture->terms.bias_heads; h++)
        for (int64_t q = 0; q < t->q_len; q++)
            for (int64_t k = 0; k < t->k_len; k++)
                *at++ = mask_count(&mask, h, q + t->k_len - t->q_len, k) > 0;
    mask_close(&mask);
}

/* A bias that says what ALiBi says. */
static void write_alibi(struct fixture *fixture, const struct fixture *like)
{
    const struct trial *t = &fixture->trial;
    float *at = fixture->terms.bias;
    for (int64_t h = 0; h < fixture->terms.bias_heads; h++)
        for (int64_t q = 0; q < t->q_len; q++)
            for (int64_t k = 0; k < t->k_len; k++)
                *at++ = -like->trial.slopes[h] * fabsf((float)(q + t->k_len - t->q_len - k));
}

/* Runs `same`, whose bias is written to say what `plain` says, on every partition. */
static void check_bias(const char *plain, const char *same, const char *pattern)
{
    ra_part partition, strategy;
    struct fixture a;
    fixture_open(&a, "%s backward", plain);
    fixture_run(&a);
    for (int p = 0; walk_usable("partition", p, &partition); p++)
        for (int s = 0; walk_usable("strategy", s, &strategy); s++)
            for (int r = (p + s) % 2; r < TEST_COUNT(walk_ranks); r += 2) {
                struct fixture b;
                fixture_open(&b, "%s ring=%d %s %s backward", same, walk_ranks[r], partition.name,
                             walk_strategy(&strategy, same));
                if (pattern) write_mask(&b, pattern);
                else write_alibi(&b, &a);
                fixture_run(&b);
                expect_alike(&a, &b);
                fixture_close(&b);
            }
    fixture_close(&a);
}

static void a_mask_can_say_what_a_pattern_says(void **state)
{
    (void)state;
    check_bias("causal n=41 h=4/2 d=8", "full n=41 h=4/2 d=8 bias=mask", "causal");
    check_bias("window:5,3 n=41 h=4/2 d=8", "full n=41 h=4/2 d=8 bias=mask", "window:5,3");
    check_bias("dilated:16/3 n=41 h=4/2 d=8", "full n=41 h=4/2 d=8 bias=maskheads", "dilated:16/3");
    check_bias("blocks:6;random=0.3;seed=2 n=41 h=4/2 d=8", "full n=41 h=4/2 d=8 bias=maskheads",
               "blocks:6;random=0.3;seed=2");
    check_bias("causal n=9 nk=41 h=4/2 d=8", "full n=9 nk=41 h=4/2 d=8 bias=mask", "causal");
    check_bias("blocks:6;local=1;causal order=hilbert n=41 h=4/2 d=8",
               "full order=hilbert n=41 h=4/2 d=8 bias=mask", "blocks:6;local=1;causal");
    check_bias("dilated:20/1;causal order=hilbert n=41 h=4/2 d=8",
               "dilated:20/1 order=hilbert n=41 h=4/2 d=8 bias=mask", "causal");
}

static void a_bias_can_say_what_alibi_says(void **state)
{
    (void)state;
    check_bias("causal n=41 h=4/2 d=8 alibi", "causal n=41 h=4/2 d=8 bias=heads", NULL);
    check_bias("full n=9 nk=41 h=4/2 d=8 alibi", "full n=9 nk=41 h=4/2 d=8 bias=heads", NULL);
    check_bias("dilated:8/1,41/2 order=shuffled:5 n=41 h=4/2 d=8 alibi",
               "dilated:8/1,41/2 order=shuffled:5 n=41 h=4/2 d=8 bias=heads", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terms_round_rings),
        cmocka_unit_test(every_ring_drops_the_same_keys),
        cmocka_unit_test(dropout_goes_by_position),
        cmocka_unit_test(sinks_are_folded_once_in_every_ring),
        cmocka_unit_test(a_mask_can_say_what_a_pattern_says),
        cmocka_unit_test(a_bias_can_say_what_alibi_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
