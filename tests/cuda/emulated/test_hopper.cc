/* SPDX-License-Identifier: Apache-2.0 */
/* test_hopper.cc - what the emulation has of Hopper: clusters, mbarriers, the copy engine, products of
 * a warpgroup. Each is right where the program waits, and wrong where it does not. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "backend/cuda/sm90/wgmma.cuh"
#include "expect.h"

/* What a kernel writes, `count` floats, where it starts from those of `in`. */
template <typename... Parameters, typename... Arguments>
static std::vector<float> run(const cudaLaunchConfig_t &config, size_t count,
                              const std::vector<float> &in, void (*kernel)(Parameters...),
                              const Arguments &...arguments)
{
    float *data;
    std::vector<float> out(in);
    out.resize(count);
    OK(cudaMalloc(&data, count * sizeof(float)));
    OK(cudaMemcpy(data, out.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    OK(cudaLaunchKernelEx(&config, kernel, data, arguments...));
    OK(cudaMemcpy(out.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost));
    OK(cudaFree(data));
    return out;
}

/* ---- Blocks that run at the same time ---- */

/* Each block of a pair leaves its number with the other one. */
static void swap_kernel(float *out, bool waits)
{
    const int other = 1 - emulated::cluster_rank();
    if (threadIdx.x == 0) shared_store_at(0, other, (int)blockIdx.x);
    if (waits) everyone_sync<2>();
    if (threadIdx.x == 32) out[blockIdx.x] = (float)shared_load(0);
    everyone_sync<2>(); /* nobody writes to a block that has ended */
}

static void clusters_share_memory()
{
    cudaLaunchAttribute pairs = {};
    pairs.id = cudaLaunchAttributeClusterDimension;
    pairs.val.clusterDim = { 2, 1, 1 };
    const std::vector<float> right = { 1, 0, 3, 2 };
    EXPECT(run(shape(4, 64, &pairs), 4, {}, swap_kernel, true) == right);
    EXPECT(run(shape(4, 64, &pairs), 4, {}, swap_kernel, false) != right);
    const cudaLaunchConfig_t odd = shape(3, 64, &pairs);
    EXPECT(cudaLaunchKernelEx(&odd, swap_kernel, nullptr, true) == cudaErrorInvalidConfiguration);
}

/* Blocks take turns, the last one first. */
static void turns_kernel(float *out, int *turn)
{
    if (threadIdx.x != 0) return;
    turn_wait(turn, (int)(gridDim.x - 1 - blockIdx.x));
    out[blockIdx.x] = (float)*turn;
    turn_pass(turn);
}

static void cooperative_blocks_wait_for_later_ones()
{
    cudaLaunchAttribute all = {};
    all.id = cudaLaunchAttributeCooperative;
    all.val.cooperative = 1;
    int *turn;
    OK(cudaMalloc(&turn, sizeof(int)));
    OK(cudaMemset(turn, 0, sizeof(int)));
    EXPECT(run(shape(3, 32, &all), 3, {}, turns_kernel, turn) == std::vector<float>({ 2, 1, 0 }));
    OK(cudaFree(turn));
}

/* ---- The copy engine ---- */

enum { BARRIER = 1024, COPIED = 64 };

static void copy_kernel(float *data, bool waits)
{
    if (threadIdx.x == 0) {
        barrier_init(BARRIER, 1);
        barrier_expect(BARRIER, COPIED * 4);
        copy_in_plain(0, data, COPIED * 4, BARRIER);
    }
    __syncthreads();
    if (waits) barrier_wait(BARRIER, 0);
    const int word = shared_load(threadIdx.x * 4);
    __syncthreads();
    barrier_wait(BARRIER, 0);
    data[threadIdx.x] = 2 * __int_as_float(word);
}

static void copies_are_late()
{
    std::vector<float> in(COPIED), twice(COPIED);
    for (int i = 0; i < COPIED; i++) in[(size_t)i] = (float)i, twice[(size_t)i] = 2.0f * (float)i;
    EXPECT(run(shape(1, COPIED, nullptr), COPIED, in, copy_kernel, true) == twice);
    EXPECT(isnan(run(shape(1, COPIED, nullptr), COPIED, in, copy_kernel, false)[1]));
}

/* Adds four numbers to memory; the place they come from is used again at once, or when it has been
 * read. */
static void add_kernel(float *data, bool waits)
{
    const float first[4] = { 1, 2, 3, 4 }, second[4] = { 100, 100, 100, 100 };
    if (threadIdx.x != 0) return;
    shared_store4(0, first);
    add_out(data, 0, 16);
    if (waits) add_out_read();
    shared_store4(0, second);
    add_out(data, 0, 16);
    add_out_done();
    data[4] = data[0];
}

static void sums_leave_late()
{
    const std::vector<float> right = { 111, 112, 113, 114, 111 };
    EXPECT(run(shape(1, 32, nullptr), 5, { 10, 10, 10, 10 }, add_kernel, true) == right);
    EXPECT(run(shape(1, 32, nullptr), 5, { 10, 10, 10, 10 }, add_kernel, false) != right);
}

/* ---- Products ---- */

static float number_at(int row, int column) { return (float)((row * 5 + column * 3) % 7 - 3); }

/* One box of a tensor map and its product with itself: D = X X^T, 64 x 64, over 16 columns. */
static void product_kernel(float *out, CUtensorMap map, bool waits)
{
    float d[32];
    for (float &x : d) x = -1;
    if (threadIdx.x == 0) {
        barrier_init(16384, 1);
        barrier_expect(16384, 64 * 128);
        copy_in(0, &map, 16384, { 0, 0, 0, 0, 0 });
    }
    __syncthreads();
    barrier_wait(16384, 0);
    wgmma<__nv_bfloat16, false>(d, matrix_at(0, 0), matrix_at(0, 0));
    wgmma_commit();
    if (waits) wgmma_wait<0>();
    const int thread = thread_in_group(), row = 16 * (thread / 32) + thread % 32 / 4;
    for (int i = 0; i < 32; i++)
        out[(row + i % 4 / 2 * 8) * 64 + i / 4 * 8 + thread % 4 * 2 + i % 2] = d[i];
    wgmma_wait<0>();
}

static void products_are_late()
{
    std::vector<__nv_bfloat16> x(64 * 64);
    std::vector<float> right(64 * 64);
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 64; j++) {
            x[(size_t)(i * 64 + j)] = number_at(i, j);
            for (int k = 0; k < 16; k++)
                right[(size_t)(i * 64 + j)] += number_at(i, k) * number_at(j, k);
        }
    void *data;
    CUtensorMap map;
    const cuuint64_t dims[5] = { 64, 64, 1, 1, 1 }, strides[4] = { 128, 128, 128, 128 };
    const cuuint32_t box[5] = { 64, 64, 1, 1, 1 }, steps[5] = { 1, 1, 1, 1, 1 };
    OK(cudaMalloc(&data, x.size() * 2));
    OK(cudaMemcpy(data, x.data(), x.size() * 2, cudaMemcpyHostToDevice));
    EXPECT(emulated::encode_tiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, data, dims, strides,
                                  box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
    EXPECT(run(shape(1, 128, nullptr), 64 * 64, {}, product_kernel, map, true) == right);
    EXPECT(run(shape(1, 128, nullptr), 64 * 64, {}, product_kernel, map, false)[5] == -1);
    OK(cudaFree(data));
}

/* ---- Mistakes ---- */

enum mistake {
    NONE,
    PHASE,
    UNREAD_SUM,
    UNWAITED_PRODUCT,
    OTHER_PRODUCT,
    LONE_WAIT,
    FEWER_PRODUCTS
};

static void mistaken_kernel(float *data, mistake made)
{
    const int warp = (int)threadIdx.x / 32;
    float d[32];
    if (threadIdx.x == 0) barrier_init(16384, 1);
    __syncthreads();
    if (made == PHASE) barrier_wait(16384, 0);
    if (made == FEWER_PRODUCTS && warp == 3) return;
    wgmma<__nv_bfloat16, false>(d, matrix_at(made == OTHER_PRODUCT && warp == 1 ? 1024 : 0, 0),
                                matrix_at(0, 0));
    wgmma_commit();
    if (made == UNWAITED_PRODUCT) return;
    if (made == LONE_WAIT && warp == 2) wgmma_wait<0>();
    wgmma_wait<0>();
    if (threadIdx.x == 0 && made == UNREAD_SUM) add_out(data, 0, 16);
}

static void ended_kernel(bool waits)
{
    if (emulated::cluster_rank() == 1 && threadIdx.x < 32) {
        __syncwarp();
        shared_store_at(0, 0, 1);
    }
    if (waits) everyone_sync<2>();
}

static void mistakes_stop_the_program()
{
    float *data;
    OK(cudaMalloc(&data, 1024));
    EXPECT(!stops(shape(1, 128, nullptr), mistaken_kernel, data, NONE));
    for (int made = PHASE; made <= FEWER_PRODUCTS; made++)
        EXPECT(stops(shape(1, 128, nullptr), mistaken_kernel, data, (mistake)made));
    cudaLaunchAttribute pairs = {}, all = {};
    pairs.id = cudaLaunchAttributeClusterDimension;
    pairs.val.clusterDim = { 2, 1, 1 };
    EXPECT(!stops(shape(2, 64, &pairs), ended_kernel, true));
    EXPECT(stops(shape(2, 64, &pairs), ended_kernel, false));
    all.id = cudaLaunchAttributeCooperative;
    all.val.cooperative = 1;
    const cudaLaunchConfig_t large = shape(1000, 64, &all);
    EXPECT(cudaLaunchKernelEx(&large, turns_kernel, data, (int *)data) ==
           cudaErrorCooperativeLaunchTooLarge);
    setenv("RINGATTN_EMULATED_SM", "80", 1);
    const cudaLaunchConfig_t older = shape(2, 64, &pairs);
    EXPECT(cudaLaunchKernelEx(&older, ended_kernel, true) == cudaErrorInvalidConfiguration);
    OK(cudaFree(data));
}

int main()
{
    setenv("RINGATTN_EMULATED_SM", "90", 1);
    unsetenv("RINGATTN_EMULATED_SEED"); /* late means as late as can be */
    clusters_share_memory();
    cooperative_blocks_wait_for_later_ones();
    copies_are_late();
    sums_leave_late();
    products_are_late();
    mistakes_stop_the_program();
    printf("%s\n", failures ? "FAILED" : "ok");
    return failures != 0;
}
