/* wide.h - the products of a job of one query and several KV heads whose keys follow one another in memory,
 * so that they are read as one stream: the same squares as in thin.h, LANES keys of all heads before the
 * next ones, and values strictly as they lie. Written in the words of an ISA's vec.h and of a grain.
 *
 * On Zen 4, 8 KV heads of 256 bytes, one thread: 27 to 28 GB/s, against 12 head by head and 22 with values in
 * pieces of 16 keys of each head. */
#ifndef RA__KERNEL_CPU_VECTOR_WIDE_H
#define RA__KERNEL_CPU_VECTOR_WIDE_H

#include "kernel/cpu/vector/thin.h"

/* f32 only: bf16 gained nothing this way (dim 64 and 128, Zen 4). And one query head to a KV head: squares are
 * turned for a single row. */
static inline bool wide(const struct ra__shape *shape)
{
    return shape->dtype == RA_F32 && shape->q_heads == shape->kv_heads &&
           shape->kv_heads <= THIN_ROWS && shape->value_dim % LANES == 0;
}

enum { WIDE_AHEAD = 2 * LANES }; /* keys */

/* scores = q k^T; as thin_score(), a row for each KV head. Keys are asked for past the end of the block, for
 * the next one begins there. */
static void wide_score(const struct ra__view *view, const struct key_block *block, const grain *q,
                       float *scores)
{
    const int dim = view->shape->dim;
    const struct lanes seen = block->seen, all = lanes_whole(seen);
    struct thin_scores s = { .k = thin_rows(RA_F32, &view->k, dim, block), .stride = grains(dim) };
    const int64_t behind = block->run->count - (block->first + seen.from + WIDE_AHEAD);
    s.keys = thin_look_ahead(&s.k, seen.from + WIDE_AHEAD, behind > 0);
    s.keys.bytes = (int)(ra__min(behind, lanes_count(seen)) * s.k.step);
    for (int lane = all.from; lane < all.to; lane += LANES)
        for (int head = 0; head < view->kv_heads; head++) {
            const char *keys[LANES];
            for (int i = 0; i < LANES; i++)
                keys[i] = thin_row(&s.k, (int)ra__min(ra__max(lane + i, seen.from), seen.to - 1)) +
                          head * s.k.bytes;
            s.q = q + head * s.stride;
            s.to = scores + head * LINE;
            score_keys(RA_F32, &s, keys, lane, 1, 1);
        }
}

/* sum += weight x values over n numbers, a multiple of LANES. */
static inline void add_weighted(vec weight, const float *values, int n, float *sum)
{
    for (int d = 0; d < n; d += LANES)
        vec_store(sum + d, vec_fma(weight, vec_load(values + d), vec_load(sum + d)));
}

/* acc += p v; as thin_gather(), a row for each KV head. Sums of the block pass through the first-level
 * cache, key by key: [kv_heads][value_dim]. */
static void wide_gather(const struct ra__view *view, const struct key_block *block, const grain *p,
                        float *sums, float *acc)
{
    const int numbers = view->shape->value_dim, all = view->kv_heads * numbers;
    const struct thin_rows v = thin_rows(RA_F32, &view->v, numbers, block);
    memset(sums, 0, sizeof(float) * (size_t)all);
    for (int lane = block->seen.from; lane < block->seen.to; lane++) {
        const float *values = (const float *)thin_row(&v, lane);
        for (int head = 0; head < view->kv_heads; head++)
            add_weighted(grain_all(p + head * GRAIN_LINE + lane / PER_GRAIN),
                         values + head * numbers, numbers, row_of(sums, head, numbers));
    }
    for (int i = 0; i < all; i += LANES)
        vec_store(acc + i, vec_add(vec_load(acc + i), vec_load(sums + i)));
}

#endif
