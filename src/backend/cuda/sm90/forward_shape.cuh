/* SPDX-License-Identifier: Apache-2.0 */
/* forward_shape.cuh - the forward kernel's tile, its shared memory, and the words that its warps
 * exchange. forward.cuh says how it works. */
#ifndef RA__SM90_FORWARD_SHAPE_CUH
#define RA__SM90_FORWARD_SHAPE_CUH

#include "backend/cuda/sm90/tile.cuh"

namespace sm90
{

/* What the next block is to a consumer. What a consumer asks of it is one comparison or one bit
 * each, none of them the lowest bit, which takes ptxas an instruction more. */
enum code {
    CODE_END,         /* there is none in this item */
    CODE_DONE,        /* no row sees any of it, nor of those after it in this item */
    CODE_SKIP,        /* no row sees any of it */
    CODE_CLEAN = 4,   /* all rows see all of it */
    CODE_CAREFUL = 6, /* apply the band, take maxima */
    /* The same of a block that not all consumers of the CTA see. */
    CODE_CLEAN_ALONE = 12,
    CODE_CAREFUL_ALONE = 14,
};
enum { CODE_BITS = 4 };

DEVICE bool is_careful(int code) { return code & 2; } /* of one that some row sees */
DEVICE bool is_alone(int code) { return code >= CODE_CLEAN_ALONE; }

/* One consumer's code out of those of all. */
DEVICE int code_of(int codes, int consumer)
{
    return codes >> CODE_BITS * consumer & ((1 << CODE_BITS) - 1);
}

/* Bands may go in stairs: rows are rounded down to a multiple of a power of two. */
DEVICE int stair_of(int row, int stair) { return row & (int)(~0u << stair); }

DEVICE int stair_in(int flags) { return flags >> RA__SM90_STAIR_SHIFT & RA__SM90_STAIR_MASK; }

/* Flags of an item on its way to the consumers, besides enum ra__sm90_flag. */
enum { ITEM_REPLAY = 4, ITEM_QUIT = 8 };

/* What q.k is multiplied with: to be in units of log2; to be the argument of exp2 in tanh. And the
 * softcap in units of log2. They stay in constant memory. */
struct factors {
    float to_log2, to_tanh, cap;
};

/* One kernel: its tile and how it is fed. */
template <class T, int DIM_, int CONSUMERS_, int KEYS_, int STAGES_, int CLUSTER_, bool TURNS_,
          bool Q_REGISTERS_, int TERMS_ = 0, int VIEWS_ = 1, bool JOINS_ = false>
struct Forward {
    typedef T type;
    static constexpr int DIM = DIM_;
    static constexpr int CONSUMERS = CONSUMERS_; /* warpgroups of 64 rows each */
    static constexpr int KEYS = KEYS_;           /* in a block */
    static constexpr int STAGES = STAGES_;       /* of the K ring, and of the V ring */
    static constexpr int CLUSTER = CLUSTER_;
    static constexpr bool TURNS = TURNS_;             /* consumers issue products in turns */
    static constexpr bool Q_REGISTERS = Q_REGISTERS_; /* queries stay in registers */
    static constexpr int TERMS = TERMS_;              /* enum ra__sm90_term: those it can do */
    static constexpr int VIEWS = VIEWS_;              /* 1: none */
    /* Items join: the first scores of an item are issued with the last values of the item before
     * it. There are then queries of both. */
    static constexpr bool JOINS = JOINS_;
    static constexpr int Q_SLOTS = JOINS ? 2 : 1;
    /* Of a warp: rows of the item before leave while queries of both are in shared memory. */
    static constexpr int STAGING_BYTES = JOINS ? 16 * 128 : 0;
    static_assert(!JOINS || DIM == 64, "rows of 128 bytes are staged");

    /* Terms that change scores or weights: consumers need to know which keys a block has. */
    static constexpr bool PAIR_TERMS = TERMS & ~RA__SM90_SINKS;
    static constexpr int ENTRY_BYTES = PAIR_TERMS ? 32 : 16;

    static constexpr int ROWS = 64 * CONSUMERS;
    static constexpr int PANELS = DIM / 64;
    static constexpr int THREADS = 128 * (CONSUMERS + 1);
    static constexpr int WARPS = 4 * CONSUMERS * CLUSTER;
    static constexpr int Q_BYTES = 64 * DIM * 2;
    static constexpr int BLOCK_BYTES = KEYS * DIM * 2;
    static constexpr int PART_FLOATS = ROWS * CLUSTER * (DIM + 2);
    /* Registers of a thread after the exchange; their sum is what the launch allocates. */
    static constexpr int CONSUMER_REGISTERS = CONSUMERS <= 2 ? 232 : CONSUMERS == 3 ? 160 : 112;
    static constexpr int PRODUCER_REGISTERS = CONSUMERS <= 2 ? 40 : 32;
    /* The largest sum of weights of a lane in one block that is taken without scaling down. For
     * f16, whose largest number is 65,504, it keeps every weight in range. */
    static constexpr float LIMIT = is_bf16<T>::value ? 1.0995e12f : 16384.f;
};

/* Tensor maps of a launch, one per view. */
template <class F> struct Maps {
    CUtensorMap q[F::VIEWS], k[F::VIEWS], v[F::VIEWS];
};

/* Where things are stored in shared memory. */
template <class F> struct Shared {
    uint32_t base;

    /* Twice as many places as slots of queries: an item is read until it is written. */
    static constexpr int ITEM_BYTES = 32;
    static constexpr int ITEM_PLACES = 2 * F::Q_SLOTS;

    static constexpr int K = F::Q_SLOTS * F::CONSUMERS * F::Q_BYTES;
    static constexpr int V = K + F::STAGES * F::BLOCK_BYTES;
    static constexpr int STAGING = V + F::STAGES * F::BLOCK_BYTES;
    static constexpr int ITEMS = STAGING + 4 * F::CONSUMERS * F::STAGING_BYTES;
    static constexpr int ENTRIES = ITEMS + F::CONSUMERS * ITEM_PLACES * ITEM_BYTES;
    static constexpr int BARRIERS = ENTRIES + 2 * F::STAGES * F::ENTRY_BYTES;
    static constexpr int FAILED = BARRIERS + (2 * F::Q_SLOTS * F::CONSUMERS + 4 * F::STAGES) * 8;
    static constexpr int BYTES = FAILED + 16;

    /* Item `count` of a consumer: its queries, and how often their slot was used before. */
    DEVICE static int q_slot(int consumer, uint32_t count)
    {
        return consumer * F::Q_SLOTS + count % F::Q_SLOTS;
    }
    DEVICE static uint32_t q_lap(uint32_t count) { return count / F::Q_SLOTS & 1; }
    DEVICE uint32_t q(int slot) const { return base + slot * F::Q_BYTES; }
    DEVICE uint32_t k(int slot) const { return base + K + slot * F::BLOCK_BYTES; }
    DEVICE uint32_t v(int slot) const { return base + V + slot * F::BLOCK_BYTES; }
    DEVICE uint32_t staging(int warp) const { return base + STAGING + warp * F::STAGING_BYTES; }
    /* Twice as many entries as slots: an entry outlives the block it came with. */
    DEVICE uint32_t entry(int slot, uint32_t lap) const
    {
        return base + ENTRIES + (slot + lap * F::STAGES) * F::ENTRY_BYTES;
    }
    DEVICE uint32_t item(int consumer, uint32_t count) const
    {
        return base + ITEMS + (consumer * ITEM_PLACES + count % ITEM_PLACES) * ITEM_BYTES;
    }
    /* From a place to the count of its item, as far as it matters, and to the place after it: those
     * of a consumer are aligned. */
    DEVICE static uint32_t count_at(uint32_t item) { return item / ITEM_BYTES % ITEM_PLACES; }
    DEVICE static uint32_t item_after(uint32_t item)
    {
        constexpr uint32_t inside = ITEM_PLACES * ITEM_BYTES - 1;
        static_assert(ITEMS % (inside + 1) == 0, "places of items are aligned");
        return (item & ~inside) | ((item + ITEM_BYTES) & inside);
    }
    DEVICE uint32_t barrier(int i) const { return base + BARRIERS + i * 8; }
    DEVICE uint32_t q_full(int slot) const { return barrier(slot); }
    DEVICE uint32_t q_empty(int slot) const { return barrier(F::Q_SLOTS * F::CONSUMERS + slot); }
    DEVICE uint32_t k_full(int slot) const { return barrier(2 * F::Q_SLOTS * F::CONSUMERS + slot); }
    DEVICE uint32_t k_empty(int slot) const { return k_full(slot + F::STAGES); }
    DEVICE uint32_t v_full(int slot) const { return k_full(slot + 2 * F::STAGES); }
    DEVICE uint32_t v_empty(int slot) const { return k_full(slot + 3 * F::STAGES); }
    DEVICE uint32_t failed(void) const { return base + FAILED; }
};

template <class F> DEVICE void shared_init(Shared<F> shared)
{
    const int group = 4 * WARP_ARRIVALS, readers = group * F::CONSUMERS * F::CLUSTER;
    for (int i = 0; i < F::Q_SLOTS * F::CONSUMERS; i++) {
        barrier_init(shared.q_full(i), 1);
        barrier_init(shared.q_empty(i), group);
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

} // namespace sm90
#endif
