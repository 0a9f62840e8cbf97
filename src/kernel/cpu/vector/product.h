/* product.h - what is asked of a matrix product: the words between the bodies and a gemm.h. */
#ifndef RA__KERNEL_CPU_VECTOR_PRODUCT_H
#define RA__KERNEL_CPU_VECTOR_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

/* What stands on the right. It may be cut into strips, so that what is read together lies together:
 * row t of column j is at + j / STRIP strip + t row + j % STRIP. */
struct right {
    const grain *at;
    int64_t row, strip;
};

/* C[i][j] = the sum over t of A[i][t] B[t][j], or C += that sum; i < m, t < depth, j < n. A, B and
 * C are rows of numbers; a grain of A and one of B hold PER_GRAIN numbers in the direction of t. n
 * is a multiple of LANES. Each element is summed in the order of t, whatever m and n are, so a
 * row's result does not depend on the rows computed with it, and leaving out terms that are zero
 * changes nothing.
 *
 * A gemm.h has gemm(), gemm_leave() and gemm_return(), and says
 *     ROWS        how many rows, with their sums, the second-level cache holds beside packed keys
 *     PARTS       times so many rows a forward job has at most: keys are packed once for them
 *     BACKWARD_ROWS  how many rows a backward job has at most, and
 *     BACKWARD_FEW   where jobs would be few otherwise
 *     STRIP       how wide the strips of B are
 *     GEMM_ROWS   how many rows it likes to have at once, and, not more,
 *     GEMM_CROWDED   if it has only half of the first-level cache
 *     GEMM_PAD    that rows of A can be read up to a multiple of this
 *     GEMM_DEPTH  that the depth is a multiple of this
 *     THIN_ROWS   for how few rows of a job thin.h is faster; 0 where that does not sum likewise */
struct product {
    int m, n, depth; /* depth in grains */
    struct {
        const grain *at;
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
