# SPDX-License-Identifier: Apache-2.0
"""Plans that run on tensors of PyTorch."""
from ctypes import byref

import numpy
import torch

from .. import _library as c
from .._arrays import address
from .._errors import ArgumentError, RingattnError
from .._library import lib
from .._ring import Ring
from .._setup import Setup
from ._tensors import place, pointer

_LEGACY = 1  # cudaStreamLegacy: the default stream, whose own number, 0, means "none" to the library


def _current_queue(device: torch.device):
    """A function that says which stream the caller is on. Each call asks it: the number alone is had
    in a fraction of the time that an object of torch.cuda.Stream takes."""
    if device.type == "cpu":
        return lambda: None
    number = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    index = device.index or 0
    if number is None:
        return lambda: torch.cuda.current_stream(device).cuda_stream or _LEGACY
    return lambda: number(index) or _LEGACY


class _Arguments:
    """Arguments of one rank's calls, which are used again: to set what has changed takes less time
    than to make new ones."""

    def __init__(self, args, names):
        self.args = args
        self._views = [getattr(args, name) for name in names]
        self._strides = [None] * len(names)  # as the views have them

    def set(self, *tensors):
        """Tensors in the order of the names, which the caller keeps alive until the call is done, as
        it does the copies that are returned."""
        copies, strides = [], self._strides
        for at, x in enumerate(tensors):
            if x.stride() == strides[at]:
                self._views[at].data = x.data_ptr()
                continue
            placed = place(self._views[at], x)
            strides[at] = placed.stride()
            if placed is not x:
                copies.append(placed)
        return copies


class TensorRing(Ring):
    """A problem on the ranks of this process, for tensors: [batch, tokens, heads, dim]. Who uses it
    is alone with it.

    Without a mesh all ranks are here, and tensors are in global order. With one this process is one
    rank of its process group, and tensors are shards.
    """

    def __init__(self, setup: Setup, device: torch.device, groups, mesh=None):
        """groups: of the ranks of this process, which others use, too, at other times."""
        self.mesh = mesh
        super().__init__(setup, groups, own_groups=False)
        if mesh is None:
            index, self._bounds = zip(*(setup.shards(of_keys=side) for side in (False, True)))
            self._index = [None if i is None else torch.from_numpy(i).to(device) for i in index]
        else:
            plan = self._plans[0].value
            self._bounds = [[0, lib.ra_plan_q_count(plan)], [0, lib.ra_plan_k_count(plan)]]
            self._index = [None, None]
        self._tokens = tuple(bounds[-1] for bounds in self._bounds)
        self._queue = _current_queue(device)
        self._counts = None  # of keys, as each call has them
        self._forward = [_Arguments(c.AttendArgs(), ("q", "k", "v", "out")) for _ in self._plans]
        self._backward = [_Arguments(c.GradientArgs(), ("q", "k", "v", "out", "dout", "dq", "dk",
                                                        "dv")) for _ in self._plans]
        self._alone = mesh is None and setup.ring == 1 and self._index == [None, None]
        self._reference = byref(self._forward[0].args)
        if setup.options.counts:
            self._counts = numpy.zeros(setup.batch, numpy.int64)
            self._forward[0].args.counts = address(self._counts)
        rows, heads, dim = setup.q_len, setup.q_heads, setup.value_dim
        # Shapes and strides: with both, PyTorch makes a tensor in less time.
        self._out_like = (setup.batch, rows, heads, dim), (rows * heads * dim, heads * dim, dim, 1)
        self._lse_like = (setup.batch, rows, heads), (rows * heads, heads, 1)

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
        have = (q.shape[1], k.shape[1])
        if have != self._tokens:
            raise ArgumentError(f"this rank has {have[0]} queries and {have[1]} keys, but partition "
                                f"{self._setup.partition or 'contiguous'} gives it "
                                f"{self._tokens[0]} and {self._tokens[1]}")

    def attend(self, q, k, v, bias=None, sinks=None, seed=0, counts=None, lse=True):
        """counts: where the setup has them, how many keys each batch item has; None: all of k. lse:
        whether it is wanted; None may take its place then."""
        if self._alone and bias is None:
            if counts is not None:
                self._counts[:] = counts
            elif self._counts is not None:
                self._counts.fill(k.shape[1])
            return self._attend_alone(q, k, v, sinks, seed, lse)
        self._check(q, k)
        q, k, v = self._taken(q, 0), self._taken(k, 1), self._taken(v, 1)
        bias = None if bias is None else self._taken(bias, 0, 2)
        out = q.new_empty((*q.shape[:3], v.shape[3]))
        queries, outs = self._parts(q, 0), self._parts(out, 0)
        keys, values = self._parts(k, 1), self._parts(v, 1)
        lse = [part.new_empty(part.shape[:3], dtype=torch.float32) for part in queries]
        keep = []
        for rank, call in enumerate(self._forward):
            keep.append(call.set(queries[rank], keys[rank], values[rank], outs[rank]))
            self._set_terms(call.args, rank, bias, sinks, seed)
            call.args.lse = lse[rank].data_ptr()
        self._run(lib.ra_attend, [call.args for call in self._forward])
        return self._restored(out, 0), self._restored(_joined(lse), 0)

    def _attend_alone(self, q, k, v, sinks, seed, wants_lse):
        """The short way: one rank, with all tokens in their order."""
        out, lse = q.new_empty_strided(*self._out_like), None
        if wants_lse:
            lse = q.new_empty_strided(*self._lse_like, dtype=torch.float32)
        keep = self._forward[0].set(q, k, v, out)
        args = self._forward[0].args
        args.lse, args.sinks, args.dropout_seed = pointer(lse), pointer(sinks), seed
        args.queue = self._queue()
        if self._is_long:
            self._run(lib.ra_attend, (args,))
        else:
            try:
                lib.ra_attend(self._plans[0].value, self._reference)
            except RingattnError as error:
                self._fail(error)
                raise
        del keep
        return out, lse

    def gradient(self, dout, dlse, q, k, v, out, lse, bias=None, sinks=None, seed=0, dbias=False):
        """dq, dk, dv, dsinks and dbias. dsinks is None without sinks, and of this process alone;
        dbias is None where it was not asked for. dlse may be None."""
        self._check(q, k)
        q, out, dout = (self._taken(x, 0) for x in (q, out, dout))
        k, v = self._taken(k, 1), self._taken(v, 1)
        bias = None if bias is None else self._taken(bias, 0, 2)
        lse, dlse = (None if x is None else self._taken(x, 0) for x in (lse, dlse))
        dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format)
                      for x in (q, k, v))
        dsinks = [None if sinks is None else torch.zeros_like(sinks) for _ in self._plans]
        sums = torch.empty_like(bias) if dbias else None
        parts = [self._parts(x, side) for x, side in ((q, 0), (k, 1), (v, 1), (out, 0), (dout, 0),
                                                      (dq, 0), (dk, 1), (dv, 1))]
        keep = []
        for rank, call in enumerate(self._backward):
            own = [None if x is None else self._parts(x, 0)[rank].contiguous() for x in (lse, dlse)]
            keep.append((own, call.set(*(part[rank] for part in parts))))
            args = call.args
            self._set_terms(args, rank, bias, sinks, seed)
            args.lse, args.dlse = pointer(own[0]), pointer(own[1])
            args.dsinks = pointer(dsinks[rank])
            args.dbias = None if sums is None else sums.data_ptr() + self._start(rank, sums)
        self._run(lib.ra_gradient, [call.args for call in self._backward])
        return (self._restored(dq, 0), self._restored(dk, 1), self._restored(dv, 1),
                None if sinks is None else torch.stack(dsinks).sum(0),
                self._restored(sums, 0, 2) if dbias else None)

    # ---- Inside ----

    def _set_terms(self, args, rank, bias, sinks, seed):
        """What a call has besides its tensors. Each field is set again, as it was of another call."""
        if bias is not None:
            args.bias = self._bias(bias, rank)
        args.sinks, args.dropout_seed, args.queue = pointer(sinks), seed, self._queue()

    def _parts(self, x, side):
        """The rows of each rank."""
        if len(self._plans) == 1:
            return [x]
        bounds = self._bounds[side]
        return [x[:, start:end] for start, end in zip(bounds, bounds[1:])]

    def _taken(self, x, side, axis=1):
        return x if self._index[side] is None else x.index_select(axis, self._index[side])

    def _restored(self, x, side, axis=1):
        if self._index[side] is None:
            return x
        return torch.empty_like(x).index_copy_(axis, self._index[side], x)

    def _start(self, rank, rows):
        """Bytes from the first row of a bias to those of a rank."""
        return self._bounds[0][rank] * rows.stride(2) * rows.element_size()

    def _bias(self, bias, rank):
        """bias: [1 or batch, 1 or heads, queries, keys], f32 or bytes, packed."""
        strides = bias.stride()
        return c.Bias(bias.data_ptr() + self._start(rank, bias), int(bias.dtype == torch.uint8), 0,
                      strides[0] if bias.shape[0] > 1 else 0,
                      strides[1] if bias.shape[1] > 1 else 0, strides[2])


def _joined(parts):
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
