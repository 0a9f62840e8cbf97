/* SPDX-License-Identifier: Apache-2.0 */
/* tile.h - AMX operations: eight tiles of 16 rows of 64 bytes, and the product of two of them in
 * pairs of bf16. With RA__AMX_EMULATED the same operations in plain C, for machines without AMX:
 * slow, but code written with them can be tested anywhere. */
#ifndef RA__BACKEND_CPU_KERNEL_AMX_TILE_H
#define RA__BACKEND_CPU_KERNEL_AMX_TILE_H

#include <stdint.h>
#include <string.h>

enum { TILE_SIDE = 16 }; /* rows, and 32-bit elements in a row */

#if RA__AMX_EMULATED

#include "core/dtype.h"

#define TILES_NAME "amx in plain C"
#define TILES_USABLE ra__cpu_has_avx512bf16

static _Thread_local uint32_t tile[8][TILE_SIDE][TILE_SIDE];

static inline void tiles_begin(void) { memset(tile, 0xff, sizeof tile); }
static inline void tiles_end(void) {}

#define tile_zero(n) memset(tile[n], 0, sizeof tile[n])
#define tile_load(n, from, stride) tile_copy(tile[n], sizeof tile[n][0], from, stride)
#define tile_store(n, to, stride) tile_copy(to, stride, tile[n], sizeof tile[n][0])
#define tile_dot(c, a, b) tile_multiply(tile[c], tile[a], tile[b])

static inline void tile_copy(void *to, int64_t to_stride, const void *from, int64_t from_stride)
{
    for (int i = 0; i < TILE_SIDE; i++)
        memcpy((char *)to + i * to_stride, (const char *)from + i * from_stride, 64);
}

/* The first of each pair, then the second. A processor may round differently and treats subnormal
 * numbers as 0: tests on this show how tiles are used, not their last bit. */
static inline void tile_multiply(uint32_t c[TILE_SIDE][TILE_SIDE], uint32_t a[TILE_SIDE][TILE_SIDE],
                                 uint32_t b[TILE_SIDE][TILE_SIDE])
{
    for (int i = 0; i < TILE_SIDE; i++)
        for (int j = 0; j < TILE_SIDE; j++) {
            float sum = ra__f32_from_bits(c[i][j]);
            for (int t = 0; t < TILE_SIDE; t++) {
                sum += ra__from_bf16((uint16_t)a[i][t]) * ra__from_bf16((uint16_t)b[t][j]);
                sum += ra__from_bf16((uint16_t)(a[i][t] >> 16)) *
                       ra__from_bf16((uint16_t)(b[t][j] >> 16));
            }
            c[i][j] = ra__f32_bits(sum);
        }
}

#else

#include <immintrin.h>

#define TILES_NAME "amx"
#define TILES_USABLE ra__cpu_has_amx

/* All eight tiles at full size. */
static inline void tiles_begin(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = { .palette = 1 };
    for (int n = 0; n < 8; n++) {
        shape.bytes[n] = 64;
        shape.rows[n] = TILE_SIDE;
    }
    _tile_loadconfig(&shape);
}

/* The system then need not save the tiles. */
static inline void tiles_end(void) { _tile_release(); }

#define tile_zero(n) _tile_zero(n)
#define tile_load(n, from, stride) _tile_loadd(n, from, stride)
#define tile_store(n, to, stride) _tile_stored(n, to, stride)
#define tile_dot(c, a, b) _tile_dpbf16ps(c, a, b) /* c += a b */

#endif

#endif
