/* SPDX-License-Identifier: Apache-2.0 */
/* launch_backward.cuh - the host's side of the backward kernel. */
#ifndef RA__SM90_LAUNCH_BACKWARD_CUH
#define RA__SM90_LAUNCH_BACKWARD_CUH

#include "backend/cuda/launch.cuh"
#include "backend/cuda/sm90/backward.cuh"
#include "backend/cuda/sm90/maps.cuh"

namespace sm90
{

template <class F> ra__sm90_shape backward_shape_of(void)
{
    return { F::DIM,         F::KEYS, F::QUERIES, 1, F::THREADS, BackwardShared<F>::BYTES,
             F::PART_FLOATS, 8,       F::WALKS };
}

/* How many clusters run at the same time on this GPU; 0 on errors. */
template <class F> int backward_clusters_of(void)
{
    int per_sm = 0, device = 0, sms = 0;
    if (cudaFuncSetAttribute(backward<F>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             BackwardShared<F>::BYTES) != cudaSuccess ||
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, backward<F>, F::THREADS,
                                                      BackwardShared<F>::BYTES) != cudaSuccess ||
        cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
        return 0;
    return per_sm * sms;
}

template <class F> int make_backward_maps(BackwardMaps<F> *maps, const ra__sm90_backward &args)
{
    int error = 0;
    for (int i = 0; i < F::VIEWS && !error; i++) {
        const struct ra__sm90_view view = view_at<F>(args.views, i);
        const ra__sm90_tensor q = seen_by(args.q, view), dout = seen_by(args.dout, view);
        error = make_map<F>(&maps->q[i], q, F::QUERIES, F::PANELS);
        if (!error) error = make_map<F>(&maps->dout[i], dout, F::QUERIES, F::PANELS);
        if (!error) error = make_map<F>(&maps->k[i], seen_by(args.k, view), F::KEYS, F::PANELS);
        if (!error) error = make_map<F>(&maps->v[i], seen_by(args.v, view), F::KEYS, F::PANELS);
    }
    return error;
}

/* CTAs of ORDERED kernels wait for one another, so all must run at the same time, whatever else the
 * GPU does: that is what a cooperative launch is. */
template <class F>
int start_backward(const BackwardMaps<F> &maps, const ra__sm90_backward &args, cudaStream_t stream)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(args.clusters);
    config.blockDim = dim3(F::THREADS);
    config.dynamicSmemBytes = BackwardShared<F>::BYTES;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = F::ORDERED ? 1 : 0;
    return cudaLaunchKernelEx(&config, backward<F>, maps, args, factors_of(args.scale, args.terms));
}

/* A CUDA error, or 0. backward_clusters_of must have been called once for this device. */
template <class F> int launch_backward(const ra__sm90_backward &args, cudaStream_t stream)
{
    BackwardMaps<F> maps;
    int error = make_backward_maps<F>(&maps, args);
    if (error) return error;
    const int heads = args.q.batch * args.q.heads, per_cta = 256 / (F::DIM / 8);
    const int64_t rows = (int64_t)heads * args.padded_rows;
    if (args.flags & RA__SM90_FIRST)
        error = ra::launch_blocks(prepare<F>, (rows + per_cta - 1) / per_cta, 256, stream, args);
    else if (F::ORDERED)
        error = cudaMemsetAsync(args.turns, 0, sizeof *args.turns * 2 * (rows / F::QUERIES),
                                stream);
    if (!error) error = start_backward<F>(maps, args, stream);
    if (!error && args.merge_count)
        error = ra::launch_blocks(merge_keys<F>, args.merge_count * F::KEYS / 8, 256, stream, args);
    if (!error && args.flags & RA__SM90_LAST)
        error = ra::launch_shared(finish<F>, rows / F::QUERIES, 256,
                                  F::QUERIES * sizeof(padded_row<F>), stream, args);
    return error;
}

} // namespace sm90
#endif
