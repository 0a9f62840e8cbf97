/* SPDX-License-Identifier: Apache-2.0 */
/* backward_consumer.cuh - a warpgroup that owns 64 keys: scores, gradients, sums. */
#ifndef RA__SM90_BACKWARD_CONSUMER_CUH
#define RA__SM90_BACKWARD_CONSUMER_CUH

#include "backend/cuda/sm90/backward_producer.cuh"

namespace sm90
{

template <class F> struct BackwardConsumer {
    const ra__sm90_backward &args;
    const float &to_log2;
    BackwardShared<F> shared;
    int index;      /* keys 64 index to 64 index + 63 of the item */
    unsigned block; /* blocks done so far: slots and phases follow from it */
    unsigned items;

    typedef typename F::type T;
    static constexpr int N = F::QUERIES;
    static constexpr int DQ = F::HALF / 128; /* registers of dq */

    DEVICE int slot(void) const { return block & 1; }
    DEVICE uint32_t lap(void) const { return block >> 1 & 1; }
    DEVICE void arrive(uint32_t barrier) const
    {
        if ((thread_in_group() & 31) == 0) barrier_arrive(barrier);
    }

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

    /* sum (64 keys x DIM) += weights (registers) times Q or dO. */
    DEVICE void issue_sums(float (&sum)[F::DIM / 2], const uint32_t (&weights)[N / 4],
                           uint32_t queries) const
    {
        const uint64_t b = matrix_at(queries, N * 128);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < N / 16; step++)
            wgmma<T, true, N_MAJOR>(sum, weights + 4 * step, further(b, step * 16 * 128));
        wgmma_commit();
    }

    /* Our half of dq, transposed: 64 columns of K, times dS; of all queries where DIM is 128, of
     * half of them where it is 64. */
    DEVICE void issue_dq(float (&dq)[DQ], int from) const
    {
        const int panel = F::PANELS == 2 ? index : 0, row = F::PANELS == 2 ? 0 : index * (N / 2);
        const uint64_t a = matrix_at(shared.k() + panel * F::KEYS * 128, F::KEYS * 128);
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
                s[4 * j + i] = exp2_fast(fmaf(s[4 * j + i], to_log2, -(i & 1 ? of.y : of.x)));
        }
    }

    /* 0 where a query does not see a key. */
    DEVICE void hide(float (&s)[N / 2], int4 band, int key_count) const
    {
        const int thread = thread_in_group();
        const int key = 64 * index + 16 * (thread >> 5) + ((thread & 31) >> 2);
        const int column = 2 * (thread & 3);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int from = max(band.x + key + 8 * i, band.z);
            const int to = min(band.y + key + 8 * i, band.w - 1);
            const unsigned width = key + 8 * i < key_count ? max(0, to - from + 1) : 0;
#pragma unroll
            for (int j = 0; j < N / 8; j++)
#pragma unroll
                for (int c = 0; c < 2; c++)
                    if ((unsigned)(column - from + 8 * j + c) >= width) s[4 * j + 2 * i + c] = 0;
        }
    }

    /* dS = P (dP - delta), in the type of K. */
    DEVICE void differentiate(uint32_t (&ds)[N / 4], const float (&s)[N / 2],
                              const float (&dp)[N / 2]) const
    {
        const uint32_t delta = shared.delta(slot()) + (thread_in_group() & 3) * 8;
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const float2 of = shared_load2(delta + 32 * j);
#pragma unroll
            for (int i = 0; i < 2; i++)
                ds[2 * j + i] = pack<T>(s[4 * j + 2 * i] * (dp[4 * j + 2 * i] - of.x),
                                        s[4 * j + 2 * i + 1] * (dp[4 * j + 2 * i + 1] - of.y));
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
        arrive(shared.ds_full(slot()));
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

    /* One block of queries. DO_DQ: also dq, of this block or of the one before it. */
    template <bool DO_DQ>
    DEVICE int step(float (&dk)[F::DIM / 2], float (&dv)[F::DIM / 2], int current)
    {
        float s[N / 2], dp[N / 2], dq[DQ];
        uint32_t p[N / 4], ds[N / 4];
        const uint32_t entry = shared.entry(slot(), lap());
        barrier_wait(shared.q_full(slot()), lap());
        issue_scores(s, shared.k(), shared.q(slot()));
        barrier_wait(shared.do_full(slot()), lap());
        issue_scores(dp, shared.v(), shared.dout(slot()));
        const int next = uniform(shared_load(entry + 16));
        wgmma_wait<1>();
        hold(s);
        weigh(s);
        if (current == BLOCK_CAREFUL)
            hide(s, shared_load4(entry), shared_load(shared.item(items & 1) + 12));
#pragma unroll
        for (int i = 0; i < N / 4; i++) p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
        hold(p);
        wgmma_wait<0>();
        hold(dp);
        differentiate(ds, s, dp);
        hold(ds);
        issue_sums(dv, p, shared.dout(slot()));
        share(ds);
        const unsigned of = F::LAG ? block - 1 : block;
        if constexpr (DO_DQ) {
            wait_ds(of);
            issue_dq(dq, of & 1);
            wgmma_wait<1>();
        } else {
            wgmma_wait<0>();
        }
        hold(p);
        arrive(shared.do_empty(slot()));
        issue_sums(dk, ds, shared.q(slot()));
        if constexpr (DO_DQ) {
            wgmma_wait<1>();
            hold(dq);
            arrive(shared.ds_empty(of & 1));
            stage(dq, of);
        }
        wgmma_wait<0>();
        hold(ds);
        arrive(shared.q_empty(slot()));
        block++;
        return next;
    }

    DEVICE void last_dq(void) const
    {
        float dq[DQ];
        const unsigned of = block - 1;
        wait_ds(of);
        issue_dq(dq, of & 1);
        wgmma_wait<0>();
        hold(dq);
        arrive(shared.ds_empty(of & 1));
        stage(dq, of);
    }

    DEVICE void store(const float (&dk)[F::DIM / 2], const float (&dv)[F::DIM / 2]) const
    {
        const int4 who = shared_load4(shared.item(items & 1));
        const int4 what = shared_load4(shared.item(items & 1) + 16);
        const int thread = thread_in_group();
        const int key = 64 * index + 16 * (thread >> 5) + ((thread & 31) >> 2);
        const int kv_head = (int)((uint32_t)who.y >> 16), left = who.w - key;
        if (uniform(what.z) < 0) {
            store_rows<T>(dk, args.scale, args.scale, args.dk, who.x, kv_head, who.z + key, left);
            store_rows<T>(dv, 1.f, 1.f, args.dv, who.x, kv_head, who.z + key, left);
            return;
        }
        float *to = args.parts + (size_t)what.z * F::PART_FLOATS + key * 2 * F::DIM +
                    2 * (thread & 3);
#pragma unroll
        for (int i = 0; i < F::DIM / 4; i++) {
            const int at = (i & 1) * 16 * F::DIM + i / 2 * 8;
            *(float2 *)(to + at) = make_float2(dk[2 * i] * args.scale, dk[2 * i + 1] * args.scale);
            *(float2 *)(to + at + F::DIM) = make_float2(dv[2 * i], dv[2 * i + 1]);
        }
    }

    DEVICE void run(void)
    {
        for (;; items++) {
            barrier_wait(shared.k_full(), items & 1);
            if (uniform(shared_load(shared.item(items & 1) + 28)) & BACKWARD_QUIT) return;
            barrier_wait(shared.v_full(), items & 1);
            float dk[F::DIM / 2], dv[F::DIM / 2];
#pragma unroll
            for (int i = 0; i < F::DIM / 2; i++) dk[i] = dv[i] = 0;
            int code = uniform(shared_load(shared.item(items & 1) + 20));
            if constexpr (F::LAG) {
                if (code != BLOCK_END) {
                    code = step<false>(dk, dv, code);
#pragma unroll 1
                    while (code != BLOCK_END) code = step<true>(dk, dv, code);
                    last_dq();
                }
            } else {
#pragma unroll 1
                while (code != BLOCK_END) code = step<true>(dk, dv, code);
            }
            arrive(shared.kv_empty());
            hold(dk);
            hold(dv);
            store(dk, dv);
        }
    }
};

} // namespace sm90
#endif
