/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c - arrays of numbers from one dtype to another. */
#include <inttypes.h>

#include "api/handles.h"
#include "core/dtype.h"

static bool is_dtype(ra_dtype dtype)
{
    return dtype == RA_F32 || dtype == RA_BF16 || dtype == RA_F16;
}

ra_status ra_convert(ra_dtype from_dtype, const void *from, ra_dtype to_dtype, void *to,
                     int64_t count)
{
    if (!is_dtype(from_dtype) || !is_dtype(to_dtype))
        return ra__fail(RA_ERR_ARGUMENT, "convert: %d is no dtype",
                        (int)(is_dtype(from_dtype) ? to_dtype : from_dtype));
    if (count < 0) return ra__fail(RA_ERR_ARGUMENT, "convert: %" PRId64 " numbers", count);
    if (count == 0) return RA_OK;
    if (!from || !to) return ra__fail(RA_ERR_ARGUMENT, "convert: NULL argument");
    if (from_dtype == to_dtype) { /* bits stay, those of a NaN too */
        memmove(to, from, (size_t)count * ra__dtype_bytes(to_dtype));
        return RA_OK;
    }
    for (int64_t i = 0; i < count; i++) ra__store(to_dtype, to, i, ra__load(from_dtype, from, i));
    return RA_OK;
}
