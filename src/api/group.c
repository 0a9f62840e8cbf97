/* SPDX-License-Identifier: Apache-2.0 */
/* group.c - groups of ranks: their threads, their transport, and running them in one process. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/handles.h"
#include "core/cpu.h"
#include "exec/share.h"

/* Smaller buffers are cheap to allocate and come in many sizes. Older systems use the same
 * threshold. */
#define POOL_THRESHOLD ((size_t)16 << 20)

/* RINGATTN_THREADS, or the cores divided among the ranks that run on them. */
static ra_status default_threads(int sharers, int *threads)
{
    const char *text = getenv("RINGATTN_THREADS");
    if (!text || !*text) {
        int share = ra__cores() / sharers;
        *threads = share > 1 ? share : 1;
        return RA_OK;
    }
    char *end;
    long number = strtol(text, &end, 10);
    if (*end || number < 1 || number > RA__MOST_THREADS)
        return ra__fail(RA_ERR_ARGUMENT, "RINGATTN_THREADS is \"%.40s\", but must be 1 to %d", text,
                        RA__MOST_THREADS);
    *threads = (int)number;
    return RA_OK;
}

/* RINGATTN_PIN: 1 pins the threads of a rank to cores of their own, if there are enough; 0 never
 * does. By default threads are pinned if they need all of many cores: a process alone on a machine
 * gains (up to a quarter, measured on 16), but one that shares it may wait for a busy core. */
static ra_status wants_pinning(int threads, bool *pin)
{
    enum { MANY_CORES = 8 };
    const char *text = getenv("RINGATTN_PIN");
    *pin = text && *text ? !strcmp(text, "1") : threads >= MANY_CORES && threads == ra__cores();
    if (*pin || !text || !*text || !strcmp(text, "0")) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT, "RINGATTN_PIN is \"%.40s\", but must be 0 or 1", text);
}

/* The device of a rank, one of several that share the cores. */
static ra_status open_device(const struct ra__place *place, int number, int threads,
                             struct ra__rank *rank)
{
    bool pin, fits = (int64_t)place->sharers * threads <= ra__cores();
    RA__TRY(wants_pinning(fits ? place->sharers * threads : 0, &pin));
    const bool here = rank->transport->open != NULL; /* all ranks are in this process */
    const struct ra__device_options options = { .number = number,
                                                .sharers = here ? rank->ranks : 1,
                                                .turn = here ? rank->rank : 0,
                                                .threads = threads,
                                                .spin = fits,
                                                .pin = pin && fits,
                                                .first_core = place->turn * threads,
                                                .smt = (int64_t)place->sharers * threads >
                                                       ra__cores() / 2 };
    return rank->backend->open(&options, &rank->device);
}

static ra_status make_buffers(struct ra__rank *rank, size_t threshold)
{
    struct ra__buffer_source source = { rank->backend->alloc, rank->backend->free, rank->device };
    return ra__buffers_create(threshold, source, &rank->buffers);
}

/* Lets messages leave from memory of the device, and arrive there, where the transport can do that.
 * Checksums are made by the host. */
static void extend_link(struct ra__rank *rank, const ra_group_options *options)
{
    const struct ra__backend *backend = rank->backend;
    if (backend->host || !backend->copy || !rank->transport->extend || options->checksum) return;
    const struct ra__reach reach = { .device = rank->device,
                                     .cuda_memory = backend->cuda_memory,
                                     .copy = backend->copy,
                                     .make_current = backend->make_current,
                                     .restore = backend->restore };
    rank->reaches = rank->transport->extend(rank->link, &reach);
}

/* The number of threads stays 0 if it was not given. */
static ra_status take_options(const ra_group_options *given, ra_group_options *options)
{
    *options = ra_group_options_default();
    RA__TRY(ra__take_struct("ra_group_options", options, sizeof *options, given));
    if (options->threads < 0 || options->threads > RA__MOST_THREADS)
        return ra__fail(RA_ERR_ARGUMENT, "group: %d threads; there may be 1 to %d",
                        options->threads, RA__MOST_THREADS);
    if (!(options->timeout >= 0 && options->timeout <= 1e9))
        return ra__fail(RA_ERR_ARGUMENT, "group: the timeout must be 0 to 1e9 seconds");
    if (options->reserved) return ra__fail(RA_ERR_ARGUMENT, "group: reserved is not 0");
    if (options->timeout == 0) options->timeout = 60;
    if (options->pool_threshold == 0) options->pool_threshold = POOL_THRESHOLD;
    return RA_OK;
}

static struct ra__link_options link_options(const ra_group_options *options)
{
    return (struct ra__link_options){ options->timeout, options->checksum != 0 };
}

void ra__log(const ra_group *group, ra_log_level level, const char *format, ...)
{
    if (!group || !group->log) return;
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    group->log(group->rank.context, level, text);
}

/* Takes ownership of the link, also if it fails. */
static ra_status create(const struct ra__rank *rank, const struct ra__place *place,
                        const ra_group_options *options, ra_group **out)
{
    int threads = options->threads, number = 0;
    ra_group *group = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *group);
    if (!group) {
        rank->transport->close(rank->link);
        return ra__fail(RA_ERR_MEMORY, "group: %zu bytes", sizeof *group);
    }
    atomic_init(&group->users, 1);
    group->rank = *rank;
    group->rank.trace = options->trace;
    group->rank.context = options->context;
    group->log = options->log;
    group->on_device = options->on_device != 0;
    ra_status status = ra__backend_find(options->device, &group->rank.backend, &number);
    if (status == RA_OK && !threads) status = default_threads(place->sharers, &threads);
    if (status == RA_OK) status = open_device(place, number, threads, &group->rank);
    if (status == RA_OK) status = make_buffers(&group->rank, options->pool_threshold);
    if (status != RA_OK) {
        ra_group_destroy(group);
        return status;
    }
    extend_link(&group->rank, options);
    ra__log(group, RA_LOG_INFO, "rank %d of %d: %s transport, %d threads", rank->rank, rank->ranks,
            rank->transport->name, threads);
    if (place->turn == 0 && place->sharers * threads > ra__cores())
        ra__log(group, RA_LOG_WARNING, "%d ranks x %d threads share %d cores and take turns",
                place->sharers, threads, ra__cores());
    *out = group;
    return RA_OK;
}

/* Turns links[0 .. ranks - 1] into handles, and takes ownership of all of them, also if it
 * fails. */
static ra_status create_all(const struct ra__transport *transport, int ranks, void **links,
                            const ra_group_options *options, ra_group **groups)
{
    ra_status status = RA_OK;
    for (int i = 0; i < ranks; i++) {
        struct ra__rank rank = {
            .rank = i, .ranks = ranks, .transport = transport, .link = links[i]
        };
        struct ra__place place = { i, ranks, ranks, i };
        groups[i] = NULL;
        if (status == RA_OK) status = create(&rank, &place, options, &groups[i]);
        else transport->close(links[i]);
    }
    for (int i = 0; i < ranks && status != RA_OK; i++) {
        ra_group_destroy(groups[i]);
        groups[i] = NULL;
    }
    return status;
}

ra_status ra_group_create(const char *name, int ranks, const ra_group_options *given,
                          ra_group **groups)
{
    const struct ra__transport *transport = ra__transport_at(0);
    if (!groups) return ra__fail(RA_ERR_ARGUMENT, "group: NULL argument");
    if (ranks < 1 || ranks > RA__MOST_RANKS)
        return ra__fail(RA_ERR_ARGUMENT, "group: %d ranks; there may be 1 to %d", ranks,
                        RA__MOST_RANKS);
    if (name) RA__TRY(ra__transport_find(name, &transport));
    if (!transport->open)
        return ra__fail(RA_ERR_UNSUPPORTED,
                        "transport %s: its ranks are not made by name in one process; see %s",
                        transport->name,
                        transport->join ? "ra_group_join()" : "its own ra_group_create function");
    ra_group_options options;
    RA__TRY(take_options(given, &options));
    void **links = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)ranks, sizeof *links);
    if (!links) return ra__fail(RA_ERR_MEMORY, "group: %d ranks", ranks);
    struct ra__link_options link = link_options(&options);
    ra_status status = transport->open(ranks, &link, links);
    if (status == RA_OK) status = create_all(transport, ranks, links, &options, groups);
    ra__free(links);
    return status;
}

ra_status ra_group_create_local(int ranks, const ra_group_options *options, ra_group **groups)
{
    return ra_group_create("local", ranks, options, groups);
}

ra_status ra_group_create_custom(int ranks, int rank, const ra_transport_callbacks *callbacks,
                                 const ra_group_options *given, ra_group **out)
{
    if (!callbacks || !out) return ra__fail(RA_ERR_ARGUMENT, "group: NULL argument");
    if (ranks < 1 || ranks > RA__MOST_RANKS || rank < 0 || rank >= ranks)
        return ra__fail(RA_ERR_ARGUMENT, "group: rank %d of %d ranks; there may be 1 to %d", rank,
                        ranks, RA__MOST_RANKS);
    ra_transport_callbacks calls = ra_transport_callbacks_default();
    RA__TRY(ra__take_struct("ra_transport_callbacks", &calls, sizeof calls, callbacks));
    if (!calls.post || !calls.wait)
        return ra__fail(RA_ERR_ARGUMENT, "group: a transport needs post and wait");
    ra_group_options options;
    RA__TRY(take_options(given, &options));
    if (options.checksum)
        return ra__fail(RA_ERR_UNSUPPORTED,
                        "transport custom: checksums are not supported; callbacks can send "
                        "their own");
    /* The link comes last: a group that could not be made has not closed the caller's transport. */
    struct ra__rank member = { .rank = rank, .ranks = ranks, .transport = &ra__transport_custom };
    struct ra__place alone = { rank, ranks, 1, 0 };
    ra_group *group;
    RA__TRY(create(&member, &alone, &options, &group));
    ra_status status = ra__custom_open(rank, options.timeout, &calls, &group->rank.link);
    if (status != RA_OK) {
        ra_group_destroy(group);
        return status;
    }
    *out = group;
    return RA_OK;
}

ra_status ra_group_join(const char *name, const void *where, const ra_group_options *given,
                        ra_group **out)
{
    const struct ra__transport *transport;
    struct ra__rank member = { .rank = 0 };
    struct ra__place place;
    if (!name || !out) return ra__fail(RA_ERR_ARGUMENT, "group: NULL argument");
    RA__TRY(ra__transport_find(name, &transport));
    if (!transport->join)
        return ra__fail(RA_ERR_UNSUPPORTED,
                        "transport %s: there is nothing to join; see ra_group_create()", name);
    ra_group_options options;
    RA__TRY(take_options(given, &options));
    struct ra__link_options link = link_options(&options);
    RA__TRY(transport->join(where, &link, &member.link, &place));
    member.rank = place.rank;
    member.ranks = place.ranks;
    member.transport = transport;
    if (place.ranks > RA__MOST_RANKS) {
        transport->close(member.link);
        return ra__fail(RA_ERR_ARGUMENT, "group: %d ranks; there may be 1 to %d", place.ranks,
                        RA__MOST_RANKS);
    }
    return create(&member, &place, &options, out);
}

ra_status ra_transport_error(ra_status status, const char *text)
{
    return ra__fail(status, "%s", text ? text : "");
}

int ra_group_rank(const ra_group *group) { return group ? group->rank.rank : -1; }
int ra_group_ranks(const ra_group *group) { return group ? group->rank.ranks : 0; }
int ra_group_threads(const ra_group *group) { return group ? ra__rank_threads(&group->rank) : 0; }

ra_status ra_group_pool(const ra_group *group, ra_pool *out)
{
    ra_pool pool;
    if (!group) return ra__fail(RA_ERR_ARGUMENT, "pool: NULL argument");
    ra__buffers_count(group->rank.buffers, &pool);
    return ra__give_struct("ra_pool", out, &pool, sizeof pool);
}

ra_status ra_group_trim(ra_group *group)
{
    if (!group) return ra__fail(RA_ERR_ARGUMENT, "pool: NULL argument");
    RA__TRY(ra__group_enter("pool", group));
    ra__buffers_trim(group->rank.buffers);
    ra__leave(&group->busy);
    return RA_OK;
}

ra_status ra__report_to_group(const ra_group *group, ra_status status)
{
    if (status == RA_OK || !group || group->rank.ranks == 1) return status;
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%s", ra_last_error());
    group->rank.transport->abort(group->rank.link, status, sentence);
    return ra__fail(status, "%s", sentence);
}

void ra_group_abort(ra_group *group, const char *reason)
{
    if (group)
        group->rank.transport->abort(group->rank.link, RA_ERR_ABORTED,
                                     reason ? reason : "no reason given");
}

ra_status ra__group_enter(const char *what, ra_group *group)
{
    if (atomic_load(&group->closed))
        return ra__fail(RA_ERR_ARGUMENT, "%s: its group was destroyed", what);
    return ra__enter(what, &group->busy);
}

void ra__group_attach(ra_group *group)
{
    if (group) atomic_fetch_add(&group->users, 1);
}

void ra__group_detach(ra_group *group)
{
    if (!group || atomic_fetch_sub(&group->users, 1) > 1) return;
    ra__buffers_destroy(group->rank.buffers);
    if (group->rank.backend) group->rank.backend->close(group->rank.device);
    ra__free(group);
}

void ra_group_destroy(ra_group *group)
{
    if (!group) return;
    struct ra__rank *rank = &group->rank;
    atomic_store(&group->closed, true);
    rank->retained = ra__rank_retains(rank);
    rank->transport->close(rank->link); /* before its buffers, which it may use */
    rank->link = NULL;
    ra__group_detach(group);
}

/* ---- Running every rank of a group in this process ---- */

struct outcome {
    pthread_mutex_t lock;
    ra_status status;
    char sentence[1024];
};

struct member {
    pthread_t thread;
    bool started;
    ra_group *group;
    ra_rank_fn body;
    void *context;
    struct outcome *outcome;
};

/* Did this rank cause the failure, or did it only hear of it? */
static bool is_cause(ra_status status) { return status != RA_ERR_PEER && status != RA_ERR_ABORTED; }

/* Keeps the first failure, or the first that is the cause. */
static void note_failure(struct outcome *outcome, ra_status status)
{
    pthread_mutex_lock(&outcome->lock);
    if (outcome->status == RA_OK || (is_cause(status) && !is_cause(outcome->status))) {
        outcome->status = status;
        snprintf(outcome->sentence, sizeof outcome->sentence, "%s", ra_last_error());
    }
    pthread_mutex_unlock(&outcome->lock);
}

static void *member_main(void *argument)
{
    struct member *member = argument;
    ra_status status = member->body(member->group, member->context);
    if (status == RA_OK) return NULL;
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%s", ra_last_error());
    note_failure(member->outcome, status);
    member->group->rank.transport->abort(member->group->rank.link, status, sentence);
    return NULL;
}

ra_status ra_group_run(ra_group *const *groups, int count, ra_rank_fn body, void *context)
{
    if (!groups || !body || count < 1) return ra__fail(RA_ERR_ARGUMENT, "group: nothing to run");
    struct outcome outcome = { .lock = PTHREAD_MUTEX_INITIALIZER, .status = RA_OK };
    struct member *members = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)count,
                                             sizeof *members);
    if (!members) return ra__fail(RA_ERR_MEMORY, "group: %d ranks", count);
    for (int i = 0; i < count; i++) {
        members[i] = (struct member){
            .group = groups[i], .body = body, .context = context, .outcome = &outcome
        };
        if (i == 0) continue; /* the calling thread is rank 0's */
        int error = pthread_create(&members[i].thread, NULL, member_main, &members[i]);
        members[i].started = error == 0;
        if (!error) continue;
        note_failure(&outcome,
                     ra__fail(RA_ERR_SYSTEM, "rank %d: no thread: %s", i, strerror(error)));
        ra_group_abort(groups[i], "a rank could not start its thread");
    }
    member_main(&members[0]);
    for (int i = 1; i < count; i++)
        if (members[i].started) pthread_join(members[i].thread, NULL);
    ra__free(members);
    return outcome.status == RA_OK ? RA_OK : ra__fail(outcome.status, "%s", outcome.sentence);
}

ra_status ra_group_share(ra_group *group, const void *mine, void *all, size_t bytes)
{
    if (!group || !mine || !all) return ra__fail(RA_ERR_ARGUMENT, "share: NULL argument");
    RA__TRY(ra__group_enter("share", group));
    ra_status status = ra__report_to_group(group, ra__rank_share(&group->rank, mine, all, bytes));
    if (status == RA_OK) ra__rank_idle(&group->rank);
    ra__leave(&group->busy);
    return status;
}

ra_status ra_group_poll(ra_group *group)
{
    if (!group) return ra__fail(RA_ERR_ARGUMENT, "group: NULL argument");
    ra_status status = group->rank.transport->poll(group->rank.link);
    if (status == RA_OK) ra__rank_idle(&group->rank);
    return status;
}
