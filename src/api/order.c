/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - the public functions of orders: making them, and permuting arrays. */
#include "pattern/order.h"

#include <inttypes.h>
#include <string.h>

#include "api/handles.h"

static ra_status check_length(int64_t length)
{
    if (length >= 0 && length <= RA__UNBOUNDED) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT, "order: %" PRId64 " positions", length);
}

ra_status ra_order_parse(const char *text, int64_t length, ra_order **out)
{
    if (!text || !out) return ra__fail(RA_ERR_ARGUMENT, "order: NULL argument");
    RA__TRY(check_length(length));
    return ra__order_parse(text, length, out);
}

static ra_status refuse_repeated(const int64_t *positions, int64_t index)
{
    int64_t first = 0;
    while (positions[first] != positions[index]) first++;
    return ra__fail(RA_ERR_ARGUMENT,
                    "order: index %" PRId64 " holds position %" PRId64
                    ", and so does index %" PRId64,
                    first, positions[index], index);
}

/* Copies positions; fails at the first that is out of range or occurs twice. `seen` has a zero for
 * each position. */
static ra_status copy_checked(const int64_t *positions, int64_t length, uint8_t *seen,
                              int32_t *origin)
{
    for (int64_t i = 0; i < length; i++) {
        int64_t position = positions[i];
        if (position < 0 || position >= length)
            return ra__fail(RA_ERR_ARGUMENT,
                            "order: index %" PRId64 " holds position %" PRId64 " of %" PRId64, i,
                            position, length);
        if (seen[position]) return refuse_repeated(positions, i);
        seen[position] = 1;
        origin[i] = (int32_t)position;
    }
    return RA_OK;
}

ra_status ra_order_custom(const int64_t *positions, int64_t length, ra_order **out)
{
    int32_t *origin;
    if ((!positions && length > 0) || !out)
        return ra__fail(RA_ERR_ARGUMENT, "order: NULL argument");
    RA__TRY(check_length(length));
    RA__TRY(ra__order_alloc(length, &origin));
    uint8_t *seen = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)length, sizeof *seen);
    ra_status status = seen ? copy_checked(positions, length, seen, origin)
                            : ra__fail(RA_ERR_MEMORY, "order: %" PRId64 " positions", length);
    ra__free(seen);
    if (status == RA_OK) return ra__order_adopt(origin, length, out);
    ra__free(origin);
    return status;
}

int64_t ra_order_length(const ra_order *order) { return order ? order->length : 0; }

static int64_t origin_of(const ra_order *order, int64_t index)
{
    return order->origin ? order->origin[index] : index;
}

ra_status ra_order_positions(const ra_order *order, int64_t *positions)
{
    if (!order || (!positions && order->length > 0))
        return ra__fail(RA_ERR_ARGUMENT, "order: NULL argument");
    for (int64_t i = 0; i < order->length; i++) positions[i] = origin_of(order, i);
    return RA_OK;
}

static void move_sequence(const ra_order *order, const char *from, char *to, size_t bytes,
                          bool into_order)
{
    for (int64_t i = 0; i < order->length; i++) {
        size_t here = (size_t)i * bytes, there = (size_t)origin_of(order, i) * bytes;
        memcpy(to + (into_order ? here : there), from + (into_order ? there : here), bytes);
    }
}

static ra_status move(const ra_order *order, const ra_array *arrays, int count, bool into_order)
{
    if (!order) return ra__fail(RA_ERR_ARGUMENT, "order: NULL argument");
    RA__TRY(ra__check_arrays("order", order->length, arrays, count));
    for (int i = 0; i < count; i++) {
        size_t bytes = arrays[i].bytes, sequence = bytes * (size_t)order->length;
        for (int64_t b = 0; b < arrays[i].batch && sequence > 0; b++)
            move_sequence(order, (const char *)arrays[i].from + (size_t)b * sequence,
                          (char *)arrays[i].to + (size_t)b * sequence, bytes, into_order);
    }
    return RA_OK;
}

ra_status ra_order_permute(const ra_order *order, const ra_array *arrays, int count)
{
    return move(order, arrays, count, true);
}
ra_status ra_order_restore(const ra_order *order, const ra_array *arrays, int count)
{
    return move(order, arrays, count, false);
}
