/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_map.h - copies between memory and shared memory by the copy engine. */
#ifndef EMULATED_TENSOR_MAP_H
#define EMULATED_TENSOR_MAP_H

#include "cuda.h"
#include "emulated.h"

namespace emulated
{

/* cuTensorMapEncodeTiled. */
CUresult encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base,
                      const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                      const cuuint32_t *steps, CUtensorMapInterleave interleave,
                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                      CUtensorMapFloatOOBfill fill);

/* cp.async.bulk.tensor: a box from `at` on to the same address of each block whose bit is set in
 * `ranks`, and to its mbarrier. What is there before is wiped at once. */
void copy_tensor(uint32_t to, const CUtensorMap *map, uint32_t barrier, const int (&at)[5],
                 uint32_t ranks);
/* cp.async.bulk: a stretch of memory. */
void copy_stretch(uint32_t to, const void *from, int bytes, uint32_t barrier);
/* cp.reduce.async.bulk .add.f32, or the same numbers in place of what is there. */
void copy_out(float *to, uint32_t from, int bytes, bool add);

} // namespace emulated

#endif
