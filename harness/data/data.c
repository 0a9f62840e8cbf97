/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - the tensors of a trial: their shapes, views of them in memory, and synthetic values. */
#include "data.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/half.h"
#include "harness/data/values.h"
#include "harness/text/number.h"

/* ---- Shapes ---------------------------------------------------------------------------------- */

enum of_heads { OF_QUERIES, OF_KEYS };
enum of_dim { DIM_KEY, DIM_VALUE, DIM_ONE };

static const struct {
    const char *name;
    enum of_heads side;
    enum of_dim dim;
    bool backward;
} tensors[TENSOR_COUNT] = {
    [TENSOR_Q] = { "q", OF_QUERIES, DIM_KEY, false },
    [TENSOR_K] = { "k", OF_KEYS, DIM_KEY, false },
    [TENSOR_V] = { "v", OF_KEYS, DIM_VALUE, false },
    [TENSOR_DOUT] = { "dout", OF_QUERIES, DIM_VALUE, true },
    [TENSOR_DLSE] = { "dlse", OF_QUERIES, DIM_ONE, true },
    [TENSOR_OUT] = { "out", OF_QUERIES, DIM_VALUE, false },
    [TENSOR_LSE] = { "lse", OF_QUERIES, DIM_ONE, false },
    [TENSOR_DQ] = { "dq", OF_QUERIES, DIM_KEY, true },
    [TENSOR_DK] = { "dk", OF_KEYS, DIM_KEY, true },
    [TENSOR_DV] = { "dv", OF_KEYS, DIM_VALUE, true },
};

const char *tensor_name(enum tensor tensor) { return tensors[tensor].name; }
bool tensor_is_backward(enum tensor tensor) { return tensors[tensor].backward; }
bool tensor_of_keys(enum tensor tensor) { return tensors[tensor].side == OF_KEYS; }
bool tensor_is_result(enum tensor tensor) { return tensor >= TENSOR_OUT; }

int64_t tensor_heads(const struct trial *trial, enum tensor tensor)
{
    return tensor_of_keys(tensor) ? trial->kv_heads : trial->q_heads;
}

int64_t tensor_dim(const struct trial *trial, enum tensor tensor)
{
    enum of_dim dim = tensors[tensor].dim;
    return dim == DIM_KEY ? trial->dim : dim == DIM_VALUE ? trial->value_dim : 1;
}

ra_dtype tensor_dtype(const struct trial *trial, enum tensor tensor)
{
    return tensors[tensor].dim == DIM_ONE ? RA_F32 : (ra_dtype)trial->dtype;
}

int64_t tensor_length(const struct trial *trial, enum tensor tensor)
{
    return tensor_of_keys(tensor) ? trial->k_len : trial->q_len;
}

/* ---- Views ----------------------------------------------------------------------------------- */

/* Gaps of the padded layout, in elements: odd, so that nothing is aligned by luck. */
#define HEAD_GAP 3
#define POSITION_GAP 5

static bool product(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool view_shape(const struct trial *trial, enum tensor tensor, int64_t positions, struct view *view,
                size_t *bytes)
{
    int64_t heads = tensor_heads(trial, tensor), total = 0;
    bool padded = trial->strides == STRIDES_PADDED && tensors[tensor].dim != DIM_ONE;
    bool by_head = trial->strides == STRIDES_HEADS && tensors[tensor].dim != DIM_ONE;
    *view = (struct view){ .dtype = tensor_dtype(trial, tensor), .dim = tensor_dim(trial, tensor) };
    bool fits = true;
    if (by_head) {
        view->position_stride = view->dim;
        fits = fits && product(view->dim, positions, &view->head_stride);
        fits = fits && product(view->head_stride, heads, &view->batch_stride);
    } else {
        view->head_stride = view->dim + (padded ? HEAD_GAP : 0);
        view->position_stride = view->head_stride * heads + (padded ? POSITION_GAP : 0);
        fits = fits && product(view->position_stride, positions, &view->batch_stride);
    }
    fits = fits && product(view->batch_stride, trial->batch, &total);
    return fits && number_multiply((size_t)total, half_bytes(view->dtype), bytes);
}

char *view_row(const struct view *view, int64_t batch, int64_t position, int64_t head)
{
    int64_t element = batch * view->batch_stride + position * view->position_stride +
                      head * view->head_stride;
    return view->data + (size_t)element * half_bytes(view->dtype);
}

void view_read(const struct view *view, int64_t batch, int64_t position, int64_t head, float *to)
{
    half_to_float(view->dtype, view_row(view, batch, position, head), view->dim, to);
}

ra_tensor view_tensor(const struct view *view)
{
    return (ra_tensor){ view->data, view->batch_stride, view->position_stride, view->head_stride };
}

ra_const_tensor view_input(const struct view *view) { return ra_tensor_read(view_tensor(view)); }

/* ---- Synthetic values ------------------------------------------------------------------------ */

struct recipe data_recipe(const struct trial *trial, enum tensor tensor)
{
    const double root = sqrt((double)trial->dim);
    const double plain = trial->scale > 0.0 ? trial->scale * root : 1.0;
    const double one_over_scale = 1.0 / (trial->scale > 0.0 ? trial->scale : 1.0 / root);
    struct recipe recipe = { .seed = recipe_scramble((uint64_t)trial->seed + GOLDEN),
                             .tensor = (uint64_t)tensor,
                             .heads = tensor_heads(trial, tensor),
                             .dim = tensor_dim(trial, tensor),
                             .length = tensor_length(trial, tensor),
                             .factor = 1.0f,
                             .ones = trial->ones && tensor == TENSOR_V };
    /* Q times this gives scores q.k scale of about +-amp, for q.k scale would reach 3 or so. */
    if (tensor == TENSOR_Q && trial->amp > 0.0) recipe.factor = (float)(trial->amp / (3.0 * plain));
    /* q is 1/scale there, k +gap/2 in even quarters of the keys and -gap/2 in odd ones (the other
     * way round in odd heads). */
    recipe.gaps = trial->gap > 0.0 && (tensor == TENSOR_Q || tensor == TENSOR_K);
    recipe.gap_even = (float)(tensor == TENSOR_Q ? one_over_scale : 0.5 * trial->gap);
    recipe.gap_odd = (float)(tensor == TENSOR_Q ? one_over_scale : -0.5 * trial->gap);
    return recipe;
}

void data_make(const struct recipe *recipe, ra_dtype dtype, int64_t batch, int64_t position,
               int64_t head, float *scratch, void *to)
{
    values_make(recipe, batch, position, head, scratch);
    half_from_float(dtype, scratch, recipe->dim, to);
}

void data_row(const struct trial *trial, enum tensor tensor, int64_t batch, int64_t position,
              int64_t head, float *to)
{
    const struct recipe recipe = data_recipe(trial, tensor);
    const ra_dtype dtype = tensor_dtype(trial, tensor);
    values_make(&recipe, batch, position, head, to);
    for (int64_t i = 0; i < recipe.dim; i++) to[i] = half_round(dtype, to[i]);
}

uint64_t data_digest(ra_dtype dtype, const void *from, int64_t index, int64_t count)
{
    const uint32_t *words = from;
    const uint16_t *halves = from;
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += recipe_digest(index + i, dtype == RA_F32 ? words[i] : halves[i]);
    return sum;
}

float data_noise(const struct trial *trial, int64_t batch, int64_t position, int64_t head,
                 int64_t key)
{
    const struct recipe recipe = { .seed = recipe_scramble((uint64_t)trial->seed + GOLDEN),
                                   .tensor = TENSOR_COUNT };
    const uint64_t row = recipe_row(&recipe, batch, position, head);
    return recipe_normal(recipe_scramble(row + (uint64_t)key * ROOT_2));
}

int data_sample_count(enum tensor tensor)
{
    enum { QUERIES = 32, KEYS = 8 };
    return tensor_of_keys(tensor) ? KEYS : QUERIES;
}

int64_t data_sample(int i, int count, int64_t length)
{
    if (i == 0) return 0;
    if (i == count - 1) return length - 1;
    double place = ((double)i + 0.37 * (i % 3)) / (double)(count - 1) * (double)(length - 1);
    return (int64_t)place < length ? (int64_t)place : length - 1;
}

static void fill_position(const struct recipe *recipe, int64_t batch, int64_t position,
                          int64_t local, const struct view *view, float *scratch)
{
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < recipe->heads; h++)
            data_make(recipe, view->dtype, b, position, h, scratch, view_row(view, b, local, h));
}

int data_fill(const struct trial *trial, enum tensor tensor, const struct shard *shard,
              const struct view *view)
{
    const struct recipe recipe = data_recipe(trial, tensor);
    float *scratch = malloc((size_t)view->dim * sizeof *scratch);
    if (!scratch) return EXIT_FAULT;
    int64_t local = 0;
    for (int64_t r = 0; r < shard->run_count; r++)
        for (int64_t i = 0; i < shard->runs[r].count; i++) {
            int64_t index = shard->runs[r].start + i * shard->runs[r].step;
            int64_t position = shard->origin ? shard->origin[index] : index;
            fill_position(&recipe, trial->batch, position, local++, view, scratch);
        }
    free(scratch);
    return EXIT_PASS;
}
