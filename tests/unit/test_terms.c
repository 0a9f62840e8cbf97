/* test_terms.c - score terms and masks of an order in every kernel of kernel.list that this CPU can
 * run, forward and backward, against attention in double written out below. A failure prints its
 * case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/philox.h"
#include "core/status.h"
#include "kernel/kernel.h"
#include "kernel/state.h"

#define FULL                                                                                       \
    {                                                                                              \
        RA__FAR, RA__FAR                                                                           \
    }
#define CAUSAL                                                                                     \
    {                                                                                              \
        RA__FAR, 0                                                                                 \
    }

static const ra_dtype dtypes[] = { RA_F32, RA_BF16, RA_F16 };
static const char *const dtype_names[] = { "f32", "bf16", "f16" };

/* The kernels this CPU can run; NULL behind the last. Filled by main(). */
static const struct ra__kernel *usable[16];

/* ---- Cases ----------------------------------------------------------------------------------- */

enum {
    SOFTCAP = 1,
    ALIBI = 2,
    BIAS = 4,
    HIDE = 8, /* a byte mask instead of the bias */
    SINKS = 16,
    DROPOUT = 32,
    ORDER = 64, /* a permutation of positions, and a mask by it */
    ALL = SOFTCAP | ALIBI | BIAS | SINKS | DROPOUT | ORDER,
};

/* Heads of the whole problem: a job has `heads` of them, from FIRST_HEAD on. */
enum { FIRST_HEAD = 3, MOST_HEADS = 300, BATCH = 5 };

struct plan {
    const struct ra__kernel *kernel;
    int terms; /* of the above */
    ra_dtype dtype;
    int dim, value_dim, heads;
    int64_t q_count, q_pos, q_pos_step;
    const struct ra__key_run *runs;
    int run_count;
};

/* A plan with its tensors. `places` counts the positions that queries and keys are at. */
struct world {
    struct plan plan;
    struct ra__shape shape;
    struct ra__terms terms;
    struct ra__bias bias;
    int64_t key_rows, rows, places;
    float *alibi, *sinks, *addends;
    unsigned char *shown;
    int32_t *origin, *see_from, *see_to;
    struct ra__matrix q, k, v, dout, out;
    float *m, *l, *acc, *lse, *delta, *dq, *dk, *dv;
    double *want_out, *want_lse, *want_dq, *want_dk, *want_dv;
    double *size_dq, *size_dk, *size_dv; /* sums of magnitudes: errors are relative to them */
    int64_t want_pairs;
    double reach; /* of the largest scores, about */
    void *workspace;
    char name[160];
};

static uint32_t seed = 1;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)seed * below >> 32);
}

/* Between -1 and 1. */
static float noise(void) { return (float)draw(1u << 24) / 0x1p23f - 1.0f; }

static void *allocate(int64_t count, size_t bytes)
{
    void *memory = calloc((size_t)count + 1, bytes);
    assert_non_null(memory);
    return memory;
}

static struct ra__matrix matrix_make(const struct plan *plan, int64_t rows, int heads, int dim,
                                     float magnitude)
{
    struct ra__matrix x = { .head_stride = dim, .row_stride = (int64_t)dim * heads };
    x.data = allocate(rows * x.row_stride, ra__dtype_bytes(plan->dtype));
    for (int64_t i = 0; i < rows * x.row_stride; i++)
        ra__store(plan->dtype, x.data, i, magnitude * noise());
    return x;
}

static void count_places(struct world *w)
{
    const struct plan *p = &w->plan;
    w->places = p->q_pos + p->q_count * p->q_pos_step;
    for (int n = 0; n < p->run_count; n++) {
        const struct ra__key_run *run = &p->runs[n];
        if (run->count == 0) continue;
        w->key_rows = ra__max(w->key_rows, run->row + (run->count - 1) * run->row_step + 1);
        w->places = ra__max(w->places, run->pos + (run->count - 1) * run->pos_step + 1);
    }
}

static void make_order(struct world *w)
{
    w->origin = allocate(w->places, sizeof(int32_t));
    w->see_from = allocate(w->places, sizeof(int32_t));
    w->see_to = allocate(w->places, sizeof(int32_t));
    for (int64_t i = 0; i < w->places; i++) {
        int64_t j = draw((uint32_t)i + 1);
        w->origin[i] = w->origin[j];
        w->origin[j] = (int32_t)i;
    }
    for (int64_t i = 0; i < w->places; i++) { /* nothing, all, causal, or a part */
        uint32_t kind = draw(8), n = (uint32_t)w->places;
        w->see_from[i] = kind == 3 ? (int32_t)draw(n) : 0;
        w->see_to[i] = kind == 0   ? 0
                       : kind == 1 ? (int32_t)n
                       : kind == 3 ? w->see_from[i] + (int32_t)draw(n)
                                   : w->origin[i] + 1;
    }
    w->terms.origin = w->origin;
    w->terms.see_from = w->see_from;
    w->terms.see_to = w->see_to;
}

/* A tensor of its own for every head and query; every seventh number hides. */
static void make_bias(struct world *w)
{
    int64_t count = w->rows * w->places;
    w->bias.head_stride = w->places;
    w->bias.row_stride = w->plan.heads * w->places;
    w->bias.mask = w->plan.terms & HIDE;
    w->addends = allocate(count, sizeof(float));
    w->shown = allocate(count, 1);
    for (int64_t i = 0; i < count; i++) {
        w->shown[i] = draw(7) ? (unsigned char)(1 + draw(255)) : 0;
        w->addends[i] = w->shown[i] ? 4.0f * noise() : -INFINITY;
    }
    w->bias.data = w->bias.mask ? (void *)w->shown : (void *)w->addends;
    w->reach += 4.0;
}

static void make_terms(struct world *w)
{
    const int terms = w->plan.terms;
    w->alibi = allocate(MOST_HEADS, sizeof(float));
    w->sinks = allocate(MOST_HEADS, sizeof(float));
    for (int h = 0; h < MOST_HEADS; h++) {
        w->alibi[h] = 0.05f * (1.0f + noise());
        w->sinks[h] = h % 5 == 4 ? -INFINITY : 6.0f * noise();
    }
    if (terms & SOFTCAP) w->terms.softcap = 2.5f;
    if (terms & ALIBI) w->terms.alibi = w->alibi, w->reach += 0.1 * (double)w->places;
    if (terms & SINKS) w->terms.sinks = w->sinks;
    if (terms & DROPOUT) {
        w->terms.dropout = true;
        w->terms.drop_below = ra__philox_limit(0.3);
        w->terms.kept_scale = 1.0f / 0.7f;
        w->terms.seed = 0x123456789abcdef0u;
    }
    if (terms & (BIAS | HIDE)) make_bias(w);
    if (terms & ORDER) make_order(w);
}

static void *workspace_make(const struct ra__kernel *kernel, const struct ra__shape *shape)
{
    size_t forward = kernel->workspace(shape, false), backward = kernel->workspace(shape, true);
    size_t bytes = forward > backward ? forward : backward;
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    memset(memory, 0xff, bytes); /* NaN, should somebody read what nobody wrote */
    return memory;
}

static struct world world_make(const struct plan *plan)
{
    struct world w = { .plan = *plan, .reach = 3.0 };
    w.shape = (struct ra__shape){ .dtype = plan->dtype,
                                  .batch = BATCH + 1,
                                  .q_heads = MOST_HEADS,
                                  .kv_heads = 1,
                                  .dim = plan->dim,
                                  .value_dim = plan->value_dim,
                                  .scale = 1.0f / sqrtf((float)plan->dim) };
    w.rows = plan->q_count * plan->heads;
    assert_true(w.rows <= plan->kernel->rows);
    count_places(&w);
    make_terms(&w);
    w.q = matrix_make(plan, plan->q_count, plan->heads, plan->dim, 3.0f);
    w.k = matrix_make(plan, w.key_rows, 1, plan->dim, 3.0f);
    w.v = matrix_make(plan, w.key_rows, 1, plan->value_dim, 1.0f);
    w.dout = matrix_make(plan, plan->q_count, plan->heads, plan->value_dim, 1.0f);
    w.out = matrix_make(plan, plan->q_count, plan->heads, plan->value_dim, 1.0f);
    w.m = allocate(w.rows, sizeof(float));
    w.l = allocate(w.rows, sizeof(float));
    w.acc = allocate(w.rows * plan->value_dim, sizeof(float));
    w.lse = allocate(w.rows, sizeof(float));
    w.delta = allocate(w.rows, sizeof(float));
    w.dq = allocate(w.rows * plan->dim, sizeof(float));
    w.dk = allocate(w.key_rows * plan->dim, sizeof(float));
    w.dv = allocate(w.key_rows * plan->value_dim, sizeof(float));
    w.want_out = allocate(w.rows * plan->value_dim, sizeof(double));
    w.want_lse = allocate(w.rows, sizeof(double));
    w.want_dq = allocate(w.rows * plan->dim, sizeof(double));
    w.want_dk = allocate(w.key_rows * plan->dim, sizeof(double));
    w.want_dv = allocate(w.key_rows * plan->value_dim, sizeof(double));
    w.size_dq = allocate(w.rows * plan->dim, sizeof(double));
    w.size_dk = allocate(w.key_rows * plan->dim, sizeof(double));
    w.size_dv = allocate(w.key_rows * plan->value_dim, sizeof(double));
    w.workspace = workspace_make(plan->kernel, &w.shape);
    snprintf(w.name, sizeof w.name, "%s %s terms=%d d=%d dv=%d heads=%d queries=%d runs=%d",
             plan->kernel->name, dtype_names[plan->dtype], plan->terms, plan->dim, plan->value_dim,
             plan->heads, (int)plan->q_count, plan->run_count);
    return w;
}

static void world_free(struct world *w)
{
    void *all[] = { w->q.data,  w->k.data,   w->v.data,   w->dout.data, w->out.data, w->m,
                    w->l,       w->acc,      w->lse,      w->delta,     w->dq,       w->dk,
                    w->dv,      w->want_out, w->want_lse, w->want_dq,   w->want_dk,  w->want_dv,
                    w->size_dq, w->size_dk,  w->size_dv,  w->workspace, w->alibi,    w->sinks,
                    w->addends, w->shown,    w->origin,   w->see_from,  w->see_to };
    for (int i = 0; i < RA__COUNT(all); i++) free(all[i]);
}

static double at(const struct world *w, struct ra__matrix x, int64_t i, int64_t h, int d)
{
    return ra__load(w->plan.dtype, x.data, i * x.row_stride + h * x.head_stride + d);
}

static void put(const struct world *w, struct ra__matrix x, int64_t i, int64_t h, int d,
                float value)
{
    ra__store(w->plan.dtype, x.data, i * x.row_stride + h * x.head_stride + d, value);
}

/* ---- Philox, once more: as its authors define it, and apart from core/philox.h ----------------- */

static void philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k[2] = { key[0], key[1] };
    memcpy(out, counter, 16);
    for (int round = 0; round < 10; round++) {
        uint64_t left = UINT64_C(0xD2511F53) * out[0], right = UINT64_C(0xCD9E8D57) * out[2];
        const uint32_t next[4] = { (uint32_t)(right >> 32) ^ out[1] ^ k[0], (uint32_t)right,
                                   (uint32_t)(left >> 32) ^ out[3] ^ k[1], (uint32_t)left };
        memcpy(out, next, 16);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
}

static bool kept(const struct world *w, int64_t query, int64_t key, int h)
{
    const uint32_t seeds[2] = { (uint32_t)w->terms.seed, (uint32_t)(w->terms.seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)(key / 4), (uint32_t)query, (uint32_t)(FIRST_HEAD + h),
                                  BATCH };
    uint32_t words[4];
    philox(seeds, counter, words);
    return words[key % 4] >= w->terms.drop_below;
}

static void philox_gives_its_known_answers(void **state)
{
    (void)state;
    const struct {
        uint32_t counter[4], key[2], want[4];
    } known[] = {
        { { 0 }, { 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { ~0u, ~0u, ~0u, ~0u },
          { ~0u, ~0u },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (int n = 0; n < RA__COUNT(known); n++) {
        const uint32_t *c = known[n].counter;
        uint32_t words[4];
        philox(known[n].key, c, words);
        struct ra__philox ours = ra__philox((uint64_t)known[n].key[1] << 32 | known[n].key[0], c[0],
                                            c[1], c[2], c[3]);
        assert_memory_equal(words, known[n].want, 16);
        assert_memory_equal(ours.word, known[n].want, 16);
    }
}

/* ---- The reference: attention in double, straight from its definition ------------------------ */

/* A query row and a key that it sees. */
struct pair {
    int64_t i, key, row; /* key: its row in k and v */
    int h;
    double x;     /* -inf where a bias hides */
    double slope; /* dx / d(scale q.k) */
    double kept;
};

static int64_t origin_of(const struct world *w, int64_t index)
{
    return w->origin ? w->origin[index] : index;
}

static bool sees(const struct world *w, int64_t i, const struct ra__key_run *run, int64_t j)
{
    int64_t query = w->plan.q_pos + i * w->plan.q_pos_step, key = run->pos + j * run->pos_step;
    if (key - query < -run->band.left || key - query > run->band.right) return false;
    if (!w->see_from) return true;
    return w->see_from[query] <= w->origin[key] && w->origin[key] < w->see_to[query];
}

static double addend_of(const struct world *w, int64_t row, int64_t key)
{
    if (!w->bias.data) return 0.0;
    if (w->bias.mask) return w->shown[row * w->places + key] ? 0.0 : -INFINITY;
    return w->addends[row * w->places + key];
}

static struct pair pair_of(const struct world *w, int64_t i, int h, const struct ra__key_run *run,
                           int64_t j)
{
    struct pair pair = {
        .i = i, .h = h, .key = run->row + j * run->row_step, .slope = 1, .kept = 1
    };
    int64_t p = origin_of(w, w->plan.q_pos + i * w->plan.q_pos_step);
    int64_t key = origin_of(w, run->pos + j * run->pos_step);
    double x = 0.0, cap = w->terms.softcap;
    pair.row = i * w->plan.heads + h;
    for (int d = 0; d < w->plan.dim; d++) x += at(w, w->q, i, h, d) * at(w, w->k, pair.key, 0, d);
    x *= w->shape.scale;
    if (cap > 0.0) {
        double t = tanh(x / cap);
        x = cap * t;
        pair.slope = 1.0 - t * t;
    }
    if (w->terms.alibi) x -= (double)w->alibi[FIRST_HEAD + h] * (double)llabs(p - key);
    double addend = addend_of(w, pair.row, key);
    pair.x = addend == -INFINITY ? -INFINITY : x + addend;
    if (w->terms.dropout) pair.kept = kept(w, p, key, h) ? w->terms.kept_scale : 0.0;
    return pair;
}

/* Calls act(w, pair) for every pair that is seen, as often as it is. */
static void each_pair(struct world *w, int64_t i, int h,
                      void (*act)(struct world *, const struct pair *))
{
    for (int n = 0; n < w->plan.run_count; n++) {
        const struct ra__key_run *run = &w->plan.runs[n];
        for (int64_t j = 0; j < run->count; j++) {
            if (!sees(w, i, run, j)) continue;
            struct pair pair = pair_of(w, i, h, run, j);
            act(w, &pair);
        }
    }
}

static double logaddexp(double a, double b)
{
    double high = fmax(a, b);
    return high == -INFINITY ? high : high + log(exp(a - high) + exp(b - high));
}

static void count_pair(struct world *w, const struct pair *pair)
{
    w->want_lse[pair->row] = logaddexp(w->want_lse[pair->row], pair->x);
    w->want_pairs++;
}

static void add_output(struct world *w, const struct pair *pair)
{
    if (pair->x == -INFINITY) return;
    double p = pair->kept * exp(pair->x - w->want_lse[pair->row]);
    for (int d = 0; d < w->plan.value_dim; d++)
        w->want_out[pair->row * w->plan.value_dim + d] += p * at(w, w->v, pair->key, 0, d);
}

static void add_term(double *sum, double *size, double term)
{
    *sum += term;
    *size += fabs(term);
}

/* From the rounded LSE and delta that the kernel gets, so that only its own error is measured. */
static void add_gradient(struct world *w, const struct pair *pair)
{
    if (pair->x == -INFINITY) return;
    int dim = w->plan.dim, value_dim = w->plan.value_dim;
    int64_t row = pair->row, key = pair->key;
    double p = exp(pair->x - w->lse[row]), dp = 0.0, dp_size = fabs(w->delta[row]);
    for (int d = 0; d < value_dim; d++) {
        double dout = pair->kept * at(w, w->dout, pair->i, pair->h, d);
        int64_t n = key * value_dim + d;
        add_term(&dp, &dp_size, dout * at(w, w->v, key, 0, d));
        add_term(&w->want_dv[n], &w->size_dv[n], p * dout);
    }
    double factor = w->shape.scale * pair->slope * p;
    for (int d = 0; d < dim; d++) {
        double q = at(w, w->q, pair->i, pair->h, d), k = at(w, w->k, key, 0, d);
        w->want_dq[row * dim + d] += factor * (dp - w->delta[row]) * k;
        w->size_dq[row * dim + d] += factor * dp_size * fabs(k);
        w->want_dk[key * dim + d] += factor * (dp - w->delta[row]) * q;
        w->size_dk[key * dim + d] += factor * dp_size * fabs(q);
    }
}

static void forward_reference(struct world *w, int64_t i, int h)
{
    int64_t row = i * w->plan.heads + h;
    w->want_lse[row] = w->terms.sinks ? w->sinks[FIRST_HEAD + h] : -INFINITY;
    for (int d = 0; d < w->plan.value_dim; d++) w->want_out[row * w->plan.value_dim + d] = 0.0;
    each_pair(w, i, h, count_pair);
    each_pair(w, i, h, add_output);
}

static void reference_row(struct world *w, int64_t i, int h)
{
    int64_t row = i * w->plan.heads + h;
    forward_reference(w, i, h);
    double delta = 0.0;
    for (int d = 0; d < w->plan.value_dim; d++)
        delta += w->want_out[row * w->plan.value_dim + d] * at(w, w->dout, i, h, d);
    w->lse[row] = (float)w->want_lse[row];
    w->delta[row] = (float)delta;
    if (w->want_lse[row] > -INFINITY) each_pair(w, i, h, add_gradient);
}

static void reference(struct world *w)
{
    w->want_pairs = 0;
    for (int64_t i = 0; i < w->plan.q_count; i++)
        for (int h = 0; h < w->plan.heads; h++) reference_row(w, i, h);
}

/* sum of dout * out, of which the gradients are derivatives */
static double loss_of(struct world *w)
{
    double sum = 0.0;
    for (int64_t i = 0; i < w->plan.q_count; i++)
        for (int h = 0; h < w->plan.heads; h++) {
            forward_reference(w, i, h);
            for (int d = 0; d < w->plan.value_dim; d++)
                sum += at(w, w->dout, i, h, d) *
                       w->want_out[(i * w->plan.heads + h) * w->plan.value_dim + d];
        }
    return sum;
}

/* ---- Running a kernel ------------------------------------------------------------------------ */

static struct ra__view view_of(const struct world *w)
{
    const struct plan *p = &w->plan;
    int others = p->terms & ~(BIAS | HIDE); /* a bias comes without terms too */
    return (struct ra__view){ .shape = &w->shape,
                              .batch = BATCH,
                              .head = FIRST_HEAD,
                              .heads = p->heads,
                              .q_count = p->q_count,
                              .q_pos = p->q_pos,
                              .q_pos_step = p->q_pos_step,
                              .q = w->q,
                              .k = w->k,
                              .v = w->v,
                              .runs = p->runs,
                              .run_count = p->run_count,
                              .terms = others ? &w->terms : NULL,
                              .bias = w->bias };
}

static struct ra__forward_job forward_of(struct world *w)
{
    int heads = w->plan.heads;
    return (struct ra__forward_job){ .view = view_of(w),
                                     .first = true,
                                     .last = true,
                                     .m = { w->m, heads },
                                     .l = { w->l, heads },
                                     .acc = w->acc,
                                     .acc_row_stride = (int64_t)heads * w->plan.value_dim,
                                     .out = w->out,
                                     .lse = { w->lse, heads } };
}

static struct ra__backward_job backward_of(struct world *w)
{
    int heads = w->plan.heads, dim = w->plan.dim, value_dim = w->plan.value_dim;
    return (struct ra__backward_job){ .view = view_of(w),
                                      .dout = w->dout,
                                      .lse = { w->lse, heads },
                                      .delta = { w->delta, heads },
                                      .dq = w->dq,
                                      .dq_row_stride = (int64_t)heads * dim,
                                      .dk = w->dk,
                                      .dv = w->dv,
                                      .dk_row_stride = dim,
                                      .dv_row_stride = value_dim };
}

static int64_t run_forward(struct world *w)
{
    struct ra__forward_job job = forward_of(w);
    w->plan.kernel->forward(&job, w->workspace);
    return job.pairs;
}

static int64_t run_backward(struct world *w)
{
    struct ra__backward_job job = backward_of(w);
    w->plan.kernel->backward(&job, w->workspace);
    return job.pairs;
}

static double unit_of(ra_dtype dtype)
{
    return dtype == RA_F32 ? 0x1p-24 : dtype == RA_F16 ? 0x1p-11 : 0x1p-8;
}

/* What f32 sums may lose: scores of size x are off by some x 2^-24, and so is every weight. */
static double slack(const struct world *w)
{
    return 0x1p-24 * (24.0 + w->reach * (8.0 + 2.0 * sqrt(w->plan.dim)));
}

static void expect_near(const struct world *w, const char *what, double got, double want,
                        double bound)
{
    if (isnan(got) || fabs(got - want) > bound)
        fail_msg("%s: %s is %.9g, not %.9g (+- %.3g)", w->name, what, got, want, bound);
}

static void expect_row(const struct world *w, int64_t row)
{
    int64_t i = row / w->plan.heads, h = row % w->plan.heads;
    double want = w->want_lse[row];
    if (want == -INFINITY) assert_true(w->lse[row] == -INFINITY);
    else expect_near(w, "lse", w->lse[row], want, slack(w) + 0x1p-23 * fabs(want));
    for (int d = 0; d < w->plan.value_dim; d++) {
        want = w->want_out[row * w->plan.value_dim + d];
        expect_near(w, "out", at(w, w->out, i, h, d), want,
                    1.5 * slack(w) + unit_of(w->plan.dtype) * fabs(want));
    }
}

static void expect_forward(const struct world *w)
{
    for (int64_t row = 0; row < w->rows; row++) expect_row(w, row);
}

static void expect_all(const struct world *w, const char *what, const float *got,
                       const double *want, const double *size, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        expect_near(w, what, got[i], want[i], slack(w) * size[i] + 1e-30);
}

static void expect_backward(const struct world *w)
{
    const struct plan *p = &w->plan;
    expect_all(w, "dq", w->dq, w->want_dq, w->size_dq, w->rows * p->dim);
    expect_all(w, "dk", w->dk, w->want_dk, w->size_dk, w->key_rows * p->dim);
    expect_all(w, "dv", w->dv, w->want_dv, w->size_dv, w->key_rows * p->value_dim);
}

static void check(const struct plan *plan)
{
    struct world w = world_make(plan);
    reference(&w);
    int64_t backward = run_backward(&w);
    expect_backward(&w);
    int64_t forward = run_forward(&w);
    expect_forward(&w);
    if (forward != w.want_pairs || backward != w.want_pairs)
        fail_msg("%s: %d and %d pairs, not %d", w.name, (int)forward, (int)backward,
                 (int)w.want_pairs);
    world_free(&w);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static const int kinds[] = { SOFTCAP, ALIBI, BIAS,          HIDE, SINKS,
                             DROPOUT, ORDER, ORDER | ALIBI, ALL,  (ALL & ~BIAS) | HIDE };

static const struct ra__key_run causal_run[] = { { 0, 1, 0, 1, 151, CAUSAL } };

static void every_dtype_and_dim(void **state)
{
    (void)state;
    const int dims[][2] = { { 1, 1 }, { 3, 5 }, { 17, 16 }, { 64, 65 }, { 129, 127 }, { 1, 129 } };
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++)
        for (int k = 0; k < RA__COUNT(kinds); k++)
            for (int t = 0; t < RA__COUNT(dtypes); t++)
                for (int n = 0; n < RA__COUNT(dims); n++)
                    check(&(struct plan){ .kernel = *kernel,
                                          .terms = kinds[k],
                                          .dtype = dtypes[t],
                                          .dim = dims[n][0],
                                          .value_dim = dims[n][1],
                                          .heads = 2,
                                          .q_count = 11,
                                          .q_pos = 120,
                                          .q_pos_step = 2,
                                          .runs = causal_run,
                                          .run_count = 1 });
}

/* Windows, strides in memory and in position, starts off every block, keys seen twice, runs that
 * nobody sees, and an empty one. */
static const struct ra__key_run many_runs[] = {
    { 0, 1, 37, 1, 200, { 64, 64 } },   { 5, 3, 11, 4, 70, FULL },
    { 200, 1, 0, 1, 1, FULL },          { 1, 2, 300, 1, 90, CAUSAL },
    { 0, 1, 130, 1, 130, { 0, 0 } },    { 7, 1, 900, 7, 80, CAUSAL },
    { 3, 1, 63, 3, 129, { 200, -10 } }, { 0, 1, 50, 1, 0, FULL },
    { 2, 1, 1023, 2, 3, FULL },
};

static void every_geometry(void **state)
{
    (void)state;
    const struct {
        int heads;
        int64_t q_count, q_pos, q_pos_step;
    } shapes[] = {
        { 1, 1, 128, 1 }, { 8, 1, 390, 1 },  { 1, 61, 100, 1 }, { 3, 7, 0, 60 },
        { 1, 64, 64, 1 }, { 4, 16, 250, 5 }, { 7, 9, 33, 1 },
    };
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++)
        for (int k = 0; k < RA__COUNT(kinds); k++)
            for (int n = 0; n < RA__COUNT(shapes); n++)
                check(&(struct plan){ .kernel = *kernel,
                                      .terms = kinds[k],
                                      .dtype = dtypes[n % 3],
                                      .dim = 20,
                                      .value_dim = 12,
                                      .heads = shapes[n].heads,
                                      .q_count = shapes[n].q_count,
                                      .q_pos = shapes[n].q_pos,
                                      .q_pos_step = shapes[n].q_pos_step,
                                      .runs = many_runs,
                                      .run_count = RA__COUNT(many_runs) });
}

/* Two runs with the same keys at the same positions: every pair counts twice, and dropout takes both
 * or none. */
static void keys_in_two_runs(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 5, 1, 140, FULL }, { 0, 3, 5, 3, 47, CAUSAL } };
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++)
        for (int k = 0; k < RA__COUNT(kinds); k++)
            check(&(struct plan){ .kernel = *kernel,
                                  .terms = kinds[k],
                                  .dim = 9,
                                  .value_dim = 9,
                                  .heads = 1,
                                  .q_count = 60,
                                  .q_pos = 70,
                                  .q_pos_step = 1,
                                  .runs = runs,
                                  .run_count = 2 });
}

static void as_many_rows_as_a_kernel_takes(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, 300, { 70, 70 } } };
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++)
        for (int turn = 0; turn < 2; turn++)
            check(&(struct plan){ .kernel = *kernel,
                                  .terms = ALL,
                                  .dim = 16,
                                  .value_dim = 16,
                                  .heads = turn ? (*kernel)->rows : 1,
                                  .q_count = turn ? 1 : (*kernel)->rows,
                                  .q_pos_step = 1,
                                  .runs = runs,
                                  .run_count = 1 });
}

/* Differences of positions are taken before they are rounded, also where they need 33 bits. */
static void slopes_far_from_the_origin(void **state)
{
    (void)state;
    const int64_t bases[] = { INT64_C(1) << 26, INT64_C(1) << 33 };
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++)
        for (int n = 0; n < 3; n++) {
            const struct ra__key_run runs[] = { { 0, 1, bases[n % 2], 1, 90, FULL } };
            struct world w = world_make(&(struct plan){ .kernel = *kernel,
                                                        .terms = 0,
                                                        .dim = 4,
                                                        .value_dim = 4,
                                                        .heads = 1,
                                                        .q_count = 3,
                                                        .q_pos = n == 2 ? 5 : bases[n] + 40,
                                                        .q_pos_step = 1,
                                                        .runs = runs,
                                                        .run_count = 1 });
            w.plan.terms = ALIBI;
            w.terms.alibi = w.alibi;
            w.alibi[FIRST_HEAD] = n == 2 ? 0x1p-24f : 0.1f;
            w.reach += n == 2 ? 4.0 : 5.0;
            reference(&w);
            run_backward(&w);
            expect_backward(&w);
            run_forward(&w);
            expect_forward(&w);
            world_free(&w);
        }
}

/* The gradients written out above are derivatives of the output: of q, of v, and of the sinks. */
static void the_gradients_are_derivatives(void **state)
{
    (void)state;
    for (int k = 0; k < RA__COUNT(kinds); k++) {
        struct world w = world_make(&(struct plan){ .kernel = ra__kernel_at(0),
                                                    .terms = kinds[k],
                                                    .dim = 3,
                                                    .value_dim = 2,
                                                    .heads = 2,
                                                    .q_count = 3,
                                                    .q_pos = 20,
                                                    .q_pos_step = 3,
                                                    .runs = causal_run,
                                                    .run_count = 1 });
        reference(&w);
        double dsinks[MOST_HEADS] = { 0.0 };
        ra__kernel_dsinks(&(struct ra__shape){ .q_heads = 2 }, 3, w.sinks + FIRST_HEAD,
                          (struct ra__column){ w.lse, 2 }, (struct ra__column){ w.delta, 2 },
                          dsinks + FIRST_HEAD);
        float *varied[] = { w.q.data, (float *)w.q.data + 8, w.v.data, (float *)w.v.data + 7,
                            &w.sinks[FIRST_HEAD] };
        const double want[] = { w.want_dq[0], w.want_dq[8], w.want_dv[0], w.want_dv[7],
                                dsinks[FIRST_HEAD] };
        for (int n = 0; n < (kinds[k] & SINKS ? 5 : 4); n++) {
            const float middle = *varied[n], low = middle - 0x1p-9f, high = middle + 0x1p-9f;
            *varied[n] = high;
            double above = loss_of(&w);
            *varied[n] = low;
            double below = loss_of(&w);
            *varied[n] = middle;
            expect_near(&w, "a derivative", (above - below) / ((double)high - low), want[n], 1e-4);
        }
        world_free(&w);
    }
}

/* ---- The tangent ------------------------------------------------------------------------------- */

/* With cap, scale and k = 1 and one key, LSE is tanh q; with that LSE and dout v = 1, dq is its
 * derivative. Returns the worst relative errors, in units of 2^-24. */
static void worst_tanh(struct world *w, const float *u, double *value, double *slope)
{
    int64_t rows = w->plan.q_count;
    for (int64_t i = 0; i < rows; i++) {
        put(w, w->q, i, 0, 0, u[i]);
        put(w, w->dout, i, 0, 0, 1.0f);
        w->dq[i] = 0.0f;
    }
    run_forward(w);
    run_backward(w);
    for (int64_t i = 0; i < rows; i++) {
        double t = tanh((double)u[i]), c = cosh((double)u[i]), p = exp(t - w->lse[i]);
        *value = fmax(*value, fabs(w->lse[i] / t - 1.0) * 0x1p24);
        *slope = fmax(*slope, fabs(w->dq[i] * c * c / p - 1.0) * 0x1p24 / (4.0 + fabs(u[i])));
    }
}

static struct world tanh_world(const struct ra__kernel *kernel)
{
    static const struct ra__key_run one[] = { { 0, 1, 0, 1, 1, FULL } };
    struct world w = world_make(&(struct plan){ .kernel = kernel,
                                                .terms = SOFTCAP,
                                                .dim = 1,
                                                .value_dim = 1,
                                                .heads = 1,
                                                .q_count = kernel->rows,
                                                .q_pos_step = 1,
                                                .runs = one,
                                                .run_count = 1 });
    w.terms.softcap = 1.0f;
    put(&w, w.k, 0, 0, 0, 1.0f);
    put(&w, w.v, 0, 0, 0, 1.0f);
    return w;
}

/* LSE and p bring three roundings of their own, and those of the slope grow with u. */
static void tanh_keeps_its_bound(void **state)
{
    (void)state;
    const uint32_t lowest = ra__f32_bits(0x1p-100f), highest = ra__f32_bits(40.0f);
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++) {
        struct world w = tanh_world(*kernel);
        double value = 0.0, slope = 0.0;
        float u[1024];
        for (uint32_t bits = lowest; bits < highest;) {
            for (int i = 0; i < (*kernel)->rows; i++) {
                u[i] = ra__f32_from_bits(bits | (uint32_t)(i & 1) << 31);
                bits += bits < ra__f32_bits(0.01f) ? 1048573u : 251u;
            }
            for (int i = 0; i < (*kernel)->rows; i++) u[i] = fmaxf(fminf(u[i], 40.0f), -40.0f);
            worst_tanh(&w, u, &value, &slope);
        }
        if (!(value <= 4.5 && slope <= 3.0))
            fail_msg("%s: tanh is off by %.2f, its slope by %.2f", (*kernel)->name, value, slope);
        world_free(&w);
    }
}

static void tanh_of_the_far_ends(void **state)
{
    (void)state;
    const float u[] = {
        0.0f, -0.0f, 1e-40f, 50.0f, -50.0f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN
    };
    const float want[] = { 0.0f, 0.0f, 1e-40f, 1.0f, -1.0f, 1.0f, -1.0f, 1.0f, -1.0f };
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++) {
        struct world w = tanh_world(*kernel);
        w.plan.q_count = RA__COUNT(u);
        for (int i = 0; i < RA__COUNT(u); i++) put(&w, w.q, i, 0, 0, u[i]);
        run_forward(&w);
        for (int i = 0; i < RA__COUNT(want); i++)
            expect_near(&w, "tanh", w.lse[i], want[i], 0x1p-23 * fabs(want[i]) + 1e-45);
        assert_true(isnan(w.lse[9]));
        world_free(&w);
    }
}

/* ---- Dropout ----------------------------------------------------------------------------------- */

enum { DRAWS = 160 };

/* Values are unit vectors and scores 0, so outputs and dv show each decision by itself. */
static void expect_decisions(const struct ra__kernel *kernel, const struct ra__key_run *run,
                             int terms)
{
    struct world w = world_make(&(struct plan){ .kernel = kernel,
                                                .terms = terms,
                                                .dim = 1,
                                                .value_dim = DRAWS,
                                                .heads = 3,
                                                .q_count = 5,
                                                .q_pos = 3,
                                                .q_pos_step = 11,
                                                .runs = run,
                                                .run_count = 1 });
    w.terms.see_from = w.terms.see_to = NULL;
    memset(w.q.data, 0, sizeof(float) * (size_t)w.rows);
    memset(w.v.data, 0, sizeof(float) * (size_t)(w.key_rows * DRAWS));
    for (int64_t j = 0; j < run->count; j++)
        put(&w, w.v, run->row + j * run->row_step, 0, (int)j, 1);
    run_forward(&w);
    for (int64_t row = 0; row < w.rows; row++) {
        int64_t p = origin_of(&w, 3 + row / 3 * 11);
        int h = (int)(row % 3);
        for (int64_t i = 0; i < w.rows; i++) w.lse[i] = i == row ? 0.0f : -INFINITY;
        memset(w.dv, 0, sizeof(float) * (size_t)(w.key_rows * DRAWS));
        put(&w, w.dout, row / 3, h, 0, 1.0f);
        run_backward(&w);
        for (int64_t j = 0; j < run->count; j++) {
            int64_t key = run->row + j * run->row_step;
            bool want = kept(&w, p, origin_of(&w, run->pos + j * run->pos_step), h);
            if ((at(&w, w.out, row / 3, h, (int)j) != 0.0) != want ||
                w.dv[key * DRAWS] != (want ? w.terms.kept_scale : 0.0f))
                fail_msg("%s: row %d decides otherwise on key %d", w.name, (int)row, (int)j);
        }
    }
    world_free(&w);
}

static void every_kernel_drops_the_same(void **state)
{
    (void)state;
    const struct ra__key_run runs[] = { { 0, 1, 0, 1, DRAWS, FULL },
                                        { 2, 1, 127, 1, 131, FULL },
                                        { 0, 2, 29, 1, 7, FULL },
                                        { 1, 3, 6, 5, 90, FULL } };
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++)
        for (int n = 0; n < RA__COUNT(runs); n++) {
            expect_decisions(*kernel, &runs[n], DROPOUT);
            expect_decisions(*kernel, &runs[n], DROPOUT | ORDER);
        }
}

/* m, l and LSE know nothing of dropout. */
static void dropout_leaves_lse_alone(void **state)
{
    (void)state;
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++) {
        struct world w = world_make(&(struct plan){ .kernel = *kernel,
                                                    .terms = DROPOUT,
                                                    .dim = 8,
                                                    .value_dim = 8,
                                                    .heads = 1,
                                                    .q_count = 33,
                                                    .q_pos = 100,
                                                    .q_pos_step = 1,
                                                    .runs = causal_run,
                                                    .run_count = 1 });
        run_forward(&w);
        float lse[33];
        memcpy(lse, w.lse, sizeof lse);
        w.terms.drop_below = UINT64_C(1) << 32; /* all of them */
        run_forward(&w);
        assert_memory_equal(lse, w.lse, sizeof lse);
        for (int64_t i = 0; i < 33; i++)
            for (int d = 0; d < 8; d++) assert_true(at(&w, w.out, i, 0, d) == 0.0);
        w.terms.dropout = false;
        run_forward(&w);
        assert_memory_equal(lse, w.lse, sizeof lse);
        world_free(&w);
    }
}

/* ---- Sinks ------------------------------------------------------------------------------------- */

static void a_sink_alone(void **state)
{
    (void)state;
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++) {
        struct world w = world_make(&(struct plan){ .kernel = *kernel,
                                                    .terms = SINKS,
                                                    .dim = 3,
                                                    .value_dim = 3,
                                                    .heads = 7,
                                                    .q_count = 2,
                                                    .q_pos_step = 1 });
        run_forward(&w);
        for (int row = 0; row < 14; row++) {
            assert_true(w.lse[row] == w.sinks[FIRST_HEAD + row % 7]);
            for (int d = 0; d < 3; d++) assert_true(at(&w, w.out, row / 7, row % 7, d) == 0.0);
        }
        world_free(&w);
    }
}

/* A sink is folded when a row ends and not before: the state that travels knows none. */
static void sinks_are_folded_once(void **state)
{
    (void)state;
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++) {
        struct world w = world_make(&(struct plan){ .kernel = *kernel,
                                                    .terms = ALL & ~ORDER,
                                                    .dim = 24,
                                                    .value_dim = 40,
                                                    .heads = 3,
                                                    .q_count = 21,
                                                    .q_pos = 100,
                                                    .q_pos_step = 1,
                                                    .runs = many_runs,
                                                    .run_count = RA__COUNT(many_runs) });
        reference(&w);
        for (int n = 0; n < RA__COUNT(many_runs); n++) {
            struct ra__forward_job job = forward_of(&w);
            job.first = n == 0;
            job.last = n == RA__COUNT(many_runs) - 1;
            job.view.runs = many_runs + n;
            job.view.run_count = 1;
            (*kernel)->forward(&job, w.workspace);
        }
        expect_forward(&w);
        world_free(&w);
    }
}

static void rows_end_with_or_without_a_sink(void **state)
{
    (void)state;
    const float sums[] = { -1e30f, -300.0f, 0.0f, 3.0f, 300.0f, 1e30f };
    for (int a = 0; a < RA__COUNT(sums); a++) {
        float m = sums[a], l = 3.0f;
        struct ra__state_end none = ra__state_end(m, l, -INFINITY);
        assert_true(none.divisor == l);
        assert_true(none.lse == (float)((m + log2(3.0)) * RA__LN_2));
        for (int b = 0; b < RA__COUNT(sums); b++) {
            struct ra__state_end end = ra__state_end(m, l, sums[b]);
            double lse = (m + log2(3.0)) * RA__LN_2, want = logaddexp(lse, sums[b]);
            assert_true(fabs(end.lse - want) <= 0x1p-23 * fabs(want));
            double share = l / end.divisor; /* of out that remains */
            assert_true(fabs(share - exp(lse - want)) <= 1e-6);
        }
    }
    struct ra__state_end empty = ra__state_end(-INFINITY, 0.0f, 0.3f);
    assert_true(empty.divisor == 1.0f && empty.lse == 0.3f);
    empty = ra__state_end(-INFINITY, 0.0f, -INFINITY);
    assert_true(empty.divisor == 1.0f && empty.lse == -INFINITY);
    assert_true(isnan(ra__state_end(1.0f, NAN, 2.0f).lse));
}

static void rows_without_lse_give_sinks_nothing(void **state)
{
    (void)state;
    float lse[] = { -INFINITY, 1.0f, 2.0f, -INFINITY }, delta[] = { 5.0f, 3.0f, 7.0f, NAN };
    const float sinks[] = { 0.5f, -INFINITY };
    double dsinks[] = { 10.0, 20.0 };
    ra__kernel_dsinks(&(struct ra__shape){ .q_heads = 2 }, 2, sinks, (struct ra__column){ lse, 2 },
                      (struct ra__column){ delta, 2 }, dsinks);
    assert_true(fabs(dsinks[0] - (10.0 - exp(0.5 - 2.0) * 7.0)) <= 1e-12);
    assert_true(dsinks[1] == 20.0);
}

/* ---- What is hidden stays hidden --------------------------------------------------------------- */

static const struct ra__key_run wide_run[] = { { 0, 1, 7, 1, 190, { 150, 40 } } };

static struct world hidden_world(const struct ra__kernel *kernel, int terms)
{
    return world_make(&(struct plan){ .kernel = kernel,
                                      .terms = terms,
                                      .dim = 19,
                                      .value_dim = 35,
                                      .heads = 2,
                                      .q_count = 31,
                                      .q_pos = 30,
                                      .q_pos_step = 4,
                                      .runs = wide_run,
                                      .run_count = 1 });
}

/* Is the key in a row's sum? */
static bool counts(const struct world *w, int64_t row, int64_t key)
{
    int64_t i = row / w->plan.heads;
    int h = (int)(row % w->plan.heads);
    return sees(w, i, wide_run, key) && pair_of(w, i, h, wide_run, key).x != -INFINITY;
}

static const int hiding[] = { ORDER, BIAS, HIDE, ALL, ORDER | HIDE };

/* Not a bit of other rows changes when a key hidden from them turns NaN or infinite. */
static void poison_stays_where_it_is_seen(void **state)
{
    (void)state;
    const int64_t keys[] = { 0, 60, 120, 121, 189 };
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++)
        for (int n = 0; n < RA__COUNT(keys) * 4 * RA__COUNT(hiding); n++) {
            struct world w = hidden_world(*kernel, hiding[n / 4 / RA__COUNT(keys)]);
            const int64_t key = keys[n / 4 % RA__COUNT(keys)];
            reference(&w);
            float dq[62 * 19], out[62 * 35], lse[62];
            run_backward(&w);
            memcpy(dq, w.dq, sizeof dq);
            memset(w.dq, 0, sizeof dq);
            run_forward(&w);
            memcpy(out, w.out.data, sizeof out);
            memcpy(lse, w.lse, sizeof lse);
            bool counted[62];
            for (int64_t row = 0; row < 62; row++) counted[row] = counts(&w, row, key);
            put(&w, n & 2 ? w.k : w.v, key, 0, 18, n & 1 ? NAN : INFINITY);
            run_backward(&w);
            run_forward(&w);
            for (int64_t row = 0; row < 62; row++) {
                if (counted[row]) continue;
                if (memcmp(out + row * 35, (float *)w.out.data + row * 35, sizeof(float) * 35) !=
                        0 ||
                    lse[row] != w.lse[row])
                    fail_msg("%s: key %d poisons row %d", w.name, (int)key, (int)row);
                expect_all(&w, "dq beside NaN", w.dq + row * 19, w.want_dq + row * 19,
                           w.size_dq + row * 19, 19);
            }
            world_free(&w);
        }
}

/* Nor do keys hidden from a row take harm from a NaN in its query or gradient. */
static void poison_of_a_row_spares_hidden_keys(void **state)
{
    (void)state;
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++)
        for (int n = 0; n < 3 * RA__COUNT(hiding); n++) {
            struct world w = hidden_world(*kernel, hiding[n / 3]);
            const int64_t row = 33;
            reference(&w);
            bool counted[190];
            for (int64_t key = 0; key < 190; key++) counted[key] = counts(&w, row, key);
            if (n % 3 == 0) put(&w, w.q, row / 2, row % 2, 18, NAN);
            if (n % 3 == 1) put(&w, w.dout, row / 2, row % 2, 18, INFINITY);
            if (n % 3 == 2) w.lse[row] = NAN;
            run_backward(&w);
            for (int64_t key = 0; key < 190; key++) {
                if (counted[key]) continue;
                expect_all(&w, "dk beside NaN", w.dk + key * 19, w.want_dk + key * 19,
                           w.size_dk + key * 19, 19);
                expect_all(&w, "dv beside NaN", w.dv + key * 35, w.want_dv + key * 35,
                           w.size_dv + key * 35, 35);
            }
            world_free(&w);
        }
}

/* A NaN that is seen shows, and so does one in the bias. */
static void nan_that_is_seen_shows(void **state)
{
    (void)state;
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++)
        for (int n = 0; n < 2; n++) {
            struct world w = hidden_world(*kernel, n ? BIAS : ALL);
            if (n) w.addends[40 * w.places + 100] = NAN;
            else put(&w, w.k, 93, 0, 3, NAN);
            run_forward(&w);
            for (int64_t row = 0; row < 62; row++) {
                bool want = n ? row == 40 : counts(&w, row, 93);
                assert_true((isnan(at(&w, w.out, row / 2, row % 2, 0)) != 0) == want);
            }
            world_free(&w);
        }
}

/* ---- Bits ------------------------------------------------------------------------------------ */

static void forward_piece(struct world *w, int64_t from, int64_t count, int head, int heads)
{
    struct ra__forward_job job = forward_of(w);
    job.view.q.data = (float *)w->q.data + from * w->q.row_stride + head * w->q.head_stride;
    job.out.data = (float *)w->out.data + from * w->out.row_stride + head * w->out.head_stride;
    job.lse.data = w->lse + from * w->plan.heads + head;
    if (w->bias.data && !w->bias.mask)
        job.view.bias.data = w->addends + from * w->bias.row_stride + head * w->bias.head_stride;
    if (w->bias.data && w->bias.mask)
        job.view.bias.data = w->shown + from * w->bias.row_stride + head * w->bias.head_stride;
    job.view.q_pos += from * w->plan.q_pos_step;
    job.view.q_count = count;
    job.view.head += head;
    job.view.heads = heads;
    w->plan.kernel->forward(&job, w->workspace);
}

static void bits_do_not_depend_on_how_queries_are_cut(void **state)
{
    (void)state;
    enum { QUERIES = 31, ROWS = 2 * QUERIES, DIM = 72 };
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++)
        for (int k = 0; k < RA__COUNT(kinds); k++)
            for (int64_t piece = 1; piece < QUERIES; piece += 5) {
                struct world w = world_make(&(struct plan){ .kernel = *kernel,
                                                            .terms = kinds[k],
                                                            .dim = 40,
                                                            .value_dim = DIM,
                                                            .heads = 2,
                                                            .q_count = QUERIES,
                                                            .q_pos = 200,
                                                            .q_pos_step = 1,
                                                            .runs = many_runs,
                                                            .run_count = RA__COUNT(many_runs) });
                float out[ROWS * DIM], lse[ROWS];
                run_forward(&w);
                memcpy(out, w.out.data, sizeof out);
                memcpy(lse, w.lse, sizeof lse);
                for (int turn = 0; turn < 2; turn++) {
                    memset(w.out.data, 0xff, sizeof out);
                    memset(w.lse, 0xff, sizeof lse);
                    for (int64_t from = 0; from < QUERIES; from += piece)
                        for (int head = 0; head < 2; head += turn ? 1 : 2)
                            forward_piece(&w, from, ra__min(piece, QUERIES - from), head,
                                          turn ? 1 : 2);
                    if (memcmp(out, w.out.data, sizeof out) != 0 ||
                        memcmp(lse, w.lse, sizeof lse) != 0)
                        fail_msg("%s: other bits in pieces of %d", w.name, (int)piece);
                }
                world_free(&w);
            }
}

/* A mask that hides nothing, a bias of 0 and slopes of 0 change no bit. */
static void empty_terms_change_no_bit(void **state)
{
    (void)state;
    for (const struct ra__kernel **kernel = usable; *kernel; kernel++) {
        struct world w = hidden_world(*kernel, ALIBI | ORDER | BIAS);
        for (int64_t i = 0; i < w.places; i++) {
            w.see_from[i] = 0;
            w.see_to[i] = (int32_t)w.places;
        }
        for (int64_t i = 0; i < w.rows * w.places; i++) w.addends[i] = 0.0f;
        for (int h = 0; h < MOST_HEADS; h++) w.alibi[h] = 0.0f;
        run_forward(&w);
        float out[62 * 35], lse[62];
        memcpy(out, w.out.data, sizeof out);
        memcpy(lse, w.lse, sizeof lse);
        w.plan.terms = 0;
        w.bias.data = NULL;
        run_forward(&w);
        assert_memory_equal(out, w.out.data, sizeof out);
        assert_memory_equal(lse, w.lse, sizeof lse);
        world_free(&w);
    }
}

int main(void)
{
    int count = 0;
    for (int i = 0; ra__kernel_at(i) && count < RA__COUNT(usable) - 1; i++)
        if (ra__kernel_at(i)->usable()) usable[count++] = ra__kernel_at(i);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_its_known_answers),
        cmocka_unit_test(the_gradients_are_derivatives),
        cmocka_unit_test(every_dtype_and_dim),
        cmocka_unit_test(every_geometry),
        cmocka_unit_test(keys_in_two_runs),
        cmocka_unit_test(as_many_rows_as_a_kernel_takes),
        cmocka_unit_test(slopes_far_from_the_origin),
        cmocka_unit_test(tanh_keeps_its_bound),
        cmocka_unit_test(tanh_of_the_far_ends),
        cmocka_unit_test(every_kernel_drops_the_same),
        cmocka_unit_test(dropout_leaves_lse_alone),
        cmocka_unit_test(a_sink_alone),
        cmocka_unit_test(sinks_are_folded_once),
        cmocka_unit_test(rows_end_with_or_without_a_sink),
        cmocka_unit_test(rows_without_lse_give_sinks_nothing),
        cmocka_unit_test(poison_stays_where_it_is_seen),
        cmocka_unit_test(poison_of_a_row_spares_hidden_keys),
        cmocka_unit_test(nan_that_is_seen_shows),
        cmocka_unit_test(bits_do_not_depend_on_how_queries_are_cut),
        cmocka_unit_test(empty_terms_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
