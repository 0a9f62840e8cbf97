/* SPDX-License-Identifier: Apache-2.0 */
/* ringattn_transport.h - ranks whose messages the caller sends. Part of ringattn.h, which includes
 * it. */
#ifndef RINGATTN_TRANSPORT_H
#define RINGATTN_TRANSPORT_H

#include "ringattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Custom transports ----------------------------------------------------------------------- */
/* A message of a custom transport. */
typedef struct ra_message {
    int peer; /* the other rank */
    int tag;  /* the n-th send of a tag to a rank matches its n-th receive of that tag */
    void *data;
    size_t bytes; /* the same on both sides */
} ra_message;

/* Bytes between ranks, sent by the caller. `post` starts sends and receives and returns at once.
 * Their buffers stay in use until `wait` has returned for the ticket, before the next post. If
 * either fails, the run ends; give the reason with ra_transport_error(). */
typedef struct ra_transport_callbacks {
    size_t size; /* by ra_transport_callbacks_default() */
    void *context;
    ra_status (*post)(void *context, const ra_message *sends, int send_count,
                      const ra_message *recvs, int recv_count, void **ticket);
    ra_status (*wait)(void *context, void *ticket, double timeout);
    ra_status (*poll)(void *context); /* often, during work: heartbeat, progress; may be NULL */
    void (*abort)(void *context, const char *reason); /* tell the peers; any thread; may be NULL */
    void (*close)(void *context);                     /* by ra_group_destroy(); may be NULL */
} ra_transport_callbacks;
RA_DEFAULT_(ra_transport_callbacks)

/* Sets ra_last_error() from inside a callback and returns `status`. */
RA_API ra_status ra_transport_error(ra_status status, const char *text);
/* Rank `rank` of `ranks`, whose messages the caller sends. It has no checksums. */
RA_API ra_status ra_group_create_custom(int ranks, int rank,
                                        const ra_transport_callbacks *callbacks,
                                        const ra_group_options *options, ra_group **out);

#ifdef __cplusplus
}
#endif

#endif
