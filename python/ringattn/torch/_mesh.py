# SPDX-License-Identifier: Apache-2.0
"""Processes of torch.distributed as the ranks of a ring: messages by its point-to-point calls, or, of
GPUs that NCCL connects, by the library itself."""
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
from . import _nccl
from ._tensors import group_options

_PEER, _TIMEOUT = 7, 6  # of ra_status
_meshes: dict = {}
_numbers = itertools.count()


class Mesh(Owned):
    """A process group whose processes are the ranks of a ring, for tensors on one device of each.
    Every process makes it; calls with it are collective, like those of torch.distributed. `name` is
    what operators know it by.

    Messages of GPUs over gloo go through memory of the host, so processes may share a GPU.
    """

    def __init__(self, group=None, *, device="cpu", threads=None, timeout=1800.0):
        super().__init__()
        if not dist.is_initialized():
            raise ArgumentError("torch.distributed is not initialized; call init_process_group() "
                                "first, as torchrun jobs do")
        self.process_group = dist.group.WORLD if group is None else group
        self.device = _with_index(torch.device(device))
        backend = _backend(self.process_group, self.device)
        self._carrier = self.device if backend == "nccl" else torch.device("cpu")
        self.ranks = dist.get_world_size(self.process_group)
        self.rank = dist.get_rank(self.process_group)
        self._peers = [dist.get_global_rank(self.process_group, rank) for rank in range(self.ranks)]
        self._tickets: dict[int, list] = {}
        self._next = 0
        self._interruption = None
        self.closed = False
        self._callbacks = c.TransportCallbacks(post=c.POST(self._post), wait=c.WAIT(self._wait))
        self.group = c_void_p()
        options = c.GroupOptions(threads=int(threads or self._fair_threads()), timeout=timeout,
                                 **group_options(self.device))
        if backend == "nccl":
            _nccl.join(self, options, self.group)
        else:
            lib.ra_group_create_custom(self.ranks, self.rank, byref(self._callbacks),
                                       byref(options), byref(self.group))
        self.name = f"mesh-{next(_numbers)}"
        _meshes[self.name] = self

    def _fair_threads(self):
        """The cores of this machine, shared by the processes that torchrun started on it."""
        here = int(os.environ.get("LOCAL_WORLD_SIZE", self.ranks))
        return max(1, len(os.sched_getaffinity(0)) // max(here, 1))

    def whole_shapes(self, q, k):
        """Shapes over all ranks, where each has as many tokens."""
        return tuple((x[0], x[1] * self.ranks, *x[2:]) for x in (q, k))

    def close(self):
        """Frees the group; plans that were made on it can no longer run."""
        _meshes.pop(self.name, None)
        if self.group and self.is_ours():
            lib.ra_group_destroy(self.group)
        self.group, self.process_group, self.closed = c_void_p(), None, True

    # ---- Collectives of the process group, of tensors on any device ----

    def broadcast(self, x, rank):
        """The tensor of one rank, on all of them; x may be overwritten."""
        sent = x.to(self._carrier).contiguous()
        dist.broadcast(sent, self._peers[rank], self.process_group)
        return sent.to(x.device)

    def gather(self, x):
        """The tensors of all ranks, [ranks, ...], on all of them."""
        mine = x.to(self._carrier).contiguous()
        parts = [torch.empty_like(mine) for _ in range(self.ranks)]
        dist.all_gather(parts, mine, group=self.process_group)
        return torch.stack(parts).to(x.device)

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


def _with_index(device):
    """The current GPU where none is named."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _backend(group, device):
    """What carries messages between tensors of this device."""
    config = dist.get_backend_config(group)  # such as "cpu:gloo,cuda:nccl"
    backends = dict(part.split(":") for part in config.split(","))
    name = backends.get(device.type)
    if name is None and backends.get("cpu") == "gloo":
        return "gloo"  # messages are in memory of the host
    if name is None:
        raise UnsupportedError(f"tensors on {device} over a process group of {config}, which does "
                               "not carry them: move them to a GPU, or make the process group with "
                               '"cpu:gloo,cuda:nccl"')
    if name not in ("gloo", "nccl"):
        raise UnsupportedError(f"a process group of {config}: gloo and, for GPUs, nccl are taken")
    return name


def _bytes_at(message):
    memory = (ctypes.c_char * message.bytes).from_address(message.data)
    return torch.frombuffer(memory, dtype=torch.uint8)


def mesh_of(name):
    if name is None:
        return None
    if name not in _meshes:
        raise ArgumentError(f"the mesh {name} was closed")
    return _meshes[name]


_by_group: dict = {}  # and device
os.register_at_fork(after_in_child=_by_group.clear)  # they are the parent's


@atexit.register
def _close_all():
    """Threads of a process group end with the last reference to it, which must be gone before the
    interpreter is."""
    for mesh in list(_meshes.values()):
        mesh.close()
    _by_group.clear()


def mesh_for(group, device):
    """The mesh of a process group, or of all processes (True), for tensors on a device. It is made
    once; every process of the group must come here alike."""
    if device.type == "meta":  # no data, no messages
        device = torch.device("cpu")
    if isinstance(group, Mesh):
        if group.device != device:
            raise ArgumentError(f"the tensors are on {device}, but the mesh is for {group.device}; "
                                f'make another one by Mesh(group, device="{device}")')
        return group
    group = None if group is True else group
    key = dist.group.WORLD if group is None and dist.is_initialized() else group, device
    mesh = _by_group.get(key)
    if mesh is None or mesh.closed:
        mesh = _by_group[key] = Mesh(group, device=device)
    return mesh

