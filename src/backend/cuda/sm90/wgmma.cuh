/* SPDX-License-Identifier: Apache-2.0 */
/* wgmma.cuh - products of a warpgroup: D (64 x N, f32, registers) = A (64 x 16) B (16 x N) [+ D].
 *
 * A comes from shared memory or registers, B from shared memory, both in bf16 or f16. In shared
 * memory a matrix is cut into panels of 64 columns, rows of 128 bytes, 128-byte swizzle. The sum
 * runs over the columns of such a matrix (`K_MAJOR`) or over its rows (`N_MAJOR`).
 * Registers of thread t of the warpgroup, warp w = t / 32, lane = t % 32: D[4 j + 2 i + c] is row
 * 16 w + lane / 4 + 8 i, column 8 j + 2 (lane % 4) + c. Packed in pairs, D is the A of a product
 * over its columns: k-step s reads pairs 4 s to 4 s + 3.
 *
 * Protocol: `hold` the registers, `wgmma_fence`, products, `wgmma_commit`; then `wgmma_wait<n>`
 * until all but the last n commits are done, and `hold` the registers again before their use. */
#ifndef RA__SM90_WGMMA_CUH
#define RA__SM90_WGMMA_CUH

#include "backend/cuda/sm90/words.cuh"

DEVICE void wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> DEVICE void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Keeps the compiler from moving uses of registers across this point. */
template <int N> DEVICE void hold(float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(x[i])::"memory");
}
template <int N> DEVICE void hold(uint32_t (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(x[i])::"memory");
}

/* A matrix in shared memory, 1024-byte aligned. `panel_bytes`: from one panel to the next, used
 * where B is N_MAJOR. */
DEVICE uint64_t matrix_at(uint32_t address, uint32_t panel_bytes)
{
    const uint64_t swizzle_128 = (uint64_t)1 << 62, eight_rows = 1024 >> 4;
    return (address & 0x3FFFF) >> 4 | (uint64_t)(panel_bytes >> 4) << 16 | eight_rows << 32 |
           swizzle_128;
}

/* The same matrix, some bytes further on. Addresses are in the low half: no carry. */
DEVICE uint64_t further(uint64_t matrix, uint32_t bytes)
{
    return (matrix >> 32 << 32) | (uint32_t)((uint32_t)matrix + (bytes >> 4));
}

/* `count` times BYTES further on. A product that may wrap costs more. */
template <int BYTES> DEVICE uint64_t further_by(uint64_t matrix, int count)
{
    static_assert(BYTES % 16 == 0, "addresses are counted in 16 bytes");
    return (matrix >> 32 << 32) | (uint32_t)((uint32_t)matrix + count * (BYTES / 16));
}

enum wgmma_major { K_MAJOR = 0, N_MAJOR = 1 };

template <class T> struct is_bf16 {
    static constexpr bool value = false;
};
template <> struct is_bf16<__nv_bfloat16> {
    static constexpr bool value = true;
};

/* Names of registers %0 to %127, eight at a time, and the operands they stand for. */
#define NAMES_0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define NAMES_8 NAMES_0 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES_16 NAMES_8 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define NAMES_24 NAMES_16 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_32 NAMES_24 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define NAMES_40 NAMES_32 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define NAMES_48 NAMES_40 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define NAMES_56 NAMES_48 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_64 NAMES_56 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define NAMES_72 NAMES_64 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define NAMES_80 NAMES_72 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define NAMES_88 NAMES_80 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define NAMES_96 NAMES_88 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define NAMES_104 NAMES_96 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define NAMES_112 NAMES_104 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define NAMES_120 NAMES_112 ",%120,%121,%122,%123,%124,%125,%126,%127"

#define EIGHT(is, i)                                                                               \
    is(d[i]), is(d[i + 1]), is(d[i + 2]), is(d[i + 3]), is(d[i + 4]), is(d[i + 5]), is(d[i + 6]),  \
        is(d[i + 7])
#define WORDS_16(is) EIGHT(is, 0), EIGHT(is, 8)
#define WORDS_24(is) WORDS_16(is), EIGHT(is, 16)
#define WORDS_32(is) WORDS_24(is), EIGHT(is, 24)
#define WORDS_40(is) WORDS_32(is), EIGHT(is, 32)
#define WORDS_48(is) WORDS_40(is), EIGHT(is, 40)
#define WORDS_56(is) WORDS_48(is), EIGHT(is, 48)
#define WORDS_64(is) WORDS_56(is), EIGHT(is, 56)
#define WORDS_72(is) WORDS_64(is), EIGHT(is, 64)
#define WORDS_80(is) WORDS_72(is), EIGHT(is, 72)
#define WORDS_88(is) WORDS_80(is), EIGHT(is, 80)
#define WORDS_128(is)                                                                              \
    WORDS_88(is), EIGHT(is, 88), EIGHT(is, 96), EIGHT(is, 104), EIGHT(is, 112), EIGHT(is, 120)

#define PRODUCT(n, type, names, a, b, add, major)                                                  \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\n"                                               \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" names "}, " a ", " b      \
    ", p, 1, 1, " major ";\n}"

/* D (+)= A B with both in shared memory. */
#define FROM_SHARED(n, words, names, type, a, b, majors)                                           \
    if constexpr (ADD)                                                                             \
        asm volatile(PRODUCT(n, type, names, a, b, "1", majors)                                    \
                     : WORDS_##words("+f")                                                         \
                     : "l"(from_a), "l"(from_b), "n"((int)A_MAJOR), "n"((int)B_MAJOR));            \
    else                                                                                           \
        asm volatile(PRODUCT(n, type, names, a, b, "0", majors)                                    \
                     : WORDS_##words("=f")                                                         \
                     : "l"(from_a), "l"(from_b), "n"((int)A_MAJOR), "n"((int)B_MAJOR))

/* D (+)= A B with A in registers. */
#define FROM_REGISTERS(n, words, names, type, a, b, major)                                         \
    if constexpr (ADD)                                                                             \
        asm volatile(PRODUCT(n, type, names, a, b, "1", major)                                     \
                     : WORDS_##words("+f")                                                         \
                     : "r"(from_a[0]), "r"(from_a[1]), "r"(from_a[2]), "r"(from_a[3]),             \
                       "l"(from_b), "n"((int)MAJOR));                                              \
    else                                                                                           \
        asm volatile(PRODUCT(n, type, names, a, b, "0", major)                                     \
                     : WORDS_##words("=f")                                                         \
                     : "r"(from_a[0]), "r"(from_a[1]), "r"(from_a[2]), "r"(from_a[3]),             \
                       "l"(from_b), "n"((int)MAJOR))

/* One width: N columns, `words` registers of D, named by `names`; then the six numbers after. */
#define WGMMA(n, words, names, w0, w1, w2, w3, w4, w5)                                             \
    template <class T, bool ADD, wgmma_major A_MAJOR = K_MAJOR, wgmma_major B_MAJOR = K_MAJOR>     \
    DEVICE void wgmma(float(&d)[words], uint64_t from_a, uint64_t from_b)                          \
    {                                                                                              \
        if constexpr (is_bf16<T>::value) {                                                         \
            FROM_SHARED(n, words, names, "bf16", w0, w1, w2 ", " w3);                              \
        } else {                                                                                   \
            FROM_SHARED(n, words, names, "f16", w0, w1, w2 ", " w3);                               \
        }                                                                                          \
    }                                                                                              \
    template <class T, bool ADD, wgmma_major MAJOR>                                                \
    DEVICE void wgmma(float(&d)[words], const uint32_t *from_a, uint64_t from_b)                   \
    {                                                                                              \
        if constexpr (is_bf16<T>::value) {                                                         \
            FROM_REGISTERS(n, words, names, "bf16", "{" w0 "," w1 "," w2 "," w3 "}", w4, w5);      \
        } else {                                                                                   \
            FROM_REGISTERS(n, words, names, "f16", "{" w0 "," w1 "," w2 "," w3 "}", w4, w5);       \
        }                                                                                          \
    }

WGMMA(32, 16, NAMES_8, "%16", "%17", "%18", "%19", "%20", "%21")
WGMMA(48, 24, NAMES_16, "%24", "%25", "%26", "%27", "%28", "%29")
WGMMA(64, 32, NAMES_24, "%32", "%33", "%34", "%35", "%36", "%37")
WGMMA(80, 40, NAMES_32, "%40", "%41", "%42", "%43", "%44", "%45")
WGMMA(96, 48, NAMES_40, "%48", "%49", "%50", "%51", "%52", "%53")
WGMMA(112, 56, NAMES_48, "%56", "%57", "%58", "%59", "%60", "%61")
WGMMA(128, 64, NAMES_56, "%64", "%65", "%66", "%67", "%68", "%69")
WGMMA(144, 72, NAMES_64, "%72", "%73", "%74", "%75", "%76", "%77")
WGMMA(160, 80, NAMES_72, "%80", "%81", "%82", "%83", "%84", "%85")
WGMMA(176, 88, NAMES_80, "%88", "%89", "%90", "%91", "%92", "%93")
WGMMA(256, 128, NAMES_120, "%128", "%129", "%130", "%131", "%132", "%133")

#endif
