/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h - the contract between the CUDA backend and its kernels, in plain C for both sides.
 *
 * A kernel runs a whole ATTEND or GRADIENT step by one launch, or a few. Rows and keys of a step
 * are tables in device memory: row families as the plan wrote them, expanded by index on the
 * device. A kernel never allocates, waits for the device or knows ranks; it returns 0 or a CUDA
 * error.
 *
 * The rules of arithmetic are those of the CPU's kernels (backend/cpu/kernel/kernel.h): sums in
 * f32, scores in units of log2, -inf for "nothing folded", hidden keys without any effect, and
 * rows whose bits do not depend on other rows. Key blocks start at multiples of the kernel's block
 * size, counted in pos / pos_step. All sums have a fixed order, the same bits every time, except
 * gradients where a plan allows any order. */
#ifndef RA__BACKEND_CUDA_KERNEL_H
#define RA__BACKEND_CUDA_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The open side of a band; positions can be added to it. As RA__UNBOUNDED of core/shape.h. */
#define RA__CUDA_UNBOUNDED (INT64_MAX / 4)

/* Keys of a row: the i-th is token `token + i token_step` of the buffer, at position `pos + i
 * pos_step`, and is seen where -left <= its position - the query's <= right. Moved by the advances
 * from one row of the family to the next. */
struct ra__cuda_run {
    int64_t token, token_step, pos, pos_step, count;
    int64_t left, right;
    int64_t token_advance, pos_advance;
};

/* A row family: `repeat` rows of q_count queries. */
struct ra__cuda_row {
    int64_t q_token, q_token_step, q_count;
    int64_t q_pos, q_pos_step;
    int64_t repeat, q_token_advance, q_pos_advance;
    int32_t head, head_step, heads; /* query heads: head, head + head_step, ... */
    int32_t first_run, run_count;
    int32_t first, last; /* starts from empty state; writes the result */
    /* All heads of the shape: then those of a KV head are rows of the same tile, query by query.
     * Otherwise a tile has one head. */
    int32_t all_heads;
};

/* Rows of a step, largest work first, and how many tiles come before them. A tile is `tile_rows`
 * pairs of a query and a head that reads the same KV head: pair f of a row is query f / group, head
 * f % group. */
struct ra__cuda_slot {
    int64_t tiles_before;
    int64_t chunks; /* tiles of one row and one unit: a KV head, or a head where not all are */
    int32_t row;
    int32_t units; /* of one batch item */
};

/* Backward: at most `tile_keys` keys, the i-th at token `token + i token_step`, and the rows that
 * see them. No two tiles of a wave hold the same key, so each has its dk and dv to itself. */
struct ra__cuda_key_tile {
    int64_t token, token_step;
    int32_t count;
    int32_t kv_head; /* -1: the same for every KV head */
    int32_t first_part, part_count;
};

/* Queries [q_lo, q_hi) of the repeat-th row of a family may see keys [lo, hi) of a tile by one run:
 * key i of the tile is key i + shift of the run. */
struct ra__cuda_part {
    int64_t repeat, q_lo, q_hi, shift;
    int32_t row, run; /* in the tables */
    int32_t lo, hi;
};

/* Numbers of (batch item, token, head), dim contiguous; strides count numbers. */
struct ra__cuda_tensor {
    void *data; /* NULL: not wanted, or not there */
    int64_t batch, token, head;
};

/* core/terms.h, with arrays in device memory. */
struct ra__cuda_terms {
    int32_t any; /* are scores more than scale q.k, or keys hidden? */
    float softcap;
    const float *alibi, *sinks; /* [query heads of the problem] */
    int32_t dropout;
    float kept_scale;
    uint64_t drop_below, seed;
    const int32_t *origin, *see_from, *see_to;
    /* Element (batch, head, query token, original position of the key); f32, or bytes where a 0
     * hides the key. `bias` points at query token 0 of this step's tokens. */
    const void *bias;
    int32_t bias_mask;
    int64_t bias_batch, bias_head, bias_query;
};

enum ra__cuda_dtype { RA__CUDA_F32, RA__CUDA_BF16, RA__CUDA_F16 };

/* The most ranges that keys are split into. As RA__MOST_RANGES of core/program.h. */
enum { RA__CUDA_RANGES = 64 };

/* One step. Its fields are many because they are all that a launch is given. */
struct ra__cuda_step {
    int32_t dtype; /* enum ra__cuda_dtype */
    int32_t batch, q_heads, kv_heads, dim, value_dim;
    int32_t first_head; /* which head of the problem is head 0 */
    float scale;
    const struct ra__cuda_row *rows;
    const struct ra__cuda_run *runs;
    /* Tiles of queries: forward, and for dq. */
    const struct ra__cuda_slot *slots;
    int32_t slot_count;
    int32_t sections; /* of units (of all batch items), which are worked on one after another */
    int64_t tiles;
    /* Few queries and many keys: keys are split into ranges of positions, each with a state of its
     * own; tiles of each range. Their states: split_state_at() of rows.cuh. */
    int32_t ranges;     /* 1: not split */
    int64_t range_keys; /* positions of a range */
    float *split_states;
    int64_t split_rows;    /* of one range: batch, query token, head */
    int64_t split_queries; /* query tokens of a batch item in it */
    /* Tiles of keys: for dk and dv. */
    const struct ra__cuda_key_tile *key_tiles;
    const struct ra__cuda_part *parts;
    int32_t key_tile_count; /* of this wave */
    struct ra__cuda_tensor q, k, v, out, lse;
    struct ra__cuda_tensor m, l, acc; /* state, f32 */
    struct ra__cuda_tensor dout, delta;
    struct ra__cuda_tensor dq, dk, dv; /* f32, added to */
    int32_t writes_keys;               /* dk and dv are results in `dtype`, and are written */
    /* Keys of k_len that are not there: keys_there() of rows.cuh. Where batch items differ, counts
     * says how many are. */
    int64_t missing, k_len;
    const int64_t *counts; /* [batch]; NULL: they do not differ */
    struct ra__cuda_terms terms;
};

/* How a kernel divides a step of some shape. */
struct ra__cuda_tiling {
    int tile_rows;     /* forward */
    int gradient_rows; /* for dq */
    int tile_keys;     /* for dk and dv */
};

/* What a device is, as far as kernels care. */
struct ra__cuda_facts {
    char name[64];
    int sm; /* 90 for compute capability 9.0 */
    int sm_count, shared_bytes;
    uint64_t l2_bytes, memory;
};

/* A kernel may divide the steps of a program on the host, once per plan, instead of reading tables.
 * Steps and calls that it leaves out are run by the best kernel before it in the list. */
struct ra__call;
struct ra__problem_terms;
struct ra__program;
enum { RA__CUDA_NOT_TAKEN = -1 };
struct ra__cuda_scheduler {
    /* What it needs for the steps of a program, *out; NULL: it runs none of them. Made for the
     * current device. The program outlives it. 0, or -1: memory is short. */
    int (*create)(const struct ra__program *program, const struct ra__problem_terms *terms,
                  void **out);
    /* Bytes of device memory for its arrays; *scratch is raised to what a launch needs besides. */
    size_t (*bytes)(const void *schedule, size_t *scratch);
    /* Writes the arrays to `host`, a copy of what will be at `device`. 0, or -1: no memory. */
    int (*place)(void *schedule, char *host, char *device, char *scratch);
    /* Queues step `index` of the program: 0, a CUDA error, or RA__CUDA_NOT_TAKEN. A GRADIENT that
     * writes results leaves nothing to the GATHERs of its sums, one that sets its sums nothing to
     * the GATHER that clears them. For GATHERs `step` is NULL. */
    int (*run)(const void *schedule, int index, const struct ra__call *call,
               const struct ra__cuda_step *step, void *stream);
    /* Does the last GRADIENT of this call write dq as the caller wants it? Then its sums are
     * neither cleared nor finished. */
    int (*writes_queries)(const void *schedule, const struct ra__call *call);
    void (*destroy)(void *schedule); /* accepts NULL */
};

struct ra__kernel {
    const char *name;
    const char *summary;
    unsigned dtypes;  /* bits 1 << enum ra__cuda_dtype */
    int sm;           /* the least compute capability */
    const char *gpus; /* all that it is for, in words */
    int (*is_for)(int sm);
    /* Can it run this shape? Called with dim and value_dim of at least 1, at most 576. */
    int (*takes)(int dtype, int dim, int value_dim, int backward);
    struct ra__cuda_tiling (*tiling)(int dtype, int dim, int value_dim);
    /* `stream` is a cudaStream_t. Backward: the two in any order, dk and dv once per wave. */
    int (*forward)(const struct ra__cuda_step *step, void *stream);
    int (*gradient_q)(const struct ra__cuda_step *step, void *stream);
    int (*gradient_kv)(const struct ra__cuda_step *step, void *stream);
    /* Both at once, once per wave. dq is added to by atomic operations, in any order, so its last
     * bits may differ from run to run: only where the plan allows it. Called for steps without
     * score terms whose scale is above 0. NULL: there is none. */
    int (*gradient_any_order)(const struct ra__cuda_step *step, void *stream);
    int writes_keys;                            /* can it do what step.writes_keys asks for? */
    const struct ra__cuda_scheduler *scheduler; /* instead of the functions; NULL: none */
};

#ifdef __cplusplus
}
#endif
#endif
