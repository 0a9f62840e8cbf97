/* SPDX-License-Identifier: Apache-2.0 */
/* results.h - backward: the question whether a GRADIENT step may write results instead of adding to
 * sums, which others would have to clear before it and to convert after it. */
#ifndef RA__BACKEND_CUDA_RESULTS_H
#define RA__BACKEND_CUDA_RESULTS_H

#include "core/program.h"

/* Is there one GRADIENT step, and nothing between the tensors of the call and its sums? */
static inline bool ra__cuda_writes_results(const struct ra__program *program)
{
    int gradients = 0;
    for (int i = 0; i < program->step_count; i++) {
        const struct ra__step *step = &program->steps[i];
        if (step->op == RA__OP_GRADIENT && step->to != RA__SUM_OWN) return false;
        gradients += step->op == RA__OP_GRADIENT;
        if (step->op == RA__OP_EXCHANGE) return false;
        if (step->op == RA__OP_GATHER && step->gather != RA__GATHER_CLEAR &&
            step->gather != RA__GATHER_FINISH)
            return false;
    }
    return gradients == 1 && program->units == 0;
}

#endif
