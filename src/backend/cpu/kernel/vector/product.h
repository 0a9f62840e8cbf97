/* SPDX-License-Identifier: Apache-2.0 */
/* product.h - the interface between the algorithms and a gemm.h. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_PRODUCT_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

/* The right side, B. It may be stored in micro-panels, so that what is read together is stored
 * together: row t of column j is at + j / NR strip + t row + j % NR. */
struct right {
    const operand *at;
    int64_t row, micro_panel;
};

/* C[i][j] = the sum over t of A[i][t] B[t][j], or C += that sum; i < m, t < depth, j < n. An
 * operand of A and one of B hold PER_OPERAND numbers in the direction of t. n is a multiple of
 * LANES. Each element is summed in the order of t, whatever m and n are. So a row's result does not
 * depend on the rows computed with it, and leaving out terms that are zero changes nothing.
 *
 * A gemm.h has gemm(), gemm_leave() and gemm_return(), and defines
 *     ROW_BLOCK           query rows of a row block: L2 holds them, their sums and packed keys
 *     ROW_BLOCKS          most row blocks of a forward job: keys are packed once for all of them
 *     BACKWARD_ROWS  most query rows of a backward job
 *     BACKWARD_FEW   the same if there would be too few jobs otherwise
 *     NR          the width of a micro-panel of B
 *     GEMM_ROWS      the number of rows that is best multiplied at once
 *     GEMM_ROWS_SMT   the same if another thread of the core uses half of the L1 cache
 *     GEMM_PAD       rows of A can be read up to a multiple of this
 *     GEMM_DEPTH     the depth is a multiple of this
 *     THIN_ROWS      jobs of up to this many rows are faster with thin.h; 0 if sums would differ */
struct product {
    int m, n, depth; /* depth in operands */
    struct {
        const operand *at;
        int64_t row;
    } a;
    struct right b;
    struct {
        float *at;
        int64_t row;
    } c;
    bool add;
};

#endif
