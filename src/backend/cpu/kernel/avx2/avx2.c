/* SPDX-License-Identifier: Apache-2.0 */
/* avx2.c - the algorithms of kernel/vector for AVX2. The contract is in kernel.h. */
#include "backend/cpu/kernel/avx2/vec.h"

#include "core/cpu.h"
#include "backend/cpu/kernel/vector/operand_f32.h"
#include "backend/cpu/kernel/vector/gemm.h"
#include "backend/cpu/kernel/vector/backward.h"
#include "backend/cpu/kernel/vector/forward.h"
#include "backend/cpu/kernel/vector/workspace.h"

const struct ra__kernel ra__kernel_avx2 = {
    .name = "avx2",
    .summary = "AVX2 with FMA, eight lanes",
    .needs = "AVX2, FMA and F16C",
    .usable = ra__cpu_has_avx2,
    .dtypes = RA__ALL_DTYPES,
    .rows = FORWARD_ROWS,
    .backward_rows = BACKWARD_ROWS,
    .backward_few = BACKWARD_FEW,
    .wide = wide,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
