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
    return { F::DIM,           F::ROWS * F::CLUSTER, F::KEYS,  F::CLUSTER, F::THREADS,
             Shared<F>::BYTES, F::PART_FLOATS,       F::WARPS, 1 };
}

template <class F> launch_config config_of(int clusters, bool early, cudaStream_t stream)
{
    return launch_config(clusters * F::CLUSTER, F::THREADS, Shared<F>::BYTES, F::CLUSTER, early,
                         stream);
}

/* How many clusters run at the same time on this GPU; 0 on errors. */
template <class F> int clusters_of(void)
{
    const launch_config config = config_of<F>(1, true, NULL);
    int clusters = 0;
    if (cudaFuncSetAttribute(forward<F>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             Shared<F>::BYTES) != cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&clusters, forward<F>, &config.config) != cudaSuccess)
        return 0;
    return clusters;
}

template <class F> int make_maps(Maps<F> *maps, const ra__sm90_forward &args)
{
    const int shared_rows = F::CLUSTER > 1 && F::PANELS == 1 ? F::KEYS / F::CLUSTER : F::KEYS;
    const int shared_panels = F::PANELS > 1 ? F::PANELS / F::CLUSTER : 1;
    int error = 0;
    for (int i = 0; i < F::VIEWS && !error; i++) {
        const struct ra__sm90_view view = view_at<F>(args.views, i);
        error = make_map<F>(&maps->q[i], seen_by(args.q, view), 64, F::PANELS);
        if (!error)
            error = make_map<F>(&maps->k[i], seen_by(args.k, view), shared_rows, shared_panels);
        if (!error)
            error = make_map<F>(&maps->v[i], seen_by(args.v, view), shared_rows, shared_panels);
    }
    return error;
}

/* A CUDA error, or 0. clusters_of must have been called once for this device. */
template <class F> int launch(const ra__sm90_forward &args, cudaStream_t stream)
{
    Maps<F> maps;
    int error = make_maps<F>(&maps, args);
    if (error) return error;
    const bool early = !args.crowded;
    const launch_config config = config_of<F>(args.clusters, early, stream);
    const struct factors by = factors_of(args.scale, args.terms);
    error = cudaLaunchKernelEx(&config.config, forward<F>, maps, args, by);
    if (!error && args.merge_count)
        error = start(merge<F>, args.merge_count * F::ROWS * F::CLUSTER / (256 / merge_lanes<F>), 0,
                      early, stream, args);
    return error;
}

} // namespace sm90
#endif
