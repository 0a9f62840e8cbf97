/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_runtime.h - the C++ side of the runtime: launches and what device code may use. */
#ifndef EMULATED_CUDA_RUNTIME_H
#define EMULATED_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus

#include <functional>
#include <tuple>
#include <utility>

#include "device.h"

namespace emulated
{
cudaError_t launch_kernel(const cudaLaunchConfig_t *config, const void *kernel,
                          size_t parameter_bytes, std::function<void()> body);

template <typename... Parameters> struct parameter_bytes {
    static constexpr size_t value = (sizeof(Parameters) + ... + 0);
};
} // namespace emulated

/* Arguments are converted and copied now, as on a device; the kernel runs late. */
template <typename... Parameters, typename... Arguments>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                                      void (*kernel)(Parameters...), Arguments &&...arguments)
{
    std::tuple<Parameters...> copied(std::forward<Arguments>(arguments)...);
    return emulated::launch_kernel(config, reinterpret_cast<const void *>(kernel),
                                   emulated::parameter_bytes<Parameters...>::value,
                                   [kernel, copied] { std::apply(kernel, copied); });
}

template <typename T> inline cudaError_t cudaMalloc(T **pointer, size_t size)
{
    return ::cudaMalloc(reinterpret_cast<void **>(pointer), size);
}

template <typename T>
inline cudaError_t cudaMallocAsync(T **pointer, size_t size, cudaStream_t stream)
{
    return ::cudaMallocAsync(reinterpret_cast<void **>(pointer), size, stream);
}

template <typename T>
inline cudaError_t cudaMallocHost(T **pointer, size_t size, unsigned int flags = 0)
{
    return ::cudaHostAlloc(reinterpret_cast<void **>(pointer), size, flags);
}

template <typename T> inline cudaError_t cudaHostAlloc(T **pointer, size_t size, unsigned int flags)
{
    return ::cudaHostAlloc(reinterpret_cast<void **>(pointer), size, flags);
}

template <typename... Parameters>
inline cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...),
                                        enum cudaFuncAttribute attribute, int value)
{
    return ::cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}

template <typename... Parameters>
inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes,
                                         void (*kernel)(Parameters...))
{
    return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void *>(kernel));
}

template <typename... Parameters>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
                                                                 void (*kernel)(Parameters...),
                                                                 int threads, size_t shared)
{
    return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks, reinterpret_cast<const void *>(kernel), threads, shared);
}

template <typename... Parameters>
inline cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, void (*kernel)(Parameters...),
                                                  const cudaLaunchConfig_t *config)
{
    return ::cudaOccupancyMaxActiveClusters(clusters, reinterpret_cast<const void *>(kernel),
                                            config);
}

#endif
#endif
