/* SPDX-License-Identifier: Apache-2.0 */
/* version.h - the version of the header this was compiled with, as text. */
#ifndef RA__CORE_VERSION_H
#define RA__CORE_VERSION_H

#include "ringattn.h"

#define RA__TEXT_OF(x) RA__TEXT_OF_(x)
#define RA__TEXT_OF_(x) #x
#define RA__VERSION                                                                                \
    RA__TEXT_OF(RA_VERSION_MAJOR)                                                                  \
    "." RA__TEXT_OF(RA_VERSION_MINOR) "." RA__TEXT_OF(RA_VERSION_PATCH)

#endif
