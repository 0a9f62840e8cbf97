/* SPDX-License-Identifier: Apache-2.0 */
/* sequential.c - positions unchanged. */
#include "pattern/order.h"

const struct ra__order_kind ra__order_sequential = {
    .name = "sequential",
    .syntax = "sequential",
    .summary = "positions as they come",
    .samples = "sequential",
};
