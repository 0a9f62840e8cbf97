# SPDX-License-Identifier: Apache-2.0
"""scaled_dot_product_attention() of torch.nn.functional."""
import math

import torch

from .._errors import ArgumentError
from ._functions import attention


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False,
                                 scale=None, enable_gqa=False):
    """As torch.nn.functional has it: [..., heads, tokens, dim]. With is_causal and another number of
    keys than queries, query i sees keys up to i, as there."""
    if query.dim() < 3:
        raise ArgumentError(f"query has shape {tuple(query.shape)}; [..., heads, tokens, dim] is "
                            "expected")
    if attn_mask is not None and is_causal:
        raise ArgumentError("attn_mask and is_causal cannot both be given")
    if not enable_gqa and query.shape[-3] != key.shape[-3]:
        raise ArgumentError(f"query has {query.shape[-3]} heads and key {key.shape[-3]}; set "
                            "enable_gqa=True for that")
    lead = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    q, k, v = (x.expand(*lead, *x.shape[-3:]).reshape(math.prod(lead), *x.shape[-3:])
               .transpose(1, 2) for x in (query, key, value))
    given = {}
    if attn_mask is not None:
        flat = attn_mask
        if len(lead) != 1 and attn_mask.dim() > 3:
            flat = attn_mask.expand(*lead, *attn_mask.shape[-3:]).flatten(0, len(lead) - 1)
        given = {"bias" if attn_mask.is_floating_point() else "mask": flat}
    out = attention(q, k, v, "causal" if is_causal else "full", scale=scale, dropout=dropout_p,
                    query_offset=q.shape[1] - k.shape[1] if is_causal else 0, **given)
    return out.transpose(1, 2).reshape(*lead, query.shape[-3], query.shape[-2], value.shape[-1])
