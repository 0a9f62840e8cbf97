/* SPDX-License-Identifier: Apache-2.0 */
/* maker.cu - the maker of the device cuda. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "harness/device/cuda/ceilings.h"
#include "harness/device/maker.h"

namespace
{

enum { THREADS = 256, WARP = 32 };

/* Of one launch. */
const int64_t MOST_ROWS = 1 << 30;

template <class T> __device__ T rounded(float x);
template <> __device__ float rounded(float x) { return x; }
template <> __device__ __nv_bfloat16 rounded(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __half rounded(float x) { return __float2half_rn(x); }

/* A warp makes one row after the other. Rows are counted in 32 bits: 64-bit division would take
 * longer than making them. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    make_kernel(const struct recipe recipe, int64_t batch, int64_t first, uint32_t rows, T *to)
{
    const uint32_t heads = (uint32_t)recipe.heads, warps = gridDim.x * (THREADS / WARP);
    const int dim = (int)recipe.dim, lane = threadIdx.x % WARP;
    for (uint32_t row = (blockIdx.x * THREADS + threadIdx.x) / WARP; row < rows; row += warps) {
        const int64_t position = first + row / heads, head = row % heads;
        const uint64_t key = recipe_row(&recipe, batch, position, head);
        T *values = to + (int64_t)row * dim;
        for (int i = lane; i < dim; i += WARP)
            values[i] = rounded<T>(recipe_value(&recipe, key, position, head, i));
    }
}

/* T: an unsigned integer of the number's size. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    digest_kernel(const T *from, int64_t index, int64_t count, unsigned long long *sum)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    unsigned long long own = 0;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < count; at += step)
        own += recipe_digest(index + at, from[at]);
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        own += __shfl_xor_sync(0xffffffffu, own, lanes);
    if (threadIdx.x % WARP == 0) atomicAdd(sum, own);
}

const char *said(cudaError_t error)
{
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

/* Enough blocks to fill any GPU; each loops. */
template <class... Args>
const char *launch(void (*kernel)(Args...), int64_t threads, void *queue, const Args &...args)
{
    const int64_t most = 4096, blocks = (threads + THREADS - 1) / THREADS;
    if (blocks == 0) return nullptr;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(blocks < most ? blocks : most));
    config.blockDim = dim3(THREADS);
    config.stream = (cudaStream_t)queue;
    return said(cudaLaunchKernelEx(&config, kernel, args...));
}

template <class T>
const char *make_rows(const struct recipe *recipe, int64_t batch, int64_t first, int64_t count,
                      T *to, void *queue)
{
    const int64_t most = MOST_ROWS / recipe->heads;
    const char *why = nullptr;
    for (int64_t done = 0; done < count && !why; done += most) {
        const int64_t rows = (count - done < most ? count - done : most) * recipe->heads;
        why = launch(make_kernel<T>, rows * WARP, queue, *recipe, batch, first + done,
                     (uint32_t)rows, to + done * recipe->heads * recipe->dim);
    }
    return why;
}

const char *make(const struct recipe *recipe, enum maker_dtype dtype, int64_t batch, int64_t first,
                 int64_t count, void *to, void *queue)
{
    if (dtype == MAKER_F32) return make_rows(recipe, batch, first, count, (float *)to, queue);
    if (dtype == MAKER_F16) return make_rows(recipe, batch, first, count, (__half *)to, queue);
    return make_rows(recipe, batch, first, count, (__nv_bfloat16 *)to, queue);
}

const char *add_digest(enum maker_dtype dtype, const void *from, int64_t index, int64_t count,
                         uint64_t *sum, void *queue)
{
    auto *to = (unsigned long long *)sum;
    if (dtype == MAKER_F32)
        return launch(digest_kernel<uint32_t>, count, queue, (const uint32_t *)from, index, count,
                      to);
    return launch(digest_kernel<uint16_t>, count, queue, (const uint16_t *)from, index, count,
                  to);
}

const char *fetch(void *to, const void *from, size_t bytes, void *queue)
{
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost,
                                              (cudaStream_t)queue);
    return said(error == cudaSuccess ? cudaStreamSynchronize((cudaStream_t)queue) : error);
}

/* Queues of the library do not wait for the default stream: the host does. */
const char *finished(cudaError_t error)
{
    return said(error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error);
}

const char *put(void *to, const void *from, size_t bytes)
{
    return finished(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}

const char *use(int number) { return said(cudaSetDevice(number)); }

const char *alloc(size_t bytes, void **memory)
{
    const cudaError_t error = cudaMalloc(memory, bytes);
    return error == cudaSuccess ? finished(cudaMemset(*memory, 0, bytes)) : said(error);
}

void release(void *memory)
{
    cudaFree(memory);
    cudaGetLastError();
}

} // namespace

extern "C" __attribute__((visibility("default"))) const struct maker ringattn_maker;
extern "C" const struct maker ringattn_maker = { MAKER_VERSION, make, add_digest, fetch,
                                                 put,           use,  alloc,      release,
                                                 ceiling_at,    ceiling_sample };
