# SPDX-License-Identifier: Apache-2.0
"""Attention over keys that are spread over processes, for queries that every process has."""
import torch

from .._errors import ArgumentError, UnsupportedError
from ._mesh import mesh_for


def merge(out, lse, group=True):
    """Attention over all keys from each process's (out, lse) over its own: out [..., dim], lse [...],
    of the same queries everywhere. Collective; (out, lse) in float32, the same bits on all, without
    gradients. A process without keys gives out 0 and lse -inf. group: True means all processes."""
    if torch.is_grad_enabled() and (out.requires_grad or lse.requires_grad):
        raise UnsupportedError("gradients through merge(): call it under torch.no_grad()")
    if out.shape[:-1] != lse.shape:
        raise ArgumentError(f"out has shape {tuple(out.shape)} and lse {tuple(lse.shape)}; lse must "
                            "have one number for each row of out")
    every = mesh_for(group, out.device).gather(torch.cat([out.float(), lse.float()[..., None]], -1))
    outs, lses = every[..., :-1], every[..., -1:]
    whole = lses.logsumexp(0)
    weights = (lses - whole.masked_fill(whole == -torch.inf, 0.0)).exp()
    return (weights * outs).sum(0), whole[..., 0]
