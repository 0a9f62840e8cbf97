/* SPDX-License-Identifier: Apache-2.0 */
/* amx_emulated.c - the amx kernel with its tiles in plain C, so that what is built on tiles is
 * tested wherever there is the rest of what it needs. Compiled with the flags of the kernel's
 * folder. */
#include "support/job.h"

#if RA__HAVE_AMX
#define RA__AMX_EMULATED 1
#define ra__kernel_amx job_amx_emulated
#include "backend/cpu/kernel/amx/amx.c"
#endif
