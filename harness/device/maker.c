/* SPDX-License-Identifier: Apache-2.0 */
/* maker.c - see maker.h. */
#include "maker.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/problem/parts.h"

/* The plug-in of a device among the modules of this process, and the maker beside it. */
struct search {
    const char *device;
    int letters;
    char path[PATH_MAX];
};

static int look_at(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct search *search = context;
    char name[64];
    (void)bytes;
    snprintf(name, sizeof name, "/libringattn_%.*s.so", search->letters, search->device);
    const size_t path = info->dlpi_name ? strlen(info->dlpi_name) : 0, file = strlen(name);
    if (path < file || strcmp(info->dlpi_name + path - file, name)) return 0;
    snprintf(search->path, sizeof search->path, "%.*s/libringattn_%.*s_maker.so",
             (int)(path - file), info->dlpi_name, search->letters, search->device);
    return 1;
}

const struct maker *maker_open(const char *device)
{
    struct search search = { .device = device, .letters = (int)strcspn(device, ":") };
    ra_part part;
    /* Opens the plug-in. */
    if (!parts_find("device", device, (size_t)search.letters, &part)) return NULL;
    if (!dl_iterate_phdr(look_at, &search)) return NULL;
    void *module = dlopen(search.path, RTLD_NOW | RTLD_LOCAL); /* stays open */
    const struct maker *maker = module ? dlsym(module, MAKER_SYMBOL) : NULL;
    return maker && maker->version == MAKER_VERSION ? maker : NULL;
}

int maker_number(const char *device)
{
    const char *colon = strchr(device, ':');
    return colon ? atoi(colon + 1) : 0;
}
