# SPDX-License-Identifier: Apache-2.0
"""A cache of keys and values that grows token by token, and attention over it: for decoding."""
import numpy

from . import _library as c
from ._arrays import address, as_array, floats, is_packed, readable
from ._decoder import FEW, Decoder, cache_sequences, flat
from ._errors import ArgumentError
from ._plan import Plan
from ._resource import Resource
from ._setup import Setup


class Cache(Resource):
    """Keys and values of a batch of sequences, with room for `capacity` tokens of each.

    `append` adds tokens, `attend` computes attention of the last ones over all that are there, and
    `step` does both. With `counts`, the sequences get numbers of tokens of their own: the first
    counts[i] of the rows given for sequence i; what is computed for the others is 0. Nothing is
    planned or allocated by the library after the first call with so many queries; a query uses all
    threads. One thread at a time. The arrays outlive `close()`.
    """

    def __init__(self, capacity, heads, dim, *, kv_heads=None, value_dim=None, batch=1,
                 dtype="float32", pattern="causal", scale=None, softcap=0.0, alibi=None,
                 kernel=None, threads=None):
        super().__init__("cache")
        self._decoder = None
        kv_heads = heads if kv_heads is None else kv_heads
        self._options = {"pattern": pattern, "scale": scale, "softcap": softcap, "alibi": alibi,
                         "kernel": kernel, "threads": threads}
        self._setup = s = Setup((batch, 1, heads, dim), (batch, max(capacity, 1), kv_heads, dim),
                                value_dim, dtype, **self._options)
        self._k = numpy.zeros((batch, capacity, kv_heads, dim), s.dtype)
        self._v = numpy.zeros((batch, capacity, kv_heads, s.value_dim), s.dtype)
        # The library has the batch as packed sequences of one tensor, with gaps between them.
        self._tensors = [readable(flat(x))[1] for x in (self._k, self._v)]
        self._lengths = numpy.zeros(batch, numpy.int64)
        self._decoder = Decoder(s, capacity, kernel)
        self._one = _OneToken(self)

    def _destroy(self):
        if self._decoder:
            self._decoder.close()

    @property
    def capacity(self) -> int:
        return self._k.shape[1]

    @property
    def lengths(self) -> numpy.ndarray:
        """How many tokens each sequence has: [batch]; a copy."""
        return self._lengths.copy()

    @property
    def length(self) -> int:
        """Of the longest sequence."""
        return int(self._lengths.max())

    @property
    def keys(self) -> numpy.ndarray:
        """[batch, length, kv_heads, dim]; a view."""
        return self._k[:, :self.length]

    @property
    def values(self) -> numpy.ndarray:
        return self._v[:, :self.length]

    def truncate(self, length) -> None:
        """Forgets all tokens from `length` on: a number, or one for each sequence."""
        with self._turn:
            lengths = self._whole(length, "length")
            if (lengths > self._lengths).any():
                raise ArgumentError(f"the cache holds {_shown(self._lengths)} tokens, not "
                                    f"{_shown(lengths)}")
            self._lengths = lengths

    def append(self, k, v, *, counts=None) -> None:
        """Adds the keys and values of new tokens: [batch, tokens, kv_heads, dim]."""
        with self._turn:
            self._append(k, v, counts)

    def attend(self, q, *, counts=None, sinks=None, return_lse=False):
        """Attention of the last tokens, whose queries these are: [batch, tokens, heads, dim]."""
        with self._turn:
            out, lse = self._attend(q, counts, sinks)
        return (out, lse) if return_lse else out

    def step(self, q, k, v, *, counts=None, sinks=None, return_lse=False):
        """New tokens: their keys and values are added, then their queries attend. If that fails, no
        token was added."""
        with self._turn:
            before = self._lengths
            try:
                if counts is None and sinks is None and self._one.takes(q, k, v):
                    out, lse = self._one.step(self, q, k, v)
                else:
                    self._append(k, v, counts)
                    out, lse = self._attend(q, counts, sinks)
            except BaseException:
                self._lengths = before
                raise
        return (out, lse) if return_lse else out

    # ---- Inside ----

    def _whole(self, numbers, name):
        """A number for each sequence, or one for all."""
        array = numpy.asarray(numbers)
        if array.shape not in ((), self._lengths.shape) or array.dtype.kind not in "iu" or \
                array.min() < 0:
            raise ArgumentError(f"{name} is {numbers}; a whole number is expected, or one for each "
                                f"of {self._setup.batch} sequences")
        return numpy.broadcast_to(array, self._lengths.shape).astype(numpy.int64)

    def _counts(self, counts, tokens):
        """How many of the rows given for each sequence are tokens."""
        if counts is None:
            return numpy.full_like(self._lengths, tokens)
        counts = self._whole(counts, "counts")
        if (counts > tokens).any():
            raise ArgumentError(f"counts is {_shown(counts)}, but there are {tokens} tokens")
        return counts

    def _check_room(self, ends):
        if ends.max() > self.capacity:
            raise ArgumentError(f"the cache has room for {self.capacity} tokens, not for "
                                f"{ends.max()}")

    def _append(self, k, v, counts):
        k, v = as_array(k, "k"), as_array(v, "v")
        tokens = k.shape[1] if k.ndim == 4 else 0
        for mine, x, name in ((self._k, k, "k"), (self._v, v, "v")):
            if x.ndim != 4 or x.dtype != mine.dtype or \
                    x.shape != (mine.shape[0], tokens, *mine.shape[2:]):
                raise ArgumentError(f"{name} is {x.dtype.name} of shape {x.shape}; {mine.dtype.name} "
                                    f"of shape [{mine.shape[0]}, tokens, {mine.shape[2]}, "
                                    f"{mine.shape[3]}] is expected, as many tokens of k as of v")
        counts = self._counts(counts, tokens)
        ends = self._lengths + counts
        self._check_room(ends)
        for item, (start, end, count) in enumerate(zip(self._lengths, ends, counts)):
            self._k[item, start:end] = k[item, :count]
            self._v[item, start:end] = v[item, :count]
        self._lengths = ends

    def _attend(self, q, counts, sinks):
        s = self._setup
        self.must_be_ours()
        if self._decoder.closed:
            raise ArgumentError("this cache is closed")
        q = as_array(q, "q")
        if q.ndim != 4 or (q.shape[0], *q.shape[2:]) != (s.batch, s.q_heads, s.dim) or \
                q.dtype != s.dtype:
            raise ArgumentError(f"q is {q.dtype.name} of shape {q.shape}; {s.dtype.name} of shape "
                                f"[{s.batch}, tokens, {s.q_heads}, {s.dim}] is expected")
        sinks = floats(sinks, "sinks", (s.q_heads,))
        tokens = q.shape[1]
        sequences = cache_sequences(tokens, self._counts(counts, tokens), self.capacity,
                                    self._lengths)
        if tokens > FEW:
            return self._attend_prompt(q, sequences, sinks)
        q, q_tensor = readable(flat(q))
        out = numpy.empty((s.batch, tokens, s.q_heads, s.value_dim), s.dtype)
        lse = numpy.empty(out.shape[:3], numpy.float32)
        self._decoder.attend(tokens, sequences, q_tensor, *self._tensors,
                             c.Tensor(address(out), 0, 0, 0), address(lse), address(sinks))
        return out, lse

    def _attend_prompt(self, q, sequences, sinks):
        s = self._setup
        with Plan(flat(q).shape, flat(self._k).shape, s.value_dim, s.dtype,
                  sequences=sequences, **self._options) as plan:
            out, lse = plan.attend(flat(q), flat(self._k), flat(self._v), sinks=sinks,
                                   return_lse=True)
        return out.reshape(*q.shape[:3], s.value_dim), lse.reshape(q.shape[:3])


class _OneToken:
    """The short way of `Cache.step`: one new token of each sequence, packed arrays. What does not
    change from token to token is made once."""

    def __init__(self, cache):
        s = cache._setup
        self._shapes = ((s.batch, 1, s.q_heads, s.dim), (s.batch, 1, *cache._k.shape[2:]),
                        (s.batch, 1, *cache._v.shape[2:]))
        self._sequences = cache_sequences(1, [1] * s.batch, cache.capacity, cache._lengths)
        self._items, self._dtype = numpy.arange(s.batch), s.dtype
        self._q, self._out = c.Tensor(), c.Tensor()  # strides of 0: packed

    def takes(self, *tensors):
        for x, shape in zip(tensors, self._shapes):
            if not is_packed(x, shape, self._dtype):
                return False
        return True

    def step(self, cache, q, k, v):
        s = cache._setup
        places, ends = (self._items, cache._lengths), cache._lengths + 1
        cache._check_room(ends)
        cache._k[places], cache._v[places] = k[:, 0], v[:, 0]
        cache._lengths = self._sequences[:, 3] = ends
        out = numpy.empty((s.batch, 1, s.q_heads, s.value_dim), s.dtype)
        lse = numpy.empty(out.shape[:3], numpy.float32)
        self._q.data, self._out.data = address(q), address(out)
        cache._decoder.attend(1, self._sequences, self._q, *cache._tensors, self._out, address(lse))
        return out, lse


def _shown(numbers):
    """One number where all are the same."""
    return str(numbers[0]) if (numbers == numbers[0]).all() else str(numbers.tolist())
