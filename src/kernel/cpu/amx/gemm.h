/* gemm.h - the matrix product of vector/gemm.h, in tiles: the same contract, other arithmetic. Sums
 * of C += start from C here, in every piece alike, so a row still does not depend on its
 * neighbours. */
#ifndef RA__KERNEL_CPU_AMX_GEMM_H
#define RA__KERNEL_CPU_AMX_GEMM_H

#include "kernel/cpu/amx/tile.h"
#include "kernel/cpu/vector/product.h"

enum { GEMM_ROWS = 2 * TILE_SIDE, GEMM_PAD = TILE_SIDE, GEMM_DEPTH = TILE_SIDE };

/* `down` x `across` tiles of C at (i, j), one or two each way; constants where this is inlined. Tiles 0
 * to 3 are C, 4 and 5 A, 6 and 7 B. */
static inline __attribute__((always_inline)) void piece(const struct product *p, int i, int j,
                                                        float *c, int64_t c_row, const int down,
                                                        const int across)
{
    const grain *a = p->a.at + i * p->a.row, *b = p->b.at + j;
    const int64_t a_stride = p->a.row * 4, b_stride = p->b.row * 4, c_stride = c_row * 4;
    const int64_t a_down = TILE_SIDE * p->a.row, c_down = TILE_SIDE * c_row;

    if (p->add) {
        tile_load(0, c, c_stride);
        if (across > 1) tile_load(1, c + TILE_SIDE, c_stride);
        if (down > 1) tile_load(2, c + c_down, c_stride);
        if (down > 1 && across > 1) tile_load(3, c + c_down + TILE_SIDE, c_stride);
    } else {
        tile_zero(0);
        if (across > 1) tile_zero(1);
        if (down > 1) tile_zero(2);
        if (down > 1 && across > 1) tile_zero(3);
    }
    for (int t = 0; t < p->depth; t += TILE_SIDE, a += TILE_SIDE, b += TILE_SIDE * p->b.row) {
        tile_load(6, b, b_stride);
        tile_load(4, a, a_stride);
        tile_dot(0, 4, 6);
        if (across > 1) {
            tile_load(7, b + TILE_SIDE, b_stride);
            tile_dot(1, 4, 7);
        }
        if (down > 1) {
            tile_load(5, a + a_down, a_stride);
            tile_dot(2, 5, 6);
            if (across > 1) tile_dot(3, 5, 7);
        }
    }
    tile_store(0, c, c_stride);
    if (across > 1) tile_store(1, c + TILE_SIDE, c_stride);
    if (down > 1) tile_store(2, c + c_down, c_stride);
    if (down > 1 && across > 1) tile_store(3, c + c_down + TILE_SIDE, c_stride);
}

/* A row of pieces whose tiles are whole. */
static inline __attribute__((always_inline)) void band(const struct product *p, int i,
                                                       const int down)
{
    float *c = p->c.at + i * p->c.row;
    int j = 0;
    for (; j + 2 * TILE_SIDE <= p->n; j += 2 * TILE_SIDE) piece(p, i, j, c + j, p->c.row, down, 2);
    if (j < p->n) piece(p, i, j, c + j, p->c.row, down, 1);
}

/* The last rows, fewer than a tile has: C goes by way of a whole tile. */
static void fringe(const struct product *p, int i)
{
    float square[TILE_SIDE * TILE_SIDE];
    const size_t bytes = TILE_SIDE * sizeof(float);
    for (int j = 0; j < p->n; j += TILE_SIDE) {
        float *c = p->c.at + i * p->c.row + j;
        memset(square, 0, sizeof square);
        for (int r = 0; p->add && r < p->m - i; r++)
            memcpy(square + r * TILE_SIDE, c + r * p->c.row, bytes);
        piece(p, i, j, square, TILE_SIDE, 1, 1);
        for (int r = 0; r < p->m - i; r++) memcpy(c + r * p->c.row, square + r * TILE_SIDE, bytes);
    }
}

static void gemm(const struct product *p)
{
    int i = 0;
    for (; i + 2 * TILE_SIDE <= p->m; i += 2 * TILE_SIDE) band(p, i, 2);
    for (; i + TILE_SIDE <= p->m; i += TILE_SIDE) band(p, i, 1);
    if (i < p->m) fringe(p, i);
}

#endif
