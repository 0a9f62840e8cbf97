/* SPDX-License-Identifier: Apache-2.0 */
/* philox.h - Philox4x32-10 for the oracle, from its definition. Shares no code with the library. */
#ifndef HARNESS_PHILOX_H
#define HARNESS_PHILOX_H

#include "complain.h"

/* Word `word` (0 to 3) of the block that belongs to this counter. */
uint32_t philox_word(uint64_t key, const uint32_t counter[4], int word);

#endif
