/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h - the contract between exec and what computes: one kind of device, its memory, and
 * whole steps of a program run on it.
 *
 *     open      a device, for one rank
 *     prepare   once per plan: schedules, work lists, workspace
 *     issue     one step; returns when it is done, or queued where the device has queues
 *     wait      until an event has passed
 *     drain     until nothing is running any more, also after a failure
 *
 * A step is issued after events, those of the steps it waits for: it does not start before they
 * have passed. Exec gives a backend only events of its own. A backend never looks at ranks. */
#ifndef RA__BACKEND_BACKEND_H
#define RA__BACKEND_BACKEND_H

#include "core/arena.h"
#include "core/event.h"
#include "core/program.h"

struct ra__kernel; /* one implementation of ATTEND and GRADIENT; the backend's */

/* A device as `ringattn info` shows it. */
struct ra__device_facts {
    char name[64];            /* that its maker gave it; "": not known */
    const char *architecture; /* "Hopper"; NULL: not known */
    int capability;           /* 90 for compute capability 9.0; 0: it has none */
    size_t memory;            /* bytes; 0: not known */
    ra_dtype dtype;           /* that it does best: synthetic data gets it */
    const char *dtype_why;    /* the reason for that, as a sentence */
};

/* A kernel as `ringattn info` shows it. */
struct ra__kernel_facts {
    const char *name;
    const char *summary;
    unsigned dtypes; /* bits 1 << dtype */
    bool usable;     /* on the device that was asked about */
    bool chosen;     /* the default for some problems */
    const char *why; /* why it is or is not chosen, as a sentence */
};

struct ra__device_options {
    int number;     /* which device, where a machine has several of a kind */
    int sharers;    /* ranks of this process that share it, this one included */
    int turn;       /* how many of those come before it */
    int threads;    /* of this rank, with the calling one */
    bool spin, pin; /* as in struct ra__workers_options */
    int first_core;
    bool smt; /* more threads at work than half of the CPUs there are: two may share a core */
};

/* The programs of a plan, and how they are to be computed. */
struct ra__setup {
    const struct ra__program *forward, *backward; /* backward may be NULL */
    const struct ra__kernel *kernel;
    /* Set to the kernel that runs the steps: `kernel`, or another one that it leaves all of them
     * to. NULL: not asked. */
    const struct ra__kernel **runs;
    const struct ra__problem_terms *terms; /* NULL = none */
    void *device; /* that will run them; NULL: not open, with a counting arena */
    int number;   /* of that which is not open */
    int threads;  /* of that device */
};

/* A step to be issued. */
struct ra__launch {
    enum ra__direction direction;
    const struct ra__step *step;
    const struct ra__call *call;
    const struct ra__event *after;
    int after_count;
    const struct ra__heartbeat *heartbeat; /* for as long as `issue` takes */
};

struct ra__backend {
    const char *name;
    const char *summary;
    /* Is its memory host memory? Then tensors and messages are used where they are; otherwise LOAD
     * and STORE steps copy them. */
    bool host;
    bool many_jobs;        /* it wants many small jobs, as a GPU does: keys are split finer */
    bool (*present)(void); /* is there such a device here? NULL: always */
    ra_status (*open)(const struct ra__device_options *options, void **device);
    void (*close)(void *device); /* accepts NULL */
    int (*threads)(const void *device);
    void *(*alloc)(void *device, size_t bytes); /* aligned to 64, not cleared; NULL: no memory */
    void (*free)(void *device, void *memory, size_t bytes);
    /* Host memory that messages are staged in: pinned for faster copies, and released before it is
     * freed. Cannot fail: what cannot be pinned is copied more slowly. NULL: no difference. */
    void (*pin)(void *device, void *memory, size_t bytes);
    void (*unpin)(void *device, void *memory);
    /* As in struct ra__reach, for messages of ranks. Without copy() they go through host memory. */
    bool cuda_memory;
    ra_status (*copy)(void *device, void *to, const void *from, size_t bytes);
    int (*make_current)(void *device);
    void (*restore)(int before);
    /* By name, or (NULL) the fastest one for the problem. The device may be NULL: not open, and
     * only its number is known. */
    ra_status (*choose)(const void *device, int number, const char *name,
                        const struct ra__shape *shape, bool backward,
                        const struct ra__kernel **out);
    const char *(*kernel_name)(const struct ra__kernel *kernel);
    /* Its devices; false after the last. NULL: none that are listed. */
    bool (*device_at)(int number, struct ra__device_facts *out);
    /* Its kernels, and what the device of that number does with them, slowest first; false after
     * the last. NULL: none that are listed. */
    bool (*kernel_at)(int number, int index, struct ra__kernel_facts *out);
    /* Takes what the programs need from the arena. With a counting arena *prepared stays NULL. */
    ra_status (*prepare)(const struct ra__setup *setup, struct ra__arena *arena, void **prepared);
    /* Gives memory of the device back to the pool; arrays belong to the arena. Accepts NULL and
     * half-made ones. */
    void (*release)(void *prepared, struct ra__buffers *pool, const struct ra__account *account);
    ra_status (*issue)(void *device, void *prepared, const struct ra__launch *launch,
                       struct ra__event *done);
    ra_status (*wait)(void *device, const struct ra__event *event,
                      const struct ra__heartbeat *heartbeat);
    /* Without waiting; false also after an error, which `wait` reports. NULL where memory is the
     * host's. */
    bool (*has_passed)(const struct ra__event *event);
    void (*drain)(void *device);
    /* follow: steps of this program that are issued next start after what is on the caller's queue
     * now; NULL: after what the caller has put on the device without naming a queue. *there, unless
     * NULL, passes when that work is done. precede: what is put on the queue next starts after all
     * steps issued so far. Both NULL: the device has no queues. */
    ra_status (*follow)(void *device, const void *prepared, enum ra__direction direction,
                        void *queue, struct ra__event *there);
    ra_status (*precede)(void *device, void *queue);
    /* Until the last call that ended so has passed: nobody has waited for it. NULL: the device has
     * no queues. */
    ra_status (*finish)(void *device, const struct ra__heartbeat *heartbeat);
    /* Query-key pairs that were folded since it was prepared. */
    int64_t (*pairs)(const void *prepared);
};

/* The entries of backend.list, then those of plug-ins; NULL after the last. */
const struct ra__backend *ra__backend_at(int index);

/* The same, then the plug-ins that cannot be used here. */
struct ra__backend_part {
    const char *name, *summary;
    const struct ra__backend *backend; /* NULL: cannot be used here */
    const char *why;                   /* the reason given by the plug-in; NULL for built-in ones */
};
bool ra__backend_part(int index, struct ra__backend_part *out); /* false after the last */

/* By name, NULL = the first; "cuda:1" is number 1 of the devices of "cuda". */
ra_status ra__backend_find(const char *name, const struct ra__backend **out, int *number);

#endif
