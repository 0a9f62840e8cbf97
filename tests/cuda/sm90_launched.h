/* SPDX-License-Identifier: Apache-2.0 */
/* sm90_launched.h - stand-ins for the Hopper kernels, which only note what they were launched with.
 * Part of test_sm90_bridge.c. */
#ifndef TESTS_CUDA_SM90_LAUNCHED_H
#define TESTS_CUDA_SM90_LAUNCHED_H

#include "backend/cuda/sm90/bridge.h"
#include "backend/cuda/sm90/bridge_ends.h"

static struct {
    int forward, backward, starts, ends;
    struct ra__sm90_forward last;
    struct ra__sm90_backward last_backward;
    struct ra__sm90_needs needs;
    struct ra__sm90_ends last_ends;
} launched;

enum { CLUSTERS = 7, BATCH = 2 };

/* Calls with a bias take a kernel with other tiles, as on the GPU. */
int ra__sm90_forward_shape(const struct ra__sm90_needs *needs, struct ra__sm90_shape *shape,
                           int *clusters)
{
    const bool all = needs->terms & (RA__SM90_BIAS | RA__SM90_DROPOUT);
    if (needs->views && needs->terms) return 801;
    *shape = (struct ra__sm90_shape){ .dim = needs->dim,
                                      .tile_rows = all ? 128 : 64,
                                      .block_keys = 16,
                                      .cluster_ctas = 1,
                                      .part_floats = 3,
                                      .warps = 4,
                                      .walks = 1 };
    *clusters = CLUSTERS;
    return 0;
}

int ra__sm90_backward_shape(const struct ra__sm90_needs *needs, struct ra__sm90_shape *shape,
                            int *clusters)
{
    if (needs->terms && (!needs->deterministic || needs->views)) return 801;
    *shape = (struct ra__sm90_shape){ .dim = needs->dim,
                                      .tile_rows = 32,
                                      .block_keys = 16,
                                      .cluster_ctas = 1,
                                      .part_floats = 3,
                                      .warps = 8,
                                      .walks = 2 };
    *clusters = CLUSTERS;
    return 0;
}

int ra__sm90_forward_launch(const struct ra__sm90_forward *args, const struct ra__sm90_needs *needs,
                            void *stream)
{
    (void)stream;
    launched.forward++;
    launched.last = *args;
    launched.needs = *needs;
    return 0;
}

int ra__sm90_backward_launch(const struct ra__sm90_backward *args,
                             const struct ra__sm90_needs *needs, void *stream)
{
    (void)stream;
    launched.backward++;
    launched.last_backward = *args;
    launched.needs = *needs;
    return 0;
}

int ra__sm90_start_gradient(const struct ra__sm90_ends *ends, void *stream)
{
    (void)ends;
    (void)stream;
    launched.starts++;
    return 0;
}

int ra__sm90_end_gradient(const struct ra__sm90_ends *ends, void *stream)
{
    (void)stream;
    launched.ends++;
    launched.last_ends = *ends;
    return 0;
}

#endif
