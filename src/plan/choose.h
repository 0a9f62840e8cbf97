/* SPDX-License-Identifier: Apache-2.0 */
/* choose.h - predictions: the figures they are made with, and the strategy "auto", which chooses by
 * them. */
#ifndef RA__PLAN_CHOOSE_H
#define RA__PLAN_CHOOSE_H

#include "plan/plan.h"

enum { RA__WHY_TEXT = 400, RA__FIGURES_TEXT = 192 };

/* Where the figures of a machine come from; 0 = not known. */
struct ra__machine_sources {
    struct ra__machine given, measured;
    const char *transport; /* its defaults are used if nothing else is known */
    bool backward;         /* name the backward figure too */
};

/* Figures of the caller come first, then measured ones, then defaults; `figures` says which is
 * which, `load` says it of the figure that only streams use. */
void ra__machine_resolve(const struct ra__machine_sources *sources, struct ra__machine *out,
                         char figures[RA__FIGURES_TEXT], const char **load);

/* What `auto` decides by. */
struct ra__choice {
    const struct ra__machine *machine;
    const char *figures; /* the same as text */
    bool bias;           /* only strategies that support one */
    size_t budget;       /* bytes of a rank; 0 = any */
    /* The bytes that a rank needs for `plan`, which itself has `own` of them; without the workspace
     * of a kernel: kernels and threads of ranks may differ, and that part is small. */
    ra_status (*bytes)(void *context, const struct ra__plan *plan, size_t own, size_t *out);
    void *context;
    char *why; /* [RA__WHY_TEXT]: the reasons go here */
};

/* Sets the strategy of `input`. */
ra_status ra__choose(const struct ra__choice *choice, struct ra__plan_input *input);

#endif
