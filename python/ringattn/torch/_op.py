# SPDX-License-Identifier: Apache-2.0
"""The operators ringattn::attend and ringattn::gradient, with autograd and shapes for tracing.

What a problem is besides its tensors comes as a text, so that a compiler sees a constant; what may
change from call to call without a new graph comes as tensors: sequences, slopes, the seed.
"""
import ast
import collections
import os
import threading

import torch
from torch import Tensor

from .._errors import ArgumentError
from .._setup import Setup
from ._mesh import mesh_of
from ._tensors import Crew, TensorRing, code_of, floats, numbers

_KEPT = 8  # crews and decoders that wait for their next run, each with its threads


class _Pool:
    """Crews, and decoders, that do not run now. One is taken out for a run: threads never wait for
    one another, and there are as many as there are runs at once."""

    def __init__(self):
        self._lock = threading.Lock()
        self._idle: collections.OrderedDict = collections.OrderedDict()

    def take(self, key, make):
        with self._lock:
            idle = self._idle.get(key)
            if idle:
                found = idle.pop()
                if not idle:
                    del self._idle[key]
                return found
        return make()

    def give(self, key, crew):
        if crew.closed:
            return
        gone = None
        with self._lock:
            self._idle.setdefault(key, []).append(crew)
            self._idle.move_to_end(key)
            if sum(map(len, self._idle.values())) > _KEPT:
                oldest = next(iter(self._idle))
                gone = self._idle[oldest].pop(0)
                if not self._idle[oldest]:
                    del self._idle[oldest]
        if gone is not None:
            gone.close()

    def clear(self):
        with self._lock:
            idle, self._idle = self._idle, collections.OrderedDict()
        for crews in idle.values():
            for crew in crews:
                crew.close()


_pool = _Pool()


def _forget():
    """In a child of fork(): the rings are the parent's."""
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_forget)


def pool() -> _Pool:
    return _pool


def clear() -> None:
    """Frees the plans that are kept for the next calls."""
    _pool.clear()


def text_of(options: dict) -> str:
    """Options of a problem as the operators take them; written so that a compiler can trace it."""
    return "\n".join([f"{name}={value!r}" for name, value in options.items()])


def _options_of(text):
    pairs = (line.split("=", 1) for line in text.splitlines())
    return {name: ast.literal_eval(value) for name, value in pairs}


def bytes_of(array):
    return None if array is None else array.tobytes()


class _Problem:
    """From the arguments of an operator: the ring to run on, and its terms."""

    def __init__(self, q, k, v, bias, sinks, alibi, sequences, seed, options, backward):
        given = _options_of(options)
        self.mesh = mesh_of(given.pop("mesh", None))
        self._keep, pool = given.pop("keep", True), given.pop("pool", None)
        self._keep &= "bitmap=" not in given["pattern"]  # a file may change
        whole = given.pop("packed", False)
        self.bias = _bias(bias, q, k, self.mesh)
        self.sinks = floats(sinks, q, (q.shape[2],), "sinks")
        self.seed = 0 if seed is None else int(seed)
        alibi, sequences = numbers(alibi), numbers(sequences)
        if whole:
            self._check_lengths(sequences, q, k)
        self.key = (q.shape, k.shape, v.shape[3], q.dtype, q.device, options, bytes_of(alibi),
                    bytes_of(sequences), bias is not None, backward)

        threads, ranks = given.get("threads"), given.get("ring", 1)
        self._kind = (q.device, ranks, threads, pool, self.mesh and self.mesh.name)
        self._make_crew = lambda: Crew(q.device, ranks, int(threads or 0), pool, self.mesh)

        def make(groups):
            shapes = (q.shape, k.shape)
            if self.mesh is not None:
                shapes = self.mesh.whole_shapes(q.shape, k.shape)
                given["ring"] = self.mesh.ranks
            setup = Setup(*shapes, v.shape[3], code_of(q, "q"), alibi=alibi, sequences=sequences,
                          bias=bias is not None, backward=backward, **given)
            return TensorRing(setup, q.device, groups, self.mesh)

        self._make = make

    def _check_lengths(self, sequences, q, k):
        """Do the lengths add up to all tokens?"""
        ranks = 1 if self.mesh is None else self.mesh.ranks
        for x, what, column in ((q, "lengths", 1), (k, "k_lengths", 3)):
            together = int(sequences[:, column].sum())
            if together != ranks * x.shape[1]:
                raise ArgumentError(f"{what} add up to {together}, but there are "
                                    f"{ranks * x.shape[1]} tokens over all ranks")

    def __enter__(self):
        self._crew = _pool.take(self._kind, self._make_crew)
        try:
            self.ring = self._crew.ring(self.key, self._make)
        except BaseException:
            _pool.give(self._kind, self._crew)
            raise
        return self

    def __exit__(self, *_):
        if self.ring.closed:  # by a failure, which has ended its group
            self._crew.close()
        elif not self._keep:
            self._crew.drop(self.key)
        _pool.give(self._kind, self._crew)


def _bias(bias, q, k, mesh):
    """[1 or batch, 1 or heads, queries, keys], packed; bytes of a mask, otherwise f32."""
    if bias is None:
        return None
    keys = k.shape[1] if mesh is None else mesh.ranks * k.shape[1]
    x = bias.detach().reshape((1,) * (4 - bias.dim()) + tuple(bias.shape))
    if x.dim() != 4 or x.shape[0] not in (1, q.shape[0]) or x.shape[1] not in (1, q.shape[2]) or \
            x.shape[2] not in (1, q.shape[1]) or x.shape[3] != keys:
        raise ArgumentError(f"the bias or mask has shape {tuple(bias.shape)}; [1 or {q.shape[0]}, "
                            f"1 or {q.shape[2]}, 1 or {q.shape[1]}, {keys}] is expected")
    x = x.to(device=q.device, dtype=torch.uint8 if bias.dtype == torch.bool else torch.float32)
    return x.expand(x.shape[0], x.shape[1], q.shape[1], keys).contiguous()


def _in_shape(dbias, bias):
    """In the shape that the bias was given in, where one row may have stood for all queries."""
    rows = bias.shape[-2] if bias.dim() > 1 else 1
    return (dbias if rows == dbias.shape[2] else dbias.sum(2, keepdim=True)).reshape(bias.shape)


@torch.library.custom_op("ringattn::attend", mutates_args=())
def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, sinks: Tensor | None,
           alibi: Tensor | None, sequences: Tensor | None, seed: Tensor | None,
           options: str) -> tuple[Tensor, Tensor]:
    with _Problem(q, k, v, bias, sinks, alibi, sequences, seed, options, False) as p:
        return p.ring.attend(q, k, v, p.bias, p.sinks, p.seed)


@attend.register_fake
def _(q, k, v, bias, sinks, alibi, sequences, seed, options):
    return (q.new_empty((*q.shape[:3], v.shape[3])),
            q.new_empty(q.shape[:3], dtype=torch.float32))


@torch.library.custom_op("ringattn::gradient", mutates_args=())
def gradient(dout: Tensor, dlse: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
             bias: Tensor | None, sinks: Tensor | None, alibi: Tensor | None,
             sequences: Tensor | None, seed: Tensor | None, options: str,
             dbias: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    with _Problem(q, k, v, bias, sinks, alibi, sequences, seed, options, True) as p:
        found = p.ring.gradient(dout, dlse, q, k, v, out, lse, p.bias, p.sinks, p.seed, dbias)
    none = [q.new_empty(0, dtype=torch.float32) for _ in range(2)]
    dsinks = none[0] if found[3] is None else found[3]
    return (*found[:3], dsinks, none[1] if not dbias else _in_shape(found[4], bias))


@gradient.register_fake
def _(dout, dlse, q, k, v, out, lse, bias, sinks, alibi, sequences, seed, options, dbias):
    heads = 0 if sinks is None else q.shape[2]
    return (q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape),
            q.new_empty(heads, dtype=torch.float32),
            q.new_empty(bias.shape if dbias else 0, dtype=torch.float32))


def _save(ctx, inputs, output):
    *tensors, ctx.options = inputs
    ctx.dbias = tensors[3] is not None and ctx.needs_input_grad[3]
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx, dout, dlse):
    q, k, v, bias, sinks, alibi, sequences, seed, out, lse = ctx.saved_tensors
    dq, dk, dv, dsinks, dbias = gradient(dout, dlse, q, k, v, out, lse, bias, sinks, alibi,
                                         sequences, seed, ctx.options, ctx.dbias)
    return (dq, dk, dv, dbias.to(bias.dtype) if ctx.dbias else None,
            None if sinks is None else dsinks.to(sinks), None, None, None, None)


attend.register_autograd(_backward, setup_context=_save)
