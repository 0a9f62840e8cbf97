/* SPDX-License-Identifier: Apache-2.0 */
/* graphs.cc - streams that are captured, and graphs. A graph that is launched runs each of its nodes
 * on a stream of its own, after the events of those before it: in an order that is as wild as that
 * of streams.
 *
 * Stricter than a device: nothing that waits, asks or allocates is allowed while a stream is
 * captured, nor are copies from and to pageable memory there. */
#include <algorithm>
#include <thread>

#include "streams.h"

namespace emulated
{

struct node {
    operation op;
    std::vector<size_t> after; /* nodes, all of them earlier */
};

struct capture {
    std::vector<node> nodes;
    enum cudaStreamCaptureMode mode;
    std::thread::id owner;
    int device;
    bool blocking; /* one of its streams is ordered with the legacy stream */
    bool lost, ended;
    const CUstream_st *origin; /* where it began, and ends */
};

} // namespace emulated

struct CUgraph_st {
    std::vector<emulated::node> nodes;
    int device;
};

struct CUgraphExec_st {
    CUgraph_st graph;
    std::shared_ptr<emulated::record> last; /* its last launch has ended; NULL: there was none */
};

namespace emulated
{

static std::vector<std::shared_ptr<capture>> captures; /* that have not ended */
static std::vector<std::unique_ptr<CUgraph_st>> graphs;
static std::vector<std::unique_ptr<CUgraphExec_st>> executables;
static std::vector<std::unique_ptr<CUgraphExec_st>> buried_executables; /* for their addresses */

size_t graphs_alive() { return graphs.size() + executables.size(); }

/* A graph itself has no context: only what it was instantiated as. */
void reset_graphs(int device)
{
    const auto stays = [device](const std::unique_ptr<CUgraphExec_st> &one) {
        return one->graph.device != device;
    };
    const auto first = std::stable_partition(executables.begin(), executables.end(), stays);
    for (auto one = first; one != executables.end(); ++one) {
        bury(one->get());
        buried_executables.push_back(std::move(*one));
    }
    executables.erase(first, executables.end());
}

template <class T> static T *find_in(const std::vector<std::unique_ptr<T>> &all, const T *one)
{
    for (const std::unique_ptr<T> &x : all)
        if (x.get() == one) return x.get();
    return nullptr;
}

template <class T> static cudaError_t drop_from(std::vector<std::unique_ptr<T>> &all, const T *one)
{
    const auto same = [one](const std::unique_ptr<T> &x) { return x.get() == one; };
    const auto at = std::find_if(all.begin(), all.end(), same);
    if (at == all.end()) return cudaErrorInvalidValue;
    all.erase(at);
    return cudaSuccess;
}

/* ---- Capturing. ---- */

cudaError_t capture_lost(const captured_place &place, cudaError_t error)
{
    place.graph->lost = true;
    return error;
}

cudaError_t capture_operation(CUstream_st &stream, operation op)
{
    captured_place &place = stream.captured;
    if (place.graph->lost) return cudaErrorStreamCaptureInvalidated;
    if (op.kind == RELEASE) return capture_lost(place, cudaErrorStreamCaptureUnsupported);
    if (op.kind == RECORD) {
        op.event->captured = place;
        return cudaSuccess;
    }
    place.graph->nodes.push_back(node{ std::move(op), place.after });
    place.after = { place.graph->nodes.size() - 1 };
    return cudaSuccess;
}

cudaError_t capture_wait(CUstream_st &stream, const record &event)
{
    captured_place &place = stream.captured;
    const captured_place &other = event.captured;
    if (!other.graph) return capture_lost(place, cudaErrorStreamCaptureIsolation);
    if (other.graph->ended) return cudaErrorCapturedEvent;
    if (other.graph->lost) return cudaErrorStreamCaptureInvalidated;
    if (place.graph && place.graph != other.graph) {
        capture_lost(other, cudaErrorStreamCaptureMerge);
        return capture_lost(place, cudaErrorStreamCaptureMerge);
    }
    place.graph = other.graph;
    place.graph->blocking |= !(stream.flags & cudaStreamNonBlocking);
    for (const size_t i : other.after)
        if (std::find(place.after.begin(), place.after.end(), i) == place.after.end())
            place.after.push_back(i);
    return cudaSuccess;
}

static thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/* Captures that this thread, in its mode, may not endanger. */
static bool is_endangered(const capture &c)
{
    const bool mine = c.owner == std::this_thread::get_id();
    if (c.mode == cudaStreamCaptureModeRelaxed || thread_mode == cudaStreamCaptureModeRelaxed)
        return false;
    return mine || (c.mode == cudaStreamCaptureModeGlobal &&
                    thread_mode == cudaStreamCaptureModeGlobal);
}

cudaError_t capture_forbids()
{
    cudaError_t error = cudaSuccess;
    for (const std::shared_ptr<capture> &c : captures) {
        if (!is_endangered(*c)) continue;
        c->lost = true;
        error = cudaErrorStreamCaptureUnsupported;
    }
    return error;
}

static bool blocks_legacy(const capture &c) { return c.blocking && c.device == current_device(); }

cudaError_t capture_forbids_legacy()
{
    cudaError_t error = cudaSuccess;
    for (const std::shared_ptr<capture> &c : captures) {
        if (!blocks_legacy(*c)) continue;
        c->lost = true;
        error = cudaErrorStreamCaptureImplicit;
    }
    return error;
}

/* Do all nodes come before this place? */
static bool joins_all(const captured_place &place)
{
    std::vector<bool> before(place.graph->nodes.size(), false);
    for (const size_t i : place.after) before[i] = true;
    for (size_t i = before.size(); i-- > 0;)
        if (before[i])
            for (const size_t j : place.graph->nodes[i].after) before[j] = true;
    return std::find(before.begin(), before.end(), false) == before.end();
}

/* The graph, if it is one; the capture has ended. */
static cudaError_t end_capture(const captured_place &place, cudaGraph_t *out)
{
    const std::shared_ptr<capture> ended = place.graph;
    cudaError_t error = cudaSuccess;
    if (ended->lost) error = cudaErrorStreamCaptureInvalidated;
    else if (!joins_all(place)) error = cudaErrorStreamCaptureUnjoined;
    ended->ended = true;
    captures.erase(std::find(captures.begin(), captures.end(), ended));
    *out = nullptr;
    if (!error) {
        graphs.emplace_back(new CUgraph_st{ ended->nodes, ended->device });
        *out = graphs.back().get();
    }
    end_captures(ended.get()); /* `place` is none any more */
    return error;
}

/* ---- Launching. ---- */

static operation after_event(const std::shared_ptr<record> &event)
{
    return operation{ WAIT, nullptr, event, {} };
}

static std::shared_ptr<record> add_record(const shared_stream &stream, lock_held &held)
{
    const std::shared_ptr<record> event = std::make_shared<record>();
    add(stream, operation{ RECORD, nullptr, event, {} }, held);
    return event;
}

/* A graph runs after what is on the stream, and after its own last launch. */
static void launch_graph(CUgraphExec_st &exec, const shared_stream &stream, lock_held &held)
{
    if (exec.last) add(stream, after_event(exec.last), held);
    const std::shared_ptr<record> start = add_record(stream, held);
    std::vector<std::shared_ptr<record>> ends;
    for (const node &n : exec.graph.nodes) {
        const shared_stream own = make_inner_stream();
        add(own, after_event(start), held);
        for (const size_t i : n.after) add(own, after_event(ends[i]), held);
        add(own, n.op, held);
        ends.push_back(add_record(own, held));
        end_inner_stream(own);
    }
    for (const std::shared_ptr<record> &end : ends) add(stream, after_event(end), held);
    exec.last = add_record(stream, held);
}

} // namespace emulated

using namespace emulated;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    call c;
    if (c.error) return noted(c.error);
    if (is_legacy(stream)) return noted(cudaErrorStreamCaptureUnsupported);
    const shared_stream s = find_stream(stream);
    if (!s) return noted(cudaErrorInvalidResourceHandle);
    if (s->captured.graph) return noted(cudaErrorIllegalState);
    const bool blocking = !(s->flags & cudaStreamNonBlocking);
    captures.push_back(std::make_shared<capture>(capture{
        {}, mode, std::this_thread::get_id(), s->device, blocking, false, false, s.get() }));
    s->captured = captured_place{ captures.back(), {} };
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    call c;
    if (c.error) return noted(c.error);
    const shared_stream s = is_legacy(stream) ? nullptr : find_stream(stream);
    if (!s || !graph) return noted(cudaErrorInvalidValue);
    if (!s->captured.graph) return noted(cudaErrorIllegalState);
    const capture &ended = *s->captured.graph;
    if (ended.origin != s.get())
        return noted(capture_lost(s->captured, cudaErrorStreamCaptureUnmatched));
    if (ended.mode != cudaStreamCaptureModeRelaxed && ended.owner != std::this_thread::get_id())
        return noted(cudaErrorStreamCaptureWrongThread);
    return noted(end_capture(s->captured, graph));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    call c;
    if (c.error) return noted(c.error);
    if (!mode) return noted(cudaErrorInvalidValue);
    std::swap(*mode, thread_mode);
    return cudaSuccess;
}

/* Asking about the legacy stream is an error where that would wait for a captured stream; the
 * capture goes on. */
static cudaError_t ask_legacy()
{
    const auto blocked = [](const std::shared_ptr<capture> &c) { return blocks_legacy(*c); };
    return std::any_of(captures.begin(), captures.end(), blocked) ? cudaErrorStreamCaptureImplicit
                                                                  : cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    call c;
    if (c.error) return noted(c.error);
    if (!status) return noted(cudaErrorInvalidValue);
    *status = cudaStreamCaptureStatusNone;
    if (is_legacy(stream)) return noted(ask_legacy());
    const shared_stream s = find_stream(stream);
    if (!s) return noted(cudaErrorInvalidResourceHandle);
    if (s->captured.graph)
        *status = s->captured.graph->lost ? cudaStreamCaptureStatusInvalidated
                                          : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph,
                                          unsigned long long flags)
{
    call c;
    if (c.error) return noted(c.error);
    if (!out || flags || !find_in(graphs, graph)) return noted(cudaErrorInvalidValue);
    executables.emplace_back(new CUgraphExec_st{ *graph, nullptr });
    *out = executables.back().get();
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    call c;
    if (c.error) return noted(c.error);
    check_buried(exec, "a graph");
    if (!find_in(executables, exec)) return noted(cudaErrorInvalidValue);
    const shared_stream s = is_legacy(stream) ? nullptr : find_stream(stream);
    if (!s || s->device != exec->graph.device) return noted(cudaErrorInvalidResourceHandle);
    if (s->captured.graph)
        return noted(capture_lost(s->captured, cudaErrorStreamCaptureUnsupported));
    launch_graph(*exec, s, c.held);
    return noted(sticky());
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    call c;
    const cudaError_t error = drop_from(graphs, graph);
    return noted(c.error ? c.error : error);
}

/* A launch that has not ended goes on. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    call c;
    check_buried(exec, "a graph");
    const cudaError_t error = drop_from(executables, exec);
    return noted(c.error ? c.error : error);
}
