/* forward.cuh - exact attention forward for Hopper (sm_90a): bf16 or f16 in, f32 sums.
 *
 * A worker is a cluster of 1 or 2 CTAs. It takes the items of its queue (sm90.h) one after the
 * other. In a CTA, two warps of one warpgroup feed the copy engine: one brings blocks of keys and
 * values into two rings, one brings queries. The other warpgroups, the consumers, own 64 query rows
 * each and keep the running softmax (m, l, o) in registers. In a cluster every block is loaded once
 * and sent to both CTAs.
 *
 * Consumers read no lists. With each block of keys comes an entry: the band of the block, and for
 * every consumer what the NEXT block is to it (enum code), so that its word is there before it is
 * needed. One code path then serves every pattern; only blocks that some row does not see in full
 * pay for masks, and a consumer skips blocks that none of its rows sees.
 *
 * Softmax without maxima: a row's reference m is its largest score in the first block that it sees.
 * Later blocks take exp2(x - m) as they come. P, l and o share the exponent range of f32 (f16: see
 * LIMIT), so a reference that is too low costs no accuracy. When the weights of a block pass LIMIT,
 * all is scaled down by a power of two. A jump so large that a weight becomes infinite is seen at
 * the end of the item (l or o is not finite): these rows are not written, and when the queue is
 * done the worker replays such items with maxima taken in every block. So the result is exact for
 * every input; only its speed depends on the scores.
 *
 * State out is normalised to 1 <= l < 2 by powers of two, so m is within 1 + log2(keys) of the
 * largest score. Rows without keys give out = 0, lse = -inf. */
#ifndef RA__SM90_FORWARD_CUH
#define RA__SM90_FORWARD_CUH

#include <sm90/sm90.h>
#include <sm90/tile.cuh>

namespace sm90
{

/* What the next block is to a consumer. */
enum code {
    CODE_END,     /* there is none in this item */
    CODE_SKIP,    /* no row sees any of it */
    CODE_CLEAN,   /* all rows see all of it */
    CODE_CAREFUL, /* apply the band, take maxima */
};

/* Flags of an item on its way to the consumers, besides enum ra__sm90_flag. */
enum { ITEM_REPLAY = 4, ITEM_QUIT = 8 };

/* One kernel: its tile and how it is fed. */
template <class T, int DIM_, int CONSUMERS_, int KEYS_, int STAGES_, int CLUSTER_, bool TURNS_,
          bool Q_REGISTERS_>
struct Forward {
    typedef T type;
    static constexpr int DIM = DIM_;
    static constexpr int CONSUMERS = CONSUMERS_; /* warpgroups of 64 rows each */
    static constexpr int KEYS = KEYS_;           /* in a block */
    static constexpr int STAGES = STAGES_;       /* of the K ring, and of the V ring */
    static constexpr int CLUSTER = CLUSTER_;
    static constexpr bool TURNS = TURNS_;             /* consumers issue products in turns */
    static constexpr bool Q_REGISTERS = Q_REGISTERS_; /* queries stay in registers */

    static constexpr int ROWS = 64 * CONSUMERS;
    static constexpr int PANELS = DIM / 64;
    static constexpr int THREADS = 128 * (CONSUMERS + 1);
    static constexpr int WARPS = 4 * CONSUMERS * CLUSTER;
    static constexpr int Q_BYTES = 64 * DIM * 2;
    static constexpr int BLOCK_BYTES = KEYS * DIM * 2;
    static constexpr int PART_FLOATS = ROWS * CLUSTER * (DIM + 2);
    /* Registers of a thread after the exchange; their sum is what the launch allocates. */
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 232 : CONSUMERS == 3 ? 160 : 112;
    static constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 40 : 32;
    /* The largest sum of weights of a lane in one block that is taken without scaling down. For
     * f16, whose largest number is 65,504, it keeps every weight in range. */
    static constexpr float LIMIT = is_bf16<T>::value ? 1.0995e12f : 16384.f;
};

/* Where things lie in shared memory. */
template <class F> struct Shared {
    uint32_t base;

    static constexpr int K = F::CONSUMERS * F::Q_BYTES;
    static constexpr int V = K + F::STAGES * F::BLOCK_BYTES;
    static constexpr int ENTRIES = V + F::STAGES * F::BLOCK_BYTES;
    static constexpr int ITEMS = ENTRIES + 2 * F::STAGES * 16;
    static constexpr int BARRIERS = ITEMS + 2 * F::CONSUMERS * 32;
    static constexpr int FAILED = BARRIERS + (2 * F::CONSUMERS + 4 * F::STAGES) * 8;
    static constexpr int BYTES = FAILED + 16;

    DEVICE uint32_t q(int consumer) const { return base + consumer * F::Q_BYTES; }
    DEVICE uint32_t k(int slot) const { return base + K + slot * F::BLOCK_BYTES; }
    DEVICE uint32_t v(int slot) const { return base + V + slot * F::BLOCK_BYTES; }
    /* Twice as many entries as slots: an entry outlives the block it came with. */
    DEVICE uint32_t entry(int slot, uint32_t lap) const
    {
        return base + ENTRIES + (slot + lap * F::STAGES) * 16;
    }
    DEVICE uint32_t item(int consumer, uint32_t lap) const
    {
        return base + ITEMS + (2 * consumer + lap) * 32;
    }
    DEVICE uint32_t barrier(int i) const { return base + BARRIERS + i * 8; }
    DEVICE uint32_t q_full(int consumer) const { return barrier(consumer); }
    DEVICE uint32_t q_empty(int consumer) const { return barrier(F::CONSUMERS + consumer); }
    DEVICE uint32_t k_full(int slot) const { return barrier(2 * F::CONSUMERS + slot); }
    DEVICE uint32_t k_empty(int slot) const { return k_full(slot + F::STAGES); }
    DEVICE uint32_t v_full(int slot) const { return k_full(slot + 2 * F::STAGES); }
    DEVICE uint32_t v_empty(int slot) const { return k_full(slot + 3 * F::STAGES); }
    DEVICE uint32_t failed(void) const { return base + FAILED; }
};

template <class F> DEVICE void shared_init(Shared<F> shared)
{
    const int readers = 4 * F::CONSUMERS * F::CLUSTER; /* one arrival per warp */
    for (int i = 0; i < F::CONSUMERS; i++) {
        barrier_init(shared.q_full(i), 1);
        barrier_init(shared.q_empty(i), 4);
    }
    for (int i = 0; i < F::STAGES; i++) {
        barrier_init(shared.k_full(i), 1);
        barrier_init(shared.v_full(i), 1);
        barrier_init(shared.k_empty(i), readers);
        barrier_init(shared.v_empty(i), readers);
    }
    shared_store(shared.failed(), make_int4(0, 0, 0, 0));
    barrier_init_done();
}

/* ---- producers: two warps, whose lanes go together; the first one speaks for them ---- */

struct maps {
    const CUtensorMap *q, *k, *v;
};

template <class F> struct Producer {
    const ra__sm90_forward &args;
    Shared<F> shared;
    struct maps maps;

    /* Read anew at each use: producers have few registers. */
    DEVICE int rank(void) const { return cluster_rank<F::CLUSTER>(); }
    DEVICE int worker(void) const { return blockIdx.x / F::CLUSTER; }

    /* The next item of this pass from `index` on, or the end of the queue. */
    DEVICE int next_item(int index, bool replay) const
    {
        const int end = args.queues[worker() + 1];
        for (; replay && index < end; index++)
            for (int i = 0; i < F::WARPS; i++)
                if (__ldcg(args.failed + (size_t)index * F::WARPS + i)) return index;
        return index;
    }
};

/* Bands may go in stairs: rows are rounded down to a multiple of a power of two. */
DEVICE int stair_of(int row, int stair) { return row & -1 << stair; }

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
    const int row = (rank * F::CONSUMERS + lane_of()) * 64, stair = what.w >> RA__SM90_STAIR_SHIFT;
    return { stair_of(row, stair), stair_of(row + 63, stair), row < who.w, replay };
}

/* What a block is to all consumers of this CTA: the low bits of their codes, then the high bits. */
template <class F> DEVICE int codes_of(struct block block, struct rows rows)
{
    const bool seen = rows.any && block.lo + rows.first < F::KEYS && block.hi + rows.last >= 0;
    const bool clean = block.lo + rows.last <= 0 && block.hi + rows.first >= F::KEYS - 1 &&
                       block.limit >= F::KEYS && !rows.replay;
    const int mask = (1 << F::CONSUMERS) - 1;
    return (__ballot_sync(ALL_LANES, !(seen && clean)) & mask) |
           (__ballot_sync(ALL_LANES, seen) & mask) << 8;
}

/* One consumer's code out of these. */
DEVICE int code_of(int codes, int consumer)
{
    return (codes >> consumer & 1) | (codes >> (8 + consumer) & 1) << 1;
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
        barrier_wait(this->shared.k_empty(at.slot), at.lap ^ 1);
        if (lane_of() == 0) {
            shared_store(this->shared.entry(at.slot, at.lap),
                         make_int4(block.lo, block.hi, block.limit, codes));
            const uint32_t full = this->shared.k_full(at.slot);
            barrier_expect(full, F::BLOCK_BYTES);
            load_block<F>(this->shared.k(at.slot), this->maps.k, full, from, this->rank());
        }
        ring_step<F::STAGES>(at);
    }

    /* Of the block before the one whose keys come next. */
    DEVICE void load_values(struct box from, struct ring to)
    {
        if (--to.slot < 0) to.slot = F::STAGES - 1, to.lap ^= 1;
        barrier_wait(this->shared.v_empty(to.slot), to.lap ^ 1);
        if (lane_of() == 0) {
            const uint32_t full = this->shared.v_full(to.slot);
            barrier_expect(full, F::BLOCK_BYTES);
            load_block<F>(this->shared.v(to.slot), this->maps.v, full, from, this->rank());
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
            if (left >= 0) codes = codes_of<F>(next, rows);
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
        const int end = this->args.queues[this->worker() + 1];
        int i = this->next_item(this->args.queues[this->worker()], replay);
        for (; i < end; i = this->next_item(i + 1, replay)) load_item(i, replay);
    }
};

/* The warp that loads queries and tells consumers about items. */
template <class F> struct QueryProducer : Producer<F> {
    uint32_t lap;

    /* Each consumer has two places for items, so that it can read one until it has written it. */
    DEVICE void send(int4 who, int4 what)
    {
        for (int i = 0; i < F::CONSUMERS; i++) {
            barrier_wait(this->shared.q_empty(i), lap ^ 1);
            if (lane_of() != 0) continue;
            shared_store(this->shared.item(i, lap), who);
            shared_store(this->shared.item(i, lap) + 16, what);
            if (what.w & ITEM_QUIT) {
                barrier_arrive(this->shared.q_full(i));
                continue;
            }
            barrier_expect(this->shared.q_full(i), F::Q_BYTES);
            const int row = who.z + (this->rank() * F::CONSUMERS + i) * 64;
            copy_in(this->shared.q(i), this->maps.q, this->shared.q_full(i),
                    { 0, row, 0, who.y & 0xFFFF, who.x });
        }
        lap ^= 1;
    }

    DEVICE void pass(bool replay)
    {
        const int end = this->args.queues[this->worker() + 1];
        int i = this->next_item(this->args.queues[this->worker()], replay);
        for (; i < end; i = this->next_item(i + 1, replay)) {
            const int4 who = __ldg((const int4 *)this->args.items + 2 * i);
            int4 what = __ldg((const int4 *)this->args.items + 2 * i + 1);
            /* Consumers read no runs: they are told what the first block is to them, and which
             * item to mark if it fails. */
            if (what.y) {
                int left;
                const int4 run = __ldg((const int4 *)this->args.runs + what.x);
                what.y = codes_of<F>(last_block<F>(run, &left),
                                     rows_of<F>(who, what, this->rank(), replay));
            }
            what.x = i;
            if (replay) what.w |= ITEM_REPLAY;
            send(who, what);
        }
        send(make_int4(0, 0, 0, 0), make_int4(0, 0, 0, ITEM_QUIT));
    }
};

template <class F>
DEVICE void produce(const ra__sm90_forward &args, Shared<F> shared, struct maps maps)
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

/* ---- consumers ---- */

/* The softmax of two rows, as one thread holds it: rows lane / 4 and lane / 4 + 8 of its warp's 16,
 * columns spread over four lanes. l is the sum over this lane's columns. */
template <class F> struct State {
    float s[F::KEYS / 2];    /* scores, then weights */
    uint32_t p[F::KEYS / 4]; /* weights in the type of V */
    float o[F::DIM / 2];
    uint32_t q[F::Q_REGISTERS ? F::DIM / 4 : 1];
    float m0, m1, l0, l1;
    float f0, f1; /* what o is to be multiplied with */
};

DEVICE float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

DEVICE float quad_sum(float x)
{
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/* 2^-n as a float, 0 <= n <= 126, and the exponent of x >= 1 up to there. */
DEVICE float power_of_half(int n) { return __int_as_float((127 - n) << 23); }
DEVICE int exponent(float x) { return min(126, max(0, (__float_as_int(x) >> 23) - 127)); }

template <class F> DEVICE void issue_scores(State<F> &x, uint64_t q, uint64_t k)
{
#pragma unroll
    for (int step = 0; step < F::DIM / 16; step++) {
        const int panel = step / 4, inside = step % 4 * 32;
        const uint64_t from_k = further(k, panel * F::KEYS * 128 + inside);
        const uint64_t from_q = further(q, panel * 64 * 128 + inside);
        if constexpr (F::Q_REGISTERS) {
            if (step == 0) wgmma<typename F::type, false, K_MAJOR>(x.s, x.q, from_k);
            else wgmma<typename F::type, true, K_MAJOR>(x.s, x.q + 4 * step, from_k);
        } else {
            if (step == 0) wgmma<typename F::type, false>(x.s, from_q, from_k);
            else wgmma<typename F::type, true>(x.s, from_q, from_k);
        }
    }
    wgmma_commit();
}

template <class F> DEVICE void issue_values(State<F> &x, uint64_t v)
{
#pragma unroll
    for (int step = 0; step < F::KEYS / 16; step++)
        wgmma<typename F::type, true, N_MAJOR>(x.o, x.p + 4 * step, further(v, step * 16 * 128));
    wgmma_commit();
}

/* -inf where a row does not see a key; `row` is the thread's first one in the tile. */
template <class F> DEVICE void hide(State<F> &x, int4 entry, int row, int flags)
{
    const int stair = flags >> RA__SM90_STAIR_SHIFT;
    const int row0 = stair_of(row, stair), row1 = stair_of(row + 8, stair);
    const int from0 = entry.x + row0, from1 = entry.x + row1;
    const unsigned width0 = max(0, min(entry.y + row0, entry.z - 1) - from0 + 1);
    const unsigned width1 = max(0, min(entry.y + row1, entry.z - 1) - from1 + 1);
    const int column = 2 * (thread_in_group() & 3);
#pragma unroll
    for (int j = 0; j < F::KEYS / 8; j++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            if ((unsigned)(column - from0 + 8 * j + c) >= width0) x.s[4 * j + c] = -INFINITY;
            if ((unsigned)(column - from1 + 8 * j + c) >= width1) x.s[4 * j + 2 + c] = -INFINITY;
        }
    }
}

/* s = exp2(s to_log2 - m), and the sums of both rows over this lane. */
template <class F> DEVICE float2 weigh(State<F> &x, float to_log2, float m0, float m1)
{
    float sum0[2] = { 0, 0 }, sum1[2] = { 0, 0 };
#pragma unroll
    for (int j = 0; j < F::KEYS / 8; j++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            x.s[4 * j + c] = exp2_fast(fmaf(x.s[4 * j + c], to_log2, -m0));
            x.s[4 * j + 2 + c] = exp2_fast(fmaf(x.s[4 * j + 2 + c], to_log2, -m1));
            sum0[c] += x.s[4 * j + c];
            sum1[c] += x.s[4 * j + 2 + c];
        }
    }
    return make_float2(sum0[0] + sum0[1], sum1[0] + sum1[1]);
}

/* With maxima: the reference follows the largest score. Says whether o is to be scaled. */
template <class F> DEVICE bool fold_careful(State<F> &x, float to_log2)
{
    float top0 = fmaxf(x.s[0], x.s[1]), top1 = fmaxf(x.s[2], x.s[3]);
#pragma unroll
    for (int j = 1; j < F::KEYS / 8; j++) {
        top0 = fmaxf(top0, fmaxf(x.s[4 * j], x.s[4 * j + 1]));
        top1 = fmaxf(top1, fmaxf(x.s[4 * j + 2], x.s[4 * j + 3]));
    }
    top0 = quad_max(top0) * to_log2;
    top1 = quad_max(top1) * to_log2;
    const bool rescale = __any_sync(ALL_LANES, top0 > x.m0 || top1 > x.m1);
    if (rescale) {
        const float m0 = fmaxf(x.m0, top0), m1 = fmaxf(x.m1, top1);
        x.f0 = exp2_fast(x.m0 - (m0 == -INFINITY ? 0.f : m0));
        x.f1 = exp2_fast(x.m1 - (m1 == -INFINITY ? 0.f : m1));
        x.m0 = m0;
        x.m1 = m1;
        x.l0 *= x.f0;
        x.l1 *= x.f1;
    }
    const float2 sums = weigh<F>(x, to_log2, x.m0 == -INFINITY ? 0.f : x.m0,
                                 x.m1 == -INFINITY ? 0.f : x.m1);
    x.l0 += sums.x;
    x.l1 += sums.y;
    return rescale;
}

/* While some row of the warp has seen no key yet, the next block must give it a reference. */
template <class F> DEVICE int wary(const State<F> &x, int next)
{
    const bool settled = __all_sync(ALL_LANES, x.m0 > -INFINITY && x.m1 > -INFINITY);
    return next == CODE_CLEAN && !settled ? CODE_CAREFUL : next;
}

/* Without maxima. The vote also keeps ptxas from moving the wait for P V above the exponentials. */
template <class F> DEVICE bool fold_free(State<F> &x, float to_log2)
{
    const float2 sums = weigh<F>(x, to_log2, x.m0, x.m1);
    x.l0 += sums.x;
    x.l1 += sums.y;
    if (!__any_sync(ALL_LANES, !(sums.x + sums.y <= F::LIMIT))) return false;
    const int e0 = exponent(quad_max(sums.x)), e1 = exponent(quad_max(sums.y));
    x.f0 = power_of_half(e0);
    x.f1 = power_of_half(e1);
    x.m0 += (float)e0;
    x.m1 += (float)e1;
    x.l0 *= x.f0;
    x.l1 *= x.f1;
#pragma unroll
    for (int j = 0; j < F::KEYS / 8; j++) {
        x.s[4 * j] *= x.f0;
        x.s[4 * j + 1] *= x.f0;
        x.s[4 * j + 2] *= x.f1;
        x.s[4 * j + 3] *= x.f1;
    }
    return true;
}

template <class F> DEVICE void scale_sums(State<F> &x)
{
#pragma unroll
    for (int j = 0; j < F::DIM / 8; j++) {
        x.o[4 * j] *= x.f0;
        x.o[4 * j + 1] *= x.f0;
        x.o[4 * j + 2] *= x.f1;
        x.o[4 * j + 3] *= x.f1;
    }
}

template <class F> DEVICE void pack_weights(State<F> &x)
{
#pragma unroll
    for (int i = 0; i < F::KEYS / 4; i++)
        x.p[i] = pack<typename F::type>(x.s[2 * i], x.s[2 * i + 1]);
}

/* Queries as the register operand A. */
template <class F> DEVICE void load_queries(State<F> &x, uint32_t from)
{
    const int thread = thread_in_group(), lane = thread & 31, matrix = lane >> 3;
    const int row = 16 * (thread >> 5) + (lane & 7) + 8 * (matrix & 1);
#pragma unroll
    for (int step = 0; step < F::DIM / 16; step++) {
        const int chunk = 2 * step + (matrix >> 1); /* of 8 columns */
        load_matrices(x.q + 4 * step, from + (chunk >> 3) * (64 * 128) + row * 128 +
                                          (((chunk & 7) ^ (row & 7)) << 4));
    }
}

/* m, l and acc of a thread's first row; its second is 8 further on. */
struct place {
    float *m, *l, *acc;
    int64_t m_stride, l_stride, acc_stride;
};

DEVICE struct place state_place(const ra__sm90_forward &args, int batch, int head, int row)
{
    const ra__sm90_column &m = args.m, &l = args.l, &acc = args.acc;
    return { m.data + batch * m.batch_stride + head * m.head_stride + row * m.row_stride,
             l.data + batch * l.batch_stride + head * l.head_stride + row * l.row_stride,
             acc.data + batch * acc.batch_stride + head * acc.head_stride + row * acc.row_stride,
             m.row_stride,
             l.row_stride,
             acc.row_stride };
}

template <class F> DEVICE struct place part_place(const ra__sm90_forward &args, int part, int row)
{
    float *acc = args.parts + (size_t)part * F::PART_FLOATS,
          *m = acc + F::ROWS * F::CLUSTER * F::DIM;
    return { m + row, m + F::ROWS * F::CLUSTER + row, acc + row * F::DIM, 1, 1, F::DIM };
}

template <class F> DEVICE void clear_state(State<F> &x)
{
#pragma unroll
    for (int i = 0; i < F::DIM / 2; i++) x.o[i] = 0;
    x.m0 = x.m1 = -INFINITY;
    x.l0 = x.l1 = 0;
}

/* Rows that do not exist stay empty. */
template <class F> DEVICE void load_state(State<F> &x, struct place from, int rows_left)
{
    const int lane = thread_in_group() & 3;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (8 * i >= rows_left) break;
        (i ? x.m1 : x.m0) = __ldcg(from.m + 8 * i * from.m_stride);
        if (lane == 0) (i ? x.l1 : x.l0) = __ldcg(from.l + 8 * i * from.l_stride);
        const float *acc = from.acc + 8 * i * from.acc_stride + 2 * lane;
#pragma unroll
        for (int j = 0; j < F::DIM / 8; j++) {
            const float2 pair = __ldcg((const float2 *)(acc + 8 * j));
            x.o[4 * j + 2 * i] = pair.x;
            x.o[4 * j + 2 * i + 1] = pair.y;
        }
    }
}

/* l is the whole row's by now. */
template <class F> DEVICE void store_state(const State<F> &x, struct place to, int rows_left)
{
    const int lane = thread_in_group() & 3;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (8 * i >= rows_left) break;
        const float l = i ? x.l1 : x.l0;
        const int e = (__float_as_int(l) >> 23) - 127; /* l >= 1 where it is not 0 */
        const float f = l > 0 ? power_of_half(max(0, min(126, e))) : 1.f;
        if (lane == 0) {
            __stcg(to.m + 8 * i * to.m_stride, (i ? x.m1 : x.m0) - __log2f(f));
            __stcg(to.l + 8 * i * to.l_stride, l * f);
        }
        float *acc = to.acc + 8 * i * to.acc_stride + 2 * lane;
#pragma unroll
        for (int j = 0; j < F::DIM / 8; j++)
            __stcg((float2 *)(acc + 8 * j),
                   make_float2(x.o[4 * j + 2 * i] * f, x.o[4 * j + 2 * i + 1] * f));
    }
}

/* out = o / l. */
template <class F>
DEVICE void store_out(const State<F> &x, const ra__sm90_tensor &out, int batch, int head, int row,
                      int rows_left)
{
    const float f0 = x.l0 > 0 ? 1.f / x.l0 : x.l0, f1 = x.l1 > 0 ? 1.f / x.l1 : x.l1;
    store_rows<typename F::type>(x.o, f0, f1, out, batch, head, row, rows_left);
}

DEVICE void store_lse(const ra__sm90_column &lse, int batch, int head, int row, float m, float l)
{
    const float natural = 0.6931471805599453f * (m + __log2f(l));
    if (lse.data)
        lse.data[batch * lse.batch_stride + head * lse.head_stride + row * lse.row_stride] =
            natural;
}

/* Rows whose weights left the range of f32. Zero times a finite number is zero. */
template <class F> DEVICE bool overflowed(const State<F> &x, int rows_left)
{
    float zero0 = x.l0 * 0, zero1 = x.l1 * 0;
#pragma unroll
    for (int j = 0; j < F::DIM / 8; j++) {
        zero0 = fmaf(x.o[4 * j], 0, fmaf(x.o[4 * j + 1], 0, zero0));
        zero1 = fmaf(x.o[4 * j + 2], 0, fmaf(x.o[4 * j + 3], 0, zero1));
    }
    return __any_sync(ALL_LANES, (rows_left > 0 && zero0 != 0) || (rows_left > 8 && zero1 != 0));
}

template <class F> struct Consumer {
    const ra__sm90_forward &args;
    const float &to_log2; /* what turns q.k into units of log2; stays in constant memory */
    Shared<F> shared;
    int rank, index; /* index: of the warpgroup among the consumers of the CTA */
    struct ring k, v;
    uint32_t lap; /* of the queries */

    DEVICE int tile_row(void) const { return (rank * F::CONSUMERS + index) * 64; }
    DEVICE int thread_row(void) const
    {
        const int thread = thread_in_group();
        return tile_row() + 16 * (thread >> 5) + ((thread & 31) >> 2);
    }

    /* One arrival per warp at every CTA that sent a share of the block. */
    DEVICE void release(uint32_t empty) const
    {
        const int lane = thread_in_group() & 31;
        if constexpr (F::CLUSTER == 1) {
            if (lane == 0) barrier_arrive(empty);
        } else {
            if (lane < F::CLUSTER) barrier_arrive_at(empty, lane);
        }
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

    DEVICE int item_flags(void) const { return shared_load(shared.item(index, lap) + 28); }

    DEVICE void release_queries(void) const
    {
        if ((thread_in_group() & 31) == 0) barrier_arrive(shared.q_empty(index));
    }

    /* Consumers issue products in turns: each waits for the one before it, once per block. */
    DEVICE void take_turn(void) const
    {
        if constexpr (F::TURNS) named_sync(1 + index, 256);
    }
    DEVICE void pass_turn(void) const
    {
        if constexpr (F::TURNS) named_arrive(1 + (index + 1) % F::CONSUMERS, 256);
    }

    /* What the next block is to us, from the word that says it for all consumers. */
    DEVICE int code(uint32_t word) const { return uniform(code_of(shared_load(word), index)); }
    DEVICE int code_after(uint32_t entry) const { return code(entry + 12); }

    /* A block that no row sees. */
    DEVICE int skip(void)
    {
        wait_keys();
        const int next = code_after(shared.entry(k.slot, k.lap));
        take_turn();
        pass_turn();
        release_keys();
        wait_values();
        release_values();
        return next;
    }

    DEVICE uint64_t q_matrix(void) const { return matrix_at(shared.q(index), 0); }
    DEVICE uint64_t k_matrix(void) const { return matrix_at(shared.k(k.slot), 0); }
    DEVICE uint64_t v_matrix(void) const { return matrix_at(shared.v(v.slot), F::KEYS * 128); }

    /* The first block, or the first after one that was skipped: no values are pending. */
    DEVICE int first_block(State<F> &x)
    {
        const uint32_t entry = shared.entry(k.slot, k.lap);
        wait_keys();
        take_turn();
        if constexpr (F::Q_REGISTERS) hold(x.q);
        wgmma_fence();
        issue_scores<F>(x, q_matrix(), k_matrix());
        pass_turn();
        const int next = code_after(entry);
        wgmma_wait<0>();
        hold(x.s);
        release_keys();
        hide<F>(x, shared_load4(entry), thread_row(), item_flags());
        if (fold_careful<F>(x, to_log2)) scale_sums<F>(x);
        pack_weights<F>(x);
        return wary<F>(x, next);
    }

    /* Scores of this block, values of the one before it; the softmax runs under the latter. */
    DEVICE int step(State<F> &x, int current)
    {
        const uint32_t entry = shared.entry(k.slot, k.lap);
        wait_keys();
        take_turn();
        hold(x.o);
        hold(x.p);
        if constexpr (F::Q_REGISTERS) hold(x.q);
        wgmma_fence();
        issue_scores<F>(x, q_matrix(), k_matrix());
        wait_values();
        wgmma_fence();
        issue_values<F>(x, v_matrix());
        pass_turn();
        int next = code_after(entry);
        wgmma_wait<1>();
        hold(x.s);
        release_keys();
        bool rescale;
        if (current == CODE_CAREFUL) {
            hide<F>(x, shared_load4(entry), thread_row(), item_flags());
            rescale = fold_careful<F>(x, to_log2);
            next = wary<F>(x, next);
        } else {
            rescale = fold_free<F>(x, to_log2);
        }
        hold(x.s);
        wgmma_wait<0>();
        hold(x.o);
        hold(x.p);
        release_values();
        if (rescale) scale_sums<F>(x);
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

    DEVICE void fold_item(State<F> &x)
    {
        if constexpr (F::Q_REGISTERS) {
            load_queries<F>(x, shared.q(index));
            release_queries();
        }
        int next = code(shared.item(index, lap) + 20);
#pragma unroll 1
        while (next != CODE_END) {
            if (next == CODE_SKIP) {
                next = skip();
                continue;
            }
            next = first_block(x);
#pragma unroll 1
            while (next >= CODE_CLEAN) next = step(x, next);
            last_values(x);
        }
        if constexpr (!F::Q_REGISTERS) release_queries();
    }

    DEVICE void start_item(State<F> &x, int flags)
    {
        clear_state<F>(x);
        if (flags & RA__SM90_FIRST) return;
        const int4 who = shared_load4(shared.item(index, lap));
        const int row = thread_row();
        load_state<F>(x, state_place(args, who.x, who.y & 0xFFFF, who.z + row), who.w - row);
    }

    /* Marks overflow for a second pass. Says whether the warp's rows are to be written. */
    DEVICE bool accept(const State<F> &x, int item, bool replay, int rows_left) const
    {
        const int warp = (tile_row() >> 4) + (thread_in_group() >> 5);
        uint8_t *failed = args.failed + (size_t)item * F::WARPS + warp;
        if (replay) return uniform(__ldcg(failed)) != 0;
        const bool bad = overflowed<F>(x, rows_left);
        const int lane = thread_in_group() & 31;
        if (lane == 0) __stcg(failed, (uint8_t)bad);
        if (bad && lane < F::CLUSTER) shared_store_at(shared.failed(), lane, 1);
        return !bad;
    }

    DEVICE void end_item(State<F> &x)
    {
        const int4 who = shared_load4(shared.item(index, lap));
        const int4 what = shared_load4(shared.item(index, lap) + 16);
        const int batch = who.x, head = who.y & 0xFFFF, row = thread_row();
        const int rows_left = who.w - row;
        x.l0 = quad_sum(x.l0);
        x.l1 = quad_sum(x.l1);
        if (!accept(x, what.x, what.w & ITEM_REPLAY, rows_left)) return;
        if (what.z >= 0) {
            store_state<F>(x, part_place<F>(args, what.z, row), rows_left);
        } else if (!(what.w & RA__SM90_LAST)) {
            store_state<F>(x, state_place(args, batch, head, who.z + row), rows_left);
        } else {
            store_out<F>(x, args.out, batch, head, who.z + row, rows_left);
            if ((thread_in_group() & 3) == 0) {
                if (rows_left > 0) store_lse(args.lse, batch, head, who.z + row, x.m0, x.l0);
                if (rows_left > 8) store_lse(args.lse, batch, head, who.z + row + 8, x.m1, x.l1);
            }
        }
    }

    DEVICE void pass(void)
    {
        State<F> x;
        for (;; lap ^= 1) {
            barrier_wait(shared.q_full(index), lap);
            const int flags = uniform(item_flags());
            if (flags & ITEM_QUIT) break;
            start_item(x, flags);
            fold_item(x);
            end_item(x);
        }
        release_queries();
        lap ^= 1;
    }
};

template <class F>
DEVICE void consume(const ra__sm90_forward &args, const float &to_log2, Shared<F> shared, int rank,
                    int index)
{
    Consumer<F> consumer = { args, to_log2, shared, rank, index, { 0, 0 }, { 0, 0 }, 0 };
    if constexpr (F::TURNS)
        if (index == F::CONSUMERS - 1) named_arrive(1, 256); /* the first turn */
    for (int replay = 0; replay < 2; replay++) {
        consumer.pass();
        everyone_sync<F::CLUSTER>();
        if (!uniform(shared_load(shared.failed()))) break;
    }
}

template <class F>
__global__ void __launch_bounds__(F::THREADS, 1)
    forward(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
            const __grid_constant__ CUtensorMap v, const __grid_constant__ ra__sm90_forward args,
            const __grid_constant__ float to_log2)
{
    extern __shared__ __align__(1024) uint8_t memory[];
    const Shared<F> shared = { shared_address(memory) };
    const int group = __shfl_sync(ALL_LANES, threadIdx.x >> 7, 0);
    if (threadIdx.x == 0) shared_init<F>(shared);
    everyone_sync<F::CLUSTER>();
    if (group == 0) {
        registers_give<F::PRODUCER_REGISTERS>();
        produce<F>(args, shared, { &q, &k, &v });
    } else {
        registers_take<F::CONSUMER_REGISTERS>();
        consume<F>(args, to_log2, shared, cluster_rank<F::CLUSTER>(), group - 1);
    }
}

/* Puts the parts of a tile together: a warp per row, dim / 32 columns per lane. */
template <class F>
__global__ void __launch_bounds__(256) merge(const __grid_constant__ ra__sm90_forward args)
{
    enum { PER_LANE = F::DIM / 32 };
    typedef typename F::type T;
    const int rows = F::ROWS * F::CLUSTER, lane = threadIdx.x & 31;
    const int task = blockIdx.x * 8 + (threadIdx.x >> 5), row = task % rows;
    const ra__sm90_merge merge = args.merges[task / rows];
    if (row >= merge.q_count) return;
    const struct place first = part_place<F>(args, merge.first_part, row);
    float m = -INFINITY, l = 0, o[PER_LANE] = {};
    for (int i = 0; i < merge.part_count; i++) m = fmaxf(m, first.m[(size_t)i * F::PART_FLOATS]);
    const float reference = m == -INFINITY ? 0.f : m;
    for (int i = 0; i < merge.part_count; i++) {
        const size_t at = (size_t)i * F::PART_FLOATS;
        const float f = exp2f(first.m[at] - reference);
        l += f * first.l[at];
        for (int j = 0; j < PER_LANE; j++) o[j] += f * first.acc[at + PER_LANE * lane + j];
    }
    const int q_row = merge.q_row + row;
    if (!(merge.flags & RA__SM90_LAST)) {
        const struct place to = state_place(args, merge.batch, merge.head, q_row);
        for (int j = 0; j < PER_LANE; j++) to.acc[PER_LANE * lane + j] = o[j];
        if (lane == 0) *to.m = m, *to.l = l;
        return;
    }
    const ra__sm90_tensor &out = args.out;
    T *to = (T *)out.data + merge.batch * out.batch_stride + merge.head * out.head_stride +
            q_row * out.row_stride + PER_LANE * lane;
    const float f = l > 0 ? 1.f / l : l;
    for (int j = 0; j < PER_LANE; j += 2) *(uint32_t *)(to + j) = pack<T>(o[j] * f, o[j + 1] * f);
    if (lane == 0) store_lse(args.lse, merge.batch, merge.head, q_row, m, l);
}

} // namespace sm90
#endif
