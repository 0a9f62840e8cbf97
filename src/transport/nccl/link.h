/* SPDX-License-Identifier: Apache-2.0 */
/* link.h - one rank's end of a group of GPUs that NCCL connects.
 *
 *     meet.c    which rank a process is, and how ranks get the id by which NCCL connects them
 *     join.c    communicators, and the reverse
 *     round.c   messages
 *
 * Calls of NCCL do not block: every one is waited for with a limit, so that a rank that is gone
 * ends in an error. Only the rank's own thread calls NCCL. */
#ifndef RA__TRANSPORT_NCCL_LINK_H
#define RA__TRANSPORT_NCCL_LINK_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "core/plugin.h"
#include "transport/nccl/meet.h"
#include "transport/transport.h"

struct link {
    struct place place;
    double timeout; /* seconds */
    int hop;        /* for error sentences */
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t done; /* of the messages of the round */
    /* Messages in host memory pass through memory of the GPU. */
    char *staging;
    size_t staging_bytes;
    atomic_bool aborted;
    pthread_mutex_t lock; /* guards reason */
    char reason[512];
};

/* The functions of the library; set before any other call. */
extern const struct ra__host *nccl_host;
#define nccl_fail(status, ...) (nccl_host->set_error(__VA_ARGS__), (status))

/* RA_OK, or RA_ERR_SYSTEM with a sentence. The link may be NULL. */
ra_status nccl_check(const struct link *link, ncclResult_t result, const char *what);
ra_status nccl_check_cuda(const struct link *link, cudaError_t error, const char *what);

/* Until the last call of NCCL is complete, or the group was aborted, or the timeout has passed.
 * After a failure there is no communicator any more. */
ra_status nccl_settle(struct link *link, ncclResult_t result, const char *what);
ra_status nccl_alive(struct link *link);
void nccl_give_up(struct link *link);

/* struct ra__transport. */
ra_status nccl_join(const void *where, const struct ra__link_options *options, void **link,
                    struct ra__place *place);
ra_status nccl_post(void *link, struct ra__round *round);
ra_status nccl_wait(void *link, struct ra__round *round);
ra_status nccl_poll(void *link);
bool nccl_extend(void *link, const struct ra__reach *reach);
void nccl_abort(void *link, ra_status status, const char *reason);
void nccl_close(void *link);

#endif
