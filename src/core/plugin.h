/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h - parts with heavy dependencies, found at run time.
 *
 * A plug-in is a module that exports one table, `ra_plugin`, and receives a table of functions it
 * may call. So it has no undefined symbol of the library: it works with the shared library and with
 * a program that links the static one. Its entries follow the built-in ones of the same kind. A
 * module is opened once, when it or a list that it extends is asked for, and never closed.
 *
 * It is searched in the folders of RINGATTN_PLUGINS (separated by colons), beside the library or
 * the program, and in the installation. The first file of that name decides: if it cannot be used,
 * that is reported, and the search does not go on. */
#ifndef RA__CORE_PLUGIN_H
#define RA__CORE_PLUGIN_H

#include "core/memory.h"

/* The version of these two tables and of the entries they name; another number is refused before
 * anything else is read. */
enum { RA__PLUGIN_VERSION = 11 };

struct ra__arena;
struct ra__backend;
struct ra__buffers;
struct ra__transport;

/* What a plug-in may call. */
struct ra__host {
    __attribute__((format(printf, 1, 2))) void (*set_error)(const char *format, ...);
    const char *(*last_error)(void);
    void *(*alloc)(size_t bytes); /* cleared and counted; NULL if memory runs out */
    void (*free)(void *memory);   /* accepts NULL */
    /* For backends: core/arena.h, core/buffers.h. */
    ra_status (*arena_array)(struct ra__arena *arena, int64_t count, size_t bytes, void **out);
    ra_status (*arena_kept)(struct ra__arena *arena, enum ra__purpose purpose, size_t bytes,
                            void **out);
    void (*buffers_give)(struct ra__buffers *buffers, const struct ra__account *account,
                         void *memory);
};

struct ra__plugin {
    int shape;           /* RA__PLUGIN_VERSION; this and the next field stay first for ever */
    const char *version; /* of the library it was built with; must be equal to this one */
    /* Called once, before any other function. */
    void (*start)(const struct ra__host *host);
    /* what it found on this machine, human-readable */
    const char *(*about)(void);
    const struct ra__transport *const *transports; /* NULL after the last; or NULL: none */
    const struct ra__backend *const *backends;     /* the same */
};

/* The symbol under which a module exports its table. */
#define RA__PLUGIN_SYMBOL "ra_plugin"

/* The index-th plug-in of a kind ("transport", "device"); -1 after the last. Opens nothing. */
int ra__plugin_find(const char *kind, int index);

/* The entries of plugin.list; NULL after the last. Opens nothing. */
const char *ra__plugin_name(int index);
const char *ra__plugin_summary(int index);

/* The table of a plug-in, opened if necessary; NULL if it cannot be used. And the reason: a
 * sentence that stays valid. Any thread. */
const struct ra__plugin *ra__plugin_at(int index);
const char *ra__plugin_why(int index);

#endif
