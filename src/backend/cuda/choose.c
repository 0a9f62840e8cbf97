/* SPDX-License-Identifier: Apache-2.0 */
/* choose.c - the kernels there are, and which of them a problem gets on a device. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"

#define RA__CUDA_KERNEL(name) extern const struct ra__kernel ra__cuda_kernel_##name;
#include "backend/cuda/kernel.list"
#undef RA__CUDA_KERNEL

static const struct ra__kernel *const kernels[] = {
#define RA__CUDA_KERNEL(name) &ra__cuda_kernel_##name,
#include "backend/cuda/kernel.list"
#undef RA__CUDA_KERNEL
};

_Static_assert((int)RA_F32 == RA__CUDA_F32 && (int)RA_BF16 == RA__CUDA_BF16 &&
                   (int)RA_F16 == RA__CUDA_F16,
               "dtypes have the same numbers on both sides");

static bool takes(const struct ra__kernel *kernel, const struct ra__shape *shape, bool backward)
{
    return kernel->dtypes >> shape->dtype & 1 &&
           kernel->takes((int)shape->dtype, shape->dim, shape->value_dim, backward);
}

const struct ra__kernel *ra__cuda_tabled(const struct ra__kernel *kernel,
                                         const struct ra__shape *shape, bool backward)
{
    const struct ra__kernel *found = NULL;
    for (int i = 0; kernel->scheduler && i < RA__COUNT(kernels) && kernels[i] != kernel; i++)
        if (!kernels[i]->scheduler && kernels[i]->is_for(kernel->sm) &&
            takes(kernels[i], shape, backward))
            found = kernels[i];
    return kernel->scheduler ? found : kernel;
}

/* Of a device, or, where it is not open, of the one of that number. */
static ra_status sm_of(const struct ra__cuda_device *device, int number, int *sm)
{
    struct ra__cuda_facts facts;
    if (device) facts.sm = device->facts.sm;
    else RA__TRY(ra__cuda_facts_of(number, &facts));
    *sm = facts.sm;
    return RA_OK;
}

static ra_status choose_named(const char *name, int sm, const struct ra__shape *shape,
                              bool backward, const struct ra__kernel **out)
{
    for (int i = 0; i < RA__COUNT(kernels); i++) {
        if (strcmp(kernels[i]->name, name)) continue;
        if (!kernels[i]->is_for(sm))
            return ra__cuda_fail(RA_ERR_UNSUPPORTED,
                                 "kernel %s needs compute capability %s; this GPU has %d.%d", name,
                                 kernels[i]->gpus, sm / 10, sm % 10);
        if (!takes(kernels[i], shape, backward))
            return ra__cuda_fail(RA_ERR_UNSUPPORTED,
                                 "kernel %s does not support %s with dim %d "
                                 "and value dim %d%s",
                                 name, ra__dtype_name(shape->dtype), shape->dim, shape->value_dim,
                                 backward ? ", backward" : "");
        *out = kernels[i];
        return RA_OK;
    }
    char names[200] = "";
    for (int i = 0; i < RA__COUNT(kernels); i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", kernels[i]->name);
    }
    return ra__cuda_fail(RA_ERR_ARGUMENT, "kernel: \"%.40s\" is not known; on a GPU there are %s",
                         name, names);
}

ra_status ra__cuda_choose(const void *device, int number, const char *name,
                          const struct ra__shape *shape, bool backward,
                          const struct ra__kernel **out)
{
    int sm;
    RA__TRY(sm_of(device, number, &sm));
    if (name) return choose_named(name, sm, shape, backward, out);
    for (int i = RA__COUNT(kernels) - 1; i >= 0; i--) {
        if (!kernels[i]->is_for(sm) || !takes(kernels[i], shape, backward)) continue;
        if (!ra__cuda_tabled(kernels[i], shape, backward)) continue;
        *out = kernels[i];
        return RA_OK;
    }
    return ra__cuda_fail(RA_ERR_UNSUPPORTED,
                         "cuda: no kernel for %s with dim %d and value dim %d on compute "
                         "capability %d.%d",
                         ra__dtype_name(shape->dtype), shape->dim, shape->value_dim, sm / 10,
                         sm % 10);
}

/* Is it the default for some dtype? Three dims stand for all. */
static bool is_chosen(const struct ra__kernel *kernel, int sm)
{
    static const int dims[] = { 40, 64, 256 };
    for (int n = 0; n < 3 * RA__COUNT(dims); n++) {
        const int dtype = RA_F32 + n / RA__COUNT(dims), dim = dims[n % RA__COUNT(dims)];
        int best = RA__COUNT(kernels) - 1;
        while (best >= 0 && (!kernels[best]->is_for(sm) || !(kernels[best]->dtypes >> dtype & 1) ||
                             !kernels[best]->takes(dtype, dim, dim, 1)))
            best--;
        if (best >= 0 && kernels[best] == kernel) return true;
    }
    return false;
}

bool ra__cuda_kernel_at(int number, int index, struct ra__kernel_facts *out)
{
    static _Thread_local char why[160];
    int sm;
    if (index < 0 || index >= RA__COUNT(kernels)) return false;
    if (sm_of(NULL, number, &sm) != RA_OK) return false;
    const struct ra__kernel *kernel = kernels[index];
    const bool usable = kernel->is_for(sm), chosen = usable && is_chosen(kernel, sm);
    snprintf(why, sizeof why, "compute capability %d.%d, and it needs %s%s", sm / 10, sm % 10,
             kernel->gpus,
             !usable  ? ""
             : chosen ? ": the fastest for some problems"
                      : ": others are faster");
    *out = (struct ra__kernel_facts){ .name = kernel->name,
                                      .summary = kernel->summary,
                                      .dtypes = kernel->dtypes,
                                      .usable = usable,
                                      .chosen = chosen,
                                      .why = why };
    return true;
}
