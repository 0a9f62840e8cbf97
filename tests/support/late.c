/* SPDX-License-Identifier: Apache-2.0 */
/* late.c - see late.h. */
#include "support/late.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "core/clock.h"

static atomic_int steps_left = -1, rounds_left = -1; /* until one fails */
static atomic_size_t bytes_held;
static atomic_int in_flight;

void late_fail(int step, int round)
{
    atomic_store(&steps_left, step);
    atomic_store(&rounds_left, round);
}

size_t late_bytes(void) { return atomic_load(&bytes_held); }
int late_in_flight(void) { return atomic_load(&in_flight); }

static bool fails_now(atomic_int *left)
{
    return atomic_load(left) >= 0 && atomic_fetch_sub(left, 1) == 0;
}

static void delay(unsigned *seed)
{
    struct timespec t = { 0, (long)(rand_r(seed) % 200) * 1000 };
    if (rand_r(seed) % 3 == 0) nanosleep(&t, NULL);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Handed out is an address range without access; the numbers are elsewhere. */
struct block {
    char *address, *memory;
    size_t bytes; /* whole pages */
    struct block *next;
};

/* ---- Queues ---------------------------------------------------------------------------------- */

struct entry {
    struct ra__order order;
    struct ra__call call; /* a copy, with addresses that can be used */
    struct ra__event after[32];
    void *prepared;
    struct entry *next;
};

struct queue {
    struct late *device;
    pthread_t thread;
    void *cpu; /* runs its steps, with one thread */
    struct entry *first, *last;
    uint64_t issued, passed;
    unsigned seed;
};

enum { COPY, COMPUTE, QUEUES };

struct late {
    pthread_mutex_t lock; /* guards everything but running steps */
    pthread_cond_t changed;
    struct queue queues[QUEUES];
    struct block *blocks;
    bool stop;
    bool quit; /* entries are dropped, and running ones end soon */
    ra_status status;
    char sentence[256];
};

static bool has_passed(const struct ra__event *event)
{
    const struct queue *queue = event->source;
    return !queue || queue->passed >= event->count;
}

/* Under the lock. */
static void wait_until_passed(struct late *late, const struct ra__event *event)
{
    while (!has_passed(event)) pthread_cond_wait(&late->changed, &late->lock);
}

/* On a queue's thread: only the calling thread of the rank may use the link. */
static ra_status quiet_beat(void *context)
{
    struct late *late = context;
    pthread_mutex_lock(&late->lock);
    bool quit = late->quit;
    pthread_mutex_unlock(&late->lock);
    return quit ? RA_ERR_ABORTED : RA_OK;
}

static ra_status run_entry(struct queue *queue, struct entry *entry)
{
    const struct ra__heartbeat heartbeat = { quiet_beat, queue->device };
    struct ra__event done;
    entry->order.call = &entry->call;
    entry->order.heartbeat = &heartbeat;
    if (fails_now(&steps_left))
        return ra__fail(RA_ERR_SYSTEM, "late: step %s failed", ra__step_name(entry->order.step));
    return ra__backend_cpu.issue(queue->cpu, entry->prepared, &entry->order, &done);
}

static void *queue_main(void *argument)
{
    struct queue *queue = argument;
    struct late *late = queue->device;
    pthread_mutex_lock(&late->lock);
    for (;;) {
        while (!queue->first && !late->stop) pthread_cond_wait(&late->changed, &late->lock);
        struct entry *entry = queue->first;
        if (!entry) break;
        for (int i = 0; i < entry->order.after_count; i++)
            wait_until_passed(late, &entry->after[i]);
        bool quit = late->quit || late->status != RA_OK;
        pthread_mutex_unlock(&late->lock);
        delay(&queue->seed);
        ra_status status = quit ? RA_OK : run_entry(queue, entry);
        pthread_mutex_lock(&late->lock);
        if (status != RA_OK && late->status == RA_OK) {
            late->status = status;
            snprintf(late->sentence, sizeof late->sentence, "%s", ra_last_error());
        }
        queue->first = entry->next;
        if (!queue->first) queue->last = NULL;
        queue->passed++;
        atomic_fetch_sub(&in_flight, 1);
        free(entry);
        pthread_cond_broadcast(&late->changed);
    }
    pthread_mutex_unlock(&late->lock);
    return NULL;
}

/* ---- The backend ----------------------------------------------------------------------------- */

static ra_status late_open(const struct ra__device_options *options, void **device)
{
    const struct ra__device_options one = { .threads = 1, .smt = options->smt };
    struct late *late = calloc(1, sizeof *late);
    if (!late) return ra__fail(RA_ERR_MEMORY, "late: no memory");
    pthread_mutex_init(&late->lock, NULL);
    pthread_cond_init(&late->changed, NULL);
    for (int i = 0; i < QUEUES; i++) {
        struct queue *queue = &late->queues[i];
        queue->device = late;
        queue->seed = (unsigned)i * 7919u + 1u;
        if (ra__backend_cpu.open(&one, &queue->cpu) != RA_OK ||
            pthread_create(&queue->thread, NULL, queue_main, queue))
            abort();
    }
    *device = late;
    return RA_OK;
}

static void late_close(void *device)
{
    struct late *late = device;
    if (!late) return;
    pthread_mutex_lock(&late->lock);
    late->stop = true;
    pthread_cond_broadcast(&late->changed);
    pthread_mutex_unlock(&late->lock);
    for (int i = 0; i < QUEUES; i++) {
        pthread_join(late->queues[i].thread, NULL);
        ra__backend_cpu.close(late->queues[i].cpu);
    }
    pthread_cond_destroy(&late->changed);
    pthread_mutex_destroy(&late->lock);
    free(late);
}

static int late_threads(const void *device)
{
    (void)device;
    return 1;
}

static void *late_alloc(void *device, size_t bytes)
{
    struct late *late = device;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    struct block *block = malloc(sizeof *block);
    void *address = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *memory = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!block || address == MAP_FAILED || memory == MAP_FAILED) abort();
    memset(memory, 0xc3, whole);
    pthread_mutex_lock(&late->lock);
    *block = (struct block){ address, memory, whole, late->blocks };
    late->blocks = block;
    pthread_mutex_unlock(&late->lock);
    atomic_fetch_add(&bytes_held, whole);
    return address;
}

static void late_free(void *device, void *address, size_t bytes)
{
    struct late *late = device;
    (void)bytes;
    pthread_mutex_lock(&late->lock);
    struct block **at = &late->blocks;
    while (*at && (*at)->address != address) at = &(*at)->next;
    if (!*at) abort();
    struct block *block = *at;
    *at = block->next;
    pthread_mutex_unlock(&late->lock);
    munmap(block->address, block->bytes);
    munmap(block->memory, block->bytes);
    atomic_fetch_sub(&bytes_held, block->bytes);
    free(block);
}

/* Where the numbers at an address of the device are; NULL if it is no such address. */
static char *inside(struct late *late, const void *address)
{
    for (struct block *block = late->blocks; block; block = block->next)
        if ((const char *)address >= block->address &&
            (const char *)address < block->address + block->bytes)
            return block->memory + ((const char *)address - block->address);
    return NULL;
}

/* The plan of the CPU backend, and where its workspace really is. */
struct prepared {
    struct ra__cpu_plan *plan;
    void *workspace; /* as the pool knows it */
};

static ra_status late_prepare(const struct ra__setup *setup, struct ra__arena *arena,
                              void **prepared)
{
    struct prepared *own = NULL;
    RA__TRY(ra__arena_array(arena, 1, sizeof *own, (void **)&own));
    void *plan = NULL;
    RA__TRY(ra__backend_cpu.prepare(setup, arena, &plan));
    if (own) *own = (struct prepared){ plan, ((struct ra__cpu_plan *)plan)->workspace };
    *prepared = own;
    return RA_OK;
}

static void late_release(void *opaque, struct ra__buffers *pool, const struct ra__account *account)
{
    struct prepared *prepared = opaque;
    if (prepared) ra__buffers_give(pool, account, prepared->workspace);
}

/* Every buffer a step uses must be the device's, but for what LOAD and STORE copy from and to. */
static void translate(struct late *late, const struct ra__step *step, struct ra__call *call)
{
    const bool copies = step->op == RA__OP_LOAD || step->op == RA__OP_STORE;
    for (int i = 0; i < RA__BUFFERS; i++) {
        struct ra__location *at = &call->at[i];
        const ra__buffer_set bit = ra__buffer_bit((enum ra__buffer)i);
        char *memory = at->data ? inside(late, at->data) : NULL;
        const bool small = i == RA__BIAS || i == RA__SINKS || i == RA__DSINKS;
        if (memory) at->data = memory;
        else if (at->data && !copies && !small && ((step->reads | step->writes) & bit)) {
            fprintf(stderr, "late: %s uses %s, which is not on the device\n", ra__step_name(step),
                    ra__buffer_facts((enum ra__buffer)i)->name);
            abort();
        }
    }
}

static ra_status late_issue(void *device, void *opaque, const struct ra__order *order,
                            struct ra__event *done)
{
    struct late *late = device;
    struct prepared *prepared = opaque;
    const enum ra__op op = order->step->op;
    const bool copies = op == RA__OP_LOAD || op == RA__OP_STORE || op == RA__OP_GATHER;
    struct queue *queue = &late->queues[copies ? COPY : COMPUTE];
    struct entry *entry = calloc(1, sizeof *entry);
    if (!entry || order->after_count > RA__COUNT(entry->after)) abort();
    entry->order = *order;
    entry->order.after = NULL;
    entry->call = *order->call;
    entry->prepared = prepared->plan;
    memcpy(entry->after, order->after, (size_t)order->after_count * sizeof *order->after);
    pthread_mutex_lock(&late->lock);
    translate(late, order->step, &entry->call);
    if (prepared->workspace && prepared->plan->workspace == prepared->workspace)
        prepared->plan->workspace = inside(late, prepared->workspace);
    if (queue->last) queue->last->next = entry;
    else queue->first = entry;
    queue->last = entry;
    *done = (struct ra__event){ queue, ++queue->issued };
    atomic_fetch_add(&in_flight, 1);
    pthread_cond_broadcast(&late->changed);
    pthread_mutex_unlock(&late->lock);
    return RA_OK;
}

static ra_status late_wait(void *device, const struct ra__event *event,
                           const struct ra__heartbeat *heartbeat)
{
    struct late *late = device;
    ra_status status = RA_OK;
    pthread_mutex_lock(&late->lock);
    while (status == RA_OK && !has_passed(event)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 2000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        pthread_cond_timedwait(&late->changed, &late->lock, &until);
        pthread_mutex_unlock(&late->lock);
        status = heartbeat->beat(heartbeat->context);
        pthread_mutex_lock(&late->lock);
    }
    if (status == RA_OK && late->status != RA_OK)
        status = ra__fail(late->status, "%s", late->sentence);
    pthread_mutex_unlock(&late->lock);
    return status;
}

static void late_drain(void *device)
{
    struct late *late = device;
    pthread_mutex_lock(&late->lock);
    late->quit = true;
    for (int i = 0; i < QUEUES; i++)
        while (late->queues[i].first) pthread_cond_wait(&late->changed, &late->lock);
    late->quit = false;
    late->status = RA_OK;
    pthread_mutex_unlock(&late->lock);
}

static ra_status late_choose(const char *name, const struct ra__shape *shape, bool backward,
                             const struct ra__kernel **out)
{
    return ra__backend_cpu.choose(name, shape, backward, out);
}

static const char *late_kernel_name(const struct ra__kernel *kernel)
{
    return ra__backend_cpu.kernel_name(kernel);
}

static int64_t late_pairs(const void *prepared)
{
    return ra__backend_cpu.pairs(((const struct prepared *)prepared)->plan);
}

const struct ra__backend late_backend = {
    .name = "late",
    .summary = "late, and with memory of its own",
    .open = late_open,
    .close = late_close,
    .threads = late_threads,
    .alloc = late_alloc,
    .free = late_free,
    .choose = late_choose,
    .kernel_name = late_kernel_name,
    .prepare = late_prepare,
    .release = late_release,
    .issue = late_issue,
    .wait = late_wait,
    .drain = late_drain,
    .pairs = late_pairs,
};

/* ---- The transport --------------------------------------------------------------------------- */

/* A message that waits for its other half: the oldest of its pair of ranks comes first. */
struct half {
    struct ra__message *message;
    struct link *link;
    struct half *next;
};

struct hub {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ranks, open;
    bool failed;
    char reason[256];
    struct half **sends, **recvs; /* [from * ranks + to] */
};

struct link {
    struct hub *hub;
    int rank;
    pthread_t thread;
    struct ra__round *round; /* posted, not started yet */
    struct ra__event after[64];
    int after_count;
    int pending; /* messages of the round that are not done */
    bool stop;
    unsigned seed;
};

static void append_half(struct half **list, struct link *link, struct ra__message *message)
{
    struct half *half = malloc(sizeof *half);
    if (!half) abort();
    *half = (struct half){ message, link, NULL };
    while (*list) list = &(*list)->next;
    *list = half;
}

static struct half take_half(struct half **list)
{
    struct half *half = *list, copy = *half;
    *list = half->next;
    free(half);
    return copy;
}

/* Under the lock: whatever has met is copied. */
static void match(struct hub *hub, int pair)
{
    while (hub->sends[pair] && hub->recvs[pair] && !hub->failed) {
        struct half send = take_half(&hub->sends[pair]), recv = take_half(&hub->recvs[pair]);
        if (send.message->bytes != recv.message->bytes) {
            hub->failed = true;
            snprintf(hub->reason, sizeof hub->reason, "late: %zu bytes sent, %zu expected",
                     send.message->bytes, recv.message->bytes);
        } else memcpy(recv.message->data, send.message->data, send.message->bytes);
        send.link->pending--;
        recv.link->pending--;
    }
    pthread_cond_broadcast(&hub->changed);
}

static void await_events(struct link *link)
{
    for (int i = 0; i < link->after_count; i++) {
        const struct ra__event *event = &link->after[i];
        struct queue *queue = event->source;
        if (!queue) continue;
        pthread_mutex_lock(&queue->device->lock);
        wait_until_passed(queue->device, event);
        pthread_mutex_unlock(&queue->device->lock);
    }
}

static void start_round(struct link *link, struct ra__round *round)
{
    struct hub *hub = link->hub;
    for (int i = 0; i < round->recv_count; i++) {
        int pair = round->recvs[i].peer * hub->ranks + link->rank;
        append_half(&hub->recvs[pair], link, &round->recvs[i]);
        match(hub, pair);
    }
    for (int i = 0; i < round->send_count; i++) {
        int pair = link->rank * hub->ranks + round->sends[i].peer;
        append_half(&hub->sends[pair], link, &round->sends[i]);
        match(hub, pair);
    }
}

static void *link_main(void *argument)
{
    struct link *link = argument;
    struct hub *hub = link->hub;
    pthread_mutex_lock(&hub->lock);
    for (;;) {
        while (!link->round && !link->stop) pthread_cond_wait(&hub->changed, &hub->lock);
        if (link->stop) break;
        pthread_mutex_unlock(&hub->lock);
        await_events(link);
        delay(&link->seed);
        pthread_mutex_lock(&hub->lock);
        if (!link->round) continue;
        start_round(link, link->round);
        link->round = NULL;
    }
    pthread_mutex_unlock(&hub->lock);
    return NULL;
}

static ra_status link_open(int ranks, const struct ra__link_options *options, void **links)
{
    struct hub *hub = calloc(1, sizeof *hub);
    (void)options;
    if (!hub) abort();
    pthread_mutex_init(&hub->lock, NULL);
    pthread_cond_init(&hub->changed, NULL);
    hub->ranks = hub->open = ranks;
    hub->sends = calloc((size_t)(ranks * ranks), sizeof *hub->sends);
    hub->recvs = calloc((size_t)(ranks * ranks), sizeof *hub->recvs);
    for (int i = 0; i < ranks; i++) {
        struct link *link = calloc(1, sizeof *link);
        if (!link) abort();
        *link = (struct link){ .hub = hub, .rank = i, .seed = (unsigned)i + 17u };
        if (pthread_create(&link->thread, NULL, link_main, link)) abort();
        links[i] = link;
    }
    return RA_OK;
}

static ra_status link_poll(void *opaque)
{
    struct link *link = opaque;
    pthread_mutex_lock(&link->hub->lock);
    ra_status status = link->hub->failed
                           ? ra__fail(RA_ERR_PEER, "rank %d: %s", link->rank, link->hub->reason)
                           : RA_OK;
    pthread_mutex_unlock(&link->hub->lock);
    return status;
}

static ra_status link_post(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    RA__TRY(link_poll(link));
    if (fails_now(&rounds_left)) return ra__fail(RA_ERR_SYSTEM, "late: a round failed");
    if (round->after_count > RA__COUNT(link->after)) abort();
    pthread_mutex_lock(&link->hub->lock);
    if (round->after_count > 0)
        memcpy(link->after, round->after, (size_t)round->after_count * sizeof *round->after);
    link->after_count = round->after_count;
    link->pending = round->send_count + round->recv_count;
    link->round = round;
    pthread_cond_broadcast(&link->hub->changed);
    pthread_mutex_unlock(&link->hub->lock);
    return RA_OK;
}

static void withdraw(struct link *link)
{
    struct hub *hub = link->hub;
    link->round = NULL;
    for (int i = 0; i < 2 * hub->ranks * hub->ranks; i++) {
        struct half **list = i % 2 ? &hub->sends[i / 2] : &hub->recvs[i / 2];
        while (*list)
            if ((*list)->link == link) take_half(list);
            else list = &(*list)->next;
    }
}

static ra_status link_wait(void *opaque, struct ra__round *round)
{
    struct link *link = opaque;
    struct hub *hub = link->hub;
    (void)round;
    pthread_mutex_lock(&hub->lock);
    while (link->pending > 0 && !hub->failed) pthread_cond_wait(&hub->changed, &hub->lock);
    ra_status status = RA_OK;
    if (hub->failed) {
        withdraw(link);
        status = ra__fail(RA_ERR_PEER, "rank %d: %s", link->rank, hub->reason);
    }
    pthread_mutex_unlock(&hub->lock);
    return status;
}

static void link_abort(void *opaque, ra_status status, const char *reason)
{
    struct link *link = opaque;
    (void)status;
    pthread_mutex_lock(&link->hub->lock);
    if (!link->hub->failed) snprintf(link->hub->reason, sizeof link->hub->reason, "%s", reason);
    link->hub->failed = true;
    pthread_cond_broadcast(&link->hub->changed);
    pthread_mutex_unlock(&link->hub->lock);
}

static void link_close(void *opaque)
{
    struct link *link = opaque;
    if (!link) return;
    struct hub *hub = link->hub;
    pthread_mutex_lock(&hub->lock);
    link->stop = true;
    withdraw(link);
    const bool last = --hub->open == 0;
    pthread_cond_broadcast(&hub->changed);
    pthread_mutex_unlock(&hub->lock);
    pthread_join(link->thread, NULL);
    free(link);
    if (!last) return;
    free(hub->sends);
    free(hub->recvs);
    pthread_cond_destroy(&hub->changed);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

const struct ra__transport late_transport = {
    .name = "late",
    .summary = "without tags, after events",
    .takes_events = true,
    .open = link_open,
    .post = link_post,
    .wait = link_wait,
    .poll = link_poll,
    .abort = link_abort,
    .close = link_close,
};

/* ---- Groups ---------------------------------------------------------------------------------- */

void late_use(ra_group **groups, int ranks, bool backend, bool transport)
{
    void *links[64];
    if (ranks > RA__COUNT(links)) abort();
    if (transport && late_transport.open(ranks, NULL, links) != RA_OK) abort();
    for (int i = 0; i < ranks; i++) {
        struct ra__rank *rank = &groups[i]->rank;
        const struct ra__device_options options = { .threads = 1 };
        if (transport) {
            rank->transport->close(rank->link);
            rank->transport = &late_transport;
            rank->link = links[i];
        }
        if (!backend) continue;
        ra__buffers_destroy(rank->buffers);
        rank->backend->close(rank->device);
        rank->backend = &late_backend;
        if (late_backend.open(&options, &rank->device) != RA_OK) abort();
        const struct ra__buffer_source source = { late_alloc, late_free, rank->device };
        if (ra__buffers_create((size_t)1 << 20, source, &rank->buffers) != RA_OK) abort();
    }
}
