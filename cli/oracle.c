/* oracle.c - attention in double precision, straight from its definition, one query row at a
 * time. */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>

#include "half.h"

/* ---- Room ------------------------------------------------------------------------------------ */

int oracle_open(struct oracle *oracle, const struct trial *trial, struct source source)
{
    *oracle = (struct oracle){ .trial = trial, .source = source };
    oracle->scale = trial->scale > 0.0 ? (double)(float)trial->scale
                                       : 1.0 / sqrt((double)trial->dim);
    return mask_open(&oracle->mask, trial->pattern);
}

void oracle_close(struct oracle *oracle) { mask_close(&oracle->mask); }

int triple_open(struct triple *triple, size_t count)
{
    triple->exact = calloc(count, sizeof *triple->exact);
    triple->terms = calloc(count, sizeof *triple->terms);
    triple->naive = calloc(count, sizeof *triple->naive);
    if (triple->exact && triple->terms && triple->naive) return EXIT_PASS;
    triple_close(triple);
    return fault("the oracle is out of memory: %zu numbers", count);
}

void triple_close(struct triple *triple)
{
    free(triple->exact);
    free(triple->terms);
    free(triple->naive);
    *triple = (struct triple){ .exact = NULL };
}

int oracle_row_open(struct oracle_row *row, const struct trial *t)
{
    size_t keys = (size_t)t->k_len, dim = (size_t)t->dim, value_dim = (size_t)t->value_dim;
    *row = (struct oracle_row){
        .keys = calloc(keys, sizeof *row->keys),
        .weight = calloc(keys, sizeof *row->weight),
        .slope = calloc(keys, sizeof *row->slope),
        .slope_terms = calloc(keys, sizeof *row->slope_terms),
        .naive_weight = calloc(keys, sizeof *row->naive_weight),
        .naive_slope = calloc(keys, sizeof *row->naive_slope),
        .q = calloc(dim, sizeof *row->q),
        .k = calloc(dim, sizeof *row->k),
        .v = calloc(value_dim, sizeof *row->v),
        .dout = calloc(value_dim, sizeof *row->dout),
    };
    bool good = row->keys && row->weight && row->slope && row->slope_terms && row->naive_weight &&
                row->naive_slope && row->q && row->k && row->v && row->dout;
    int status = good ? triple_open(&row->out, value_dim) : fault("the oracle is out of memory");
    if (!status) status = triple_open(&row->dq, dim);
    if (status) oracle_row_close(row);
    return status;
}

void oracle_row_close(struct oracle_row *row)
{
    void *const parts[] = {
        row->keys,        row->weight, row->slope, row->slope_terms, row->naive_weight,
        row->naive_slope, row->q,      row->k,     row->v,           row->dout
    };
    for (int i = 0; i < COUNT(parts); i++) free(parts[i]);
    triple_close(&row->out);
    triple_close(&row->dq);
    *row = (struct oracle_row){ .seen = 0 };
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* A dot product, three times. The naive one adds up in order; the others in four parts, for
 * speed. */
struct dot {
    double exact, terms;
    float naive;
};

static struct dot dot(const float *a, const float *b, int64_t dim)
{
    double exact[4] = { 0 }, terms[4] = { 0 };
    float naive = 0.0f;
    for (int64_t i = 0; i < dim; i++) {
        double product = (double)a[i] * (double)b[i];
        exact[i & 3] += product;
        terms[i & 3] += fabs(product);
        naive += a[i] * b[i];
    }
    return (struct dot){ exact[0] + exact[1] + exact[2] + exact[3],
                         terms[0] + terms[1] + terms[2] + terms[3], naive };
}

/* How much of a row goes into a sum. */
struct factor {
    double exact, terms;
    float naive;
};

static void add(const struct triple *sum, int64_t offset, struct factor f,
                const float *restrict row, int64_t dim)
{
    double *restrict exact = sum->exact + offset, *restrict terms = sum->terms + offset;
    float *restrict naive = sum->naive + offset;
    for (int64_t i = 0; i < dim; i++) {
        exact[i] += f.exact * (double)row[i];
        terms[i] += f.terms * fabs((double)row[i]);
        naive[i] += f.naive * row[i];
    }
}

static void clear(const struct triple *sum, int64_t dim)
{
    for (int64_t i = 0; i < dim; i++) {
        sum->exact[i] = sum->terms[i] = 0.0;
        sum->naive[i] = 0.0f;
    }
}

static void round_naive(const struct oracle *oracle, const struct triple *sum, int64_t dim)
{
    for (int64_t i = 0; i < dim; i++)
        sum->naive[i] = half_round((ra_dtype)oracle->trial->dtype, sum->naive[i]);
}

static const float *fetch(const struct oracle *oracle, enum tensor tensor, int64_t batch,
                          int64_t position, int64_t head, float *scratch)
{
    return oracle->source.row(oracle->source.context, tensor, batch, position, head, scratch);
}

/* ---- One query row --------------------------------------------------------------------------- */

/* Where a row stands. */
struct place {
    int64_t batch, query, head, kv_head;
};

/* Scores of all keys the row sees, into `weight`. */
static void row_scores(const struct oracle *o, struct place at, struct oracle_row *row)
{
    const struct trial *t = o->trial;
    int64_t position = at.query + t->k_len - t->q_len, first, end;
    mask_document(&o->mask, position, &first, &end);
    if (first < 0) first = 0;
    if (end > t->k_len) end = t->k_len;
    row->seen = 0;
    row->score_terms = 0.0;
    for (int64_t key = first; key < end; key++) {
        if (!mask_sees(&o->mask, position, key)) continue;
        const float *k = fetch(o, TENSOR_K, at.batch, key, at.kv_head, row->k);
        struct dot d = dot(row->q_row, k, t->dim);
        row->keys[row->seen] = key;
        row->weight[row->seen] = o->scale * d.exact;
        row->naive_weight[row->seen] = (float)o->scale * d.naive;
        row->score_terms = fmax(row->score_terms, o->scale * d.terms);
        row->seen++;
    }
}

/* Scores to weights that add up to 1; both LSEs. */
static void row_softmax(const struct oracle *o, struct oracle_row *row)
{
    double most = -INFINITY, sum = 0.0;
    float naive_most = -INFINITY, naive_sum = 0.0f;
    for (int64_t i = 0; i < row->seen; i++) {
        most = fmax(most, row->weight[i]);
        naive_most = fmaxf(naive_most, row->naive_weight[i]);
    }
    for (int64_t i = 0; i < row->seen; i++) {
        sum += row->weight[i] = exp(row->weight[i] - most);
        naive_sum += row->naive_weight[i] = expf(row->naive_weight[i] - naive_most);
    }
    for (int64_t i = 0; i < row->seen; i++) {
        row->weight[i] /= sum;
        row->naive_weight[i] = half_round((ra_dtype)o->trial->dtype,
                                          row->naive_weight[i] / naive_sum);
    }
    row->lse = row->seen ? most + log(sum) : -INFINITY;
    row->naive_lse = row->seen ? naive_most + logf(naive_sum) : -INFINITY;
}

static void row_output(const struct oracle *o, struct place at, struct oracle_row *row)
{
    int64_t dim = o->trial->value_dim;
    clear(&row->out, dim);
    for (int64_t i = 0; i < row->seen; i++) {
        const float *v = fetch(o, TENSOR_V, at.batch, row->keys[i], at.kv_head, row->v);
        struct factor f = { row->weight[i], row->weight[i], row->naive_weight[i] };
        add(&row->out, 0, f, v, dim);
    }
    round_naive(o, &row->out, dim);
}

/* rowsum(dout * out) - dlse */
static struct dot row_delta(const struct oracle *o, struct place at, const struct oracle_row *row)
{
    struct dot delta = { .exact = 0.0 };
    float scratch, dlse = *fetch(o, TENSOR_DLSE, at.batch, at.query, at.head, &scratch);
    for (int64_t i = 0; i < o->trial->value_dim; i++) {
        delta.exact += (double)row->dout_row[i] * row->out.exact[i];
        delta.terms += fabs((double)row->dout_row[i]) * row->out.terms[i];
        delta.naive += row->dout_row[i] * row->out.naive[i];
    }
    delta.exact -= (double)dlse;
    delta.terms += fabs((double)dlse);
    delta.naive -= dlse;
    return delta;
}

/* slope = weight (dout.v - delta), and dQ = scale sum slope k. */
static void row_gradient(const struct oracle *o, struct place at, struct oracle_row *row)
{
    const struct trial *t = o->trial;
    struct dot delta = row_delta(o, at, row);
    clear(&row->dq, t->dim);
    for (int64_t i = 0; i < row->seen; i++) {
        const float *v = fetch(o, TENSOR_V, at.batch, row->keys[i], at.kv_head, row->v);
        struct dot d = dot(row->dout_row, v, t->value_dim);
        row->slope[i] = row->weight[i] * (d.exact - delta.exact);
        row->slope_terms[i] = row->weight[i] * (d.terms + delta.terms);
        row->naive_slope[i] = half_round((ra_dtype)t->dtype,
                                         row->naive_weight[i] * (d.naive - delta.naive));
        struct factor f = { o->scale * row->slope[i], o->scale * row->slope_terms[i],
                            (float)o->scale * row->naive_slope[i] };
        const float *k = fetch(o, TENSOR_K, at.batch, row->keys[i], at.kv_head, row->k);
        add(&row->dq, 0, f, k, t->dim);
    }
    round_naive(o, &row->dq, t->dim);
}

void oracle_compute(const struct oracle *o, int64_t batch, int64_t query, int64_t head,
                    struct oracle_row *row)
{
    const struct trial *t = o->trial;
    struct place at = { batch, query, head, head * t->kv_heads / t->q_heads };
    row->q_row = fetch(o, TENSOR_Q, batch, query, head, row->q);
    row_scores(o, at, row);
    row_softmax(o, row);
    row_output(o, at, row);
    if (!t->backward) return;
    row->dout_row = fetch(o, TENSOR_DOUT, batch, query, head, row->dout);
    row_gradient(o, at, row);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

void oracle_add_keys(const struct oracle *o, const struct oracle_row *row, struct triple *dk,
                     struct triple *dv)
{
    const struct trial *t = o->trial;
    for (int64_t i = 0; i < row->seen; i++) {
        struct factor value = { row->weight[i], row->weight[i], row->naive_weight[i] };
        struct factor key = { o->scale * row->slope[i], o->scale * row->slope_terms[i],
                              (float)o->scale * row->naive_slope[i] };
        add(dv, row->keys[i] * t->value_dim, value, row->dout_row, t->value_dim);
        add(dk, row->keys[i] * t->dim, key, row->q_row, t->dim);
    }
}

/* The key of oracle_key() and its rows. */
struct key_place {
    int64_t batch, key;
    const float *k, *v;
};

/* What query `query` of `head` gives to this key. out and LSE are the run's own. */
static void key_add_query(const struct oracle *o, const struct key_place *at, int64_t query,
                          int64_t head, struct oracle_row *row, struct triple sums[2])
{
    const struct trial *t = o->trial;
    ra_dtype dtype = (ra_dtype)t->dtype;
    float one;
    float lse = *fetch(o, TENSOR_LSE, at->batch, query, head, &one);
    float dlse = *fetch(o, TENSOR_DLSE, at->batch, query, head, &one);
    const float *q = fetch(o, TENSOR_Q, at->batch, query, head, row->q);
    const float *dout = fetch(o, TENSOR_DOUT, at->batch, query, head, row->dout);
    const float *out = fetch(o, TENSOR_OUT, at->batch, query, head, row->out.naive);
    struct dot score = dot(q, at->k, t->dim), dp = dot(dout, at->v, t->value_dim);
    struct dot delta = dot(dout, out, t->value_dim);
    double weight = exp(o->scale * score.exact - (double)lse);
    float naive_weight = half_round(dtype, expf((float)o->scale * score.naive - lse));
    float naive_slope = half_round(dtype, naive_weight * (dp.naive - (delta.naive - dlse)));
    struct factor key = {
        o->scale * weight * (dp.exact - (delta.exact - (double)dlse)),
        o->scale * weight * (dp.terms + delta.terms + fabs((double)dlse)),
        (float)o->scale * naive_slope,
    };
    add(&sums[0], 0, key, q, t->dim);
    add(&sums[1], 0, (struct factor){ weight, weight, naive_weight }, dout, t->value_dim);
    row->score_terms = fmax(row->score_terms, o->scale * score.terms);
}

void oracle_key(const struct oracle *o, int64_t batch, int64_t key, int64_t kv_head,
                struct oracle_row *row, struct triple *dk, struct triple *dv)
{
    const struct trial *t = o->trial;
    int64_t group = t->q_heads / t->kv_heads, shift = t->k_len - t->q_len;
    struct triple sums[2] = { *dk, *dv };
    struct key_place at = { batch, key, fetch(o, TENSOR_K, batch, key, kv_head, row->k),
                            fetch(o, TENSOR_V, batch, key, kv_head, row->v) };
    clear(dk, t->dim);
    clear(dv, t->value_dim);
    for (int64_t query = 0; query < t->q_len; query++) {
        int64_t first, end;
        mask_document(&o->mask, query + shift, &first, &end);
        if (key < first || key >= end || !mask_sees(&o->mask, query + shift, key)) continue;
        for (int64_t i = 0; i < group; i++)
            key_add_query(o, &at, query, kv_head * group + i, row, sums);
    }
    round_naive(o, dk, t->dim);
    round_naive(o, dv, t->value_dim);
}
