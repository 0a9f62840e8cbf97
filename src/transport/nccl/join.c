/* SPDX-License-Identifier: Apache-2.0 */
/* join.c - how a process becomes a rank: the GPU, the communicator. And how it leaves. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "ringattn_nccl.h"
#include "transport/nccl/link.h"

_Static_assert(RA_NCCL_ID_BYTES == sizeof(ncclUniqueId), "the id of the public header");

ra_status nccl_check(const struct link *link, ncclResult_t result, const char *what)
{
    if (result == ncclSuccess || result == ncclInProgress) return RA_OK;
    if (!link || !link->comm)
        return nccl_fail(RA_ERR_SYSTEM, "nccl transport: %s failed: %s", what,
                         ncclGetErrorString(result));
    return nccl_fail(RA_ERR_SYSTEM, "rank %d, hop %d: %s failed: %s: %s", link->place.rank,
                     link->hop, what, ncclGetErrorString(result), ncclGetLastError(link->comm));
}

ra_status nccl_check_cuda(const struct link *link, cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return RA_OK;
    cudaGetLastError();
    return nccl_fail(RA_ERR_SYSTEM, "rank %d, hop %d: nccl transport: %s failed: %s",
                     link->place.rank, link->hop, what, cudaGetErrorString(error));
}

/* ---- A communicator that does not answer ----------------------------------------------------- */

/* Kernels that wait for a peer end with it, so nothing uses the buffers any more. */
void nccl_give_up(struct link *link)
{
    if (link->comm) ncclCommAbort(link->comm);
    if (link->comm) cudaStreamSynchronize(link->stream); /* copies to and from the host */
    link->comm = NULL;
}

ra_status nccl_alive(struct link *link)
{
    if (atomic_load(&link->aborted)) {
        pthread_mutex_lock(&link->lock);
        const ra_status status = nccl_fail(RA_ERR_ABORTED,
                                           "rank %d, hop %d: the group was aborted: %s",
                                           link->place.rank, link->hop, link->reason);
        pthread_mutex_unlock(&link->lock);
        nccl_give_up(link);
        return status;
    }
    if (link->comm) return RA_OK;
    return nccl_fail(RA_ERR_SYSTEM, "rank %d: the group failed before and cannot be used",
                     link->place.rank);
}

ra_status nccl_settle(struct link *link, ncclResult_t result, const char *what)
{
    const double since = ra__now();
    while (result == ncclInProgress) {
        RA__TRY(nccl_alive(link));
        if (ra__now() - since > link->timeout) {
            nccl_give_up(link);
            return nccl_fail(RA_ERR_TIMEOUT,
                             "rank %d, hop %d: %s was not complete within %.3g seconds; are all %d "
                             "ranks there?",
                             link->place.rank, link->hop, what, link->timeout, link->place.ranks);
        }
        ra__backoff(since);
        if (ncclCommGetAsyncError(link->comm, &result) != ncclSuccess) result = ncclInternalError;
    }
    const ra_status status = nccl_check(link, result, what);
    if (status != RA_OK) nccl_give_up(link);
    return status;
}

/* ---- Joining --------------------------------------------------------------------------------- */

static ra_status check_where(const ra_nccl_where *where)
{
    if (where->size != sizeof *where || where->reserved)
        return nccl_fail(RA_ERR_ARGUMENT, "nccl transport: call ra_nccl_where_default() and set "
                                          "fields of `where` by name");
    if (where->ranks < 1 || where->rank < 0 || where->rank >= where->ranks)
        return nccl_fail(RA_ERR_ARGUMENT, "nccl transport: rank %d of %d ranks", where->rank,
                         where->ranks);
    if (where->ranks > 1 && !where->path == !where->id)
        return nccl_fail(RA_ERR_ARGUMENT,
                         "nccl transport: give either the path of a file or an id");
    return RA_OK;
}

/* The GPU that a rank has by its number on its host. */
static ra_status find_device(struct link *link)
{
    int count = 0;
    RA__TRY(nccl_check_cuda(link, cudaGetDeviceCount(&count), "cudaGetDeviceCount"));
    if (link->place.device < 0) link->place.device = 0;
    if (count > 0) link->place.device %= count;
    return RA_OK;
}

/* Where this rank is, and the file by which ranks meet; "": none is needed. */
static ra_status find_place(struct link *link, const ra_nccl_where *where, char *path, size_t room)
{
    static atomic_int joined; /* groups of processes that were started together, in their order */
    *path = '\0';
    if (where) {
        RA__TRY(check_where(where));
        link->place = (struct place){ where->rank, where->ranks, where->device };
        if (!where->path || snprintf(path, room, "%s", where->path) < (int)room) return RA_OK;
        return nccl_fail(RA_ERR_ARGUMENT, "nccl transport: the path is too long");
    }
    const char *why = meet_launched(&link->place);
    if (why) return nccl_fail(RA_ERR_ARGUMENT, "nccl transport: %s", why);
    RA__TRY(find_device(link));
    if (link->place.ranks == 1 || meet_path(path, room, atomic_fetch_add(&joined, 1))) return RA_OK;
    return nccl_fail(RA_ERR_ARGUMENT, "nccl transport: RINGATTN_NCCL_FILE is too long");
}

/* *written: rank 0 has made the file, and removes it when all have met. */
static ra_status find_id(struct link *link, const ra_nccl_where *where, const char *path,
                         ncclUniqueId *id, bool *written)
{
    const char *why = NULL;
    if (where && where->id) {
        memcpy(id, where->id, sizeof *id);
        return RA_OK;
    }
    if (link->place.rank == 0) RA__TRY(nccl_check(NULL, ncclGetUniqueId(id), "ncclGetUniqueId"));
    if (*path)
        why = link->place.rank == 0 ? meet_write(path, id, sizeof *id)
                                    : meet_read(path, id, sizeof *id, link->timeout);
    *written = *path && link->place.rank == 0 && !why;
    return why ? nccl_fail(RA_ERR_SYSTEM, "rank %d: nccl transport: %s", link->place.rank, why)
               : RA_OK;
}

static ra_status connect(struct link *link, const ra_nccl_where *where, const char *path,
                         bool *written)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 0;
    RA__TRY(find_id(link, where, path, &id, written));
    RA__TRY(nccl_check_cuda(link, cudaSetDevice(link->place.device), "cudaSetDevice"));
    RA__TRY(nccl_check_cuda(link, cudaStreamCreateWithFlags(&link->stream, cudaStreamNonBlocking),
                            "cudaStreamCreate"));
    RA__TRY(nccl_check_cuda(link, cudaEventCreateWithFlags(&link->done, cudaEventDisableTiming),
                            "cudaEventCreate"));
    const ncclResult_t result = ncclCommInitRankConfig(&link->comm, link->place.ranks, id,
                                                       link->place.rank, &config);
    return nccl_settle(link, result, "connecting the ranks");
}

ra_status nccl_join(const void *where, const struct ra__link_options *options, void **out,
                    struct ra__place *place)
{
    char path[PATH_MAX];
    bool written = false;
    if (options->checksum)
        return nccl_fail(RA_ERR_UNSUPPORTED, "transport nccl: checksums are not supported");
    struct link *link = nccl_host->alloc(sizeof *link);
    if (!link) return nccl_fail(RA_ERR_MEMORY, "nccl transport: %zu bytes", sizeof *link);
    link->timeout = options->timeout;
    pthread_mutex_init(&link->lock, NULL);
    ra_status status = find_place(link, where, path, sizeof path);
    if (status == RA_OK) status = connect(link, where, path, &written);
    if (written) meet_forget(path);
    if (status != RA_OK) {
        nccl_close(link);
        return status;
    }
    *place = (struct ra__place){ link->place.rank, link->place.ranks, 1, 0 };
    *out = link;
    return RA_OK;
}

void nccl_close(void *opaque)
{
    struct link *link = opaque;
    if (!link) return;
    cudaSetDevice(link->place.device);
    if (link->comm && !atomic_load(&link->aborted) &&
        nccl_settle(link, ncclCommFinalize(link->comm), "leaving the group") == RA_OK)
        ncclCommDestroy(link->comm);
    else nccl_give_up(link);
    if (link->done) cudaEventDestroy(link->done);
    if (link->stream) cudaStreamDestroy(link->stream);
    cudaFree(link->staging);
    cudaGetLastError();
    pthread_mutex_destroy(&link->lock);
    nccl_host->free(link);
}
