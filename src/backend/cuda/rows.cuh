/* SPDX-License-Identifier: Apache-2.0 */
/* rows.cuh - on the device: from the index of a tile to its queries, and from a row to the blocks
 * of keys that they see. The same for all kernels that take struct ra__cuda_step. */
#ifndef RA__BACKEND_CUDA_ROWS_CUH
#define RA__BACKEND_CUDA_ROWS_CUH

#include "backend/cuda/kernel.h"

namespace ra
{

__device__ inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
__device__ inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Division that rounds towards minus and plus infinity; b > 0. */
__device__ inline int64_t floor_div(int64_t a, int64_t b)
{
    if (b == 1) return a;
    return a / b - (a % b < 0);
}
__device__ inline int64_t ceil_div(int64_t a, int64_t b)
{
    if (b == 1) return a;
    return a / b + (a % b > 0);
}

/* Some queries of one row, for the heads of one KV head, or one head. */
struct tile {
    const ra__cuda_row *row;
    int64_t repeat;
    int64_t first; /* of its pairs (query, head), see struct ra__cuda_slot */
    int rows;      /* how many pairs */
    int batch, kv_head;
    int head, group; /* heads head .. head + group - 1 of the shape */
    int range;       /* of split keys */

    __device__ int64_t query(int r) const { return (first + r) / group; }
    __device__ int head_of(int r) const { return head + (int)((first + r) % group); }
    /* The token of query i of the row, and its position. */
    __device__ int64_t token(int64_t i) const
    {
        return row->q_token + repeat * row->q_token_advance + i * row->q_token_step;
    }
    __device__ int64_t position(int64_t i) const
    {
        return row->q_pos + repeat * row->q_pos_advance + i * row->q_pos_step;
    }
};

/* Which row a tile belongs to. */
__device__ inline const ra__cuda_slot *find_slot(const ra__cuda_step &step, int64_t index)
{
    int low = 0, high = step.slot_count;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (step.slots[middle].tiles_before <= index) low = middle;
        else high = middle;
    }
    return &step.slots[low];
}

/* Units are worked on in sections, about as many in each: that of the index-th of `units` units. */
struct section {
    int64_t first, count;
};
__device__ inline section section_of(const ra__cuda_step &step, int64_t units, int64_t index)
{
    const int64_t sections = least(step.sections, units);
    const int64_t here = ((index + 1) * sections - 1) / units;
    const int64_t first = here * units / sections;
    return section{ first, (here + 1) * units / sections - first };
}

/* The index-th tile of a step, all threads alike. In a section of units the last queries come
 * first, since under causal they see the most keys. */
__device__ inline tile find_tile(const ra__cuda_step &step, int64_t index, int range, int tile_rows)
{
    const ra__cuda_slot *slot = find_slot(step, index);
    const ra__cuda_row *row = &step.rows[slot->row];
    const int64_t units = (int64_t)slot->units * step.batch, chunks = slot->chunks * row->repeat;
    const int64_t within = index - slot->tiles_before;
    const section here = section_of(step, units, within / chunks);
    const int64_t rest = within - here.first * chunks;
    const int64_t chunk = chunks - 1 - rest / here.count;
    const int64_t unit = here.first + rest % here.count;
    const int per_kv = step.q_heads / step.kv_heads, of_batch = (int)(unit % slot->units);
    tile t;
    t.row = row;
    t.repeat = chunk / slot->chunks;
    t.batch = (int)(unit / slot->units);
    t.range = range;
    t.head = row->all_heads ? of_batch * per_kv : row->head + of_batch * row->head_step;
    t.group = row->all_heads ? per_kv : 1;
    t.kv_head = t.head / per_kv;
    t.first = chunk % slot->chunks * tile_rows;
    t.rows = (int)least(tile_rows, row->q_count * t.group - t.first);
    return t;
}

/* The index-th tile of keys. Units are KV heads of batch items, in sections as above. The first
 * keys come first, since under causal the most queries see them. */
struct key_place {
    int tile, batch, kv_head;
};
__device__ inline key_place find_key_tile(const ra__cuda_step &step, int64_t index)
{
    const int64_t units = (int64_t)step.batch * step.kv_heads, tiles = step.key_tile_count;
    const section here = section_of(step, units, index / tiles);
    const int64_t rest = index - here.first * tiles;
    const int64_t unit = here.first + rest % here.count;
    return key_place{ (int)(rest / here.count), (int)(unit / step.kv_heads),
                      (int)(unit % step.kv_heads) };
}

/* The index-th run of a row of a family. */
__device__ inline ra__cuda_run run_at(const ra__cuda_step &step, const ra__cuda_row *row,
                                      int64_t repeat, int index)
{
    ra__cuda_run run = step.runs[row->first_run + index];
    run.token += repeat * run.token_advance;
    run.pos += repeat * run.pos_advance;
    return run;
}

/* Fewer keys are there than the shape has. The last ones of the shape stand for them, so that
 * distances stay; those before them are not there, and the first that is has token 0. */
__device__ inline ra__cuda_run keys_there(const ra__cuda_step &step, ra__cuda_run run, int batch)
{
    int64_t missing = step.missing;
    if (step.counts) missing = step.k_len - least(most(step.counts[batch], 0), step.k_len);
    if (missing == 0) return run;
    const int64_t lo = least(most(ceil_div(missing - run.pos, run.pos_step), 0), run.count);
    run.token += lo * run.token_step - missing;
    run.pos += lo * run.pos_step;
    run.count -= lo;
    return run;
}

/* The same, of these the keys that are there, in the tile's range where keys are split. */
__device__ inline ra__cuda_run run_of(const ra__cuda_step &step, const tile &t, int index)
{
    ra__cuda_run run = keys_there(step, run_at(step, t.row, t.repeat, index), t.batch);
    if (step.ranges == 1) return run;
    const int64_t from = t.range * step.range_keys;
    const int64_t lo = least(most(ceil_div(from - run.pos, run.pos_step), 0), run.count);
    const int64_t hi = least(most(ceil_div(from + step.range_keys - run.pos, run.pos_step), lo),
                             run.count);
    run.token += lo * run.token_step;
    run.pos += lo * run.pos_step;
    run.count = hi - lo;
    return run;
}

/* Keys [lo, hi) of a run that a query at a position sees; lo <= hi. */
struct range {
    int64_t lo, hi;
};
__device__ inline range seen_by(const ra__cuda_run &run, int64_t position)
{
    const int64_t from = ceil_div(position - run.left - run.pos, run.pos_step);
    const int64_t to = floor_div(position + run.right - run.pos, run.pos_step) + 1;
    range seen;
    seen.lo = least(most(from, 0), run.count);
    seen.hi = most(least(to, run.count), seen.lo);
    return seen;
}

/* The keys of a run that some query of a tile sees, as blocks of `size` keys: the first begins at
 * `from`, which may be below 0, and the last ends at or after keys.hi. Blocks that begin in
 * [all.lo, all.hi - size] are seen by all queries. */
struct blocks {
    range keys, all;
    int64_t from;
};
__device__ inline blocks blocks_of(const ra__cuda_run &run, const tile &t, int size)
{
    const range first = seen_by(run, t.position(t.query(0)));
    const range last = seen_by(run, t.position(t.query(t.rows - 1)));
    blocks b;
    b.keys.lo = first.lo;
    b.keys.hi = last.hi;
    b.all.lo = last.lo;
    b.all.hi = first.hi;
    const int64_t at = floor_div(run.pos, run.pos_step) + b.keys.lo;
    b.from = b.keys.lo - (at - floor_div(at, size) * size);
    return b;
}

/* Does a query of the run's row see key i of the run? */
__device__ inline bool in_band(const ra__cuda_run &run, int64_t position, int64_t i)
{
    const int64_t away = run.pos + i * run.pos_step - position;
    return away >= -run.left && away <= run.right;
}

/* The number at (batch, token, head) of a tensor. */
template <class T>
__device__ inline T *at(const ra__cuda_tensor &tensor, int batch, int64_t token, int head)
{
    return (T *)tensor.data + batch * tensor.batch + token * tensor.token + head * tensor.head;
}

/* Where the running softmax of a row is kept from step to step. */
struct state_place {
    float *m, *l, *acc;
};
__device__ inline state_place state_at(const ra__cuda_step &step, int batch, int64_t token,
                                       int head)
{
    return state_place{ at<float>(step.m, batch, token, head),
                        at<float>(step.l, batch, token, head),
                        at<float>(step.acc, batch, token, head) };
}

/* And that of one range of split keys: m of all ranges, then l of all, then acc. */
__device__ inline state_place split_state_at(const ra__cuda_step &step, int range, int batch,
                                             int64_t token, int head)
{
    const int64_t all = step.ranges * step.split_rows;
    const int64_t query = batch * step.split_queries + token;
    const int64_t row = range * step.split_rows + query * step.q_heads + head;
    return state_place{ step.split_states + row, step.split_states + all + row,
                        step.split_states + 2 * all + row * step.value_dim };
}

} // namespace ra

#endif
