/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - the matrix product of vector/product.h in AMX tiles. Every sum starts from C, in every
 * block of C alike, so a row does not depend on the rows computed with it. */
#ifndef RA__BACKEND_CPU_KERNEL_AMX_GEMM_H
#define RA__BACKEND_CPU_KERNEL_AMX_GEMM_H

#include "backend/cpu/kernel/amx/tile.h"
#include "backend/cpu/kernel/vector/product.h"

enum {
    ROW_BLOCK = 512,
    ROW_BLOCKS = 2,
    BACKWARD_ROWS = 1024,
    BACKWARD_FEW = 512,
    NR = TILE_SIDE,            /* a tile of B is contiguous */
    GEMM_ROWS = 4 * TILE_SIDE, /* scores go through the L2 cache: 13% faster alone, */
    GEMM_ROWS_SMT = TILE_SIDE, /* and 10% slower where two threads share a core */
    GEMM_PAD = TILE_SIDE,
    GEMM_DEPTH = TILE_SIDE,
    THIN_ROWS = 0,
};

/* Around code that is not part of this kernel and may use tiles too. */
static inline void gemm_leave(void) { tiles_end(); }
static inline void gemm_return(void) { tiles_begin(); }

/* `down` x `across` tiles of C, stored at c: one or two each way, constants where this is inlined.
 * Tiles 0 to 3 are C, 4 and 5 A, 6 and 7 B. */
static inline __attribute__((always_inline)) void piece(const struct product *p, int i, int j,
                                                        float *c, int64_t c_row, const int down,
                                                        const int across)
{
    const operand *a = p->a.at + i * p->a.row, *b = p->b.at + j / NR * p->b.micro_panel;
    const int64_t a_bytes = p->a.row * 4, b_bytes = p->b.row * 4, c_bytes = c_row * 4;
    const int64_t a_down = TILE_SIDE * p->a.row, micro_panel = p->b.micro_panel;
    float *below = c + TILE_SIDE * c_row;

    if (p->add) {
        tile_load(0, c, c_bytes);
        if (across > 1) tile_load(1, c + TILE_SIDE, c_bytes);
        if (down > 1) tile_load(2, below, c_bytes);
        if (down > 1 && across > 1) tile_load(3, below + TILE_SIDE, c_bytes);
    } else {
        tile_zero(0);
        if (across > 1) tile_zero(1);
        if (down > 1) tile_zero(2);
        if (down > 1 && across > 1) tile_zero(3);
    }
    for (int t = 0; t < p->depth; t += TILE_SIDE, a += TILE_SIDE, b += TILE_SIDE * p->b.row) {
        tile_load(6, b, b_bytes);
        tile_load(4, a, a_bytes);
        tile_dot(0, 4, 6);
        if (across > 1) {
            tile_load(7, b + micro_panel, b_bytes);
            tile_dot(1, 4, 7);
        }
        if (down > 1) {
            tile_load(5, a + a_down, a_bytes);
            tile_dot(2, 5, 6);
            if (across > 1) tile_dot(3, 5, 7);
        }
    }
    tile_store(0, c, c_bytes);
    if (across > 1) tile_store(1, c + TILE_SIDE, c_bytes);
    if (down > 1) tile_store(2, below, c_bytes);
    if (down > 1 && across > 1) tile_store(3, below + TILE_SIDE, c_bytes);
}

/* The last rows, fewer than a tile has: C goes through a whole tile in memory. */
static void fringe(const struct product *p, int i, int j)
{
    float square[TILE_SIDE * TILE_SIDE];
    float *c = p->c.at + i * p->c.row + j;
    const size_t bytes = TILE_SIDE * sizeof(float);
    memset(square, 0, sizeof square);
    for (int r = 0; p->add && r < p->m - i; r++)
        memcpy(square + r * TILE_SIDE, c + r * p->c.row, bytes);
    piece(p, i, j, square, TILE_SIDE, 1, 1);
    for (int r = 0; r < p->m - i; r++) memcpy(c + r * p->c.row, square + r * TILE_SIDE, bytes);
}

/* A column of C: one or two micro-panels of B, which stay in the L1 cache. */
static inline __attribute__((always_inline)) void column(const struct product *p, int j,
                                                         const int across)
{
    float *c = p->c.at + j;
    int i = 0;
    for (; i + 2 * TILE_SIDE <= p->m; i += 2 * TILE_SIDE)
        piece(p, i, j, c + i * p->c.row, p->c.row, 2, across);
    for (; i + TILE_SIDE <= p->m; i += TILE_SIDE)
        piece(p, i, j, c + i * p->c.row, p->c.row, 1, across);
    for (int n = 0; i < p->m && n < across; n++) fringe(p, i, j + n * TILE_SIDE);
}

static void gemm(const struct product *p)
{
    int j = 0;
    for (; j + 2 * TILE_SIDE <= p->n; j += 2 * TILE_SIDE) column(p, j, 2);
    if (j < p->n) column(p, j, 1);
}

#endif
