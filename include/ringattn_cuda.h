/* SPDX-License-Identifier: Apache-2.0 */
/* ringattn_cuda.h - attention on GPUs of NVIDIA, by the same calls as on a CPU.
 *
 *     ra_group_options   device = "cuda" or "cuda:N"; on_device = 1 if tensors are in its memory
 *     ra_attend_args     queue = the caller's stream, or NULL
 *     ra_gradient_args   likewise
 *
 * DEVICE  A rank computes on one GPU; ranks of one process may share it. The GPU's part of the
 * library is a plug-in, found at run time: RA_ERR_UNSUPPORTED where it, a driver or a GPU is
 * missing.
 *
 * MEMORY  With on_device, all tensors of a call, LSE included, are device memory. Without it they
 * are host memory, pageable or pinned, and are copied to the GPU and back; device memory works too,
 * with a copy on the device. Sinks, a bias, the gradients of both, and counts of keys may be on
 * either side; a bias in host memory is copied once per call, beside the memory of the plan. With
 * counts, K and V in host memory have room for all k_len keys, since all are copied. Only plain
 * device memory is allocated, never managed memory.
 *
 * STREAMS  Without a queue, a call starts after what is on the default stream, and returns when its
 * results are complete. It waits as a kernel on that stream would: also for every stream of the GPU
 * that was made without cudaStreamNonBlocking, and it ends a capture of such a stream. Ranks that
 * exchange messages of their own on such streams should pass a queue.
 *
 * With a queue, a cudaStream_t, the work of a call starts after what is on that stream, what is put
 * there later starts after it, and the call returns when everything is issued; a stream of a group
 * of several ranks also waits for messages, and, where they are threads that share a GPU, for the
 * attention of ranks that read its keys. An error of the device that is found after the call has
 * returned is returned by a later call of that group. Tensors stay in use until the stream has
 * passed.
 *
 * There is no event to ask for: record one of your own on the stream after the call.
 *
 * GRAPHS  Calls of one rank can be captured in a CUDA graph, in groups with on_device. Sinks, a
 * bias, counts of keys and gradients are then in device memory, too: a graph would use what the
 * host had when it was captured, so others are refused. A graph uses the memory of its plan: keep
 * the plan as long as the graph, and do not let a launch of the graph run at the same time as
 * another call of that group. An error that a launch finds is returned by a later call of the
 * group that is not captured.
 *
 * RESETS  cudaDeviceReset() takes away the memory, streams and events of groups on that GPU. From
 * then on their calls fail with RA_ERR_SYSTEM: destroy plans and groups, and make new ones. Where
 * the plug-in was built by a CUDA before 12.5, they crash. A GPU must not be reset while a call is
 * running, nor under groups that the transport nccl connects. */
#ifndef RINGATTN_CUDA_H
#define RINGATTN_CUDA_H

#include "ringattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A stream as the queue of a call; the default stream is not NULL here. */
static inline void *ra_cuda_queue(void *stream)
{
    return stream ? stream : (void *)0x1; /* cudaStreamLegacy */
}

#ifdef __cplusplus
}
#endif
#endif
