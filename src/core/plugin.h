/* plugin.h - parts with heavy dependencies, found at run time.
 *
 * A plug-in is a module that exports one table, `ra_plugin`, and is handed a table of what it may
 * call, so it has no name left open that the library must fill in: it works beside the shared
 * library and beside a program that has the library inside. Its rows stand behind the built-in ones
 * of the same kind. A module is opened when somebody asks for it or for a list that it adds to,
 * once, and never closed.
 *
 * Looked for in the folders of RINGATTN_PLUGINS (with colons between), beside the library or the
 * program, and where it is installed. The first file of its name decides: one that cannot be used
 * is told, not skipped. */
#ifndef RA__CORE_PLUGIN_H
#define RA__CORE_PLUGIN_H

#include "core/status.h"

/* The shape of these two tables and of the rows they name; another number is refused before
 * anything else is read. */
enum { RA__PLUGIN_SHAPE = 2 };

struct ra__transport;

/* What a plug-in may call. */
struct ra__host {
    __attribute__((format(printf, 1, 2))) void (*set_error)(const char *format, ...);
    void *(*alloc)(size_t bytes); /* cleared and counted; NULL when there is none */
    void (*free)(void *memory);   /* accepts NULL */
};

struct ra__plugin {
    int shape;           /* RA__PLUGIN_SHAPE; this and the next stay first for ever */
    const char *version; /* of the library it was built with, which must be this one */
    /* Called once, before anything else of it. */
    void (*start)(const struct ra__host *host);
    const char *(*about)(void);                    /* what it found here, for people */
    const struct ra__transport *const *transports; /* NULL behind the last */
};

/* The name that a module exports its table by. */
#define RA__PLUGIN_SYMBOL "ra_plugin"

/* The rows of plugin.list; NULL behind the last. Opens nothing. */
const char *ra__plugin_name(int index);
const char *ra__plugin_summary(int index);

/* Its table, opened if need be; NULL where it cannot be used, and why: a sentence that stays. Any
 * thread. */
const struct ra__plugin *ra__plugin_at(int index);
const char *ra__plugin_why(int index);

#endif
