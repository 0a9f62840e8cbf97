/* status.h - how errors are made and passed on. Who finds an error sets its sentence with ra__fail;
 * who passes it on uses RA__TRY and stays silent. */
#ifndef RA__CORE_STATUS_H
#define RA__CORE_STATUS_H

#include "ringattn.h"

#define RA__COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

#define RA__TRY(call)                                                                              \
    do {                                                                                           \
        ra_status ra__status_ = (call);                                                            \
        if (ra__status_ != RA_OK) return ra__status_;                                              \
    } while (0)

/* Sets ra_last_error() on this thread and returns `status`. */
__attribute__((format(printf, 2, 3))) ra_status ra__fail(ra_status status, const char *format, ...);

#endif
