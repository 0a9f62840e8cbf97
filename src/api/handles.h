/* SPDX-License-Identifier: Apache-2.0 */
/* handles.h - the structs of the public handles, and the checks that entry points share. */
#ifndef RA__API_HANDLES_H
#define RA__API_HANDLES_H

#include <stdatomic.h>

#include "exec/exec.h"
#include "plan/choose.h"

enum { RA__MOST_RANKS = 4096, RA__MOST_THREADS = 1024 };

struct ra_group {
    struct ra__rank rank;
    ra_log_fn log;
    bool on_device;     /* the caller's tensors are in memory of the device */
    atomic_bool busy;   /* a thread is in a call that plans, computes or sends */
    atomic_bool closed; /* by ra_group_destroy(): its link is gone, and no call may begin */
    atomic_int users;   /* the caller, until it destroys the group; and plans and states */
};

struct ra_plan {
    struct ra__account account;
    ra_group *group; /* NULL: a plan that cannot be run */
    ra_pattern *pattern;
    ra_order *order; /* NULL: sequential */
    struct ra__sequences sequences;
    struct ra__problem_terms terms;
    ra_layout *q_layout, *k_layout; /* may be the same */
    const struct ra__backend *backend;
    int number; /* of the device, where no group has opened one */
    const struct ra__kernel *kernel;
    const struct ra__kernel *runs;    /* as in struct ra__setup: the one that is named to callers */
    char strategy[RA__STRATEGY_TEXT]; /* the one chosen */
    char why[RA__WHY_TEXT];
    bool shrinks;               /* a stream whose blocks may become smaller, to keep the budget */
    struct ra__machine machine; /* for predictions */
    char figures[RA__FIGURES_TEXT];
    const char *load;         /* whether the figure of loads was given, measured or assumed */
    struct ra__plan programs; /* what this rank does: forward and backward */
    struct ra__exec exec;
    ra_memory memory;
};

/* A handle serves one thread at a time: RA_ERR_BUSY if another is between the two. `what` names the
 * call. */
ra_status ra__enter(const char *what, atomic_bool *busy);
void ra__leave(atomic_bool *busy);

/* The same for a group, which must not be destroyed. ra__leave(&group->busy) ends the call. */
ra_status ra__group_enter(const char *what, ra_group *group);

/* A plan or a state that keeps a group has its device and buffers until it detaches; the last user
 * frees them. `group` may be NULL. */
void ra__group_attach(ra_group *group);
void ra__group_detach(ra_group *group);

/* To the log callback of the group, if it has one. `group` may be NULL. */
__attribute__((format(printf, 3, 4))) void ra__log(const ra_group *group, ra_log_level level,
                                                   const char *format, ...);

/* A rank that gives up leaves the others waiting: informs them and returns `status`, with the same
 * sentence. Does nothing for RA_OK. `group` may be NULL. */
ra_status ra__report_to_group(const ra_group *group, ra_status status);

/* Copies a caller-filled struct of another version's size into ours: fields that the caller does
 * not know keep their defaults; fields that we do not know must be zero. `what` names it in
 * errors. */
ra_status ra__take_struct(const char *what, void *ours, size_t our_size, const void *theirs);

/* Copies a result into the caller's struct, as much as fits; `size` stays the caller's. */
ra_status ra__give_struct(const char *what, void *theirs, const void *ours, size_t our_size);

/* Are these numbers within the limits of the library? */
ra_status ra__check_shape(const struct ra__shape *shape);

/* Checks a problem and fills in its defaults. What *taken points to stays the caller's. */
ra_status ra__problem_from(const ra_problem *problem, struct ra__shape *shape, ra_problem *taken);

/* Which tensor of a call is checked: its name in errors, and its extents beside the batch. */
struct ra__tensor_shape {
    const char *name;
    int64_t rows;
    int heads, dim;
};

/* Check a tensor of [batch, rows, heads, dim] and fill in packed strides. An input is only read
 * afterwards, though *out is not const; the items of an output must not overlap. */
ra_status ra__input_from(const struct ra__shape *shape, struct ra__tensor_shape which,
                         const ra_const_tensor *tensor, ra_tensor *out);
/* One axis of an output: how many items it has, and how many numbers are between two. */
struct ra__axis {
    const char *name;
    int64_t count, stride;
};
/* Refuses an output whose items, of `dim` numbers each, overlap. Sorts the axes. */
ra_status ra__check_overlap(const char *name, struct ra__axis axes[3], int64_t dim);
ra_status ra__output_from(const struct ra__shape *shape, struct ra__tensor_shape which,
                          const ra_tensor *tensor, ra_tensor *out);

/* The figures for predictions: given by the options, measured, or defaults of a transport; and a
 * text that says which. */
ra_status ra__machine_from(const ra_plan_options *options, const char *transport,
                           struct ra__machine *out, char figures[RA__FIGURES_TEXT],
                           const char **load);

/* A bias has rows for the queries of a shard: does this strategy support one? */
ra_status ra__check_bias(const struct ra__plan_input *input);

/* Checks arrays of `length` positions that `what` is to permute. */
ra_status ra__check_arrays(const char *what, int64_t length, const ra_array *arrays, int count);

#endif
