/* SPDX-License-Identifier: Apache-2.0 */
/* test_state.c - attention in parts: any order and any split give what one call gives, within
 * rounding; halves merge; nothing folded is safe; states and partials can be copied elsewhere. */
#include "support/fixture.h"
#include "support/walk.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/half.h"

/* ---- A problem in pieces --------------------------------------------------------------------- */

/* A lab whose trial is also run by the state API. */
struct pieces {
    struct fixture fixture; /* run in one call, for comparison */
    ra_problem problem;
    float *out, *lse; /* of the state, f32 whatever the dtype */
    void *raw;        /* out in the trial's dtype */
};

static void pieces_open(struct pieces *p, const char *problem)
{
    fixture_open(&p->fixture, "%s", problem);
    fixture_run(&p->fixture);
    p->problem = trial_problem(&p->fixture.trial);
    p->problem.pattern = p->fixture.pattern;
    p->out = calloc((size_t)fixture_count(&p->fixture, TENSOR_OUT), sizeof *p->out);
    p->lse = calloc((size_t)fixture_count(&p->fixture, TENSOR_LSE), sizeof *p->lse);
    p->raw = calloc(1, fixture_bytes(&p->fixture, TENSOR_OUT));
    assert_true(p->out && p->lse && p->raw);
}

static void pieces_close(struct pieces *p)
{
    free(p->out);
    free(p->lse);
    free(p->raw);
    fixture_close(&p->fixture);
}

static ra_state *make_state(const struct pieces *p)
{
    ra_state *state;
    const char *kernel = *p->fixture.trial.kernel ? p->fixture.trial.kernel : NULL;
    assert_ok(ra_state_create(&p->problem, kernel, &state));
    return state;
}

/* Keys [first, first + keys), from the lab's own arrays. */
static ra_status fold(const struct pieces *p, ra_state *state, int64_t first, int64_t keys)
{
    const struct view *k = &p->fixture.whole[TENSOR_K], *v = &p->fixture.whole[TENSOR_V];
    ra_const_tensor q = view_input(&p->fixture.whole[TENSOR_Q]);
    ra_const_tensor kt = view_input(k), vt = view_input(v);
    kt.data = view_row(k, 0, first, 0);
    vt.data = view_row(v, 0, first, 0);
    return ra_state_fold(state, &q, &kt, &vt, first, keys);
}

static void finish(struct pieces *p, const ra_state *state)
{
    struct view view = p->fixture.whole[TENSOR_OUT];
    ra_tensor out = view_tensor(&view);
    out.data = p->raw;
    memset(p->raw, 0xff, fixture_bytes(&p->fixture, TENSOR_OUT));
    assert_ok(ra_state_finish(state, &out, p->lse));
    half_to_float(view.dtype, p->raw, fixture_count(&p->fixture, TENSOR_OUT), p->out);
}

/* Within rounding of what one call gave. */
static void expect_same(struct pieces *p, const ra_state *state)
{
    finish(p, state);
    double unit = half_unit((ra_dtype)p->fixture.trial.dtype);
    int64_t width = p->fixture.trial.value_dim;
    for (int64_t i = 0; i < fixture_count(&p->fixture, TENSOR_OUT); i++) {
        float want,
            want_lse = ((const float *)(const void *)p->fixture.whole[TENSOR_LSE].data)[i / width];
        half_to_float((ra_dtype)p->fixture.trial.dtype,
                      p->fixture.whole[TENSOR_OUT].data +
                          (size_t)i * half_bytes((ra_dtype)p->fixture.trial.dtype),
                      1, &want);
        if (!(fabs((double)p->out[i] - (double)want) <= 4.0 * unit + 2e-6))
            fixture_fail(&p->fixture, "state: element %lld is %g, not %g", (long long)i,
                         (double)p->out[i], (double)want);
        float lse = p->lse[i / width];
        bool good = isinf(want_lse) ? lse == want_lse
                                    : fabs((double)lse - (double)want_lse) <= 1e-5;
        if (!good)
            fixture_fail(&p->fixture, "state: LSE %g, not %g", (double)lse, (double)want_lse);
    }
}

/* ---- Folding --------------------------------------------------------------------------------- */

static void check_cuts(const char *problem)
{
    struct pieces p;
    pieces_open(&p, problem);
    int64_t n = p.fixture.trial.k_len;
    for (int64_t size = 1; size <= n; size = size * 3 + 1) {
        ra_state *state = make_state(&p);
        for (int64_t first = 0; first < n; first += size) /* forwards */
            assert_ok(fold(&p, state, first, first + size < n ? size : n - first));
        expect_same(&p, state);
        assert_ok(ra_state_init(state));
        for (int64_t end = n; end > 0; end -= size) /* backwards, in the same state */
            assert_ok(fold(&p, state, end > size ? end - size : 0, end > size ? size : end));
        expect_same(&p, state);
        ra_state_destroy(state);
    }
    pieces_close(&p);
}

static void any_order_and_cuts(void **state)
{
    (void)state;
    static const char *const modifiers[] = { "", ";causal", ";docs=0,7,7,40,53" };
    ra_part kernel;
    char sample[64], problem[200];
    int turn = 0;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int m = 0; m < TEST_COUNT(modifiers); m++)
            for (int k = 0; walk_usable("kernel", k, &kernel); k++) {
                snprintf(problem, sizeof problem, "%s%s n=53 h=4/2 d=8 dv=5 %s kernel=%s", sample,
                         modifiers[m], walk_dtype(&kernel, turn++), kernel.name);
                check_cuts(problem);
            }
}

/* Keys in two batches of strides; queries before all keys; and many more keys than a block. */
static void other_shapes(void **state)
{
    (void)state;
    check_cuts("causal n=9 nk=5 h=2 d=8");
    check_cuts("causal n=5 nk=40 h=2/1 d=16 bf16");
    check_cuts("full n=3 nk=700 h=2 d=8");
    check_cuts("full n=40 h=1 d=8 gap=200");
}

static void batches_need_strides(void **state)
{
    (void)state;
    struct pieces p;
    pieces_open(&p, "causal n=21 h=2/1 d=8 b=3");
    ra_state *whole = make_state(&p);
    assert_ok(fold(&p, whole, 0, 13));
    assert_ok(fold(&p, whole, 13, 8)); /* the lab's strides span all keys, the pieces do not */
    expect_same(&p, whole);
    ra_state_destroy(whole);
    pieces_close(&p);
}

static void folding_no_keys_changes_nothing(void **state)
{
    (void)state;
    struct pieces p;
    pieces_open(&p, "full n=12 h=2 d=8");
    ra_state *s = make_state(&p);
    size_t bytes;
    assert_ok(fold(&p, s, 0, 12));
    float *data = ra_state_data(s, &bytes), *before = malloc(bytes);
    memcpy(before, data, bytes);
    assert_ok(fold(&p, s, 0, 0));
    assert_ok(fold(&p, s, 12, 0));
    assert_memory_equal(data, before, bytes);
    free(before);
    ra_state_destroy(s);
    pieces_close(&p);
}

static void keys_outside_are_refused(void **state)
{
    (void)state;
    struct pieces p;
    pieces_open(&p, "full n=12 h=2 d=8");
    ra_state *s = make_state(&p);
    assert_fails(RA_ERR_ARGUMENT, "8 keys from key 5 on, of 12", fold(&p, s, 5, 8));
    assert_fails(RA_ERR_ARGUMENT, "of 12", fold(&p, s, -1, 2));
    assert_fails(RA_ERR_ARGUMENT, "of 12", fold(&p, s, 3, -1));
    assert_fails(RA_ERR_ARGUMENT, "of 12", fold(&p, s, 13, 0));
    assert_ok(fold(&p, s, 0, 12));
    expect_same(&p, s);
    ra_state_destroy(s);
    pieces_close(&p);
}

/* ---- Nothing folded -------------------------------------------------------------------------- */

static void an_empty_state_is_zeros_and_minus_infinity(void **state)
{
    (void)state;
    struct pieces p;
    pieces_open(&p, "full n=6 h=2 d=8");
    ra_state *empty = make_state(&p), *other = make_state(&p);
    assert_ok(ra_state_merge(empty, other)); /* -inf with -inf */
    finish(&p, empty);
    for (int64_t i = 0; i < fixture_count(&p.fixture, TENSOR_OUT); i++)
        assert_true(p.out[i] == 0.0f);
    for (int64_t i = 0; i < fixture_count(&p.fixture, TENSOR_LSE); i++)
        assert_true(isinf(p.lse[i]) && p.lse[i] < 0);
    ra_state_destroy(empty);
    ra_state_destroy(other);
    pieces_close(&p);
}

/* ---- Merging --------------------------------------------------------------------------------- */

static void check_halves(const char *problem, int64_t cut, bool swap)
{
    struct pieces p;
    pieces_open(&p, problem);
    ra_state *a = make_state(&p), *b = make_state(&p);
    assert_ok(fold(&p, a, 0, cut));
    assert_ok(fold(&p, b, cut, p.fixture.trial.k_len - cut));
    assert_ok(ra_state_merge(swap ? b : a, swap ? a : b));
    expect_same(&p, swap ? b : a);
    ra_state_destroy(a);
    ra_state_destroy(b);
    pieces_close(&p);
}

static void halves_merge(void **state)
{
    (void)state;
    static const char *const problems[] = { "full n=40 h=2 d=8", "causal n=40 h=4/2 d=8 bf16",
                                            "window:5 n=40 h=2 d=8 f16",
                                            "full n=40 h=2 d=8 gap=200",
                                            "causal n=40 nk=13 h=2 d=8" };
    for (int i = 0; i < TEST_COUNT(problems); i++)
        for (int64_t cut = 0; cut <= 13; cut++) check_halves(problems[i], cut, cut % 2);
}

static void different_shapes_do_not_merge(void **state)
{
    (void)state;
    struct pieces p, other;
    pieces_open(&p, "full n=12 h=2 d=8");
    pieces_open(&other, "full n=13 h=2 d=8");
    ra_state *a = make_state(&p), *b = make_state(&other);
    assert_fails(RA_ERR_ARGUMENT, "different shapes", ra_state_merge(a, b));
    ra_state_destroy(a);
    ra_state_destroy(b);
    pieces_close(&p);
    pieces_close(&other);
}

/* ---- Carrying a state elsewhere -------------------------------------------------------------- */

static void a_state_can_be_carried(void **state)
{
    (void)state;
    struct pieces p;
    pieces_open(&p, "causal n=40 h=2 d=8");
    ra_state *here = make_state(&p), *there = make_state(&p);
    size_t bytes, room;
    assert_ok(fold(&p, here, 0, 25));
    const void *from = ra_state_data(here, &bytes);
    void *to = ra_state_data(there, &room);
    assert_int_equal(bytes, room);
    assert_int_equal(bytes, 40 * 2 * (8 + 2) * sizeof(float));
    memcpy(to, from, bytes);
    ra_state_destroy(here);
    assert_ok(fold(&p, there, 25, 15));
    expect_same(&p, there);
    ra_state_destroy(there);
    pieces_close(&p);
}

/* Finishing leaves the state as it is. */
static void finishing_is_not_the_end(void **state)
{
    (void)state;
    struct pieces p;
    pieces_open(&p, "full n=40 h=2 d=8 bf16");
    ra_state *s = make_state(&p);
    assert_ok(fold(&p, s, 0, 11));
    finish(&p, s);
    assert_ok(fold(&p, s, 11, 29));
    expect_same(&p, s);
    ra_state_destroy(s);
    pieces_close(&p);
}

/* ---- Finished partials ----------------------------------------------------------------------- */

static void partials_merge(void **state)
{
    (void)state;
    struct pieces p;
    pieces_open(&p, "causal n=40 h=2 d=8");
    int64_t rows = 80, cut = 17;
    float *out = calloc(80 * 8, sizeof *out), *lse = calloc(80, sizeof *lse);
    ra_state *a = make_state(&p);
    assert_ok(fold(&p, a, 0, cut));
    finish(&p, a);
    memcpy(out, p.out, 80 * 8 * sizeof *out);
    memcpy(lse, p.lse, 80 * sizeof *lse);
    assert_ok(ra_state_init(a));
    assert_ok(fold(&p, a, cut, 40 - cut));
    finish(&p, a); /* queries before the split see nothing of this half: -inf */
    assert_true(isinf(p.lse[0]));
    assert_ok(ra_partial_merge(rows, 8, out, lse, p.out, p.lse));
    for (int i = 0; i < 80; i++) {
        double want = fixture_number(&p.fixture, TENSOR_LSE, 0, i / 2, i % 2, 0);
        assert_true(fabs((double)lse[i] - want) <= 1e-6 * (1 + fabs(want)));
        for (int d = 0; d < 8; d++)
            assert_true(fabs((double)out[i * 8 + d] -
                             fixture_number(&p.fixture, TENSOR_OUT, 0, i / 2, i % 2, d)) <= 2e-6);
    }
    ra_state_destroy(a);
    free(out);
    free(lse);
    pieces_close(&p);
}

/* L = logaddexp(L1, L2), by hand, with gaps that overflow exp() and with -inf on either side. */
static void partials_merge_by_hand(void **state)
{
    (void)state;
    static const double pairs[][2] = { { 0, 0 },         { 1, -3 },
                                       { 200, -200 },    { -200, 200 },
                                       { -1e30, 1e30 },  { -INFINITY, 2 },
                                       { 2, -INFINITY }, { -INFINITY, -INFINITY },
                                       { 88, 89 },       { -1000, -1000 } };
    for (int i = 0; i < TEST_COUNT(pairs); i++) {
        double l1 = pairs[i][0], l2 = pairs[i][1], high = fmax(l1, l2);
        double sum = isinf(high) ? -INFINITY : high + log(exp(l1 - high) + exp(l2 - high));
        double w1 = isinf(high) ? 0 : exp(l1 - sum), w2 = isinf(high) ? 0 : exp(l2 - sum);
        float out[2] = { isinf(l1) ? 0.0f : 3.0f, isinf(l1) ? 0.0f : -1.0f }, lse = (float)l1;
        float other[2] = { isinf(l2) ? 0.0f : 5.0f, isinf(l2) ? 0.0f : 7.0f },
              other_lse = (float)l2;
        double want[2] = { w1 * (double)out[0] + w2 * (double)other[0],
                           w1 * (double)out[1] + w2 * (double)other[1] };
        assert_ok(ra_partial_merge(1, 2, out, &lse, other, &other_lse));
        assert_true(isinf(sum) ? lse == -INFINITY
                               : fabs((double)lse - sum) <= 1e-6 * (1 + fabs(sum)));
        for (int d = 0; d < 2; d++) assert_true(fabs((double)out[d] - want[d]) <= 1e-5);
    }
}

/* ---- A cache that grows --------------------------------------------------------------------- */

/* One state for every length gives the bits of a state made for that length. */
static void keys_may_grow(void **state)
{
    (void)state;
    struct pieces p;
    pieces_open(&p, "causal n=3 nk=40 h=4/2 d=8 dv=5");
    ra_state *growing = make_state(&p);
    for (int64_t keys = 3; keys <= 40; keys++) {
        size_t bytes;
        assert_ok(ra_state_init(growing));
        assert_ok(ra_state_set_keys(growing, keys));
        p.problem.k_len = keys;
        ra_state *fixed = make_state(&p);
        assert_ok(fold(&p, growing, 0, keys));
        assert_ok(fold(&p, fixed, 0, keys));
        void *got = ra_state_data(growing, &bytes);
        assert_memory_equal(got, ra_state_data(fixed, &bytes), bytes);
        ra_state_destroy(fixed);
    }
    ra_state_destroy(growing);
    pieces_close(&p);
}

/* Many queries work through several blocks of keys at once, of which there were none when the state
 * was made. */
static void keys_of_many_queries_may_grow(void **state)
{
    (void)state;
    struct pieces p;
    pieces_open(&p, "full n=300 nk=1100 h=2 d=64");
    p.problem.k_len = 1;
    ra_state *growing = make_state(&p);
    assert_ok(ra_state_set_keys(growing, 1100));
    assert_ok(fold(&p, growing, 0, 1100));
    expect_same(&p, growing);
    ra_state_destroy(growing);
    pieces_close(&p);
}

/* What was folded stays: full attention takes more keys at any time. */
static void what_was_folded_stays(void **state)
{
    (void)state;
    struct pieces p;
    pieces_open(&p, "full n=2 nk=30 h=2 d=8");
    p.problem.k_len = 11;
    ra_state *growing = make_state(&p);
    assert_ok(fold(&p, growing, 0, 11));
    assert_fails(RA_ERR_ARGUMENT, "19 keys from key 11 on, of 11", fold(&p, growing, 11, 19));
    assert_ok(ra_state_set_keys(growing, 30));
    assert_ok(fold(&p, growing, 11, 19));
    expect_same(&p, growing);
    ra_state_destroy(growing);
    pieces_close(&p);
}

static void keys_that_make_no_sense(void **state)
{
    (void)state;
    struct pieces p;
    pieces_open(&p, "causal;docs=0,7,20 n=20 h=2 d=8");
    ra_state *made = make_state(&p);
    assert_fails(RA_ERR_ARGUMENT, "k_len is -1", ra_state_set_keys(made, -1));
    assert_fails(RA_ERR_ARGUMENT, "k_len", ra_state_set_keys(made, INT64_C(1) << 41));
    assert_fails(RA_ERR_UNSUPPORTED, "documents", ra_state_set_keys(made, 21));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_state_set_keys(NULL, 20));
    assert_ok(fold(&p, made, 0, 20)); /* and nothing has changed */
    expect_same(&p, made);
    ra_state_destroy(made);
    pieces_close(&p);
}

/* ---- Sinks ---------------------------------------------------------------------------------- */

/* A sink is a partial with LSE z and output 0. */
static void sinks_are_one_more_key(void **state)
{
    (void)state;
    static const float sinks[] = { 0.3f, -5.0f, 200.0f, -INFINITY };
    struct pieces p;
    pieces_open(&p, "causal n=9 nk=5 h=4/2 d=8 dv=5 seed=3"); /* the first four see nothing */
    ra_state *made = make_state(&p);
    assert_ok(fold(&p, made, 0, 5));
    float out[9 * 4 * 5], lse[9 * 4], nothing[5] = { 0 };
    ra_tensor to = ra_tensor_packed(out);
    finish(&p, made);
    assert_ok(ra_state_finish_sinks(made, sinks, &to, lse));
    for (int i = 0; i < 36; i++) {
        float want[5], want_lse = p.lse[i], sink = sinks[i % 4];
        memcpy(want, p.out + 5 * i, sizeof want);
        assert_ok(ra_partial_merge(1, 5, want, &want_lse, nothing, &sink));
        if (isinf(want_lse)) assert_true(lse[i] == want_lse);
        else assert_true(fabs((double)lse[i] - (double)want_lse) < 2e-5);
        if (i < 16) assert_true(lse[i] == sink && out[5 * i] == 0.0f);
        for (int d = 0; d < 5; d++)
            assert_true(fabs((double)out[5 * i + d] - (double)want[d]) < 1e-6);
    }
    /* LSE is not wanted; the state stays as it is. */
    assert_ok(ra_state_finish_sinks(made, sinks, &to, NULL));
    expect_same(&p, made);
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_state_finish_sinks(made, NULL, &to, lse));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_state_finish_sinks(NULL, sinks, &to, lse));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_state_finish_sinks(made, sinks, NULL, lse));
    ra_state_destroy(made);
    pieces_close(&p);
}

/* Logits that no float holds an exponential of: one side takes all, and nothing is NaN. */
static void extreme_sinks_are_safe(void **state)
{
    (void)state;
    static const float sinks[] = { 5e3f, -5e3f, INFINITY, -INFINITY };
    struct pieces p;
    pieces_open(&p, "full n=2 h=4 d=8");
    ra_state *made = make_state(&p);
    assert_ok(fold(&p, made, 0, 2));
    float out[2 * 4 * 8], lse[2 * 4];
    ra_tensor to = ra_tensor_packed(out);
    finish(&p, made);
    assert_ok(ra_state_finish_sinks(made, sinks, &to, lse));
    for (int i = 0; i < 8; i++) {
        bool takes_all = sinks[i % 4] > 0;
        assert_true(lse[i] == (takes_all ? sinks[i % 4] : p.lse[i]));
        for (int d = 0; d < 8; d++)
            assert_true(out[8 * i + d] == (takes_all ? 0.0f : p.out[8 * i + d]));
    }
    ra_state_destroy(made);
    pieces_close(&p);
}

/* ---- What is for plans ---------------------------------------------------------------------- */

static void orders_and_dropout_are_refused(void **state)
{
    (void)state;
    ra_problem problem = ra_problem_default();
    ra_state *made = NULL;
    ra_order *order;
    problem.q_len = 16;
    problem.q_heads = 1;
    problem.dim = 8;
    assert_ok(ra_order_parse("hilbert", 16, &order));
    problem.order = order;
    assert_fails(RA_ERR_UNSUPPORTED, "a problem with an order",
                 ra_state_create(&problem, NULL, &made));
    ra_order_destroy(order);
    problem.order = NULL;
    problem.dropout = 0.1;
    assert_fails(RA_ERR_UNSUPPORTED, "a problem with dropout",
                 ra_state_create(&problem, NULL, &made));
    assert_null(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_and_cuts),
        cmocka_unit_test(other_shapes),
        cmocka_unit_test(batches_need_strides),
        cmocka_unit_test(folding_no_keys_changes_nothing),
        cmocka_unit_test(keys_outside_are_refused),
        cmocka_unit_test(an_empty_state_is_zeros_and_minus_infinity),
        cmocka_unit_test(halves_merge),
        cmocka_unit_test(different_shapes_do_not_merge),
        cmocka_unit_test(a_state_can_be_carried),
        cmocka_unit_test(finishing_is_not_the_end),
        cmocka_unit_test(partials_merge),
        cmocka_unit_test(partials_merge_by_hand),
        cmocka_unit_test(keys_may_grow),
        cmocka_unit_test(keys_of_many_queries_may_grow),
        cmocka_unit_test(what_was_folded_stays),
        cmocka_unit_test(keys_that_make_no_sense),
        cmocka_unit_test(sinks_are_one_more_key),
        cmocka_unit_test(extreme_sinks_are_safe),
        cmocka_unit_test(orders_and_dropout_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
