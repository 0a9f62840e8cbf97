# SPDX-License-Identifier: Apache-2.0
"""A plan: one problem on a ring of ranks, made once and run as often as wanted.

Arrays are in global order. On a ring their rows are put into the order of the shards, ranks run on
threads of their own, and results are put back.
"""
from ctypes import byref, c_void_p
from typing import Any, NamedTuple

import numpy

from . import _library as c
from ._arrays import address, as_array, floats, is_packed, readable
from ._errors import ArgumentError
from ._library import lib
from ._ring import Ring
from ._setup import Setup


class Gradients(NamedTuple):
    """What `Plan.gradient` returns. dsinks is None without sinks."""

    dq: numpy.ndarray
    dk: numpy.ndarray
    dv: numpy.ndarray
    dsinks: numpy.ndarray | None


class GradientsAndBias(NamedTuple):
    """The same with the gradient of the bias, where it was asked for."""

    dq: numpy.ndarray
    dk: numpy.ndarray
    dv: numpy.ndarray
    dsinks: numpy.ndarray | None
    dbias: numpy.ndarray


def local_groups(ranks, **options):
    """Ranks as threads of this process."""
    groups = (c_void_p * ranks)()
    lib.ra_group_create_local(ranks, byref(c.GroupOptions(**options)), groups)
    return groups


class Plan(Ring):
    """A problem on a ring of in-process ranks. Reusable; one thread at a time.

    q_shape, k_shape: [batch, tokens, heads, dim]. Options: ring, partition, strategy, order, scale,
    softcap, alibi, dropout, memory, kernel, threads, device, backward, bias, any_order,
    query_offset, lengths, k_lengths, as docs/PYTHON.md says. A run that fails closes the plan: the
    group of its ranks is aborted.
    """

    def __init__(self, q_shape, k_shape=None, value_dim=None, dtype="float32", pattern="full",
                 **options):
        s = Setup(q_shape, k_shape, value_dim, dtype, pattern, **options)
        self.backward = bool(s.options.backward)
        self._out_shape = (s.batch, s.q_len, s.q_heads, s.value_dim)
        self._in_shapes = ((s.batch, s.q_len, s.q_heads, s.dim),
                           (s.batch, s.k_len, s.kv_heads, s.dim),
                           (s.batch, s.k_len, s.kv_heads, s.value_dim))
        self._q_index, self._q_bounds = s.shards(of_keys=False)
        self._k_index, self._k_bounds = s.shards(of_keys=True)
        super().__init__(s, local_groups(s.ring, threads=s.threads, device=c.text(s.device)))

    # ---- Runs ----

    def attend(self, q, k, v, *, bias=None, mask=None, sinks=None, seed=0, return_lse=False):
        """softmax(scale q k^T) v over the pattern: out, or (out, lse) with `return_lse`."""
        s = self._setup
        self._first()
        out = numpy.empty(self._out_shape, s.dtype)
        if bias is None and mask is None and sinks is None and seed == 0:
            lse = self._attend_plainly(q, k, v, out)
            if lse is not None:
                return (out, lse) if return_lse else out
        q, k, v = self._inputs(q, k, v)
        terms = self._terms(bias, mask, sinks, seed)
        keep, calls = [], []
        for rank in range(s.ring):
            rows, keys = self._rows(rank), self._keys(rank)
            lse = numpy.empty((s.batch, rows.stop - rows.start, s.q_heads), numpy.float32)
            args = c.AttendArgs(lse=address(lse), sinks=address(terms.sinks), dropout_seed=seed,
                                bias=terms.of_rows(rows))
            keep.append((args, lse, _set(args, q=q[:, rows], k=k[:, keys], v=v[:, keys]),
                         _set(args, out=out[:, rows])))
            calls.append(args)
        self._run(lib.ra_attend, calls)
        lse = numpy.concatenate([kept[1] for kept in keep], axis=1) if s.ring > 1 else keep[0][1]
        out, lse = _restored(out, self._q_index), _restored(lse, self._q_index)
        return (out, lse) if return_lse else out

    def _attend_plainly(self, q, k, v, out):
        """The short way: one rank, packed arrays, no terms. The lse, or None: not that case."""
        if self._setup.ring > 1 or self._q_index is not None:
            return None
        for x, shape in zip((q, k, v), self._in_shapes):
            if not is_packed(x, shape, self._setup.dtype):
                return None
        lse = numpy.empty(self._out_shape[:3], numpy.float32)
        args = c.AttendArgs(lse=address(lse))
        args.q.data, args.k.data, args.v.data = address(q), address(k), address(v)
        args.out.data = address(out)
        self._run(lib.ra_attend, [args])
        return lse

    def gradient(self, dout, q, k, v, out, lse, *, dlse=None, bias=None, mask=None, sinks=None,
                 seed=0, dbias=False) -> Gradients | GradientsAndBias:
        """dq, dk, dv and dsinks, and with dbias=True the gradient of the bias, for what `attend`
        returned."""
        s = self._setup
        self._first()
        if not self.backward:
            raise ArgumentError("this plan was made without backward=True")
        q, k, v = self._inputs(q, k, v)
        dout, out = (_taken(_typed(x, name, s.dtype, self._out_shape), self._q_index)
                     for x, name in ((dout, "dout"), (out, "out")))
        lse, dlse = (_taken(floats(x, name, self._out_shape[:3]), self._q_index)
                     for x, name in ((lse, "lse"), (dlse, "dlse")))
        dq, dk, dv = (numpy.empty(x.shape, s.dtype) for x in (q, k, v))
        terms = self._terms(bias, mask, sinks, seed)
        if dbias and bias is None:
            raise ArgumentError("dbias=True without a bias")
        keep, calls = [], []
        for rank in range(s.ring):
            rows, keys = self._rows(rank), self._keys(rank)
            own = [numpy.ascontiguousarray(x[:, rows]) if x is not None else None
                   for x in (lse, dlse)]
            dsinks = None if terms.sinks is None else numpy.zeros(s.q_heads, numpy.float32)
            args = c.GradientArgs(lse=address(own[0]), dlse=address(own[1]),
                                  sinks=address(terms.sinks), dsinks=address(dsinks),
                                  dropout_seed=seed, bias=terms.of_rows(rows),
                                  dbias=terms.gradient_of_rows(rows) if dbias else None)
            keep.append((args, own, dsinks,
                         _set(args, q=q[:, rows], k=k[:, keys], v=v[:, keys], out=out[:, rows],
                              dout=dout[:, rows]),
                         _set(args, dq=dq[:, rows], dk=dk[:, keys], dv=dv[:, keys])))
            calls.append(args)
        self._run(lib.ra_gradient, calls)
        every = [kept[2] for kept in keep]
        found = Gradients(_restored(dq, self._q_index), _restored(dk, self._k_index),
                          _restored(dv, self._k_index),
                          None if every[0] is None else numpy.sum(every, axis=0))
        return GradientsAndBias(*found, terms.gradient(self._q_index)) if dbias else found

    # ---- Inside ----

    def _rows(self, rank):
        return slice(self._q_bounds[rank], self._q_bounds[rank + 1])

    def _keys(self, rank):
        return slice(self._k_bounds[rank], self._k_bounds[rank + 1])

    def _inputs(self, q, k, v):
        s = self._setup
        return tuple(_taken(_typed(x, name, s.dtype, shape), index)
                     for x, name, shape, index in zip((q, k, v), "qkv", self._in_shapes,
                                                      (self._q_index, *2 * [self._k_index])))

    def _terms(self, bias, mask, sinks, seed):
        s = self._setup
        if bias is not None and mask is not None:
            raise ArgumentError("a bias and a mask at once; add -inf to the bias where the mask "
                                "hides a key")
        if (bias is not None or mask is not None) and not s.options.bias:
            raise ArgumentError("this plan was made without bias=True")
        if not 0 <= seed < 2 ** 64:
            raise ArgumentError(f"the seed is {seed}; it must fit in 64 bits")
        return _Terms(self, bias, mask, sinks)


class _Terms:
    """Bias or mask, and sinks, of a run."""

    def __init__(self, plan: Plan, bias, mask, sinks):
        s = plan._setup
        self.sinks = floats(sinks, "sinks", (s.q_heads,))
        self.array: Any = None
        self.sums: Any = None
        if bias is None and mask is None:
            return
        self.is_mask = mask is not None
        given = as_array(mask if self.is_mask else bias, "mask" if self.is_mask else "bias")
        if self.is_mask and given.dtype.kind not in "biu":
            raise ArgumentError(f"the mask is of dtype {given.dtype.name}; bool or an integer is "
                                "expected, where 0 hides a key. Numbers to add are a bias")
        if not self.is_mask and given.dtype.kind in "biu":
            raise ArgumentError(f"the bias is of dtype {given.dtype.name}; floating numbers are "
                                "expected. What hides keys is a mask")
        array = given.astype(bool) if self.is_mask else given
        array = numpy.ascontiguousarray(array, dtype=numpy.uint8 if self.is_mask else numpy.float32)
        array = array.reshape((1,) * (4 - array.ndim) + array.shape)
        self._given = given.shape, array.shape[2]
        if (array.ndim != 4 or array.shape[0] not in (1, s.batch) or
                array.shape[1] not in (1, s.q_heads) or array.shape[2] not in (1, s.q_len) or
                array.shape[3] != s.k_len):
            raise ArgumentError(f"the bias or mask has shape {given.shape}; [1 or {s.batch}, 1 or "
                                f"{s.q_heads}, 1 or {s.q_len}, {s.k_len}] is expected")
        if array.shape[2] != s.q_len:
            array = numpy.repeat(array, s.q_len, axis=2)
        if plan._q_index is not None:
            array = numpy.ascontiguousarray(array[:, :, plan._q_index])
        self.array = array

    def of_rows(self, rows) -> c.Bias:
        if self.array is None:
            return c.Bias()
        x = self.array
        strides = [stride // x.itemsize for stride in x.strides]
        return c.Bias(address(x) + rows.start * x.strides[2], int(self.is_mask), 0,
                      strides[0] if x.shape[0] > 1 else 0, strides[1] if x.shape[1] > 1 else 0,
                      strides[2])

    def gradient_of_rows(self, rows):
        """Where the gradient of these rows goes; strides are those of the bias."""
        if self.sums is None:
            self.sums = numpy.empty_like(self.array)
        return address(self.sums) + rows.start * self.sums.strides[2]

    def gradient(self, index):
        """In the shape that the bias was given in."""
        shape, rows = self._given
        sums = self.sums
        if index is not None:
            sums = numpy.empty_like(self.sums)
            sums[:, :, index] = self.sums
        return (sums if rows == sums.shape[2] else sums.sum(axis=2, keepdims=True)).reshape(shape)


def _typed(x, name, dtype, shape):
    array = as_array(x, name)
    if array.dtype != dtype:
        raise ArgumentError(f"{name} is of dtype {array.dtype.name}, but the plan is for "
                            f"{dtype.name}")
    if array.shape != shape:
        raise ArgumentError(f"{name} has shape {array.shape}, but the plan is for {shape}")
    return array


def _taken(array, index):
    """Rows in the order of the ring."""
    return array if index is None or array is None else array[:, index]


def _restored(array, index):
    if index is None:
        return array
    out = numpy.empty_like(array)
    out[:, index] = array
    return out


def _set(args, **arrays):
    """Sets tensors of a call; returns what must stay alive until it is done."""
    kept = []
    for name, array in arrays.items():
        array, tensor = readable(array)
        setattr(args, name, tensor)
        kept.append(array)
    return kept
