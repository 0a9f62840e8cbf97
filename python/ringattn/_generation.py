# SPDX-License-Identifier: Apache-2.0
"""Generation whose cache is spread over the processes of a group.

Every process has the keys and values of its shard of the prompt. A new token is computed by all of
them alike; each attends to its own keys, the results are merged, and the token's own keys and
values stay with one process, another one for each token.
"""
import numpy
import torch

from ._errors import ArgumentError, MismatchError
from ._functions import positions
from .torch import Mesh, attention, merge
from .torch._mesh import mesh_for


class Step:
    """One token, while a model computes it: its position, and the positions of the keys that this
    process has, ascending. The model puts the token's own key after them; `keeps`: it is one of
    this process's."""

    def __init__(self, mesh, position, places, keeps):
        self._mesh, self._position, self._places, self._keeps = mesh, position, places, keeps

    def attend(self, query, key, value, *, window, scale, softcap, sinks):
        """[batch, heads, 1, dim] in, [batch, 1, heads, dim] out; window: how many keys are seen, or
        None for all of them."""
        first = 0 if window is None else int(numpy.searchsorted(self._places,
                                                                self._position - window + 1))
        end = key.shape[2] if self._keeps else key.shape[2] - 1
        q, k, v = (x.transpose(1, 2) for x in (query, key[:, :, first:end], value[:, :, first:end]))
        if first < end:
            out, lse = attention(q, k, v, scale=scale, softcap=softcap, return_lse=True)
        else:
            out = q.new_zeros((*q.shape[:3], v.shape[3]))
            lse = torch.full(q.shape[:3], -torch.inf, device=q.device)
        out, lse = merge(out, lse, self._mesh)
        if sinks is not None:
            out = out * torch.sigmoid(lse - sinks.float())[..., None]
        return out.to(query.dtype)


class _Run:
    """The cache of one process, and the calls of the model."""

    def __init__(self, model, mesh: Mesh, partition, within):
        from transformers import DynamicCache
        self._model, self._mesh, self._partition, self._within = model, mesh, partition, within
        self._cache = DynamicCache()  # without a config: layers of windows keep all keys, too
        self._places = numpy.zeros(0, numpy.int64)
        self._tokens = 0  # over all processes

    def _call(self, ids, places):
        at = torch.as_tensor(places, device=ids.device)[None].expand(ids.shape[0], -1)
        return self._model(input_ids=ids, position_ids=at, past_key_values=self._cache,
                           use_cache=True, logits_to_keep=1).logits[:, -1]

    def prompt(self, ids):
        """The first tokens, on shards. The logits of the last one."""
        shards = positions(ids.shape[1], self._mesh.ranks, self._partition)
        self._places, self._tokens = shards[self._mesh.rank], ids.shape[1]
        with self._within({"group": self._mesh, "partition": self._partition, "strategy": None}):
            logits = self._call(ids[:, self._places], self._places)
        owner = next(rank for rank, shard in enumerate(shards) if shard[-1] == self._tokens - 1)
        return self._mesh.broadcast(logits, owner)

    def token(self, ids):
        """The next token, ids [batch, 1], on all processes. Its logits."""
        position = self._tokens
        keeps = position % self._mesh.ranks == self._mesh.rank
        with self._within(Step(self._mesh, position, self._places, keeps)):
            logits = self._call(ids, numpy.array([position]))
        if keeps:
            self._places = numpy.append(self._places, position)
        else:
            self._cache.crop(-1)
        self._tokens += 1
        return logits


def _largest(logits):
    return logits.argmax(-1)


def _check(model, input_ids, max_new_tokens, choose):
    """What each process can see by itself."""
    if getattr(getattr(model, "config", None), "_attn_implementation", None) != "ringattn":
        raise ArgumentError('the model does not use ringattn; load it with '
                            'attn_implementation="ringattn"')
    if not isinstance(input_ids, torch.Tensor) or input_ids.dtype != torch.int64 or \
            input_ids.dim() != 2 or input_ids.shape[1] < 1:
        what = f"{input_ids.dtype} of shape {tuple(input_ids.shape)}" \
            if isinstance(input_ids, torch.Tensor) else type(input_ids).__name__
        raise ArgumentError(f"input_ids is {what}; a tensor of int64, [batch, tokens], with at "
                            "least one token is expected")
    if not isinstance(max_new_tokens, int) or max_new_tokens < 0:
        raise ArgumentError(f"max_new_tokens is {max_new_tokens!r}; a whole number is expected")
    if choose is not None and not callable(choose):
        raise ArgumentError(f"choose is {choose!r}; a function of the logits is expected")


def _agree(mesh, input_ids, max_new_tokens):
    """Refuses what would end in a wrong text, or in waiting for one another."""
    text = input_ids.flatten()
    places = torch.arange(1, len(text) + 1, device=text.device)
    mine = torch.tensor([*input_ids.shape, max_new_tokens, int((text * places).sum()),
                         int((text * text * places).sum())])
    names = ("batch", "number of tokens", "max_new_tokens", "prompt", "prompt")
    for rank, theirs in enumerate(mesh.gather(mine)):
        for name, a, b in zip(names, mine, theirs):
            if a != b:
                raise MismatchError(f"generate(): rank {rank} was given another {name} than rank "
                                    f"{mesh.rank}")


def _ends(model, eos_token_id, device):
    given = model.generation_config.eos_token_id if eos_token_id is None else eos_token_id
    return torch.tensor([] if given is None else given, dtype=torch.int64,
                        device=device).reshape(-1)


@torch.no_grad()
def generate(model, input_ids, max_new_tokens, *, group=True, partition=None, choose=None,
             eos_token_id=None, within):
    _check(model, input_ids, max_new_tokens, choose)
    device = input_ids.device
    mesh = mesh_for(group, device)
    _agree(mesh, input_ids, max_new_tokens)
    run = _Run(model, mesh, partition, within)
    even = input_ids.shape[1] // (2 * mesh.ranks) * 2 * mesh.ranks  # every partition divides these
    logits = run.prompt(input_ids[:, :even]) if even else None
    for i in range(even, input_ids.shape[1]):
        logits = run.token(input_ids[:, i:i + 1])
    ends = _ends(model, eos_token_id, device)
    ended = torch.zeros(input_ids.shape[0], dtype=torch.bool, device=device)
    filler = model.generation_config.pad_token_id
    for i in range(max_new_tokens):
        token = (choose or _largest)(logits).to(device, torch.int64, copy=True)
        if token.shape != ended.shape:
            raise ArgumentError(f"choose() gave tokens of shape {tuple(token.shape)}; one for each "
                                f"of {len(ended)} sequences is expected")
        if ended.any():
            token[ended] = int(ends[0]) if filler is None else filler
        token = mesh.broadcast(token, 0)
        input_ids = torch.cat([input_ids, token[:, None]], 1)
        ended |= torch.isin(token, ends)
        if ended.all() or i + 1 == max_new_tokens:
            break
        logits = run.token(token[:, None])
    return input_ids
