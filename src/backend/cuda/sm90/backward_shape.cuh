/* SPDX-License-Identifier: Apache-2.0 */
/* backward_shape.cuh - the backward kernel's tile and its shared memory. backward.cuh says how it
 * works. */
#ifndef RA__SM90_BACKWARD_SHAPE_CUH
#define RA__SM90_BACKWARD_SHAPE_CUH

#include "backend/cuda/sm90/terms.cuh"

namespace sm90
{

template <class T, int DIM_, int QUERIES_, bool LAG_, bool ORDERED_, int STAGING_, int TERMS_ = 0,
          int VIEWS_ = 1, int KEY_STAGES_ = 1>
struct Backward {
    typedef T type;
    static constexpr int DIM = DIM_;
    static constexpr int QUERIES = QUERIES_; /* in a block */
    static constexpr bool LAG = LAG_;
    static constexpr bool ORDERED = ORDERED_; /* adds to dq in a fixed order: the same bits */
    static constexpr int STAGING = STAGING_;  /* buffers of dq per consumer, 1 or 2 */
    static constexpr int TERMS = TERMS_;      /* enum ra__sm90_term: those it can do */
    static constexpr int VIEWS = VIEWS_;      /* 1: none */
    /* Of K and V, 1 or 2: with 2 those of the next item are loaded while this one is worked on. */
    static constexpr int KEY_STAGES = KEY_STAGES_;
    /* The epilogue of an item, its last dq, dk and dv, overlaps with the first scores of the next
     * item: items of few blocks would wait for it. Keys of both items must be in shared memory. */
    static constexpr bool JOINED = LAG && KEY_STAGES == 2;
    /* Columns of dk, dv and dq that are summed in one walk over the queries: registers hold no
     * more. With dim 256 an item's queries are walked over twice. */
    static constexpr int SUM_DIM = DIM < 128 ? DIM : 128;
    static constexpr int WALKS = DIM / SUM_DIM;
    static_assert(!JOINED || WALKS == 1, "items that are joined have one walk");
    static constexpr int KEYS = 128; /* of an item */
    static constexpr int STAGES = 2; /* of Q, of dO, of dS */
    static constexpr int PANELS = DIM / 64;
    static constexpr int THREADS = 384;
    static constexpr int KEY_BYTES = KEYS * DIM * 2;
    static constexpr int QUERY_BYTES = QUERIES * DIM * 2;
    static constexpr int DS_BYTES = KEYS * QUERIES * 2;
    static constexpr int HALF = QUERIES * SUM_DIM / 2; /* floats of dq per consumer and walk */
    static constexpr int COLUMN_BYTES = (QUERIES * 4 + 127) / 128 * 128; /* of lse2, delta */
    static constexpr int PART_FLOATS = KEYS * DIM * 2;
    static constexpr int CONSUMER_REGISTERS = 240, PRODUCER_REGISTERS = 24;
};

/* Tensor maps of a launch, one per view. */
template <class F> struct BackwardMaps {
    CUtensorMap q[F::VIEWS], k[F::VIEWS], v[F::VIEWS], dout[F::VIEWS];
};

enum backward_code { BLOCK_END, BLOCK_CLEAN, BLOCK_CAREFUL };
enum { BACKWARD_QUIT = 16 };

template <class F> struct BackwardShared {
    uint32_t base;

    static constexpr int Q = 2 * F::KEY_STAGES * F::KEY_BYTES;
    static constexpr int DO = Q + F::STAGES * F::QUERY_BYTES;
    static constexpr int DS = DO + F::STAGES * F::QUERY_BYTES;
    static constexpr int DQ = DS + F::STAGES * F::DS_BYTES;
    static constexpr int LSE = DQ + 2 * F::STAGING * F::HALF * 4;
    static constexpr int DELTA = LSE + F::STAGES * F::COLUMN_BYTES;
    static constexpr int ENTRIES = DELTA + F::STAGES * F::COLUMN_BYTES;
    static constexpr int ITEMS = ENTRIES + 2 * F::STAGES * 32;
    static constexpr int BARRIERS = ITEMS + 2 * F::KEY_STAGES * 32;
    static constexpr int BYTES = BARRIERS + (6 * F::STAGES + 3 * F::KEY_STAGES) * 8;

    DEVICE uint32_t k(int slot) const { return base + 2 * slot * F::KEY_BYTES; }
    DEVICE uint32_t v(int slot) const { return k(slot) + F::KEY_BYTES; }
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
    /* What item number `items` is. Its keys are released before it is done with, so that there is
     * twice as much room for items as for keys. */
    DEVICE uint32_t item(unsigned items) const
    {
        return base + ITEMS + items % (2 * F::KEY_STAGES) * 32;
    }
    DEVICE uint32_t barrier(int i) const { return base + BARRIERS + i * 8; }
    DEVICE uint32_t q_full(int slot) const { return barrier(slot); }
    DEVICE uint32_t q_empty(int slot) const { return barrier(2 + slot); }
    DEVICE uint32_t do_full(int slot) const { return barrier(4 + slot); }
    DEVICE uint32_t do_empty(int slot) const { return barrier(6 + slot); }
    DEVICE uint32_t ds_full(int slot) const { return barrier(8 + slot); }
    DEVICE uint32_t ds_empty(int slot) const { return barrier(10 + slot); }
    DEVICE uint32_t k_full(int slot) const { return barrier(12 + slot); }
    DEVICE uint32_t v_full(int slot) const { return barrier(12 + F::KEY_STAGES + slot); }
    DEVICE uint32_t kv_empty(int slot) const { return barrier(12 + 2 * F::KEY_STAGES + slot); }
};

/* Where the keys of item number `items` are, and how often they were there before, modulo 2. */
template <class F> DEVICE int key_slot(unsigned items) { return items % F::KEY_STAGES; }
template <class F> DEVICE uint32_t key_lap(unsigned items) { return items / F::KEY_STAGES & 1; }

template <class F> DEVICE void backward_init(BackwardShared<F> shared)
{
    const int warps = 8 * WARP_ARRIVALS; /* of the consumers */
    for (int i = 0; i < F::KEY_STAGES; i++) {
        barrier_init(shared.k_full(i), 1);
        barrier_init(shared.v_full(i), 1);
        barrier_init(shared.kv_empty(i), warps);
    }
    for (int i = 0; i < F::STAGES; i++) {
        barrier_init(shared.q_full(i), 1);
        barrier_init(shared.do_full(i), 1);
        barrier_init(shared.q_empty(i), warps);
        barrier_init(shared.do_empty(i), warps);
        barrier_init(shared.ds_full(i), warps);
        barrier_init(shared.ds_empty(i), warps);
    }
    barrier_init_done();
}

} // namespace sm90
#endif
