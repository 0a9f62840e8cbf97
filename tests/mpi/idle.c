/* SPDX-License-Identifier: Apache-2.0 */
/* idle.c - a process of MPI that does nothing, and the high-water mark of its memory in bytes: what
 * every process takes before the library comes. */
#include <mpi.h>
#include <stdio.h>
#include <sys/resource.h>

int main(int argc, char **argv)
{
    struct rusage usage;
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    if (getrusage(RUSAGE_SELF, &usage) == 0) printf("%ld\n", usage.ru_maxrss * 1024);
    MPI_Finalize();
    return 0;
}
