# SPDX-License-Identifier: Apache-2.0
"""Processes of torch.distributed as the ranks of a ring: messages by its point-to-point calls."""
import atexit
import ctypes
import datetime
import itertools
import os
from ctypes import byref, c_void_p

import torch
import torch.distributed as dist

from .. import _library as c
from .._errors import ArgumentError, UnsupportedError
from .._library import lib
from .._resource import Owned

_PEER, _TIMEOUT = 7, 6  # of ra_status
_meshes: dict = {}
_numbers = itertools.count()


class Mesh(Owned):
    """A process group whose processes are the ranks of a ring. Every process makes it; calls with it
    are collective, like those of torch.distributed. `name` is what operators know it by."""

    def __init__(self, group=None, *, threads=None, timeout=1800.0):
        super().__init__()
        if not dist.is_initialized():
            raise ArgumentError("torch.distributed is not initialized; call init_process_group() "
                                "first, as torchrun jobs do")
        self.process_group = dist.group.WORLD if group is None else group
        backend = _backend(self.process_group)
        if backend != "gloo":
            raise UnsupportedError(f"a process group of {backend}: tensors of CPUs over gloo are "
                                   "what works today")
        self.ranks = dist.get_world_size(self.process_group)
        self.rank = dist.get_rank(self.process_group)
        self._peers = [dist.get_global_rank(self.process_group, rank) for rank in range(self.ranks)]
        self._tickets: dict[int, list] = {}
        self._next = 0
        self._interruption = None
        self._callbacks = c.TransportCallbacks(post=c.POST(self._post), wait=c.WAIT(self._wait))
        self.group = c_void_p()
        options = c.GroupOptions(threads=int(threads or self._fair_threads()), timeout=timeout)
        lib.ra_group_create_custom(self.ranks, self.rank, byref(self._callbacks), byref(options),
                                   byref(self.group))
        self.name = f"mesh-{next(_numbers)}"
        _meshes[self.name] = self

    def _fair_threads(self):
        """The cores of this machine, shared by the processes that torchrun started on it."""
        here = int(os.environ.get("LOCAL_WORLD_SIZE", self.ranks))
        return max(1, len(os.sched_getaffinity(0)) // max(here, 1))

    def peer(self, rank):
        """The number of a rank among all processes, as torch.distributed counts them."""
        return self._peers[rank]

    def whole_shapes(self, q, k):
        """Shapes over all ranks, where each has as many tokens."""
        return tuple((x[0], x[1] * self.ranks, *x[2:]) for x in (q, k))

    def close(self):
        """Frees the group; plans that were made on it can no longer run."""
        _meshes.pop(self.name, None)
        if self.group and self.is_ours():
            lib.ra_group_destroy(self.group)
        self.group, self.process_group = c_void_p(), None

    # ---- Messages ----

    def _post(self, _context, sends, send_count, recvs, recv_count, ticket):
        try:
            works = [dist.irecv(_bytes_at(recvs[i]), self._peers[recvs[i].peer], tag=recvs[i].tag,
                                group=self.process_group)
                     for i in range(recv_count) if recvs[i].bytes]
            works += [dist.isend(_bytes_at(sends[i]), self._peers[sends[i].peer], tag=sends[i].tag,
                                 group=self.process_group)
                      for i in range(send_count) if sends[i].bytes]
        except BaseException as error:  # none may pass through C
            return self._failed(error)
        self._next += 1
        self._tickets[self._next] = works
        ticket[0] = self._next
        return 0

    def _wait(self, _context, ticket, timeout):
        try:
            for work in self._tickets.pop(ticket, ()):
                if timeout > 0:
                    work.wait(datetime.timedelta(seconds=timeout))
                else:
                    work.wait()
        except BaseException as error:
            return self._failed(error)
        return 0

    def _failed(self, error):
        """Tells the library. What is no failure of a message, such as Ctrl-C, is raised again when
        the call has ended."""
        if not isinstance(error, Exception):
            self._interruption = error
        late = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        return lib.ra_transport_error(_TIMEOUT if late else _PEER, _sentence(error))

    def interruption(self):
        """What was raised during the last call, once."""
        raised, self._interruption = self._interruption, None
        return raised


def _sentence(error):
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return f"torch.distributed: {first}".encode()


def _backend(group):
    """What carries tensors of CPUs."""
    try:
        return group._get_backend(torch.device("cpu")).name().lower()
    except (AttributeError, RuntimeError):
        return dist.get_backend(group)


def _bytes_at(message):
    memory = (ctypes.c_char * message.bytes).from_address(message.data)
    return torch.frombuffer(memory, dtype=torch.uint8)


def mesh_of(name):
    if name is None:
        return None
    if name not in _meshes:
        raise ArgumentError(f"the mesh {name} was closed")
    return _meshes[name]


_by_group: dict = {}


@atexit.register
def _close_all():
    """Threads of a process group end with the last reference to it, which must be gone before the
    interpreter is."""
    for mesh in list(_meshes.values()):
        mesh.close()
    _by_group.clear()


def mesh_for(group):
    """The mesh of a process group, made once; every process of it must come here alike."""
    if isinstance(group, Mesh):
        return group
    key = dist.group.WORLD if group is None and dist.is_initialized() else group
    mesh = _by_group.get(key)
    if mesh is None or not mesh.group or not mesh.is_ours():
        mesh = _by_group[key] = Mesh(group)
    return mesh

