/* SPDX-License-Identifier: Apache-2.0 */
/* test_gradient.c - dQ, dK, dV and dsinks against finite differences of the library's own forward
 * pass: no formula of the gradient is used. The loss is sum(dout * out) + sum(dlse * lse) over the
 * rows that see something. */
#include "support/fixture.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/half.h"

static const float step = 0x1p-6f;

/* The loss, in double, for the inputs as they are. */
static double loss(struct fixture *fixture)
{
    const struct trial *t = &fixture->trial;
    double sum = 0.0;
    fixture_start(fixture);
    fixture_forward(fixture);
    fixture_stop(fixture);
    for (int64_t row = 0; row < t->batch * t->q_len * t->q_heads; row++) {
        int64_t head = row % t->q_heads, query = row / t->q_heads % t->q_len;
        int64_t batch = row / t->q_heads / t->q_len;
        double lse = fixture_number(fixture, TENSOR_LSE, batch, query, head, 0);
        if (isinf(lse)) continue;
        sum += lse * fixture_number(fixture, TENSOR_DLSE, batch, query, head, 0);
        for (int64_t d = 0; d < t->value_dim; d++)
            sum += fixture_number(fixture, TENSOR_OUT, batch, query, head, d) *
                   fixture_number(fixture, TENSOR_DOUT, batch, query, head, d);
    }
    return sum;
}

/* The loss with one input moved. */
static double loss_at(struct fixture *fixture, float *number, float offset)
{
    float kept = *number;
    *number = kept + offset;
    double result = loss(fixture);
    *number = kept;
    free(fixture->rank);
    fixture->rank = NULL;
    return result;
}

/* Fourth order: error about step^4, so that rounding in f32 is what remains. */
static double slope(struct fixture *fixture, float *number)
{
    double near = loss_at(fixture, number, step) - loss_at(fixture, number, -step);
    double far = loss_at(fixture, number, 2 * step) - loss_at(fixture, number, -2 * step);
    return (8.0 * near - far) / (12.0 * (double)step);
}

static double compare(struct fixture *fixture, struct fixture *moved, const char *name,
                      float *number, double got)
{
    double want = slope(moved, number);
    if (!(fabs(got - want) <= 1e-3 + 1e-3 * fabs(want)))
        fixture_fail(fixture, "%s: %.7g, but the difference quotient is %.7g", name, got, want);
    return fabs(want);
}

static void check_gradient(const char *problem)
{
    static const enum tensor inputs[] = { TENSOR_Q, TENSOR_K, TENSOR_V };
    static const enum tensor gradients[] = { TENSOR_DQ, TENSOR_DK, TENSOR_DV };
    struct fixture fixture, moved;
    double largest = 0.0;
    fixture_open(&fixture, "%s backward", problem);
    fixture_open(&moved, "%s backward", problem);
    fixture_run(&fixture);
    for (int t = 0; t < TEST_COUNT(inputs); t++)
        for (int64_t i = 0; i < fixture_count(&fixture, inputs[t]); i++) {
            float *number = (float *)(void *)moved.whole[inputs[t]].data + i;
            double got = (double)((const float *)(const void *)fixture.whole[gradients[t]].data)[i];
            largest = fmax(largest,
                           compare(&fixture, &moved, tensor_name(gradients[t]), number, got));
        }
    for (int64_t h = 0; fixture.dsinks && h < fixture.trial.q_heads; h++)
        compare(&fixture, &moved, "dsinks", &moved.terms.sinks[h], (double)fixture.dsinks[h]);
    assert_true(largest > 0.1); /* the test sees something */
    fixture_close(&moved);
    fixture_close(&fixture);
}

static void on_one_rank(void **state)
{
    (void)state;
    check_gradient("full n=5 h=2/1 d=4 dv=3");
    check_gradient("causal n=5 h=1 d=3 b=2");
}

static void round_a_ring(void **state)
{
    (void)state;
    check_gradient("full n=6 h=2/1 d=4 dv=3 ring=3");
    check_gradient("causal n=7 h=2 d=3 ring=3 zigzag");
    check_gradient("window:2,1 n=7 h=1 d=4 ring=4");
    check_gradient("prefix:2 n=6 h=1 d=4 ring=2 striped");
}

static void through_allgather(void **state)
{
    (void)state;
    check_gradient("causal n=6 h=2/1 d=4 dv=3 ring=3 striped allgather");
    check_gradient("full;docs=0,2,2,6 n=6 h=1 d=4 ring=2 zigzag allgather");
}

/* The first queries are before all keys: no output, no gradient, and their dLSE has no effect. */
static void of_rows_that_see_nothing(void **state)
{
    (void)state;
    check_gradient("causal n=7 nk=3 h=2/1 d=4 ring=2");
    check_gradient("window:1 n=6 nk=4 h=1 d=4 ring=3 allgather");
}

/* A scale of its own is part of the slope. */
static void with_a_scale(void **state)
{
    (void)state;
    check_gradient("causal n=5 h=1 d=4 scale=0.8 ring=2");
}

static void of_sparse_patterns(void **state)
{
    (void)state;
    check_gradient("dilated:4/1,8/2 n=7 h=2/1 d=3 ring=3");
    check_gradient("dilated:3/1,7/2;dedup n=7 h=2/1 d=3 ring=3 zigzag");
    check_gradient("dilated:4/1,7/3;groups n=7 h=3 d=3 ring=2 striped");
    check_gradient("dilated:5/1,7/2;causal n=7 h=2/1 d=3 ring=3 allgather");
    check_gradient("blocks:2;local=1;global=1 n=7 h=2/1 d=3 ring=3");
    check_gradient("blocks:2;random=0.4;seed=3;causal n=7 h=2 d=3 ring=2 striped allgather");
    check_gradient("dilated:4/1,8/2 n=2 nk=7 h=2/1 d=3 ring=3");
}

static void of_orders(void **state)
{
    (void)state;
    check_gradient("causal n=6 h=1 d=4 ring=3 order=hilbert");
    check_gradient("window:2,1;causal n=7 h=1 d=4 ring=2 striped order=shuffled:3");
    check_gradient("dilated:4/1,7/2;causal n=7 h=2/1 d=3 ring=3 order=hilbert allgather");
}

static void of_score_terms(void **state)
{
    (void)state;
    check_gradient("causal n=6 h=2/1 d=3 ring=3 softcap=2");
    check_gradient("full n=6 h=2/1 d=3 ring=2 striped alibi");
    check_gradient("causal n=6 h=2/1 d=3 ring=3 zigzag sinks");
    check_gradient("dilated:4/3 n=6 h=2/1 d=3 ring=2 sinks"); /* rows that see only the sink */
    check_gradient("full n=6 h=2/1 d=3 ring=3 striped allgather bias=heads");
    check_gradient("full n=6 h=2 d=3 ring=3 dropout=0.4");
    check_gradient("dilated:4/1,6/2 n=6 h=2/1 d=3 ring=3 allgather dropout=0.4 sinks");
    check_gradient("causal n=6 h=2/1 d=3 b=2 ring=2 order=shuffled:5 softcap=3 alibi bias=batch "
                   "sinks dropout=0.3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_rank),       cmocka_unit_test(round_a_ring),
        cmocka_unit_test(through_allgather), cmocka_unit_test(of_rows_that_see_nothing),
        cmocka_unit_test(with_a_scale),      cmocka_unit_test(of_sparse_patterns),
        cmocka_unit_test(of_orders),         cmocka_unit_test(of_score_terms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
