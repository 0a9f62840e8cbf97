/* SPDX-License-Identifier: Apache-2.0 */
/* launch.cuh - one launch of a kernel that takes one argument. */
#ifndef RA__BACKEND_CUDA_LAUNCH_CUH
#define RA__BACKEND_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include <stdint.h>

namespace ra
{

/* Blocks of `threads` threads, with so many bytes of shared memory. An empty grid is no launch. */
template <class... Args>
inline int launch_shared(void (*kernel)(Args...), int64_t blocks, int threads, size_t shared_bytes,
                         void *stream, const Args &...args)
{
    if (blocks == 0) return cudaSuccess;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = (cudaStream_t)stream;
    return cudaLaunchKernelEx(&config, kernel, args...);
}

template <class... Args>
inline int launch_blocks(void (*kernel)(Args...), int64_t blocks, int threads, void *stream,
                         const Args &...args)
{
    return launch_shared(kernel, blocks, threads, 0, stream, args...);
}

} // namespace ra

#endif
