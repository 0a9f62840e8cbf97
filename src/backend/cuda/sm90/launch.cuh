/* launch.cuh - the host's side of a kernel: tensor maps, attributes, launches. */
#ifndef RA__SM90_LAUNCH_CUH
#define RA__SM90_LAUNCH_CUH

#include <cuda_runtime.h>

#include <sm90/forward.cuh>

namespace sm90
{

/* cuTensorMapEncodeTiled of the driver, found at run time so that nothing links against it. */
typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

inline encode_fn find_encode(void)
{
    static encode_fn found = NULL;
    cudaDriverEntryPointQueryResult result;
    void *entry = NULL;
    if (!found && cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                   cudaEnableDefault, &result) == cudaSuccess)
        found = (encode_fn)entry;
    return found;
}

/* Boxes of `rows` rows and `panels` panels of 64 columns; rows that do not exist read as zero. */
template <class F> int make_map(CUtensorMap *map, const ra__sm90_tensor &x, int rows, int panels)
{
    const cuuint64_t dims[5] = { 64, (cuuint64_t)x.rows, (cuuint64_t)F::PANELS, (cuuint64_t)x.heads,
                                 (cuuint64_t)x.batch };
    const cuuint64_t strides[4] = { (cuuint64_t)x.row_stride * 2, 128,
                                    (cuuint64_t)x.head_stride * 2, (cuuint64_t)x.batch_stride * 2 };
    const cuuint32_t box[5] = { 64, (cuuint32_t)rows, (cuuint32_t)panels, 1, 1 };
    const cuuint32_t steps[5] = { 1, 1, 1, 1, 1 };
    const encode_fn encode = find_encode();
    if (!encode) return cudaErrorNotSupported;
    const CUresult result = encode(
        map,
        is_bf16<typename F::type>::value ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                         : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        5, x.data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

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
