/* SPDX-License-Identifier: Apache-2.0 */
/* variant.cu - one kernel of src/backend/cuda/sm90, its tile given by compile-time switches, as a
 * shared library for lab.py. */
#include <stdio.h>

#include "backend/cuda/sm90/launch.cuh"

#ifndef LAB_TYPE
#define LAB_TYPE __nv_bfloat16
#endif
#ifndef LAB_TURNS
#define LAB_TURNS 0
#endif
#ifndef LAB_QREGS
#define LAB_QREGS 0
#endif
#ifndef LAB_CLUSTER
#define LAB_CLUSTER 1
#endif

#ifndef LAB_TERMS
#define LAB_TERMS 0
#endif
#ifndef LAB_VIEWS
#define LAB_VIEWS 1
#endif
#ifndef LAB_JOINS
#define LAB_JOINS 0
#endif

typedef sm90::Forward<LAB_TYPE, LAB_DIM, LAB_CONSUMERS, LAB_KEYS, LAB_STAGES, LAB_CLUSTER,
                      LAB_TURNS, LAB_QREGS, LAB_TERMS, LAB_VIEWS, LAB_JOINS>
    Kernel;

extern "C" {

void lab_shape(struct ra__sm90_shape *shape) { *shape = sm90::shape_of<Kernel>(); }

int lab_terms(void) { return Kernel::TERMS; }

int lab_clusters(void) { return sm90::clusters_of<Kernel>(); }

int lab_forward(const struct ra__sm90_forward *args, void *stream)
{
    return sm90::launch<Kernel>(*args, (cudaStream_t)stream);
}

/* Registers, spilled bytes. */
int lab_registers(int *registers, int *spilled)
{
    cudaFuncAttributes attributes;
    const int error = cudaFuncGetAttributes(&attributes, sm90::forward<Kernel>);
    *registers = attributes.numRegs;
    *spilled = (int)attributes.localSizeBytes;
    return error;
}
}
