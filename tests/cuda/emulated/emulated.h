/* SPDX-License-Identifier: Apache-2.0 */
/* emulated.h - how device code runs on the CPU: what the intrinsics of device.h, and replacements
 * of headers with inline PTX, are made of.
 *
 * Every CUDA thread of a block is a fiber; one OS thread runs them, one block at a time, or those
 * that a launch wants at the same time. A fiber runs until it meets a barrier or a warp collective,
 * so code between two of those is atomic. */
#ifndef EMULATED_EMULATED_H
#define EMULATED_EMULATED_H

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <new>
#include <type_traits>

#include "races.h"
#include "vector_types.h"

/* Of the fiber that runs. Set at every switch, so plain variables will do. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

constexpr size_t EMULATED_SHARED_BYTES = 256 * 1024;
extern unsigned char ra_shared[];

namespace emulated
{

/* Stops the program; tells which block and thread ran. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

inline int lane() { return (int)(threadIdx.x % 32); }
inline int warp() { return (int)(threadIdx.x / 32); }

/* Lanes of this warp that have not returned from the kernel. */
uint32_t live_lanes();

/* ---- Barriers of a block. ---- */

enum reduction { REDUCE_NONE, REDUCE_OR, REDUCE_AND, REDUCE_COUNT };

/* bar.sync 0 of all threads; those that returned count as arrived. The result is that of `what`
 * over the predicates of the threads that came. */
int block_barrier(enum reduction what, int predicate);

/* bar.sync id, threads; bar.arrive id, threads. The barrier opens when `threads` have come (both
 * kinds count). id is 0 to 15. */
void named_barrier(int id, int threads);
void named_barrier_arrive(int id, int threads);

/* barrier.cluster.arrive and .wait of all threads of the cluster. */
void cluster_barrier();
/* The block's number in its cluster. */
int cluster_rank();

/* Lets other fibers run. For loops that wait until another thread of the block changes memory (an
 * mbarrier): a fiber is never interrupted. Waiting without an end is reported. */
void yield();
/* The same, to say what for and where if that is without an end. */
void yield_for(const char *what, size_t where);

/* ---- Warp collectives. ---- */

/* What all lanes of a collective must agree on, besides the mask. */
enum collective {
    COLLECTIVE_SYNCWARP,
    COLLECTIVE_SHUFFLE,
    COLLECTIVE_VOTE,
    COLLECTIVE_MATCH,
    COLLECTIVE_REDUCE,
    COLLECTIVE_GATHER, /* emulated_warp_gather() */
    COLLECTIVE_COMPUTE /* emulated_warp_compute() */
};

/* What the last lane to arrive does with the 32 deposits. */
struct compute_call {
    void (*run)(const void *context, const void *in, void *out);
    const void *context;
    size_t out_bytes; /* of each lane */
};

/* Waits until all lanes of the mask that have not returned called this with the same kind, mask and
 * size; `mine` is copied then. Result: 32 deposits, one after the other, or the 32 outputs where
 * there is a call. Lanes without a deposit hold bytes of 0xC3. It stays valid until the calling
 * lane's next collective. */
const void *collect(enum collective kind, uint32_t mask, const void *mine, size_t bytes,
                    const compute_call *call = nullptr);

/* The lanes that took part in the calling lane's last collective. */
uint32_t collected_lanes();

template <typename T>
inline const T *collect_values(enum collective kind, uint32_t mask, const T &mine)
{
    static_assert(std::is_trivially_copyable<T>::value, "lanes exchange plain bytes");
    return static_cast<const T *>(collect(kind, mask, &mine, sizeof mine));
}

/* ---- Shared memory. ---- */

/* The address as PTX has it: bytes from the start of the block's shared memory. */
uint32_t shared_address(const void *pointer);
/* The other way; `bytes` from there must lie in the memory that the launch asked for. */
void *shared_pointer(uint32_t address, size_t bytes);

/* The same in block `rank` of the cluster. */
void *shared_pointer_of(int rank, uint32_t address, size_t bytes);

/* cp.async: `bytes` (4, 8 or 16) at `to`, of which the first `copied` come from `from` and the
 * others are zeros; commit_group; wait_group. A copy runs as late as it may. */
void copy_async(uint32_t to, const void *from, size_t bytes, size_t copied);
void copies_commit();
void copies_wait(int pending);

/* ---- mbarriers and the copy engine (engine.cc). ---- */

/* A phase ends when `arrivals` have come and all bytes that were expected are there. */
void mbarrier_init(uint32_t barrier, int arrivals);
/* At the barrier of block `rank`; `expected`: bytes that this phase also waits for. */
void mbarrier_arrive(int rank, uint32_t barrier, int expected);
/* Until the phase of this parity has ended. */
void mbarrier_wait(uint32_t barrier, uint32_t parity);

/* What the engine does some time later: `read` is the earlier part of it, `write` the later one. An
 * `out` operation is one of those that bulk_wait of this thread waits for. */
struct engine_work {
    std::function<void()> read, write;
    bool out;
};
void engine_post(engine_work work);
/* A number of bytes that a barrier expected has come; for work of the engine. */
void mbarrier_complete(int rank, uint32_t barrier, int bytes);
/* cp.async.bulk.wait_group 0: what this thread posted has been read; has been written. */
void bulk_wait_read();
void bulk_wait();
/* Until a number in device memory is `value`; it is one more, and what came before is there for who
 * has waited. */
void turn_wait(const int *turn, int value);
void turn_pass(int *turn);

/* ---- Launches. ---- */

/* griddepcontrol.wait: the kernel before this one on its stream has ended. */
inline void follow() { race_follow(); }

struct launch {
    dim3 grid, block;
    size_t shared_bytes;
    int gang;                   /* blocks that run at the same time */
    bool early;                 /* it may start before the kernel before it has ended */
    std::function<void()> body; /* what one thread runs */
};

/* Runs all blocks now. The caller holds the lock of the runtime. */
void run_grid(const launch &work);

} // namespace emulated

/* All 32 lanes of the warp deposit a value; each gets the 32 deposits, by lane. Valid until the
 * lane's next collective of any kind. */
template <typename T> inline const T *emulated_warp_gather(const T &mine)
{
    return emulated::collect_values(emulated::COLLECTIVE_GATHER, 0xffffffffu, mine);
}

/* All 32 lanes deposit a value, and one of them calls compute(const T in[32], Result out[32]) for
 * the whole warp: for a matrix instruction much faster than a gather. Returns the calling lane's
 * out. Use:  D d = emulated_warp_compute<D>(mine, [](const F *in, D *out) { ... }); */
template <typename Result, typename T, typename Compute>
inline Result emulated_warp_compute(const T &mine, const Compute &compute)
{
    static_assert(std::is_trivially_copyable<T>::value, "lanes exchange plain bytes");
    static_assert(std::is_trivially_copyable<Result>::value, "lanes exchange plain bytes");
    emulated::compute_call call;
    call.run = [](const void *context, const void *in, void *out) {
        (*static_cast<const Compute *>(context))(static_cast<const T *>(in),
                                                 static_cast<Result *>(out));
    };
    call.context = &compute;
    call.out_bytes = sizeof(Result);
    const void *out = emulated::collect(emulated::COLLECTIVE_COMPUTE, 0xffffffffu, &mine,
                                        sizeof mine, &call);
    return static_cast<const Result *>(out)[emulated::lane()];
}

#endif
