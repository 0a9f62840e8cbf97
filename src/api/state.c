/* SPDX-License-Identifier: Apache-2.0 */
/* state.c - attention in pieces: a state that the caller folds keys into, in any order. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "api/handles.h"
#include "core/dtype.h"
#include "exec/fold.h"
#include "exec/reduce.h"
#include "pattern/order.h"

struct ra_state {
    struct ra__shape shape;
    ra_pattern *pattern;
    struct ra__sequences sequences;
    const struct ra__kernel *kernel;
    struct ra__state_memory sums; /* what ra_state_data() returns */
    struct ra__folder folder;
    ra_group *group; /* whose threads fold; NULL: the calling thread alone */
    float *alibi;    /* its own copy, or NULL */
    struct ra__terms terms;
    struct ra__state_exchange exchange;
    atomic_bool busy; /* a thread changes it */
};

static struct ra__state_row row_at(const ra_state *state, int64_t row)
{
    return ra__state_row_at(state->sums.data, state->sums.rows, (int)state->sums.shape.value_dim,
                            row);
}

/* Keys come to a state as the caller has them: in original order, without dropout. */
static ra_status refuse_terms(const ra_problem *problem)
{
    if (problem->order && problem->order->origin)
        return ra__fail(RA_ERR_UNSUPPORTED,
                        "state: a problem with an order is for plans; a state folds keys in "
                        "original order");
    if (problem->dropout != 0)
        return ra__fail(RA_ERR_UNSUPPORTED, "state: a problem with dropout is for plans");
    return RA_OK;
}

/* Softcap and ALiBi apply to scores, wherever keys come from. */
static ra_status take_terms(ra_state *state, const ra_problem *problem)
{
    size_t bytes = (size_t)state->shape.q_heads * sizeof(float);
    state->terms.softcap = problem->softcap;
    if (!problem->alibi) return RA_OK;
    state->alibi = ra__alloc(NULL, RA__FOR_BOOKKEEPING, bytes);
    if (!state->alibi) return ra__fail(RA_ERR_MEMORY, "state: %zu bytes", bytes);
    memcpy(state->alibi, problem->alibi, bytes);
    state->terms.alibi = state->alibi;
    return RA_OK;
}

static ra_status fill_state(ra_state *state, const ra_problem *problem, const char *kernel)
{
    struct ra__shape *s = &state->shape;
    ra_problem given;
    RA__TRY(ra__problem_from(problem, s, &given));
    RA__TRY(refuse_terms(&given));
    RA__TRY(take_terms(state, &given));
    RA__TRY(ra__backend_at(0)->choose(NULL, 0, kernel, s, false, &state->kernel));
    RA__TRY(ra__pattern_copy(given.pattern, NULL, &state->pattern));
    RA__TRY(ra__sequences_take(&given, s, NULL, &state->sequences));
    RA__TRY(ra__pattern_check(state->pattern, s, &state->sequences, given.order));
    size_t bytes = sizeof(float);
    bool fits = ra__size_mul(&bytes, s->batch) && ra__size_mul(&bytes, s->q_len) &&
                ra__size_mul(&bytes, s->q_heads) && ra__size_mul(&bytes, s->value_dim + 2);
    if (!fits) return ra__fail(RA_ERR_ARGUMENT, "state: more bytes than a size_t can hold");
    state->sums = (struct ra__state_memory){ .shape = { s->batch, s->q_len, s->q_heads,
                                                        s->value_dim },
                                             .data = ra__alloc(NULL, RA__FOR_STATE, bytes),
                                             .rows = s->batch * s->q_len * s->q_heads,
                                             .bytes = bytes };
    if (!state->sums.data) return ra__fail(RA_ERR_MEMORY, "state: %zu bytes", bytes);
    RA__TRY(ra__folder_open(&state->folder, state->kernel));
    return ra_state_init(state);
}

ra_status ra_state_create(const ra_problem *problem, const char *kernel, ra_state **out)
{
    if (!out) return ra__fail(RA_ERR_ARGUMENT, "state: NULL argument");
    ra_state *state = ra__alloc_array(NULL, RA__FOR_BOOKKEEPING, 1, sizeof *state);
    if (!state) return ra__fail(RA_ERR_MEMORY, "state: %zu bytes", sizeof *state);
    ra_status status = fill_state(state, problem, kernel);
    if (status != RA_OK) {
        ra_state_destroy(state);
        return status;
    }
    *out = state;
    return RA_OK;
}

void ra_state_destroy(ra_state *state)
{
    if (!state) return;
    if (!state->exchange.retained) {
        ra__state_exchange_clear(&state->exchange);
        ra__free(state->sums.data);
    }
    ra_pattern_destroy(state->pattern);
    ra__sequences_clear(&state->sequences);
    ra__free(state->alibi);
    ra__folder_close(&state->folder);
    ra__group_detach(state->group);
    ra__free(state);
}

ra_status ra_state_init(ra_state *state)
{
    if (!state) return ra__fail(RA_ERR_ARGUMENT, "state: NULL argument");
    RA__TRY(ra__enter("state", &state->busy));
    memset(state->sums.data, 0, state->sums.bytes);
    for (int64_t i = 0; i < state->sums.rows; i++) state->sums.data[i] = -INFINITY;
    ra__leave(&state->busy);
    return RA_OK;
}

static ra_status fold_keys(ra_state *state, const ra_const_tensor *q, const ra_const_tensor *k,
                           const ra_const_tensor *v, int64_t first_key, int64_t keys)
{
    const struct ra__shape *s = &state->shape;
    if (first_key < 0 || keys < 0 || first_key > s->k_len - keys)
        return ra__fail(RA_ERR_ARGUMENT,
                        "state: %" PRId64 " keys from key %" PRId64 " on, of %" PRId64, keys,
                        first_key, s->k_len);
    struct ra__fold fold = { .shape = s,
                             .pattern = state->pattern,
                             .sequences = &state->sequences,
                             .m = state->sums.data,
                             .l = state->sums.data + state->sums.rows,
                             .acc = state->sums.data + 2 * state->sums.rows,
                             .terms = state->terms.softcap > 0.0f || state->alibi ? &state->terms
                                                                                  : NULL,
                             .first_key = first_key,
                             .keys = keys };
    struct ra__tensor_shape qs = { "q", s->q_len, s->q_heads, s->dim };
    struct ra__tensor_shape ks = { "k", keys, s->kv_heads, s->dim };
    struct ra__tensor_shape vs = { "v", keys, s->kv_heads, s->value_dim };
    RA__TRY(ra__input_from(s, qs, q, &fold.q));
    RA__TRY(ra__input_from(s, ks, k, &fold.k));
    RA__TRY(ra__input_from(s, vs, v, &fold.v));
    return ra__fold_run(&state->folder, &fold);
}

ra_status ra_state_fold(ra_state *state, const ra_const_tensor *q, const ra_const_tensor *k,
                        const ra_const_tensor *v, int64_t first_key, int64_t keys)
{
    if (!state || !q || !k || !v) return ra__fail(RA_ERR_ARGUMENT, "state: NULL argument");
    RA__TRY(ra__enter("state", &state->busy));
    ra_status status = state->group ? ra__group_enter("state", state->group) : RA_OK;
    const bool entered = state->group && status == RA_OK;
    if (status == RA_OK) status = fold_keys(state, q, k, v, first_key, keys);
    if (entered) ra__leave(&state->group->busy);
    ra__leave(&state->busy);
    return status;
}

ra_status ra_state_set_keys(ra_state *state, int64_t keys)
{
    if (!state) return ra__fail(RA_ERR_ARGUMENT, "state: NULL argument");
    struct ra__shape shape = state->shape;
    shape.k_len = keys;
    RA__TRY(ra__check_shape(&shape));
    if (state->sequences.count > 0)
        return ra__fail(RA_ERR_ARGUMENT,
                        "state: it has sequences; set their keys by ra_state_set_sequences()");
    RA__TRY(ra__pattern_check(state->pattern, &shape, &state->sequences, NULL));
    RA__TRY(ra__enter("state", &state->busy));
    state->shape = shape;
    ra__leave(&state->busy);
    return RA_OK;
}

ra_status ra_state_set_sequences(ra_state *state, const ra_sequence *sequences)
{
    if (!state || !sequences) return ra__fail(RA_ERR_ARGUMENT, "state: NULL argument");
    struct ra__sequences *own = &state->sequences;
    if (own->count == 0)
        return ra__fail(RA_ERR_ARGUMENT, "state: its problem was given without sequences");
    const struct ra__sequences given = { (ra_sequence *)sequences, own->count }; /* only read */
    RA__TRY(ra__sequences_check(sequences, own->count, &state->shape));
    RA__TRY(ra__pattern_check(state->pattern, &state->shape, &given, NULL));
    RA__TRY(ra__enter("state", &state->busy));
    memcpy(own->at, sequences, (size_t)own->count * sizeof *own->at);
    ra__leave(&state->busy);
    return RA_OK;
}

ra_status ra_state_use_group(ra_state *state, ra_group *group)
{
    if (!state) return ra__fail(RA_ERR_ARGUMENT, "state: NULL argument");
    if (group && !group->rank.backend->host)
        return ra__fail(RA_ERR_UNSUPPORTED,
                        "state: its memory is the host's, but the group "
                        "computes on %s",
                        group->rank.backend->name);
    RA__TRY(ra__enter("state", &state->busy));
    ra__group_attach(group);
    ra__group_detach(state->group);
    state->group = group;
    state->folder.rank = group ? &group->rank : NULL;
    ra__leave(&state->busy);
    return RA_OK;
}

ra_status ra_state_merge(ra_state *into, const ra_state *from)
{
    if (!into || !from) return ra__fail(RA_ERR_ARGUMENT, "state: NULL argument");
    if (into == from)
        return ra__fail(RA_ERR_ARGUMENT, "state: merged with itself, it would count keys twice");
    const char *other = ra__state_shape_difference(&into->sums.shape, &from->sums.shape);
    if (other)
        return ra__fail(RA_ERR_ARGUMENT, "state: the two states have different shapes: another %s",
                        other);
    RA__TRY(ra__enter("state", &into->busy));
    ra__state_memories_merge(&into->sums, &from->sums);
    ra__leave(&into->busy);
    return RA_OK;
}

static ra_status reduce(ra_state *state, const struct ra__rank *rank)
{
    if (!state) return ra__fail(RA_ERR_ARGUMENT, "state: NULL argument");
    RA__TRY(ra__enter("state", &state->busy));
    ra_status status = ra__reduce(&state->sums, &state->exchange, rank);
    ra__leave(&state->busy);
    return status;
}

ra_status ra_state_reduce(ra_state *state, ra_group *group)
{
    if (!group) return ra__fail(RA_ERR_ARGUMENT, "state: NULL argument");
    RA__TRY(ra__group_enter("state", group));
    ra_status status = ra__report_to_group(group, reduce(state, &group->rank));
    if (status == RA_OK) ra__rank_idle(&group->rank);
    ra__leave(&group->busy);
    return status;
}

/* `sinks` may be NULL. */
static ra_status finish(const ra_state *state, const float *sinks, const ra_tensor *out, float *lse)
{
    const struct ra__shape *s = &state->shape;
    ra_tensor t;
    struct ra__tensor_shape os = { "out", s->q_len, s->q_heads, s->value_dim };
    RA__TRY(ra__output_from(s, os, out, &t));
    for (int64_t i = 0; i < state->sums.rows; i++) {
        int64_t query = i / s->q_heads;
        int head = (int)(i % s->q_heads);
        int64_t at = query / s->q_len * t.batch_stride + query % s->q_len * t.position_stride +
                     head * t.head_stride;
        ra__state_finish_row(row_at(state, i), s->value_dim, sinks ? sinks[head] : -INFINITY,
                             s->dtype, (char *)t.data + at * (int64_t)ra__dtype_bytes(s->dtype),
                             lse ? &lse[i] : NULL);
    }
    return RA_OK;
}

ra_status ra_state_finish(const ra_state *state, const ra_tensor *out, float *lse)
{
    if (!state || !out) return ra__fail(RA_ERR_ARGUMENT, "state: NULL argument");
    return finish(state, NULL, out, lse);
}

ra_status ra_state_finish_sinks(const ra_state *state, const float *sinks, const ra_tensor *out,
                                float *lse)
{
    if (!state || !sinks || !out) return ra__fail(RA_ERR_ARGUMENT, "state: NULL argument");
    return finish(state, sinks, out, lse);
}

void *ra_state_data(ra_state *state, size_t *bytes)
{
    if (bytes) *bytes = state ? state->sums.bytes : 0;
    return state ? state->sums.data : NULL;
}

ra_status ra_partial_merge(int64_t rows, int dim, float *out, float *lse, const float *other_out,
                           const float *other_lse)
{
    if (rows < 0 || dim < 1 || !out || !lse || !other_out || !other_lse)
        return ra__fail(RA_ERR_ARGUMENT, "merge: NULL or negative argument");
    for (int64_t i = 0; i < rows; i++)
        ra__partial_merge_row(out + i * dim, &lse[i], other_out + i * dim, other_lse[i], dim);
    return RA_OK;
}
