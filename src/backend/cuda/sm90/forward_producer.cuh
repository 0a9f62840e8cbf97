/* SPDX-License-Identifier: Apache-2.0 */
/* forward_producer.cuh - the two warps that feed the copy engine: keys and values, and queries. The
 * lanes of a warp go together; the first one speaks for them. */
#ifndef RA__SM90_FORWARD_PRODUCER_CUH
#define RA__SM90_FORWARD_PRODUCER_CUH

#include "backend/cuda/sm90/forward_shape.cuh"

namespace sm90
{

template <class F> struct Producer {
    const ra__sm90_forward &args;
    Shared<F> shared;
    const Maps<F> &maps;

    /* Read anew at each use: producers have few registers. */
    DEVICE int rank(void) const { return cluster_rank<F::CLUSTER>(); }
    DEVICE int cluster(void) const { return blockIdx.x / F::CLUSTER; }

    /* The next item of this pass from `index` on, or the end of the queue. */
    DEVICE int next_item(int index, bool replay) const
    {
        const int end = args.queues[cluster() + 1];
        for (; replay && index < end; index++)
            for (int i = 0; i < F::WARPS; i++)
                if (__ldcg(args.failed + (size_t)index * F::WARPS + i)) return index;
        return index;
    }
};

/* Keys [row, row + KEYS) of the tensor; row i of the tile, rounded down to its stair, sees column c
 * of the block if lo + i <= c <= hi + i and c < limit. */
struct block {
    int row, lo, hi, limit;
};

/* Blocks of a run are folded from its end; `left` is how many come after the first. */
template <class F> DEVICE struct block last_block(int4 run, int *left)
{
    *left = (run.y + F::KEYS - 1) / F::KEYS - 1;
    const int first = *left * F::KEYS;
    return { run.x + first, run.z - first, run.w - first, run.y - first };
}

/* What an item's rows are to this lane: it speaks for the consumer of the same number. */
struct rows {
    int first, last; /* of the consumer's rows, rounded down to their stairs */
    bool any, replay;
};

template <class F> DEVICE struct rows rows_of(int4 who, int4 what, int rank, bool replay)
{
    const int row = (rank * F::CONSUMERS + lane_of()) * 64, stair = stair_in(what.w);
    return { stair_of(row, stair), stair_of(row + 63, stair), row < who.w, replay };
}

/* What a block is to all consumers of this CTA; `last`: it is of the item's last run. Keys descend
 * in a run. */
template <class F> DEVICE int codes_of(struct block block, struct rows rows, bool last)
{
    const bool early = block.hi + rows.last < 0, late = block.lo + rows.first >= F::KEYS;
    const bool clean = block.lo + rows.last <= 0 && block.hi + rows.first >= F::KEYS - 1 &&
                       block.limit >= F::KEYS && !rows.replay;
    const bool mine = lane_of() < F::CONSUMERS, seen = !early && !late && rows.any;
    int code = clean ? CODE_CLEAN : CODE_CAREFUL;
    if (__any_sync(ALL_LANES, mine && !seen)) code += CODE_CLEAN_ALONE - CODE_CLEAN;
    if (!seen) code = (late && last) || !rows.any ? CODE_DONE : CODE_SKIP;
    return __reduce_or_sync(ALL_LANES, mine ? code << CODE_BITS * lane_of() : 0);
}

/* Half of a block where there are two CTAs: a share of its panels, or of its rows if it has one. */
template <class F>
DEVICE void load_block(uint32_t to, const CUtensorMap *map, uint32_t barrier, struct box at,
                       int rank)
{
    if constexpr (F::CLUSTER == 1) {
        copy_in(to, map, barrier, at);
    } else {
        if constexpr (F::PANELS > 1) at.panel = rank * (F::PANELS / 2);
        else at.row += rank * (F::KEYS / 2);
        copy_in_all(to + rank * (F::BLOCK_BYTES / 2), map, barrier, at, 3);
    }
}

/* The warp that loads keys and values. Values follow one block after keys: that is when they are
 * needed. The ring of V runs with that of K, so one place serves both. Few registers are left to
 * this warp: a block is stepped on instead of being made anew from its run. */
template <class F> struct KeyProducer : Producer<F> {
    struct ring at; /* where the next keys go */

    DEVICE void load_keys(struct box from, struct block block, int codes)
    {
        warp_wait(this->shared.k_empty(at.slot), at.lap ^ 1);
        if (lane_of() == 0) {
            const uint32_t entry = this->shared.entry(at.slot, at.lap);
            shared_store(entry, make_int4(block.lo, block.hi, block.limit, codes));
            if constexpr (F::PAIR_TERMS) shared_store(entry + 16, make_int4(from.row, 0, 0, 0));
            const uint32_t full = this->shared.k_full(at.slot);
            barrier_expect(full, F::BLOCK_BYTES);
            const CUtensorMap *map = this->maps.k + view_of<F>(from.row);
            from.row = row_of<F>(from.row);
            load_block<F>(this->shared.k(at.slot), map, full, from, this->rank());
        }
        ring_step<F::STAGES>(at);
    }

    /* Of the block before the one whose keys come next. */
    DEVICE void load_values(struct box from, struct ring to)
    {
        if (--to.slot < 0) to.slot = F::STAGES - 1, to.lap ^= 1;
        warp_wait(this->shared.v_empty(to.slot), to.lap ^ 1);
        if (lane_of() == 0) {
            const uint32_t full = this->shared.v_full(to.slot);
            barrier_expect(full, F::BLOCK_BYTES);
            const CUtensorMap *map = this->maps.v + view_of<F>(from.row);
            from.row = row_of<F>(from.row);
            load_block<F>(this->shared.v(to.slot), map, full, from, this->rank());
        }
    }

    DEVICE void load_item(int index, bool replay)
    {
        const int4 *items = (const int4 *)this->args.items, *runs = (const int4 *)this->args.runs;
        const int4 who = __ldg(items + 2 * index), what = __ldg(items + 2 * index + 1);
        int run = what.x;
        const int end = run + what.y;
        if (run == end) return;
        const struct rows rows = rows_of<F>(who, what, this->rank(), replay);
        struct box from = { 0, -1, 0, (int)((uint32_t)who.y >> 16), who.x };
        int left; /* blocks of the run after this one */
        struct block block = last_block<F>(__ldg(runs + run), &left);
        for (bool more = true; more;) {
            struct block next = { block.row - F::KEYS, block.lo + F::KEYS, block.hi + F::KEYS,
                                  block.limit + F::KEYS };
            int codes = 0;
            if (--left < 0 && ++run < end) next = last_block<F>(__ldg(runs + run), &left);
            if (left >= 0) codes = codes_of<F>(next, rows, run + 1 == end);
            const struct ring before = at;
            const struct box values = from;
            from.row = block.row;
            load_keys(from, block, codes);
            if (values.row >= 0) load_values(values, before);
            block = next;
            more = codes != 0;
        }
        load_values(from, at);
    }

    DEVICE void pass(bool replay)
    {
        const int end = this->args.queues[this->cluster() + 1];
        int i = this->next_item(this->args.queues[this->cluster()], replay);
        for (; i < end; i = this->next_item(i + 1, replay)) load_item(i, replay);
    }
};

/* The warp that loads queries and tells consumers about items. */
template <class F> struct QueryProducer : Producer<F> {
    uint32_t count; /* of items that were sent */

    DEVICE void send(int4 who, int4 what)
    {
        for (int i = 0; i < F::CONSUMERS; i++) {
            const int slot = this->shared.q_slot(i, count);
            const uint32_t full = this->shared.q_full(slot), item = this->shared.item(i, count);
            warp_wait(this->shared.q_empty(slot), this->shared.q_lap(count) ^ 1);
            if (lane_of() != 0) continue;
            shared_store(item, who);
            shared_store(item + 16, what);
            if (what.w & ITEM_QUIT) {
                barrier_arrive(full);
                continue;
            }
            barrier_expect(full, F::Q_BYTES);
            const int row = who.z + (this->rank() * F::CONSUMERS + i) * 64;
            const CUtensorMap *map = this->maps.q +
                                     (F::VIEWS > 1 ? what.w >> RA__SM90_VIEW_SHIFT : 0);
            copy_in(this->shared.q(slot), map, full, { 0, row, 0, who.y & 0xFFFF, who.x });
        }
        count++;
    }

    /* The state that item `index` starts from, towards the L2 cache. */
    DEVICE void prefetch_state(int index) const
    {
        const int4 *items = (const int4 *)this->args.items;
        const int4 who = __ldg(items + 2 * index);
        if (F::VIEWS > 1 || __ldg(&items[2 * index + 1].w) & RA__SM90_FIRST) return;
        const ra__sm90_column &acc = this->args.acc;
        const int row = this->rank() * F::ROWS;
        const float *from = acc.data + who.x * acc.batch_stride +
                            (who.y & 0xFFFF) * acc.head_stride + (who.z + row) * acc.row_stride;
        const int lines = min(F::ROWS, who.w - row) * (F::DIM / 32);
        for (int i = lane_of(); i < lines; i += 32)
            memory_prefetch(from + i / (F::DIM / 32) * acc.row_stride + i % (F::DIM / 32) * 32);
    }

    /* Of this CTA's warps, before they are sent the item: they set marks, and never clear them. */
    DEVICE void clear_marks(int index) const
    {
        if (lane_of() >= F::CONSUMERS) return;
        __stcg((uint32_t *)this->args.failed + (int64_t)index * (F::WARPS / 4) +
                   this->rank() * F::CONSUMERS + lane_of(),
               0u);
    }

    DEVICE void pass(bool replay)
    {
        const int end = this->args.queues[this->cluster() + 1];
        int next, i = this->next_item(this->args.queues[this->cluster()], replay);
        for (; i < end; i = next) {
            const int4 who = __ldg((const int4 *)this->args.items + 2 * i);
            int4 what = __ldg((const int4 *)this->args.items + 2 * i + 1);
            /* Consumers read no runs: they are told what the first block is to them, and which
             * item to mark if it fails. */
            if (what.y) {
                int left;
                const int4 run = __ldg((const int4 *)this->args.runs + what.x);
                what.y = codes_of<F>(last_block<F>(run, &left),
                                     rows_of<F>(who, what, this->rank(), replay), what.y == 1);
            }
            what.x = i;
            if (replay) what.w |= ITEM_REPLAY;
            else clear_marks(i);
            send(who, what);
            next = this->next_item(i + 1, replay);
            if (next < end) prefetch_state(next);
        }
        send(make_int4(0, 0, 0, 0), make_int4(0, 0, 0, ITEM_QUIT));
    }
};

template <class F>
DEVICE void produce(const ra__sm90_forward &args, Shared<F> shared, const Maps<F> &maps)
{
    const int warp = __shfl_sync(ALL_LANES, threadIdx.x >> 5, 0);
    KeyProducer<F> keys = { { args, shared, maps }, { 0, 0 } };
    QueryProducer<F> queries = { { args, shared, maps }, 0 };
    for (int replay = 0; replay < 2; replay++) {
        if (warp == 0) keys.pass(replay);
        if (warp == 1) queries.pass(replay);
        everyone_sync<F::CLUSTER>();
        if (!uniform(shared_load(shared.failed()))) break;
    }
}

} // namespace sm90
#endif
