# SPDX-License-Identifier: Apache-2.0
"""Attention of new tokens over caches whose sequences have lengths of their own."""
import torch

from .. import _library as c
from .._decoder import FEW, Decoder, cache_sequences, flat
from .._setup import Setup
from ._functions import attention
from ._op import attend_counted, text_of
from ._pool import pool
from ._tensors import check, code_of, numbers, readable


@torch.no_grad()
def decode(q, k_cache, v_cache, lengths, pattern, *, scale=None, softcap=0.0, alibi=None):
    """q: [batch, tokens, heads, dim], of the last tokens; caches: [batch, capacity, heads, dim], of
    which sequence i has lengths[i] (NumPy) tokens. (out, lse). Nothing is planned again as the
    caches grow."""
    check(q, k_cache, v_cache)
    tokens, capacity = q.shape[1], k_cache.shape[1]
    sequences = cache_sequences(tokens, [tokens] * q.shape[0], capacity, lengths)
    if q.device.type != "cpu" and tokens <= FEW:
        options = text_of({"pattern": pattern, "scale": None if scale is None else float(scale),
                           "softcap": float(softcap)})
        return attend_counted(q, k_cache, v_cache, alibi, lengths, options)
    if tokens > FEW:
        out, lse = attention(flat(q), flat(k_cache), flat(v_cache), pattern, scale=scale,
                             softcap=softcap, alibi=alibi, sequences=torch.from_numpy(sequences),
                             keep=False, return_lse=True)
        return out.reshape(*q.shape[:3], out.shape[3]), lse.reshape(q.shape[:3])
    slopes = numbers(alibi)
    shapes = (q.shape[0], 1, *q.shape[2:]), k_cache.shape, v_cache.shape[3]
    key = ("decode", *shapes, q.dtype, pattern, scale, softcap, None if slopes is None else slopes.tobytes())

    def make():
        setup = Setup(*shapes, code_of(q, "q"), pattern, scale=scale, softcap=softcap, alibi=slopes)
        return Decoder(setup, capacity)

    out = q.new_empty((*q.shape[:3], v_cache.shape[3]))
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    kept = [readable(flat(x)) for x in (q, k_cache, v_cache)]
    decoder = pool().take(key) or make()
    try:
        decoder.attend(tokens, sequences, *(tensor for _, tensor in kept),
                       c.Tensor(out.data_ptr(), 0, 0, 0), lse.data_ptr())
    finally:
        pool().give(key, decoder)
    return out, lse
