/* SPDX-License-Identifier: Apache-2.0 */
/* paced.c - the local transport with a wire of limited speed between the ranks, to see what a
 * slower network would cost. A round is done when its bytes have had the time they need. */
#include <time.h>

#include "core/clock.h"
#include "core/memory.h"
#include "transport/transport.h"

#define BYTES_PER_SECOND 1e6

static const struct ra__transport *const wire = &ra__transport_local;

struct link {
    void *inner;
    double ready; /* when the bytes of the newest round will have arrived */
};

static void paced_close(void *opaque)
{
    struct link *link = opaque;
    if (!link) return;
    wire->close(link->inner);
    ra__free(link);
}

/* Puts a link of ours round each of theirs; after a failure all are closed. */
static ra_status paced_open(int ranks, const struct ra__link_options *options, void **links)
{
    RA__TRY(wire->open(ranks, options, links));
    for (int i = 0; i < ranks; i++) {
        struct link *link = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *link);
        if (!link) {
            for (int j = 0; j < ranks; j++) (j < i ? paced_close : wire->close)(links[j]);
            return ra__fail(RA_ERR_MEMORY, "paced transport: %zu bytes", sizeof *link);
        }
        link->inner = links[i];
        links[i] = link;
    }
    return RA_OK;
}

static ra_status paced_post(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    size_t bytes = 0;
    for (int i = 0; i < round->recv_count; i++) bytes += round->recvs[i].bytes;
    link->ready = ra__now() + (double)bytes / BYTES_PER_SECOND;
    return wire->post(link->inner, round);
}

/* Sends heartbeats while it waits: a rank that sleeps without them would be taken for lost. */
static ra_status paced_wait(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    ra_status status = wire->wait(link->inner, round);
    while (status == RA_OK && ra__now() < link->ready) {
        nanosleep(&(struct timespec){ 0, 20000 }, NULL);
        status = wire->poll(link->inner);
    }
    return status;
}

static ra_status paced_poll(void *opaque) { return wire->poll(((struct link *)opaque)->inner); }

static void paced_abort(void *opaque, ra_status status, const char *reason)
{
    wire->abort(((struct link *)opaque)->inner, status, reason);
}

const struct ra__transport ra__transport_paced = {
    .name = "paced",
    .summary = "as local, over a wire of 1 MB/s",
    .open = paced_open,
    .post = paced_post,
    .wait = paced_wait,
    .poll = paced_poll,
    .abort = paced_abort,
    .close = paced_close,
};
