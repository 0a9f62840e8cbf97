/* SPDX-License-Identifier: Apache-2.0 */
/* words.cuh - src/backend/cuda/mma/words.cuh for the CPU. */
#ifndef RA__BACKEND_CUDA_MMA_WORDS_CUH
#define RA__BACKEND_CUDA_MMA_WORDS_CUH

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "emulated.h"

namespace ra::mma
{

using bf16 = __nv_bfloat16;
using f16 = __half;

inline uint32_t shared_address(const void *pointer) { return emulated::shared_address(pointer); }

/* ---- Asynchronous copies ---- */

inline void copy_16(uint32_t to, const void *from, bool there)
{
    emulated::copy_async(to, from, 16, there ? 16 : 0);
}
inline void copy_4(uint32_t to, const void *from, bool there)
{
    emulated::copy_async(to, from, 4, there ? 4 : 0);
}
inline void copies_commit() { emulated::copies_commit(); }
template <int PENDING> inline void copies_wait() { emulated::copies_wait(PENDING); }

/* ---- Matrices ---- */

struct four {
    uint32_t word[4];
};

inline four load_four(uint32_t from, bool transposed)
{
    return emulated_warp_compute<four>(from, [transposed](const uint32_t *address, four *out) {
        for (int m = 0; m < 4; m++)
            for (int lane = 0; lane < 32; lane++) {
                uint16_t pair[2];
                for (int e = 0; e < 2; e++) {
                    const int row = transposed ? 2 * (lane % 4) + e : lane / 4;
                    const int column = transposed ? lane / 4 : 2 * (lane % 4) + e;
                    const uint32_t at = address[8 * m + row];
                    if (at % 16 != 0) emulated::fail("a row of a matrix is not aligned");
                    pair[e] = ((const uint16_t *)emulated::shared_pointer(at, 16))[column];
                }
                out[lane].word[m] = pair[0] | (uint32_t)pair[1] << 16;
            }
    });
}
inline void load_matrices(uint32_t (&to)[4], uint32_t from)
{
    const four words = load_four(from, false);
    memcpy(to, words.word, sizeof to);
}
inline void load_transposed(uint32_t (&to)[4], uint32_t from)
{
    const four words = load_four(from, true);
    memcpy(to, words.word, sizeof to);
}

template <class T> inline float half_of(uint32_t word, int half);
template <> inline float half_of<bf16>(uint32_t word, int half)
{
    const uint32_t bits = half ? word & 0xFFFF0000u : word << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
template <> inline float half_of<f16>(uint32_t word, int half)
{
    const uint16_t bits = (uint16_t)(half ? word >> 16 : word);
    f16 x;
    memcpy(&x, &bits, sizeof x);
    return __half2float(x);
}

struct operands {
    float c[4];
    uint32_t a[4], b[2];
    operands(const float (&sums)[4], const uint32_t (&first)[4], uint32_t b0, uint32_t b1)
    {
        memcpy(c, sums, sizeof c);
        memcpy(a, first, sizeof a);
        b[0] = b0;
        b[1] = b1;
    }
};

/* Tests spend most of their time here; elsewhere the compiler's own time counts. */
template <class Number, int K>
__attribute__((optimize("O3"))) inline void
multiply(const Number (&a)[16][K], const Number (&b)[K][8], Number (&sums)[16][8])
{
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < K; k++)
            for (int column = 0; column < 8; column++)
                sums[row][column] += a[row][k] * b[k][column];
}
/* Where a lane has its n-th sum. */
inline int sum_row(int lane, int n) { return lane / 4 + 8 * (n / 2); }
inline int sum_column(int lane, int n) { return 2 * (lane % 4) + n % 2; }

template <class T>
inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    const operands mine(c, a, b0, b1);
    const four sums = emulated_warp_compute<four>(mine, [](const operands *in, four *out) {
        float first[16][16], second[16][8], products[16][8] = {};
        for (int lane = 0; lane < 32; lane++)
            for (int n = 0; n < 4; n++)
                for (int e = 0; e < 2; e++) {
                    const int k = 2 * (lane % 4) + e + 8 * (n / 2);
                    first[lane / 4 + 8 * (n % 2)][k] = half_of<T>(in[lane].a[n], e);
                    if (n % 2 == 0) second[k][lane / 4] = half_of<T>(in[lane].b[n / 2], e);
                }
        multiply(first, second, products);
        for (int lane = 0; lane < 32; lane++)
            for (int n = 0; n < 4; n++) {
                const float sum = products[sum_row(lane, n)][sum_column(lane, n)] + in[lane].c[n];
                memcpy(&out[lane].word[n], &sum, sizeof sum);
            }
    });
    memcpy(c, sums.word, sizeof c);
}

/* TF32: numbers of f32 without their last 13 bits; and sums that are cut off instead of rounded. */
inline double tf32_of(uint32_t word)
{
    word &= 0xFFFFE000u;
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}
inline float cut_off(double sum)
{
    float x = (float)sum;
    if (!isfinite(x) || fabs((double)x) <= fabs(sum)) return x;
    uint32_t bits; /* of a number that is not 0: those of the one before it, towards 0 */
    memcpy(&bits, &x, sizeof bits);
    bits--;
    memcpy(&x, &bits, sizeof x);
    return x;
}
template <>
inline void multiply_add<float>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    const operands mine(c, a, b0, b1);
    const four sums = emulated_warp_compute<four>(mine, [](const operands *in, four *out) {
        double first[16][8], second[8][8], sums[16][8];
        for (int lane = 0; lane < 32; lane++)
            for (int n = 0; n < 4; n++) {
                const int k = lane % 4 + 4 * (n / 2);
                first[lane / 4 + 8 * (n % 2)][k] = tf32_of(in[lane].a[n]);
                if (n % 2 == 0) second[k][lane / 4] = tf32_of(in[lane].b[n / 2]);
                sums[sum_row(lane, n)][sum_column(lane, n)] = in[lane].c[n];
            }
        multiply(first, second, sums);
        for (int lane = 0; lane < 32; lane++)
            for (int n = 0; n < 4; n++) {
                const float cut = cut_off(sums[sum_row(lane, n)][sum_column(lane, n)]);
                memcpy(&out[lane].word[n], &cut, sizeof cut);
            }
    });
    memcpy(c, sums.word, sizeof c);
}

/* ---- Barriers and atomics ---- */

inline void barrier_of(int id, int threads) { emulated::named_barrier(id, threads); }

inline float *computed(float *address) { return address; }
EMULATED_UNWATCHED inline void add_atomic(float *to, float x)
{
    emulated::race_access(to, sizeof *to, emulated::ACCESS_CHANGE);
    *to += x;
}
inline void add_atomic(float *to, float low, float high)
{
    if ((uintptr_t)to % 8 != 0) emulated::fail("two numbers are not aligned");
    add_atomic(to, low);
    add_atomic(to + 1, high);
}

/* ---- Numbers ---- */

inline float exp2_fast(float x) { return exp2f(x); }

inline uint32_t bits_of(bf16 x)
{
    uint16_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline uint32_t bits_of(f16 x)
{
    uint16_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
template <class T> inline uint32_t pack(float low, float high);
template <> inline uint32_t pack<bf16>(float low, float high)
{
    return bits_of(__float2bfloat16(low)) | bits_of(__float2bfloat16(high)) << 16;
}
template <> inline uint32_t pack<f16>(float low, float high)
{
    return bits_of(__float2half(low)) | bits_of(__float2half(high)) << 16;
}

template <class T> inline float2 unpack(uint32_t both)
{
    return make_float2(half_of<T>(both, 0), half_of<T>(both, 1));
}

template <class T> inline uint32_t not_finite(uint32_t x)
{
    return (isfinite(half_of<T>(x, 0)) ? 0 : 0x7FFFu) |
           (isfinite(half_of<T>(x, 1)) ? 0 : 0x7FFF0000u);
}

} // namespace ra::mma

#endif
