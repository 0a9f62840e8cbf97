/* SPDX-License-Identifier: Apache-2.0 */
/* problems.h - what the suite `kernels` measures beside rivals, each problem beside those that can
 * do it. */
#ifndef BENCH_RIVALS_PROBLEMS_H
#define BENCH_RIVALS_PROBLEMS_H

#include "suite.h"

/* Adds the configurations of its section "rivals": on a GPU unless they are not wished for, on a
 * CPU only if they are. */
void rival_problems_list(struct configurations *list);

/* Leaves them out again, with a note, if there is no PyTorch. Looking for it takes seconds, so this
 * comes when it is known that some are wanted. */
int rival_problems_trim(struct configurations *list);

#endif
