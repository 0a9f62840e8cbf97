/* SPDX-License-Identifier: Apache-2.0 */
/* words.cuh - src/backend/cuda/sm90/words.cuh for the CPU. */
#ifndef RA__SM90_WORDS_CUH
#define RA__SM90_WORDS_CUH

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "emulated.h"
#include "tensor_map.h"

#define DEVICE inline

constexpr unsigned ALL_LANES = 0xFFFFFFFF;

inline uint32_t shared_address(const void *p) { return emulated::shared_address(p); }
inline int uniform(int x) { return __reduce_max_sync(ALL_LANES, x); }

/* ---- mbarriers ---- */

inline void barrier_init(uint32_t barrier, int arrivals)
{
    emulated::mbarrier_init(barrier, arrivals);
}
inline void barrier_init_done(void) {}
inline void barrier_expect(uint32_t barrier, int bytes)
{
    emulated::mbarrier_arrive(emulated::cluster_rank(), barrier, bytes);
}
inline void barrier_arrive(uint32_t barrier) { barrier_expect(barrier, 0); }
inline void barrier_arrive_at(uint32_t barrier, int rank)
{
    emulated::mbarrier_arrive(rank, barrier, 0);
}
inline void barrier_wait(uint32_t barrier, uint32_t phase)
{
    emulated::mbarrier_wait(barrier, phase);
}

/* ---- named barriers, clusters, registers ---- */

inline void named_sync(int id, int threads) { emulated::named_barrier(id, threads); }
inline void named_arrive(int id, int threads) { emulated::named_barrier_arrive(id, threads); }

template <int CLUSTER> inline void everyone_sync(void)
{
    if constexpr (CLUSTER > 1) emulated::cluster_barrier();
    else __syncthreads();
}
template <int CLUSTER> inline int cluster_rank(void)
{
    return CLUSTER > 1 ? emulated::cluster_rank() : 0;
}
template <int REGISTERS> inline void registers_give(void) {}
template <int REGISTERS> inline void registers_take(void) {}
inline int thread_in_group(void) { return threadIdx.x & 127; }

/* ---- shared memory ---- */

template <class T> inline T *shared_at(uint32_t address, int count)
{
    if (address % (sizeof(T) * (unsigned)count))
        emulated::fail("%d numbers at %u: misaligned", count, (unsigned)address);
    return static_cast<T *>(emulated::shared_pointer(address, sizeof(T) * (size_t)count));
}

inline void shared_store(uint32_t address, int4 x) { *shared_at<int4>(address, 1) = x; }
inline int4 shared_load4(uint32_t address) { return *shared_at<int4>(address, 1); }
inline int shared_load(uint32_t address) { return *shared_at<int>(address, 1); }
/* Atomic: several may set a mark. */
EMULATED_UNWATCHED inline void shared_store_at(uint32_t address, int rank, int x)
{
    int *to = static_cast<int *>(emulated::shared_pointer_of(rank, address, sizeof x));
    emulated::race_access(to, sizeof x, emulated::ACCESS_WRITE | emulated::ACCESS_ATOMIC);
    *to = x;
}
inline float2 shared_load2(uint32_t address) { return *shared_at<float2>(address, 1); }
inline void shared_store4(uint32_t address, const float *x)
{
    *shared_at<float4>(address, 1) = make_float4(x[0], x[1], x[2], x[3]);
}

/* Lane l has the address of row l % 8 of matrix l / 8. */
struct matrices {
    uint32_t address, word[4];
};
inline uint16_t *matrix_row(const matrices *lanes, int matrix, int row)
{
    return shared_at<uint16_t>(lanes[8 * matrix + row].address, 8);
}
inline void load_matrices(uint32_t *to, uint32_t address)
{
    const matrices mine = { address, {} };
    const matrices all = emulated_warp_compute<matrices>(
        mine, [](const matrices *in, matrices *out) {
            for (int lane = 0; lane < 32; lane++)
                for (int m = 0; m < 4; m++)
                    memcpy(&out[lane].word[m], matrix_row(in, m, lane / 4) + 2 * (lane % 4), 4);
        });
    memcpy(to, all.word, sizeof all.word);
}
inline void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    const matrices mine = { address, { a, b, c, d } };
    emulated_warp_compute<int>(mine, [](const matrices *in, int *) {
        for (int lane = 0; lane < 32; lane++)
            for (int m = 0; m < 4; m++)
                memcpy(matrix_row(in, m, lane / 4) + 2 * (lane % 4), &in[lane].word[m], 4);
    });
}
inline void store_matrices_transposed(uint32_t address, const uint32_t *from)
{
    matrices mine = { address, {} };
    memcpy(mine.word, from, sizeof mine.word);
    emulated_warp_compute<int>(mine, [](const matrices *in, int *) {
        for (int lane = 0; lane < 32; lane++)
            for (int m = 0; m < 4; m++)
                for (int e = 0; e < 2; e++)
                    matrix_row(in, m, 2 * (lane % 4) + e)[lane / 4] = (uint16_t)(in[lane].word[m] >>
                                                                                 16 * e);
    });
}

/* ---- the copy engine (TMA) ---- */

struct box {
    int column, row, panel, head, batch;
};

inline void map_prefetch(const CUtensorMap *) {}
inline void copy_in_all(uint32_t to, const CUtensorMap *map, uint32_t barrier, struct box at,
                        uint16_t ranks)
{
    const int start[5] = { at.column, at.row, at.panel, at.head, at.batch };
    emulated::copy_tensor(to, map, barrier, start, ranks);
}
inline void copy_in(uint32_t to, const CUtensorMap *map, uint32_t barrier, struct box at)
{
    copy_in_all(to, map, barrier, at, (uint16_t)(1 << emulated::cluster_rank()));
}
inline void copy_in_plain(uint32_t to, const void *from, int bytes, uint32_t barrier)
{
    emulated::copy_stretch(to, from, bytes, barrier);
}
inline void memory_store(void *to, int4 x, bool wanted)
{
    if ((uintptr_t)to % 16) emulated::fail("16 bytes to %p: misaligned", to);
    if (wanted) *static_cast<int4 *>(to) = x;
}
inline void memory_prefetch(const void *) {}
inline void kernel_follow(void) { emulated::follow(); }
inline void add_out(float *to, uint32_t from, int bytes)
{
    emulated::copy_out(to, from, bytes, true);
}
inline void set_out(float *to, uint32_t from, int bytes)
{
    emulated::copy_out(to, from, bytes, false);
}
inline void add_out_read(void) { emulated::bulk_wait_read(); }
inline void add_out_done(void) { emulated::bulk_wait(); }
inline void turn_wait(const int *turn, int value) { emulated::turn_wait(turn, value); }
inline void turn_pass(int *turn) { emulated::turn_pass(turn); }
inline void shared_publish(void) { emulated::race_publish(); }

/* ---- arithmetic ---- */

inline int64_t opaque(int64_t x) { return x; }
inline float exp2_fast(float x) { return exp2f(x); }
inline float reciprocal_fast(float x) { return 1.0f / x; }

template <class T> inline uint32_t pack(float low, float high)
{
    const T both[2] = { T(low), T(high) };
    uint32_t word;
    memcpy(&word, both, sizeof word);
    return word;
}

#endif
