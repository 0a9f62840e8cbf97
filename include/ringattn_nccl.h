/* SPDX-License-Identifier: Apache-2.0 */
/* ringattn_nccl.h - groups whose ranks are GPUs that NCCL connects, one process for each.
 *
 *     ra_nccl_where where = ra_nccl_where_default();
 *     where.rank = rank, where.ranks = ranks, where.device = gpu;
 *     where.path = "/shared/job-17";                      or where.id, from ncclGetUniqueId()
 *     options.device = "cuda:GPU";                        the same GPU
 *     ra_group_join("nccl", &where, &options, &group);    on every process
 *     ...                                                 plans and runs as in ringattn.h
 *     ra_group_destroy(group);                            on every process
 *
 * PLUG-IN  The library is not linked to NCCL. It loads libringattn_nccl.so at run time.
 *
 * MEETING  Ranks meet by an id that NCCL makes. Rank 0 writes it to a file that all processes can
 * read, and removes the file when all have met; a path that a killed job has left behind must not
 * be used again. Or the caller distributes the id: with MPI, rank 0 calls ncclGetUniqueId() and
 * MPI_Bcast() brings its bytes to the others. With where = NULL the launcher (mpirun, srun,
 * torchrun) says which rank a process is and how many there are, and the processes of a host take
 * its GPUs in their order. The file is then RINGATTN_NCCL_FILE, or one in the folder of temporary
 * files, which serves processes of one host only. Without a launcher a process is a ring of one.
 *
 * TIMEOUT  NCCL has no heartbeats. A rank that waits for a message longer than the timeout of the
 * group gives up, whatever its peer is doing: choose a timeout longer than any rank's work between
 * two messages. ra_group_poll() sends nothing, and after ra_group_abort() the other ranks end at
 * their timeout. A group that failed cannot be used any more.
 */
#ifndef RINGATTN_NCCL_H
#define RINGATTN_NCCL_H

#include "ringattn.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RA_NCCL_ID_BYTES 128 /* of ncclUniqueId */

/* `where` of ra_group_join("nccl", ...). */
typedef struct ra_nccl_where {
    size_t size; /* by ra_nccl_where_default() */
    int rank, ranks;
    int device;       /* the GPU of this rank, as CUDA counts them in this process */
    int reserved;     /* 0 */
    const char *path; /* of the file; NULL: `id` is given, or ranks is 1 */
    const void *id;   /* RA_NCCL_ID_BYTES bytes, the same on all ranks; NULL: `path` is given */
} ra_nccl_where;

static inline ra_nccl_where ra_nccl_where_default(void)
{
    ra_nccl_where where;
    memset(&where, 0, sizeof where);
    where.size = sizeof where;
    where.ranks = 1;
    return where;
}

#ifdef __cplusplus
}
#endif
#endif
