/* SPDX-License-Identifier: Apache-2.0 */
/* expect.c - what the fp64 oracle says of a trial. */
#include "support/expect.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/half.h"
#include "harness/oracle/oracle.h"

/* ---- The oracle's inputs --------------------------------------------------------------------- */

static const float *row_of(void *context, enum tensor tensor, int64_t batch, int64_t position,
                           int64_t head, float *scratch)
{
    const struct fixture *fixture = context;
    view_read(&fixture->whole[tensor], batch, position, head, scratch);
    return scratch;
}

/* ---- Evaluation ------------------------------------------------------------------------------ */

/* What an error bound is made of. */
struct tally {
    double naive_error, terms, moved;
};

struct evaluation {
    const struct fixture *fixture;
    struct expect *expect;
    struct oracle oracle;
    struct oracle_row row;
    struct triple dk, dv; /* [key, dim] of one KV head */
    struct tally tally[TENSOR_COUNT];
    double lse_most;
};

static void note(struct evaluation *e, enum tensor tensor, struct number n)
{
    struct tally *tally = &e->tally[tensor];
    if (isfinite(n.exact))
        tally->naive_error = fmax(tally->naive_error, fabs((double)n.naive - n.exact));
    tally->terms = fmax(tally->terms, n.terms);
    tally->moved = fmax(tally->moved, n.moved);
}

/* Keeps `dim` numbers of a row of a tensor. */
static void keep(struct evaluation *e, enum tensor tensor, int64_t row, const struct triple *t,
                 int64_t offset, int64_t dim)
{
    for (int64_t i = 0; i < dim; i++) {
        e->expect->exact[tensor][row * dim + i] = t->exact[offset + i];
        note(e, tensor,
             (struct number){ t->exact[offset + i], t->terms[offset + i], t->moved[offset + i],
                              t->naive[offset + i] });
    }
}

static void evaluate_query(struct evaluation *e, int64_t batch, int64_t query, int64_t head)
{
    const struct trial *t = &e->fixture->trial;
    int64_t row = (batch * t->q_len + query) * t->q_heads + head;
    oracle_compute(&e->oracle, batch, query, head, &e->row);
    keep(e, TENSOR_OUT, row, &e->row.out, 0, t->value_dim);
    e->expect->exact[TENSOR_LSE][row] = e->row.lse;
    note(e, TENSOR_LSE, (struct number){ e->row.lse, 1.0, e->row.lse_moved, e->row.naive_lse });
    e->expect->pairs += e->row.pairs;
    if (isfinite(e->row.lse)) e->lse_most = fmax(e->lse_most, fabs(e->row.lse));
    if (!t->backward) return;
    keep(e, TENSOR_DQ, row, &e->row.dq, 0, t->dim);
    oracle_add_keys(&e->oracle, &e->row, &e->dk, &e->dv);
}

/* The queries of all heads that read one KV head, then the gradients of its keys. */
static void evaluate_head(struct evaluation *e, int64_t batch, int64_t kv_head)
{
    const struct trial *t = &e->fixture->trial;
    int64_t group = t->q_heads / t->kv_heads;
    triple_clear(&e->dk, t->k_len * t->dim);
    triple_clear(&e->dv, t->k_len * t->value_dim);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t query = 0; query < t->q_len; query++) evaluate_query(e, batch, query, head);
    if (!t->backward) return;
    for (int64_t i = 0; i < t->k_len * t->dim; i++)
        e->dk.naive[i] = half_round((ra_dtype)t->dtype, e->dk.naive[i]);
    for (int64_t i = 0; i < t->k_len * t->value_dim; i++)
        e->dv.naive[i] = half_round((ra_dtype)t->dtype, e->dv.naive[i]);
    for (int64_t key = 0; key < t->k_len; key++) {
        int64_t row = (batch * t->k_len + key) * t->kv_heads + kv_head;
        keep(e, TENSOR_DK, row, &e->dk, key * t->dim, t->dim);
        keep(e, TENSOR_DV, row, &e->dv, key * t->value_dim, t->value_dim);
    }
}

static double bound_of(const struct evaluation *e, enum tensor tensor)
{
    ra_dtype dtype = tensor_dtype(&e->fixture->trial, tensor);
    double terms = tensor == TENSOR_LSE ? 1.0 + e->lse_most : e->tally[tensor].terms;
    return 2.0 * e->tally[tensor].naive_error + (half_unit(dtype) + 0x1p-22) * terms +
           e->tally[tensor].moved + half_tiny(dtype);
}

/* The problem string without kernel, ring, partition, strategy, threads and strides. */
static char *key_of(const struct fixture *fixture)
{
    struct trial t = fixture->trial;
    t.ranks = 1;
    t.threads = 0;
    t.strides = STRIDES_PACKED;
    t.kernel[0] = 0;
    snprintf(t.partition, sizeof t.partition, "contiguous");
    snprintf(t.strategy, sizeof t.strategy, "ring");
    return trial_format(&t);
}

void expect_open(struct expect *expect, const struct fixture *fixture)
{
    const struct trial *t = &fixture->trial;
    struct evaluation e = { .fixture = fixture, .expect = expect };
    struct source source = { row_of, (void *)fixture, &fixture->terms };
    *expect = (struct expect){ .key = key_of(fixture) };
    for (int i = TENSOR_OUT; i < TENSOR_COUNT; i++) {
        if (!fixture->whole[i].data) continue;
        expect->exact[i] = calloc((size_t)fixture_count(fixture, i), sizeof *expect->exact[i]);
        assert_non_null(expect->exact[i]);
    }
    assert_int_equal(oracle_open(&e.oracle, t, source), 0);
    assert_int_equal(oracle_row_open(&e.row, &e.oracle), 0);
    assert_int_equal(triple_open(&e.dk, (size_t)(t->k_len * t->dim)), 0);
    assert_int_equal(triple_open(&e.dv, (size_t)(t->k_len * t->value_dim)), 0);
    for (int64_t batch = 0; batch < t->batch; batch++)
        for (int64_t kv_head = 0; kv_head < t->kv_heads; kv_head++)
            evaluate_head(&e, batch, kv_head);
    for (int i = TENSOR_OUT; i < TENSOR_COUNT; i++) expect->bound[i] = bound_of(&e, i);
    triple_close(&e.dk);
    triple_close(&e.dv);
    oracle_row_close(&e.row);
    oracle_close(&e.oracle);
}

void expect_close(struct expect *expect)
{
    for (int i = 0; i < TENSOR_COUNT; i++) free(expect->exact[i]);
    free(expect->key);
    *expect = (struct expect){ .key = NULL };
}

/* ---- Comparison ------------------------------------------------------------------------------ */

static void match_tensor(const struct expect *expect, const struct fixture *fixture,
                         enum tensor tensor)
{
    const struct view *view = &fixture->whole[tensor];
    double bound = expect->bound[tensor];
    for (int64_t i = 0; i < fixture_count(fixture, tensor); i++) {
        double want = expect->exact[tensor][i];
        float got;
        half_to_float(view->dtype, view->data + (size_t)i * half_bytes(view->dtype), 1, &got);
        bool good = isinf(want) ? (double)got == want : fabs((double)got - want) <= bound;
        if (!good)
            fixture_fail(fixture, "%s, element %lld: %.9g, but %.9g is right (allowed error %.3g)",
                         tensor_name(tensor), (long long)i, (double)got, want, bound);
    }
}

/* A query that sees nothing: exactly 0. */
static void match_blind(const struct expect *expect, const struct fixture *fixture)
{
    const struct trial *t = &fixture->trial;
    for (int64_t row = 0; row < t->batch * t->q_len * t->q_heads; row++) {
        if (!isinf(expect->exact[TENSOR_LSE][row])) continue;
        int64_t head = row % t->q_heads, query = row / t->q_heads % t->q_len;
        int64_t batch = row / t->q_heads / t->q_len;
        for (int64_t d = 0; d < t->value_dim; d++)
            if (fixture_number(fixture, TENSOR_OUT, batch, query, head, d) != 0.0)
                fixture_fail(fixture, "query %lld sees nothing, but its output is not 0",
                             (long long)query);
        for (int64_t d = 0; t->backward && d < t->dim; d++)
            if (fixture_number(fixture, TENSOR_DQ, batch, query, head, d) != 0.0)
                fixture_fail(fixture, "query %lld sees nothing, but its gradient is not 0",
                             (long long)query);
    }
}

/* From the lab's own out and LSE, which are matched before. */
static void match_sinks(const struct fixture *fixture)
{
    struct source source = { row_of, (void *)fixture, &fixture->terms };
    struct oracle oracle;
    struct oracle_row row;
    if (!fixture->dsinks) return;
    assert_int_equal(oracle_open(&oracle, &fixture->trial, source), 0);
    assert_int_equal(oracle_row_open(&row, &oracle), 0);
    for (int64_t h = 0; h < fixture->trial.q_heads; h++) {
        struct number want = { .exact = 0.0 };
        for (int64_t i = 0; i < fixture->trial.batch * fixture->trial.q_len; i++)
            oracle_add_sink(&oracle, i / fixture->trial.q_len, i % fixture->trial.q_len, h, &row,
                            &want);
        double bound = 2.0 * fabs((double)want.naive - want.exact) + 0x1p-24 * 5.0 * want.terms +
                       want.moved;
        if (!(fabs((double)fixture->dsinks[h] - want.exact) <= bound))
            fixture_fail(fixture, "dsinks, head %lld: %.9g, but %.9g is right (allowed error %.3g)",
                         (long long)h, (double)fixture->dsinks[h], want.exact, bound);
    }
    oracle_row_close(&row);
    oracle_close(&oracle);
}

void expect_match(const struct expect *expect, const struct fixture *fixture)
{
    int64_t forward = 0, backward = 0;
    for (int i = TENSOR_OUT; i < TENSOR_COUNT; i++)
        if (fixture->whole[i].data && !(i == TENSOR_LSE && fixture->no_lse))
            match_tensor(expect, fixture, i);
    match_blind(expect, fixture);
    match_sinks(fixture);
    for (int rank = 0; rank < fixture->trial.ranks; rank++) {
        forward += fixture->rank[rank].forward.pairs;
        backward += fixture->rank[rank].backward.pairs;
    }
    if (forward != expect->pairs || (fixture->trial.backward && backward != expect->pairs))
        fixture_fail(fixture, "%lld pairs forward, %lld backward; the oracle counts %lld",
                     (long long)forward, (long long)backward, (long long)expect->pairs);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

enum { REMEMBERED = 8 };
static struct expect remembered[REMEMBERED];
static int newest;

void expect_lab(const struct fixture *fixture)
{
    char *key = key_of(fixture);
    for (int i = 0; i < REMEMBERED; i++) {
        if (!remembered[i].key || strcmp(remembered[i].key, key)) continue;
        free(key);
        expect_match(&remembered[i], fixture);
        return;
    }
    free(key);
    newest = (newest + 1) % REMEMBERED;
    expect_close(&remembered[newest]);
    expect_open(&remembered[newest], fixture);
    expect_match(&remembered[newest], fixture);
}

void expect_forget(void)
{
    for (int i = 0; i < REMEMBERED; i++) expect_close(&remembered[i]);
}

void expect_error(const struct expect *expect, const struct fixture *fixture, enum tensor tensor,
                  double *most, double *mean)
{
    const struct view *view = &fixture->whole[tensor];
    int64_t count = fixture_count(fixture, tensor);
    double squares = 0.0;
    *most = 0.0;
    for (int64_t i = 0; i < count; i++) {
        float got;
        half_to_float(view->dtype, view->data + (size_t)i * half_bytes(view->dtype), 1, &got);
        double error = fabs((double)got - expect->exact[tensor][i]);
        *most = fmax(*most, error);
        squares += error * error;
    }
    *mean = sqrt(squares / (double)count);
}
