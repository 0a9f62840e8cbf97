/* SPDX-License-Identifier: Apache-2.0 */
/* workspace.h - how much workspace the algorithms need: the sum of what they reserve. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_WORKSPACE_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_WORKSPACE_H

#include "backend/cpu/kernel/vector/backward.h"
#include "backend/cpu/kernel/vector/forward.h"

static size_t workspace(const struct ra__shape *shape, struct ra__extent most, bool backward)
{
    struct arena arena = { NULL, 0 };
    if (backward) backward_make(shape, most, &arena);
    else forward_make(shape, most, &arena);
    return arena.used;
}

#endif
