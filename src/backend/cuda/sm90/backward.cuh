/* backward.cuh - exact attention backward for Hopper (sm_90a): bf16 or f16 in, f32 sums.
 *
 * A worker is a CTA. It takes items of 128 keys (sm90.h, struct ra__sm90_backward) and walks over
 * blocks of queries that see them; keys and values stay in shared memory, dk and dv in registers.
 * Two consumer warpgroups own 64 keys each. Scores are computed transposed (keys x queries), so
 * that P and dS come out of the softmax in the form in which products with dO and Q take them from
 * registers. dS also goes to shared memory, where both consumers read it for their half of dq. dq
 * is written to a staging buffer and added to memory in f32 by the copy engine; two warps of the
 * producer warpgroup see to that.
 *
 * Blocks of queries are aligned to multiples of QUERIES, so that a block of dq is one stretch of
 * dq_sum, in the order of the accumulators: prepare() clears it, finish() brings it into rows.
 *
 * Adds to dq come in any order, and the last bits of dq with them; ORDERED kernels add in the order
 * that order.c has worked out.
 *
 * With LAG, dq of a block is computed one block later: it does not wait for the other consumer. */
#ifndef RA__SM90_BACKWARD_CUH
#define RA__SM90_BACKWARD_CUH

#include <sm90/tile.cuh>

namespace sm90
{

template <class T, int DIM_, int QUERIES_, bool LAG_, bool ORDERED_, int STAGING_> struct Backward {
    typedef T type;
    static constexpr int DIM = DIM_;
    static constexpr int QUERIES = QUERIES_; /* in a block */
    static constexpr bool LAG = LAG_;
    static constexpr bool ORDERED = ORDERED_; /* adds to dq in a fixed order: the same bits */
    static constexpr int STAGING = STAGING_;  /* buffers of dq per consumer, 1 or 2 */
    static constexpr int KEYS = 128;          /* of an item */
    static constexpr int STAGES = 2;          /* of Q, of dO, of dS */
    static constexpr int PANELS = DIM / 64;
    static constexpr int THREADS = 384;
    static constexpr int KEY_BYTES = KEYS * DIM * 2;
    static constexpr int QUERY_BYTES = QUERIES * DIM * 2;
    static constexpr int DS_BYTES = KEYS * QUERIES * 2;
    static constexpr int HALF = QUERIES * DIM / 2; /* floats of dq per consumer */
    static constexpr int COLUMN_BYTES = (QUERIES * 4 + 127) / 128 * 128; /* of lse2, delta */
    static constexpr int PART_FLOATS = KEYS * DIM * 2;
    static constexpr int CONSUMER_REGISTERS = 240, PRODUCER_REGISTERS = 24;
};

enum backward_code { BLOCK_END, BLOCK_CLEAN, BLOCK_CAREFUL };
enum { BACKWARD_QUIT = 16 };

template <class F> struct BackwardShared {
    uint32_t base;

    static constexpr int V = F::KEY_BYTES;
    static constexpr int Q = V + F::KEY_BYTES;
    static constexpr int DO = Q + F::STAGES * F::QUERY_BYTES;
    static constexpr int DS = DO + F::STAGES * F::QUERY_BYTES;
    static constexpr int DQ = DS + F::STAGES * F::DS_BYTES;
    static constexpr int LSE = DQ + 2 * F::STAGING * F::HALF * 4;
    static constexpr int DELTA = LSE + F::STAGES * F::COLUMN_BYTES;
    static constexpr int ENTRIES = DELTA + F::STAGES * F::COLUMN_BYTES;
    static constexpr int ITEMS = ENTRIES + 2 * F::STAGES * 32;
    static constexpr int BARRIERS = ITEMS + 2 * 32;
    static constexpr int BYTES = BARRIERS + (3 + 6 * F::STAGES) * 8;

    DEVICE uint32_t k(void) const { return base; }
    DEVICE uint32_t v(void) const { return base + V; }
    DEVICE uint32_t q(int slot) const { return base + Q + slot * F::QUERY_BYTES; }
    DEVICE uint32_t dout(int slot) const { return base + DO + slot * F::QUERY_BYTES; }
    DEVICE uint32_t ds(int slot) const { return base + DS + slot * F::DS_BYTES; }
    DEVICE uint32_t dq(int consumer, int buffer) const
    {
        return base + DQ + (2 * buffer + consumer) * F::HALF * 4;
    }
    DEVICE uint32_t lse(int slot) const { return base + LSE + slot * F::COLUMN_BYTES; }
    DEVICE uint32_t delta(int slot) const { return base + DELTA + slot * F::COLUMN_BYTES; }
    DEVICE uint32_t entry(int slot, int lap) const
    {
        return base + ENTRIES + (slot + lap * F::STAGES) * 32;
    }
    DEVICE uint32_t item(int lap) const { return base + ITEMS + lap * 32; }
    DEVICE uint32_t barrier(int i) const { return base + BARRIERS + i * 8; }
    DEVICE uint32_t k_full(void) const { return barrier(0); }
    DEVICE uint32_t v_full(void) const { return barrier(1); }
    DEVICE uint32_t kv_empty(void) const { return barrier(2); }
    DEVICE uint32_t q_full(int slot) const { return barrier(3 + slot); }
    DEVICE uint32_t q_empty(int slot) const { return barrier(5 + slot); }
    DEVICE uint32_t do_full(int slot) const { return barrier(7 + slot); }
    DEVICE uint32_t do_empty(int slot) const { return barrier(9 + slot); }
    DEVICE uint32_t ds_full(int slot) const { return barrier(11 + slot); }
    DEVICE uint32_t ds_empty(int slot) const { return barrier(13 + slot); }
};

template <class F> DEVICE void backward_init(BackwardShared<F> shared)
{
    barrier_init(shared.k_full(), 1);
    barrier_init(shared.v_full(), 1);
    barrier_init(shared.kv_empty(), 8);
    for (int i = 0; i < F::STAGES; i++) {
        barrier_init(shared.q_full(i), 1);
        barrier_init(shared.do_full(i), 1);
        barrier_init(shared.q_empty(i), 8);
        barrier_init(shared.do_empty(i), 8);
        barrier_init(shared.ds_full(i), 8);
        barrier_init(shared.ds_empty(i), 8);
    }
    barrier_init_done();
}

/* ---- producers ---- */

/* Blocks [first, last] of a run, numbered over all heads and rows of a batch item's tensor. */
template <class F> DEVICE int first_tile(int4 run) { return run.x / F::QUERIES; }
template <class F> DEVICE int last_tile(int4 run) { return (run.x + run.y - 1) / F::QUERIES; }

/* What a block is: its band as consumers need it, (lo, hi, first, limit), counted in columns. */
template <class F> DEVICE int4 band_of(int4 run, int tile)
{
    const int offset = tile * F::QUERIES - run.x;
    return make_int4(run.z - offset, run.w - offset, -offset, run.y - offset);
}

template <class F> DEVICE int backward_code_of(int4 band, int key_count)
{
    const bool clean = band.x + F::KEYS - 1 <= 0 && band.y >= F::QUERIES - 1 && band.z <= 0 &&
                       band.w >= F::QUERIES && key_count >= F::KEYS;
    return clean ? BLOCK_CLEAN : BLOCK_CAREFUL;
}

struct backward_maps {
    const CUtensorMap *q, *k, *v, *dout;
};

template <class F> struct BackwardLoader {
    const ra__sm90_backward &args;
    BackwardShared<F> shared;
    struct backward_maps maps;
    unsigned blocks; /* loaded so far */
    unsigned items;

    DEVICE void load_half(uint32_t to, uint32_t column_to, const CUtensorMap *map,
                          const float *column, uint32_t full, struct box from, int tile) const
    {
        barrier_expect(full, F::QUERY_BYTES + F::QUERIES * 4);
        copy_in(to, map, full, from);
        copy_in_plain(column_to, column + (size_t)tile * F::QUERIES, F::QUERIES * 4, full);
    }

    /* Block `tile` of the item's heads; `tile0` is the first block of these in all of memory. */
    DEVICE void load_block(int batch, int head, int tile, int tile0, int4 band, int next)
    {
        const int slot = blocks & 1, lap = blocks >> 1 & 1;
        const int tiles = args.padded_rows / F::QUERIES, h = tile / tiles;
        const struct box from = { 0, (tile - h * tiles) * F::QUERIES, 0, head + h, batch };
        barrier_wait(shared.q_empty(slot), lap ^ 1);
        if (lane_of() == 0) {
            shared_store(shared.entry(slot, lap), band);
            shared_store(shared.entry(slot, lap) + 16, make_int4(next, 0, 0, 0));
            load_half(shared.q(slot), shared.lse(slot), maps.q, args.lse2, shared.q_full(slot),
                      from, tile0 + tile);
        }
        barrier_wait(shared.do_empty(slot), lap ^ 1);
        if (lane_of() == 0)
            load_half(shared.dout(slot), shared.delta(slot), maps.dout, args.delta,
                      shared.do_full(slot), from, tile0 + tile);
        blocks++;
    }

    DEVICE void load_blocks(int4 who, int4 what)
    {
        const int4 *runs = (const int4 *)args.runs;
        const int head = who.y & 0xFFFF;
        const int tile0 = (who.x * args.q.heads + head) * (args.padded_rows / F::QUERIES);
        int r = what.x, tile = first_tile<F>(__ldg(runs + r));
        while (r < what.x + what.y) {
            const int4 run = __ldg(runs + r);
            const int4 band = band_of<F>(run, tile);
            const int now = tile;
            int next = BLOCK_END;
            if (++tile > last_tile<F>(run) && ++r < what.x + what.y)
                tile = first_tile<F>(__ldg(runs + r));
            if (r < what.x + what.y)
                next = backward_code_of<F>(band_of<F>(__ldg(runs + r), tile), who.w);
            load_block(who.x, head, now, tile0, band, next);
        }
    }

    /* Tells consumers about the item, and loads its keys and values. */
    DEVICE void send(int4 who, int4 what)
    {
        barrier_wait(shared.kv_empty(), (items & 1) ^ 1);
        if (lane_of() == 0) {
            shared_store(shared.item(items & 1), who);
            shared_store(shared.item(items & 1) + 16, what);
            if (what.w & BACKWARD_QUIT) {
                barrier_arrive(shared.k_full());
            } else {
                const struct box from = { 0, who.z, 0, (int)((uint32_t)who.y >> 16), who.x };
                barrier_expect(shared.k_full(), F::KEY_BYTES);
                copy_in(shared.k(), maps.k, shared.k_full(), from);
                barrier_expect(shared.v_full(), F::KEY_BYTES);
                copy_in(shared.v(), maps.v, shared.v_full(), from);
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
            if (what.y) {
                const int4 run = __ldg((const int4 *)args.runs + what.x);
                told.y = backward_code_of<F>(band_of<F>(run, first_tile<F>(run)), who.w);
            }
            send(who, told);
            load_blocks(who, what);
        }
        send(make_int4(0, 0, 0, 0), make_int4(0, 0, 0, BACKWARD_QUIT));
    }
};

/* Named barriers of a staging buffer: its consumer and the warp that empties it. */
enum { STAGING_THREADS = 160 };
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
                blocks += last_tile<F>(__ldg(runs + r)) - first_tile<F>(__ldg(runs + r)) + 1;
        }
        return blocks;
    }

    /* The buffer that block i goes through is free for it. */
    DEVICE void offer(int i) const
    {
        if (i < total) named_arrive(staging_empty(consumer, i % F::STAGING), STAGING_THREADS);
    }

    DEVICE void add(int tile)
    {
        const int buffer = done % F::STAGING;
        named_sync(staging_full(consumer, buffer), STAGING_THREADS);
        int32_t *turn = args.turns + 2 * (size_t)tile + consumer;
        if (lane_of() == 0) {
            if constexpr (F::ORDERED) turn_wait(turn, __ldg(rank++));
            add_out(args.dq_sum + ((size_t)tile * 2 + consumer) * F::HALF,
                    shared.dq(consumer, buffer), F::HALF * 4);
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
            const int tile0 = head * (args.padded_rows / F::QUERIES);
            for (int r = what.x; r < what.x + what.y; r++) {
                const int4 run = __ldg(runs + r);
                for (int tile = first_tile<F>(run); tile <= last_tile<F>(run); tile++)
                    add(tile0 + tile);
            }
        }
        if (lane_of() == 0) add_out_done();
    }
};

/* ---- consumers ---- */

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

template <class F>
__global__ void __launch_bounds__(F::THREADS, 1)
    backward(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
             const __grid_constant__ CUtensorMap v, const __grid_constant__ CUtensorMap dout,
             const __grid_constant__ ra__sm90_backward args, const __grid_constant__ float to_log2)
{
    extern __shared__ __align__(1024) uint8_t memory[];
    const BackwardShared<F> shared = { shared_address(memory) };
    const int group = __shfl_sync(ALL_LANES, threadIdx.x >> 7, 0);
    if (threadIdx.x == 0) backward_init<F>(shared);
    __syncthreads();
    if (group == 0) {
        registers_give<F::PRODUCER_REGISTERS>();
        const int warp = __shfl_sync(ALL_LANES, threadIdx.x >> 5, 0);
        if (warp == 0) {
            BackwardLoader<F> loader = { args, shared, { &q, &k, &v, &dout }, 0, 0 };
            loader.run();
        } else if (warp < 3) {
            DqAdder<F> adder = { args, shared, warp - 1, 0, 0, NULL };
            adder.run();
        }
    } else {
        registers_take<F::CONSUMER_REGISTERS>();
        BackwardConsumer<F> consumer = { args, to_log2, shared, group - 1, 0, 0 };
        consumer.run();
    }
}

/* ---- before and after ---- */

/* The dot product of eight numbers of a 16-bit type. */
template <class T> DEVICE float dot8(uint4 a, uint4 b)
{
    const T *x = (const T *)&a, *y = (const T *)&b;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) sum = fmaf((float)x[i], (float)y[i], sum);
    return sum;
}

/* lse2 in units of log2, +inf for rows without gradient; delta = rowsum(dout out); dq_sum = 0. A
 * row is DIM / 8 lanes; rows up to padded_rows are written. */
template <class F>
__global__ void __launch_bounds__(256) prepare(const __grid_constant__ ra__sm90_backward args)
{
    typedef typename F::type T;
    enum { LANES = F::DIM / 8 };
    const int64_t at = (int64_t)blockIdx.x * (256 / LANES) + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    const ra__sm90_tensor &o = args.out, &g = args.dout;
    if (at >= (int64_t)o.batch * o.heads * args.padded_rows) return;
    const int row = at % args.padded_rows, head = at / args.padded_rows % o.heads;
    const int batch = at / args.padded_rows / o.heads;
    float4 *sum = (float4 *)(args.dq_sum + at * F::DIM) + 2 * lane;
    sum[0] = sum[1] = make_float4(0, 0, 0, 0);
    float delta = 0;
    if (row < o.rows) {
        const T *x = (const T *)o.data + batch * o.batch_stride + head * o.head_stride +
                     row * o.row_stride + 8 * lane;
        const T *y = (const T *)g.data + batch * g.batch_stride + head * g.head_stride +
                     row * g.row_stride + 8 * lane;
        delta = dot8<T>(__ldg((const uint4 *)x), __ldg((const uint4 *)y));
    }
#pragma unroll
    for (int i = LANES / 2; i; i >>= 1) delta += __shfl_xor_sync(ALL_LANES, delta, i);
    if (lane) return;
    if (F::ORDERED && row % F::QUERIES == 0)
        *(int2 *)(args.turns + at / F::QUERIES * 2) = make_int2(0, 0);
    float lse = INFINITY;
    if (row < o.rows)
        lse = args.lse.data[batch * args.lse.batch_stride + head * args.lse.head_stride +
                            row * args.lse.row_stride] *
              1.4426950408889634f;
    args.lse2[at] = lse == -INFINITY ? INFINITY : lse;
    args.delta[at] = delta;
}

/* dq out of dq_sum: one block of queries per CTA, put into rows in shared memory. */
template <class F>
__global__ void __launch_bounds__(256) finish(const __grid_constant__ ra__sm90_backward args)
{
    typedef typename F::type T;
    __shared__ T rows[F::QUERIES][F::DIM + 8];
    const int tiles = args.padded_rows / F::QUERIES, tile = blockIdx.x % tiles;
    const int head = blockIdx.x / tiles % args.dq.heads, batch = blockIdx.x / tiles / args.dq.heads;
    const int half = threadIdx.x >> 7, thread = threadIdx.x & 127, lane = thread & 31;
    const float4 *from = (const float4 *)(args.dq_sum + ((size_t)blockIdx.x * 2 + half) * F::HALF) +
                         thread;
#pragma unroll
    for (int i = 0; i < F::HALF / 512; i++) {
        const float4 x = __ldcs(from + i * 128);
        const int column = 16 * (thread >> 5) + (lane >> 2) + (F::PANELS == 2 ? 64 * half : 0);
        const int row = 8 * i + 2 * (lane & 3) + (F::PANELS == 2 ? 0 : half * (F::QUERIES / 2));
        rows[row][column] = (T)(x.x * args.scale);
        rows[row + 1][column] = (T)(x.y * args.scale);
        rows[row][column + 8] = (T)(x.z * args.scale);
        rows[row + 1][column + 8] = (T)(x.w * args.scale);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < F::QUERIES * F::DIM / 8; i += 256) {
        const int row = tile * F::QUERIES + i / (F::DIM / 8), column = i % (F::DIM / 8) * 8;
        if (row >= args.dq.rows) continue;
        T *to = (T *)args.dq.data + batch * args.dq.batch_stride + head * args.dq.head_stride +
                row * args.dq.row_stride + column;
        *(uint4 *)to = *(const uint4 *)&rows[i / (F::DIM / 8)][column];
    }
}

/* dk and dv of items whose queries were shared out: a warp per key. */
template <class F>
__global__ void __launch_bounds__(256) merge_keys(const __grid_constant__ ra__sm90_backward args)
{
    typedef typename F::type T;
    const int task = blockIdx.x * 8 + (threadIdx.x >> 5), key = task % F::KEYS, lane = lane_of();
    const ra__sm90_merge merge = args.merges[task / F::KEYS];
    if (key >= merge.q_count) return;
    for (int column = 2 * lane; column < 2 * F::DIM; column += 64) {
        float2 sum = make_float2(0, 0);
        for (int i = 0; i < merge.part_count; i++) {
            const float *from = args.parts + (size_t)(merge.first_part + i) * F::PART_FLOATS;
            const float2 x = *(const float2 *)(from + key * 2 * F::DIM + column);
            sum.x += x.x;
            sum.y += x.y;
        }
        const ra__sm90_tensor &out = column < F::DIM ? args.dk : args.dv;
        const int kv_head = merge.head / (args.q.heads / out.heads);
        T *to = (T *)out.data + merge.batch * out.batch_stride + kv_head * out.head_stride +
                (merge.q_row + key) * out.row_stride + column % F::DIM;
        *(uint32_t *)to = pack<T>(sum.x, sum.y);
    }
}

} // namespace sm90
#endif
