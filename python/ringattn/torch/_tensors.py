# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch as tensors of the library, and a plan that runs on them."""
import collections

import numpy
import torch

from .. import _library as c
from .._errors import ArgumentError, RingattnError
from .._library import lib
from .._plan import local_groups
from .._resource import Owned
from .._ring import Ring
from .._setup import Setup

_LEGACY = 1  # cudaStreamLegacy: the default stream, whose own number, 0, means "none" to the library
_KEPT = 16  # rings of a crew
CODES = {torch.float32: c.F32, torch.bfloat16: c.BF16, torch.float16: c.F16}


def code_of(x, name):
    if x.dtype not in CODES:
        raise ArgumentError(f"{name} is {x.dtype}; float32, float16 and bfloat16 are taken")
    return CODES[x.dtype]


def readable(x):
    """The tensor, or a copy that the library can read, and a view of it."""
    strides = x.stride()
    if (x.shape[3] > 1 and strides[3] != 1) or not any(strides[:3]):
        x = x.contiguous()
        strides = x.stride()
    return x, c.Tensor(x.data_ptr(), *strides[:3])


def floats(x, like, shape, name):
    """Packed f32 on the device of `like`; None stays None."""
    if x is None:
        return None
    if tuple(x.shape) != tuple(shape):
        raise ArgumentError(f"{name} has shape {tuple(x.shape)}, but must have {tuple(shape)}")
    return x.detach().to(device=like.device, dtype=torch.float32).contiguous()


def pointer(x):
    return None if x is None else x.data_ptr()


class TensorRing(Ring):
    """A problem on the ranks of this process, for tensors: [batch, tokens, heads, dim].

    Without a mesh all ranks are here, and tensors are in global order. With one this process is one
    rank of its process group, and tensors are shards.
    """

    def __init__(self, setup: Setup, device: torch.device, groups, mesh=None):
        """groups: of the ranks of this process, which others use, too, at other times."""
        self.device, self.mesh = device, mesh
        super().__init__(setup, groups, own_groups=False)
        if mesh is None:
            index, self._bounds = zip(*(setup.shards(of_keys=side) for side in (False, True)))
            self._index = [None if i is None else torch.from_numpy(i).to(device) for i in index]
        else:
            plan = self._plans[0].value
            self._bounds = [[0, lib.ra_plan_q_count(plan)], [0, lib.ra_plan_k_count(plan)]]
            self._index = [None, None]

    # ---- Runs ----

    def _run(self, function, arguments):
        try:
            super()._run(function, arguments)
        except RingattnError:
            raised = self.mesh.interruption() if self.mesh else None
            if raised:
                raise raised from None
            raise

    def _check(self, q, k):
        """Shards must be as long as the partition makes them."""
        have, want = (q.shape[1], k.shape[1]), tuple(side[-1] for side in self._bounds)
        if have != want:
            raise ArgumentError(f"this rank has {have[0]} queries and {have[1]} keys, but partition "
                                f"{self._setup.partition or 'contiguous'} gives it {want[0]} and "
                                f"{want[1]}")

    def attend(self, q, k, v, bias=None, sinks=None, seed=0):
        self._check(q, k)
        q, k, v = self._taken(q, 0), self._taken(k, 1), self._taken(v, 1)
        bias = None if bias is None else self._taken(bias, 0, 2)
        out = q.new_empty((*q.shape[:3], v.shape[3]))
        lse = [self._floats(rank, q) for rank in range(len(self._plans))]
        keep, calls = [], []
        for rank in range(len(self._plans)):
            rows, keys = self._rows(rank, 0), self._rows(rank, 1)
            args = c.AttendArgs(lse=pointer(lse[rank]), sinks=pointer(sinks), dropout_seed=seed,
                                bias=self._bias(bias, rank), queue=self._queue())
            keep.append(_set(args, q=q[:, rows], k=k[:, keys], v=v[:, keys], out=out[:, rows]))
            calls.append(args)
        self._run(lib.ra_attend, calls)
        return self._restored(out, 0), self._restored(torch.cat(lse, 1), 0)

    def gradient(self, dout, dlse, q, k, v, out, lse, bias=None, sinks=None, seed=0, dbias=False):
        """dq, dk, dv, dsinks and dbias. dsinks is None without sinks, and of this process alone;
        dbias is None where it was not asked for."""
        self._check(q, k)
        q, out, dout = (self._taken(x, 0) for x in (q, out, dout))
        k, v = self._taken(k, 1), self._taken(v, 1)
        bias = None if bias is None else self._taken(bias, 0, 2)
        lse, dlse = (None if x is None else self._taken(x, 0) for x in (lse, dlse))
        dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format)
                      for x in (q, k, v))
        dsinks = [None if sinks is None else torch.zeros_like(sinks) for _ in self._plans]
        sums = torch.empty_like(bias) if dbias else None
        keep, calls = [], []
        for rank in range(len(self._plans)):
            rows, keys = self._rows(rank, 0), self._rows(rank, 1)
            own = [None if x is None else x[:, rows].contiguous() for x in (lse, dlse)]
            args = c.GradientArgs(lse=pointer(own[0]), dlse=pointer(own[1]), sinks=pointer(sinks),
                                  dsinks=pointer(dsinks[rank]), dropout_seed=seed,
                                  bias=self._bias(bias, rank), queue=self._queue())
            if dbias:
                start = rows.start * sums.stride(2) * sums.element_size()
                args.dbias = sums.data_ptr() + start
            keep.append((own, _set(args, q=q[:, rows], k=k[:, keys], v=v[:, keys],
                                   out=out[:, rows], dout=dout[:, rows], dq=dq[:, rows],
                                   dk=dk[:, keys], dv=dv[:, keys])))
            calls.append(args)
        self._run(lib.ra_gradient, calls)
        return (self._restored(dq, 0), self._restored(dk, 1), self._restored(dv, 1),
                None if sinks is None else torch.stack(dsinks).sum(0),
                self._restored(sums, 0, 2) if dbias else None)

    # ---- Inside ----

    def _queue(self):
        if self.device.type == "cpu":
            return None
        return torch.cuda.current_stream(self.device).cuda_stream or _LEGACY

    def _rows(self, rank, side):
        return slice(self._bounds[side][rank], self._bounds[side][rank + 1])

    def _floats(self, rank, q):
        rows = self._rows(rank, 0)
        return q.new_empty((q.shape[0], rows.stop - rows.start, q.shape[2]), dtype=torch.float32)

    def _taken(self, x, side, axis=1):
        return x if self._index[side] is None else x.index_select(axis, self._index[side])

    def _restored(self, x, side, axis=1):
        if self._index[side] is None:
            return x
        return torch.empty_like(x).index_copy_(axis, self._index[side], x)

    def _bias(self, bias, rank):
        """bias: [1 or batch, 1 or heads, queries, keys], f32 or bytes, packed."""
        if bias is None:
            return c.Bias()
        strides = bias.stride()
        start = self._rows(rank, 0).start * strides[2] * bias.element_size()
        return c.Bias(bias.data_ptr() + start, int(bias.dtype == torch.uint8), 0,
                      strides[0] if bias.shape[0] > 1 else 0,
                      strides[1] if bias.shape[1] > 1 else 0, strides[2])


class Crew(Owned):
    """Ranks of this process with their threads, and the rings that were made on them. One run at a
    time."""

    def __init__(self, device: torch.device, ranks, threads, pool=None, mesh=None):
        super().__init__()
        if device.type not in ("cpu", "cuda"):
            raise ArgumentError(f"tensors are on {device}; cpu and cuda are taken")
        self.mesh, self.closed = mesh, False
        self._rings: collections.OrderedDict = collections.OrderedDict()
        name = None if device.type == "cpu" else f"cuda:{device.index or 0}"
        self.groups = [mesh.group] if mesh else list(local_groups(
            ranks, threads=threads, device=c.text(name), on_device=int(device.type != "cpu"),
            pool_threshold=0 if pool is None else pool % 2 ** 64))

    def ring(self, key, make) -> TensorRing:
        """The ring of a problem, made before or now: make(groups)."""
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = make(self.groups)
            if len(self._rings) > _KEPT:
                self._rings.popitem(last=False)[1].close()
        self._rings.move_to_end(key)
        return ring

    def drop(self, key):
        ring = self._rings.pop(key, None)
        if ring is not None:
            ring.close()

    def close(self):
        """Frees plans and threads; those of a mesh are its own."""
        if self.closed or not self.is_ours():
            return
        self.closed = True
        for ring in self._rings.values():
            ring.close()
        self._rings.clear()
        for group in () if self.mesh else self.groups:
            lib.ra_group_destroy(group)

    def __del__(self):
        if hasattr(self, "groups"):
            self.close()


def _set(args, **tensors):
    """Sets tensors of a call; returns what must stay alive until it is done."""
    kept = []
    for name, x in tensors.items():
        x, tensor = readable(x)
        setattr(args, name, tensor)
        kept.append(x)
    return kept


def numbers(x):
    """A small tensor of whole numbers, or of slopes, as an array of NumPy."""
    if x is None:
        return None
    kind = torch.float32 if x.is_floating_point() else torch.int64
    return numpy.ascontiguousarray(x.detach().to("cpu", kind).numpy())
