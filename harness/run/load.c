/* SPDX-License-Identifier: Apache-2.0 */
/* load.c - the tensors of a run from files. */
#include "load.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/half.h"
#include "harness/files/npy.h"
#include "harness/files/tensorfile.h"

#define EXTENT_MOST 65536 /* heads and dims; the library's own limits are lower */

static const char *const flag_names[] = { "--q", "--k", "--v", "--dout", "--dlse" };

static const char *path_of(const struct options *o, enum tensor tensor)
{
    const char *const paths[] = { o->q, o->k, o->v, o->dout, o->dlse };
    return paths[tensor];
}

bool load_wanted(const struct options *o) { return o->q || o->k || o->v || o->dout || o->dlse; }

/* ---- Which files ----------------------------------------------------------------------------- */

static int check_flags(const struct options *o)
{
    static const char *const synthetic[] = { "--tokens", "--kv-tokens", "--heads", "--kv-heads",
                                             "--dim",    "--value-dim", "--batch" };
    for (int i = TENSOR_Q; i <= TENSOR_V; i++)
        if (!path_of(o, i))
            return refuse("--q, --k and --v belong together; %s is missing", flag_names[i]);
    if (flags_given(o, "--seed") && o->trial.dropout <= 0.0)
        return refuse(
            "--seed is for synthetic data and dropout; with --q the data is in the files");
    for (int i = 0; i < COUNT(synthetic); i++)
        if (flags_given(o, synthetic[i]))
            return refuse("%s is for synthetic data; with --q the data is in the files",
                          synthetic[i]);
    if (o->trial.backward && !o->dout) return refuse("--backward needs --dout beside --q");
    if (!o->trial.backward && (o->dout || o->dlse))
        return refuse("%s is for --backward", o->dout ? "--dout" : "--dlse");
    return EXIT_PASS;
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

/* A cache may have no keys yet; nothing else may be empty. */
static int check_extents(enum tensor tensor, const char *path, const struct npy *npy)
{
    const int keys = tensor_of_keys(tensor) ? npy->axes - 3 : -1; /* which axis counts them */
    for (int i = 0; i < npy->axes; i++)
        if (npy->shape[i] == 0 && i != keys)
            return refuse("%s: %s is empty: axis %d has length 0", flag_names[tensor], path, i);
    return EXIT_PASS;
}

/* A missing batch axis means one sequence; LSE has no dim axis. */
static int add_axes(enum tensor tensor, struct npy *npy)
{
    int full = tensor == TENSOR_DLSE ? 3 : 4;
    if (npy->axes == full - 1) {
        memmove(npy->shape + 1, npy->shape, (size_t)npy->axes * sizeof npy->shape[0]);
        npy->shape[0] = 1;
        npy->axes++;
    }
    if (npy->axes != full)
        return refuse("%s: %d axes where %d or %d are needed", flag_names[tensor], npy->axes,
                      full - 1, full);
    if (tensor == TENSOR_DLSE) npy->shape[3] = 1;
    if (npy->shape[2] > EXTENT_MOST || npy->shape[3] > EXTENT_MOST)
        return refuse("%s: heads or dim above %d", flag_names[tensor], EXTENT_MOST);
    return EXIT_PASS;
}

static int check_shape(const struct trial *t, enum tensor tensor, const struct npy *npy)
{
    if (tensor == TENSOR_K && t->q_heads % t->kv_heads) /* before V is blamed for its heads */
        return refuse("--k: %" PRId64 " heads, by which the %" PRId64
                      " heads of --q cannot be divided",
                      t->kv_heads, t->q_heads);
    const int64_t expected[4] = { t->batch, tensor_length(t, tensor), tensor_heads(t, tensor),
                                  tensor_dim(t, tensor) };
    if (!memcmp(expected, npy->shape, sizeof expected)) return EXIT_PASS;
    return refuse("%s: shape [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "] where [%" PRId64
                  ", %" PRId64 ", %" PRId64 ", %" PRId64 "] is needed",
                  flag_names[tensor], npy->shape[0], npy->shape[1], npy->shape[2], npy->shape[3],
                  expected[0], expected[1], expected[2], expected[3]);
}

/* Q gives batch, queries, heads and dim; K keys and KV heads; V its dim. */
static void take_shape(struct trial *t, enum tensor tensor, const struct npy *npy)
{
    if (tensor == TENSOR_Q) {
        t->batch = npy->shape[0];
        t->q_len = npy->shape[1];
        t->q_heads = npy->shape[2];
        t->dim = npy->shape[3];
    } else if (tensor == TENSOR_K) {
        t->k_len = npy->shape[1];
        t->kv_heads = npy->shape[2];
    } else if (tensor == TENSOR_V) {
        t->value_dim = npy->shape[3];
    }
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* Without --dtype the first file decides, and the others must agree. */
static int take_dtype(struct trial *t, bool automatic, enum tensor tensor, const struct npy *npy)
{
    if (!automatic || tensor == TENSOR_DLSE) return EXIT_PASS;
    if (tensor == TENSOR_Q) t->dtype = (int)npy->dtype;
    if ((int)npy->dtype == t->dtype) return EXIT_PASS;
    return refuse("%s holds %s but --q holds %s; say which with --dtype", flag_names[tensor],
                  half_name(npy->dtype), half_name((ra_dtype)t->dtype));
}

static int convert(const struct trial *t, enum tensor tensor, struct npy *npy)
{
    enum { CHUNK = 4096 };
    ra_dtype to = tensor_dtype(t, tensor);
    float chunk[CHUNK];
    if (npy->dtype == to) return EXIT_PASS;
    size_t bytes = (size_t)npy->values * half_bytes(to);
    char *data = malloc(bytes ? bytes : 1);
    if (!data) return fault("%s: out of memory: %zu bytes", flag_names[tensor], bytes);
    for (int64_t i = 0; i < npy->values; i += CHUNK) {
        int64_t count = npy->values - i < CHUNK ? npy->values - i : CHUNK;
        half_to_float(npy->dtype, (char *)npy->data + (size_t)i * half_bytes(npy->dtype), count,
                      chunk);
        half_from_float(to, chunk, count, data + (size_t)i * half_bytes(to));
    }
    free(npy->data);
    npy->data = data;
    return EXIT_PASS;
}

static int load_tensor(struct options *o, bool automatic, bool in_parts, enum tensor tensor,
                       struct inputs *inputs)
{
    struct npy npy;
    const char *flag = flag_names[tensor], *path = path_of(o, tensor);
    int status = in_parts ? tensorfile_open(flag, path, &npy, &inputs->files[tensor])
                          : tensorfile_read(flag, path, &npy);
    if (status) return status;
    status = check_extents(tensor, path, &npy);
    if (!status) status = add_axes(tensor, &npy);
    if (!status) take_shape(&o->trial, tensor, &npy);
    if (!status) status = check_shape(&o->trial, tensor, &npy);
    if (!status) status = take_dtype(&o->trial, automatic, tensor, &npy);
    if (!status && !in_parts) status = convert(&o->trial, tensor, &npy);
    if (in_parts) return status; /* npy has no data */
    if (status) free(npy.data);
    else inputs->data[tensor] = npy.data;
    return status;
}

int load_inputs(struct options *o, bool in_parts, struct inputs *inputs)
{
    *inputs = (struct inputs){ .data = { NULL } };
    bool automatic = o->trial.dtype == DTYPE_AUTO;
    int status = check_flags(o);
    for (int i = TENSOR_Q; i <= TENSOR_DLSE && !status; i++)
        if (path_of(o, i)) status = load_tensor(o, automatic, in_parts, i, inputs);
    return status;
}

void load_free(struct inputs *inputs)
{
    for (int i = 0; i < TENSOR_COUNT; i++) {
        free(inputs->data[i]);
        npy_close(inputs->files[i]);
    }
    *inputs = (struct inputs){ .data = { NULL } };
}
