/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - the table of orders, and orders from text. */
#include "pattern/order.h"

#include <inttypes.h>
#include <string.h>

#include "core/hash.h"

static const struct ra__order_kind *const kinds[] = {
#define RA__ORDER(name) &ra__order_##name,
#include "pattern/order.list"
#undef RA__ORDER
};

const struct ra__order_kind *ra__order_kind_at(int index)
{
    return index >= 0 && index < RA__COUNT(kinds) ? kinds[index] : NULL;
}

static const char *syntax_at(int index)
{
    return ra__order_kind_at(index) ? kinds[index]->syntax : NULL;
}

ra_status ra__order_misread(const struct ra__order_kind *kind, const char *args)
{
    if (!args || !*args)
        return ra__fail(RA_ERR_ARGUMENT, "order %s: something is missing; write %s", kind->name,
                        kind->syntax);
    return ra__fail(RA_ERR_ARGUMENT, "order %s: \"%.40s\" is not understood; write %s", kind->name,
                    args, kind->syntax);
}

ra_status ra__order_alloc(int64_t length, int32_t **origin)
{
    if (length > INT32_MAX)
        return ra__fail(RA_ERR_UNSUPPORTED,
                        "order: %" PRId64 " positions; an order lists at most 2^31 - 1", length);
    *origin = NULL;
    if (length == 0) return RA_OK;
    *origin = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, (size_t)length, sizeof **origin);
    return *origin ? RA_OK : ra__fail(RA_ERR_MEMORY, "order: %" PRId64 " positions", length);
}

static bool changes_nothing(const int32_t *origin, int64_t length)
{
    for (int64_t i = 0; i < length; i++)
        if (origin[i] != i) return false;
    return true;
}

ra_status ra__order_adopt(int32_t *origin, int64_t length, ra_order **out)
{
    ra_order *order = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *order);
    if (!order || !origin || changes_nothing(origin, length)) {
        ra__free(origin);
        origin = NULL;
    }
    if (!order) return ra__fail(RA_ERR_MEMORY, "order: %zu bytes", sizeof *order);
    order->length = length;
    order->origin = origin;
    *out = order;
    return RA_OK;
}

static ra_status make(const struct ra__order_kind *kind, const char *args, int64_t length,
                      ra_order **out)
{
    int32_t *origin = NULL;
    if (!kind->fill)
        return args ? ra__order_misread(kind, args) : ra__order_adopt(NULL, length, out);
    RA__TRY(ra__order_alloc(length, &origin));
    ra_status status = kind->fill(args, length, origin);
    if (status == RA_OK) return ra__order_adopt(origin, length, out);
    ra__free(origin);
    return status;
}

ra_status ra__order_parse(const char *text, int64_t length, ra_order **out)
{
    const char *colon = strchr(text, ':');
    size_t name = colon ? (size_t)(colon - text) : strlen(text);
    for (int i = 0; i < RA__COUNT(kinds); i++)
        if (strlen(kinds[i]->name) == name && !memcmp(kinds[i]->name, text, name))
            return make(kinds[i], colon ? colon + 1 : NULL, length, out);
    return ra__fail_unknown("order", text, name, syntax_at);
}

ra_status ra__order_copy(const ra_order *order, ra_order **out)
{
    int32_t *origin = NULL;
    if (!order) {
        *out = NULL;
        return RA_OK;
    }
    if (order->origin) {
        RA__TRY(ra__order_alloc(order->length, &origin));
        memcpy(origin, order->origin, (size_t)order->length * sizeof *origin);
    }
    return ra__order_adopt(origin, order->length, out);
}

uint64_t ra__order_hash(const ra_order *order)
{
    if (!order || !order->origin) return 0;
    return ra__hash(RA__HASH_START, order->origin, (size_t)order->length * sizeof *order->origin);
}

void ra_order_destroy(ra_order *order)
{
    if (!order) return;
    ra__free(order->origin);
    ra__free(order);
}
