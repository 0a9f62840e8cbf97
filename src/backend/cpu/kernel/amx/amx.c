/* SPDX-License-Identifier: Apache-2.0 */
/* amx.c - the algorithms of kernel/vector for AVX-512, with matrix products in AMX tiles. The
 * contract is in kernel.h. */
#include "backend/cpu/kernel/avx512/vec.h"

#include "backend/cpu/kernel/vector/operand_bf16.h"

#include "backend/cpu/kernel/amx/gemm.h"

#include "core/cpu.h"
#include "backend/cpu/kernel/vector/backward.h"
#include "backend/cpu/kernel/vector/forward.h"
#include "backend/cpu/kernel/vector/workspace.h"

static void forward_in_tiles(struct ra__forward_job *job, void *workspace)
{
    tiles_begin();
    forward(job, workspace);
    tiles_end();
}

static void backward_in_tiles(struct ra__backward_job *job, void *workspace)
{
    tiles_begin();
    backward(job, workspace);
    tiles_end();
}

const struct ra__kernel ra__kernel_amx = {
    .name = TILES_NAME,
    .summary = "AMX tiles of bf16, with AVX-512",
    .needs = "AMX-BF16 and AVX-512 F, BW, DQ, VL and BF16",
    .usable = TILES_USABLE,
    .dtypes = 1u << RA_BF16,
    .weights = RA_BF16,
    .rows = FORWARD_ROWS,
    .backward_rows = BACKWARD_ROWS,
    .backward_few = BACKWARD_FEW,
    .workspace = workspace,
    .forward = forward_in_tiles,
    .backward = backward_in_tiles,
};
