/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c - which rank a process is, and how ranks get an id. */
#include "transport/nccl/meet.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/status.h"

static char why[PATH_MAX + 200];

/* ---- Launchers ------------------------------------------------------------------------------- */

/* What they put into the environment of every process. A job has a name of its own, and perhaps
 * steps; NULL: it has none. */
static const struct {
    const char *rank, *ranks, *local, *job, *step;
} launchers[] = {
    { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "PMIX_NAMESPACE", NULL },
    { "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", NULL },
    { "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", NULL, NULL },
    { "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_JOB_ID", "SLURM_STEP_ID" },
};

static bool number_in(const char *name, int *out)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return false;
    const long value = strtol(text, &end, 10);
    if (*end || value < 0 || value > INT_MAX) return false;
    *out = (int)value;
    return true;
}

/* A process's number on its host. One launcher may run below another, and only that one says it. */
static int local_number(void)
{
    int number;
    for (int i = 0; i < RA__COUNT(launchers); i++)
        if (number_in(launchers[i].local, &number)) return number;
    return -1;
}

const char *meet_launched(struct place *place)
{
    *place = (struct place){ 0, 1, -1 };
    for (int i = 0; i < RA__COUNT(launchers); i++) {
        if (!number_in(launchers[i].rank, &place->rank) ||
            !number_in(launchers[i].ranks, &place->ranks))
            continue;
        place->device = local_number();
        if (place->rank < place->ranks) return NULL;
        snprintf(why, sizeof why, "%s is %d and %s is %d: there is no such rank", launchers[i].rank,
                 place->rank, launchers[i].ranks, place->ranks);
        return why;
    }
    *place = (struct place){ 0, 1, -1 };
    return NULL;
}

/* The part of a file's name that no other job has: its own name, or the process that started it. */
static void name_job(char *name, size_t room)
{
    const char *job = NULL, *step = NULL;
    for (int i = 0; i < RA__COUNT(launchers) && !job; i++) {
        if (!getenv(launchers[i].rank) || !launchers[i].job) continue;
        job = getenv(launchers[i].job);
        step = launchers[i].step ? getenv(launchers[i].step) : NULL;
    }
    if (job && *job && !strchr(job, '/') && strcmp(job, "none")) /* torchrun's word */
        snprintf(name, room, "%s%s%s", job, step ? "-" : "", step ? step : "");
    else snprintf(name, room, "%ld", (long)getppid());
}

bool meet_path(char *path, size_t room, int n)
{
    const char *file = getenv("RINGATTN_NCCL_FILE"), *folder = getenv("TMPDIR");
    char job[200];
    int length;
    if (!folder || !*folder) folder = "/tmp";
    name_job(job, sizeof job);
    if (file && *file) length = snprintf(path, room, "%s.%d", file, n);
    else
        length = snprintf(path, room, "%s/ringattn-nccl-%ld-%s.%d", folder, (long)getuid(), job, n);
    return length >= 0 && (size_t)length < room;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static const char *said(const char *path, const char *what)
{
    snprintf(why, sizeof why, "%s: %s", path, what);
    return why;
}

/* Under another name first: who finds the file finds all of it. */
const char *meet_write(const char *path, const void *id, size_t bytes)
{
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        return said(path, "the path is too long");
    unlink(part); /* of a job that was killed */
    const int file = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return said(part, strerror(errno));
    const bool written = write(file, id, bytes) == (ssize_t)bytes;
    const bool closed = !close(file);
    if (written && closed && !rename(part, path)) return NULL;
    const char *reason = said(path, written ? strerror(errno) : "it cannot be written");
    unlink(part);
    return reason;
}

/* A file of another user is none: whoever wrote it would decide whom this rank connects to. */
static bool read_all(const char *path, void *id, size_t bytes)
{
    struct stat facts;
    const int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) return false;
    const bool all = !fstat(file, &facts) && facts.st_uid == getuid() &&
                     read(file, id, bytes) == (ssize_t)bytes;
    close(file);
    return all;
}

const char *meet_read(const char *path, void *id, size_t bytes, double seconds)
{
    const struct timespec moment = { 0, 2000000 };
    for (double start = ra__now(); !read_all(path, id, bytes); nanosleep(&moment, NULL)) {
        if (ra__now() - start < seconds) continue;
        char text[80];
        snprintf(text, sizeof text, "rank 0 did not write it within %.3g seconds", seconds);
        return said(path, text);
    }
    return NULL;
}

void meet_forget(const char *path) { unlink(path); }
