/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - the one matrix product that forward and backward use. Operands are those of operand_*.h,
 * sums are f32. Written with the operations of an ISA's vec.h; knows nothing of attention. */
#ifndef RA__BACKEND_CPU_KERNEL_VECTOR_GEMM_H
#define RA__BACKEND_CPU_KERNEL_VECTOR_GEMM_H

#include "backend/cpu/kernel/vector/product.h"

enum {
    ROW_BLOCK = 256,
    ROW_BLOCKS = 4,
    BACKWARD_ROWS = 1024,
    BACKWARD_FEW = 256,
    NR = TILE_VECS * LANES,
    GEMM_ROWS = 4 * MR, /* a micro-panel of B stays in the L1 cache for this many rows */
    GEMM_ROWS_SMT = GEMM_ROWS,
    GEMM_PAD = 1,
    GEMM_DEPTH = 1,
    THIN_ROWS = 16, /* on Zen 4 */
};

/* Around code that is not part of this kernel. */
static inline void gemm_leave(void) {}
static inline void gemm_return(void) {}

/* One step of a micro-tile: a row of B times a column of A. */
static inline __attribute__((always_inline)) void tile_step(vec sum[MR][TILE_VECS],
                                                            const operand *a, int64_t a_row,
                                                            const operand *b, const int rows,
                                                            const int vecs)
{
    vec line[TILE_VECS];
    for (int v = 0; v < vecs; v++) line[v] = operand_load(b + v * LANES);
    for (int r = 0; r < rows; r++) {
        vec left = operand_broadcast(a + r * a_row);
        for (int v = 0; v < vecs; v++) sum[r][v] = operand_dot(left, line[v], sum[r][v]);
    }
}

/* One micro-tile of rows x (vecs LANES) at (i, j). `rows` and `vecs` are constants where this is
 * inlined, so the sums stay in registers. */
static inline __attribute__((always_inline)) void tile(const struct product *p, int i, int j,
                                                       const int rows, const int vecs)
{
    /* Copies: the compiler must assume that the stores below change *p. */
    const int64_t a_row = p->a.row, b_row = p->b.row, c_row = p->c.row;
    const operand *a = p->a.at + i * a_row, *b = p->b.at + j / NR * p->b.micro_panel;
    float *c = p->c.at + i * c_row + j;
    const bool add = p->add;

    vec sum[MR][TILE_VECS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vecs; v++) sum[r][v] = vec_zero();

    for (int t = p->depth; t > 0; t--, a++, b += b_row) tile_step(sum, a, a_row, b, rows, vecs);

    if (add)
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vecs; v++)
                sum[r][v] = vec_add(vec_load(c + r * c_row + v * LANES), sum[r][v]);
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vecs; v++) vec_store(c + r * c_row + v * LANES, sum[r][v]);
}

/* A column of micro-tiles, `vecs` wide: whole ones, then the remaining rows. */
static inline __attribute__((always_inline)) void micro_panel(const struct product *p, int j,
                                                              const int vecs)
{
    int i = 0;
    for (; i + MR <= p->m; i += MR) tile(p, i, j, MR, vecs);
    switch (p->m - i) {
    case 5: tile(p, i, j, 5, vecs); break;
    case 4: tile(p, i, j, 4, vecs); break;
    case 3: tile(p, i, j, 3, vecs); break;
    case 2: tile(p, i, j, 2, vecs); break;
    case 1: tile(p, i, j, 1, vecs); break;
    default: break;
    }
}

/* A micro-panel wider than an ISA's micro-tile has no remainder; its case only has to compile. */
static void gemm(const struct product *p)
{
    _Static_assert(MR == 6 && TILE_VECS <= 4, "strip() and gemm() name every tail");
    int j = 0;
    for (; j + TILE_VECS * LANES <= p->n; j += TILE_VECS * LANES) micro_panel(p, j, TILE_VECS);
    switch ((p->n - j) / LANES) {
    case 3: micro_panel(p, j, TILE_VECS < 3 ? TILE_VECS : 3); break;
    case 2: micro_panel(p, j, TILE_VECS < 2 ? TILE_VECS : 2); break;
    case 1: micro_panel(p, j, 1); break;
    default: break;
    }
}

#endif
