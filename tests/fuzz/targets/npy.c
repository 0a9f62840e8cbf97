/* SPDX-License-Identifier: Apache-2.0 */
/* npy.c - .npy files: refused, or as many values as their shape says. The first byte says what the
 * file is for. */
#include "fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include "harness/files/npy.h"

static int64_t product(const struct npy *npy)
{
    int64_t values = 1;
    for (int i = 0; i < npy->axes; i++) values *= npy->shape[i];
    return values;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    const int file = memfd_create("fuzz.npy", 0);
    MUST(file >= 0);
    MUST(write(file, data + 1, size - 1) == (ssize_t)(size - 1));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    struct npy npy = { .data = NULL };
    if (npy_read_kind("--q", path, (enum npy_kind)(data[0] % NPY_KINDS), &npy) == EXIT_PASS) {
        MUST(npy.values == product(&npy) && npy.values <= (int64_t)size);
        volatile uint8_t sum = 0; /* the last byte is there */
        if (npy.values) sum = ((const uint8_t *)npy.data)[npy.values - 1];
        (void)sum;
    } else MUST(!npy.data);
    free(npy.data);
    close(file);
    return 0;
}
