/* SPDX-License-Identifier: Apache-2.0 */
/* caller.c - calls on streams of the caller. A call starts after what is on the stream, and what is
 * put there later starts after the call. Calls share buffers, so each also starts after the call
 * before it, whichever stream that was on.
 *
 * A program that needs one queue is launched on the stream itself: events between streams take
 * longer than short kernels. Other programs run on our queues, which wait for the stream, and the
 * stream for them. So does every call on a stream that is captured in a graph: our queues are
 * captured with it, which keeps calls on several streams of one graph in order. */
#include "backend/cuda/cuda.h"

/* 0: streams have no IDs before CUDA 12. An ID is not used again when its stream is destroyed; a
 * handle may be. */
#if CUDART_VERSION >= 12000
static cudaError_t id_of(cudaStream_t stream, unsigned long long *id)
{
    return cudaStreamGetId(stream, id);
}
#else
static cudaError_t id_of(cudaStream_t stream, unsigned long long *id)
{
    (void)stream;
    *id = 0;
    return cudaSuccess;
}
#endif

ra_status ra__cuda_caller_open(struct ra__cuda_device *device)
{
    struct ra__cuda_caller *caller = &device->caller;
    RA__CUDA_TRY(cudaEventCreateWithFlags(&caller->start, cudaEventDisableTiming));
    RA__CUDA_TRY(cudaEventCreateWithFlags(&caller->end, cudaEventDisableTiming));
    return RA_OK;
}

void ra__cuda_caller_close(struct ra__cuda_device *device)
{
    if (device->caller.start) cudaEventDestroy(device->caller.start);
    if (device->caller.end) cudaEventDestroy(device->caller.end);
}

static void take_back_queue(struct ra__cuda_device *device)
{
    struct ra__cuda_caller *caller = &device->caller;
    if (caller->own_compute) device->queues[RA__CUDA_COMPUTE].stream = caller->own_compute;
    caller->own_compute = NULL;
}

void ra__cuda_caller_synchronize(struct ra__cuda_device *device)
{
    struct ra__cuda_caller *caller = &device->caller;
    if (caller->unfinished) caller->unfinished = cudaEventSynchronize(caller->end) != cudaSuccess;
}

void ra__cuda_caller_reset(struct ra__cuda_device *device)
{
    take_back_queue(device);
    device->caller.follows = device->caller.captured = false;
}

/* ---- Before a call --------------------------------------------------------------------------- */

/* A captured stream cannot wait for events from outside of its graph, nor can others wait for
 * events recorded on it. Where CUDA cannot answer, the stream counts as not captured. */
static bool is_captured(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status;
    if (cudaStreamIsCapturing(stream, &status) == cudaSuccess)
        return status != cudaStreamCaptureStatusNone;
    cudaGetLastError();
    return false;
}

ra_status ra__cuda_where_is(const struct ra__cuda_device *device, const void *data,
                            const char *what, bool *here)
{
    *here = ra__cuda_is_on_device(data);
    if (*here || !device->caller.captured) return RA_OK;
    return ra__cuda_fail(RA_ERR_UNSUPPORTED,
                         "graph: %s must be in device memory in a call that is captured", what);
}

/* Has the last call ended? Or wait until it has. The thread may be capturing another stream, where
 * asking in another mode would end the capture. */
static ra_status ask_end(const struct ra__cuda_caller *caller, bool wait, cudaError_t *answer)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    RA__CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&mode));
    *answer = wait ? cudaEventSynchronize(caller->end) : cudaEventQuery(caller->end);
    RA__CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&mode));
    return RA_OK;
}

/* A copy of the report may be on its way, by the GPU: it is never cleared, so what it says once,
 * it says for good. */
__attribute__((no_sanitize_thread)) static bool has_reported(const struct ra__cuda_device *device)
{
    const volatile struct ra__cuda_report *report = device->report;
    return report->coarse != 0;
}

/* What calls have reported. The last one may still be running: then the rest of a report is waited
 * for. */
static ra_status check_last_call(struct ra__cuda_device *device)
{
    struct ra__cuda_caller *caller = &device->caller;
    cudaError_t answer = cudaSuccess;
    if (caller->unfinished) RA__TRY(ask_end(caller, false, &answer));
    if (answer == cudaErrorNotReady && has_reported(device))
        RA__TRY(ask_end(caller, true, &answer));
    if (answer == cudaErrorNotReady) {
        cudaGetLastError();
        return RA_OK;
    }
    RA__TRY(ra__cuda_check((int)answer, "cudaEventQuery"));
    caller->unfinished = false;
    return ra__cuda_check_report(device);
}

static ra_status use_stream(struct ra__cuda_device *device, cudaStream_t stream)
{
    struct ra__cuda_caller *caller = &device->caller;
    if (caller->unfinished) {
        unsigned long long id;
        RA__CUDA_TRY(id_of(stream, &id));
        if (!caller->on_stream || id == 0 || id != caller->stream_id)
            RA__CUDA_TRY(cudaStreamWaitEvent(stream, caller->end, 0));
    }
    caller->own_compute = device->queues[RA__CUDA_COMPUTE].stream;
    device->queues[RA__CUDA_COMPUTE].stream = stream;
    return RA_OK;
}

static ra_status enter_queues(struct ra__cuda_device *device, cudaStream_t stream)
{
    struct ra__cuda_caller *caller = &device->caller;
    const bool waits = caller->unfinished && caller->on_stream && !caller->captured;
    RA__CUDA_TRY(cudaEventRecord(caller->start, stream));
    for (int i = 0; i < RA__CUDA_QUEUES; i++) {
        RA__CUDA_TRY(cudaStreamWaitEvent(device->queues[i].stream, caller->start, 0));
        if (waits) RA__CUDA_TRY(cudaStreamWaitEvent(device->queues[i].stream, caller->end, 0));
    }
    if (waits) caller->on_stream = false;
    return RA_OK;
}

/* Without a stream, a call starts after what is on the default stream: our queues do not wait for
 * that by themselves, and the copy of a cudaMemcpy() from pageable memory may end after it has
 * returned. */
ra_status ra__cuda_follow(void *opaque, const void *prepared, enum ra__direction direction,
                          void *stream, struct ra__event *there)
{
    struct ra__cuda_device *device = opaque;
    struct ra__cuda_caller *caller = &device->caller;
    const struct ra__cuda_plan *plan = prepared;
    RA__CUDA_VISIT(visit);
    RA__TRY(ra__cuda_enter(device, &visit));
    device->reported = (struct ra__event){ NULL, 0 }; /* the call without a stream has ended */
    caller->follows = stream != NULL;
    caller->captured = stream && is_captured((cudaStream_t)stream);
    if (!caller->captured) RA__TRY(check_last_call(device));
    /* Callbacks have no stream of the caller: the copies of their last run have passed. Their
     * events are not queried again, since this stream may be captured. */
    if (stream)
        for (int i = 0; i < 2; i++) device->staging[i].copy = (struct ra__event){ NULL, 0 };
    if (stream && !there && !caller->captured && plan->programs[direction].one_queue)
        return use_stream(device, (cudaStream_t)stream);
    RA__TRY(enter_queues(device, stream ? (cudaStream_t)stream : cudaStreamLegacy));
    return there ? ra__cuda_queue_mark(&device->queues[RA__CUDA_COMPUTE], there) : RA_OK;
}

/* ---- After it -------------------------------------------------------------------------------- */

static ra_status mark_end(struct ra__cuda_device *device, cudaStream_t stream, bool on_stream)
{
    struct ra__cuda_caller *caller = &device->caller;
    if (caller->captured) return RA_OK;
    if (on_stream) RA__CUDA_TRY(id_of(stream, &caller->stream_id));
    RA__CUDA_TRY(cudaEventRecord(caller->end, stream));
    caller->unfinished = true;
    caller->on_stream = on_stream;
    return RA_OK;
}

/* After a failure the caller's stream stays in place of ours, so that drain() waits for it. */
static ra_status leave_stream(struct ra__cuda_device *device)
{
    RA__TRY(mark_end(device, device->queues[RA__CUDA_COMPUTE].stream, true));
    take_back_queue(device);
    return RA_OK;
}

/* Queues wait for one another: the next call may use the same buffers, and the host has not waited
 * for this one. */
static ra_status join_queues(struct ra__cuda_device *device)
{
    struct ra__event ends[RA__CUDA_QUEUES];
    for (int i = 0; i < RA__CUDA_QUEUES; i++)
        RA__TRY(ra__cuda_queue_mark(&device->queues[i], &ends[i]));
    for (int i = 0; i < RA__CUDA_QUEUES; i++)
        for (int j = 0; j < RA__CUDA_QUEUES; j++)
            if (j != i)
                RA__CUDA_TRY(
                    cudaStreamWaitEvent(device->queues[j].stream, ra__cuda_event_of(&ends[i]), 0));
    return RA_OK;
}

ra_status ra__cuda_precede(void *opaque, void *stream)
{
    struct ra__cuda_device *device = opaque;
    struct ra__event end;
    RA__CUDA_VISIT(visit);
    RA__TRY(ra__cuda_enter(device, &visit));
    device->caller.follows = false;
    if (device->caller.own_compute) return leave_stream(device);
    RA__TRY(join_queues(device));
    for (int i = 0; i < RA__CUDA_QUEUES; i++) {
        RA__TRY(ra__cuda_queue_mark(&device->queues[i], &end));
        RA__CUDA_TRY(cudaStreamWaitEvent((cudaStream_t)stream, ra__cuda_event_of(&end), 0));
    }
    /* Any queue will do: each has waited for all others. */
    return mark_end(device, device->queues[RA__CUDA_COMPUTE].stream, false);
}

ra_status ra__cuda_finish(void *opaque, const struct ra__heartbeat *heartbeat)
{
    struct ra__cuda_device *device = opaque;
    struct ra__cuda_caller *caller = &device->caller;
    RA__CUDA_VISIT(visit);
    if (!caller->unfinished) return RA_OK;
    RA__TRY(ra__cuda_enter(device, &visit));
    RA__TRY(ra__cuda_wait_for(device, caller->end, heartbeat));
    caller->unfinished = false;
    return RA_OK;
}
