/* SPDX-License-Identifier: Apache-2.0 */
/* launch.cuh - the host's side of the forward kernel: attributes, launches. */
#ifndef RA__SM90_LAUNCH_CUH
#define RA__SM90_LAUNCH_CUH

#include "backend/cuda/sm90/forward.cuh"
#include "backend/cuda/sm90/maps.cuh"

namespace sm90
{

template <class F> ra__sm90_shape shape_of(void)
{
    return { F::DIM,     F::ROWS * F::CLUSTER, F::KEYS,        F::CLUSTER,
             F::THREADS, Shared<F>::BYTES,     F::PART_FLOATS, F::WARPS };
}

template <class F>
cudaLaunchConfig_t config_of(int workers, cudaStream_t stream, cudaLaunchAttribute *cluster)
{
    cluster->id = cudaLaunchAttributeClusterDimension;
    cluster->val.clusterDim.x = F::CLUSTER;
    cluster->val.clusterDim.y = cluster->val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(workers * F::CLUSTER);
    config.blockDim = dim3(F::THREADS);
    config.dynamicSmemBytes = Shared<F>::BYTES;
    config.stream = stream;
    config.attrs = cluster;
    config.numAttrs = 1;
    return config;
}

/* How many workers run at the same time on this GPU; 0 on errors. */
template <class F> int workers_of(void)
{
    cudaLaunchAttribute cluster;
    cudaLaunchConfig_t config = config_of<F>(1, NULL, &cluster);
    int workers = 0;
    if (cudaFuncSetAttribute(forward<F>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             Shared<F>::BYTES) != cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&workers, forward<F>, &config) != cudaSuccess)
        return 0;
    return workers;
}

/* A CUDA error, or 0. workers_of must have been called once for this device. */
template <class F> int launch(const ra__sm90_forward &args, cudaStream_t stream)
{
    CUtensorMap q, k, v;
    const int shared_rows = F::CLUSTER > 1 && F::PANELS == 1 ? F::KEYS / F::CLUSTER : F::KEYS;
    const int shared_panels = F::PANELS > 1 ? F::PANELS / F::CLUSTER : 1;
    int error = make_map<F>(&q, args.q, 64, F::PANELS);
    if (!error) error = make_map<F>(&k, args.k, shared_rows, shared_panels);
    if (!error) error = make_map<F>(&v, args.v, shared_rows, shared_panels);
    if (error) return error;
    cudaLaunchAttribute cluster;
    cudaLaunchConfig_t config = config_of<F>(args.workers, stream, &cluster);
    error = cudaLaunchKernelEx(&config, forward<F>, q, k, v, args,
                               args.scale * 1.4426950408889634f);
    if (error || args.merge_count == 0) return error;
    merge<F><<<args.merge_count * F::ROWS * F::CLUSTER / 8, 256, 0, stream>>>(args);
    return cudaGetLastError();
}

} // namespace sm90
#endif
