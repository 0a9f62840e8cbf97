/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - what the files of the emulation share; device code does not see it. */
#ifndef EMULATED_INTERNAL_H
#define EMULATED_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include <condition_variable>
#include <functional>
#include <mutex>

#include "cuda_runtime_api.h"
#include "emulated.h"

#if defined(__SANITIZE_ADDRESS__)
#define EMULATED_ASAN 1
#else
#define EMULATED_ASAN 0
#endif

namespace emulated
{

/* ---- settings.cc ---- */

/* An environment variable as a number; read at every call, so a test may change it between two
 * cases. */
int64_t setting(const char *name, int64_t otherwise);

/* RINGATTN_EMULATED_SEED is set: fibers and blocks run in an order drawn from it. */
bool random_order();
/* 0 .. n - 1. Needs the lock. */
uint32_t random_below(uint32_t n);
/* Draws the numbers of this seed from their start; called where the variable may have changed. */
void refresh_seed();

/* What RINGATTN_EMULATED_FAIL counts. */
enum event_kind { COUNT_CALL, COUNT_ALLOC, COUNT_LAUNCH, COUNT_COPY, COUNT_KERNEL, COUNT_KINDS };
/* Counts one more, and says whether it is the one to fail. Needs the lock. */
bool counted_failure(enum event_kind kind);
/* "lost:N" has happened. */
bool device_lost();

/* ---- runtime.cc ---- */

/* One lock for all: kernels run with it held. */
extern std::mutex lock;
/* Notified when an operation that ran without the lock (a host function) has ended. */
extern std::condition_variable changed;

/* Every call of the runtime starts with one of these. It takes the lock, counts the call for
 * "lost:N", and answers the error that all calls return from then on, or cudaSuccess. */
struct call {
    std::unique_lock<std::mutex> held;
    cudaError_t error;
    call();
};

/* Notes an error as the calling thread's last one, and returns it. */
cudaError_t noted(cudaError_t error);
int current_device();
int device_count();
/* The error of a kernel that failed late; all later calls return it. */
void set_sticky(cudaError_t error);
cudaError_t sticky();
/* The context of this stream, event or graph has ended: a GPU crashes where it is used, which here
 * is a mistake with a sentence. Its address is not used again. */
void bury(const void *handle);
void check_buried(const void *handle, const char *what);

/* ---- memory.cc ---- */

struct range {
    uintptr_t start;
    size_t size;
    enum cudaMemoryType type;
    int device;
    bool registered; /* cudaHostRegister: the memory is the caller's */
};
/* The allocation, or registered memory, that holds the byte; NULL for pageable memory. */
const range *find_range(const void *pointer);
/* The context of the device ends: so do its memory and its pinned memory, which may not be read or
 * written any more; memory of the caller is registered no longer. */
void reset_memory(int device);
void check_leaks();

/* ---- copies.cc ---- */

/* A block of `count` threads starts: none has asynchronous copies. */
void forget_copies(int count);

/* ---- engine.cc ---- */

/* Does one part of what the engine has to do; false where there is nothing. */
bool engine_step();
/* The blocks that run have ended: does all of it. */
void engine_finish();

/* ---- fibers.cc ---- */

/* The number of the fiber that runs. */
int fiber_slot();
/* Something that fibers wait for has come nearer. */
void progress();

/* ---- products.cc ---- */

/* The thread that runs returns: it has waited for all of its products. */
void check_products();
/* The gang has ended: all warps of a warpgroup have issued the same. */
void finish_products();

/* ---- streams.cc ---- */

/* Puts work on a stream, to run late; on the legacy default stream it runs before this returns. */
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work,
                    std::unique_lock<std::mutex> &held);
/* Work of the legacy default stream that is not done when its call returns. */
cudaError_t enqueue_late(std::function<void()> work, std::unique_lock<std::mutex> &held);
bool is_legacy(cudaStream_t stream);
/* As enqueue(), for work that also runs when the device has failed. */
cudaError_t enqueue_release(cudaStream_t stream, std::function<void()> work,
                            std::unique_lock<std::mutex> &held);
/* Until all that is on the stream, or on all streams of all devices, is done. */
cudaError_t finish_stream(cudaStream_t stream, std::unique_lock<std::mutex> &held);
void finish_all(std::unique_lock<std::mutex> &held);
bool valid_stream(cudaStream_t stream);
/* For what may not be put on a stream that is captured: the error, and its capture is lost.
 * cudaSuccess on other streams. */
cudaError_t capture_forbids_on(cudaStream_t stream);
void reset_streams(int device); /* and its events; nothing runs */
size_t streams_alive();
size_t events_alive();

/* ---- graphs.cc ---- */

/* What may not happen while any stream is captured: waiting, asking, allocating. The error, and no
 * graph comes of that capture; cudaSuccess where nothing is captured. */
cudaError_t capture_forbids();
void reset_graphs(int device);
size_t graphs_alive();

} // namespace emulated

#endif
