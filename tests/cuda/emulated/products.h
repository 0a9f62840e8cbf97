/* SPDX-License-Identifier: Apache-2.0 */
/* products.h - products of a warpgroup (wgmma): issued by each thread for itself, run by warps. */
#ifndef EMULATED_PRODUCTS_H
#define EMULATED_PRODUCTS_H

#include <stdint.h>

namespace emulated
{

/* What one thread issues; all of its warpgroup issue the same. A matrix is an address / 16 in
 * shared memory, and from bit 16 on how far its panels are apart, / 16. */
struct product {
    float *d; /* n / 2 numbers of this thread */
    int n;
    bool add, bf16;
    const uint32_t *a_words; /* A in registers, or NULL */
    uint64_t a, b;
    bool a_transposed, b_transposed; /* rows of the matrix are what the sum runs over */
};

void products_fence();
void product_issue(const product &one);
void products_commit();
/* Until at most `pending` of the committed groups are left. */
void products_wait(int pending);
/* A gang of blocks starts: nobody has any. */
void forget_products();

} // namespace emulated

#endif
