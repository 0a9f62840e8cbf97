/* SPDX-License-Identifier: Apache-2.0 */
/* share.h - a few bytes from every rank to every other. */
#ifndef RA__EXEC_SHARE_H
#define RA__EXEC_SHARE_H

#include "exec/exec.h"

/* all[rank * bytes] gets what `rank` has in `mine`; every rank calls it with the same `bytes`. */
ra_status ra__rank_share(const struct ra__rank *rank, const void *mine, void *all, size_t bytes);

#endif
