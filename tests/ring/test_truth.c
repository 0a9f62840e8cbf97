/* SPDX-License-Identifier: Apache-2.0 */
/* test_truth.c - the rules for every pattern, partition, strategy and rank count: weights that add
 * up to one, which token can change which result, errors that do not grow with the ring, any
 * length, and the same bits again. */
#include "support/expect.h"
#include "support/walk.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/half.h"
#include "harness/oracle/mask.h"

static const char *const dtypes[] = { "f32", "bf16", "f16" };

/* ---- Rule 1: V = ones gives ones ------------------------------------------------------------- */

static void check_ones(const struct fixture *fixture)
{
    const struct trial *t = &fixture->trial;
    double allowed = half_unit((ra_dtype)t->dtype) + 64.0 * 0x1p-24;
    int64_t blind = 0;
    for (int64_t row = 0; row < t->q_len * t->q_heads; row++) {
        int64_t query = row / t->q_heads, head = row % t->q_heads;
        bool sees = !isinf(fixture_number(fixture, TENSOR_LSE, 0, query, head, 0));
        blind += !sees;
        for (int64_t d = 0; d < t->value_dim; d++) {
            double got = fixture_number(fixture, TENSOR_OUT, 0, query, head, d);
            if (!(fabs(got - (sees ? 1.0 : 0.0)) <= (sees ? allowed : 0.0)))
                fixture_fail(fixture, "V = ones gives %.9g for query %lld", got, (long long)query);
        }
    }
    if (t->q_len > t->k_len && !blind) fixture_fail(fixture, "no query sees nothing");
}

/* Every how many-th case is run; shares no factor with the length of a list, but for kernels, of
 * which there may be any number: where those are innermost, others shift the count. */
static int stride(void) { return test_long() ? 1 : test_slow() ? 59 : 11; }

static void run_ones(const char *pattern, const char *partition, const char *strategy, int turn)
{
    for (int r = 0; r < TEST_COUNT(walk_ranks); r++) {
        struct fixture fixture;
        if ((turn + r) % stride()) continue;
        fixture_open(&fixture, "%s n=43 h=3 d=8 dv=3 %s ring=%d %s %s ones", pattern,
                     dtypes[(turn + r) % 3], walk_ranks[r], partition, strategy);
        fixture_run(&fixture);
        check_ones(&fixture);
        fixture_close(&fixture);
    }
}

static void run_ones_everywhere(const char *pattern)
{
    static int turn;
    ra_part partition, strategy;
    for (int p = 0; walk_usable("partition", p, &partition); p++)
        for (int s = 0; walk_usable("strategy", s, &strategy); s++)
            run_ones(pattern, partition.name, walk_strategy(&strategy, pattern), turn++);
}

static void ones_give_ones(void **state)
{
    (void)state;
    static const char *const modifiers[] = { "", ";causal", ";docs=0,0,11,12,43" };
    char sample[96], pattern[192];
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int m = 0; m < TEST_COUNT(modifiers); m++) {
            snprintf(pattern, sizeof pattern, "%s%s", sample, modifiers[m]);
            run_ones_everywhere(pattern);
        }
}

static void ones_give_ones_in_every_order(void **state)
{
    (void)state;
    static const char *const modifiers[] = { "", ";causal", ";docs=0,0,11,12,43" };
    char sample[96], order[64], pattern[256];
    int turn = 0;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int o = 0; walk_order(o, order, sizeof order); o++) {
            snprintf(pattern, sizeof pattern, "%s%s order=%s", sample, modifiers[turn++ % 3],
                     order);
            run_ones_everywhere(pattern);
        }
}

/* Terms that move weights about but keep their sum: all but sinks and dropout. */
static void ones_give_ones_under_score_terms(void **state)
{
    (void)state;
    static const char *const terms[] = { "softcap=3", "alibi", "bias=add",
                                         "bias=heads softcap=9 alibi", "bias=maskheads" };
    char sample[96], pattern[256];
    int turn = 0;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int n = 0; n < 2; n++, turn++) {
            snprintf(pattern, sizeof pattern, "%s %s%s", sample, terms[turn % 5],
                     n ? " order=hilbert" : "");
            run_ones_everywhere(pattern);
        }
}

static void ones_give_zeros_where_nothing_is_seen(void **state)
{
    (void)state;
    for (int r = 0; r < TEST_COUNT(walk_ranks); r++)
        for (int s = 0; s < 2; s++) {
            struct fixture fixture;
            fixture_open(&fixture, "causal n=43 nk=9 h=2 d=8 %s ring=%d %s ones", dtypes[r % 3],
                         walk_ranks[r], s ? "allgather" : "ring");
            fixture_run(&fixture);
            check_ones(&fixture);
            fixture_close(&fixture);
        }
}

/* ---- Rule 2: who can change whom ------------------------------------------------------------- */

/* New numbers for one token of Q, K and V. */
static void change_token(struct fixture *fixture, int64_t token)
{
    static const enum tensor changed[] = { TENSOR_Q, TENSOR_K, TENSOR_V };
    struct trial other = fixture->trial;
    other.seed = fixture->trial.seed + 1;
    float row[64];
    for (int i = 0; i < TEST_COUNT(changed); i++)
        for (int64_t h = 0; h < tensor_heads(&other, changed[i]); h++) {
            const struct view *view = &fixture->whole[changed[i]];
            data_row(&other, changed[i], 0, token, h, row);
            half_from_float(view->dtype, row, view->dim, view_row(view, 0, token, h));
        }
}

/* A head of a query changes, in its output or LSE, if the query is the token or sees it there; all
 * others keep their bits. */
static void check_changes(const struct fixture *a, const struct fixture *b, int64_t token)
{
    const struct trial *t = &a->trial;
    struct mask mask;
    struct mask_setup setup = { t->pattern, t->order, t->q_heads, t->k_len };
    assert_int_equal(mask_open(&mask, &setup), 0);
    for (int64_t row = 0; row < t->q_len * t->q_heads; row++) {
        int64_t query = row / t->q_heads, h = row % t->q_heads;
        bool sees = mask_count(&mask, h, query, token) > 0;
        bool blind = isinf(fixture_number(a, TENSOR_LSE, 0, query, h, 0));
        bool same = !memcmp(view_row(&a->whole[TENSOR_OUT], 0, query, h),
                            view_row(&b->whole[TENSOR_OUT], 0, query, h),
                            (size_t)t->value_dim * sizeof(float)) &&
                    (blind || fixture_number(a, TENSOR_LSE, 0, query, h, 0) ==
                                  fixture_number(b, TENSOR_LSE, 0, query, h, 0));
        if (same == (sees || (query == token && !blind)))
            fixture_fail(a, "token %lld changed: query %lld, head %lld is %s", (long long)token,
                         (long long)query, (long long)h,
                         same ? "the same, but sees it" : "not the same, but does not see it");
        if (!same && query < token && strstr(t->pattern, "causal"))
            fixture_fail(a, "token %lld changed query %lld before it", (long long)token,
                         (long long)query);
    }
    mask_close(&mask);
}

static void run_change(const char *pattern, const char *way, int64_t token)
{
    struct fixture a, b;
    fixture_open(&a, "%s n=41 h=3/1 d=8 %s", pattern, way);
    fixture_open(&b, "%s n=41 h=3/1 d=8 %s", pattern, way);
    change_token(&b, token);
    fixture_run(&a);
    fixture_run(&b);
    check_changes(&a, &b, token);
    fixture_close(&a);
    fixture_close(&b);
}

static const char *const change_ways[] = { "ring=1", "ring=4", "ring=3 zigzag", "ring=5 striped",
                                           "ring=4 zigzag allgather" };
static const int64_t tokens[] = { 0, 19, 40 };

static void a_token_changes_those_who_see_it(void **state)
{
    (void)state;
    static const char *const modifiers[] = { "", ";causal", ";docs=0,20,20,41" };
    char sample[96], pattern[192];
    int turn = 0;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int m = 0; m < TEST_COUNT(modifiers); m++)
            for (int w = 0; w < TEST_COUNT(change_ways); w++) {
                if (test_slow() && turn++ % 7) continue;
                snprintf(pattern, sizeof pattern, "%s%s", sample, modifiers[m]);
                run_change(pattern, change_ways[w], tokens[(i + w) % 3]);
            }
}

/* Under `;causal`, whatever the order, nothing before the token in original position changes. */
static void a_token_changes_nothing_before_it_in_any_order(void **state)
{
    (void)state;
    char sample[96], order[64], pattern[256];
    int turn = 0;
    for (int i = 0; walk_sample(i, sample, sizeof sample); i++)
        for (int o = 0; walk_order(o, order, sizeof order); o++)
            for (int m = 0; m < 3; m++, turn++) {
                if ((!test_long() && !m) || (test_slow() && turn % 7)) continue;
                snprintf(pattern, sizeof pattern, "%s%s order=%s%s", sample, m ? ";causal" : "",
                         order, m == 2 ? " alibi bias=add dropout=0.2" : "");
                run_change(pattern, change_ways[turn % 5], tokens[turn / 5 % 3]);
            }
}

/* ---- Rule 3: rounding ------------------------------------------------------------------------ */

static void run_expected(const char *problem, const char *way)
{
    struct fixture fixture;
    fixture_open(&fixture, "%s %s backward", problem, way);
    fixture_run(&fixture);
    expect_lab(&fixture);
    fixture_close(&fixture);
}

static const char *const ring_ways[] = { "ring=1",           "ring=2",
                                         "ring=4",           "ring=4 zigzag",
                                         "ring=4 striped",   "ring=8",
                                         "ring=4 allgather", "ring=3 zigzag allgather" };

/* Each kernel and dtype in each way, with the two patterns in turn. */
static void run_scores(const char *one, const char *other, const char *words)
{
    ra_part kernel;
    const char *dtype;
    char problem[160];
    for (int k = 0; walk_kernel(k, &kernel, &dtype); k++)
        for (int w = 0; w < TEST_COUNT(ring_ways); w++) {
            snprintf(problem, sizeof problem, "%s n=64 %s %s kernel=%s", w % 2 ? other : one, words,
                     dtype, kernel.name);
            run_expected(problem, ring_ways[w]);
        }
    expect_forget();
}

static void scores_of_200(void **state)
{
    (void)state;
    run_scores("full", "causal", "h=2/1 d=16 amp=200");
}

/* Every hop brings keys whose scores are 200 above or below those of the last one. */
static void gaps_of_200_between_hops(void **state)
{
    (void)state;
    run_scores("full", "window:40,9", "h=2 d=16 gap=200");
}

/* State and travelling gradients are f32, so more hops do not mean more error. */
static void error_is_flat_in_the_rank_count(void **state)
{
    (void)state;
    static const char *const patterns[] = { "full", "causal" };
    double most[TENSOR_COUNT], mean[TENSOR_COUNT], most_here, mean_here;
    for (int i = 0; i < 2 * TEST_COUNT(patterns); i++) {
        struct expect expect;
        for (int ranks = 1; ranks <= 8; ranks++) {
            struct fixture fixture;
            fixture_open(&fixture, "%s n=256 h=2/1 d=32 bf16 ring=%d %s backward", patterns[i / 2],
                         ranks, i % 2 ? "zigzag" : "contiguous");
            fixture_run(&fixture);
            if (ranks == 1) expect_open(&expect, &fixture);
            for (int t = TENSOR_OUT; t < TENSOR_COUNT; t++) {
                expect_error(&expect, &fixture, t, &most_here, &mean_here);
                if (ranks == 1) most[t] = most_here, mean[t] = mean_here;
                else if (t != TENSOR_LSE &&
                         (most_here > 1.2 * most[t] || mean_here > 1.02 * mean[t]))
                    fixture_fail(&fixture,
                                 "%s: error %.3g (mean %.3g), but %.3g (%.3g) on one rank",
                                 tensor_name(t), most_here, mean_here, most[t], mean[t]);
                else if (t == TENSOR_LSE && most_here > 4.0 * most[t] + 1e-6)
                    fixture_fail(&fixture, "lse: error %.3g, but %.3g on one rank", most_here,
                                 most[t]);
            }
            fixture_close(&fixture);
        }
        expect_close(&expect);
    }
}

/* ---- Rule 6: any length, any rank count ------------------------------------------------------ */

static void any_length_on_any_rank_count(void **state)
{
    (void)state;
    static const int lengths[] = { 1, 2, 3, 5, 7, 13, 17, 31 };
    ra_part partition, strategy;
    char sample[96], problem[256];
    int turn = 0;
    for (int l = 0; l < TEST_COUNT(lengths); l++)
        for (int i = 0; walk_sample(i, sample, sizeof sample); i++) {
            for (int p = 0; walk_usable("partition", p, &partition); p++)
                for (int s = 0; walk_usable("strategy", s, &strategy); s++)
                    for (int r = turn++ % 12; r < 12; r += test_long() ? 1 : 12) {
                        if (test_slow() && turn % 5) continue;
                        snprintf(problem, sizeof problem, "%s n=%d h=2/1 d=4 dv=7 ring=%d %s %s",
                                 sample, lengths[l], r + 1, partition.name, strategy.name);
                        run_expected(problem, "threads=1");
                    }
            expect_forget();
        }
}

static void empty_documents(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "full;docs=0,0,0,9,9,9 n=9", "causal;docs=0,9,9 n=9",         "full;docs=0,0,1 n=1",
        "full;docs=0,1,2,3,4,5 n=5", "window:2,2;docs=0,4,4,11 n=11",
    };
    static const char *const ways[] = { "ring=1",
                                        "ring=4",
                                        "ring=4 zigzag",
                                        "ring=5 striped;perdoc",
                                        "ring=7 zigzag;perdoc",
                                        "ring=8 contiguous;perdoc allgather" };
    char problem[160];
    for (int c = 0; c < TEST_COUNT(cases); c++)
        for (int w = 0; w < TEST_COUNT(ways); w++) {
            snprintf(problem, sizeof problem, "%s h=2 d=4", cases[c]);
            run_expected(problem, ways[w]);
        }
    expect_forget();
}

/* Ranks that own nothing, first, last and between; queries here and keys there. */
static void empty_ranks(void **state)
{
    (void)state;
    static const int64_t counts[][5] = {
        { 0, 0, 1, 0, 0 },
        { 1, 0, 0, 0, 0 },
        { 0, 0, 0, 0, 1 },
        { 0, 1, 0, 1, 0 },
    };
    static const char *const patterns[] = { "full", "causal", "window:3,1" };
    const ra_run whole[] = { { 0, 1, 23 } }, halves[] = { { 1, 2, 11 }, { 0, 2, 12 } };
    for (int q = 0; q < TEST_COUNT(counts); q++)
        for (int k = 0; k < TEST_COUNT(counts); k++)
            for (int i = 0; i < 2 * TEST_COUNT(patterns); i++) {
                struct fixture fixture;
                ra_layout *layouts[2];
                fixture_open(&fixture, "%s n=23 h=2 d=4 ring=5 %s backward", patterns[i / 2],
                             i % 2 ? "allgather" : "ring");
                assert_ok(ra_layout_create_custom(23, 5, q == 3 ? halves : whole, counts[q],
                                                  &layouts[0]));
                assert_ok(ra_layout_create_custom(23, 5, k == 3 ? halves : whole, counts[k],
                                                  &layouts[1]));
                fixture_use_layouts(&fixture, layouts[0], layouts[1]);
                fixture_run(&fixture);
                expect_lab(&fixture);
                fixture_close(&fixture);
            }
    expect_forget();
}

/* No queries at all: nothing to do, and nothing goes wrong. Gradients of the keys are zeros. */
static ra_status no_queries_body(ra_group *group, void *context)
{
    const int64_t *k_len = context;
    float k[64] = { 0 }, v[64] = { 0 }, dk[64], dv[64];
    ra_problem problem = ra_problem_default();
    problem.k_len = *k_len;
    problem.q_heads = 1;
    problem.dim = 4;
    ra_plan_options options = ra_plan_options_default();
    options.backward = 1;
    ra_plan *plan;
    ra_status status = ra_plan_create(group, &problem, &options, &plan);
    if (status != RA_OK) return status;
    ra_attend_args attend = ra_attend_args_default();
    attend.k = ra_const_tensor_packed(k);
    attend.v = ra_const_tensor_packed(v);
    status = ra_attend(plan, &attend);
    memset(dk, 0xff, sizeof dk);
    ra_gradient_args gradient = ra_gradient_args_default();
    gradient.k = attend.k;
    gradient.v = attend.v;
    gradient.dk = ra_tensor_packed(dk);
    gradient.dv = ra_tensor_packed(dv);
    if (status == RA_OK) status = ra_gradient(plan, &gradient);
    for (int64_t i = 0; status == RA_OK && i < 4 * ra_plan_k_count(plan); i++)
        if (dk[i] != 0.0f) status = ra_transport_error(RA_ERR_SYSTEM, "dk is not 0");
    ra_plan_destroy(plan);
    return status;
}

static void no_queries(void **state)
{
    (void)state;
    for (int64_t k_len = 0; k_len <= 9; k_len += 3)
        for (int ranks = 1; ranks <= 4; ranks++) {
            ra_group *groups[4];
            assert_ok(ra_group_create_local(ranks, NULL, groups));
            assert_ok(ra_group_run(groups, ranks, no_queries_body, &k_len));
            for (int i = 0; i < ranks; i++) ra_group_destroy(groups[i]);
        }
}

/* ---- Rule 9: the same bits ------------------------------------------------------------------- */

/* Fails unless what both computed is the same, bit by bit. */
static void expect_same(const struct fixture *a, const struct fixture *b)
{
    for (int t = TENSOR_OUT; t < TENSOR_COUNT; t++)
        if (a->whole[t].data && b->whole[t].data && !fixture_same(a, b, t))
            fixture_fail(b, "%s: other bits than with \"%s\"", tensor_name(t), a->line);
    if (a->dsinks && memcmp(a->dsinks, b->dsinks, (size_t)a->trial.q_heads * sizeof *a->dsinks))
        fixture_fail(b, "dsinks: other bits than with \"%s\"", a->line);
}

/* Runs the problem one way and compares it with a run that was made another way. */
static void compare_with(const struct fixture *a, const char *problem, const char *way)
{
    struct fixture b;
    fixture_open(&b, "%s %s", problem, way);
    fixture_run(&b);
    expect_same(a, &b);
    fixture_close(&b);
}

static void compare_bits(const char *problem, const char *one, const char *other)
{
    struct fixture a;
    fixture_open(&a, "%s %s", problem, one);
    fixture_run(&a);
    compare_with(&a, problem, other);
    fixture_close(&a);
}

/* A problem of 193 positions each; dense ones first. */
static const char *const bit_patterns[] = {
    "full",
    "causal",
    "window:40,9",
    "prefix:30",
    "causal;docs=0,70,71,193",
    "dilated:16/1,64/3,193/5",
    "dilated:40/2,100/4;dedup;causal",
    "dilated:30/1,60/2,193/7;groups",
    "blocks:16;local=1;global=1;causal",
    "blocks:10;random=0.2;seed=3",
    "blocks:7;strided=4;dilated=3/2;levels=4/2",
    "full order=shuffled:7",
    "causal order=hilbert",
    "window:30,9;causal order=hilbert:11x19 alibi",
    "dilated:32/2,96/4;causal order=hilbert softcap=4",
    "blocks:16;random=0.2;seed=3;docs=0,50,193 order=shuffled:3",
    "causal alibi softcap=5 bias=heads sinks dropout=0.3",
    "dilated:16/1,64/3 bias=maskheads sinks dropout=0.3 seed=9",
    "full order=hilbert alibi bias=add dropout=0.5",
};

static void the_same_run_twice(void **state)
{
    (void)state;
    ra_part partition, strategy, kernel;
    char problem[192], way[160];
    int turn = 0;
    for (int i = 0; i < TEST_COUNT(bit_patterns); i++)
        for (int p = 0; walk_usable("partition", p, &partition); p++)
            for (int s = 0; walk_usable("strategy", s, &strategy); s++)
                for (int k = 0; walk_usable("kernel", k, &kernel); k++) {
                    if ((turn++ + i + p) % stride()) continue;
                    snprintf(problem, sizeof problem, "%s n=193 h=6/2 d=16 %s backward",
                             bit_patterns[i], walk_dtype(&kernel, turn));
                    snprintf(way, sizeof way, "ring=%d %s %s kernel=%s threads=2", 1 + turn / 5 % 5,
                             partition.name, walk_strategy(&strategy, problem), kernel.name);
                    compare_bits(problem, way, way);
                }
}

/* Threads divide the work; they do not change it. */
static void compare_threads(const char *direction)
{
    static const char *const shapes[] = { "n=193 h=1 d=16", "n=300 h=4/2 d=8 b=2",
                                          "n=517 h=8/1 d=8" };
    ra_part strategy, kernel;
    char problem[192], other[32];
    for (int i = 0; i < 3 * TEST_COUNT(shapes); i++)
        for (int s = 0; walk_usable("strategy", s, &strategy); s++)
            for (int k = 0; walk_usable("kernel", k, &kernel); k++) {
                snprintf(problem, sizeof problem, "%s %s %s kernel=%s ring=%d %s %s",
                         bit_patterns[i % 3], shapes[i / 3], walk_dtype(&kernel, i + s),
                         kernel.name, 1 + i % 2, strategy.name, direction);
                snprintf(other, sizeof other, "threads=%d", i % 2 ? 3 : 8);
                compare_bits(problem, "threads=1", other);
            }
}

static void threads_do_not_change_bits_forward(void **state)
{
    (void)state;
    compare_threads("");
}

static void threads_do_not_change_bits_backward(void **state)
{
    (void)state;
    compare_threads("backward");
}

/* Forward allgather: the same bits for every rank count, partition and thread count. */
static void compare_gathered(const char *pattern, const ra_part *kernel, int turn)
{
    ra_part partition;
    struct fixture one;
    char problem[192], way[160];
    snprintf(problem, sizeof problem, "%s n=193 h=4/2 d=16 %s kernel=%s", pattern,
             walk_dtype(kernel, turn), kernel->name);
    fixture_open(&one, "%s ring=1 allgather threads=1", problem);
    fixture_run(&one);
    for (int p = 0; walk_usable("partition", p, &partition); p++)
        for (int r = 1; r < TEST_COUNT(walk_ranks); r++) {
            if ((turn + p * 7 + r) % stride()) continue;
            snprintf(way, sizeof way, "ring=%d %s allgather threads=%d strides=%s", walk_ranks[r],
                     partition.name, 1 + r % 3, r % 2 ? "padded" : "packed");
            compare_with(&one, problem, way);
        }
    compare_with(&one, problem, "ring=1");
    fixture_close(&one);
}

static void allgather_gives_the_same_bits_everywhere(void **state)
{
    (void)state;
    ra_part kernel;
    for (int i = 0; i < TEST_COUNT(bit_patterns); i++)
        for (int k = 0; walk_usable("kernel", k, &kernel); k++)
            compare_gathered(bit_patterns[i], &kernel, i + k);
}

/* A ring of one and allgather on one rank are the same computation, backward too. */
static void a_ring_of_one_is_plain_attention(void **state)
{
    (void)state;
    for (int i = 0; i < TEST_COUNT(bit_patterns); i++) {
        char problem[192];
        snprintf(problem, sizeof problem, "%s n=193 h=3 d=16 backward", bit_patterns[i]);
        compare_bits(problem, "ring=1", "ring=1 allgather");
        compare_bits(problem, "ring=1", "ring=1 zigzag");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ones_give_ones),
        cmocka_unit_test(ones_give_ones_in_every_order),
        cmocka_unit_test(ones_give_ones_under_score_terms),
        cmocka_unit_test(ones_give_zeros_where_nothing_is_seen),
        cmocka_unit_test(a_token_changes_those_who_see_it),
        cmocka_unit_test(a_token_changes_nothing_before_it_in_any_order),
        cmocka_unit_test(scores_of_200),
        cmocka_unit_test(gaps_of_200_between_hops),
        cmocka_unit_test(error_is_flat_in_the_rank_count),
        cmocka_unit_test(any_length_on_any_rank_count),
        cmocka_unit_test(empty_documents),
        cmocka_unit_test(empty_ranks),
        cmocka_unit_test(no_queries),
        cmocka_unit_test(the_same_run_twice),
        cmocka_unit_test(threads_do_not_change_bits_forward),
        cmocka_unit_test(threads_do_not_change_bits_backward),
        cmocka_unit_test(allgather_gives_the_same_bits_everywhere),
        cmocka_unit_test(a_ring_of_one_is_plain_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
