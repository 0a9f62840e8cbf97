/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - the table that this module exports to the library. */
#include <stdio.h>
#include <string.h>

#include "core/version.h"
#include "ringattn_mpi.h"
#include "transport/mpi/link.h"

const struct ra__host *mpi_host;

static void start(const struct ra__host *host) { mpi_host = host; }

/* The first words of MPI's own description: "Open MPI v4.1.4". */
static const char *about(void)
{
    static char text[200];
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(version, &length);
    snprintf(text, sizeof text,
             "%.*s; mpirun or srun start its processes, one alone is a world of one",
             (int)strcspn(version, ",\n"), version);
    for (char *at = text; *at; at++)
        if (*at == '\t') *at = ' ';
    return text;
}

static const struct ra__transport transport = {
    .name = "mpi",
    .summary = "ranks are processes of MPI",
    .join = mpi_join,
    .reserve = mpi_reserve,
    .extend = mpi_extend,
    .post = mpi_post,
    .wait = mpi_wait,
    .retains = mpi_retains,
    .poll = mpi_poll,
    .idle = control_idle,
    .abort = control_abort,
    .close = mpi_close,
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
