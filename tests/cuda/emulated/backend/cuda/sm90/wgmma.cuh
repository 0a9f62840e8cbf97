/* SPDX-License-Identifier: Apache-2.0 */
/* wgmma.cuh - src/backend/cuda/sm90/wgmma.cuh for the CPU.
 *
 * A product runs when its thread waits for it, or with a seed sometimes when it is committed. Until
 * then its operands in shared memory and in registers are not read, and its sums not written: who
 * changes the former too early, or reads the latter, computes with the wrong numbers. */
#ifndef RA__SM90_WGMMA_CUH
#define RA__SM90_WGMMA_CUH

#include "backend/cuda/sm90/words.cuh"
#include "products.h"

inline void wgmma_fence(void) { emulated::products_fence(); }
inline void wgmma_commit(void) { emulated::products_commit(); }
template <int PENDING> inline void wgmma_wait(void) { emulated::products_wait(PENDING); }

template <int N> inline void hold(float (&)[N]) {}
template <int N> inline void hold(uint32_t (&)[N]) {}

inline uint64_t matrix_at(uint32_t address, uint32_t panel_bytes)
{
    if (address % 1024) emulated::fail("a matrix at %u: misaligned", (unsigned)address);
    return address >> 4 | (uint64_t)(panel_bytes >> 4) << 16;
}
inline uint64_t further(uint64_t matrix, uint32_t bytes) { return matrix + (bytes >> 4); }
template <int BYTES> inline uint64_t further_by(uint64_t matrix, int count)
{
    return further(matrix, count * BYTES);
}

enum wgmma_major { K_MAJOR = 0, N_MAJOR = 1 };

template <class T> struct is_bf16 {
    static constexpr bool value = false;
};
template <> struct is_bf16<__nv_bfloat16> {
    static constexpr bool value = true;
};

/* Widths that the device's header has. */
constexpr bool is_width(int n) { return (n % 16 == 0 && n >= 32 && n <= 176) || n == 256; }

template <class T, bool ADD, wgmma_major A_MAJOR = K_MAJOR, wgmma_major B_MAJOR = K_MAJOR,
          int WORDS>
inline void wgmma(float (&d)[WORDS], uint64_t from_a, uint64_t from_b)
{
    static_assert(is_width(2 * WORDS), "there is such a product");
    emulated::product_issue({ d, 2 * WORDS, ADD, is_bf16<T>::value, nullptr, from_a, from_b,
                              A_MAJOR == N_MAJOR, B_MAJOR == N_MAJOR });
}
template <class T, bool ADD, wgmma_major MAJOR, int WORDS>
inline void wgmma(float (&d)[WORDS], const uint32_t *from_a, uint64_t from_b)
{
    static_assert(is_width(2 * WORDS), "there is such a product");
    emulated::product_issue(
        { d, 2 * WORDS, ADD, is_bf16<T>::value, from_a, 0, from_b, false, MAJOR == N_MAJOR });
}

#endif
