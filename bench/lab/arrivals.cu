/* SPDX-License-Identifier: Apache-2.0 */
/* arrivals.cu - what racecheck says about a ring of two slots between a loader and a consumer, as
 * the Hopper kernels have it, and nothing else. A slot is filled by the copy engine and by a plain
 * store, read by all lanes of a warp, and filled again after the warp has arrived at a barrier.
 *
 *     nvcc -std=c++17 -arch=sm_90a -I src -I include -o OUT/arrivals bench/lab/arrivals.cu
 *     compute-sanitizer --tool racecheck OUT/arrivals one|all
 *
 * one: lane 0 arrives for its warp, after __syncwarp, as in the kernels. all: every lane arrives,
 * which orders the same reads and writes. Prints a sum, and whether it is right. */
#include <cstdio>
#include <cstring>

#include "backend/cuda/sm90/wgmma.cuh"

enum { NUMBERS = 64, BLOCKS = 16, WARPS = 4 };
enum arrivals { ONE, ALL };

struct ring {
    float numbers[2][NUMBERS];
    int4 entries[2];
    uint64_t full[2], empty[2];
};

DEVICE void load(ring &shared, const float *from)
{
    for (int i = 0; i < BLOCKS; i++) {
        const int slot = i & 1, lap = i >> 1 & 1;
        const uint32_t full = shared_address(&shared.full[slot]);
        barrier_wait(shared_address(&shared.empty[slot]), lap ^ 1);
        if ((threadIdx.x & 31) == 0) {
            shared_store(shared_address(&shared.entries[slot]), make_int4(i, 0, 0, 0));
            barrier_expect(full, sizeof shared.numbers[0]);
            copy_in_plain(shared_address(shared.numbers[slot]), from + i * NUMBERS,
                          sizeof shared.numbers[0], full);
        }
    }
}

DEVICE float consume(ring &shared, arrivals how)
{
    float sum = 0;
    for (int i = 0; i < BLOCKS; i++) {
        const int slot = i & 1, lap = i >> 1 & 1, lane = threadIdx.x & 31;
        barrier_wait(shared_address(&shared.full[slot]), lap);
        const float2 x = shared_load2(shared_address(shared.numbers[slot]) + 8 * lane);
        sum += (x.x + x.y) * (float)shared_load(shared_address(&shared.entries[slot]));
        __syncwarp();
        if (how == ALL || lane == 0) barrier_arrive(shared_address(&shared.empty[slot]));
    }
    return sum;
}

__global__ void run(const float *from, float *to, arrivals how)
{
    __shared__ __align__(128) ring shared;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(shared_address(&shared.full[i]), 1);
            barrier_init(shared_address(&shared.empty[i]), how == ALL ? 32 * WARPS : WARPS);
        }
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x < 32) load(shared, from);
    else to[threadIdx.x - 32] = consume(shared, how);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "one";
    const arrivals how = !strcmp(name, "all") ? ALL : ONE;
    static float in[BLOCKS * NUMBERS], out[32 * WARPS];
    float *from, *to;
    for (int i = 0; i < BLOCKS * NUMBERS; i++) in[i] = 1;
    cudaMalloc(&from, sizeof in);
    cudaMalloc(&to, sizeof out);
    cudaMemcpy(from, in, sizeof in, cudaMemcpyHostToDevice);
    run<<<1, 32 * (WARPS + 1)>>>(from, to, how);
    const cudaError_t error = cudaMemcpy(out, to, sizeof out, cudaMemcpyDeviceToHost);
    float sum = 0, want = 0;
    for (int i = 0; i < 32 * WARPS; i++) sum += out[i];
    for (int i = 0; i < BLOCKS; i++) want += (float)(i * NUMBERS * WARPS);
    const bool right = error == cudaSuccess && sum == want;
    printf("%s: %g, %s\n", name, sum, right ? "right" : "wrong");
    return !right;
}
