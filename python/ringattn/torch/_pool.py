# SPDX-License-Identifier: Apache-2.0
"""What is kept for the next calls: ranks with their threads, and the plans that were made on them."""
import collections
import os
import threading

import torch

from .._library import lib
from .._plan import local_groups
from .._resource import Owned
from ._ring import TensorRing
from ._tensors import group_options

_RINGS = 16  # of a crew
_IDLE = 8  # crews and decoders that wait for their next run, each with its threads


class Crew(Owned):
    """Ranks of this process with their threads, and the rings that were made on them. One run at a
    time."""

    def __init__(self, device: torch.device, ranks, threads, pool=None, mesh=None):
        super().__init__()
        self.mesh, self.closed = mesh, False
        self._rings: collections.OrderedDict = collections.OrderedDict()
        self._newest = (None, None)  # of the rings, with its key
        self.groups = [mesh.group] if mesh else list(local_groups(
            ranks, threads=threads, pool_threshold=0 if pool is None else pool % 2 ** 64,
            **group_options(device)))

    def known(self, key) -> TensorRing | None:
        """The ring of a problem that was made before."""
        newest, ring = self._newest
        if newest == key:  # often it is; to find it by its hash takes longer
            return ring
        ring = self._rings.get(key)
        if ring is not None:
            self._rings.move_to_end(key)
            self._newest = key, ring
        return ring

    def ring(self, key, make) -> TensorRing:
        """The ring of a problem, made before or now: make(groups)."""
        ring = self.known(key)
        if ring is None:
            ring = self._rings[key] = make(self.groups)
            self._newest = key, ring
            if len(self._rings) > _RINGS:
                self._rings.popitem(last=False)[1].close()
        return ring

    def release(self, key, ring, keep=True):
        """After a run. One that failed has ended the group of these ranks."""
        if ring.closed:
            self.close()
        elif not keep:
            self._newest = (None, None)
            self._rings.pop(key).close()

    def close(self):
        """Frees plans and threads; those of a mesh are its own."""
        if self.closed or not self.is_ours():
            return
        self.closed = True
        for ring in self._rings.values():
            ring.close()
        self._rings.clear()
        self._newest = (None, None)
        for group in () if self.mesh else self.groups:
            lib.ra_group_destroy(group)

    def __del__(self):
        if hasattr(self, "groups"):
            self.close()


class Pool:
    """Crews, and decoders, that do not run now. One is taken out for a run: threads never wait for
    one another, and there are as many as there are runs at once."""

    def __init__(self):
        self._lock = threading.Lock()
        self._idle: list = []  # (key, crew), the one used last at the end

    def take(self, key):
        """One that was made for the key; None: there is none now."""
        with self._lock:
            idle = self._idle
            for at in range(len(idle) - 1, -1, -1):
                if idle[at][0] == key:
                    return idle.pop(at)[1]
        return None

    def give(self, key, crew):
        if crew.closed:
            return
        gone = None
        with self._lock:
            self._idle.append((key, crew))
            if len(self._idle) > _IDLE:
                gone = self._idle.pop(0)[1]
        if gone is not None:
            gone.close()

    def clear(self):
        with self._lock:
            idle, self._idle = self._idle, []
        for _, crew in idle:
            crew.close()


_pool = Pool()


def _forget():
    """In a child of fork(): the rings are the parent's."""
    global _pool
    _pool = Pool()


os.register_at_fork(after_in_child=_forget)


def pool() -> Pool:
    return _pool


def clear() -> None:
    """Frees the plans that are kept for the next calls."""
    _pool.clear()
