/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - the library's order of a trial, from its name or from a file of positions. */
#ifndef HARNESS_ORDER_H
#define HARNESS_ORDER_H

#include "harness/base/complain.h"
#include "trial.h"

/* *out is NULL where the order is sequential. */
int order_open(const struct trial *trial, ra_order **out);

#endif
