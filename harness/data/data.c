/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - the tensors of a trial: their shapes, views of them in memory, and synthetic values. */
#include "data.h"

#include <math.h>
#include <stdlib.h>

#include "harness/base/half.h"
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

#define GOLDEN 0x9e3779b97f4a7c15u /* 2^64 times the fraction of the golden ratio, odd */
#define ROOT_2 0xb504f333f9de6485u /* 2^63 times the square root of 2, odd */

/* Scrambles 64 bits one to one: multiply by odd constants, fold the upper half down. */
static uint64_t scramble(uint64_t x)
{
    x ^= x >> 31;
    x *= GOLDEN;
    x ^= x >> 29;
    x *= ROOT_2;
    return x ^ x >> 32;
}

/* Four 16-bit numbers added up, moved and scaled to mean 0 and variance 1: nearly normal,
 * +-3.46. */
static float normal(uint64_t bits)
{
    const float variance_of_sum = 4.0f * 65536.0f * 65536.0f / 12.0f;
    int sum = (int)(bits & 0xffff) + (int)(bits >> 16 & 0xffff) + (int)(bits >> 32 & 0xffff) +
              (int)(bits >> 48);
    return ((float)sum - 2.0f * 65535.0f) * (1.0f / sqrtf(variance_of_sum));
}

static uint64_t row_key(const struct trial *trial, enum tensor tensor, int64_t batch,
                        int64_t position, int64_t head)
{
    uint64_t key = scramble((uint64_t)trial->seed + GOLDEN);
    key = scramble(key ^ ((uint64_t)tensor << 56 | (uint64_t)head << 32 | (uint64_t)batch));
    return scramble(key + (uint64_t)position);
}

/* Q times this gives scores q.k scale of about +-amp, for q.k scale would reach 3 or so. */
static float amp_factor(const struct trial *trial)
{
    double plain = trial->scale > 0.0 ? trial->scale * sqrt((double)trial->dim) : 1.0;
    return trial->amp > 0.0 ? (float)(trial->amp / (3.0 * plain)) : 1.0f;
}

/* Dimension 0 carries the gap: q 1/scale, k +gap/2 in even quarters of the keys and -gap/2 in
 * odd ones (the other way round in odd heads). */
static float gap_value(const struct trial *trial, enum tensor tensor, int64_t position,
                       int64_t head)
{
    double scale = trial->scale > 0.0 ? trial->scale : 1.0 / sqrt((double)trial->dim);
    if (tensor == TENSOR_Q) return (float)(1.0 / scale);
    int64_t quarter = position * 4 / trial->k_len;
    return (float)((quarter + head) % 2 ? -0.5 * trial->gap : 0.5 * trial->gap);
}

void data_row(const struct trial *trial, enum tensor tensor, int64_t batch, int64_t position,
              int64_t head, float *to)
{
    int64_t dim = tensor_dim(trial, tensor);
    ra_dtype dtype = tensor_dtype(trial, tensor);
    uint64_t key = row_key(trial, tensor, batch, position, head);
    float factor = tensor == TENSOR_Q ? amp_factor(trial) : 1.0f;
    for (int64_t i = 0; i < dim; i++) to[i] = factor * normal(scramble(key + (uint64_t)i * ROOT_2));
    if (trial->gap > 0.0 && (tensor == TENSOR_Q || tensor == TENSOR_K))
        to[0] = gap_value(trial, tensor, position, head);
    if (trial->ones && tensor == TENSOR_V)
        for (int64_t i = 0; i < dim; i++) to[i] = 1.0f;
    if (dtype != RA_F32)
        for (int64_t i = 0; i < dim; i++) to[i] = half_round(dtype, to[i]);
}

float data_noise(const struct trial *trial, int64_t batch, int64_t position, int64_t head,
                 int64_t key)
{
    uint64_t place = row_key(trial, TENSOR_COUNT, batch, position, head);
    return normal(scramble(place + (uint64_t)key * ROOT_2));
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

static void fill_position(const struct trial *trial, enum tensor tensor, int64_t position,
                          int64_t local, const struct view *view, float *row)
{
    for (int64_t b = 0; b < trial->batch; b++)
        for (int64_t h = 0; h < tensor_heads(trial, tensor); h++) {
            data_row(trial, tensor, b, position, h, row);
            half_from_float(view->dtype, row, view->dim, view_row(view, b, local, h));
        }
}

int data_fill(const struct trial *trial, enum tensor tensor, const struct shard *shard,
              const struct view *view)
{
    float *row = malloc((size_t)view->dim * sizeof *row);
    if (!row) return EXIT_FAULT;
    int64_t local = 0;
    for (int64_t r = 0; r < shard->run_count; r++)
        for (int64_t i = 0; i < shard->runs[r].count; i++) {
            int64_t index = shard->runs[r].start + i * shard->runs[r].step;
            int64_t position = shard->origin ? shard->origin[index] : index;
            fill_position(trial, tensor, position, local++, view, row);
        }
    free(row);
    return EXIT_PASS;
}
