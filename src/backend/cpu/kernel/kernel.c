/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - the table of kernels and the choice among them. */
#include "backend/cpu/kernel/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/status.h"

#define RA__KERNEL(name) extern const struct ra__kernel ra__kernel_##name;
#include "backend/cpu/kernel/kernel.list"
#undef RA__KERNEL

static const struct ra__kernel *const kernels[] = {
#define RA__KERNEL(name) &ra__kernel_##name,
#include "backend/cpu/kernel/kernel.list"
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

static bool is_candidate(const struct ra__kernel *kernel, ra_dtype dtype)
{
    return kernel->usable() && !(kernel->slow && kernel->slow()) && ra__kernel_takes(kernel, dtype);
}

/* For few query rows, a kernel that reads keys in place is faster than one that packs them. For one
 * row, a kernel that reads values key by key, in the order of memory, is faster than one that
 * multiplies them in pairs. */
static bool suits(const struct ra__kernel *kernel, enum ra__query_rows rows)
{
    if (rows == RA__MANY_ROWS) return true;
    return kernel->wide && (rows != RA__ONE_ROW || kernel->weights == RA_F32);
}

/* The scalar kernel is always usable and supports every dtype, so there always is one. */
static const struct ra__kernel *fastest(ra_dtype dtype, enum ra__query_rows rows)
{
    int i = RA__COUNT(kernels) - 1;
    while (i > 0 && (!is_candidate(kernels[i], dtype) || !suits(kernels[i], rows))) i--;
    return kernels[i];
}

/* The kernel that the environment asks for; NULL if it does not. */
static const char *wish(void)
{
    const char *name = getenv("RINGATTN_KERNEL");
    return name && *name ? name : NULL;
}

static const char *name_at(int index) { return ra__kernel_at(index) ? kernels[index]->name : NULL; }

/* Some dtypes as a list, "f32 and f16"; at most all three. */
struct names {
    char text[32];
};

static struct names name_dtypes(unsigned dtypes)
{
    struct names names = { "" };
    for (int t = 0; dtypes >> t; t++) {
        if (!(dtypes >> t & 1)) continue;
        bool more = dtypes >> t >> 1, begun = *names.text;
        snprintf(names.text + strlen(names.text), sizeof names.text - strlen(names.text), "%s%s",
                 !begun ? ""
                 : more ? ", "
                        : " and ",
                 ra__dtype_name((ra_dtype)t));
    }
    return names;
}

ra_status ra__kernel_choose(const char *name, ra_dtype dtype, enum ra__query_rows rows,
                            const struct ra__kernel **out)
{
    const char *what = name ? "kernel" : "RINGATTN_KERNEL";
    if (!name) name = wish();
    const struct ra__kernel *kernel = name ? find(name) : fastest(dtype, rows);
    if (!kernel) return ra__fail_unknown(what, name, strlen(name), name_at);
    if (!kernel->usable())
        return ra__fail(RA_ERR_UNSUPPORTED, "%s: '%s' needs %s, which this CPU does not have",
                        what, name, kernel->needs);
    if (!ra__kernel_takes(kernel, dtype))
        return ra__fail(RA_ERR_UNSUPPORTED, "%s: '%s' supports %s, not %s", what, name,
                        name_dtypes(kernel->dtypes).text, name_dtypes(1u << dtype).text);
    *out = kernel;
    return RA_OK;
}

/* The dtypes for which it is the fastest kernel. */
static unsigned best_for(const struct ra__kernel *kernel, enum ra__query_rows rows)
{
    unsigned dtypes = 0;
    for (int t = 0; RA__ALL_DTYPES >> t; t++)
        if (fastest((ra_dtype)t, rows) == kernel) dtypes |= 1u << t;
    return dtypes;
}

/* The same for one query, with one or several query heads per KV head. */
static unsigned best_for_one(const struct ra__kernel *kernel)
{
    return best_for(kernel, RA__FEW_ROWS) | best_for(kernel, RA__ONE_ROW);
}

bool ra__kernel_chosen(const struct ra__kernel *kernel)
{
    const char *name = wish();
    return name ? kernel == find(name) && kernel->usable()
                : (best_for(kernel, RA__MANY_ROWS) | best_for_one(kernel)) != 0;
}

/* For a usable kernel that was not asked for by name. */
static void say_why(const struct ra__kernel *kernel, char *sentence, size_t size)
{
    unsigned best = best_for(kernel, RA__MANY_ROWS), alone = best_for_one(kernel) & ~best;
    const char *also = !alone ? "" : best ? ", and for one query of " : "one query of ";
    const char *heads = alone & ~best_for(kernel, RA__FEW_ROWS) ? " with one head to a KV head"
                                                                : "";
    if (best == RA__ALL_DTYPES) snprintf(sentence, size, "the fastest one this CPU can run");
    else if (best || alone)
        snprintf(sentence, size, "the fastest one this CPU can run for %s%s%s%s",
                 name_dtypes(best).text, also, name_dtypes(alone).text, heads);
    else {
        ra_dtype dtype = ra__kernel_takes(kernel, RA_F32) ? RA_F32 : RA_BF16;
        snprintf(sentence, size, "%s is faster", fastest(dtype, RA__MANY_ROWS)->name);
    }
}

const char *ra__kernel_why(const struct ra__kernel *kernel)
{
    /* One sentence per kernel, so that a caller can keep all of them. */
    static _Thread_local char sentences[RA__COUNT(kernels)][160];
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
    else say_why(kernel, sentences[i], sizeof sentences[i]);
    return sentences[i];
}
