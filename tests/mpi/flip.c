/* flip.c - a wire that changes one bit: loaded before MPI (LD_PRELOAD), it sends the first large message of
 * one rank with the exponent of one of its numbers changed. The sender's own memory stays as it is.
 *
 *     RINGATTN_TEST_FLIP=RANK     RANK = -1: nobody */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 1024 }; /* bytes: blocks of keys are, words and greetings are not */

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    static int done;
    const char *wanted = getenv("RINGATTN_TEST_FLIP");
    int rank = -1;
    PMPI_Comm_rank(comm, &rank);
    char *copy = !done && wanted && atoi(wanted) == rank && count >= LARGE ? malloc((size_t)count)
                                                                           : NULL;
    if (!copy) return PMPI_Isend(data, count, type, to, tag, comm, request);
    done = 1;
    memcpy(copy, data, (size_t)count); /* bytes; stays, for nobody here knows when it has left */
    copy[count / 8 * 4 + 3] ^= 0x40;
    return PMPI_Isend(copy, count, type, to, tag, comm, request);
}
