/* SPDX-License-Identifier: Apache-2.0 */
/* flip.c - a wire that changes one bit: loaded before MPI (LD_PRELOAD), it sends the n-th large
 * message of one rank with the exponent of one of its numbers changed. The sender's own memory
 * stays as it is.
 *
 *     RINGATTN_TEST_FLIP=RANK,N     RANK = -1: none; N counts from 1 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 1024 }; /* bytes: blocks of keys are, words and greetings are not */

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    static int large;
    const char *wanted = getenv("RINGATTN_TEST_FLIP");
    int rank = -1, victim = -1, which = 0;
    char *copy = NULL;
    PMPI_Comm_rank(comm, &rank);
    if (wanted) sscanf(wanted, "%d,%d", &victim, &which);
    if (count >= LARGE && ++large == which && rank == victim) copy = malloc((size_t)count);
    if (!copy) return PMPI_Isend(data, count, type, to, tag, comm, request);
    /* bytes; kept, because it is not known here when they have been sent */
    memcpy(copy, data, (size_t)count);
    copy[count / 8 * 4 + 3] ^= 0x40;
    return PMPI_Isend(copy, count, type, to, tag, comm, request);
}
