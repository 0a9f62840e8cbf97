/* SPDX-License-Identifier: Apache-2.0 */
/* copier.c - LOAD and STORE: copies between the tensors of the caller and buffers, by a thread of
 * their own, in the order in which they are issued. Tensors are in memory, or their rows are read
 * and written by callbacks. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/cpu.h"

enum { QUEUE = 64 };

/* A step that waits to be copied. What it points to stays until it is done. */
struct copy {
    struct ra__running run;
    struct ra__launch launch;
};

struct ra__copier {
    pthread_t thread;
    pthread_mutex_t lock; /* guards everything but the copy that runs */
    pthread_cond_t changed;
    struct copy queue[QUEUE];
    uint64_t issued, done; /* copies so far */
    bool stop;
    bool quit;           /* copies are dropped; the one that runs ends soon */
    ra_status status;    /* of the first that failed; those after it are dropped */
    char sentence[1024]; /* about it */
};

/* ---- One copy -------------------------------------------------------------------------------- */

/* Between two parts of a copy: was it abandoned? */
static ra_status check_quit(struct ra__copier *copier)
{
    pthread_mutex_lock(&copier->lock);
    const bool quit = copier->quit;
    pthread_mutex_unlock(&copier->lock);
    return quit ? ra__fail(RA_ERR_ABORTED, "copy: abandoned") : RA_OK;
}

static ra_status call_back(const ra_rows *rows, bool load, const struct ra__rows_moved *part,
                           int64_t first)
{
    const ra_status status = load ? rows->read(rows->context, part->batch, first + part->first,
                                               part->tokens, part->packed)
                                  : rows->write(rows->context, part->batch, first + part->first,
                                                part->tokens, part->packed);
    if (status == RA_OK || *ra_last_error()) return status;
    return ra__fail(status, "a callback failed: %s", ra_status_text(status));
}

/* Rows of one batch item by callbacks, some at a time: straight into the buffer if it holds them as
 * the caller does, through memory of the plan otherwise. */
static ra_status copy_rows(struct ra__copier *copier, const struct ra__running *run,
                           const struct ra__piece *piece, int64_t batch)
{
    const bool load = run->launch->step->op == RA__OP_LOAD;
    const struct ra__end *outside = load ? &piece->from : &piece->to;
    const struct ra__location *tensor = &run->launch->call->at[outside->buffer];
    const size_t row = (size_t)piece->heads * (size_t)piece->width *
                       ra__dtype_bytes(tensor->storage.dtype);
    const int64_t most = ra__max((int64_t)(run->plan->rows_bytes / row), 1);
    struct ra__rows_moved part = { .batch = batch };
    for (; part.first < piece->tokens; part.first += part.tokens) {
        void *direct = ra__piece_packed(run, piece, batch, part.first);
        part.tokens = ra__min(most, piece->tokens - part.first);
        part.packed = direct ? direct : run->plan->rows;
        RA__TRY(check_quit(copier));
        if (!load && !direct) ra__piece_move_rows(run, piece, &part);
        RA__TRY(call_back(tensor->rows, load, &part, outside->token));
        if (load && !direct) ra__piece_move_rows(run, piece, &part);
    }
    return RA_OK;
}

static ra_status copy_piece(struct ra__copier *copier, const struct ra__running *run,
                            const struct ra__piece *piece)
{
    const struct ra__program *program = ra__program_of(run);
    const bool load = run->launch->step->op == RA__OP_LOAD;
    const struct ra__location *at = run->launch->call->at;
    const struct ra__location *tensor = &at[load ? piece->from.buffer : piece->to.buffer];
    const struct ra__location *buffer = &at[load ? piece->to.buffer : piece->from.buffer];
    if (tensor->rows && buffer->data) {
        for (int64_t batch = 0; batch < program->work.shape.batch; batch++)
            RA__TRY(copy_rows(copier, run, piece, batch));
        return RA_OK;
    }
    const int64_t each = ra__tokens_per_item(program, piece);
    for (int64_t first = 0; first < piece->tokens; first += each) {
        RA__TRY(check_quit(copier));
        ra__piece_move(run, piece, first, ra__min(each, piece->tokens - first));
    }
    return RA_OK;
}

static ra_status copy_step(struct ra__copier *copier, const struct ra__running *run)
{
    const struct ra__step *step = run->launch->step;
    const ra_stream *stream = run->launch->call->stream;
    for (int i = 0; i < step->piece_count; i++)
        RA__TRY(copy_piece(copier, run, &ra__program_of(run)->pieces[step->first_piece + i]));
    if (!step->ends_unit || !stream || !stream->done) return RA_OK;
    const int backward = run->launch->direction == RA__BACKWARD;
    const ra_status status = stream->done(stream->context, backward, step->unit - 1);
    if (status == RA_OK || *ra_last_error()) return status;
    return ra__fail(status, "the callback of a finished unit failed: %s", ra_status_text(status));
}

/* ---- The thread ------------------------------------------------------------------------------ */

static void *copier_main(void *context)
{
    struct ra__copier *copier = context;
    pthread_mutex_lock(&copier->lock);
    for (;;) {
        while (copier->done == copier->issued && !copier->stop)
            pthread_cond_wait(&copier->changed, &copier->lock);
        if (copier->done == copier->issued) break;
        struct copy copy = copier->queue[copier->done % QUEUE];
        const bool dropped = copier->quit || copier->status != RA_OK;
        pthread_mutex_unlock(&copier->lock);
        copy.run.launch = &copy.launch;
        const ra_status status = dropped ? RA_OK : copy_step(copier, &copy.run);
        pthread_mutex_lock(&copier->lock);
        if (status != RA_OK && copier->status == RA_OK) {
            copier->status = status;
            snprintf(copier->sentence, sizeof copier->sentence, "%s", ra_last_error());
        }
        copier->done++;
        pthread_cond_broadcast(&copier->changed);
    }
    pthread_mutex_unlock(&copier->lock);
    return NULL;
}

ra_status ra__copier_create(struct ra__copier **out)
{
    struct ra__copier *copier = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *copier);
    if (!copier) return ra__fail(RA_ERR_MEMORY, "device: %zu bytes", sizeof *copier);
    pthread_mutex_init(&copier->lock, NULL);
    pthread_cond_init(&copier->changed, NULL);
    const int error = pthread_create(&copier->thread, NULL, copier_main, copier);
    if (error) {
        pthread_cond_destroy(&copier->changed);
        pthread_mutex_destroy(&copier->lock);
        ra__free(copier);
        return ra__fail(RA_ERR_SYSTEM, "device: no thread for copies: %s", strerror(error));
    }
    *out = copier;
    return RA_OK;
}

void ra__copier_destroy(struct ra__copier *copier)
{
    if (!copier) return;
    pthread_mutex_lock(&copier->lock);
    copier->stop = copier->quit = true;
    pthread_cond_broadcast(&copier->changed);
    pthread_mutex_unlock(&copier->lock);
    pthread_join(copier->thread, NULL);
    pthread_cond_destroy(&copier->changed);
    pthread_mutex_destroy(&copier->lock);
    ra__free(copier);
}

/* ---- Calls of the rank's thread -------------------------------------------------------------- */

/* Under the lock: a few milliseconds, or until something changes; then a heartbeat without it. */
static ra_status wait_a_moment(struct ra__copier *copier, const struct ra__heartbeat *heartbeat)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 2000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&copier->changed, &copier->lock, &until);
    pthread_mutex_unlock(&copier->lock);
    const ra_status status = heartbeat->beat(heartbeat->context);
    pthread_mutex_lock(&copier->lock);
    return status;
}

/* Under the lock. */
static ra_status wait_until_done(struct ra__copier *copier, uint64_t count,
                                 const struct ra__heartbeat *heartbeat)
{
    while (copier->done < count) RA__TRY(wait_a_moment(copier, heartbeat));
    return copier->status == RA_OK ? RA_OK : ra__fail(copier->status, "%s", copier->sentence);
}

ra_status ra__copier_issue(struct ra__copier *copier, const struct ra__running *run,
                           struct ra__event *done)
{
    pthread_mutex_lock(&copier->lock);
    const uint64_t room = copier->issued < QUEUE ? 0 : copier->issued - QUEUE + 1;
    const ra_status status = wait_until_done(copier, room, run->launch->heartbeat);
    if (status == RA_OK) {
        struct copy *copy = &copier->queue[copier->issued++ % QUEUE];
        *copy = (struct copy){ *run, *run->launch };
        copy->launch.heartbeat = NULL; /* only the calling thread may use the link */
        *done = (struct ra__event){ copier, copier->issued };
        pthread_cond_broadcast(&copier->changed);
    }
    pthread_mutex_unlock(&copier->lock);
    return status;
}

ra_status ra__copier_wait(struct ra__copier *copier, const struct ra__event *event,
                          const struct ra__heartbeat *heartbeat)
{
    pthread_mutex_lock(&copier->lock);
    const ra_status status = wait_until_done(copier, event->count, heartbeat);
    pthread_mutex_unlock(&copier->lock);
    return status;
}

void ra__copier_drain(struct ra__copier *copier)
{
    if (!copier) return;
    pthread_mutex_lock(&copier->lock);
    copier->quit = true;
    while (copier->done < copier->issued) pthread_cond_wait(&copier->changed, &copier->lock);
    copier->quit = false;
    copier->status = RA_OK;
    pthread_mutex_unlock(&copier->lock);
}
