/* SPDX-License-Identifier: Apache-2.0 */
/* helpers.c - threads that share a loop with the thread that calls. */
#include "helpers.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct helpers {
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    void (*part)(void *context, int index);
    void *context;
    int parts, next, done;
    bool stop;
    int started;
    pthread_t threads[];
};

/* Takes parts while there are any; under the lock. */
static void take_parts(struct helpers *h)
{
    while (h->next < h->parts) {
        const int index = h->next++;
        pthread_mutex_unlock(&h->lock);
        h->part(h->context, index);
        pthread_mutex_lock(&h->lock);
        if (++h->done == h->parts) pthread_cond_signal(&h->idle);
    }
}

static void *helper_main(void *argument)
{
    struct helpers *h = argument;
    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        take_parts(h);
        if (!h->stop) pthread_cond_wait(&h->work, &h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

struct helpers *helpers_start(int count)
{
    struct helpers *h = calloc(1, sizeof *h + (size_t)count * sizeof h->threads[0]);
    if (!h) return NULL;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->work, NULL);
    pthread_cond_init(&h->idle, NULL);
    while (h->started < count && !pthread_create(&h->threads[h->started], NULL, helper_main, h))
        h->started++;
    return h;
}

void helpers_stop(struct helpers *h)
{
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_broadcast(&h->work);
    pthread_mutex_unlock(&h->lock);
    for (int i = 0; i < h->started; i++) pthread_join(h->threads[i], NULL);
    pthread_cond_destroy(&h->idle);
    pthread_cond_destroy(&h->work);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

int helpers_threads(const struct helpers *h) { return h ? h->started + 1 : 1; }

void helpers_run(struct helpers *h, int parts, void (*part)(void *context, int index),
                 void *context)
{
    if (!h || parts == 1) {
        for (int i = 0; i < parts; i++) part(context, i);
        return;
    }
    pthread_mutex_lock(&h->lock);
    h->part = part;
    h->context = context;
    h->parts = parts;
    h->next = h->done = 0;
    pthread_cond_broadcast(&h->work);
    take_parts(h);
    while (h->done < h->parts) pthread_cond_wait(&h->idle, &h->lock);
    h->parts = h->next = 0;
    pthread_mutex_unlock(&h->lock);
}
