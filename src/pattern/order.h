/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - a permutation of positions, in which patterns and partitions count. Knows nothing
 * about ranks. */
#ifndef RA__PATTERN_ORDER_H
#define RA__PATTERN_ORDER_H

#include "core/memory.h"

/* A rule that lists positions 0 to n - 1 in its own sequence. */
struct ra__order_kind {
    const char *name;
    const char *syntax; /* "hilbert[:HxW]" */
    const char *summary;
    const char *samples; /* small examples for tests, separated by spaces */
    /* Fills origin[0 .. length - 1] with the original position of every index. `args` is the text
     * after the colon, or NULL. Only called for lengths below 2^31. NULL: the order changes nothing
     * and has no arguments. */
    ra_status (*fill)(const char *args, int64_t length, int32_t *origin);
};

#define RA__ORDER(name) extern const struct ra__order_kind ra__order_##name;
#include "pattern/order.list"
#undef RA__ORDER

/* The entries of order.list; NULL after the last. The first is the default and changes nothing. */
const struct ra__order_kind *ra__order_kind_at(int index);

struct ra_order {
    int64_t length;
    int32_t *origin; /* original position by index; NULL if the order changes nothing */
};

/* NAME[:ARGS], for positions 0 to length - 1. */
ra_status ra__order_parse(const char *text, int64_t length, ra_order **out);

/* From a list that the caller knows to be a permutation; takes ownership, also if it fails. A list
 * that changes nothing is not kept. */
ra_status ra__order_adopt(int32_t *origin, int64_t length, ra_order **out);

/* Memory for that list; NULL if length is 0. Lengths of 2^31 and more are refused. */
ra_status ra__order_alloc(int64_t length, int32_t **origin);

/* The error for arguments that a kind cannot read: `order hilbert: "3" is not understood; ...`. */
ra_status ra__order_misread(const struct ra__order_kind *kind, const char *args);

ra_status ra__order_copy(const ra_order *order, ra_order **out); /* NULL copies to NULL */
uint64_t ra__order_hash(const ra_order *order);                  /* 0 if it changes nothing */

#endif
