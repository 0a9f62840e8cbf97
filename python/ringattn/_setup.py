# SPDX-License-Identifier: Apache-2.0
"""A problem and the options of its plans, as the C library takes them."""
import itertools
import operator
from ctypes import byref

import numpy

from . import _library as c
from ._arrays import address, dtype_of, floats
from ._errors import ArgumentError
from ._library import lib
from ._resource import Handle


def bytes_of(memory) -> int:
    """A number of bytes: an int, or a text such as "512M" (K, M, G, T are powers of 1024)."""
    if memory is None:
        return 0
    text = str(memory).strip()
    unit = "KMGT".find(text[-1:].upper()) + 1 if text else 0
    try:
        number = float(text[:-1] if unit else text)
    except ValueError:
        number = -1.0
    if not 1 <= number * 1024 ** unit < 2 ** 63:
        raise ArgumentError(f'memory is "{memory}"; a number of bytes, or one with K, M, G or T, is '
                            "expected")
    return int(number * 1024 ** unit)


def whole(value, name, least, most):
    """An int as the library takes it: ctypes would cut off what is too large."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} is {value!r}; a whole number is expected") from None
    if not least <= number <= most:
        raise ArgumentError(f"{name} is {number}; a number from {least} to {most} is expected")
    return number


class Setup:
    """A problem and the options of its plans, as the C library takes them."""

    def __init__(self, q_shape, k_shape=None, value_dim=None, dtype="float32", pattern="full", *,
                 ring=1, partition=None, strategy=None, order=None, scale=None, softcap=0.0,
                 alibi=None, dropout=0.0, memory=None, kernel=None, threads=None, device=None,
                 backward=False, bias=False, any_order=False, query_offset=0, lengths=None,
                 k_lengths=None, sequences=None, counts=False):
        k_shape = q_shape if k_shape is None else k_shape
        for shape, name in ((q_shape, "q"), (k_shape, "k")):
            if len(shape) != 4:
                raise ArgumentError(f"{name} has shape {tuple(shape)}; [batch, tokens, heads, dim] "
                                    "is expected")
        self.batch, self.q_len, self.q_heads, self.dim = (int(x) for x in q_shape)
        batch, self.k_len, self.kv_heads, dim = (int(x) for x in k_shape)
        self.value_dim = self.dim if value_dim is None else int(value_dim)
        if (batch, dim) != (self.batch, self.dim):
            raise ArgumentError(f"q is {tuple(q_shape)} and k is {tuple(k_shape)}: batch and dim "
                                "must be the same")
        if min(self.batch, self.q_heads, self.kv_heads, self.dim, self.value_dim) < 1 or \
                min(self.q_len, self.k_len) < 0:
            raise ArgumentError(f"q is {tuple(q_shape)}, k is {tuple(k_shape)}, the value dim is "
                                f"{self.value_dim}: only tokens may be 0")
        self.ring, self.partition = whole(ring, "ring", 1, 2 ** 31 - 1), partition
        if scale is not None and numpy.float32(scale) == 0:
            raise ArgumentError(f"the scale {scale} is 0 in f32, which the library takes for "
                                "1/sqrt(dim); leave it out for that")
        self.dtype, code = None, dtype  # a number: of tensors that NumPy need not know
        if not isinstance(dtype, int):
            self.dtype = numpy.dtype(_ml_dtype(dtype)).newbyteorder("=")
            code = dtype_of(numpy.empty(0, self.dtype), "dtype")
        self.pattern = Handle(lambda out: lib.ra_pattern_parse(c.text(pattern), out),
                              lib.ra_pattern_destroy)
        self.order = None
        if order is not None:
            self.order = Handle(lambda out: lib.ra_order_parse(c.text(order), self.k_len, out),
                                lib.ra_order_destroy)
        self.alibi = floats(alibi, "alibi", (self.q_heads,))
        self.problem = c.Problem(
            pattern=self.pattern.value, order=self.order.value if self.order else None,
            alibi=address(self.alibi), batch=self.batch, q_len=self.q_len,
            k_len=self.k_len or c.NO_KEYS, dropout=dropout, dtype=code, q_heads=self.q_heads,
            kv_heads=self.kv_heads, dim=self.dim, value_dim=self.value_dim, scale=scale or 0.0,
            softcap=softcap,
            query_offset=whole(query_offset, "query_offset", -2 ** 63, 2 ** 63 - 1))
        self.sequences = None if sequences is None else _checked(sequences)
        if lengths is not None or k_lengths is not None:
            self.sequences = packed(lengths, k_lengths, self.q_len, self.k_len)
        if self.sequences is not None:
            self.problem.sequences = address(self.sequences)
            self.problem.sequence_count = len(self.sequences)
        self.options = c.PlanOptions(
            strategy=c.text(strategy), partition=c.text(partition), kernel=c.text(kernel),
            memory=bytes_of(memory), backward=bool(backward), bias=bool(bias),
            any_order=bool(any_order), counts=bool(counts))
        self.threads = whole(threads or 0, "threads", 0, 2 ** 31 - 1)
        self.device = device

    def flops(self) -> float:
        """Of a forward run in which all is seen."""
        return 4.0 * self.batch * self.q_len * self.k_len * self.q_heads * self.dim

    def _layout(self, of_keys, out):
        length = self.k_len if of_keys else self.q_len
        if self.sequences is None:
            return lib.ra_layout_create(c.text(self.partition), length, self.ring,
                                        self.pattern.value, out)
        starts = self.sequences[1:, 2 if of_keys else 0]
        bounds = numpy.array([0, *starts, length], numpy.int64)
        return lib.ra_layout_create_parts(c.text(self.partition), address(bounds), len(bounds),
                                          self.ring, out)

    def shards(self, of_keys):
        """Which query, or key, is where on the ring, rank after rank (None: all are in their
        places), and where the rows of each rank start, with the end."""
        length = self.k_len if of_keys else self.q_len
        layout = Handle(lambda out: self._layout(of_keys, out), lib.ra_layout_destroy)
        counts = [lib.ra_layout_count(layout.value, rank) for rank in range(self.ring)]
        bounds = [0, *itertools.accumulate(counts)]
        if self.ring == 1 and not self.order:
            return None, bounds
        positions = numpy.arange(length, dtype=numpy.int64)
        if self.order and length == self.k_len:
            positions = _permuted(lib.ra_order_permute, self.order, positions)
        return _permuted(lib.ra_layout_permute, layout, positions), bounds


def packed(lengths, k_lengths, q_len, k_len):
    """Sequences one after the other, as ra_sequence has them: first query, queries, first key,
    keys. k_lengths None: as many keys as queries."""
    if lengths is None:
        raise ArgumentError("k_lengths is given without lengths")
    sides = [_lengths(lengths, "lengths", q_len, "queries"),
             _lengths(lengths if k_lengths is None else k_lengths,
                      "lengths" if k_lengths is None else "k_lengths", k_len, "keys")]
    if len(sides[0]) != len(sides[1]):
        raise ArgumentError(f"there are {len(sides[0])} lengths, but {len(sides[1])} k_lengths")
    columns = [column for side in sides for column in (numpy.cumsum(side) - side, side)]
    return numpy.ascontiguousarray(numpy.stack(columns, axis=1))


def _checked(sequences):
    """As ra_sequence has them."""
    array = numpy.asarray(sequences)
    if array.ndim != 2 or array.shape[1] != 4 or not len(array) or array.dtype.kind not in "iu":
        raise ArgumentError(f"sequences are of shape {array.shape} and dtype {array.dtype.name}; "
                            "whole numbers [count, 4] are expected: first query, queries, first "
                            "key, keys")
    return numpy.ascontiguousarray(array, numpy.int64)


def _lengths(given, name, tokens, what):
    array = numpy.asarray(given)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise ArgumentError(f"{name} is of shape {array.shape} and dtype {array.dtype.name}; whole "
                            "numbers, one for each sequence, are expected")
    if array.min() < 0 or array.sum() != tokens:
        raise ArgumentError(f"{name} add up to {array.sum()}, with {array.min()} as the smallest; "
                            f"there are {tokens} {what}")
    return array.astype(numpy.int64)


def _ml_dtype(dtype):
    """numpy knows bfloat16 only once ml_dtypes is there."""
    if str(dtype) == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as error:
            raise ArgumentError("bfloat16 needs the package ml_dtypes") from error
        return ml_dtypes.bfloat16
    return dtype


def _permuted(function, handle, positions):
    out = numpy.empty_like(positions)
    array = c.Array(address(positions), address(out), 1, positions.itemsize)
    function(handle.value, byref(array), 1)
    return out
