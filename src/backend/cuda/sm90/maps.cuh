/* SPDX-License-Identifier: Apache-2.0 */
/* maps.cuh - what the host makes for a launch: tensor maps for the copy engine, factors. */
#ifndef RA__SM90_MAPS_CUH
#define RA__SM90_MAPS_CUH

#include <cuda_runtime.h>

#include "backend/cuda/sm90/terms.cuh"

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

/* The rows of a tensor that a view has. A tensor that is too short for the view is not read through
 * it, but a map needs a row. */
inline ra__sm90_tensor seen_by(ra__sm90_tensor x, struct ra__sm90_view view)
{
    if (x.rows > view.first) {
        x.data = (char *)x.data + 2 * view.first * x.row_stride;
        x.rows = (x.rows - view.first + view.step - 1) / view.step;
    } else {
        x.rows = 1;
    }
    x.row_stride *= view.step;
    return x;
}

/* All rows where there are no views, or fewer. */
template <class F> struct ra__sm90_view view_at(const struct ra__sm90_view *views, int index)
{
    const struct ra__sm90_view all = { 0, 1 };
    return F::VIEWS > 1 && views[index].step ? views[index] : all;
}

/* A launch of a kernel that waits itself for those before it in the stream (kernel_follow), so that
 * it may start early. Where others use the GPU too it does not: CTAs that wait would keep theirs
 * out. */
struct launch_config {
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config;

    launch_config(int ctas, int threads, int shared_bytes, int cluster, bool early,
                  cudaStream_t stream)
        : attributes(), config()
    {
        attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[0].val.programmaticStreamSerializationAllowed = early;
        attributes[1].id = cudaLaunchAttributeClusterDimension;
        attributes[1].val.clusterDim.x = cluster;
        attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
        config.gridDim = dim3(ctas);
        config.blockDim = dim3(threads);
        config.dynamicSmemBytes = shared_bytes;
        config.stream = stream;
        config.attrs = attributes;
        config.numAttrs = 2;
    }
};

/* CTAs of 256 threads, of a kernel that waits itself as well. */
template <class... P, class... A>
int start(void (*kernel)(P...), int64_t ctas, int shared_bytes, bool early, cudaStream_t stream,
          const A &...args)
{
    const launch_config config((int)ctas, 256, shared_bytes, 1, early, stream);
    return cudaLaunchKernelEx(&config.config, kernel, args...);
}

inline struct factors factors_of(float scale, const ra__sm90_terms &terms)
{
    const float cap = terms.softcap;
    return { scale * LOG2_E, cap != 0 ? 2 * scale / cap * LOG2_E : 0, cap * LOG2_E };
}

} // namespace sm90
#endif
