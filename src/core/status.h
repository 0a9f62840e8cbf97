/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - how errors are made and passed on. The function that finds an error sets its sentence
 * with ra__fail; callers pass it on with RA__TRY and add nothing. */
#ifndef RA__CORE_STATUS_H
#define RA__CORE_STATUS_H

#include "ringattn.h"

#define RA__COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

#define RA__TRY(call)                                                                              \
    do {                                                                                           \
        ra_status ra__status_ = (call);                                                            \
        if (ra__status_ != RA_OK) return ra__status_;                                              \
    } while (0)

/* Sets ra_last_error() on this thread and yields `status`. A macro, so that compilers see that a
 * failure is not RA_OK: ra__fail(RA_ERR_ARGUMENT, "plan: %d ranks", ranks). */
#define ra__fail(status, ...) (ra__set_error(__VA_ARGS__), (status))
__attribute__((format(printf, 1, 2))) void ra__set_error(const char *format, ...);

/* RA_ERR_ARGUMENT for a name that is not in a table: `what: "name" is not known; there are ...`.
 * The first `length` bytes of `name` count; name_at gives the names of the entries, NULL after the
 * last. */
#define ra__fail_unknown(what, name, length, name_at)                                              \
    (ra__set_unknown(what, name, length, name_at), RA_ERR_ARGUMENT)
void ra__set_unknown(const char *what, const char *name, size_t length,
                     const char *(*name_at)(int index));

#endif
