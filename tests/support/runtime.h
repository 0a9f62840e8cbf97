/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.h - for tests on the device that RINGATTN_TEST_DEVICE names: functions of the runtime
 * that its plug-in uses, and memory of the device. Without that variable, memory of the host. */
#ifndef TESTS_SUPPORT_RUNTIME_H
#define TESTS_SUPPORT_RUNTIME_H

#include <stddef.h>

#include "ringattn.h"

/* Opens the plug-ins, so that functions can be found. */
void runtime_open(void);

/* Ranks of one thread each on that device, with tensors in its memory. */
ra_group_options runtime_group_options(void);

/* *function becomes the function of this name; the test fails if there is none. */
void runtime_find(const char *name, void *function);

/* A copy on the device, for all of its queues; and back, which frees it. On the host: the memory
 * itself. */
void *runtime_upload(void *memory, size_t bytes);
void runtime_download(void *memory, void *there, size_t bytes);

/* Numbers over those at `to`, by cudaMemcpy(): those of the host are read when the call returns,
 * and may still be on their way to the device, on the default stream. */
void runtime_overwrite(void *to, const void *from, size_t bytes);

#endif
