/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - whether MPI takes memory of a GPU. Where it does, messages are posted with pointers to
 * that memory; elsewhere plans copy them through pinned host memory, in steps of their own. */
#include "transport/mpi/link.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Open MPI, and others, answer by a function outside of the standard. It is looked up, since the
 * MPI that runs may be built with CUDA where the one that this is compiled with is not. */
static bool says_so(void)
{
    int (*query)(void) = NULL;
    void *found = dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
    memcpy(&query, &found, sizeof query); /* ISO C does not convert one to the other */
    return query && query() == 1;
}

/* RINGATTN_MPI_CUDA is for an MPI that takes such memory and does not say so, or says so and should
 * not be used for it. MPI is initialised. */
ra_status mpi_takes_cuda(bool *takes_cuda)
{
    const char *text = getenv("RINGATTN_MPI_CUDA");
    if (text && *text && strcmp(text, "0") && strcmp(text, "1"))
        return mpi_fail(RA_ERR_ARGUMENT, "RINGATTN_MPI_CUDA is \"%.40s\", but must be 0 or 1",
                        text);
    *takes_cuda = text && *text ? !strcmp(text, "1") : says_so();
    return RA_OK;
}

bool mpi_extend(void *opaque, const struct ra__reach *reach)
{
    struct link *link = opaque;
    if (!link->takes_cuda || !reach->cuda_memory) return false;
    link->reach = *reach;
    return true;
}

int mpi_enter_device(const struct link *link)
{
    return link->reach.device ? link->reach.make_current(link->reach.device) : 0;
}

void mpi_leave_device(const struct link *link, int before)
{
    if (link->reach.device) link->reach.restore(before);
}
