/* SPDX-License-Identifier: Apache-2.0 */
/* avx512.c - the algorithms of kernel/vector for AVX-512. The contract is in kernel.h. */
#include "backend/cpu/kernel/avx512/vec.h"

#include "core/cpu.h"
#include "backend/cpu/kernel/vector/operand_f32.h"
#include "backend/cpu/kernel/vector/gemm.h"
#include "backend/cpu/kernel/vector/backward.h"
#include "backend/cpu/kernel/vector/forward.h"
#include "backend/cpu/kernel/vector/workspace.h"

const struct ra__kernel ra__kernel_avx512 = {
    .name = "avx512",
    .summary = "AVX-512 with FMA, sixteen lanes",
    .needs = "AVX-512 F, BW, DQ and VL",
    .usable = ra__cpu_has_avx512,
    .dtypes = RA__ALL_DTYPES,
    .rows = FORWARD_ROWS,
    .backward_rows = BACKWARD_ROWS,
    .backward_few = BACKWARD_FEW,
    .wide = wide,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
