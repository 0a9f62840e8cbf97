/* SPDX-License-Identifier: Apache-2.0 */
/* shared.c - tensors in memory that another process can map. */
#include "shared.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* In the order of their places. */
static const enum tensor tensors[] = { TENSOR_Q,   TENSOR_K,  TENSOR_V,  TENSOR_DOUT,
                                       TENSOR_OUT, TENSOR_DQ, TENSOR_DK, TENSOR_DV };

static bool has(const struct trial *trial, enum tensor tensor)
{
    return trial->backward || !tensor_is_backward(tensor);
}

static int map(struct shared *shared)
{
    shared->file = memfd_create("ringattn", 0);
    if (shared->file < 0 || ftruncate(shared->file, (off_t)shared->bytes))
        return fault("%zu bytes of shared memory: %s", shared->bytes, strerror(errno));
    void *memory = mmap(NULL, shared->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared->file, 0);
    if (memory == MAP_FAILED)
        return fault("%zu bytes of shared memory: %s", shared->bytes, strerror(errno));
    shared->memory = memory;
    return EXIT_PASS;
}

static int fill(struct shared *shared, const struct trial *trial, enum tensor tensor)
{
    ra_run all = { 0, 1, tensor_length(trial, tensor) };
    struct shard shard = { &all, 1, NULL };
    shared->inputs.data[tensor] = shared->views[tensor].data;
    int status = data_fill(trial, tensor, &shard, &shared->views[tensor]);
    return status ? fault("out of memory") : EXIT_PASS;
}

int shared_open(struct shared *shared, const struct trial *trial)
{
    size_t places[COUNT(tensors)];
    *shared = (struct shared){ .file = -1 };
    for (int i = 0; i < COUNT(tensors); i++) {
        struct view *view = &shared->views[tensors[i]];
        size_t bytes = 0;
        if (has(trial, tensors[i]) &&
            !view_shape(trial, tensors[i], tensor_length(trial, tensors[i]), view, &bytes))
            return refuse("%s needs more bytes than can be counted", tensor_name(tensors[i]));
        places[i] = shared->bytes;
        shared->bytes += bytes;
    }
    int status = map(shared);
    for (int i = 0; i < COUNT(tensors) && !status; i++) {
        if (!has(trial, tensors[i])) continue;
        shared->views[tensors[i]].data = shared->memory + places[i];
        if (!tensor_is_result(tensors[i])) status = fill(shared, trial, tensors[i]);
    }
    if (status) shared_close(shared);
    return status;
}

void shared_close(struct shared *shared)
{
    if (shared->memory) munmap(shared->memory, shared->bytes);
    if (shared->bytes && shared->file >= 0) close(shared->file);
    *shared = (struct shared){ .file = -1 };
}
