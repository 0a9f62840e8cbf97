/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - a GPU: its memory, streams as queues, events, and waiting for them. Streams of the
 * caller are in caller.c, contexts in context.c. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/cuda.h"
#include "core/clock.h"

ra_status ra__cuda_check(int error, const char *call)
{
    if (error == (int)cudaSuccess) return RA_OK;
    const int name = (int)strcspn(call, "(");
    cudaGetLastError(); /* a failed call must not be found again by the next one */
    return ra__cuda_fail(error == (int)cudaErrorMemoryAllocation ? RA_ERR_MEMORY : RA_ERR_SYSTEM,
                         "cuda: %.*s: %s", name, call, cudaGetErrorString((cudaError_t)error));
}

ra_status ra__cuda_facts_of(int number, struct ra__cuda_facts *out)
{
    struct cudaDeviceProp properties;
    int count = 0;
    RA__CUDA_TRY(cudaGetDeviceCount(&count));
    if (number >= count)
        return ra__cuda_fail(RA_ERR_ARGUMENT, "device: there is no cuda:%d; GPUs: %d", number,
                             count);
    RA__CUDA_TRY(cudaGetDeviceProperties(&properties, number));
    *out = (struct ra__cuda_facts){ .sm = 10 * properties.major + properties.minor,
                                    .sm_count = properties.multiProcessorCount,
                                    .shared_bytes = (int)properties.sharedMemPerBlockOptin,
                                    .l2_bytes = (uint64_t)properties.l2CacheSize,
                                    .memory = properties.totalGlobalMem };
    snprintf(out->name, sizeof out->name, "%.63s", properties.name);
    return RA_OK;
}

bool ra__cuda_is_on_device(const void *data)
{
    struct cudaPointerAttributes attributes;
    const cudaError_t error = cudaPointerGetAttributes(&attributes, data);
    if (error != cudaSuccess) cudaGetLastError();
    return error == cudaSuccess && attributes.type == cudaMemoryTypeDevice;
}

/* ---- Queues ---------------------------------------------------------------------------------- */

static ra_status open_queue(struct ra__cuda_queue *queue, int priority)
{
    RA__CUDA_TRY(cudaStreamCreateWithPriority(&queue->stream, cudaStreamNonBlocking, priority));
    for (int i = 0; i < RA__CUDA_RING; i++)
        RA__CUDA_TRY(cudaEventCreateWithFlags(&queue->ring[i], cudaEventDisableTiming));
    return RA_OK;
}

static void close_queue(struct ra__cuda_queue *queue)
{
    if (queue->stream) cudaStreamSynchronize(queue->stream);
    for (int i = 0; i < RA__CUDA_RING; i++)
        if (queue->ring[i]) cudaEventDestroy(queue->ring[i]);
    if (queue->stream) cudaStreamDestroy(queue->stream);
    cudaFree(queue->rows);
}

cudaEvent_t ra__cuda_event_of(const struct ra__event *event)
{
    const struct ra__cuda_queue *queue = event->source;
    return queue->ring[event->count % RA__CUDA_RING];
}

ra_status ra__cuda_queue_mark(struct ra__cuda_queue *queue, struct ra__event *done)
{
    *done = (struct ra__event){ queue, ++queue->issued };
    RA__CUDA_TRY(cudaEventRecord(ra__cuda_event_of(done), queue->stream));
    return RA_OK;
}

ra_status ra__cuda_queue_after(struct ra__cuda_queue *queue, const struct ra__launch *launch)
{
    for (int i = 0; i < launch->after_count; i++) {
        const struct ra__event *event = &launch->after[i];
        if (!event->source || event->source == queue) continue; /* a stream keeps its own order */
        RA__CUDA_TRY(cudaStreamWaitEvent(queue->stream, ra__cuda_event_of(event), 0));
    }
    return RA_OK;
}

bool ra__cuda_has_passed(const struct ra__event *event)
{
    if (!event->source) return true;
    const cudaError_t error = cudaEventQuery(ra__cuda_event_of(event));
    if (error != cudaSuccess) cudaGetLastError(); /* it is not for the next call that asks */
    return error == cudaSuccess;
}

/* What kernels found, as an error; not while it is being copied. */
ra_status ra__cuda_check_report(const struct ra__cuda_device *device)
{
    const struct ra__cuda_report *report = device->report;
    if (!ra__cuda_has_passed(&device->reported) || !report->coarse) return RA_OK;
    return ra__cuda_fail(RA_ERR_UNSUPPORTED,
                         "gradient: the LSE of query %lld of this rank, head %d, is %g; beyond %g "
                         "f32 is too coarse to recompute weights from it: make the scores smaller",
                         (long long)report->query, (int)report->head, (double)report->lse,
                         (double)0x1p20f);
}

/* Waking up takes 0.1 ms and more: a core is left to others only after a time that makes this
 * little. */
#define SPIN_SECONDS 5e-3

ra_status ra__cuda_wait_for(const struct ra__cuda_device *device, cudaEvent_t event,
                            const struct ra__heartbeat *heartbeat)
{
    enum { QUERIES = 256 }; /* between two heartbeats, less than a millisecond */
    const struct timespec moment = { 0, 50000 };
    const double start = ra__now();
    for (int64_t i = 1;; i++) {
        const cudaError_t error = cudaEventQuery(event);
        if (error == cudaSuccess) return ra__cuda_check_report(device);
        if (error != cudaErrorNotReady) return ra__cuda_check((int)error, "cudaEventQuery");
        cudaGetLastError();
        const bool sleeps = ra__now() - start > SPIN_SECONDS;
        if (sleeps || i % QUERIES == 0) RA__TRY(heartbeat->beat(heartbeat->context));
        if (sleeps) nanosleep(&moment, NULL);
    }
}

ra_status ra__cuda_wait(void *device, const struct ra__event *event,
                        const struct ra__heartbeat *heartbeat)
{
    return event->source ? ra__cuda_wait_for(device, ra__cuda_event_of(event), heartbeat) : RA_OK;
}

ra_status ra__cuda_host_after_queue(struct ra__cuda_device *device, struct ra__cuda_queue *queue,
                                    const struct ra__heartbeat *heartbeat)
{
    struct ra__event done;
    RA__TRY(ra__cuda_queue_mark(queue, &done));
    return ra__cuda_wait(device, &done, heartbeat);
}

ra_status ra__cuda_host_after(struct ra__cuda_device *device, const struct ra__launch *launch)
{
    for (int i = 0; i < launch->after_count; i++)
        RA__TRY(ra__cuda_wait(device, &launch->after[i], launch->heartbeat));
    return RA_OK;
}

void ra__cuda_synchronize(struct ra__cuda_device *device)
{
    ra__cuda_caller_synchronize(device);
    for (int i = 0; i < RA__CUDA_QUEUES; i++) cudaStreamSynchronize(device->queues[i].stream);
    cudaGetLastError();
}

/* On a stream of ours, and waited for: the next call may be on another one. */
static cudaError_t clear_report(struct ra__cuda_device *device)
{
    cudaStream_t stream = device->queues[RA__CUDA_COMPUTE].stream;
    device->reported = (struct ra__event){ NULL, 0 };
    memset(device->report, 0, sizeof *device->report);
    const cudaError_t error = cudaMemsetAsync(device->found, 0, sizeof *device->found, stream);
    return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

void ra__cuda_drain(void *opaque)
{
    struct ra__cuda_device *device = opaque;
    RA__CUDA_VISIT(visit);
    if (!ra__cuda_enter_quietly(device, &visit)) return;
    ra__cuda_synchronize(device);
    ra__cuda_caller_reset(device);
    clear_report(device);
    cudaGetLastError();
}

/* ---- Messages -------------------------------------------------------------------------------- */

ra_status ra__cuda_copy(void *opaque, void *to, const void *from, size_t bytes)
{
    struct ra__cuda_device *device = opaque;
    cudaStream_t stream = device->queues[RA__CUDA_LOAD].stream;
    RA__CUDA_VISIT(visit);
    RA__TRY(ra__cuda_enter(device, &visit));
    RA__CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    RA__CUDA_TRY(cudaStreamSynchronize(stream));
    return RA_OK;
}

/* ---- The device ------------------------------------------------------------------------------ */

/* Kernels of attention fill the GPU, and other kernels wait in line. Loads, stores and copies come
 * first: copies within the GPU are kernels, too, which would wait for the attention of all other
 * ranks while their own rank waits for them. Ranks that share the GPU are equal, and their launches
 * run in the order in which they become ready; but for gradients of uneven rings. Under causal the
 * sums of the first rank are added to by most others, one after the other, so it comes first. */
static ra_status priority_of(enum ra__cuda_queue_name name,
                             const struct ra__device_options *options, int *priority)
{
    int least, greatest; /* the greatest is the smallest number */
    RA__CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    *priority = greatest;
    if (name == RA__CUDA_COMPUTE) *priority = least;
    if (name == RA__CUDA_GRADIENT)
        *priority = greatest -
                    (greatest - least) * (options->turn + 1) / ra__max(options->sharers, 1);
    return RA_OK;
}

static ra_status open_device(struct ra__cuda_device *device,
                             const struct ra__device_options *options)
{
    RA__CUDA_VISIT(visit);
    RA__TRY(ra__cuda_facts_of(device->number, &device->facts));
    RA__TRY(ra__cuda_first_enter(device, &visit));
    RA__CUDA_TRY(cudaMalloc((void **)&device->found, sizeof *device->found));
    RA__CUDA_TRY(cudaMallocHost((void **)&device->report, sizeof *device->report));
    RA__TRY(ra__cuda_caller_open(device));
    for (int i = 0; i < RA__CUDA_QUEUES; i++) {
        int priority;
        RA__TRY(priority_of((enum ra__cuda_queue_name)i, options, &priority));
        RA__TRY(open_queue(&device->queues[i], priority));
    }
    RA__CUDA_TRY(clear_report(device));
    return RA_OK;
}

ra_status ra__cuda_open(const struct ra__device_options *options, void **out)
{
    struct ra__cuda_device *device = ra__cuda_host->alloc(sizeof *device);
    if (!device) return ra__cuda_fail(RA_ERR_MEMORY, "device: %zu bytes", sizeof *device);
    device->number = options->number;
    const ra_status status = open_device(device, options);
    if (status == RA_OK) *out = device;
    else ra__cuda_close(device);
    return status;
}

static void close_all(struct ra__cuda_device *device)
{
    for (int i = 0; i < RA__CUDA_QUEUES; i++) close_queue(&device->queues[i]);
    ra__cuda_caller_close(device);
    cudaFree(device->narrow);
    for (int i = 0; i < 2; i++) cudaFreeHost(device->staging[i].rows);
    cudaFree(device->found);
    cudaFreeHost(device->report);
    cudaGetLastError();
}

void ra__cuda_close(void *opaque)
{
    struct ra__cuda_device *device = opaque;
    RA__CUDA_VISIT(visit);
    if (!device) return;
    if (ra__cuda_enter_quietly(device, &visit)) close_all(device);
    ra__cuda_host->free(device);
}

void *ra__cuda_alloc(void *opaque, size_t bytes)
{
    void *memory = NULL;
    RA__CUDA_VISIT(visit);
    if (ra__cuda_enter(opaque, &visit) != RA_OK) return NULL;
    if (cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
    cudaGetLastError();
    return NULL;
}

void ra__cuda_free(void *opaque, void *memory, size_t bytes)
{
    (void)bytes;
    RA__CUDA_VISIT(visit);
    if (ra__cuda_enter_quietly(opaque, &visit) && cudaFree(memory) != cudaSuccess)
        cudaGetLastError();
}

/* Errors are of no consequence, and are not left to the next call. */
void ra__cuda_pin(void *opaque, void *memory, size_t bytes)
{
    RA__CUDA_VISIT(visit);
    if (!ra__cuda_enter_quietly(opaque, &visit)) return;
    if (cudaHostRegister(memory, bytes, cudaHostRegisterDefault) != cudaSuccess) cudaGetLastError();
}

void ra__cuda_unpin(void *opaque, void *memory)
{
    RA__CUDA_VISIT(visit);
    if (!ra__cuda_enter_quietly(opaque, &visit)) return;
    if (cudaHostUnregister(memory) != cudaSuccess) cudaGetLastError();
}
