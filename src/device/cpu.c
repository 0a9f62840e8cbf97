/* cpu.c - host memory. */
#include <string.h>

#include "device/device.h"

static void cpu_copy(const struct ra__copy *copy)
{
    char *to = copy->to;
    const char *from = copy->from;
    if (copy->to_stride == copy->bytes && copy->from_stride == copy->bytes) {
        memcpy(to, from, copy->bytes * (size_t)copy->rows);
        return;
    }
    for (int64_t i = 0; i < copy->rows; i++)
        memcpy(to + (size_t)i * copy->to_stride, from + (size_t)i * copy->from_stride, copy->bytes);
}

static void cpu_clear(void *memory, size_t bytes)
{
    if (bytes > 0) memset(memory, 0, bytes); /* an empty rank has no memory at all */
}

static void cpu_add(float *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++) to[i] += from[i];
}

const struct ra__device ra__device_cpu = {
    .name = "cpu",
    .summary = "this machine's processors and memory",
    .alloc = ra__alloc,
    .free = ra__free,
    .copy = cpu_copy,
    .clear = cpu_clear,
    .add = cpu_add,
};
