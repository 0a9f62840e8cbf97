/* SPDX-License-Identifier: Apache-2.0 */
/* mailbox.h - a custom transport for tests: messages in one box in this process, by the public
 * callbacks only. It can be told to fail at a call, and counts its calls. */
#ifndef TESTS_SUPPORT_MAILBOX_H
#define TESTS_SUPPORT_MAILBOX_H

#include <pthread.h>
#include <stdbool.h>

#include "ringattn.h"

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct letter *letters; /* oldest first */
    bool aborted;
    char reason[512];
};

/* Calls are counted from 1; fail_at_* = 0 means never. */
struct mailbox_rank {
    struct mailbox *box;
    int rank;
    ra_message *due; /* receives of the round under way */
    int due_count;
    int posts, waits, polls, aborts, closes;
    int fail_at_post, fail_at_wait, fail_at_poll;
    const char *words; /* of the failure; NULL = it says nothing */
    char told[512];    /* the reason given to abort */
};

void mailbox_open(struct mailbox *box, struct mailbox_rank *ranks, int count);
void mailbox_close(struct mailbox *box, struct mailbox_rank *ranks, int count);

/* The callbacks of one rank. */
ra_transport_callbacks mailbox_callbacks(struct mailbox_rank *rank);

#endif
