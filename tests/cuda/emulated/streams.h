/* SPDX-License-Identifier: Apache-2.0 */
/* streams.h - what streams and graphs of the emulation share. All of it needs the lock. */
#ifndef EMULATED_STREAMS_H
#define EMULATED_STREAMS_H

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "internal.h"
#include "races.h"

namespace emulated
{

struct capture; /* graphs.cc */

/* A place in a graph that is captured: after these of its nodes. */
struct captured_place {
    std::shared_ptr<capture> graph; /* NULL: not captured */
    std::vector<size_t> after;
};

/* One cudaEventRecord. */
struct record {
    bool done = false;
    double seconds = 0;
    race_order order;        /* of what comes before it */
    captured_place captured; /* of a stream that was captured: it is never done */
};

enum operation_kind { WORK, RELEASE, HOST_FUNCTION, RECORD, WAIT };

struct operation {
    enum operation_kind kind;
    std::function<void()> work;
    std::shared_ptr<record> event;
    race_order order; /* of what the host had waited for */
};

} // namespace emulated

struct CUstream_st {
    int device;
    unsigned flags;
    bool busy = false, destroyed = false; /* busy: a host function runs */
    uint64_t enqueued = 0, completed = 0;
    std::deque<emulated::operation> operations;
    int number;                        /* no other has it */
    emulated::race_order order;        /* of what has run */
    emulated::captured_place captured; /* what comes next on it is a node of a graph */
};

namespace emulated
{

using shared_stream = std::shared_ptr<CUstream_st>;
using lock_held = std::unique_lock<std::mutex>;

/* ---- streams.cc ---- */

/* NULL: there is none. */
shared_stream find_stream(cudaStream_t stream);
/* A stream without a handle. It is gone when it has ended and its operations have run. */
shared_stream make_inner_stream();
void end_inner_stream(const shared_stream &stream);
void add(const shared_stream &stream, operation op, lock_held &held);
/* Leaves all streams that are captured in this graph. */
void end_captures(const capture *graph);

/* ---- graphs.cc ---- */

/* The next node of the graph that this stream is captured in. */
cudaError_t capture_operation(CUstream_st &stream, operation op);
/* A captured stream, or event, is where only others may be: its graph is lost. */
cudaError_t capture_lost(const captured_place &place, cudaError_t error);
/* The stream waits for an event, and one of them is captured. */
cudaError_t capture_wait(CUstream_st &stream, const record &event);
/* Work of the legacy stream would wait for a stream that is captured. */
cudaError_t capture_forbids_legacy();

} // namespace emulated

#endif
