/* SPDX-License-Identifier: Apache-2.0 */
/* block.h - how a key run is split into key blocks. Blocks start at multiples of the block size
 * counted in pos / pos_step, not at the start of the run. So a key has the same column in the same
 * block however the run was split before. */
#ifndef RA__BACKEND_CPU_KERNEL_BLOCK_H
#define RA__BACKEND_CPU_KERNEL_BLOCK_H

#include "core/shape.h"

/* Index in the run of column 0 of the block that holds key i. It may be negative: the first block
 * of a run can start before the run does. */
static inline int64_t ra__block_first(const struct ra__key_run *run, int64_t i, int64_t block)
{
    int64_t index = ra__floor_div(run->pos, run->pos_step) + i;
    return i - (index - ra__floor_div(index, block) * block);
}

#endif
