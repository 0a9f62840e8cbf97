/* SPDX-License-Identifier: Apache-2.0 */
/* avx512bf16.c - the algorithms of kernel/vector for AVX-512, with products of bf16 pairs. The
 * contract is in kernel.h. */
#include "backend/cpu/kernel/avx512/vec.h"

#include "backend/cpu/kernel/vector/operand_bf16.h"

#include "backend/cpu/kernel/vector/gemm.h"

#include "core/cpu.h"
#include "backend/cpu/kernel/vector/backward.h"
#include "backend/cpu/kernel/vector/forward.h"
#include "backend/cpu/kernel/vector/workspace.h"

const struct ra__kernel ra__kernel_avx512bf16 = {
    .name = "avx512bf16",
    .summary = "AVX-512 with products of bf16, thirty-two at a time",
    .needs = "AVX-512 F, BW, DQ, VL and BF16",
    .usable = ra__cpu_has_avx512bf16,
    .slow = ra__cpu_bf16_is_slow,
    .dtypes = 1u << RA_BF16,
    .weights = RA_BF16,
    .rows = FORWARD_ROWS,
    .backward_rows = BACKWARD_ROWS,
    .backward_few = BACKWARD_FEW,
    .wide = wide,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
