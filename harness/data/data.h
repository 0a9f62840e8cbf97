/* SPDX-License-Identifier: Apache-2.0 */
/* data.h - the tensors of a trial: their shapes, views of them in memory, and synthetic values.
 *
 * A synthetic value depends on (seed, tensor, batch, position, head, dim) alone, so every way to
 * cut the problem into ranks sees the same numbers. */
#ifndef HARNESS_DATA_H
#define HARNESS_DATA_H

#include "harness/base/complain.h"
#include "harness/data/recipe.h"
#include "harness/problem/trial.h"

enum tensor {
    TENSOR_Q,
    TENSOR_K,
    TENSOR_V,
    TENSOR_DOUT,
    TENSOR_DLSE, /* read */
    TENSOR_OUT,
    TENSOR_LSE,
    TENSOR_DQ,
    TENSOR_DK,
    TENSOR_DV, /* written */
    TENSOR_COUNT
};

const char *tensor_name(enum tensor tensor); /* "q", ..., "lse" */
bool tensor_is_backward(enum tensor tensor); /* only a backward run has it */
bool tensor_of_keys(enum tensor tensor);     /* as long as the keys, not the queries */
bool tensor_is_result(enum tensor tensor);   /* a run writes it */
int64_t tensor_heads(const struct trial *trial, enum tensor tensor);
int64_t tensor_dim(const struct trial *trial, enum tensor tensor);
ra_dtype tensor_dtype(const struct trial *trial, enum tensor tensor); /* LSE is always f32 */
int64_t tensor_length(const struct trial *trial, enum tensor tensor); /* positions over all ranks */

/* A tensor of some positions in memory; strides count elements. */
struct view {
    char *data;
    ra_dtype dtype;
    int64_t dim;
    int64_t batch_stride, position_stride, head_stride;
};

/* The strides the trial asks for (LSE: always packed), data NULL; and the bytes it spans, with
 * false where these do not fit into a size_t. */
bool view_shape(const struct trial *trial, enum tensor tensor, int64_t positions, struct view *view,
                size_t *bytes);
char *view_row(const struct view *view, int64_t batch, int64_t position, int64_t head);
void view_read(const struct view *view, int64_t batch, int64_t position, int64_t head, float *to);
ra_tensor view_tensor(const struct view *view);
ra_const_tensor view_input(const struct view *view);

/* How the values of a tensor are made. */
struct recipe data_recipe(const struct trial *trial, enum tensor tensor);

/* One row of synthetic values: in a dtype, with room for the row as f32; and as f32, rounded to the
 * trial's dtype. */
void data_make(const struct recipe *recipe, ra_dtype dtype, int64_t batch, int64_t position,
               int64_t head, float *scratch, void *to);
void data_row(const struct trial *trial, enum tensor tensor, int64_t batch, int64_t position,
              int64_t head, float *to);

/* What `count` numbers of a tensor add to its digest, the first of them number `index` of it. */
uint64_t data_digest(ra_dtype dtype, const void *from, int64_t index, int64_t count);

/* One nearly normal number of a place in a bias, or of a sink (position -1). */
float data_noise(const struct trial *trial, int64_t batch, int64_t position, int64_t head,
                 int64_t key);

/* Which positions a shard has: those at the indices of `runs`, one run after the other. `origin` is
 * the original position of every index; NULL if they are the same. */
struct shard {
    const ra_run *runs;
    int64_t run_count;
    const int64_t *origin;
};

/* The rows that are compared where comparing all would take too long: how many positions of a
 * tensor, and the i-th of `count` of them, spread over 0 .. length - 1, first and last included,
 * others not aligned. */
int data_sample_count(enum tensor tensor);
int64_t data_sample(int i, int count, int64_t length);

/* Fills a view with the positions of a shard. */
int data_fill(const struct trial *trial, enum tensor tensor, const struct shard *shard,
              const struct view *view);

#endif
