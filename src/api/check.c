/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - argument checks that several entry points share. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "api/handles.h"
#include "core/dtype.h"

ra_status ra__enter(const char *what, atomic_bool *busy)
{
    if (!atomic_exchange(busy, true)) return RA_OK;
    return ra__fail(RA_ERR_BUSY,
                    "%s: another thread is in a call on this handle; a handle, with its plans, "
                    "serves one thread at a time",
                    what);
}

void ra__leave(atomic_bool *busy) { atomic_store(busy, false); }

ra_status ra__take_struct(const char *what, void *ours, size_t our_size, const void *theirs)
{
    if (!theirs) return RA_OK;
    size_t size;
    memcpy(&size, theirs, sizeof size);
    if (size < sizeof size)
        return ra__fail(RA_ERR_ARGUMENT, "%s: size is not set; start from %s_default()", what,
                        what);
    for (size_t i = our_size; i < size; i++)
        if (((const unsigned char *)theirs)[i])
            return ra__fail(RA_ERR_UNSUPPORTED,
                            "%s: a field is set that this library (%s) does not know", what,
                            ra_version());
    memcpy(ours, theirs, size < our_size ? size : our_size);
    memcpy(ours, &our_size, sizeof our_size);
    return RA_OK;
}

ra_status ra__give_struct(const char *what, void *theirs, const void *ours, size_t our_size)
{
    if (!theirs) return ra__fail(RA_ERR_ARGUMENT, "%s: NULL argument", what);
    size_t size;
    memcpy(&size, theirs, sizeof size);
    if (size < sizeof size)
        return ra__fail(RA_ERR_ARGUMENT, "%s: size is not set; start from %s_default()", what,
                        what);
    memcpy(theirs, ours, size < our_size ? size : our_size);
    memcpy(theirs, &size, sizeof size);
    return RA_OK;
}

/* Limits that keep every product of two of these numbers inside 64 bits. */
enum { MOST_HEADS = 65536 };
#define MOST_BATCH INT32_MAX
#define MOST_TOKENS (INT64_C(1) << 40)

static ra_status check_range(const char *name, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most) return RA_OK;
    return ra__fail(RA_ERR_ARGUMENT,
                    "problem: %s is %" PRId64 ", but must be %" PRId64 " to %" PRId64, name, value,
                    least, most);
}

ra_status ra__check_shape(const struct ra__shape *s)
{
    if (s->dtype != RA_F32 && s->dtype != RA_BF16 && s->dtype != RA_F16)
        return ra__fail(RA_ERR_ARGUMENT, "problem: %d is no dtype", (int)s->dtype);
    RA__TRY(check_range("batch", s->batch, 1, MOST_BATCH));
    RA__TRY(check_range("q_len", s->q_len, 0, MOST_TOKENS));
    RA__TRY(check_range("k_len", s->k_len, 0, MOST_TOKENS));
    RA__TRY(check_range("query_offset", s->query_offset, -MOST_TOKENS, MOST_TOKENS));
    RA__TRY(check_range("q_heads", s->q_heads, 1, MOST_HEADS));
    RA__TRY(check_range("kv_heads", s->kv_heads, 1, MOST_HEADS));
    RA__TRY(check_range("dim", s->dim, 1, RA__MOST_DIM));
    RA__TRY(check_range("value_dim", s->value_dim, 1, RA__MOST_DIM));
    if (s->q_heads % s->kv_heads)
        return ra__fail(RA_ERR_ARGUMENT,
                        "problem: %d query heads are not a multiple of %d KV heads", s->q_heads,
                        s->kv_heads);
    if (!isfinite(s->scale))
        return ra__fail(RA_ERR_ARGUMENT, "problem: scale is not a finite number");
    int64_t pairs; /* over heads and batch: ra__pattern_check() */
    if (__builtin_mul_overflow(s->q_len, s->k_len, &pairs))
        return ra__fail(RA_ERR_ARGUMENT, "problem: queries x keys exceeds 2^63");
    return RA_OK;
}

static ra_status check_terms(const ra_problem *p)
{
    if (p->softcap != 0.0f &&
        !(p->softcap >= 1e-30f && p->softcap <= 1e30f)) /* otherwise f32 overflows */
        return ra__fail(RA_ERR_ARGUMENT, "problem: softcap is %g, but must be 0 or 1e-30 to 1e30",
                        (double)p->softcap);
    if (!(p->dropout >= 0.0 && p->dropout < 1.0))
        return ra__fail(RA_ERR_ARGUMENT, "problem: dropout is %g, but must be 0 to below 1",
                        p->dropout);
    for (int h = 0; p->alibi && h < p->q_heads; h++)
        if (!isfinite(p->alibi[h]))
            return ra__fail(RA_ERR_ARGUMENT, "problem: the ALiBi slope of head %d is not finite",
                            h);
    return RA_OK;
}

ra_status ra__problem_from(const ra_problem *problem, struct ra__shape *shape, ra_problem *taken)
{
    ra_problem p = ra_problem_default();
    if (!problem) return ra__fail(RA_ERR_ARGUMENT, "problem: NULL argument");
    RA__TRY(ra__take_struct("ra_problem", &p, sizeof p, problem));
    if (p.reserved) return ra__fail(RA_ERR_ARGUMENT, "problem: reserved is not 0");
    struct ra__shape s = {
        .dtype = p.dtype,
        .batch = p.batch ? p.batch : 1,
        .q_len = p.q_len,
        .k_len = p.k_len == RA_NO_KEYS ? 0
                 : p.k_len             ? p.k_len
                                       : p.q_len,
        .query_offset = p.query_offset,
        .q_heads = p.q_heads,
        .kv_heads = p.kv_heads ? p.kv_heads : p.q_heads,
        .dim = p.dim,
        .value_dim = p.value_dim ? p.value_dim : p.dim,
        .scale = p.scale,
    };
    RA__TRY(ra__check_shape(&s));
    RA__TRY(check_terms(&p));
    if (s.scale == 0.0f) s.scale = (float)(1.0 / sqrt((double)s.dim));
    *shape = s;
    *taken = p;
    return RA_OK;
}

/* *span: numbers from the first to the last; becomes larger by an axis. False: too large. */
static bool add_axis(int64_t count, int64_t stride, int64_t *span)
{
    const int64_t most = PTRDIFF_MAX / (int64_t)sizeof(double);
    if (count <= 1) return true;
    if (stride < -(most / (count - 1)) || stride > most / (count - 1)) return false;
    *span += (count - 1) * (stride < 0 ? -stride : stride);
    return *span <= most;
}

ra_status ra__input_from(const struct ra__shape *shape, struct ra__tensor_shape which,
                         const ra_const_tensor *tensor, ra_tensor *out)
{
    /* Inside the library one type serves inputs and outputs. */
    ra_tensor t = { (void *)tensor->data, tensor->batch_stride, tensor->position_stride,
                    tensor->head_stride };
    if (!t.data && which.rows > 0) return ra__fail(RA_ERR_ARGUMENT, "%s: no data", which.name);
    if ((uintptr_t)t.data % ra__dtype_bytes(shape->dtype))
        return ra__fail(RA_ERR_ARGUMENT, "%s: data is not aligned to its dtype", which.name);
    if (!t.batch_stride && !t.position_stride && !t.head_stride) {
        t.head_stride = which.dim;
        t.position_stride = (int64_t)which.heads * which.dim;
        t.batch_stride = which.rows * t.position_stride;
    }
    int64_t span = which.dim;
    if (!add_axis(shape->batch, t.batch_stride, &span) ||
        !add_axis(which.rows, t.position_stride, &span) ||
        !add_axis(which.heads, t.head_stride, &span))
        return ra__fail(RA_ERR_ARGUMENT, "%s: its strides go beyond the address space", which.name);
    *out = t;
    return RA_OK;
}

/* By stride, the smallest first. */
static void sort_axes(struct ra__axis axes[3])
{
    for (int i = 1; i < 3; i++)
        for (int j = i; j > 0 && axes[j].stride < axes[j - 1].stride; j--) {
            const struct ra__axis swapped = axes[j];
            axes[j] = axes[j - 1];
            axes[j - 1] = swapped;
        }
}

/* From the smallest stride to the largest, each must step over all that is below it. */
ra_status ra__check_overlap(const char *name, struct ra__axis axes[3], int64_t dim)
{
    int64_t span = dim; /* numbers from the first to the last of all that is below */
    for (int i = 0; i < 3; i++)
        if (axes[i].stride < 0) axes[i].stride = -axes[i].stride;
    sort_axes(axes);
    for (int i = 0; i < 3; i++) {
        if (axes[i].count <= 1) continue;
        if (axes[i].stride < span)
            return ra__fail(RA_ERR_ARGUMENT,
                            "%s: its parts overlap: %s_stride is %" PRId64
                            ", but must be at least %" PRId64 " for an output",
                            name, axes[i].name, axes[i].stride, span);
        span += (axes[i].count - 1) * axes[i].stride;
    }
    return RA_OK;
}

ra_status ra__output_from(const struct ra__shape *shape, struct ra__tensor_shape which,
                          const ra_tensor *tensor, ra_tensor *out)
{
    ra_const_tensor given = ra_tensor_read(*tensor);
    ra_tensor t;
    RA__TRY(ra__input_from(shape, which, &given, &t));
    struct ra__axis axes[3] = { { "batch", shape->batch, t.batch_stride },
                                { "position", which.rows, t.position_stride },
                                { "head", which.heads, t.head_stride } };
    if (which.rows > 0) RA__TRY(ra__check_overlap(which.name, axes, which.dim));
    *out = t;
    return RA_OK;
}

ra_status ra__check_arrays(const char *what, int64_t length, const ra_array *arrays, int count)
{
    if (!arrays && count != 0) return ra__fail(RA_ERR_ARGUMENT, "%s: NULL argument", what);
    if (count < 0) return ra__fail(RA_ERR_ARGUMENT, "%s: %d arrays", what, count);
    for (int i = 0; i < count; i++) {
        if (arrays[i].batch < 0)
            return ra__fail(RA_ERR_ARGUMENT, "%s: array %d has a batch of %" PRId64, what, i,
                            arrays[i].batch);
        if ((!arrays[i].from || !arrays[i].to) && length > 0 && arrays[i].batch > 0)
            return ra__fail(RA_ERR_ARGUMENT, "%s: array %d has no data", what, i);
    }
    return RA_OK;
}
