/* SPDX-License-Identifier: Apache-2.0 */
/* late_backend.c - the backend of late.h: memory that only it can touch, and queues that start
 * every step late. */
#include "support/late_parts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"

static atomic_size_t bytes_held;

static atomic_int in_flight;

size_t late_bytes(void) { return atomic_load(&bytes_held); }

int late_in_flight(void) { return atomic_load(&in_flight); }

/* Handed out is an address range without access; the numbers are elsewhere. */
struct block {
    char *address, *memory;
    size_t bytes; /* whole pages */
    struct block *next;
};

/* ---- Queues ---------------------------------------------------------------------------------- */

struct entry {
    struct ra__launch launch;
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
    unsigned loads; /* so far */
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

void late_await(const struct ra__event *event)
{
    struct queue *queue = event->source;
    if (!queue) return;
    pthread_mutex_lock(&queue->device->lock);
    wait_until_passed(queue->device, event);
    pthread_mutex_unlock(&queue->device->lock);
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
    entry->launch.call = &entry->call;
    entry->launch.heartbeat = &heartbeat;
    entry->launch.after_count = 0; /* they have passed */
    if (late_step_fails())
        return ra__fail(RA_ERR_SYSTEM, "late: step %s failed", ra__step_name(entry->launch.step));
    RA__TRY(ra__backend_cpu.issue(queue->cpu, entry->prepared, &entry->launch, &done));
    const ra_status status = ra__backend_cpu.wait(queue->cpu, &done, &heartbeat);
    /* A wait that was abandoned: the copy still uses this entry and the plan. */
    if (status != RA_OK) ra__backend_cpu.drain(queue->cpu);
    return status;
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
        for (int i = 0; i < entry->launch.after_count; i++)
            wait_until_passed(late, &entry->after[i]);
        bool quit = late->quit || late->status != RA_OK;
        pthread_mutex_unlock(&late->lock);
        late_delay(&queue->seed);
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

/* ---- Memory ---------------------------------------------------------------------------------- */

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

/* ---- Steps ----------------------------------------------------------------------------------- */

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

/* As a host that reads rows: meanwhile the device comes to the end of what it has to compute. Every
 * second time, since otherwise nothing would be late. */
static void keep_host_busy(struct late *late)
{
    pthread_mutex_lock(&late->lock);
    late->loads++;
    while (late->loads % 2 && late->queues[COMPUTE].first)
        pthread_cond_wait(&late->changed, &late->lock);
    pthread_mutex_unlock(&late->lock);
}

static ra_status late_issue(void *device, void *opaque, const struct ra__launch *launch,
                            struct ra__event *done)
{
    struct late *late = device;
    struct prepared *prepared = opaque;
    const enum ra__op op = launch->step->op;
    const bool copies = op == RA__OP_LOAD || op == RA__OP_STORE || op == RA__OP_GATHER;
    struct queue *queue = &late->queues[copies ? COPY : COMPUTE];
    if (op == RA__OP_LOAD) keep_host_busy(late);
    struct entry *entry = calloc(1, sizeof *entry);
    if (!entry || launch->after_count > RA__COUNT(entry->after)) abort();
    entry->launch = *launch;
    entry->launch.after = NULL;
    entry->call = *launch->call;
    entry->prepared = prepared->plan;
    memcpy(entry->after, launch->after, (size_t)launch->after_count * sizeof *launch->after);
    pthread_mutex_lock(&late->lock);
    translate(late, launch->step, &entry->call);
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

static bool late_has_passed(const struct ra__event *event)
{
    struct queue *queue = event->source;
    if (!queue) return true;
    pthread_mutex_lock(&queue->device->lock);
    const bool passed = has_passed(event);
    pthread_mutex_unlock(&queue->device->lock);
    return passed;
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

/* ---- The backend ----------------------------------------------------------------------------- */

static ra_status late_choose(const void *device, int number, const char *name,
                             const struct ra__shape *shape, bool backward,
                             const struct ra__kernel **out)
{
    return ra__backend_cpu.choose(device, number, name, shape, backward, out);
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
    .has_passed = late_has_passed,
    .drain = late_drain,
    .pairs = late_pairs,
};
