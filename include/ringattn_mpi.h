/* SPDX-License-Identifier: Apache-2.0 */
/* ringattn_mpi.h - groups of ranks that are processes of MPI.
 *
 *     MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
 *     ra_mpi_group_create(MPI_COMM_WORLD, NULL, &group);   on every process of the communicator
 *     ...                                                  plans and runs as in ringattn.h
 *     ra_group_destroy(group);                             likewise on every process
 *     MPI_Finalize();
 *
 * The library itself does not know MPI: it finds libringattn_mpi.so at run time (see
 * ra_group_join() in ringattn.h), which must be built with the MPI that the program uses; another
 * one is refused by name.
 *
 * THREADS  MPI must be initialised with MPI_THREAD_FUNNELED or better. With MPI_THREAD_FUNNELED the
 * thread that initialised it makes, uses and destroys the group. Only the thread that calls the
 * library calls MPI. Where MPI is not initialised yet, the library does that, and ends it when the
 * process exits; it never ends what it did not begin.
 *
 * ERRORS come back as ra_status where MPI lets them: MPICH tells those of requests to the handler
 * of MPI_COMM_WORLD, so a program that is to survive a lost peer sets MPI_ERRORS_RETURN there.
 * After a failure messages may be left that MPI cannot take back: the group's communicators are
 * then not freed, and MPI_Finalize may wait for ever, since a peer may be gone; end the process
 * without it.
 *
 * COLLECTIVE  Creating and destroying are: both wait for the others, no longer than one of them is
 * silent for the timeout.
 */
#ifndef RINGATTN_MPI_H
#define RINGATTN_MPI_H

#include <mpi.h>

#include "ringattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whose handles these are: programs and plug-ins of one family understand each other's. */
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
    MPI_Comm comm; /* an intracommunicator; duplicated, so messages of others do not meet ours */
} ra_mpi_where;

/* This process as a rank of a group with the ranks of `comm`. Options as for every group; by
 * default a rank has as many threads as cores are left to it by those that share them. */
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
