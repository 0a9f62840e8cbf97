/* SPDX-License-Identifier: Apache-2.0 */
/* identity.c - what a streamed run is, as text. */
#include "identity.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "harness/problem/places.h"

/* A file that is read whole, by size and time. */
static void print_whole(FILE *stream, const char *flag, const char *path)
{
    struct stat info;
    if (path && !stat(path, &info))
        fprintf(stream, "input %s: %s: %" PRId64 " bytes, written at %" PRId64 ".%09ld\n", flag,
                path, (int64_t)info.st_size, (int64_t)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

static void print_wholes(FILE *stream, const struct trial *t)
{
    char *bitmap = trial_bitmap(t);
    print_whole(stream, "--order", places_is_file(t->order) ? t->order : NULL);
    print_whole(stream, "--sinks", t->sinks);
    print_whole(stream, "--bias", t->bias);
    print_whole(stream, "--pattern", bitmap);
    free(bitmap);
}

char *identity_of(const struct streaming_setup *setup)
{
    char *text = NULL, *problem = trial_format(setup->trial);
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) {
        free(problem);
        return NULL;
    }
    fprintf(stream, "ringattn journal 1\nversion %s\nproblem %s\nstrategy %s\nkernel %s\n",
            ra_version(), problem ? problem : "", ra_plan_strategy(setup->plan),
            ra_plan_kernel(setup->plan));
    for (int i = 0; i <= TENSOR_DLSE && setup->inputs; i++)
        if (setup->inputs[i]) fprintf(stream, "input %s\n", npy_identity(setup->inputs[i]));
    print_wholes(stream, setup->trial);
    for (int i = TENSOR_OUT; i < TENSOR_COUNT; i++)
        if (setup->files->paths[i])
            fprintf(stream, "output %s %s\n", tensor_name(i), setup->files->paths[i]);
    free(problem);
    return fclose(stream) ? NULL : text;
}
