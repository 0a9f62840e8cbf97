/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h - tensors of .safetensors files, named FILE.safetensors:NAME, read and written
 * without trust. Read are F32, BF16 and F16; a name may be left out where the file has one tensor
 * only. A file that is written has one tensor. */
#ifndef HARNESS_SAFETENSORS_H
#define HARNESS_SAFETENSORS_H

#include "npy.h"

/* Does the path name a tensor of such a file? */
bool safetensors_is(const char *path);

/* The path of the file alone, to be freed; NULL if memory ran out. */
char *safetensors_path(const char *path);

/* As npy_open() and npy_read(). */
int safetensors_open(const char *flag, const char *path, struct npy *out, struct npy_file **file);
int safetensors_read(const char *flag, const char *path, struct npy *out);

/* Can a tensor be written under this name? A sentence and EXIT_USAGE if not. */
int safetensors_check(const char *flag, const char *path);

/* What comes before the values of a file with this tensor, in the dtype of `output` or U8; freed by
 * the caller.
 * The name is what follows the colon of the path, or "tensor". */
char *safetensors_header(const char *path, const struct npy_output *output, size_t *bytes);

#endif
