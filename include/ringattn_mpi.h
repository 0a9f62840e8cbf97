/* SPDX-License-Identifier: Apache-2.0 */
/* ringattn_mpi.h - groups whose ranks are MPI processes.
 *
 *     MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
 *     ra_mpi_group_create(MPI_COMM_WORLD, NULL, &group);   on every process of the communicator
 *     ...                                                  plans and runs as in ringattn.h
 *     ra_group_destroy(group);                             on every process
 *     MPI_Finalize();
 *
 * PLUG-IN  The library itself is not linked to MPI. It loads libringattn_mpi.so at run time (see
 * ra_group_join() in ringattn.h). That plug-in must be built with the MPI that the program uses;
 * otherwise the call fails, and the sentence names both.
 *
 * THREADS  MPI must be initialised with MPI_THREAD_FUNNELED or better. With MPI_THREAD_FUNNELED the
 * thread that initialised MPI creates, uses and destroys the group. Only the thread that calls the
 * library calls MPI. If MPI is not initialised yet, the library initialises it, and finalises it
 * when the process exits.
 *
 * ERRORS come back as ra_status where MPI allows it. MPICH reports errors of requests to the
 * handler of MPI_COMM_WORLD: a program that has to survive a lost peer sets MPI_ERRORS_RETURN
 * there. After a failure MPI may still hold messages. The communicators of the group are then not
 * freed, and MPI_Finalize may wait for ever: end the process without it.
 *
 * GPUS  If MPI says that it takes memory of CUDA (MPIX_Query_cuda_support()), messages of groups on
 * a GPU are posted with pointers to it. Otherwise they are copied through pinned host memory. The
 * environment variable RINGATTN_MPI_CUDA, 0 or 1, decides it without asking.
 *
 * COLLECTIVE  ra_mpi_group_create() and ra_group_destroy() wait for all other ranks. They give up
 * if a rank sends no heartbeat for the timeout.
 */
#ifndef RINGATTN_MPI_H
#define RINGATTN_MPI_H

#include <mpi.h>

#include "ringattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which MPI this is compiled with. Program and plug-in exchange handles of MPI, so both must be of
 * the same family. */
#if defined(OPEN_MPI)
#define RA_MPI_FAMILY "Open MPI"
#elif defined(MPICH_NAME) || defined(MPICH_VERSION) || defined(MPICH)
#define RA_MPI_FAMILY "MPICH"
#else
#define RA_MPI_FAMILY "another MPI"
#endif

/* `where` of ra_group_join("mpi", ...): ra_mpi_group_create() fills it in. */
typedef struct ra_mpi_where {
    size_t size;
    const char *family; /* RA_MPI_FAMILY of the program */
    MPI_Comm comm;      /* an intracommunicator; duplicated, so that other messages do not mix in */
} ra_mpi_where;

/* Makes this process a rank of a group, with the ranks of `comm`. By default the cores that a
 * process may use are divided evenly among the ranks that share them. */
static inline ra_status ra_mpi_group_create(MPI_Comm comm, const ra_group_options *options,
                                            ra_group **out)
{
    ra_mpi_where where;
    memset(&where, 0, sizeof where);
    where.size = sizeof where;
    where.family = RA_MPI_FAMILY;
    where.comm = comm;
    return ra_group_join("mpi", &where, options, out);
}

#ifdef __cplusplus
}
#endif
#endif
