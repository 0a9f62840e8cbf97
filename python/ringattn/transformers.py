# SPDX-License-Identifier: Apache-2.0
"""ringattn as an attention implementation of Hugging Face transformers.

    import ringattn.transformers                    # registers it
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="ringattn")

With sequences sharded over a process group, each process gives its tokens and their positions:

    with ringattn.transformers.ring(group, partition="zigzag"):
        loss = model(input_ids=shard, position_ids=positions, labels=...).loss

And to generate, with a cache that is spread over them, each gives the whole prompt:

    ids = ringattn.transformers.generate(model, ids, 100, group=group, partition="zigzag")
"""
import contextlib
import contextvars

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask

from . import _generation
from ._errors import UnsupportedError
from .torch import attention

_ring: contextvars.ContextVar = contextvars.ContextVar("ringattn ring", default=None)


@contextlib.contextmanager
def ring(group=True, *, partition=None, strategy=None):
    """Inside it, tensors of models are the shards that `partition` gives each process of the group
    (True: all processes). A batch without padding, and without packed documents: positions of
    shards cannot tell those apart. With activation checkpointing, backward() must be inside it,
    too, since it computes attention again."""
    with _within({"group": group, "partition": partition, "strategy": strategy}):
        yield


@contextlib.contextmanager
def _within(state):
    """Layers find it: the options of a ring, or a step of generation."""
    token = _ring.set(state)
    try:
        yield
    finally:
        _ring.reset(token)


def generate(model, input_ids, max_new_tokens, *, group=True, partition=None, choose=None,
             eos_token_id=None):
    """The prompt with up to `max_new_tokens` more, [batch, tokens], on every process of the group
    (True: all processes). Each calls this with the whole prompt, the same everywhere, without
    padding; none holds more than its part of the cache.

    choose: gives the next tokens [batch] for their logits [batch, vocabulary]; by default the
        largest. What it gives on the first process counts.
    eos_token_id: ends a sequence, one or several; by default those of model.generation_config.
    """
    return _generation.generate(model, input_ids, max_new_tokens, group=group, partition=partition,
                                choose=choose, eos_token_id=eos_token_id, within=_within)


def _is_sliding(function, size):
    """Is it the causal window of `size` keys? Asked of the function itself: a chunk has a size, too,
    and sees no key before it."""
    at = torch.arange(2 * size + 1)
    try:
        seen = function(torch.tensor(0), torch.tensor(0), torch.tensor(size), at)
    except Exception:  # what looks at data may find none there
        return False
    return bool(torch.equal(seen, (at > 0) & (at <= size)))


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0,
         mask_function=causal_mask_function, attention_mask=None, local_size=None,
         allow_is_causal_skip=True, allow_is_bidirectional_skip=False, **kwargs):
    """None where the pattern says it all: causal, window or full, without padding, with the queries
    at the end of the keys. Otherwise an array of bool, as for PyTorch's attention. transformers says
    by the two `allow` whether a mask has parts of its own, such as packed documents."""
    padded = attention_mask is not None and not bool(attention_mask[:, -kv_length:].all())
    if _ring.get() is not None:
        if padded:
            raise UnsupportedError("a padded batch under ring(): shards have no padding")
        return None
    if mask_function is bidirectional_mask_function:
        plain = allow_is_bidirectional_skip
    else:
        plain = allow_is_causal_skip and (
            mask_function is causal_mask_function or
            (local_size is not None and _is_sliding(mask_function, local_size)))
    at_end = not isinstance(q_offset, torch.Tensor) and q_offset + q_length == kv_offset + kv_length
    if plain and not padded and at_end:
        return None
    return sdpa_mask(batch_size=batch_size, q_length=q_length, kv_length=kv_length,
                     q_offset=q_offset, kv_offset=kv_offset, mask_function=mask_function,
                     attention_mask=attention_mask, local_size=local_size,
                     allow_is_causal_skip=False, allow_is_bidirectional_skip=False, **kwargs)


def forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None,
            sliding_window=None, softcap=None, s_aux=None, position_bias=None, **kwargs):
    """What a layer of a model calls: [batch, heads, tokens, dim] in, [batch, tokens, heads, dim]
    out."""
    if kwargs.get("output_attentions"):
        raise UnsupportedError("output_attentions: the weights are never stored; use "
                               'attn_implementation="eager" for that')
    if kwargs.get("cache") is not None:
        raise UnsupportedError("continuous batching: paged caches are not there yet")
    options = _ring.get() or {}
    if isinstance(options, _generation.Step):
        if attention_mask is not None or position_bias is not None or dropout:
            raise UnsupportedError("a mask, a position bias or dropout in generate() over processes")
        out = options.attend(query, key, value, window=sliding_window, scale=scaling,
                             softcap=softcap or 0.0, sinks=s_aux)
        return out, None
    if options and (attention_mask is not None or position_bias is not None):
        raise UnsupportedError("a mask or a position bias under ring(): leave out attention_mask")
    if options and query.shape[2] != key.shape[2]:
        raise UnsupportedError("a cache under ring(): call ringattn.transformers.generate(), or the "
                               "model with use_cache=False")
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    pattern, terms = "full", {}
    if attention_mask is not None:
        terms["mask" if attention_mask.dtype == torch.bool else "bias"] = attention_mask
    elif causal and sliding_window:
        pattern = f"window:{sliding_window - 1}"
    elif causal:
        pattern = "causal"
    elif sliding_window:
        pattern = f"window:{sliding_window},{sliding_window}"
    if position_bias is not None:
        terms = {"bias": _with_mask(position_bias, terms)}
    out = attention(*(x.transpose(1, 2) for x in (query, key, value)), pattern, scale=scaling,
                    softcap=softcap or 0.0, dropout=dropout, sinks=s_aux, **terms, **options)
    return out, None


def _with_mask(position_bias, terms):
    """Numbers to add, -inf where a mask hides a key."""
    bias = position_bias.float()
    if "mask" in terms:
        return bias.masked_fill(~terms["mask"], -torch.inf)
    return bias + terms["bias"] if "bias" in terms else bias


AttentionInterface.register("ringattn", forward)
AttentionMaskInterface.register("ringattn", mask)
