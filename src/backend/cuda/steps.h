/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h - steps that are not attention: pieces moved, deltas, gradients of sinks and of a bias,
 * states merged, pairs counted. In plain C for both sides; each is one launch that returns 0 or a
 * CUDA error. */
#ifndef RA__BACKEND_CUDA_STEPS_H
#define RA__BACKEND_CUDA_STEPS_H

#include "backend/cuda/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One end of a piece: see struct ra__end of core/program.h. */
struct ra__cuda_end {
    int32_t buffer; /* -1: none */
    int32_t head, number;
    int64_t token, step;
};

/* A piece, and how many items of its step come before it. */
struct ra__cuda_piece {
    struct ra__cuda_end to, from;
    int64_t tokens, first_item, tokens_per_item;
    int32_t heads, width; /* width 0: bytes of a message to another */
    int32_t message;      /* dtype in a message */
    int32_t add;
};

/* Where a buffer is; strides count numbers. */
struct ra__cuda_place {
    char *data;
    int32_t dtype, message;
    int64_t batch, token, head;
};

/* The few buffers that a step moves pieces between. */
enum { RA__CUDA_PLACES = 16, RA__CUDA_BUFFERS = 128 };
struct ra__cuda_gather {
    const struct ra__cuda_piece *pieces;
    int32_t piece_count, batch;
    int64_t items;
    struct ra__cuda_place places[RA__CUDA_PLACES];
    uint8_t place_of[RA__CUDA_BUFFERS];
};
int ra__cuda_gather_launch(const struct ra__cuda_gather *gather, void *stream);

/* f32 sums of tokens, rounded to 16 bits and packed; strides count numbers. */
struct ra__cuda_narrow {
    const float *from;
    int64_t token, head, tokens;
    int32_t heads, width, dtype;
    char *to;
};
int ra__cuda_narrow_launch(const struct ra__cuda_narrow *narrow, void *stream);

/* What a kernel found that ends the run: a row whose LSE is too coarse
 * (backend/cpu/kernel/lse.h). */
struct ra__cuda_report {
    int32_t coarse, head;
    int64_t query;
    float lse;
};

/* Rows of queries: delta = rowsum(dout * out) - dlse, and the check of their LSE. */
struct ra__cuda_queries {
    int32_t dtype, batch, heads, value_dim;
    int64_t queries;
    struct ra__cuda_tensor out, dout, lse, dlse, delta; /* dlse may have no data */
    struct ra__cuda_report *report;
    /* Gradient of the sinks. */
    const float *sinks;
    double *sums; /* [heads]; continued unless `start` */
    float *dsinks;
    int32_t start;
};
int ra__cuda_delta_launch(const struct ra__cuda_queries *queries, void *stream);
int ra__cuda_sinks_launch(const struct ra__cuda_queries *queries, void *stream);

/* States of split keys into those of their rows; ends the rows that end here. */
int ra__cuda_merge_launch(const struct ra__cuda_step *step, int tile_rows, void *stream);

/* The gradient of a bias, whose strides are those of step->terms, of one row family of a step. */
struct ra__cuda_dbias {
    float *to; /* query token 0 of the step's tokens; added to */
    int32_t row;
    int64_t repeat, queries; /* of the row */
    int32_t heads, runs;
};
int ra__cuda_dbias_launch(const struct ra__cuda_step *step, const struct ra__cuda_dbias *dbias,
                          void *stream);

/* Adds the query-key pairs of a step to *count. */
int ra__cuda_pairs_launch(const struct ra__cuda_step *step, unsigned long long *count,
                          void *stream);

#ifdef __cplusplus
}
#endif
#endif
