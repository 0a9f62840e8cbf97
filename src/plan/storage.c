/* SPDX-License-Identifier: Apache-2.0 */
/* storage.c - how the numbers of each buffer are stored, and how many bytes that takes. */
#include "core/dtype.h"
#include "plan/builder.h"

/* The order of the numbers of a buffer. */
enum order {
    BY_TOKEN, /* [token, batch, head, number]: a range of tokens is one range of bytes */
    BY_BATCH, /* [batch, token, head, number] */
    BYTES     /* a message */
};

struct form {
    enum order order;
    ra_dtype dtype;
    int heads, width;
    bool one_head; /* a token is that of one KV head */
};

/* Tokens that travel may be of one KV head each; those that stay hold all. */
bool ra__holds_one_head(const struct ra__plan *plan, enum ra__buffer buffer)
{
    bool stays = buffer == RA__OWN_KV || buffer == RA__GATHERED || buffer == RA__SUM_OWN ||
                 buffer == RA__SUM_GATHERED || buffer == RA__SUM_SHARED || buffer == RA__SLICE_KV;
    return plan->by_head && !stays;
}

/* A KV block, or its gradients. */
static struct form kv_block(const struct ra__plan *plan, enum ra__buffer buffer)
{
    const struct ra__shape *s = &plan->input.shape;
    bool sums = ra__buffer_facts(buffer)->purpose == RA__FOR_GRADIENT;
    int heads = buffer == RA__SUM_SHARED ? plan->caller.shape.kv_heads : s->kv_heads;
    const bool one_head = ra__holds_one_head(plan, buffer);
    return (struct form){ BY_TOKEN, sums ? RA_F32 : s->dtype, one_head ? 1 : heads,
                          s->dim + s->value_dim, one_head };
}

static struct form form_of(const struct ra__plan *plan, enum ra__buffer buffer)
{
    const struct ra__shape *s = &plan->input.shape, *all = &plan->caller.shape;
    switch (buffer) {
    case RA__SWAP_OUT:
    case RA__SWAP_A:
    case RA__SWAP_B: return (struct form){ .order = BYTES };
    case RA__SLICE_Q: return (struct form){ BY_TOKEN, s->dtype, s->q_heads, s->dim, false };
    case RA__SLICE_OUT: return (struct form){ BY_TOKEN, s->dtype, s->q_heads, s->value_dim, false };
    case RA__STATE_M:
    case RA__STATE_L:
    case RA__SLICE_DELTA:
    case RA__SLICE_LSE: return (struct form){ BY_BATCH, RA_F32, s->q_heads, 1, false };
    case RA__STATE_ACC: return (struct form){ BY_BATCH, RA_F32, s->q_heads, s->value_dim, false };
    case RA__SPLIT_STATE:
        return (struct form){ BY_BATCH, RA_F32, s->q_heads, s->value_dim + 2, false };
    case RA__SPILL:
    case RA__NEXT_SUM_Q:
    case RA__SUM_Q: return (struct form){ BY_BATCH, RA_F32, s->q_heads, s->dim, false };
    case RA__DELTA:
    case RA__NEXT_DELTA:
    case RA__NEXT_LSE:
    case RA__NEXT_DLSE:
    case RA__DEVICE_LSE:
    case RA__DEVICE_DLSE: return (struct form){ BY_BATCH, RA_F32, all->q_heads, 1, false };
    case RA__NEXT_Q:
    case RA__DEVICE_Q:
    case RA__DEVICE_DQ: return (struct form){ BY_BATCH, all->dtype, all->q_heads, all->dim, false };
    case RA__DEVICE_K:
    case RA__DEVICE_DK:
        return (struct form){ BY_BATCH, all->dtype, all->kv_heads, all->dim, false };
    case RA__DEVICE_V:
    case RA__DEVICE_DV:
        return (struct form){ BY_BATCH, all->dtype, all->kv_heads, all->value_dim, false };
    case RA__NEXT_OUT:
    case RA__NEXT_DOUT:
    case RA__DEVICE_OUT:
    case RA__DEVICE_DOUT:
        return (struct form){ BY_BATCH, all->dtype, all->q_heads, all->value_dim, false };
    default: return kv_block(plan, buffer);
    }
}

size_t ra__token_bytes(const struct ra__plan *plan, enum ra__buffer buffer)
{
    if (ra__buffer_facts(buffer)->provider == RA__BY_HOST) buffer = ra__staged_by(buffer);
    const struct form form = form_of(plan, buffer);
    size_t bytes = form.order == BYTES ? 1 : ra__dtype_bytes(form.dtype);
    if (form.order == BYTES) return bytes;
    bool fits = ra__size_mul(&bytes, plan->input.shape.batch) && ra__size_mul(&bytes, form.heads) &&
                ra__size_mul(&bytes, form.width);
    return fits ? bytes : SIZE_MAX;
}

static struct ra__storage storage_of(const struct ra__plan *plan, enum ra__buffer buffer,
                                     int64_t tokens)
{
    const struct form form = form_of(plan, buffer);
    const int64_t batch = plan->input.shape.batch, token = (int64_t)form.heads * form.width;
    struct ra__storage storage = { .dtype = form.dtype,
                                   .message = form.order == BYTES,
                                   .one_head = form.one_head,
                                   .tokens = tokens,
                                   .bytes = ra__token_bytes(plan, buffer) };
    if (!ra__size_mul(&storage.bytes, tokens)) storage.bytes = SIZE_MAX; /* refused when counted */
    if (storage.bytes == SIZE_MAX || form.order == BYTES) return storage;
    storage.head_stride = form.width;
    storage.token_stride = form.order == BY_TOKEN ? batch * token : token;
    storage.batch_stride = form.order == BY_TOKEN ? token : tokens * token;
    return storage;
}

void ra__plan_fill_storage(struct ra__plan *plan)
{
    for (int i = 0; i < RA__BUFFERS; i++) {
        const enum ra__buffer buffer = (enum ra__buffer)i;
        struct ra__storage *storage = &plan->storage[buffer];
        if (storage->tokens == 0 || ra__buffer_facts(buffer)->provider != RA__BY_DEVICE) continue;
        *storage = storage_of(plan, buffer, storage->tokens);
        const enum ra__buffer stage = ra__stage_of(buffer);
        if (stage != RA__NO_BUFFER && plan->storage[stage].tokens > 0)
            plan->storage[stage] = *storage;
    }
}

struct ra__piece ra__whole_tokens(const struct ra__plan *plan, enum ra__buffer buffer,
                                  int64_t tokens)
{
    const struct form form = form_of(plan, buffer);
    if (form.order == BYTES) return (struct ra__piece){ .tokens = tokens };
    return (struct ra__piece){ .tokens = tokens, .heads = form.heads, .width = form.width };
}
