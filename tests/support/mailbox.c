/* SPDX-License-Identifier: Apache-2.0 */
/* mailbox.c - see mailbox.h. */
#include "support/mailbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct letter {
    struct letter *next;
    int from, to, tag;
    size_t bytes;
    char data[];
};

void mailbox_open(struct mailbox *box, struct mailbox_rank *ranks, int count)
{
    *box = (struct mailbox){ .lock = PTHREAD_MUTEX_INITIALIZER };
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&box->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (int rank = 0; rank < count; rank++)
        ranks[rank] = (struct mailbox_rank){ .box = box,
                                             .rank = rank,
                                             .words = "the post office burns" };
}

void mailbox_close(struct mailbox *box, struct mailbox_rank *ranks, int count)
{
    for (struct letter *letter = box->letters, *next; letter; letter = next) {
        next = letter->next;
        free(letter);
    }
    for (int rank = 0; rank < count; rank++) free(ranks[rank].due);
    pthread_cond_destroy(&box->changed);
    pthread_mutex_destroy(&box->lock);
}

static ra_status fail(const struct mailbox_rank *self)
{
    return self->words ? ra_transport_error(RA_ERR_SYSTEM, self->words) : RA_ERR_SYSTEM;
}

/* Under the lock. */
static void send_letter(struct mailbox *box, int from, const ra_message *message)
{
    struct letter *letter = malloc(sizeof *letter + message->bytes), **end = &box->letters;
    if (!letter) abort();
    *letter = (struct letter){ NULL, from, message->peer, message->tag, message->bytes };
    if (message->bytes) memcpy(letter->data, message->data, message->bytes);
    while (*end) end = &(*end)->next;
    *end = letter;
}

/* Under the lock: true if the letter was there. */
static bool take_letter(struct mailbox *box, int to, const ra_message *message)
{
    for (struct letter **at = &box->letters; *at; at = &(*at)->next) {
        struct letter *letter = *at;
        if (letter->to != to || letter->from != message->peer || letter->tag != message->tag)
            continue;
        if (letter->bytes) memcpy(message->data, letter->data, letter->bytes);
        *at = letter->next;
        free(letter);
        return true;
    }
    return false;
}

static ra_status mailbox_post(void *context, const ra_message *sends, int send_count,
                              const ra_message *recvs, int recv_count, void **ticket)
{
    struct mailbox_rank *self = context;
    if (++self->posts == self->fail_at_post) return fail(self);
    free(self->due);
    self->due = malloc(sizeof *recvs * (size_t)recv_count + 1);
    if (!self->due) abort();
    if (recv_count) memcpy(self->due, recvs, sizeof *recvs * (size_t)recv_count);
    self->due_count = recv_count;
    *ticket = self;
    pthread_mutex_lock(&self->box->lock);
    for (int i = 0; i < send_count; i++) send_letter(self->box, self->rank, &sends[i]);
    pthread_cond_broadcast(&self->box->changed);
    pthread_mutex_unlock(&self->box->lock);
    return RA_OK;
}

/* Under the lock: waits for one letter. */
static ra_status await_letter(struct mailbox_rank *self, const ra_message *message,
                              const struct timespec *until)
{
    struct mailbox *box = self->box;
    while (!box->aborted && !take_letter(box, self->rank, message)) {
        if (pthread_cond_timedwait(&box->changed, &box->lock, until) == 0) continue;
        char text[64];
        snprintf(text, sizeof text, "no letter from rank %d", message->peer);
        return ra_transport_error(RA_ERR_TIMEOUT, text);
    }
    return box->aborted ? ra_transport_error(RA_ERR_PEER, box->reason) : RA_OK;
}

static ra_status mailbox_wait(void *context, void *ticket, double timeout)
{
    struct mailbox_rank *self = ticket;
    (void)context;
    if (++self->waits == self->fail_at_wait) return fail(self);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double end = (double)until.tv_sec + 1e-9 * (double)until.tv_nsec + timeout;
    until.tv_sec = (time_t)end;
    until.tv_nsec = (long)((end - (double)until.tv_sec) * 1e9);
    ra_status status = RA_OK;
    pthread_mutex_lock(&self->box->lock);
    for (int i = 0; i < self->due_count && status == RA_OK; i++)
        status = await_letter(self, &self->due[i], &until);
    pthread_mutex_unlock(&self->box->lock);
    return status;
}

static ra_status mailbox_poll(void *context)
{
    struct mailbox_rank *self = context;
    if (++self->polls == self->fail_at_poll) return fail(self);
    pthread_mutex_lock(&self->box->lock);
    ra_status status = self->box->aborted ? ra_transport_error(RA_ERR_PEER, self->box->reason)
                                          : RA_OK;
    pthread_mutex_unlock(&self->box->lock);
    return status;
}

static void mailbox_abort(void *context, const char *reason)
{
    struct mailbox_rank *self = context;
    pthread_mutex_lock(&self->box->lock);
    self->aborts++;
    snprintf(self->told, sizeof self->told, "%s", reason);
    if (!self->box->aborted) snprintf(self->box->reason, sizeof self->box->reason, "%s", reason);
    self->box->aborted = true;
    pthread_cond_broadcast(&self->box->changed);
    pthread_mutex_unlock(&self->box->lock);
}

static void mailbox_close_rank(void *context) { ((struct mailbox_rank *)context)->closes++; }

ra_transport_callbacks mailbox_callbacks(struct mailbox_rank *rank)
{
    ra_transport_callbacks calls = ra_transport_callbacks_default();
    calls.context = rank;
    calls.post = mailbox_post;
    calls.wait = mailbox_wait;
    calls.poll = mailbox_poll;
    calls.abort = mailbox_abort;
    calls.close = mailbox_close_rank;
    return calls;
}
