/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - the library's order of a trial, from its name or from a file of positions. */
#include "order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "places.h"

int order_open(const struct trial *trial, ra_order **out)
{
    int64_t *positions;
    *out = NULL;
    if (!trial->order || !strcmp(trial->order, "sequential")) return EXIT_PASS;
    if (trial->q_len != trial->k_len)
        return refuse("--order: %s needs as many queries as keys, not %" PRId64 " and %" PRId64,
                      trial->order, trial->q_len, trial->k_len);
    if (!places_is_file(trial->order))
        return library_failed(ra_order_parse(trial->order, trial->k_len, out));
    int status = places_read(trial->order, trial->k_len, &positions);
    if (status) return status;
    status = library_failed(ra_order_custom(positions, trial->k_len, out));
    free(positions);
    return status;
}
