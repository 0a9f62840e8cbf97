# SPDX-License-Identifier: Apache-2.0
"""Ranks that NCCL connects, one GPU each: a communicator of the library's own, beside that of a
process group, which brings its id to all ranks."""
import ctypes
import os
from ctypes import byref

import torch
import torch.distributed as dist

from .. import _library as c
from .._errors import ArgumentError, SystemRefusalError, UnsupportedError
from .._library import lib


def _must_be_there():
    """Opens the plug-in, or says why it cannot be used."""
    part, index = c.Part(), 0
    while lib.ra_part_at(b"transport", index, byref(part)) == 0:
        if part.name == b"nccl" and not part.usable:
            raise UnsupportedError("tensors of GPUs over a process group of nccl need the plug-in for "
                                   f"NCCL: {part.why.decode()}. A process group of gloo does not")
        index += 1


def _new_id() -> bytes:
    """By the very NCCL that the plug-in uses: the one that is loaded."""
    nccl = ctypes.CDLL("libnccl.so.2", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    made = ctypes.create_string_buffer(c.NCCL_ID_BYTES)
    if nccl.ncclGetUniqueId(made):
        nccl.ncclGetLastError.restype = ctypes.c_char_p
        raise SystemRefusalError("ncclGetUniqueId failed: " +
                                 nccl.ncclGetLastError(None).decode(errors="replace"))
    return made.raw


def _own_id(mesh):
    """The id, if this rank is the first one, which makes it, and None; or no id, and what failed."""
    try:
        _must_be_there()
        return _new_id() if mesh.rank == 0 else bytes(c.NCCL_ID_BYTES), None
    except Exception as error:
        return bytes(c.NCCL_ID_BYTES), error


def _shared_id(mesh) -> bytes:
    """The id that the first rank makes. All ranks come to know whether one of them cannot go on:
    otherwise they would wait for it."""
    mine, failure = _own_id(mesh)
    try:
        told = mesh.gather(torch.tensor([*mine, failure is None], dtype=torch.uint8)).tolist()
    except dist.DistBackendError as error:
        if "Duplicate GPU" not in str(error):
            raise
        raise ArgumentError("two processes of this process group use the same GPU, but NCCL takes "
                            "one process for each: call torch.cuda.set_device() with another GPU in "
                            "every process, or make the process group with gloo, whose processes "
                            "may share a GPU") from error
    if failure is not None:
        raise failure
    failed = [rank for rank, (*_, fine) in enumerate(told) if not fine]
    if failed:
        raise SystemRefusalError(f"rank {failed[0]} of this process group cannot use NCCL; its own "
                                 "error says why")
    return bytes(told[0][:-1])


def join(mesh, options, group):
    """Makes the group of the library; every process of the mesh comes here alike."""
    shared = ctypes.create_string_buffer(_shared_id(mesh), c.NCCL_ID_BYTES)
    where = c.NcclWhere(rank=mesh.rank, ranks=mesh.ranks, device=mesh.device.index,
                        id=ctypes.addressof(shared))
    lib.ra_group_join(b"nccl", byref(where), byref(options), byref(group))
