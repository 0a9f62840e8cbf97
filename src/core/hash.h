/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h - FNV-1a, to compare the problems of ranks. Not secure against deliberate collisions. */
#ifndef RA__CORE_HASH_H
#define RA__CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define RA__HASH_START UINT64_C(14695981039346656037)

static inline uint64_t ra__hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    return hash;
}

#endif
