/* SPDX-License-Identifier: Apache-2.0 */
/* kinds.h - what callers give to a kind of pattern that is not text or up to two numbers. */
#ifndef RA__PATTERN_KINDS_H
#define RA__PATTERN_KINDS_H

#include "pattern/pattern.h"

extern const struct ra__pattern_kind ra__pattern_dilated, ra__pattern_blocks;

/* One more branch of a dilated pattern; both numbers are at least 1. */
ra_status ra__dilated_add_branch(ra_pattern *pattern, ra_branch branch);

/* The bitmap of a blocks pattern; refused where it has one. */
ra_status ra__blocks_add_bitmap(ra_pattern *pattern, int heads, int64_t blocks,
                                const uint8_t *active);

#endif
