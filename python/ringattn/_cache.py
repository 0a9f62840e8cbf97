# SPDX-License-Identifier: Apache-2.0
"""A cache of keys and values that grows token by token, and attention over it: for decoding."""
from ctypes import byref, c_void_p

import numpy

from . import _library as c
from ._arrays import address, as_array, floats, readable
from ._errors import ArgumentError
from ._functions import attention
from ._library import Handle, lib
from ._plan import Setup

_FEW = 16  # queries at a time that a state is kept for; more are a prompt


class Cache:
    """Keys and values of a batch of sequences, with room for `capacity` tokens.

    `append` adds tokens, `attend` computes attention of the last ones over all that are there, and
    `step` does both. Nothing is planned or allocated by the library after the first call with so
    many queries; a query uses all threads.
    """

    def __init__(self, capacity, heads, dim, *, kv_heads=None, value_dim=None, batch=1,
                 dtype="float32", pattern="causal", scale=None, softcap=0.0, alibi=None,
                 kernel=None, threads=None):
        kv_heads = heads if kv_heads is None else kv_heads
        self._options = {"pattern": pattern, "scale": scale, "softcap": softcap, "alibi": alibi,
                         "kernel": kernel, "threads": threads}
        self._setup = s = Setup((batch, 1, heads, dim), (batch, max(capacity, 1), kv_heads, dim),
                                value_dim, dtype, **self._options)
        self._k = numpy.zeros((batch, capacity, kv_heads, dim), s.dtype)
        self._v = numpy.zeros((batch, capacity, kv_heads, s.value_dim), s.dtype)
        self._tensors = [readable(x)[1] for x in (self._k, self._v)]
        self._states: dict[int, Handle] = {}
        self._groups = (c_void_p * 1)()
        options = c.GroupOptions(threads=s.threads)
        lib.ra_group_create_local(1, byref(options), self._groups)
        self.length = 0

    def close(self):
        """Frees threads and states. The arrays stay."""
        for state in self._states.values():
            state.close()
        self._states = {}
        lib.ra_group_destroy(self._groups[0])
        self._groups[0] = None

    def __del__(self):
        if getattr(self, "_groups", None) is not None and lib is not None:
            self.close()

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
        if not 0 <= length <= self.length:
            raise ArgumentError(f"the cache holds {self.length} tokens, not {length}")
        self.length = int(length)

    def append(self, k, v) -> None:
        """Adds the keys and values of new tokens: [batch, tokens, kv_heads, dim]."""
        k, v = as_array(k, "k"), as_array(v, "v")
        end = self.length + (k.shape[1] if k.ndim == 4 else 0)
        if end > self.capacity:
            raise ArgumentError(f"the cache has room for {self.capacity} tokens, not for {end}")
        for mine, x, name in ((self._k, k, "k"), (self._v, v, "v")):
            want = (mine.shape[0], end - self.length, *mine.shape[2:])
            if x.shape != want or x.dtype != mine.dtype:
                raise ArgumentError(f"{name} is {x.dtype.name} of shape {x.shape}; {mine.dtype.name} "
                                    f"of shape {want} is expected")
            mine[:, self.length:end] = x
        self.length = end

    def attend(self, q, *, sinks=None, return_lse=False):
        """Attention of the last tokens, whose queries these are: [batch, tokens, heads, dim]."""
        s = self._setup
        q = as_array(q, "q")
        if q.ndim != 4 or (q.shape[0], *q.shape[2:]) != (s.batch, s.q_heads, s.dim) or \
                q.dtype != s.dtype:
            raise ArgumentError(f"q is {q.dtype.name} of shape {q.shape}; {s.dtype.name} of shape "
                                f"[{s.batch}, tokens, {s.q_heads}, {s.dim}] is expected")
        if q.shape[1] > _FEW or self.length == 0:
            out, lse = attention(q, self.keys, self.values, sinks=sinks, return_lse=True,
                                 **self._options)
        else:
            out, lse = self._fold(q, floats(sinks, "sinks", (s.q_heads,)))
        return (out, lse) if return_lse else out

    def step(self, q, k, v, **options):
        """New tokens: their keys and values are added, then their queries attend."""
        self.append(k, v)
        return self.attend(q, **options)

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
