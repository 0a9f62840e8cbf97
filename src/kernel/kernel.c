/* kernel.c - the table of kernels and the choice among them. */
#include "kernel/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

#define RA__KERNEL(name) extern const struct ra__kernel ra__kernel_##name;
#include "kernel/kernel.list"
#undef RA__KERNEL

static const struct ra__kernel *const kernels[] = {
#define RA__KERNEL(name) &ra__kernel_##name,
#include "kernel/kernel.list"
#undef RA__KERNEL
};

const struct ra__kernel *ra__kernel_at(int index)
{
    return index >= 0 && index < RA__COUNT(kernels) ? kernels[index] : NULL;
}

static const struct ra__kernel *find(const char *name)
{
    for (int i = 0; i < RA__COUNT(kernels); i++)
        if (strcmp(kernels[i]->name, name) == 0) return kernels[i];
    return NULL;
}

/* The plain C kernel is always usable, so there always is one. */
static const struct ra__kernel *fastest(void)
{
    int i = RA__COUNT(kernels) - 1;
    while (i > 0 && !kernels[i]->usable()) i--;
    return kernels[i];
}

/* What the environment asks for; NULL where it leaves the choice to us. */
static const char *wish(void)
{
    const char *name = getenv("RINGATTN_KERNEL");
    return name && *name ? name : NULL;
}

static const char *name_at(int index) { return ra__kernel_at(index) ? kernels[index]->name : NULL; }

ra_status ra__kernel_choose(const char *name, const struct ra__kernel **out)
{
    if (!name) name = wish();
    const struct ra__kernel *kernel = name ? find(name) : fastest();
    if (!kernel) return ra__fail_unknown("kernel", name, strlen(name), name_at);
    if (!kernel->usable())
        return ra__fail(RA_ERR_UNSUPPORTED, "kernel: '%s' needs %s, which this CPU does not have",
                        name, kernel->needs);
    *out = kernel;
    return RA_OK;
}

const char *ra__kernel_why(const struct ra__kernel *kernel)
{
    /* A sentence per kernel, so that a caller may hold all of them at once. */
    static _Thread_local char sentences[RA__COUNT(kernels)][128];
    int i = 0;
    while (kernels[i] != kernel) i++;
    const char *name = wish();
    if (!kernel->usable())
        snprintf(sentences[i], sizeof sentences[i], "it needs %s, which this CPU does not have",
                 kernel->needs);
    else if (name && !find(name))
        snprintf(sentences[i], sizeof sentences[i],
                 "RINGATTN_KERNEL names \"%.40s\", which is not known", name);
    else if (name && strcmp(name, kernel->name) == 0)
        snprintf(sentences[i], sizeof sentences[i], "RINGATTN_KERNEL names it");
    else if (name) snprintf(sentences[i], sizeof sentences[i], "RINGATTN_KERNEL names another one");
    else if (kernel == fastest())
        snprintf(sentences[i], sizeof sentences[i], "the fastest one this CPU can run");
    else snprintf(sentences[i], sizeof sentences[i], "%s is faster", fastest()->name);
    return sentences[i];
}
