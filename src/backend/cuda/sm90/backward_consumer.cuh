/* SPDX-License-Identifier: Apache-2.0 */
/* backward_consumer.cuh - a warpgroup that owns 64 keys: scores, gradients, sums. */
#ifndef RA__SM90_BACKWARD_CONSUMER_CUH
#define RA__SM90_BACKWARD_CONSUMER_CUH

#include "backend/cuda/sm90/backward_producer.cuh"

namespace sm90
{

template <class F> struct BackwardConsumer {
    const ra__sm90_backward &args;
    const struct factors &by;
    BackwardShared<F> shared;
    int index;      /* keys 64 index to 64 index + 63 of the item */
    unsigned block; /* blocks done so far: slots and phases follow from it */
    unsigned items;

    typedef typename F::type T;
    static constexpr int N = F::QUERIES;
    static constexpr int DQ = F::HALF / 128; /* registers of dq */
    static constexpr int SUMS = F::SUM_DIM / 2;
    typedef typename bits_of<(N > 64)>::type bits; /* one per score */

    DEVICE int slot(void) const { return block & 1; }
    DEVICE uint32_t lap(void) const { return block >> 1 & 1; }
    DEVICE uint32_t keys_at(unsigned item) const { return shared.k(key_slot<F>(item)); }
    DEVICE uint32_t keys_at(void) const { return keys_at(items); }
    DEVICE uint32_t values_at(void) const { return shared.v(key_slot<F>(items)); }
    /* x (64 keys x N) = our rows of K or V, times Q or dO transposed. */
    DEVICE void issue_scores(float (&x)[N / 2], uint32_t keys, uint32_t queries) const
    {
        const uint64_t a = matrix_at(keys + index * 64 * 128, 0), b = matrix_at(queries, 0);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < F::DIM / 16; step++) {
            const int panel = step / 4, inside = step % 4 * 32;
            const uint64_t from_a = further(a, panel * F::KEYS * 128 + inside);
            const uint64_t from_b = further(b, panel * N * 128 + inside);
            if (step == 0) wgmma<T, false>(x, from_a, from_b);
            else wgmma<T, true>(x, from_a, from_b);
        }
        wgmma_commit();
    }

    /* sum (64 keys x DIM) += weights (registers) times Q or dO; FRESH: in place of what it is. */
    template <bool FRESH>
    DEVICE void issue_sums(float (&sum)[SUMS], const uint32_t (&weights)[N / 4], uint32_t queries,
                           int walk) const
    {
        const uint64_t b = matrix_at(queries + walk * (F::SUM_DIM / 64) * N * 128, N * 128);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < N / 16; step++) {
            const uint64_t from_b = further(b, step * 16 * 128);
            if (FRESH && step == 0) wgmma<T, false, N_MAJOR>(sum, weights, from_b);
            else wgmma<T, true, N_MAJOR>(sum, weights + 4 * step, from_b);
        }
        wgmma_commit();
    }

    /* Our half of dq, transposed: 64 columns of K, times dS; of half of the queries where
     * DIM is 64, else of all of them. `keys`: of the item that the block belongs to. */
    DEVICE void issue_dq(float (&dq)[DQ], uint32_t keys, int from, int walk) const
    {
        const int panel = F::PANELS > 1 ? 2 * walk + index : 0;
        const int row = F::PANELS > 1 ? 0 : index * (N / 2);
        const uint64_t a = matrix_at(keys + panel * F::KEYS * 128, F::KEYS * 128);
        const uint64_t b = matrix_at(shared.ds(from) + row * 128, 0);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < F::KEYS / 16; step++) {
            const uint64_t from_a = further(a, step * 16 * 128);
            const uint64_t from_b = further(b, step / 4 * N * 128 + step % 4 * 32);
            if (step == 0) wgmma<T, false, N_MAJOR, K_MAJOR>(dq, from_a, from_b);
            else wgmma<T, true, N_MAJOR, K_MAJOR>(dq, from_a, from_b);
        }
        wgmma_commit();
    }

    /* P = exp2(s - lse); no maximum is needed. */
    DEVICE void weigh(float (&s)[N / 2]) const
    {
        const uint32_t lse = shared.lse(slot()) + (thread_in_group() & 3) * 8;
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const float2 of = shared_load2(lse + 32 * j);
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[4 * j + i] = exp2_fast(fmaf(s[4 * j + i], by.to_log2, -(i & 1 ? of.y : of.x)));
        }
    }

    DEVICE int thread_key(void) const
    {
        const int thread = thread_in_group();
        return 64 * index + 16 * (thread >> 5) + ((thread & 31) >> 2);
    }

    /* The columns of a block that see our i-th key: from x on, y of them. */
    DEVICE int2 columns(int4 band, int i) const
    {
        const uint32_t item = shared.item(items);
        const int key = thread_key() + 8 * i;
        const int2 range = columns_of(band, key, shared_load(item + 28));
        const int count = key < shared_load(item + 12) ? max(0, range.y - range.x + 1) : 0;
        return make_int2(range.x, count);
    }

    /* 0 where a query does not see a key. */
    DEVICE void hide(float (&s)[N / 2], int4 band) const
    {
        const int column = 2 * (thread_in_group() & 3);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int2 seen = columns(band, i);
#pragma unroll
            for (int j = 0; j < N / 8; j++)
#pragma unroll
                for (int c = 0; c < 2; c++)
                    if ((unsigned)(column - seen.x + 8 * j + c) >= (unsigned)seen.y)
                        s[4 * j + 2 * i + c] = 0;
        }
    }

    /* With score terms: P, packed for dv, and P times the derivative of the score. `kept`: what
     * dropout keeps. */
    DEVICE void weigh_terms(float (&s)[N / 2], uint32_t (&p)[N / 4], uint32_t entry,
                            bits kept) const
    {
        const int4 who = shared_load4(shared.item(items)), what = shared_load4(entry + 16);
        const int column = 2 * (thread_in_group() & 3), q_row = what.y + column;
        const uint32_t lse = shared.lse(slot()) + column * 4;
        int2 seen[2];
        struct term_row of[2];
        float away[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            seen[i] = columns(shared_load4(entry), i);
            const int64_t key = key_position(args.terms, who.z + thread_key() + 8 * i);
            of[i] = term_row_of<F::TERMS>(args.terms, who.x, what.z, q_row, key);
            away[i] = (float)(key - query_position(args.terms, q_row));
        }
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const float2 minus = shared_load2(lse + 32 * j);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float weights[2];
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int at = 4 * j + 2 * i + c, q = 8 * j + c;
                    const bool visible = (unsigned)(column - seen[i].x + q) < (unsigned)seen[i].y;
                    const float more = addend<F::TERMS>(
                        args.terms, of[i], fmaf(-(float)args.terms.q_step, (float)q, away[i]),
                        q * args.terms.bias_row_stride, visible);
                    float derivative;
                    const float x = capped<F::TERMS>(by, s[at], &derivative) + more;
                    const bool hidden = !visible || more == -INFINITY;
                    const float weight = hidden ? 0 : exp2_fast(x - (c ? minus.y : minus.x));
                    weights[c] = factor(kept, at) * weight;
                    s[at] = weight * derivative;
                }
                p[2 * j + i] = pack<T>(weights[0], weights[1]);
            }
            asm volatile("" ::: "memory"); /* loads of a bias are not all moved to the top */
        }
    }

    /* What dropout multiplies the weight in register `at` with. */
    DEVICE float factor(bits kept, int at) const
    {
        if constexpr (F::TERMS & RA__SM90_DROPOUT)
            return args.terms.drop_below ? (kept >> at & 1 ? args.terms.kept_scale : 0.f) : 1.f;
        return 1.f;
    }

    DEVICE bits kept_bits(uint32_t entry) const
    {
        bits kept = 0;
        if constexpr (F::TERMS & RA__SM90_DROPOUT) {
            if (!args.terms.drop_below) return 0;
            const ra__sm90_terms &terms = args.terms;
            const int4 who = shared_load4(shared.item(items)), what = shared_load4(entry + 16);
            const int64_t key = key_position(terms, who.z + thread_key());
            const int64_t query = query_position(terms, what.y + 2 * (thread_in_group() & 3));
            if (key_position(terms, who.z) % 4 == 0 && terms.k_step == 1) {
                /* Four lanes share four keys: each draws for one key row and one query. */
                const int lane = lane_of(), mine = lane >> 2 & 3;
#pragma unroll 1
                for (int j = 0; j < N / 8; j++) {
                    const unsigned four = kept_four(terms, who.x, what.z,
                                                    query + (8 * j + (mine & 1)) * terms.q_step,
                                                    key + (mine >> 1) * 8);
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        kept |=
                            (bits)(__shfl_sync(ALL_LANES, four, (lane & ~12) | i << 2) >> mine & 1)
                            << (4 * j + i);
                }
                return kept;
            }
#pragma unroll 1
            for (int i = 0; i < N / 2; i++) /* one at a time: registers are short */
                kept |= (bits)kept_one(terms, who.x, what.z,
                                       query + (i / 4 * 8 + i % 2) * terms.q_step,
                                       key + i / 2 % 2 * 8 * terms.k_step)
                        << i;
        }
        return kept;
    }

    /* dS = P (dP - delta), in the type of K. */
    DEVICE void differentiate(uint32_t (&ds)[N / 4], const float (&s)[N / 2],
                              const float (&dp)[N / 2], bits kept) const
    {
        const uint32_t delta = shared.delta(slot()) + (thread_in_group() & 3) * 8;
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const float2 of = shared_load2(delta + 32 * j);
#pragma unroll
            for (int i = 0; i < 2; i++)
                ds[2 * j + i] = pack<T>(
                    s[4 * j + 2 * i] * (factor(kept, 4 * j + 2 * i) * dp[4 * j + 2 * i] - of.x),
                    s[4 * j + 2 * i + 1] *
                        (factor(kept, 4 * j + 2 * i + 1) * dp[4 * j + 2 * i + 1] - of.y));
        }
    }

    /* dS to shared memory, queries as rows: panels of 64 keys, one per consumer. */
    DEVICE void share(const uint32_t (&ds)[N / 4]) const
    {
        barrier_wait(shared.ds_empty(slot()), lap() ^ 1);
        const int thread = thread_in_group(), lane = thread & 31, matrix = lane >> 3, r = lane & 7;
        const uint32_t to = shared.ds(slot()) + index * (N * 128) + (8 * (matrix >> 1) + r) * 128 +
                            (((2 * (thread >> 5) + (matrix & 1)) ^ r) << 4);
#pragma unroll
        for (int j = 0; j < N / 8; j += 2) store_matrices_transposed(to + j * 1024, ds + 2 * j);
        shared_publish();
        __syncwarp();
        warp_arrive(shared.ds_full(slot()));
    }

    /* dq to the staging buffer, in the order of registers. */
    DEVICE void stage(const float (&dq)[DQ], unsigned of) const
    {
        const int buffer = of % F::STAGING;
        named_sync(staging_empty(index, buffer), STAGING_THREADS);
        const uint32_t to = shared.dq(index, buffer) + thread_in_group() * 16;
#pragma unroll
        for (int i = 0; i < DQ / 4; i++) shared_store4(to + i * 2048, dq + 4 * i);
        shared_publish();
        named_arrive(staging_full(index, buffer), STAGING_THREADS);
    }

    /* dq of block `of`, whose dS both consumers have shared. */
    DEVICE void wait_ds(unsigned of) const { barrier_wait(shared.ds_full(of & 1), of >> 1 & 1); }

    /* What a step does besides scores, dk and dv of its block: nothing; dq, of this block or of the
     * one before it; or all that is left to do of the item before this one, dq of its last block
     * included. Those without dq of their own item are for its first block: no sums are there. */
    enum step_kind { ALONE, WITH_DQ, JOINS };

    /* One block of queries. */
    template <step_kind KIND>
    DEVICE int step(float (&dk)[SUMS], float (&dv)[SUMS], int current, int walk)
    {
        float s[N / 2], dp[N / 2], dq[DQ];
        uint32_t p[N / 4], ds[N / 4];
        const uint32_t entry = shared.entry(slot(), lap());
        barrier_wait(shared.q_full(slot()), lap());
        issue_scores(s, keys_at(), shared.q(slot()));
        barrier_wait(shared.do_full(slot()), lap());
        issue_scores(dp, values_at(), shared.dout(slot()));
        const int next = uniform(shared_load(entry + 16));
        const bits kept = kept_bits(entry);
        if constexpr (KIND == JOINS) {
            hold(dk);
            hold(dv);
            store(dk, dv, items - 1, walk);
        }
        wgmma_wait<1>();
        hold(s);
        if constexpr (F::TERMS) {
            weigh_terms(s, p, entry, kept);
        } else {
            weigh(s);
            if (current == BLOCK_CAREFUL) hide(s, shared_load4(entry));
#pragma unroll
            for (int i = 0; i < N / 4; i++) p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
        }
        hold(p);
        wgmma_wait<0>();
        hold(dp);
        differentiate(ds, s, dp, kept);
        hold(ds);
        issue_sums<KIND != WITH_DQ>(dv, p, shared.dout(slot()), walk);
        share(ds);
        const unsigned of = F::LAG ? block - 1 : block;
        if constexpr (KIND != ALONE) {
            wait_ds(of);
            issue_dq(dq, keys_at(KIND == JOINS ? items - 1 : items), of & 1, walk);
            wgmma_wait<1>();
        } else {
            wgmma_wait<0>();
        }
        hold(p);
        warp_arrive(shared.do_empty(slot()));
        issue_sums<KIND != WITH_DQ>(dk, ds, shared.q(slot()), walk);
        if constexpr (KIND != ALONE) {
            wgmma_wait<1>();
            hold(dq);
            if constexpr (KIND == JOINS) warp_arrive(shared.kv_empty(key_slot<F>(items - 1)));
            warp_arrive(shared.ds_empty(of & 1));
            stage(dq, of);
        }
        wgmma_wait<0>();
        hold(ds);
        warp_arrive(shared.q_empty(slot()));
        block++;
        return next;
    }

    DEVICE void last_dq(unsigned item, int walk) const
    {
        float dq[DQ];
        const unsigned of = block - 1;
        wait_ds(of);
        issue_dq(dq, keys_at(item), of & 1, walk);
        wgmma_wait<0>();
        hold(dq);
        warp_arrive(shared.ds_empty(of & 1));
        stage(dq, of);
    }

    /* Sums of two rows to memory in f32, or from there into `x`, which is scaled first. */
    DEVICE void store_sums(const float (&x)[SUMS], float scale, float *to, int64_t stride,
                           int left) const
    {
#pragma unroll
        for (int i = 0; i < SUMS / 2; i++)
            if (8 * (i & 1) < left)
                __stcg((float2 *)(to + (i & 1) * 8 * stride + i / 2 * 8),
                       make_float2(x[2 * i] * scale, x[2 * i + 1] * scale));
    }
    DEVICE void add_sums(float (&x)[SUMS], float scale, const float *from, int64_t stride,
                         int left) const
    {
#pragma unroll
        for (int i = 0; i < SUMS / 2; i++) {
            float2 sum = make_float2(0, 0);
            if (8 * (i & 1) < left)
                sum = __ldcg((const float2 *)(from + (i & 1) * 8 * stride + i / 2 * 8));
            x[2 * i] = fmaf(x[2 * i], scale, sum.x);
            x[2 * i + 1] = fmaf(x[2 * i + 1], scale, sum.y);
        }
    }

    /* dk or dv of an item: in the type of K, or with the sums that travel with the keys. */
    DEVICE void store_one(float (&x)[SUMS], float scale, ra__sm90_tensor to,
                          const ra__sm90_column &sums, int4 who, int flags, int walk) const
    {
        const int key = thread_key(), kv_head = (int)((uint32_t)who.y >> 16), left = who.w - key;
        struct ra__sm90_view view = { 0, 1 };
        if constexpr (F::VIEWS > 1) view = args.views[view_of<F>(who.z)];
        const int row = view.first + (row_of<F>(who.z) + key) * view.step;
        if (uniform(flags & (RA__SM90_FIRST | RA__SM90_LAST)) != (RA__SM90_FIRST | RA__SM90_LAST)) {
            float *at = sums.data + who.x * sums.batch_stride + kv_head * sums.head_stride +
                        row * sums.row_stride + walk * F::SUM_DIM + 2 * (thread_in_group() & 3);
            if (!uniform(flags & RA__SM90_FIRST)) {
                add_sums(x, scale, at, view.step * sums.row_stride, left);
                scale = 1;
            }
            if (!uniform(flags & RA__SM90_LAST)) {
                store_sums(x, scale, at, view.step * sums.row_stride, left);
                return;
            }
        }
        to.data = (T *)to.data + row * to.row_stride + walk * F::SUM_DIM;
        to.row_stride *= view.step;
        store_rows<T, !F::TERMS>(x, scale, scale, to, who.x, kv_head, 0, left);
    }

    DEVICE void store(float (&dk)[SUMS], float (&dv)[SUMS], unsigned item, int walk) const
    {
        const int4 who = shared_load4(shared.item(item));
        const int4 what = shared_load4(shared.item(item) + 16);
        if (uniform(what.z) < 0) {
            store_one(dk, args.scale, args.dk, args.dk_sum, who, what.w, walk);
            store_one(dv, 1.f, args.dv, args.dv_sum, who, what.w, walk);
            return;
        }
        float *to = args.parts + (size_t)what.z * F::PART_FLOATS + thread_key() * 2 * F::DIM +
                    walk * F::SUM_DIM + 2 * (thread_in_group() & 3);
        store_sums(dk, args.scale, to, 2 * F::DIM, F::KEYS);
        store_sums(dv, 1.f, to + F::DIM, 2 * F::DIM, F::KEYS);
    }

    DEVICE void clear(float (&dk)[SUMS], float (&dv)[SUMS]) const
    {
#pragma unroll
        for (int i = 0; i < SUMS; i++) dk[i] = dv[i] = 0;
    }

    DEVICE int first_code(void) const { return uniform(shared_load(shared.item(items) + 20)); }

    DEVICE void walk_queries(float (&dk)[SUMS], float (&dv)[SUMS], int walk)
    {
        int code = first_code();
        if (!F::LAG || code == BLOCK_END) clear(dk, dv);
        if constexpr (F::LAG) {
            if (code != BLOCK_END) {
                code = step<ALONE>(dk, dv, code, walk);
#pragma unroll 1
                while (code != BLOCK_END) code = step<WITH_DQ>(dk, dv, code, walk);
                last_dq(items, walk);
            }
        } else {
#pragma unroll 1
            while (code != BLOCK_END) code = step<WITH_DQ>(dk, dv, code, walk);
        }
    }

    /* The next item is here. Returns whether it is one. */
    DEVICE bool wait_item(void) const
    {
        barrier_wait(shared.k_full(key_slot<F>(items)), key_lap<F>(items));
        if (uniform(shared_load(shared.item(items) + 28)) & BACKWARD_QUIT) return false;
        barrier_wait(shared.v_full(key_slot<F>(items)), key_lap<F>(items));
        const int keys = uniform(shared_load(shared.item(items) + 12));
        if (keys < F::KEYS) clear_rest(keys);
        return true;
    }

    /* Rows of K and V after the last key of the item, set to 0: what is there in memory may be
     * anything, and 0 times infinity would reach dq. */
    DEVICE void clear_rest(int keys) const
    {
        const int rest = F::KEYS - keys, words = 8 * rest; /* of 16 bytes, of a panel */
        for (int i = 128 * index + thread_in_group(); i < 2 * F::PANELS * words; i += 256) {
            const int panel = i / words; /* those of V follow those of K */
            shared_store(keys_at() + (panel * F::KEYS + keys) * 128 + i % words * 16,
                         make_int4(0, 0, 0, 0));
        }
        shared_publish();
        named_sync(CONSUMERS_BARRIER, 256);
    }

    DEVICE void run_items(void)
    {
        for (; wait_item(); items++) {
            float dk[SUMS], dv[SUMS];
#pragma unroll 1
            for (int walk = 0; walk < F::WALKS; walk++) {
                walk_queries(dk, dv, walk);
                if (walk == F::WALKS - 1) warp_arrive(shared.kv_empty(key_slot<F>(items)));
                hold(dk);
                hold(dv);
                store(dk, dv, items, walk);
            }
        }
    }

    /* What is left of the item before this one. */
    DEVICE void end_item(float (&dk)[SUMS], float (&dv)[SUMS])
    {
        last_dq(items - 1, 0);
        warp_arrive(shared.kv_empty(key_slot<F>(items - 1)));
        hold(dk);
        hold(dv);
        store(dk, dv, items - 1, 0);
    }

    /* Items without queries have zeros to write, and no block to do so under. */
    DEVICE void run_joined(void)
    {
        float dk[SUMS], dv[SUMS];
        bool open = false; /* an item that has not ended */
        for (; wait_item(); items++) {
            int code = first_code();
            if (open && code != BLOCK_END) {
                code = step<JOINS>(dk, dv, code, 0);
            } else {
                if (open) end_item(dk, dv);
                open = code != BLOCK_END;
                if (open) {
                    code = step<ALONE>(dk, dv, code, 0);
                } else {
                    clear(dk, dv);
                    warp_arrive(shared.kv_empty(key_slot<F>(items)));
                    store(dk, dv, items, 0);
                }
            }
#pragma unroll 1
            while (code != BLOCK_END) code = step<WITH_DQ>(dk, dv, code, 0);
        }
        if (open) end_item(dk, dv);
    }

    DEVICE void run(void)
    {
        if constexpr (F::JOINED) run_joined();
        else run_items();
    }
};

} // namespace sm90
#endif
