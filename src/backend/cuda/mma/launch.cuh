/* SPDX-License-Identifier: Apache-2.0 */
/* launch.cuh - on the host: which tensors allow which access, and a launch. */
#ifndef RA__BACKEND_CUDA_MMA_LAUNCH_CUH
#define RA__BACKEND_CUDA_MMA_LAUNCH_CUH

#include "backend/cuda/mma/loader.cuh"

namespace ra::mma
{

/* Do rows of a tensor start at multiples of `numbers` numbers of `bytes` bytes? */
inline bool is_aligned(const ra__cuda_tensor &tensor, int bytes, int numbers)
{
    return (uintptr_t)tensor.data % ((uintptr_t)bytes * numbers) == 0 &&
           tensor.batch % numbers == 0 && tensor.token % numbers == 0 && tensor.head % numbers == 0;
}

inline access access_of(const ra__cuda_step &step, bool backward)
{
    access how;
    const int bytes = step.dtype == RA__CUDA_F32 ? 4 : 2, chunk = 16 / bytes;
    how.chunks = step.dim % chunk == 0 && step.value_dim % chunk == 0 &&
                 is_aligned(step.q, bytes, chunk) && is_aligned(step.k, bytes, chunk) &&
                 is_aligned(step.v, bytes, chunk) &&
                 (!backward || is_aligned(step.dout, bytes, chunk));
    if (backward)
        how.pairs = step.dim % 2 == 0 && step.value_dim % 2 == 0 && is_aligned(step.dq, 4, 2) &&
                    is_aligned(step.dk, step.writes_keys ? bytes : 4, 2) &&
                    is_aligned(step.dv, step.writes_keys ? bytes : 4, 2);
    else how.pairs = step.value_dim % 2 == 0 && is_aligned(step.out, bytes, 2);
    return how;
}

/* A negative scale turns the largest product into the smallest score, and 0 by an infinity is NaN:
 * the path with terms scores pair by pair and knows both. */
inline bool needs_terms(const ra__cuda_step &step)
{
    return step.terms.any || !(step.scale > 0.0f);
}

/* `tiles` CTAs in x, `ranges` in y. */
inline int launch(void (*kernel)(const ra__cuda_step, const access), int64_t tiles, int ranges,
                  int threads, int bytes, const ra__cuda_step &step, const access &how,
                  void *stream)
{
    if (tiles > INT32_MAX) return (int)cudaErrorInvalidConfiguration;
    cudaError_t error = cudaFuncSetAttribute((const void *)kernel,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return (int)error;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)tiles, (unsigned)ranges);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = (size_t)bytes;
    config.stream = (cudaStream_t)stream;
    return (int)cudaLaunchKernelEx(&config, kernel, step, how);
}

/* The class that a shape is padded to; 0: too large. */
inline int class_of(int dim, int value_dim)
{
    const int largest = dim > value_dim ? dim : value_dim;
    return largest <= 64 ? 64 : largest <= 128 ? 128 : largest <= 256 ? 256 : 0;
}

/* Bytes of shared memory of the current device. */
struct shared_limits {
    int block, all; /* of a CTA, and of an SM */
};
inline cudaError_t ask_limits(shared_limits *out)
{
    int device;
    cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess) return error;
    error = cudaDeviceGetAttribute(&out->block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess) return error;
    return cudaDeviceGetAttribute(&out->all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
}

/* Built for Hopper alone: no other shapes than the first are needed. */
#ifndef RA__MMA_LARGE_ONLY
#define RA__MMA_LARGE_ONLY 0
#endif

/* What a CTA may have on every GPU that kernels of a dtype are for. GeForce has 99 KiB, an A100,
 * which is the smallest for f32, 163. */
template <class T> constexpr int SHARED_EVERYWHERE = (IS_F32<T> ? 163 : 99) * 1024;
constexpr int SHARED_RESERVED = 1024; /* for each CTA, by CUDA */

/* Is there room for `ctas` CTAs on an SM? */
inline bool have_room(const shared_limits &limits, int bytes, int ctas)
{
    return bytes <= limits.block && ctas * (bytes + SHARED_RESERVED) <= limits.all;
}

/* The first shape, from SIZE on, whose CTAs find room on the device; each needs less shared memory
 * than the one before it, and the last fits everywhere, if not as many CTAs of it. */
template <template <class, int, bool, int> class Start, class T, int D, bool TERMS, int SIZE>
int start_by_size(const ra__cuda_step &step, void *stream)
{
    using Here = Start<T, D, TERMS, SIZE>;
    using F = typename Here::Shape;
    if constexpr (!Here::LAST && !RA__MMA_LARGE_ONLY) {
        shared_limits limits;
        const cudaError_t error = ask_limits(&limits);
        if (error != cudaSuccess) return (int)error;
        if (!have_room(limits, F::BYTES, F::CTAS))
            return start_by_size<Start, T, D, TERMS, SIZE + 1>(step, stream);
    }
    return Here::run(step, stream);
}

/* Start<T, D, TERMS, SIZE>::run() for the dtype, the dims and the terms of a step, and for the
 * device. Every file needs a name of its own for its Start: compilers take those of unnamed
 * namespaces for the same. */
template <template <class, int, bool, int> class Start, bool HAS_TERMS, class T, int D>
int start_by_terms(const ra__cuda_step &step, void *stream)
{
    if constexpr (HAS_TERMS) {
        if (needs_terms(step)) return start_by_size<Start, T, D, true, 0>(step, stream);
    }
    return start_by_size<Start, T, D, false, 0>(step, stream);
}

template <template <class, int, bool, int> class Start, bool HAS_TERMS, class T>
int start_by_dim(const ra__cuda_step &step, void *stream)
{
    switch (class_of(step.dim, step.value_dim)) {
    case 64: return start_by_terms<Start, HAS_TERMS, T, 64>(step, stream);
    case 128: return start_by_terms<Start, HAS_TERMS, T, 128>(step, stream);
    case 256:
        if constexpr (!IS_F32<T>) return start_by_terms<Start, HAS_TERMS, T, 256>(step, stream);
        [[fallthrough]];
    default: return (int)cudaErrorInvalidValue;
    }
}

/* For kernels that take the dtypes of 2 bytes; and for those that take f32 as well. */
template <template <class, int, bool, int> class Start, bool HAS_TERMS = true>
int start_half(const ra__cuda_step &step, void *stream)
{
    return step.dtype == RA__CUDA_BF16 ? start_by_dim<Start, HAS_TERMS, bf16>(step, stream)
                                       : start_by_dim<Start, HAS_TERMS, f16>(step, stream);
}
template <template <class, int, bool, int> class Start>
int start_kernel(const ra__cuda_step &step, void *stream)
{
    if (step.dtype == RA__CUDA_F32) return start_by_dim<Start, true, float>(step, stream);
    return start_half<Start>(step, stream);
}

} // namespace ra::mma

#endif
