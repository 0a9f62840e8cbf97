/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - the table that this module exports to the library. */
#include <stdio.h>

#include "core/version.h"
#include "transport/nccl/link.h"

const struct ra__host *nccl_host;

static void start(const struct ra__host *host) { nccl_host = host; }

static const char *about(void)
{
    static char text[120];
    int version = 0;
    ncclGetVersion(&version);
    snprintf(text, sizeof text,
             "NCCL %d.%d.%d; mpirun, srun or torchrun start its processes, one for each GPU",
             version / 10000, version / 100 % 100, version % 100);
    return text;
}

static const struct ra__transport transport = {
    .name = "nccl",
    .summary = "ranks are GPUs that NCCL connects",
    .join = nccl_join,
    .extend = nccl_extend,
    .post = nccl_post,
    .wait = nccl_wait,
    .poll = nccl_poll,
    .abort = nccl_abort,
    .close = nccl_close,
};

static const struct ra__transport *const transports[] = { &transport, NULL };

extern RA_API const struct ra__plugin ra_plugin;
const struct ra__plugin ra_plugin = {
    .shape = RA__PLUGIN_VERSION,
    .version = RA__VERSION,
    .start = start,
    .about = about,
    .transports = transports,
};
