# SPDX-License-Identifier: Apache-2.0
"""The functions of flash-attn, and those of its ring families over a process group.

Arguments mean what they mean there. One that cannot be honoured is refused.
"""
import numpy
import torch

from .._errors import ArgumentError, UnsupportedError
from ._decode import decode
from ._functions import attention
from ._tensors import check, numbers

_ALL = 2 ** 40  # positions: the side of a window that has no end


def _pattern(causal, window_size):
    left, right = window_size
    if causal:
        right = 0 if left >= 0 else -1
    if left < 0 and right < 0:
        return "causal" if causal else "full"
    return f"window:{left if left >= 0 else _ALL},{right if right >= 0 else _ALL}"


def _slopes(alibi_slopes):
    if alibi_slopes is None or alibi_slopes.dim() == 1:
        return alibi_slopes
    if alibi_slopes.dim() == 2 and alibi_slopes.shape[0] == 1:
        return alibi_slopes[0]
    raise UnsupportedError("alibi_slopes of [batch, heads]: slopes are the same for a whole batch "
                           "here; give [heads]")


def _call(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
          deterministic, return_attn_probs, **more):
    if return_attn_probs and dropout_p > 0:
        raise UnsupportedError("return_attn_probs with dropout: the weights are never stored")
    out, lse = attention(q, k, v, _pattern(causal, window_size), scale=softmax_scale,
                         softcap=softcap, alibi=_slopes(alibi_slopes), dropout=dropout_p,
                         any_order=not deterministic, return_lse=True, **more)
    return (out, lse.transpose(1, 2), None) if return_attn_probs else out


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1),
                    softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """q: [batch, tokens, heads, dim]. return_attn_probs: (out, lse [batch, heads, tokens], None)."""
    return _call(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                 deterministic, return_attn_probs)


def flash_attn_qkvpacked_func(qkv, *args, **kwargs):
    """qkv: [batch, tokens, 3, heads, dim]; the rest as flash_attn_func()."""
    return flash_attn_func(*qkv.unbind(2), *args, **kwargs)


def flash_attn_kvpacked_func(q, kv, *args, **kwargs):
    """kv: [batch, tokens, 2, heads, dim]; the rest as flash_attn_func()."""
    return flash_attn_func(q, *kv.unbind(2), *args, **kwargs)


def _between(cu_seqlens_q, cu_seqlens_k):
    """Sequences from where each starts and ends."""
    columns = [column.to(torch.int64) for ends in (cu_seqlens_q, cu_seqlens_k)
               for column in (ends[:-1], ends.diff())]
    return torch.stack(columns, 1)


def _varlen(call, q, k, v, **more):
    """[tokens, heads, dim] as a batch of one."""
    found = call(q[None], k[None], v[None], **more)
    if not isinstance(found, tuple):
        return found[0]
    return found[0][0], found[1][0], found[2]


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None,
                           max_seqlen_k=None, dropout_p=0.0, softmax_scale=None, causal=False,
                           window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                           deterministic=False, return_attn_probs=False, block_table=None):
    """q: [tokens of all sequences, heads, dim]. return_attn_probs: (out, lse [heads, tokens],
    None)."""
    if block_table is not None:
        raise UnsupportedError("block_table: paged caches are not there yet")
    return _varlen(_call, q, k, v, dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal,
                   window_size=window_size, softcap=softcap, alibi_slopes=alibi_slopes,
                   deterministic=deterministic, return_attn_probs=return_attn_probs,
                   sequences=_between(cu_seqlens_q, cu_seqlens_k))


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen=None, *args, **kwargs):
    """qkv: [tokens, 3, heads, dim]; the rest as flash_attn_varlen_func()."""
    return flash_attn_varlen_func(*qkv.unbind(1), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen,
                                  *args, **kwargs)


def flash_attn_varlen_kvpacked_func(q, kv, *args, **kwargs):
    """kv: [tokens, 2, heads, dim]; the rest as flash_attn_varlen_func()."""
    return flash_attn_varlen_func(q, *kv.unbind(1), *args, **kwargs)


# ---- Rings ----

def _ring_functions(partition):
    """The functions of one family: shards of a process group, dealt out by `partition`."""

    def func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1),
             alibi_slopes=None, deterministic=False, return_attn_probs=False, group=None):
        return _call(q, k, v, dropout_p, softmax_scale, causal, window_size, 0.0, alibi_slopes,
                     deterministic, return_attn_probs, partition=partition, group=group or True)

    def kvpacked(q, kv, *args, **kwargs):
        return func(q, *kv.unbind(2), *args, **kwargs)

    def qkvpacked(qkv, *args, **kwargs):
        return func(*qkv.unbind(2), *args, **kwargs)

    def varlen(q, k, v, cu_seqlens, max_seqlen=None, dropout_p=0.0, softmax_scale=None,
               causal=False, window_size=(-1, -1), alibi_slopes=None, deterministic=False,
               return_attn_probs=False, group=None):
        ranks = torch.distributed.get_world_size(group)
        whole = cu_seqlens * ranks
        return _varlen(_call, q, k, v, dropout_p=dropout_p, softmax_scale=softmax_scale,
                       causal=causal, window_size=window_size, softcap=0.0,
                       alibi_slopes=alibi_slopes, deterministic=deterministic,
                       return_attn_probs=return_attn_probs, partition=partition,
                       group=group or True, sequences=_between(whole, whole))

    def varlen_kvpacked(q, kv, *args, **kwargs):
        return varlen(q, *kv.unbind(1), *args, **kwargs)

    def varlen_qkvpacked(qkv, *args, **kwargs):
        return varlen(*qkv.unbind(1), *args, **kwargs)

    return func, kvpacked, qkvpacked, varlen, varlen_kvpacked, varlen_qkvpacked


def _named(**functions):
    """The functions under their names, as help() and tracebacks show them."""
    for name, function in functions.items():
        function.__name__ = function.__qualname__ = name
        function.__doc__ = "Shards of a process group; arguments as those of flash-attn."
    globals().update(functions)


_FORMS = ("func", "kvpacked_func", "qkvpacked_func", "varlen_func", "varlen_kvpacked_func",
          "varlen_qkvpacked_func")
for _family, _partition, _count in (("ring_flash_attn_", "contiguous", 6),
                                    ("zigzag_ring_flash_attn_", "zigzag", 6),
                                    ("stripe_flash_attn_", "striped", 3)):
    _named(**{_family + form: function for form, function in
              list(zip(_FORMS, _ring_functions(_partition)))[:_count]})


# ---- Caches ----

def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None,
                            cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None,
                            block_table=None, softmax_scale=None, causal=False,
                            window_size=(-1, -1), softcap=0.0, rotary_interleaved=True,
                            alibi_slopes=None, num_splits=0, return_softmax_lse=False):
    """q: [batch, new tokens, heads, dim]; caches: [batch, capacity, heads, dim]. New k and v are
    written to the caches, after the cache_seqlens tokens that each sequence has."""
    refused = {"rotary_cos": rotary_cos, "rotary_sin": rotary_sin,
               "cache_batch_idx": cache_batch_idx, "cache_leftpad": cache_leftpad,
               "block_table": block_table}
    for name, value in refused.items():
        if value is not None:
            raise UnsupportedError(f"{name} is not there yet")
    batch, capacity = k_cache.shape[:2]
    check(q, k_cache, v_cache)
    if (k is None) != (v is None):
        raise ArgumentError("k and v are the new tokens: give both, or none")
    if cache_seqlens is None:
        cache_seqlens = capacity if k is None else None
    if cache_seqlens is None:
        raise ArgumentError("cache_seqlens is missing: where in the cache the new tokens go")
    lengths = _lengths(cache_seqlens, batch)
    ends = lengths if k is None else lengths + k.shape[1]
    if ends.max() > capacity or lengths.min() < 0:
        raise ArgumentError(f"the caches have room for {capacity} tokens, not for {ends.tolist()}")
    if k is not None:
        _append(k_cache, v_cache, k, v, lengths)
        lengths = ends
    out, lse = decode(q, k_cache, v_cache, lengths, _pattern(causal, window_size),
                      scale=softmax_scale, softcap=softcap, alibi=_slopes(alibi_slopes))
    return (out, lse.transpose(1, 2)) if return_softmax_lse else out


def _append(k_cache, v_cache, k, v, lengths):
    """Writes new tokens after those that are there."""
    for cache, x, name in ((k_cache, k, "k"), (v_cache, v, "v")):
        want = (cache.shape[0], k.shape[1], *cache.shape[2:])
        if tuple(x.shape) != want or x.dtype != cache.dtype or x.device != cache.device:
            raise ArgumentError(f"{name} is {x.dtype} of shape {tuple(x.shape)} on {x.device}; "
                                f"{cache.dtype} of shape {want} on {cache.device} is expected")
    with torch.no_grad():
        for item, start in enumerate(lengths.tolist()):
            k_cache[item, start:start + k.shape[1]] = k[item]
            v_cache[item, start:start + k.shape[1]] = v[item]


def _lengths(given, batch):
    """A whole number for each sequence."""
    if isinstance(given, int):
        return numpy.full(batch, given)
    if given.is_floating_point() or tuple(given.shape) != (batch,):
        raise ArgumentError(f"cache_seqlens is {given.dtype} of shape {tuple(given.shape)}; whole "
                            f"numbers of shape [{batch}] are expected, or an int")
    return numbers(given)
