# SPDX-License-Identifier: Apache-2.0
"""A cache of keys and values that grows token by token, and attention over it: for decoding."""
from ctypes import byref, c_void_p

import numpy

from . import _library as c
from ._arrays import address, as_array, floats, readable
from ._errors import ArgumentError
from ._functions import attention
from ._library import lib
from ._plan import Setup
from ._resource import Handle, Resource

_FEW = 16  # queries at a time that a state is kept for; more are a prompt


class Cache(Resource):
    """Keys and values of a batch of sequences, with room for `capacity` tokens.

    `append` adds tokens, `attend` computes attention of the last ones over all that are there, and
    `step` does both. Nothing is planned or allocated by the library after the first call with so
    many queries; a query uses all threads. One thread at a time. The arrays outlive `close()`.
    """

    def __init__(self, capacity, heads, dim, *, kv_heads=None, value_dim=None, batch=1,
                 dtype="float32", pattern="causal", scale=None, softcap=0.0, alibi=None,
                 kernel=None, threads=None):
        super().__init__("cache")
        self._states: dict[int, Handle] = {}
        self._groups = None
        kv_heads = heads if kv_heads is None else kv_heads
        self._options = {"pattern": pattern, "scale": scale, "softcap": softcap, "alibi": alibi,
                         "kernel": kernel, "threads": threads}
        self._setup = s = Setup((batch, 1, heads, dim), (batch, max(capacity, 1), kv_heads, dim),
                                value_dim, dtype, **self._options)
        self._k = numpy.zeros((batch, capacity, kv_heads, dim), s.dtype)
        self._v = numpy.zeros((batch, capacity, kv_heads, s.value_dim), s.dtype)
        self._tensors = [readable(x)[1] for x in (self._k, self._v)]
        options = c.GroupOptions(threads=s.threads)
        groups = (c_void_p * 1)()
        lib.ra_group_create_local(1, byref(options), groups)
        self._groups = groups
        self.length = 0
        self._new_state(1)  # what is wrong with the problem is said here

    def _destroy(self):
        for state in self._states.values():
            state.close()
        self._states = {}
        groups, self._groups = self._groups, None
        if groups:
            lib.ra_group_destroy(groups[0])

    @property
    def capacity(self) -> int:
        return self._k.shape[1]

    @property
    def keys(self) -> numpy.ndarray:
        """[batch, length, kv_heads, dim]; a view."""
        return self._k[:, :self.length]

    @property
    def values(self) -> numpy.ndarray:
        return self._v[:, :self.length]

    def truncate(self, length) -> None:
        """Forgets all tokens from `length` on."""
        with self._turn:
            if not 0 <= length <= self.length:
                raise ArgumentError(f"the cache holds {self.length} tokens, not {length}")
            self.length = int(length)

    def append(self, k, v) -> None:
        """Adds the keys and values of new tokens: [batch, tokens, kv_heads, dim]."""
        with self._turn:
            self._append(k, v)

    def attend(self, q, *, sinks=None, return_lse=False):
        """Attention of the last tokens, whose queries these are: [batch, tokens, heads, dim]."""
        with self._turn:
            out, lse = self._attend(q, sinks)
        return (out, lse) if return_lse else out

    def step(self, q, k, v, *, sinks=None, return_lse=False):
        """New tokens: their keys and values are added, then their queries attend. If that fails, no
        token was added."""
        with self._turn:
            before = self.length
            try:
                self._append(k, v)
                out, lse = self._attend(q, sinks)
            except BaseException:
                self.length = before
                raise
        return (out, lse) if return_lse else out

    # ---- Inside ----

    def _append(self, k, v):
        k, v = as_array(k, "k"), as_array(v, "v")
        tokens = k.shape[1] if k.ndim == 4 else 0
        for mine, x, name in ((self._k, k, "k"), (self._v, v, "v")):
            if x.ndim != 4 or x.dtype != mine.dtype or \
                    x.shape != (mine.shape[0], tokens, *mine.shape[2:]):
                raise ArgumentError(f"{name} is {x.dtype.name} of shape {x.shape}; {mine.dtype.name} "
                                    f"of shape [{mine.shape[0]}, tokens, {mine.shape[2]}, "
                                    f"{mine.shape[3]}] is expected, as many tokens of k as of v")
        end = self.length + tokens
        if end > self.capacity:
            raise ArgumentError(f"the cache has room for {self.capacity} tokens, not for {end}")
        self._k[:, self.length:end] = k
        self._v[:, self.length:end] = v
        self.length = end

    def _attend(self, q, sinks):
        s = self._setup
        self.must_be_ours()
        if not self._groups:
            raise ArgumentError("this cache is closed")
        q = as_array(q, "q")
        if q.ndim != 4 or (q.shape[0], *q.shape[2:]) != (s.batch, s.q_heads, s.dim) or \
                q.dtype != s.dtype:
            raise ArgumentError(f"q is {q.dtype.name} of shape {q.shape}; {s.dtype.name} of shape "
                                f"[{s.batch}, tokens, {s.q_heads}, {s.dim}] is expected")
        if not 0 < q.shape[1] <= _FEW or self.length == 0:
            return attention(q, self.keys, self.values, sinks=sinks, return_lse=True,
                             **self._options)
        return self._fold(q, floats(sinks, "sinks", (s.q_heads,)))

    def _fold(self, q, sinks):
        s = self._setup
        state = self._states.get(q.shape[1]) or self._new_state(q.shape[1])
        q, q_tensor = readable(q)
        out = numpy.empty((*q.shape[:3], s.value_dim), s.dtype)
        lse = numpy.empty(q.shape[:3], numpy.float32)
        to = c.Tensor(address(out), 0, 0, 0)
        lib.ra_state_init(state.value)
        lib.ra_state_set_keys(state.value, self.length)
        lib.ra_state_fold(state.value, byref(q_tensor), byref(self._tensors[0]),
                          byref(self._tensors[1]), 0, self.length)
        if sinks is None:
            lib.ra_state_finish(state.value, byref(to), address(lse))
        else:
            lib.ra_state_finish_sinks(state.value, address(sinks), byref(to), address(lse))
        return out, lse

    def _new_state(self, queries):
        s = self._setup
        problem = c.Problem.from_buffer_copy(s.problem)
        problem.q_len, problem.k_len = queries, max(self.length, 1)
        state = Handle(lambda out: lib.ra_state_create(byref(problem),
                                                       c.text(self._options["kernel"]), out),
                       lib.ra_state_destroy)
        lib.ra_state_use_group(state.value, self._groups[0])
        self._states[queries] = state
        return state
