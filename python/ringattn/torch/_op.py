# SPDX-License-Identifier: Apache-2.0
"""The operators ringattn::attend and ringattn::gradient, with autograd and shapes for tracing; and
call(), which leaves out the dispatcher of PyTorch where nothing but time is lost by that.

What a problem is besides its tensors comes as a text, so that a compiler sees a constant; what may
change from call to call without a new graph comes as tensors: sequences, slopes, the seed.
"""
import ast
import functools
import re

import torch
from torch import Tensor

from .._decoder import FEW
from .._errors import ArgumentError
from .._setup import Setup
from ._mesh import mesh_of
from ._pool import Crew, pool
from ._ring import TensorRing
from ._tensors import check, code_of, floats, numbers

# A graph of CUDA would keep the addresses of a plan, which may be gone when it is replayed.
_TAGS = tuple(getattr(torch.Tag, name) for name in ("cudagraph_unsafe",) if hasattr(torch.Tag, name))


def text_of(options: dict) -> str:
    """Options of a problem as the operators take them: one line, which compilers put into comments;
    written so that they can trace it."""
    return ", ".join([f"{name}={value!r}" for name, value in options.items()])


def _value(option):
    """Of a keyword: what can be written down, so neither NaN nor infinity."""
    try:
        return ast.literal_eval(option.value)
    except ValueError:
        raise ArgumentError(f"{option.arg} is {ast.unparse(option.value)}; a finite number or a text "
                            "is expected") from None


class _Options:
    """A text of options, read: what belongs to the ranks, and what to the problem."""

    def __init__(self, text):
        call = ast.parse(f"options({text})", mode="eval").body
        given = {each.arg: _value(each) for each in call.keywords}
        if not isinstance(given["pattern"], str):
            raise ArgumentError(f"the pattern is {given['pattern']!r}; a text such as \"causal\" is "
                                "expected")
        self.mesh, self.pool = given.pop("mesh", None), given.pop("pool", None)
        self.keep = given.pop("keep", True) and "bitmap=" not in given["pattern"]  # may change
        self.packed = given.pop("packed", False)
        self.ranks, self.threads = given.get("ring", 1), given.get("threads")
        self.problem = given
        self.relative = self.mesh is None and self.ranks == 1 and given.get("order") is None and \
            given.get("strategy") is None and not given.get("dropout") and \
            re.fullmatch("full|causal|window:[0-9,]*", given["pattern"]) is not None
        self.crew = (self.ranks, self.threads, self.pool, self.mesh)  # who runs it


_options_of = functools.lru_cache(maxsize=512)(_Options)


def _bytes(array):
    return None if array is None else array.tobytes()


_STEP = 256  # keys that a capacity is a multiple of


def _grows(q):
    """Is q where a plan takes more time than a token does? Few queries over keys that grow then get
    a plan for a capacity, and each call says how many keys there are."""
    return q.is_cuda


def _capacity(q, shapes, given):
    """For how many keys a plan is made, or None: for those there are."""
    if not given.relative or not _grows(q):
        return None
    of_queries, of_keys, of_values = shapes
    if not len(of_queries) == len(of_keys) == len(of_values) == 4 or of_queries[1] > FEW:
        return None
    return -(-of_keys[1] // _STEP) * _STEP


def _key(shapes, dtype, options, backward, capacity):
    """What the ring of a problem without terms is found by, among those of its crew. shapes: of q, k
    and v; each is asked for once, since a tensor makes it anew."""
    if capacity is None:
        return (shapes, dtype, options, backward)
    of_queries, (batch, keys, heads, dim), (value_batch, values, value_heads, value_dim) = shapes
    return (of_queries, capacity, batch, heads, dim,
            value_batch, values - keys, value_heads, value_dim,  # any number of keys, and of values
            dtype, options, backward)


class _Problem:
    """From the arguments of an operator: the ring to run on, and its terms."""

    __slots__ = ("_key", "_kind", "_make", "_make_crew", "_keep", "_crew", "bias", "sinks", "seed",
                 "ring")

    def __init__(self, q, k, v, bias, sinks, alibi, sequences, seed, options, backward,
                 counts=False):
        check(q, k, v)
        given = _options_of(options)
        mesh = None if given.mesh is None else mesh_of(given.mesh)
        self._keep = given.keep
        self.bias = None if bias is None else _bias(bias, q, k, mesh)
        self.sinks = None if sinks is None else floats(sinks, q, (q.shape[2],), "sinks")
        self.seed = 0 if seed is None else int(seed)
        alibi, sequences = numbers(alibi), numbers(sequences)
        if given.packed:
            _check_lengths(sequences, q, k, mesh)
        plain = bias is None and sequences is None
        shapes = q.shape, k.shape, v.shape
        capacity = k.shape[1] if counts else None
        if plain and not counts and not backward:
            capacity = _capacity(q, shapes, given)
        self._key = _key(shapes, q.dtype, options, backward, capacity)
        if alibi is not None or sequences is not None or bias is not None:
            self._key += (_bytes(alibi), _bytes(sequences), bias is not None)
        self._kind = (q.device, given.crew)
        self._make_crew = lambda: Crew(q.device, given.ranks, int(given.threads or 0), given.pool,
                                       mesh)

        def make(groups):
            sizes, more = (q.shape, k.shape), {}
            if mesh is not None:
                sizes, more = mesh.whole_shapes(q.shape, k.shape), {"ring": mesh.ranks}
            if capacity is not None:
                sizes = q.shape, (k.shape[0], capacity, *k.shape[2:])
                more = {"counts": True}
            setup = Setup(*sizes, v.shape[3], code_of(q, "q"), alibi=alibi, sequences=sequences,
                          bias=bias is not None, backward=backward, **{**given.problem, **more})
            return TensorRing(setup, q.device, groups, mesh)

        self._make = make

    def __enter__(self):
        self._crew = pool().take(self._kind) or self._make_crew()
        try:
            self.ring = self._crew.ring(self._key, self._make)
        except BaseException:
            pool().give(self._kind, self._crew)
            raise
        return self

    def __exit__(self, *_):
        self._crew.release(self._key, self.ring, self._keep)
        pool().give(self._kind, self._crew)


def _check_lengths(sequences, q, k, mesh):
    """Do the lengths add up to all tokens?"""
    ranks = 1 if mesh is None else mesh.ranks
    for x, what, column in ((q, "lengths", 1), (k, "k_lengths", 3)):
        together = int(sequences[:, column].sum())
        if together != ranks * x.shape[1]:
            raise ArgumentError(f"{what} add up to {together}, but there are "
                                f"{ranks * x.shape[1]} tokens over all ranks")


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


# ---- Runs ----

def _attend_again(q, k, v, options, lse):
    """The short way for a problem that was run before, without terms; None: it is not that."""
    device, dtype, given = q.device, q.dtype, _options_of(options)
    if k.dtype is not dtype or v.dtype is not dtype or k.device != device or \
            v.device != device or given.mesh is not None:
        return None
    kind = (device, given.crew)
    crew = pool().take(kind)
    if crew is None:
        return None
    shapes = q.shape, k.shape, v.shape
    key = _key(shapes, dtype, options, False, _capacity(q, shapes, given))
    try:
        ring = crew.known(key)
        if ring is None:
            return None
        try:
            return ring.attend(q, k, v, lse=lse)
        finally:
            crew.release(key, ring)
    finally:
        pool().give(kind, crew)


def _attend(q, k, v, bias, sinks, alibi, sequences, seed, options, lse=True):
    """(out, lse), or (out, None) where lse is not wanted and takes time."""
    if bias is None and sinks is None and alibi is None and sequences is None and seed is None:
        found = _attend_again(q, k, v, options, lse)
        if found is not None:
            return found
    with _Problem(q, k, v, bias, sinks, alibi, sequences, seed, options, False) as p:
        return p.ring.attend(q, k, v, p.bias, p.sinks, p.seed)


def attend_counted(q, k, v, alibi, counts, options):
    """counts: how many keys each batch item has, int64 of NumPy."""
    with _Problem(q, k, v, None, None, alibi, None, None, options, False, counts=True) as p:
        return p.ring.attend(q, k, v, counts=counts)


def _gradient(dout, dlse, q, k, v, out, lse, bias, sinks, alibi, sequences, seed, options, dbias):
    """dq, dk, dv, and dsinks and dbias or None."""
    with _Problem(q, k, v, bias, sinks, alibi, sequences, seed, options, True) as p:
        found = p.ring.gradient(dout, dlse, q, k, v, out, lse, p.bias, p.sinks, p.seed, dbias)
    return (*found[:4], _in_shape(found[4], bias) if dbias else None)


# ---- Operators ----

@torch.library.custom_op("ringattn::attend", mutates_args=(), tags=_TAGS)
def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, sinks: Tensor | None,
           alibi: Tensor | None, sequences: Tensor | None, seed: Tensor | None,
           options: str) -> tuple[Tensor, Tensor]:
    return _attend(q, k, v, bias, sinks, alibi, sequences, seed, options)


@attend.register_fake
def _(q, k, v, bias, sinks, alibi, sequences, seed, options):
    return (q.new_empty((*q.shape[:3], v.shape[3])),
            q.new_empty(q.shape[:3], dtype=torch.float32))


@torch.library.custom_op("ringattn::gradient", mutates_args=(), tags=_TAGS)
def gradient(dout: Tensor, dlse: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
             bias: Tensor | None, sinks: Tensor | None, alibi: Tensor | None,
             sequences: Tensor | None, seed: Tensor | None, options: str,
             dbias: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    found = _gradient(dout, dlse, q, k, v, out, lse, bias, sinks, alibi, sequences, seed, options,
                      dbias)
    return tuple(q.new_empty(0, dtype=torch.float32) if x is None else x for x in found)


@gradient.register_fake
def _(dout, dlse, q, k, v, out, lse, bias, sinks, alibi, sequences, seed, options, dbias):
    heads = 0 if sinks is None else q.shape[2]
    return (q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape),
            q.new_empty(heads, dtype=torch.float32),
            q.new_empty(bias.shape if dbias else 0, dtype=torch.float32))


def _save(ctx, inputs, output):
    ctx.options = inputs[8]
    ctx.dbias = inputs[3] is not None and ctx.needs_input_grad[3]
    ctx.save_for_backward(*inputs[:8], *output)


def _typed(dq, dk, dv, dsinks, dbias, bias, sinks):
    """Gradients of all arguments of attend, in their dtypes."""
    return (dq, dk, dv, None if dbias is None else dbias.to(bias.dtype),
            None if sinks is None else dsinks.to(sinks), None, None, None, None)


def _backward(ctx, dout, dlse):
    q, k, v, bias, sinks, alibi, sequences, seed, out, lse = ctx.saved_tensors
    *found, dbias = gradient(dout, dlse, q, k, v, out, lse, bias, sinks, alibi, sequences, seed,
                             ctx.options, ctx.dbias)
    return _typed(*found, dbias if ctx.dbias else None, bias, sinks)


attend.register_autograd(_backward, setup_context=_save)


# ---- Calls ----

class _Attend(torch.autograd.Function):
    """attend with its gradient, without the dispatcher."""

    @staticmethod
    def forward(ctx, *inputs):
        output = _attend(*inputs)
        _save(ctx, inputs, output)
        ctx.set_materialize_grads(False)
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dout, dlse):
        q, k, v, bias, sinks, alibi, sequences, seed, out, lse = ctx.saved_tensors
        dout = torch.zeros_like(out) if dout is None else dout
        if not _plain(dout, q, k):
            return _backward(ctx, dout, torch.zeros_like(lse) if dlse is None else dlse)
        return _typed(*_gradient(dout, dlse, q, k, v, out, lse, bias, sinks, alibi, sequences, seed,
                                 ctx.options, ctx.dbias), bias, sinks)


_PLAIN = (torch.Tensor, torch.nn.Parameter)
try:  # modes, tracers, transforms such as vmap; names that a later PyTorch may not have
    _WATCHERS = (torch.compiler.is_compiling, torch._C._len_torch_dispatch_stack,
                 torch._C._get_tracing_state, torch._C._functorch.peek_interpreter_stack)
except AttributeError:
    _WATCHERS = (lambda: True,)


def _plain(q, k, v):
    """Are these tensors with data, and does nobody watch what is called, as compilers, tracers, modes
    and profilers do?"""
    for watcher in _WATCHERS:
        if watcher():
            return False
    return not (torch.autograd.profiler._is_profiler_enabled or type(q) not in _PLAIN or
                type(k) not in _PLAIN or type(v) not in _PLAIN or q.is_meta)


def call(q, k, v, bias, sinks, alibi, sequences, seed, options, lse=True):
    """The operator, or, in much less time, what it does; without lse where nobody wants it."""
    if not _plain(q, k, v):
        check(q, k, v)
        return attend(q, k, v, bias, sinks, alibi, sequences, seed, options)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad or
                                    (bias is not None and bias.requires_grad) or
                                    (sinks is not None and sinks.requires_grad)):
        return _Attend.apply(q, k, v, bias, sinks, alibi, sequences, seed, options)
    return _attend(q, k, v, bias, sinks, alibi, sequences, seed, options, lse)
