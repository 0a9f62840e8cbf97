/* SPDX-License-Identifier: Apache-2.0 */
/* forward_consumer.cuh - a warpgroup that owns 64 query rows: it waits for blocks, issues products,
 * and writes what it has when an item ends. */
#ifndef RA__SM90_FORWARD_CONSUMER_CUH
#define RA__SM90_FORWARD_CONSUMER_CUH

#include "backend/cuda/sm90/repair.cuh"

namespace sm90
{

template <class F> struct Consumer {
    const ra__sm90_forward &args;
    const struct factors &by;
    Shared<F> shared;
    int rank, index; /* index: of the warpgroup among the consumers of the CTA */
    struct ring k, v;
    uint32_t item; /* where QueryProducer has put it */

    DEVICE int tile_row(void) const { return (rank * F::CONSUMERS + index) * 64; }
    DEVICE int thread_row(void) const
    {
        const int thread = thread_in_group();
        return tile_row() + 16 * (thread >> 5) + ((thread & 31) >> 2);
    }

    /* At every CTA that sent a part of the block. */
    DEVICE void release(uint32_t empty) const
    {
        if constexpr (F::CLUSTER == 1) warp_arrive(empty);
        else warp_arrive_at_all<F::CLUSTER>(empty);
    }

    DEVICE void wait_keys(void) const { barrier_wait(shared.k_full(k.slot), k.lap); }
    DEVICE void release_keys(void)
    {
        release(shared.k_empty(k.slot));
        ring_step<F::STAGES>(k);
    }

    DEVICE void wait_values(void) const { barrier_wait(shared.v_full(v.slot), v.lap); }
    DEVICE void release_values(void)
    {
        release(shared.v_empty(v.slot));
        ring_step<F::STAGES>(v);
    }

    DEVICE int item_flags(void) const { return shared_load(item + 28); }
    DEVICE int first_code(void) const { return code(item + 20); }
    DEVICE int q_slot(void) const { return shared.q_slot(index, shared.count_at(item)); }

    DEVICE void release_queries(void) const
    {
        if (warp_may_arrive()) barrier_arrive(shared.q_empty(q_slot()));
    }
    DEVICE void wait_queries(void) const
    {
        barrier_wait(shared.q_full(q_slot()), shared.q_lap(shared.count_at(item)));
    }

    /* Consumers issue products in turns: each waits for the one before it, once per block that all
     * of them see. Where a band begins or ends, one may be ahead of the others. */
    DEVICE void take_turn(int current) const
    {
        if constexpr (F::TURNS)
            if (!is_alone(current)) named_sync(1 + index, 256);
    }
    DEVICE void pass_turn(int current) const
    {
        if constexpr (F::TURNS)
            if (!is_alone(current)) named_arrive(1 + (index + 1) % F::CONSUMERS, 256);
    }

    /* What the next block is to us, from the word that says it for all consumers. */
    DEVICE int code(uint32_t word) const { return code_of(uniform(shared_load(word)), index); }
    DEVICE int code_after(uint32_t entry) const { return code(entry + 12); }

    /* A block that no row sees. */
    DEVICE int skip(void)
    {
        wait_keys();
        const int next = code_after(shared.entry(k.slot, k.lap));
        release_keys();
        wait_values();
        release_values();
        return next;
    }

    DEVICE uint64_t q_matrix(void) const { return matrix_at(shared.q(q_slot()), 0); }
    /* One base for both: panels do not matter where a matrix is K_MAJOR. */
    DEVICE uint64_t keys_matrix(void) const { return matrix_at(shared.k(0), F::KEYS * 128); }
    DEVICE uint64_t k_matrix(void) const
    {
        return further_by<F::BLOCK_BYTES>(keys_matrix(), k.slot);
    }
    DEVICE uint64_t v_matrix(void) const
    {
        return further_by<F::BLOCK_BYTES>(further(keys_matrix(), Shared<F>::V - Shared<F>::K),
                                          v.slot);
    }

    /* What q.k is multiplied with in the softmax; score terms have done it already. */
    DEVICE float to_log2(void) const { return F::PAIR_TERMS ? 1.f : by.to_log2; }

    DEVICE struct block_place place(uint32_t entry) const
    {
        const int4 who = shared_load4(item);
        return { who.x, who.y & 0xFFFF, who.z + thread_row(), who.z + who.w - 1,
                 shared_load(entry + 16) };
    }

    /* Score terms, where there are some; and the band, where not all rows see all keys. */
    DEVICE void see_all(State<F> &x, uint32_t entry) const
    {
        if constexpr (F::PAIR_TERMS)
            apply_terms<F, false>(x, args.terms, by, place(entry), make_int4(0, 0, 0, 0), 0, 0);
    }
    DEVICE void see_some(State<F> &x, uint32_t entry) const
    {
        if constexpr (F::PAIR_TERMS)
            apply_terms<F, true>(x, args.terms, by, place(entry), shared_load4(entry), thread_row(),
                                 item_flags());
        else hide<F>(x, shared_load4(entry), thread_row(), item_flags());
    }

    /* Dropout, on weights whose sum is taken already. */
    DEVICE uint64_t kept(uint32_t entry) const
    {
        if constexpr (F::TERMS & RA__SM90_DROPOUT)
            if (args.terms.drop_below) return kept_bits<F>(args.terms, place(entry));
        return ~(uint64_t)0;
    }
    DEVICE void drop(State<F> &x, uint64_t kept) const
    {
        if constexpr (F::TERMS & RA__SM90_DROPOUT)
            if (args.terms.drop_below) drop_weights<F>(x, kept, args.terms.kept_scale);
    }

    /* The first block, or the first after one that was skipped: no values are pending. */
    DEVICE int first_block(State<F> &x, int current)
    {
        const uint32_t entry = shared.entry(k.slot, k.lap);
        wait_keys();
        take_turn(current);
        if constexpr (F::Q_REGISTERS) hold(x.q);
        wgmma_fence();
        issue_scores<F>(x, q_matrix(), k_matrix());
        pass_turn(current);
        const int next = code_after(entry);
        wgmma_wait<0>();
        hold(x.s);
        release_keys();
        if (is_careful(current)) see_some(x, entry);
        else see_all(x, entry);
        if (fold_careful<F>(x, to_log2())) scale_sums<F>(x);
        drop(x, kept(entry));
        pack_weights<F>(x);
        return wary<F>(x, next);
    }

    /* Scores of this block, values of the block before it; the softmax runs under the latter.
     * FRESH: the block before was the first one of its item. Returns the code of the next block, or
     * ~code where this warp must scale its sums, which is rare. The caller scales them: a wait
     * inside of a branch would be executed by this warp alone, and all four warps of a warpgroup
     * must execute the same waits. */
    template <bool FRESH = false> DEVICE int step(State<F> &x, int current)
    {
        const uint32_t entry = shared.entry(k.slot, k.lap);
        wait_keys();
        take_turn(current);
        if constexpr (!FRESH) hold(x.o);
        hold(x.p);
        if constexpr (F::Q_REGISTERS) hold(x.q);
        wgmma_fence();
        issue_scores<F>(x, q_matrix(), k_matrix());
        wait_values();
        wgmma_fence();
        issue_values<F, FRESH>(x, v_matrix());
        pass_turn(current);
        int next = code_after(entry);
        wgmma_wait<1>();
        hold(x.s);
        release_keys();
        if (is_careful(current)) {
            see_some(x, entry);
            const bool rescale = fold_careful<F>(x, to_log2());
            next = wary<F>(x, next);
            if (rescale) next = ~next;
        } else {
            see_all(x, entry);
            if (fold_free<F>(x, to_log2())) next = ~next;
        }
        hold(x.s);
        const uint64_t kept_now = kept(entry);
        wgmma_wait<0>();
        hold(x.o);
        hold(x.p);
        release_values();
        drop(x, kept_now);
        pack_weights<F>(x);
        return next;
    }

    DEVICE void last_values(State<F> &x)
    {
        wait_values();
        hold(x.o);
        hold(x.p);
        wgmma_fence();
        issue_values<F>(x, v_matrix());
        wgmma_wait<0>();
        hold(x.o);
        release_values();
    }

    DEVICE void start_item(State<F> &x, int flags)
    {
        clear_state<F>(x);
        if (flags & RA__SM90_FIRST) return;
        const int4 who = shared_load4(item);
        const int row = thread_row();
        load_state<F>(x, state_place<F>(args, flags, who.x, who.y & 0xFFFF, who.z + row),
                      who.w - row);
    }

    /* Marks overflow for a second pass, and what is not finite after that for repair(). Returns
     * whether the warp's rows are to be written. */
    DEVICE bool accept(const State<F> &x, int number, int flags, int rows_left) const
    {
        const bool bad = overflowed<F>(x, rows_left), replay = flags & ITEM_REPLAY;
        if (!bad && !replay) return true;
        const int warp = (tile_row() >> 4) + (thread_in_group() >> 5);
        uint8_t *failed = args.failed + (size_t)number * F::WARPS + warp;
        if (replay && uniform(__ldcg(failed)) == 0) return false;
        if (!bad) return true;
        const int lane = thread_in_group() & 31;
        if (lane == 0) __stcg(failed, (uint8_t)(1 + replay));
        if (lane < F::CLUSTER) shared_store_at(shared.failed(), lane, 1);
        return replay && (flags & RA__SM90_FIRST);
    }

    DEVICE void end_item(State<F> &x, uint32_t ended)
    {
        x.l0 = quad_sum(x.l0);
        x.l1 = quad_sum(x.l1);
        const int row = thread_row(), rows_left = (int)shared_load(ended + 12) - row;
        const int4 what = shared_load4(ended + 16); /* the rest is loaded when it is needed */
        if (!accept(x, what.x, what.w, rows_left)) return;
        const int4 who = shared_load4(ended);
        const int batch = who.x, head = who.y & 0xFFFF;
        if (what.z >= 0) {
            store_state<F>(x, part_place<F>(args, what.z, row), rows_left);
        } else if (!(what.w & RA__SM90_LAST)) {
            store_state<F>(x, state_place<F>(args, what.w, batch, head, who.z + row), rows_left);
        } else {
            if constexpr (F::TERMS & RA__SM90_SINKS) sink(x, head);
            store_out<F>(x, args, what.w, batch, head, who.z + row, rows_left,
                         shared.staging(4 * index + (thread_in_group() >> 5)));
        }
    }

    DEVICE void sink(State<F> &x, int head) const
    {
        if (!args.terms.sinks) return;
        const float logit = __ldg(args.terms.sinks + head) * LOG2_E;
        fold_sink(logit, x.m0, x.l0, x.f0);
        fold_sink(logit, x.m1, x.l1, x.f1);
        scale_sums<F>(x);
    }

    /* Scores of the first block of an item, values of the last one of the item before it, whose
     * rows are then written. */
    DEVICE int join(State<F> &x, int current, uint32_t ended)
    {
        const uint32_t entry = shared.entry(k.slot, k.lap);
        wait_keys();
        take_turn(current);
        hold(x.o);
        hold(x.p);
        wgmma_fence();
        issue_scores<F>(x, q_matrix(), k_matrix());
        wait_values();
        wgmma_fence();
        issue_values<F>(x, v_matrix());
        pass_turn(current);
        const int next = code_after(entry);
        wgmma_wait<1>();
        hold(x.s);
        release_keys();
        if (is_careful(current)) see_some(x, entry);
        else see_all(x, entry);
        const float m0 = x.m0, m1 = x.m1, l0 = x.l0, l1 = x.l1;
        fold_first<F>(x, to_log2());
        hold(x.s);
        const uint64_t kept_now = kept(entry);
        wgmma_wait<0>();
        hold(x.o);
        hold(x.p);
        release_values();
        drop(x, kept_now);
        pack_weights<F>(x);
        const float new_m0 = x.m0, new_m1 = x.m1, new_l0 = x.l0, new_l1 = x.l1;
        x.m0 = m0, x.m1 = m1, x.l0 = l0, x.l1 = l1;
        end_item(x, ended);
        x.m0 = new_m0, x.m1 = new_m1, x.l0 = new_l0, x.l1 = new_l1;
        return wary<F>(x, next);
    }

    /* What comes after that: the second block finds no sums. */
    DEVICE int second_block(State<F> &x, int next)
    {
        if (next >= CODE_CLEAN) return step<true>(x, next);
        clear_sums<F>(x);
        hold(x.o); /* not made ahead of the branch */
        return next;
    }

    /* Blocks that some row sees, one after the other, from the second on. Values of the last one
     * are pending. */
    DEVICE int fold_blocks(State<F> &x, int next)
    {
#pragma unroll 1
        for (;;) {
            if (next >= CODE_CLEAN) {
                next = step(x, next);
                continue;
            }
            if (next >= 0) return next;
            scale_sums<F>(x);
            next = ~next;
        }
    }

    DEVICE int next_flags(void) const
    {
        wait_queries();
        return uniform(item_flags());
    }

    DEVICE void fold_item(State<F> &x)
    {
        if constexpr (F::Q_REGISTERS) {
            load_queries<F>(x, shared.q(q_slot()));
            release_queries();
        }
        int next = first_code();
#pragma unroll 1
        while (next != CODE_END) {
            if (next < CODE_CLEAN) {
                next = skip();
                continue;
            }
            next = fold_blocks(x, first_block(x, next));
            last_values(x);
        }
        if constexpr (!F::Q_REGISTERS) release_queries();
    }

    DEVICE void pass(void)
    {
        State<F> x;
        for (;; item = shared.item_after(item)) {
            const int flags = next_flags();
            if (flags & ITEM_QUIT) break;
            start_item(x, flags);
            fold_item(x);
            end_item(x, item);
        }
        release_queries();
        item = shared.item_after(item);
    }

    /* The same where items join. Two do not if the first block of the second is skipped, or if the
     * second continues from a state: that is loaded into the registers of the first one's sums. */
    DEVICE void pass_joined(void)
    {
        State<F> x;
        int flags = next_flags(), next = first_code();
        if (!(flags & ITEM_QUIT)) start_item(x, flags);
#pragma unroll 1
        while (!(flags & ITEM_QUIT)) {
            while (next == CODE_SKIP || next == CODE_DONE) next = skip();
            uint32_t ended = item;
            bool ahead = false; /* is `next` of the item after the one that has ended? */
            if (next >= CODE_CLEAN) {
                next = fold_blocks(x, first_block(x, next));
#pragma unroll 1
                while (next == CODE_END) {
                    ended = item;
                    flags = leave_item();
                    next = first_code();
                    ahead = next < CODE_CLEAN || !(flags & RA__SM90_FIRST);
                    if (ahead) break;
                    next = fold_blocks(x, second_block(x, join(x, next, ended)));
                    ended = item;
                }
                last_values(x);
                if (next == CODE_SKIP && !ahead) continue;
            }
            end_item(x, ended);
            if (!ahead) {
                while (next == CODE_DONE) next = skip();
                flags = leave_item();
                next = first_code();
            }
            if (!(flags & ITEM_QUIT)) start_item(x, flags);
        }
        release_queries();
        item = shared.item_after(item);
    }

    /* Returns the flags of the next one. */
    DEVICE int leave_item(void)
    {
        release_queries();
        item = shared.item_after(item);
        return next_flags();
    }
};

template <class F>
DEVICE void consume(const ra__sm90_forward &args, const struct factors &by, Shared<F> shared,
                    int rank, int index)
{
    Consumer<F> consumer = { args,  by,       shared,   rank,
                             index, { 0, 0 }, { 0, 0 }, shared.item(index, 0) };
    if constexpr (F::TURNS)
        if (index == F::CONSUMERS - 1) named_arrive(1, 256); /* the first turn */
    for (int replay = 0; replay < 2; replay++) {
        if constexpr (F::JOINS) consumer.pass_joined();
        else consumer.pass();
        everyone_sync<F::CLUSTER>();
        if (!uniform(shared_load(shared.failed()))) return;
    }
    if (!args.hides) return;
    const int warp = (int)(threadIdx.x >> 5) - 4; /* by its number: no register keeps it */
    repair<F>(args, by, cluster_rank<F::CLUSTER>() * (F::WARPS / F::CLUSTER) + warp);
}

} // namespace sm90
#endif
