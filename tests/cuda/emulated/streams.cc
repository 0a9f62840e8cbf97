/* SPDX-License-Identifier: Apache-2.0 */
/* streams.cc - streams and events. Work is queued and runs late, when the host asks or waits: then
 * operations of random streams run, in the order of their stream and after the events they wait for.
 * What is not ordered by a stream or an event thus soon runs in the wrong order.
 *
 * The legacy default stream runs its work at once, after that of all blocking streams; it does not
 * wait for streams made with cudaStreamNonBlocking, as on a device. But a copy from pageable memory
 * returns when that is read, and ends late. */
#include <time.h>

#include <algorithm>
#include <utility>

#include "streams.h"

struct CUevent_st {
    int device;
    unsigned flags;
    std::shared_ptr<emulated::record> last; /* NULL: never recorded */
};

namespace emulated
{

static std::vector<shared_stream> streams;
static std::vector<std::unique_ptr<CUevent_st>> events;
static std::vector<shared_stream> buried_streams; /* kept for their addresses */
static std::vector<std::unique_ptr<CUevent_st>> buried_events;
static size_t stream_count, event_count; /* not destroyed; live on after the vectors */

/* For the search for races: numbers of streams that the program has not made. */
enum { LEGACY_STREAM, LATE_STREAM, FIRST_STREAM };
static int next_number = FIRST_STREAM;
static race_order host_order;                      /* what the host has waited for */
static race_order gone_order, gone_blocking_order; /* of streams that are no more */

size_t streams_alive() { return stream_count; }
size_t events_alive() { return event_count; }

bool is_legacy(cudaStream_t stream) { return !stream || stream == cudaStreamLegacy; }

shared_stream find_stream(cudaStream_t stream)
{
    check_buried(stream, "a stream");
    for (const shared_stream &s : streams)
        if (s.get() == stream && !s->destroyed) return s;
    return nullptr;
}

bool valid_stream(cudaStream_t stream)
{
    if (is_legacy(stream)) return true;
    const shared_stream s = find_stream(stream);
    return s && s->device == current_device();
}

static CUevent_st *find_event(cudaEvent_t event)
{
    check_buried(event, "an event");
    for (const auto &e : events)
        if (e.get() == event) return event;
    return nullptr;
}

/* ---- Running operations. ---- */

static bool can_run(const CUstream_st &s)
{
    if (s.busy || s.operations.empty()) return false;
    const operation &head = s.operations.front();
    return head.kind != WAIT || head.event->done;
}

static double now()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sweep()
{
    const auto gone = [](const shared_stream &s) {
        return s->destroyed && !s->busy && s->operations.empty();
    };
    for (const shared_stream &s : streams) {
        if (!gone(s)) continue;
        gone_order.join(s->order);
        if (!(s->flags & cudaStreamNonBlocking)) gone_blocking_order.join(s->order);
    }
    streams.erase(std::remove_if(streams.begin(), streams.end(), gone), streams.end());
}

static void finish_record(record *event)
{
    event->done = true;
    event->seconds = now();
}

static void run_work(int number, race_order &order, const operation &op)
{
    races_start_work(number, order);
    op.work();
    races_end_work();
}

/* Runs the first operation of a stream. After an error that lasts, work is dropped but events
 * complete, so that nothing waits for ever, and memory is freed. */
static void run_head(shared_stream s, lock_held &held)
{
    operation op = std::move(s->operations.front());
    s->operations.pop_front();
    const bool broken = device_lost() || sticky() != cudaSuccess;
    s->order.join(op.order);
    if (op.kind == WAIT) s->order.join(op.event->order);
    if (op.kind == RECORD) {
        op.event->order = s->order;
        finish_record(op.event.get());
    }
    if (op.kind == RELEASE || (op.kind == WORK && !broken)) run_work(s->number, s->order, op);
    if (op.kind == HOST_FUNCTION && !broken) {
        host_order.join(s->order);
        s->busy = true; /* it may take locks whose owners call the runtime */
        held.unlock();
        op.work();
        held.lock();
        s->busy = false;
        changed.notify_all();
    }
    s->completed++;
    if (s->destroyed) sweep();
}

static shared_stream any_runnable()
{
    std::vector<shared_stream> ready;
    for (const shared_stream &s : streams)
        if (can_run(*s)) ready.push_back(s);
    return ready.empty() ? nullptr : ready[random_below((uint32_t)ready.size())];
}

/* The stream whose head has to run next for this one to go on; NULL while a host function runs. */
static shared_stream needed_for(shared_stream s);

static shared_stream stream_of(const record *event)
{
    for (const shared_stream &s : streams)
        for (const operation &op : s->operations)
            if (op.kind == RECORD && op.event.get() == event) return needed_for(s);
    return nullptr;
}

static shared_stream needed_for(shared_stream s)
{
    if (can_run(*s)) return s;
    if (s->busy || s->operations.empty()) return nullptr;
    return stream_of(s->operations.front().event.get());
}

/* Until done(). Half of the waits run random streams, half mostly what `needed` names: both the work
 * that runs earlier and the work that runs later than expected are to be found. */
template <typename Done, typename Needed>
static void run_until(lock_held &held, const Done &done, const Needed &needed)
{
    const bool lazy = random_below(2);
    while (!done()) {
        shared_stream next = lazy && random_below(8) ? needed() : nullptr;
        if (!next) next = any_runnable();
        if (next) {
            run_head(next, held);
            continue;
        }
        bool busy = false;
        for (const shared_stream &s : streams) busy |= s->busy;
        if (!busy) fail("the host waits for work that cannot run");
        changed.wait(held);
    }
}

static void run_some(lock_held &held, uint32_t most)
{
    for (uint32_t left = random_below(most + 1); left; left--) {
        const shared_stream next = any_runnable();
        if (!next) return;
        run_head(next, held);
    }
}

static void finish(const shared_stream &s, lock_held &held)
{
    const uint64_t target = s->enqueued;
    run_until(
        held, [&] { return s->completed >= target; }, [&] { return needed_for(s); });
    host_order.join(s->order);
}

template <typename Which> static void finish_streams(lock_held &held, const Which &which)
{
    std::vector<std::pair<shared_stream, uint64_t>> targets;
    for (const shared_stream &s : streams)
        if (which(*s)) targets.emplace_back(s, s->enqueued);
    const auto done = [&] {
        for (const auto &t : targets)
            if (t.first->completed < t.second) return false;
        return true;
    };
    run_until(held, done, [] { return shared_stream(); });
    for (const auto &t : targets) host_order.join(t.first->order);
}

/* Streams that the legacy stream waits for; without those of copies that end late, if so asked. */
static void finish_blocking(lock_held &held, bool late_ones = true)
{
    const int device = current_device();
    finish_streams(held, [device, late_ones](const CUstream_st &s) {
        return s.device == device && !(s.flags & cudaStreamNonBlocking) &&
               (late_ones || s.number != LATE_STREAM);
    });
    host_order.join(gone_blocking_order);
}

/* The stream of a copy that has not ended; the next copy waits for it, so there is one at most. */
static shared_stream late_stream()
{
    for (const shared_stream &s : streams)
        if (s->number == LATE_STREAM && s->device == current_device()) return s;
    return nullptr;
}

void finish_all(lock_held &held)
{
    finish_streams(held, [](const CUstream_st &) { return true; });
    host_order.join(gone_order);
}

cudaError_t finish_stream(cudaStream_t stream, lock_held &held)
{
    if (is_legacy(stream)) {
        finish_blocking(held);
        return sticky();
    }
    const shared_stream s = find_stream(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    finish(s, held);
    return sticky();
}

static cudaError_t finish(const std::shared_ptr<record> &event, lock_held &held)
{
    if (!event) return cudaSuccess;
    if (event->captured.graph) return cudaErrorCapturedEvent;
    run_until(
        held, [&] { return event->done; }, [&] { return stream_of(event.get()); });
    host_order.join(event->order);
    return cudaSuccess;
}

void add(const shared_stream &s, operation op, lock_held &held)
{
    op.order = host_order;
    s->operations.push_back(std::move(op));
    s->enqueued++;
    /* A device is sometimes faster than the host. */
    if (random_order() && random_below(4) == 0) run_some(held, 3);
}

/* Work on the legacy stream runs at once, but for an event after a copy that ends late. */
static cudaError_t enqueue_operation(cudaStream_t stream, operation op, lock_held &held)
{
    if (is_legacy(stream)) {
        const cudaError_t forbidden = capture_forbids_legacy();
        if (forbidden) return forbidden;
        finish_blocking(held, op.kind != RECORD);
        const shared_stream late = late_stream();
        if (late) {
            add(late, std::move(op), held);
            return sticky();
        }
        const bool broken = device_lost() || sticky() != cudaSuccess;
        if (op.kind == RELEASE || (op.work && !broken)) run_work(LEGACY_STREAM, host_order, op);
        if (op.kind == RECORD) {
            op.event->order = host_order;
            finish_record(op.event.get());
        }
        return sticky();
    }
    const shared_stream s = find_stream(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (s->captured.graph) return capture_operation(*s, std::move(op));
    add(s, std::move(op), held);
    return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, lock_held &held)
{
    return enqueue_operation(stream, operation{ WORK, std::move(work), nullptr, {} }, held);
}

static shared_stream new_stream(unsigned flags, int number)
{
    shared_stream s = std::make_shared<CUstream_st>();
    s->device = current_device();
    s->flags = flags;
    s->number = number;
    streams.push_back(s);
    return s;
}

shared_stream make_inner_stream() { return new_stream(cudaStreamNonBlocking, next_number++); }

void end_inner_stream(const shared_stream &stream)
{
    stream->destroyed = true;
    sweep();
}

/* On a stream of its own, which later work of the legacy stream waits for. */
cudaError_t enqueue_late(std::function<void()> work, lock_held &held)
{
    const cudaError_t forbidden = capture_forbids_legacy();
    if (forbidden) return forbidden;
    finish_blocking(held);
    const shared_stream s = new_stream(0, LATE_STREAM);
    s->destroyed = true;
    add(s, operation{ WORK, std::move(work), nullptr, {} }, held);
    return cudaSuccess;
}

cudaError_t enqueue_release(cudaStream_t stream, std::function<void()> work, lock_held &held)
{
    return enqueue_operation(stream, operation{ RELEASE, std::move(work), nullptr, {} }, held);
}

static cudaError_t create_stream(cudaStream_t *out, unsigned flags)
{
    call c;
    if (c.error) return noted(c.error);
    if (!out || (flags & ~(unsigned)cudaStreamNonBlocking)) return noted(cudaErrorInvalidValue);
    refresh_seed();
    *out = new_stream(flags, next_number++).get();
    stream_count++;
    return cudaSuccess;
}

void end_captures(const capture *graph)
{
    for (const shared_stream &s : streams)
        if (s->captured.graph.get() == graph) s->captured = {};
}

cudaError_t capture_forbids_on(cudaStream_t stream)
{
    const shared_stream s = is_legacy(stream) ? nullptr : find_stream(stream);
    if (!s || !s->captured.graph) return cudaSuccess;
    return capture_lost(s->captured, cudaErrorStreamCaptureUnsupported);
}

/* Takes those of a device out of a list. */
template <class T>
static void bury_in(std::vector<T> &all, std::vector<T> &graves, int device, size_t &count)
{
    const auto stays = [device](const T &one) { return one->device != device; };
    const auto first = std::stable_partition(all.begin(), all.end(), stays);
    for (auto one = first; one != all.end(); ++one) {
        bury(one->get());
        graves.push_back(std::move(*one));
        count--;
    }
    all.erase(first, all.end());
}

void reset_streams(int device)
{
    sweep(); /* those left have a handle */
    bury_in(streams, buried_streams, device, stream_count);
    bury_in(events, buried_events, device, event_count);
}

} // namespace emulated

using namespace emulated;

/* ---- Streams. ---- */

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return create_stream(stream, 0); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    return create_stream(stream, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int)
{
    return create_stream(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}

/* Its work still runs, late. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    call c;
    const shared_stream s = is_legacy(stream) ? nullptr : find_stream(stream);
    if (!s) return noted(c.error ? c.error : cudaErrorInvalidResourceHandle);
    if (capture_forbids_on(stream)) return noted(cudaErrorStreamCaptureUnsupported);
    s->destroyed = true;
    stream_count--;
    sweep();
    return noted(c.error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    call c;
    if (!c.error) c.error = capture_forbids();
    if (c.error) return noted(c.error);
    return noted(finish_stream(stream, c.held));
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
    call c;
    if (c.error) return noted(c.error);
    const shared_stream s = is_legacy(stream) ? nullptr : find_stream(stream);
    if (!s && !is_legacy(stream)) return noted(cudaErrorInvalidResourceHandle);
    *id = (unsigned long long)(s ? s->number : LEGACY_STREAM);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    call c;
    if (!c.error) c.error = capture_forbids();
    if (c.error) return noted(c.error);
    run_some(c.held, 3);
    if (sticky()) return noted(sticky());
    if (is_legacy(stream)) return cudaSuccess;
    const shared_stream s = find_stream(stream);
    if (!s) return noted(cudaErrorInvalidResourceHandle);
    if (s->completed < s->enqueued) return noted(cudaErrorNotReady);
    host_order.join(s->order);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
    call c;
    if (c.error) return noted(c.error);
    if (!find_event(event)) return noted(cudaErrorInvalidResourceHandle);
    const std::shared_ptr<record> last = event->last;
    if (!is_legacy(stream)) {
        const shared_stream s = find_stream(stream);
        if (!s) return noted(cudaErrorInvalidResourceHandle);
        if (!last) return cudaSuccess;
        if (s->captured.graph || last->captured.graph) return noted(capture_wait(*s, *last));
        return noted(enqueue_operation(stream, operation{ WAIT, nullptr, last, {} }, c.held));
    }
    cudaError_t error = capture_forbids_legacy();
    if (!error) error = finish(last, c.held);
    return noted(error ? error : sticky());
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user)
{
    call c;
    if (c.error) return noted(c.error);
    if (!fn) return noted(cudaErrorInvalidValue);
    const auto work = [fn, user] { fn(user); };
    return noted(enqueue_operation(stream, operation{ HOST_FUNCTION, work, nullptr, {} }, c.held));
}

/* ---- Events. ---- */

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    call c;
    if (c.error) return noted(c.error);
    if (!event || (flags & ~3u)) return noted(cudaErrorInvalidValue);
    events.emplace_back(new CUevent_st{ current_device(), flags, nullptr });
    event_count++;
    *event = events.back().get();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    call c;
    if (!find_event(event)) return noted(c.error ? c.error : cudaErrorInvalidResourceHandle);
    const auto same = [event](const std::unique_ptr<CUevent_st> &e) { return e.get() == event; };
    events.erase(std::remove_if(events.begin(), events.end(), same), events.end());
    event_count--;
    return noted(c.error);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    call c;
    if (c.error) return noted(c.error);
    if (!find_event(event)) return noted(cudaErrorInvalidResourceHandle);
    const shared_stream s = is_legacy(stream) ? nullptr : find_stream(stream);
    if (!is_legacy(stream) && !s) return noted(cudaErrorInvalidResourceHandle);
    const int device = s ? s->device : current_device(); /* that of the legacy stream */
    if (device != event->device) return noted(cudaErrorInvalidResourceHandle);
    event->last = std::make_shared<record>();
    return noted(enqueue_operation(stream, operation{ RECORD, nullptr, event->last, {} }, c.held));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    call c;
    if (!c.error) c.error = capture_forbids();
    if (c.error) return noted(c.error);
    if (!find_event(event)) return noted(cudaErrorInvalidResourceHandle);
    const std::shared_ptr<record> last = event->last;
    if (last && last->captured.graph) return noted(cudaErrorCapturedEvent);
    run_some(c.held, 3);
    if (sticky()) return noted(sticky());
    if (last && !last->done) return noted(cudaErrorNotReady);
    if (last) host_order.join(last->order);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    call c;
    if (!c.error) c.error = capture_forbids();
    if (c.error) return noted(c.error);
    if (!find_event(event)) return noted(cudaErrorInvalidResourceHandle);
    const cudaError_t error = finish(event->last, c.held);
    return noted(error ? error : sticky());
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    call c;
    if (c.error) return noted(c.error);
    const bool known = find_event(start) && find_event(end) && start->last && end->last;
    if (!milliseconds) return noted(cudaErrorInvalidValue);
    if (!known || ((start->flags | end->flags) & cudaEventDisableTiming))
        return noted(cudaErrorInvalidResourceHandle);
    if (!start->last->done || !end->last->done) return noted(cudaErrorNotReady);
    *milliseconds = (float)(1e3 * (end->last->seconds - start->last->seconds));
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    call c;
    if (!c.error) c.error = capture_forbids();
    if (c.error) return noted(c.error);
    const int device = current_device();
    finish_streams(c.held, [device](const CUstream_st &s) { return s.device == device; });
    host_order.join(gone_order);
    return noted(sticky());
}
