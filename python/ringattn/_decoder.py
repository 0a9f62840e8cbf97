# SPDX-License-Identifier: Apache-2.0
"""Few queries of each sequence of a batch against caches of keys and values: states of the library,
which are not planned again as caches grow."""
from ctypes import byref

import numpy

from . import _library as c
from ._arrays import address
from ._errors import ArgumentError
from ._library import lib
from ._plan import local_groups
from ._resource import Handle, Resource
from ._setup import Setup

FEW = 16  # queries of a sequence at a time; more are a prompt, for a plan


def cache_sequences(tokens, counts, capacity, lengths) -> numpy.ndarray:
    """Of tensors [batch x tokens] of queries and [batch x capacity] of keys, what belongs to each
    item: the first counts[i] of its queries, the first lengths[i] of its keys."""
    items = numpy.arange(len(lengths))
    columns = (items * tokens, counts, items * capacity, lengths)
    return numpy.ascontiguousarray(numpy.stack(columns, axis=1), dtype=numpy.int64)


def flat(x):
    """Arrays or tensors [batch, tokens, ...] as [1, batch x tokens, ...]; a view where strides
    allow."""
    return x.reshape(1, x.shape[0] * x.shape[1], *x.shape[2:])


class Decoder(Resource):
    """States for problems of one kind, one for each number of queries, on the threads of one group.

    setup: of one sequence, whose batch is that of the caches. Nothing is allocated after the first
    call with so many queries.
    """

    def __init__(self, setup: Setup, capacity: int, kernel=None):
        super().__init__("cache")
        self._setup, self._capacity, self._kernel = setup, capacity, kernel
        self._states: dict[int, Handle] = {}
        self._groups = local_groups(1, threads=setup.threads)
        self._state(1)  # what is wrong with the problem is said here

    def _destroy(self):
        states, self._states = self._states, {}
        for state in states.values():
            state.close()
        groups, self._groups = self._groups, None
        if groups:
            lib.ra_group_destroy(groups[0])

    @property
    def closed(self) -> bool:
        return not self._groups

    def attend(self, tokens, sequences, q, k, v, out, lse, sinks=None):
        """Tensors of the library, with the batch as packed sequences; lse and sinks are addresses."""
        with self._turn:
            self.must_be_ours()
            if self.closed:
                raise ArgumentError("this cache is closed")
            state = self._states.get(tokens) or self._state(tokens)
            lib.ra_state_init(state.value)
            lib.ra_state_set_sequences(state.value, address(sequences))
            lib.ra_state_fold(state.value, byref(q), byref(k), byref(v), 0,
                              self._setup.batch * self._capacity)
            if sinks is None:
                lib.ra_state_finish(state.value, byref(out), lse)
            else:
                lib.ra_state_finish_sinks(state.value, sinks, byref(out), lse)

    def _state(self, tokens):
        """A new state. What is wrong with a pattern shows in sequences that are full."""
        s = self._setup
        full = cache_sequences(tokens, [min(tokens, self._capacity)] * s.batch, self._capacity,
                               [self._capacity] * s.batch)
        problem = c.Problem.from_buffer_copy(s.problem)
        problem.batch, problem.q_len = 1, s.batch * tokens
        problem.k_len = s.batch * self._capacity or c.NO_KEYS
        problem.sequences, problem.sequence_count = address(full), s.batch
        state = Handle(lambda out: lib.ra_state_create(byref(problem), c.text(self._kernel), out),
                       lib.ra_state_destroy)
        lib.ra_state_use_group(state.value, self._groups[0])
        self._states[tokens] = state
        return state
