/* SPDX-License-Identifier: Apache-2.0 */
/* round.c - the messages of a round.
 *
 * NCCL has no tags: between two ranks the n-th send is received by the n-th receive. Rounds of all
 * ranks list the messages between two of them in one order, so none is needed; tests/ring/late
 * checks that with a transport that ignores tags. All messages of a round start together, as one
 * group of NCCL's, so no order of sends and receives can block. */
#include <stdio.h>

#include "core/clock.h"
#include "transport/nccl/link.h"

enum { ALIGNMENT = 256 };

static size_t padded(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* The state of a message: where its bytes are. Asked once, when it is posted. */
enum { ON_HOST, ON_DEVICE };

static ra_status find_memory(struct link *link, struct ra__message *m, bool send, char *at)
{
    struct cudaPointerAttributes facts;
    (void)send;
    (void)at;
    RA__TRY(nccl_check_cuda(link, cudaPointerGetAttributes(&facts, m->data),
                            "cudaPointerGetAttributes"));
    m->state = facts.type == cudaMemoryTypeDevice ? ON_DEVICE : ON_HOST;
    if (m->state == ON_HOST || facts.device == link->place.device) return RA_OK;
    return nccl_fail(RA_ERR_ARGUMENT,
                     "rank %d, hop %d: it computes on cuda:%d, but NCCL connects its GPU %d; give "
                     "every process a GPU of its own, for example by CUDA_VISIBLE_DEVICES",
                     link->place.rank, m->hop, facts.device, link->place.device);
}

/* Calls `visit` with every message that has bytes, and where they are for NCCL: in place, or in the
 * staging memory, of which *used is taken. */
typedef ra_status visit_function(struct link *link, struct ra__message *message, bool send,
                                 char *at);

static ra_status each(struct link *link, struct ra__round *round, visit_function *visit,
                      size_t *used)
{
    *used = 0;
    for (int i = 0; i < round->send_count + round->recv_count; i++) {
        const bool send = i < round->send_count;
        struct ra__message *m = send ? &round->sends[i] : &round->recvs[i - round->send_count];
        if (m->bytes == 0) continue;
        char *staged = link->staging ? link->staging + *used : NULL;
        RA__TRY(visit(link, m, send, m->state == ON_DEVICE ? m->data : staged));
        if (m->state == ON_HOST) *used += padded(m->bytes);
    }
    return RA_OK;
}

/* ---- Memory that messages of the host pass through ------------------------------------------- */

static ra_status take_staging(struct link *link, struct ra__round *round)
{
    size_t bytes;
    RA__TRY(each(link, round, find_memory, &bytes));
    if (bytes <= link->staging_bytes) return RA_OK;
    cudaFree(link->staging);
    link->staging = NULL;
    link->staging_bytes = 0;
    if (cudaMalloc((void **)&link->staging, bytes) != cudaSuccess) {
        cudaGetLastError();
        return nccl_fail(RA_ERR_MEMORY, "rank %d: nccl transport: %zu bytes of GPU memory",
                         link->place.rank, bytes);
    }
    link->staging_bytes = bytes;
    return RA_OK;
}

static ra_status fill_staging(struct link *link, struct ra__message *m, bool send, char *at)
{
    if (!send || at == m->data) return RA_OK;
    return nccl_check_cuda(link,
                           cudaMemcpyAsync(at, m->data, m->bytes, cudaMemcpyDefault, link->stream),
                           "a copy to the GPU");
}

static ra_status empty_staging(struct link *link, struct ra__message *m, bool send, char *at)
{
    if (send || at == m->data) return RA_OK;
    return nccl_check_cuda(link,
                           cudaMemcpyAsync(m->data, at, m->bytes, cudaMemcpyDefault, link->stream),
                           "a copy from the GPU");
}

/* ---- A round --------------------------------------------------------------------------------- */

static ra_status start_message(struct link *link, struct ra__message *m, bool send, char *at)
{
    const ncclResult_t result = send ? ncclSend(at, m->bytes, ncclUint8, m->peer, link->comm,
                                                link->stream)
                                     : ncclRecv(at, m->bytes, ncclUint8, m->peer, link->comm,
                                                link->stream);
    return nccl_check(link, result, send ? "a send" : "a receive");
}

static ra_status start_all(struct link *link, struct ra__round *round)
{
    size_t used;
    RA__TRY(take_staging(link, round));
    RA__TRY(each(link, round, fill_staging, &used));
    RA__TRY(nccl_check(link, ncclGroupStart(), "ncclGroupStart"));
    const ra_status status = each(link, round, start_message, &used);
    const ncclResult_t ended = ncclGroupEnd(); /* also after a failure, or the group stays open */
    RA__TRY(status);
    RA__TRY(nccl_settle(link, ended, "starting the messages"));
    return nccl_check_cuda(link, cudaEventRecord(link->done, link->stream), "cudaEventRecord");
}

ra_status nccl_post(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    link->hop = round->hop;
    RA__TRY(nccl_alive(link));
    RA__TRY(nccl_check_cuda(link, cudaSetDevice(link->place.device), "cudaSetDevice"));
    const ra_status status = start_all(link, round);
    if (status != RA_OK) nccl_give_up(link);
    return status;
}

/* Some peer of the round, for sentences. */
static int peer_of(const struct ra__round *round)
{
    return round->recv_count ? round->recvs[0].peer : round->send_count ? round->sends[0].peer : -1;
}

static ra_status await(struct link *link, const struct ra__round *round)
{
    for (double since = ra__now();; ra__backoff(since)) {
        ncclResult_t result = ncclSuccess;
        const cudaError_t error = cudaEventQuery(link->done);
        if (error == cudaSuccess) return RA_OK;
        if (error != cudaErrorNotReady) return nccl_check_cuda(link, error, "a round");
        cudaGetLastError();
        RA__TRY(nccl_alive(link));
        RA__TRY(nccl_check(link, ncclCommGetAsyncError(link->comm, &result), "a round"));
        RA__TRY(nccl_check(link, result, "a round"));
        if (ra__now() - since > link->timeout)
            return nccl_fail(RA_ERR_TIMEOUT,
                             "rank %d, hop %d: rank %d did not send or receive within %.3g seconds",
                             link->place.rank, link->hop, peer_of(round), link->timeout);
    }
}

ra_status nccl_wait(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    size_t used;
    RA__TRY(nccl_alive(link));
    ra_status status = await(link, round);
    if (status == RA_OK) status = each(link, round, empty_staging, &used);
    if (status == RA_OK)
        status = nccl_check_cuda(link, cudaStreamSynchronize(link->stream), "a copy from the GPU");
    if (status != RA_OK) nccl_give_up(link);
    return status;
}

ra_status nccl_poll(void *opaque)
{
    struct link *link = opaque;
    return atomic_load_explicit(&link->aborted, memory_order_relaxed) ? nccl_alive(link) : RA_OK;
}

/* Memory of a GPU is reached by NCCL itself. */
bool nccl_extend(void *link, const struct ra__reach *reach)
{
    (void)link;
    return reach->cuda_memory;
}

/* Any thread: the rank's own one will notice. Others end at their timeout. */
void nccl_abort(void *opaque, ra_status status, const char *reason)
{
    struct link *link = opaque;
    (void)status;
    pthread_mutex_lock(&link->lock);
    if (!atomic_load(&link->aborted)) snprintf(link->reason, sizeof link->reason, "%s", reason);
    atomic_store(&link->aborted, true);
    pthread_mutex_unlock(&link->lock);
}
