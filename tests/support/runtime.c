/* SPDX-License-Identifier: Apache-2.0 */
#include "support/runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { ANY_DIRECTION = 4 }; /* as CUDA has it */

void runtime_open(void)
{
    ra_part part = ra_part_default();
    for (int i = 0; ra_part_at("device", i, &part) == RA_OK;) i++;
}

ra_group_options runtime_group_options(void)
{
    ra_group_options options = ra_group_options_default();
    options.threads = 1;
    options.timeout = 60;
    options.device = getenv("RINGATTN_TEST_DEVICE");
    options.on_device = options.device != NULL;
    return options;
}

/* POSIX lets a pointer to data become one to a function, C does not. */
void runtime_find(const char *name, void *function)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/libringattn_cuda.so", getenv("RINGATTN_PLUGINS"));
    void *module = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(module);
    void *found = dlsym(module, name);
    assert_non_null(found);
    memcpy(function, &found, sizeof found);
    dlclose(module);
}

void runtime_overwrite(void *to, const void *from, size_t bytes)
{
    int (*copy)(void *, const void *, size_t, int);
    if (!getenv("RINGATTN_TEST_DEVICE")) {
        memmove(to, from, bytes);
        return;
    }
    runtime_find("cudaMemcpy", &copy);
    assert_int_equal(copy(to, from, bytes, ANY_DIRECTION), 0);
}

void *runtime_upload(void *memory, size_t bytes)
{
    int (*alloc)(void **, size_t), (*finish)(void);
    void *there = NULL;
    if (!getenv("RINGATTN_TEST_DEVICE")) return memory;
    runtime_find("cudaMalloc", &alloc);
    assert_int_equal(alloc(&there, bytes), 0);
    runtime_overwrite(there, memory, bytes);
    runtime_find("cudaDeviceSynchronize", &finish);
    assert_int_equal(finish(), 0);
    return there;
}

void runtime_download(void *memory, void *there, size_t bytes)
{
    int (*release)(void *);
    if (there == memory) return;
    runtime_find("cudaFree", &release);
    runtime_overwrite(memory, there, bytes);
    assert_int_equal(release(there), 0);
}
