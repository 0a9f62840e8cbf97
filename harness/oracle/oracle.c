/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.c - attention in double precision, directly from its definition, one query row at a
 * time. */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/half.h"
#include "harness/base/philox.h"
#include "harness/problem/sequences.h"

/* ---- Room ------------------------------------------------------------------------------------ */

static bool has_tensor_cores(const struct trial *trial)
{
    return !trial_on_cpu(trial) && trial->dtype != RA_F32 && strcmp(trial->kernel, "simt") != 0;
}

int oracle_open(struct oracle *oracle, const struct trial *trial, struct source source)
{
    *oracle = (struct oracle){ .trial = trial, .source = source };
    oracle->cuts_sums = has_tensor_cores(trial);
    oracle->scale = trial->scale > 0.0 ? (double)(float)trial->scale
                                       : 1.0 / sqrt((double)trial->dim);
    struct mask_setup setup = { trial->pattern, trial->order, trial->q_heads, trial->k_len };
    return mask_open(&oracle->mask, &setup);
}

void oracle_close(struct oracle *oracle) { mask_close(&oracle->mask); }

int triple_open(struct triple *triple, size_t count)
{
    triple->exact = calloc(count, sizeof *triple->exact);
    triple->terms = calloc(count, sizeof *triple->terms);
    triple->moved = calloc(count, sizeof *triple->moved);
    triple->naive = calloc(count, sizeof *triple->naive);
    if (triple->exact && triple->terms && triple->moved && triple->naive) return EXIT_PASS;
    triple_close(triple);
    return fault("the oracle is out of memory: %zu numbers", count);
}

void triple_close(struct triple *triple)
{
    free(triple->exact);
    free(triple->terms);
    free(triple->moved);
    free(triple->naive);
    *triple = (struct triple){ .exact = NULL };
}

void triple_clear(struct triple *triple, int64_t count)
{
    memset(triple->exact, 0, (size_t)count * sizeof *triple->exact);
    memset(triple->terms, 0, (size_t)count * sizeof *triple->terms);
    memset(triple->moved, 0, (size_t)count * sizeof *triple->moved);
    memset(triple->naive, 0, (size_t)count * sizeof *triple->naive);
}

/* Everything a row allocates itself. */
enum { ROW_PARTS = 19 };

static void row_parts(const struct oracle_row *row, void *parts[ROW_PARTS])
{
    void *const all[ROW_PARTS] = {
        row->keys,
        row->count,
        row->score,
        row->rounding,
        row->weight,
        row->moved,
        row->drift,
        row->kept,
        row->bend,
        row->slope,
        row->slope_terms,
        row->slope_moved,
        row->naive_weight,
        row->naive_bend,
        row->naive_slope,
        row->q,
        row->k,
        row->v,
        row->dout,
    };
    for (int i = 0; i < ROW_PARTS; i++) parts[i] = all[i];
}

int oracle_row_open(struct oracle_row *row, const struct oracle *oracle)
{
    const struct trial *t = oracle->trial;
    size_t keys = (size_t)mask_most(&oracle->mask, t->k_len);
    size_t dim = (size_t)t->dim, value_dim = (size_t)t->value_dim;
    *row = (struct oracle_row){
        .keys = calloc(keys, sizeof *row->keys),
        .count = calloc(keys, sizeof *row->count),
        .score = calloc(keys, sizeof *row->score),
        .rounding = calloc(keys, sizeof *row->rounding),
        .weight = calloc(keys, sizeof *row->weight),
        .moved = calloc(keys, sizeof *row->moved),
        .drift = calloc(keys, sizeof *row->drift),
        .kept = calloc(keys, sizeof *row->kept),
        .bend = calloc(keys, sizeof *row->bend),
        .slope = calloc(keys, sizeof *row->slope),
        .slope_terms = calloc(keys, sizeof *row->slope_terms),
        .slope_moved = calloc(keys, sizeof *row->slope_moved),
        .naive_weight = calloc(keys, sizeof *row->naive_weight),
        .naive_bend = calloc(keys, sizeof *row->naive_bend),
        .naive_slope = calloc(keys, sizeof *row->naive_slope),
        .q = calloc(dim, sizeof *row->q),
        .k = calloc(dim, sizeof *row->k),
        .v = calloc(value_dim, sizeof *row->v),
        .dout = calloc(value_dim, sizeof *row->dout),
    };
    bool good = true;
    void *parts[ROW_PARTS];
    row_parts(row, parts);
    for (int i = 0; i < ROW_PARTS; i++) good = good && parts[i];
    int status = good ? triple_open(&row->out, value_dim) : fault("the oracle is out of memory");
    if (!status) status = triple_open(&row->dq, dim);
    if (status) oracle_row_close(row);
    return status;
}

void oracle_row_close(struct oracle_row *row)
{
    void *parts[ROW_PARTS];
    row_parts(row, parts);
    for (int i = 0; i < ROW_PARTS; i++) free(parts[i]);
    triple_close(&row->out);
    triple_close(&row->dq);
    *row = (struct oracle_row){ .seen = 0 };
}

/* ---- Sums ------------------------------------------------------------------------------------ */

/* A dot product: exact, of sizes, naive. The naive one adds up in order; the others in four parts,
 * for speed. */
static struct number dot(const float *a, const float *b, int64_t dim)
{
    double exact[4] = { 0 }, terms[4] = { 0 };
    float naive = 0.0f;
    for (int64_t i = 0; i < dim; i++) {
        double product = (double)a[i] * (double)b[i];
        exact[i & 3] += product;
        terms[i & 3] += fabs(product);
        naive += a[i] * b[i];
    }
    return (struct number){ exact[0] + exact[1] + exact[2] + exact[3],
                            terms[0] + terms[1] + terms[2] + terms[3], 0.0, naive };
}

/* Adds a row times a factor. */
static void add(const struct triple *sum, int64_t offset, struct number f,
                const float *restrict row, int64_t dim)
{
    double *restrict exact = sum->exact + offset, *restrict terms = sum->terms + offset;
    double *restrict moved = sum->moved + offset;
    float *restrict naive = sum->naive + offset;
    for (int64_t i = 0; i < dim; i++) {
        exact[i] += f.exact * (double)row[i];
        terms[i] += f.terms * fabs((double)row[i]);
        moved[i] += f.moved * fabs((double)row[i]);
        naive[i] += f.naive * row[i];
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

/* The coordinates of a query row. */
struct place {
    int64_t batch, query, head, kv_head;
};

#define ROUNDING 0x1p-24 /* of a number near 1, in f32 */

/* A score, and what a small change of scale q.k makes of it. */
struct score {
    struct number x;
    double bend;
    float naive_bend;
};

/* q.k. Tensor cores cut the sum off after every 16 products instead of rounding it, always to the
 * same side: on average by half a unit in the last place, which is at most a rounding of that sum.
 * Bounds take what a score moves by twice, so half of these sums is added to its terms. */
static struct number product_of(const struct oracle *o, const float *q, const float *k)
{
    struct number product = dot(q, k, o->trial->dim);
    double sum = 0.0;
    for (int64_t i = 0; o->cuts_sums && i < o->trial->dim; i++) {
        sum += (double)q[i] * (double)k[i];
        if (i % 16 == 15) product.terms += 0.5 * fabs(sum);
    }
    return product;
}

/* The position of a query among all keys. */
static int64_t position_of(const struct oracle *o, int64_t query)
{
    const ra_sequence at = sequences_of(o->trial, query);
    return at.k_first + sequences_position(o->trial, &at, query);
}

/* t + bias - slope |p - j|, where t is scale q.k, with the softcap applied. A tanh near 1 is off by
 * a rounding of 1, so the sizes of a score's terms include the cap. */
static struct score score_of(const struct oracle *o, struct place at, int64_t key,
                             struct number product)
{
    const struct trial *t = o->trial;
    struct score s = { { o->scale * product.exact, o->scale * product.terms, 0.0,
                         (float)o->scale * product.naive },
                       1.0,
                       1.0f };
    if (t->softcap > 0.0) {
        double cap = (double)(float)t->softcap, bent = tanh(s.x.exact / cap);
        float naive = tanhf(s.x.naive / (float)cap);
        s.bend = 1.0 - bent * bent;
        s.naive_bend = 1.0f - naive * naive;
        s.x = (struct number){ cap * bent, s.x.terms + fabs(cap * bent), 0.0, (float)cap * naive };
    }
    float bias = o->source.terms ? terms_bias(o->source.terms, at.batch, at.head, at.query, key)
                                 : 0.0f;
    float slope = t->slopes ? t->slopes[at.head] : 0.0f;
    double far = fabs((double)(position_of(o, at.query) - key));
    s.x.exact += (double)bias - (double)slope * far;
    s.x.naive += bias - slope * (float)far;
    if (isfinite(bias)) s.x.terms += fabs((double)bias) + (double)slope * far;
    return s;
}

/* 0 if dropout drops the weight, otherwise its factor. */
static double kept(const struct oracle *o, struct place at, int64_t key)
{
    const struct trial *t = o->trial;
    if (t->dropout <= 0.0) return 1.0;
    int64_t position = position_of(o, at.query);
    const uint32_t counter[4] = { (uint32_t)(key / 4), (uint32_t)position, (uint32_t)at.head,
                                  (uint32_t)at.batch };
    uint32_t word = philox_word((uint64_t)t->seed, counter, (int)(key % 4));
    return (double)word >= t->dropout * 0x1p32 ? 1.0 / (1.0 - t->dropout) : 0.0;
}

/* Adds a key that the pattern shows `count` times; one that a bias hides is only counted. */
static void row_add_key(const struct oracle *o, struct place at, int64_t key, int count,
                        struct oracle_row *row)
{
    const float *k = fetch(o, TENSOR_K, at.batch, key, at.kv_head, row->k);
    struct score s = score_of(o, at, key, product_of(o, row->q_row, k));
    row->pairs += count;
    if (isinf(s.x.exact) && s.x.exact < 0.0) return;
    int64_t i = row->seen++;
    row->keys[i] = key;
    row->count[i] = count;
    row->score[i] = s.x.exact;
    row->rounding[i] = ROUNDING * s.x.terms;
    row->naive_weight[i] = s.x.naive;
    row->bend[i] = s.bend;
    row->naive_bend[i] = s.naive_bend;
    row->kept[i] = kept(o, at, key);
}

/* Scores of all keys the row sees, into `weight`. */
static void row_scores(const struct oracle *o, struct place at, struct oracle_row *row)
{
    const ra_sequence sequence = sequences_of(o->trial, at.query);
    int64_t position = sequences_position(o->trial, &sequence, at.query), first, end;
    mask_range(&o->mask, position, &first, &end);
    if (first < 0) first = 0;
    if (end > sequence.k_count) end = sequence.k_count;
    row->seen = row->pairs = 0;
    for (int64_t key = first; key < end; key++) {
        int count = mask_count(&o->mask, at.head, position, key);
        if (count) row_add_key(o, at, sequence.k_first + key, count, row);
    }
}

/* The logit of a head's sink; -inf where there is none. */
static float sink_of(const struct oracle *o, int64_t head)
{
    const struct terms *terms = o->source.terms;
    return terms && terms->sinks ? terms->sinks[head] : -INFINITY;
}

/* exp(x - most), where both may be infinite: a sink without limit takes everything. */
static double above(double x, double most) { return x == most ? 1.0 : exp(x - most); }

/* Scores to weights, which add up to 1 with the sink's; both LSEs. A score that is NaN makes them
 * all NaN. */
static void row_softmax(const struct oracle *o, int64_t head, struct oracle_row *row)
{
    float sink = sink_of(o, head), naive_most = sink, naive_sum;
    double most = (double)sink, sum;
    for (int64_t i = 0; i < row->seen; i++) {
        most = fmax(most, row->score[i]);
        naive_most = fmaxf(naive_most, row->naive_weight[i]);
    }
    bool empty = row->seen == 0 && isinf(sink) && sink < 0.0f;
    sum = empty ? 0.0 : above((double)sink, most);
    naive_sum = empty ? 0.0f : (float)above((double)sink, (double)naive_most);
    for (int64_t i = 0; i < row->seen; i++) {
        sum += row->weight[i] = row->count[i] * exp(row->score[i] - most);
        naive_sum += row->naive_weight[i] = (float)row->count[i] *
                                            expf(row->naive_weight[i] - naive_most);
    }
    for (int64_t i = 0; i < row->seen; i++) {
        row->weight[i] /= sum;
        row->naive_weight[i] = half_round((ra_dtype)o->trial->dtype,
                                          row->naive_weight[i] / naive_sum);
    }
    row->lse = empty ? -INFINITY : most + log(sum);
    row->naive_lse = empty ? -INFINITY : naive_most + logf(naive_sum);
}

#define FLUSHED 0x1p-126 /* numbers below this may become 0 */

/* How far a weight moves at most when its logarithm, less than 0, moves by `by`. */
static double weight_moved(double weight, double logarithm, double by)
{
    if (by < 1.0) return weight * expm1(by) + FLUSHED;
    return logarithm + by < 0.0 ? exp(logarithm + by) + FLUSHED : 1.0;
}

/* How far every weight and the LSE move when each score moves by its rounding, either way. The LSE
 * moves by less than the logarithm of sum w exp(rounding), and a weight by no more than all others
 * together, for the sum stays 1. Kernels round weights to the dtype: many of these roundings cancel
 * out, that of a weight near 1 does not, so each counts by its weight. */
static void row_moves(const struct oracle *o, int64_t head, struct oracle_row *row)
{
    double sink = (double)sink_of(o, head), sink_rounding = ROUNDING * fabs(sink), all = 0.0;
    double unit = half_unit((ra_dtype)o->trial->dtype);
    double most = isfinite(sink) ? sink + sink_rounding : -INFINITY, raised = 0.0;
    for (int64_t i = 0; i < row->seen; i++) most = fmax(most, row->score[i] + row->rounding[i]);
    for (int64_t i = 0; i < row->seen; i++)
        raised += row->count[i] * exp(row->score[i] + row->rounding[i] - most);
    if (isfinite(sink)) raised += exp(sink + sink_rounding - most);
    double lse = fmax(0.0, most + log(raised) - row->lse);
    for (int64_t i = 0; i < row->seen; i++) {
        double by = row->rounding[i] + lse, logarithm = row->score[i] - row->lse;
        row->moved[i] = weight_moved(row->weight[i], logarithm, by);
        row->drift[i] = weight_moved(row->weight[i], logarithm, by + ROUNDING * fabs(row->lse));
        all += row->moved[i];
    }
    if (isfinite(sink))
        all += weight_moved(exp(sink - row->lse), sink - row->lse, sink_rounding + lse);
    for (int64_t i = 0; i < row->seen; i++) {
        double rounded = unit * row->weight[i] * row->weight[i];
        row->moved[i] = fmin(row->moved[i], all - row->moved[i]) + rounded;
        row->drift[i] += rounded;
    }
    row->lse_moved = 2.0 * lse;
}

/* What the value of the i-th key counts in the output; `moved` says how far its weight moves. */
static struct number value_factor(const struct oracle_row *row, int64_t i, const double *moved)
{
    double weight = row->weight[i] * row->kept[i];
    return (struct number){ weight, weight, moved[i] * row->kept[i],
                            row->naive_weight[i] * (float)row->kept[i] };
}

static void row_output(const struct oracle *o, struct place at, struct oracle_row *row)
{
    int64_t dim = o->trial->value_dim;
    triple_clear(&row->out, dim);
    for (int64_t i = 0; i < row->seen; i++) {
        const float *v = fetch(o, TENSOR_V, at.batch, row->keys[i], at.kv_head, row->v);
        add(&row->out, 0, value_factor(row, i, row->moved), v, dim);
    }
    round_naive(o, &row->out, dim);
}

/* rowsum(dout * out) - dlse */
static struct number row_delta(const struct oracle *o, struct place at,
                               const struct oracle_row *row)
{
    struct number delta = { .exact = 0.0 };
    float scratch, dlse = *fetch(o, TENSOR_DLSE, at.batch, at.query, at.head, &scratch);
    for (int64_t i = 0; i < o->trial->value_dim; i++) {
        delta.exact += (double)row->dout_row[i] * row->out.exact[i];
        delta.terms += fabs((double)row->dout_row[i]) * row->out.terms[i];
        delta.moved += fabs((double)row->dout_row[i]) * row->out.moved[i];
        delta.naive += row->dout_row[i] * row->out.naive[i];
    }
    delta.exact -= (double)dlse;
    delta.terms += fabs((double)dlse);
    delta.naive -= dlse;
    return delta;
}

/* What reaches q.k through one weight: weight (kept dout.v - delta), bent by the softcap. Its
 * sizes leave the bend out: 1 - tanh^2 is off by a rounding of 1, and moves by less than its score
 * over the cap. */
static void key_slope(const struct oracle *o, const struct number *dp, const struct number *delta,
                      int64_t i, struct oracle_row *row)
{
    double kept = row->kept[i], pull = kept * dp->exact - delta->exact, cap = o->trial->softcap;
    double bent = cap > 0.0 ? fmin(1.0, row->rounding[i] / cap) : 0.0;
    row->slope[i] = row->weight[i] * pull * row->bend[i];
    row->slope_terms[i] = row->weight[i] * (kept * dp->terms + delta->terms);
    row->slope_moved[i] = (row->drift[i] + row->weight[i] * bent) * fabs(pull) +
                          row->weight[i] * delta->moved + FLUSHED;
    row->naive_slope[i] = half_round(
        (ra_dtype)o->trial->dtype,
        row->naive_weight[i] * ((float)kept * dp->naive - delta->naive) * row->naive_bend[i]);
}

/* How much of a query or key goes into the gradient of the other. */
static struct number slope_factor(const struct oracle *o, const struct oracle_row *row, int64_t i)
{
    return (struct number){ o->scale * row->slope[i], o->scale * row->slope_terms[i],
                            o->scale * row->slope_moved[i], (float)o->scale * row->naive_slope[i] };
}

/* dQ = scale sum slope k. */
static void row_gradient(const struct oracle *o, struct place at, struct oracle_row *row)
{
    const struct trial *t = o->trial;
    struct number delta = row_delta(o, at, row);
    triple_clear(&row->dq, t->dim);
    for (int64_t i = 0; i < row->seen; i++) {
        const float *v = fetch(o, TENSOR_V, at.batch, row->keys[i], at.kv_head, row->v);
        struct number dp = dot(row->dout_row, v, t->value_dim);
        key_slope(o, &dp, &delta, i, row);
        const float *k = fetch(o, TENSOR_K, at.batch, row->keys[i], at.kv_head, row->k);
        add(&row->dq, 0, slope_factor(o, row, i), k, t->dim);
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
    row_softmax(o, head, row);
    row_moves(o, head, row);
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
        add(dv, row->keys[i] * t->value_dim, value_factor(row, i, row->drift), row->dout_row,
            t->value_dim);
        add(dk, row->keys[i] * t->dim, slope_factor(o, row, i), row->q_row, t->dim);
    }
}

/* The key of oracle_key() and its rows. */
struct key_place {
    int64_t key;
    const float *k, *v;
};

/* rowsum(dout * out) - dlse of a query, from the run's own out. */
static struct number own_delta(const struct oracle *o, struct place at, const float *dout,
                               struct oracle_row *row)
{
    float one, dlse = *fetch(o, TENSOR_DLSE, at.batch, at.query, at.head, &one);
    const float *out = fetch(o, TENSOR_OUT, at.batch, at.query, at.head, row->out.naive);
    struct number delta = dot(dout, out, o->trial->value_dim);
    return (struct number){ delta.exact - (double)dlse, delta.terms + fabs((double)dlse), 0.0,
                            delta.naive - dlse };
}

/* The contribution of a query that sees this key `count` times. out and LSE are those of the run.
 * The first element of `row` holds its weight. */
static void key_add_query(const struct oracle *o, const struct key_place *key, struct place at,
                          int count, struct oracle_row *row, struct triple sums[2])
{
    const struct trial *t = o->trial;
    float one, lse = *fetch(o, TENSOR_LSE, at.batch, at.query, at.head, &one);
    const float *q = fetch(o, TENSOR_Q, at.batch, at.query, at.head, row->q);
    const float *dout = fetch(o, TENSOR_DOUT, at.batch, at.query, at.head, row->dout);
    struct score s = score_of(o, at, key->key, product_of(o, q, key->k));
    struct number dp = dot(dout, key->v, t->value_dim), delta = own_delta(o, at, dout, row);
    if (isinf(s.x.exact) && s.x.exact < 0.0) return;
    row->weight[0] = count * exp(s.x.exact - (double)lse);
    row->rounding[0] = ROUNDING * s.x.terms;
    row->drift[0] = weight_moved(row->weight[0], s.x.exact - (double)lse,
                                 2.0 * row->rounding[0] + ROUNDING * fabs((double)lse));
    row->naive_weight[0] = half_round((ra_dtype)t->dtype, (float)count * expf(s.x.naive - lse));
    row->bend[0] = s.bend;
    row->naive_bend[0] = s.naive_bend;
    row->kept[0] = kept(o, at, key->key);
    key_slope(o, &dp, &delta, 0, row);
    add(&sums[0], 0, slope_factor(o, row, 0), q, t->dim);
    add(&sums[1], 0, value_factor(row, 0, row->drift), dout, t->value_dim);
}

void oracle_key(const struct oracle *o, int64_t batch, int64_t key, int64_t kv_head,
                struct oracle_row *row, struct triple *dk, struct triple *dv)
{
    const struct trial *t = o->trial;
    int64_t group = t->q_heads / t->kv_heads;
    struct triple sums[2] = { *dk, *dv };
    struct key_place place = { key, fetch(o, TENSOR_K, batch, key, kv_head, row->k),
                               fetch(o, TENSOR_V, batch, key, kv_head, row->v) };
    triple_clear(dk, t->dim);
    triple_clear(dv, t->value_dim);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t query = 0; query < t->q_len; query++) {
            const ra_sequence of = sequences_of(t, query);
            if (key < of.k_first || key >= of.k_first + of.k_count) continue;
            int count = mask_count(&o->mask, head, sequences_position(t, &of, query),
                                   key - of.k_first);
            struct place at = { batch, query, head, kv_head };
            if (count) key_add_query(o, &place, at, count, row, sums);
        }
    round_naive(o, dk, t->dim);
    round_naive(o, dv, t->value_dim);
}

/* ---- Sinks ----------------------------------------------------------------------------------- */

void oracle_add_sink(const struct oracle *o, int64_t batch, int64_t query, int64_t head,
                     struct oracle_row *row, struct number *sum)
{
    struct place at = { batch, query, head, 0 };
    float one, lse = *fetch(o, TENSOR_LSE, batch, query, head, &one);
    const float *dout = fetch(o, TENSOR_DOUT, batch, query, head, row->dout);
    struct number delta = own_delta(o, at, dout, row);
    bool blind = isinf(lse) && lse < 0.0f;
    double sink = (double)sink_of(o, head), weight = blind ? 0.0 : above(sink, (double)lse);
    double by = isfinite(sink) ? 2.0 * ROUNDING * (fabs(sink) + fabs((double)lse)) : 0.0;
    sum->exact -= weight * delta.exact;
    sum->terms += weight * delta.terms;
    sum->moved += weight_moved(weight, sink - (double)lse, by) * fabs(delta.exact);
    sum->naive -= (float)weight * delta.naive;
}
