/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.c - finds, opens and checks plug-ins. */
#include "core/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/arena.h"
#include "core/version.h"

static struct slot {
    const char *name, *kind, *summary, *needs;
    bool tried;
    const struct ra__plugin *table;
    char why[1024];
} slots[] = {
#define RA__PLUGIN(name, kind, summary, needs) { #name, kind, summary, needs, false, NULL, "" },
#include "core/plugin.list"
#undef RA__PLUGIN
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the slots */

static void *host_alloc(size_t bytes)
{
    return ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, bytes);
}

static const struct ra__host host = { .set_error = ra__set_error,
                                      .last_error = ra_last_error,
                                      .alloc = host_alloc,
                                      .free = ra__free,
                                      .arena_array = ra__arena_array,
                                      .arena_kept = ra__arena_kept,
                                      .buffers_give = ra__buffers_give };

/* ---- Finding --------------------------------------------------------------------------------- */

struct search {
    char file[64];
    char path[PATH_MAX];
    char places[700]; /* the folders searched, for the error sentence */
};

/* Is the module in the folder named by the first `length` bytes of `folder`, followed by
 * `below`? */
static bool is_in(struct search *search, const char *folder, size_t length, const char *below)
{
    if (length == 0) return false;
    int written = snprintf(search->path, sizeof search->path, "%.*s%s/%s", (int)length, folder,
                           below, search->file);
    if (written < 0 || written >= (int)sizeof search->path) return false;
    if (access(search->path, F_OK) == 0) return true;
    size_t used = strlen(search->places);
    snprintf(search->places + used, sizeof search->places - used, "%s%.*s%s", used ? ", " : "",
             (int)length, folder, below);
    return false;
}

static bool is_in_list(struct search *search, const char *list)
{
    for (; list && *list; list += strcspn(list, ":"), list += *list == ':')
        if (is_in(search, list, strcspn(list, ":"), "")) return true;
    return false;
}

/* Beside the object file that holds this code, and where its installation puts plug-ins. */
static bool is_near(struct search *search)
{
    Dl_info info;
    char self[PATH_MAX];
    ssize_t length = -1;
    if (dladdr(&host, &info) && info.dli_fname && strstr(info.dli_fname, ".so") &&
        realpath(info.dli_fname, self))
        length = (ssize_t)strlen(self);
    else length = readlink("/proc/self/exe", self, sizeof self - 1);
    while (length > 0 && self[length - 1] != '/') length--;
    if (length <= 1) return false;
    size_t folder = (size_t)length - 1;
    return is_in(search, self, folder, "") || is_in(search, self, folder, "/ringattn") ||
           is_in(search, self, folder, "/../" RA__PLUGIN_LIBDIR);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static const struct ra__plugin *check(struct slot *slot, const char *path, void *module)
{
    const struct ra__plugin *table = dlsym(module, RA__PLUGIN_SYMBOL);
    if (!table) {
        snprintf(slot->why, sizeof slot->why, "%.500s is not a plug-in of ringattn", path);
        return NULL;
    }
    if (table->shape != RA__PLUGIN_VERSION || strcmp(table->version, RA__VERSION)) {
        snprintf(slot->why, sizeof slot->why,
                 "%.500s belongs to ringattn %.20s; this is ringattn " RA__VERSION, path,
                 table->version);
        return NULL;
    }
    return table;
}

static const struct ra__plugin *open_at(struct slot *slot, const char *path)
{
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        const char *words = dlerror();
        snprintf(slot->why, sizeof slot->why, "%.800s; %.200s", words ? words : path, slot->needs);
        return NULL;
    }
    const struct ra__plugin *table = check(slot, path, module);
    if (!table) {
        dlclose(module);
        return NULL;
    }
    table->start(&host);
    snprintf(slot->why, sizeof slot->why, "%.900s", table->about());
    return table;
}

/* Under the lock. */
static void try(struct slot *slot)
{
    struct search search = { .places = "" };
    slot->tried = true;
    snprintf(search.file, sizeof search.file, "libringattn_%s.so", slot->name);
    if (is_in_list(&search, getenv("RINGATTN_PLUGINS")) || is_near(&search) ||
        is_in(&search, RA__PLUGIN_DIR, strlen(RA__PLUGIN_DIR), ""))
        slot->table = open_at(slot, search.path);
    else
        snprintf(slot->why, sizeof slot->why, "%s was not found in %s; %.200s", search.file,
                 search.places, slot->needs);
}

static struct slot *tried(int index)
{
    if (index < 0 || index >= RA__COUNT(slots)) return NULL;
    pthread_mutex_lock(&lock);
    if (!slots[index].tried) try(&slots[index]);
    pthread_mutex_unlock(&lock);
    return &slots[index];
}

const struct ra__plugin *ra__plugin_at(int index)
{
    const struct slot *slot = tried(index);
    return slot ? slot->table : NULL;
}

const char *ra__plugin_why(int index)
{
    const struct slot *slot = tried(index);
    return slot ? slot->why : NULL;
}

int ra__plugin_find(const char *kind, int index)
{
    for (int i = 0; i < RA__COUNT(slots); i++)
        if (!strcmp(slots[i].kind, kind) && index-- == 0) return i;
    return -1;
}

const char *ra__plugin_name(int index)
{
    return index >= 0 && index < RA__COUNT(slots) ? slots[index].name : NULL;
}

const char *ra__plugin_summary(int index)
{
    return index >= 0 && index < RA__COUNT(slots) ? slots[index].summary : NULL;
}
