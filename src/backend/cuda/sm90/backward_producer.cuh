/* SPDX-License-Identifier: Apache-2.0 */
/* backward_producer.cuh - the warps that load keys and blocks of queries, and those that add dq to
 * memory. */
#ifndef RA__SM90_BACKWARD_PRODUCER_CUH
#define RA__SM90_BACKWARD_PRODUCER_CUH

#include "backend/cuda/sm90/backward_shape.cuh"

namespace sm90
{

/* Blocks [first, last] of a run, numbered over all heads and rows of a batch item's tensor. */
template <class F> DEVICE int first_query_block(int4 run) { return row_of<F>(run.x) / F::QUERIES; }
template <class F> DEVICE int last_query_block(int4 run)
{
    return (row_of<F>(run.x) + run.y - 1) / F::QUERIES;
}

/* What a block is: its band as consumers need it, (lo, hi, first, limit), counted in columns. */
template <class F> DEVICE int4 band_of(int4 run, int block)
{
    const int offset = block * F::QUERIES - row_of<F>(run.x);
    return make_int4(run.z - offset, run.w - offset, -offset, run.y - offset);
}

/* The columns of a block that see key `key` of the item: [x, y]. Queries may go in stairs. */
DEVICE int2 columns_of(int4 band, int key, int flags)
{
    const int mask = (1 << (flags >> RA__SM90_RUN_STAIR_SHIFT & RA__SM90_STAIR_MASK)) - 1;
    const int from = ((band.x + key - band.z + mask) & ~mask) + band.z;
    const int to = ((band.y + key - band.z) | mask) + band.z;
    return make_int2(max(from, band.z), min(to, band.w - 1));
}

template <class F> DEVICE int backward_code_of(int4 band, int key_count, int flags)
{
    const bool clean = columns_of(band, F::KEYS - 1, flags).x <= 0 &&
                       columns_of(band, 0, flags).y >= F::QUERIES - 1 && key_count >= F::KEYS;
    return clean ? BLOCK_CLEAN : BLOCK_CAREFUL;
}

template <class F> struct BackwardLoader {
    const ra__sm90_backward &args;
    BackwardShared<F> shared;
    const BackwardMaps<F> &maps;
    unsigned blocks; /* loaded so far */
    unsigned items;

    DEVICE void load_half(uint32_t to, uint32_t column_to, const CUtensorMap *map,
                          const float *column, uint32_t full, struct box from, int block) const
    {
        barrier_expect(full, F::QUERY_BYTES + F::QUERIES * 4);
        copy_in(to, map, full, from);
        copy_in_plain(column_to, column + (size_t)block * F::QUERIES, F::QUERIES * 4, full);
    }

    /* Block `block` of the item's heads; `first_of_heads`: the first of these in all of memory. */
    DEVICE void load_block(int batch, int head, int block, int view, int first_of_heads, int4 band,
                           int next)
    {
        const int slot = blocks & 1, lap = blocks >> 1 & 1;
        const int per_head = args.padded_rows / F::QUERIES, h = block / per_head;
        const int before = F::VIEWS > 1 ? args.view_starts[view] : 0;
        const int row = (block - h * per_head) * F::QUERIES - before;
        const struct box from = { 0, row, 0, head + h, batch };
        warp_wait(shared.q_empty(slot), lap ^ 1);
        if (lane_of() == 0) {
            shared_store(shared.entry(slot, lap), band);
            shared_store(shared.entry(slot, lap) + 16, make_int4(next, from.row, from.head, 0));
            load_half(shared.q(slot), shared.lse(slot), maps.q + view, args.lse2,
                      shared.q_full(slot), from, first_of_heads + block);
        }
        warp_wait(shared.do_empty(slot), lap ^ 1);
        if (lane_of() == 0)
            load_half(shared.dout(slot), shared.delta(slot), maps.dout + view, args.delta,
                      shared.do_full(slot), from, first_of_heads + block);
        blocks++;
    }

    DEVICE void load_blocks(int4 who, int4 what)
    {
        const int4 *runs = (const int4 *)args.runs;
        const int head = who.y & 0xFFFF;
        const int first_of_heads = (who.x * args.q.heads + head) * (args.padded_rows / F::QUERIES);
        int r = what.x, block = first_query_block<F>(__ldg(runs + r));
        while (r < what.x + what.y) {
            const int4 run = __ldg(runs + r);
            const int4 band = band_of<F>(run, block);
            const int now = block, view = view_of<F>(run.x);
            int next = BLOCK_END;
            if (++block > last_query_block<F>(run) && ++r < what.x + what.y)
                block = first_query_block<F>(__ldg(runs + r));
            if (r < what.x + what.y)
                next = backward_code_of<F>(band_of<F>(__ldg(runs + r), block), who.w, what.w);
            load_block(who.x, head, now, view, first_of_heads, band, next);
        }
    }

    /* Tells consumers about the item, and loads its keys and values. */
    DEVICE void send(int4 who, int4 what)
    {
        const int slot = key_slot<F>(items);
        warp_wait(shared.kv_empty(slot), key_lap<F>(items) ^ 1);
        if (lane_of() == 0) {
            shared_store(shared.item(items), who);
            shared_store(shared.item(items) + 16, what);
            if (what.w & BACKWARD_QUIT) {
                barrier_arrive(shared.k_full(slot));
            } else {
                const int view = view_of<F>(who.z), kv_head = (int)((uint32_t)who.y >> 16);
                const struct box from = { 0, row_of<F>(who.z), 0, kv_head, who.x };
                barrier_expect(shared.k_full(slot), F::KEY_BYTES);
                copy_in(shared.k(slot), maps.k + view, shared.k_full(slot), from);
                barrier_expect(shared.v_full(slot), F::KEY_BYTES);
                copy_in(shared.v(slot), maps.v + view, shared.v_full(slot), from);
            }
        }
        items++;
    }

    DEVICE void run(void)
    {
        const int4 *list = (const int4 *)args.items;
        for (int i = args.queues[blockIdx.x]; i < args.queues[blockIdx.x + 1]; i++) {
            const int4 who = __ldg(list + 2 * i), what = __ldg(list + 2 * i + 1);
            int4 told = what;
            told.w |= args.item_flags;
            if (what.y) {
                const int4 run = __ldg((const int4 *)args.runs + what.x);
                told.y = backward_code_of<F>(band_of<F>(run, first_query_block<F>(run)), who.w,
                                             what.w);
            }
            send(who, told);
            for (int walk = 0; walk < F::WALKS; walk++) load_blocks(who, what);
        }
        send(make_int4(0, 0, 0, 0), make_int4(0, 0, 0, BACKWARD_QUIT));
    }
};

/* Named barriers: of both consumers; of a staging buffer, its consumer and the warp that empties
 * it. */
enum { CONSUMERS_BARRIER = 1, STAGING_THREADS = 160 };
DEVICE int staging_full(int consumer, int buffer) { return 2 + 2 * buffer + consumer; }
DEVICE int staging_empty(int consumer, int buffer) { return 6 + 2 * buffer + consumer; }

/* Adds what one consumer has staged to dq_sum, block after block. */
template <class F> struct DqAdder {
    const ra__sm90_backward &args;
    BackwardShared<F> shared;
    int consumer;
    int done, total; /* blocks */
    const int32_t *rank;

    DEVICE int count(void) const
    {
        const int4 *list = (const int4 *)args.items, *runs = (const int4 *)args.runs;
        int blocks = 0;
        for (int i = args.queues[blockIdx.x]; i < args.queues[blockIdx.x + 1]; i++) {
            const int4 what = __ldg(list + 2 * i + 1);
            for (int r = what.x; r < what.x + what.y; r++)
                blocks += last_query_block<F>(__ldg(runs + r)) -
                          first_query_block<F>(__ldg(runs + r)) + 1;
        }
        return blocks * F::WALKS;
    }

    /* The buffer that block i goes through is free for it. */
    DEVICE void offer(int i) const
    {
        if (i < total) named_arrive(staging_empty(consumer, i % F::STAGING), STAGING_THREADS);
    }

    DEVICE void add(int block, int walk)
    {
        const int buffer = done % F::STAGING;
        int32_t *turn = args.turns + 2 * (size_t)block + consumer;
        float *to = args.dq_sum + (((size_t)block * F::WALKS + walk) * 2 + consumer) * F::HALF;
        bool sets = false;
        if constexpr (F::ORDERED) { /* often its turn has come before the block is there */
            if (lane_of() == 0) {
                const int own = __ldg(rank++);
                sets = args.fresh && own == 0;
                turn_wait(turn, own);
            }
            __syncwarp();
        }
        named_sync(staging_full(consumer, buffer), STAGING_THREADS);
        if (lane_of() == 0) {
            if (sets) set_out(to, shared.dq(consumer, buffer), F::HALF * 4);
            else add_out(to, shared.dq(consumer, buffer), F::HALF * 4);
            add_out_read();
        }
        __syncwarp();
        offer(done + F::STAGING);
        done++;
        if constexpr (F::ORDERED) {
            if (lane_of() == 0) {
                add_out_done();
                turn_pass(turn);
            }
            __syncwarp();
        }
    }

    DEVICE void run(void)
    {
        const int4 *list = (const int4 *)args.items, *runs = (const int4 *)args.runs;
        total = count();
        for (int i = 0; i < F::STAGING; i++) offer(i);
        if constexpr (F::ORDERED) rank = args.ranks + args.rank_starts[blockIdx.x];
        for (int i = args.queues[blockIdx.x]; i < args.queues[blockIdx.x + 1]; i++) {
            const int4 who = __ldg(list + 2 * i), what = __ldg(list + 2 * i + 1);
            const int head = who.x * args.q.heads + (who.y & 0xFFFF);
            const int first_of_heads = head * (args.padded_rows / F::QUERIES);
            for (int walk = 0; walk < F::WALKS; walk++)
                for (int r = what.x; r < what.x + what.y; r++) {
                    const int4 run = __ldg(runs + r);
                    for (int block = first_query_block<F>(run); block <= last_query_block<F>(run);
                         block++)
                        add(first_of_heads + block, walk);
                }
        }
        if (lane_of() == 0) add_out_done();
    }
};

} // namespace sm90
#endif
