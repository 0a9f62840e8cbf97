/* SPDX-License-Identifier: Apache-2.0 */
/* backward.cu - one backward kernel of src/backend/cuda/sm90, its tile given by compile-time
 * switches, as a shared library for lab.py. */
#include "backend/cuda/sm90/launch_backward.cuh"

#ifndef LAB_TYPE
#define LAB_TYPE __nv_bfloat16
#endif

#ifndef LAB_ORDERED
#define LAB_ORDERED 0
#endif

#ifndef LAB_KEY_STAGES
#define LAB_KEY_STAGES 1
#endif
#ifndef LAB_STAGING
#define LAB_STAGING 1
#endif

#ifndef LAB_TERMS
#define LAB_TERMS 0
#endif

typedef sm90::Backward<LAB_TYPE, LAB_DIM, LAB_QUERIES, LAB_LAG, LAB_ORDERED, LAB_STAGING,
                       LAB_TERMS, 1, LAB_KEY_STAGES>
    Kernel;

extern "C" {

void lab_shape(struct ra__sm90_shape *shape) { *shape = sm90::backward_shape_of<Kernel>(); }

int lab_terms(void) { return Kernel::TERMS; }

int lab_clusters(void) { return sm90::backward_clusters_of<Kernel>(); }

int lab_backward(const struct ra__sm90_backward *args, void *stream)
{
    return sm90::launch_backward<Kernel>(*args, (cudaStream_t)stream);
}
}
