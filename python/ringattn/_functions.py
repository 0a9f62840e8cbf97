# SPDX-License-Identifier: Apache-2.0
"""Functions over arrays: attention and its gradient, plans without data, masks, merging."""
import collections
import dataclasses
import os
import threading
from ctypes import byref
from typing import NamedTuple

import numpy

from . import _library as c
from ._arrays import address, as_array, dtype_of
from ._errors import ArgumentError
from ._library import lib
from ._plan import Gradients, GradientsAndBias, Plan
from ._resource import Handle
from ._ring import MemoryUse, memory_of, most_memory
from ._setup import Setup, packed

_KEPT = 8  # plans of a thread that the functions below keep for their next calls
_local = threading.local()


def _shapes(q, k, v):
    """Arrays as [batch, tokens, heads, dim], and whether batch was left out."""
    arrays = [as_array(x, name) for x, name in ((q, "q"), (k, "k"), (v, "v"))]
    short = arrays[0].ndim == 3
    for array, name in zip(arrays, "qkv"):
        dtype_of(array, name)
        if array.ndim != (3 if short else 4):
            raise ArgumentError(f"{name} has shape {array.shape}; [batch, tokens, heads, dim] or "
                                "[tokens, heads, dim] is expected, the same for q, k and v")
    q, k, v = (array[None] if short else array for array in arrays)
    if k.shape[:3] != v.shape[:3]:
        raise ArgumentError(f"k has shape {k.shape} and v {v.shape}: batch, tokens and heads must "
                            "be the same")
    return q, k, v, short


# Arguments of the functions below that a plan is made for; also bias, which may be a mask.
_PLANNED = ("pattern", "ring", "partition", "strategy", "order", "scale", "softcap", "alibi",
            "dropout", "memory", "kernel", "threads", "device", "any_order", "query_offset")
# Options that are arrays, and what a plan is found by instead of them.
_ARRAYS = {"alibi": numpy.float32, "sequences": numpy.int64}


def _prepare(given, backward):
    """From the arguments of a function: q, k and v with a batch, whether it was left out, and a
    plan that this thread used for the same problem before, or a new one."""
    q, k, v, short = _shapes(given["q"], given["k"], given["v"])
    options = {name: given[name] for name in _PLANNED if name in given}
    options["bias"] = given["bias"] is not None or given["mask"] is not None
    options["backward"] = backward
    options["sequences"] = None
    if given["lengths"] is not None or given["k_lengths"] is not None:
        options["sequences"] = packed(given["lengths"], given["k_lengths"], q.shape[1], k.shape[1])
    for name, sample in ("pattern", "causal"), ("order", "hilbert"):
        left_out = name == "order" and given.get(name) is None
        if not left_out and not isinstance(given[name], str):
            raise ArgumentError(f"the {name} is {given[name]!r}; a text such as \"{sample}\" is "
                                "expected")
    if "bitmap=" in given["pattern"]:  # a file, which may change: planned anew
        return q, k, v, short, Plan(q.shape, k.shape, v.shape[3], q.dtype, **options)
    return q, k, v, short, _kept_plan(q, k, v, options)


def _kept_plan(q, k, v, options) -> Plan:
    values = tuple(
        numpy.asarray(value, _ARRAYS[name]).tobytes() if value is not None and name in _ARRAYS
        else value for name, value in options.items())
    plans = getattr(_local, "plans", None)
    if plans is None:
        plans = _local.plans = collections.OrderedDict()
    key = (q.shape, k.shape, v.shape[3], q.dtype, values)
    plan = plans.get(key)
    if plan is None or plan.closed:
        plan = plans[key] = Plan(q.shape, k.shape, v.shape[3], q.dtype, **options)
        if len(plans) > _KEPT:
            plans.popitem(last=False)[1].close()
    else:
        plans.move_to_end(key)
    return plan


def _forget():
    """In a child of fork(): the plans are the parent's."""
    _local.plans = collections.OrderedDict()


os.register_at_fork(after_in_child=_forget)


def clear() -> None:
    """Frees the plans that attention() and attention_backward() keep for this thread."""
    for plan in getattr(_local, "plans", {}).values():
        plan.close()
    _local.plans = collections.OrderedDict()


def attention(q, k, v, pattern="full", *, ring=1, partition=None, strategy=None, order=None,
              scale=None, softcap=0.0, alibi=None, sinks=None, bias=None, mask=None, dropout=0.0,
              seed=0, memory=None, kernel=None, threads=None, device=None, query_offset=0,
              lengths=None, k_lengths=None, return_lse=False):
    """Exact attention over a pattern: softmax(scale q k^T) v.

    q: [batch, tokens, heads, dim] or [tokens, heads, dim]; k and v may have fewer heads (GQA) and
    another number of tokens. float32, float16, or bfloat16 of ml_dtypes.

    pattern: "full", "causal", "window:4096", "dilated:2048/1,4096/2", "blocks:64;local=8", ... as
        everywhere in ringattn.
    ring, partition, strategy: how many ranks share the work, as threads of this process; which
        tokens each has ("contiguous", "zigzag", "striped"); "ring", "allgather", "auto", ...
    bias, mask: [1 or batch, 1 or heads, 1 or queries, keys]; f32 that is added to scores, or what
        is not 0 where a key is seen.
    query_offset: added to the positions of queries, which are the last ones otherwise.
    lengths, k_lengths: packed sequences, one after the other along the tokens, each a problem of its
        own: how many queries, and keys, each has (differences of cu_seqlens).
    return_lse: returns (out, lse), lse [batch, tokens, heads] in float32. attention_backward()
        needs it.
    """
    q, k, v, short, plan = _prepare(locals(), backward=False)
    out, lse = plan.attend(q, k, v, bias=bias, mask=mask, sinks=sinks, seed=seed, return_lse=True)
    if short:
        out, lse = out[0], lse[0]
    return (out, lse) if return_lse else out


def attention_backward(dout, q, k, v, out, lse, pattern="full", *, dlse=None, ring=1,
                       partition=None, strategy=None, order=None, scale=None, softcap=0.0,
                       alibi=None, sinks=None, bias=None, mask=None, dropout=0.0, seed=0,
                       memory=None, kernel=None, threads=None, device=None, any_order=False,
                       query_offset=0, lengths=None, k_lengths=None,
                       dbias=False) -> Gradients | GradientsAndBias:
    """Gradients of attention(): (dq, dk, dv, dsinks), and with dbias=True that of the bias, in its
    shape, which takes longer. Arguments as there; out and lse as it returned them. dlse: the
    gradient of lse, where something was computed from it."""
    q, k, v, short, plan = _prepare(locals(), backward=True)
    given = [None if x is None else as_array(x, name)
             for x, name in ((dout, "dout"), (out, "out"), (lse, "lse"), (dlse, "dlse"))]
    if short:
        given = [None if x is None else x[None] for x in given]
    found = plan.gradient(given[0], q, k, v, given[1], given[2], dlse=given[3], bias=bias,
                          mask=mask, sinks=sinks, seed=seed, dbias=dbias)
    if not short:
        return found
    return found._replace(dq=found.dq[0], dk=found.dk[0], dv=found.dv[0])


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What plan() answers."""

    kernel: str
    strategy: str
    why: str
    memory: MemoryUse  # of the rank that needs most
    pairs: int         # of queries and keys, over all ranks
    flops: float
    bytes_sent: int
    seconds: float     # predicted, of the slowest rank
    wait_seconds: float


def plan(q_shape, k_shape=None, value_dim=None, dtype="float32", pattern="full", *, ring=1,
         transport=None, **options) -> Forecast:
    """What a problem will need on a ring of any size, without running it: memory, messages, time.

    Shapes are [batch, tokens, heads, dim] over all ranks; options as those of Plan. `transport`:
    "local", or "mpi" for processes.
    """
    setup = Setup(q_shape, k_shape, value_dim, dtype, pattern, ring=ring, **options)
    setup.options.ranks = setup.ring
    setup.options.transport = c.text(transport)
    setup.options.threads = setup.threads
    setup.options.device = c.text(setup.device)
    stats, memories, words = [], [], None
    for rank in range(setup.ring):
        setup.options.rank = rank
        made = Handle(lambda out: lib.ra_plan_create(None, byref(setup.problem),
                                                     byref(setup.options), out),
                      lib.ra_plan_destroy)
        stats.append(c.Stats())
        lib.ra_plan_forecast(made.value, setup.options.backward, byref(stats[-1]))
        memories.append(memory_of(made))
        words = words or [function(made.value).decode() for function in
                          (lib.ra_plan_kernel, lib.ra_plan_strategy, lib.ra_plan_why)]
        made.close()
    return Forecast(*words, most_memory(memories),
                    sum(s.pairs for s in stats), sum(s.flops for s in stats),
                    sum(s.bytes_sent for s in stats), max(s.seconds for s in stats),
                    max(s.wait_seconds for s in stats))


def mask(pattern, queries, keys=None, *, heads=1, order=None, query_offset=0, lengths=None,
         k_lengths=None) -> numpy.ndarray:
    """How often each query sees each key under a pattern: uint8, [heads, queries, keys]."""
    keys = queries if keys is None else keys
    setup = Setup((1, queries, heads, 1), (1, keys, heads, 1), pattern=pattern, order=order,
                  query_offset=query_offset, lengths=lengths, k_lengths=k_lengths)
    out = numpy.zeros((heads, queries, keys), numpy.uint8)
    for head in range(heads):
        for query in range(queries if keys else 0):
            lib.ra_problem_row(byref(setup.problem), head, query, address(out[head, query]))
    return out


class Partial(NamedTuple):
    """Attention over some of the keys."""

    out: numpy.ndarray
    lse: numpy.ndarray


def merge(*partials) -> Partial:
    """Attention over all keys from (out, lse) over parts of them: float32, out [..., dim]."""
    if not partials:
        raise ArgumentError("merge() needs at least one (out, lse)")
    for partial in partials:
        if not isinstance(partial, tuple) or len(partial) != 2:
            raise ArgumentError("merge() takes pairs (out, lse)")
    out, lse = (numpy.array(as_array(x, "partial"), numpy.float32, order="C") for x in partials[0])
    if out.ndim < 1 or out.shape[:-1] != lse.shape:
        raise ArgumentError(f"out has shape {out.shape} and lse {lse.shape}; lse must have one "
                            "number for each row of out")
    for other in partials[1:]:
        more = [numpy.require(as_array(x, "partial"), numpy.float32, "C") for x in other]
        if more[0].shape != out.shape or more[1].shape != lse.shape:
            raise ArgumentError("merge(): all parts must have the same shape")
        lib.ra_partial_merge(lse.size, out.shape[-1], address(out), address(lse),
                             address(more[0]), address(more[1]))
    return Partial(out, lse)


def positions(length, ring, partition=None, pattern="full", *,
              lengths=None) -> list[numpy.ndarray]:
    """The tokens that each rank of a ring has, in the order of its shard. lengths: of packed
    sequences."""
    setup = Setup((1, length, 1, 1), pattern=pattern, ring=ring, partition=partition,
                  lengths=lengths)
    index, bounds = setup.shards(of_keys=False)
    if index is None:
        index = numpy.arange(length)
    return [index[bounds[rank]:bounds[rank + 1]] for rank in range(setup.ring)]
