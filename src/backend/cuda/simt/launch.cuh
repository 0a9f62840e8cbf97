/* SPDX-License-Identifier: Apache-2.0 */
/* launch.cuh - the host's side of all simt kernels. */
#ifndef RA__CUDA_SIMT_LAUNCH_CUH
#define RA__CUDA_SIMT_LAUNCH_CUH

#include "backend/cuda/simt/load.cuh"

namespace simt
{

/* Can FAST kernels take it? */
inline bool is_fast(const ra__cuda_step &step)
{
    return format_of(step.q, step.dtype, step.dim) == FAST_FORMAT &&
           format_of(step.k, step.dtype, step.dim) == FAST_FORMAT &&
           format_of(step.v, step.dtype, step.value_dim) == FAST_FORMAT;
}
inline bool is_fast_backward(const ra__cuda_step &step)
{
    return is_fast(step) && format_of(step.dout, step.dtype, step.value_dim) == FAST_FORMAT;
}

typedef void (*kernel_function)(const ra__cuda_step);

/* `tiles` CTAs in x and, past its limit, in z; `ranges` in y. 0 or a CUDA error. */
inline int launch(kernel_function kernel, const ra__cuda_step &step, int64_t tiles, int ranges,
                  int bytes, void *stream)
{
    constexpr int64_t MOST = INT32_MAX;
    if (tiles == 0) return cudaSuccess;
    cudaError_t error = cudaFuncSetAttribute((const void *)kernel,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    const int64_t layers = (tiles + MOST - 1) / MOST;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)((tiles + layers - 1) / layers), (unsigned)ranges,
                          (unsigned)layers);
    config.blockDim = dim3(THREADS, 1, 1);
    config.dynamicSmemBytes = (size_t)bytes;
    config.stream = (cudaStream_t)stream;
    return cudaLaunchKernelEx(&config, kernel, step);
}

} // namespace simt

#endif
