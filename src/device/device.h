/* device.h - memory, and what is done to it between kernels. Rows are counted, never
 * interpreted. */
#ifndef RA__DEVICE_DEVICE_H
#define RA__DEVICE_DEVICE_H

#include "core/memory.h"

/* `rows` pieces of `bytes` bytes each; strides in bytes. */
struct ra__copy {
    void *to;
    const void *from;
    size_t to_stride, from_stride;
    size_t bytes;
    int64_t rows;
};

struct ra__device {
    const char *name;
    const char *summary;
    void *(*alloc)(struct ra__account *account, enum ra__purpose purpose, size_t bytes);
    void (*free)(void *memory); /* accepts NULL */
    void (*copy)(const struct ra__copy *copy);
    void (*clear)(void *memory, size_t bytes);
    void (*add)(float *to, const float *from, size_t count); /* to += from */
};

/* The rows of device.list; NULL behind the last. */
const struct ra__device *ra__device_at(int index);

#endif
