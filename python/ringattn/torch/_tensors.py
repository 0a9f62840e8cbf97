# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch as tensors of the library."""
import numpy
import torch

from .. import _library as c
from .._errors import ArgumentError

CODES = {torch.float32: c.F32, torch.bfloat16: c.BF16, torch.float16: c.F16}


def code_of(x, name):
    code = CODES.get(x.dtype)
    if code is None:
        raise ArgumentError(f"{name} is {x.dtype}; float32, float16 and bfloat16 are taken")
    return code


def check(q, k, v):
    """Refuses tensors that do not belong together."""
    shapes = q.shape, k.shape, v.shape
    for x, shape, name in zip((q, k, v), shapes, "qkv"):
        if len(shape) != 4:
            raise ArgumentError(f"{name} has shape {tuple(shape)}; [batch, tokens, heads, dim] is "
                                "expected")
        code_of(x, name)
    (batch, _, _, dim), of_keys, of_values = shapes
    if of_keys[:3] != of_values[:3] or of_keys[3] != dim or of_keys[0] != batch:
        raise ArgumentError(f"q is {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}: batch "
                            "must be the same, dim that of q and k, tokens and heads those of k "
                            "and v")
    if not q.dtype == k.dtype == v.dtype or not q.device == k.device == v.device:
        raise ArgumentError(f"q is {q.dtype} on {q.device}, k {k.dtype} on {k.device}, v {v.dtype} "
                            f"on {v.device}: they must be alike")


def group_options(device: torch.device) -> dict:
    """Options of a group whose tensors are on the device."""
    if device.type == "cpu":
        return {}
    if device.type != "cuda":
        raise ArgumentError(f"tensors are on {device}; cpu and cuda are taken")
    return {"device": c.text(f"cuda:{device.index or 0}"), "on_device": 1}


def place(view, x):
    """Points a tensor of the library at x, or at a copy that the library can read; returns what must
    stay alive."""
    batch, position, head, dim = x.stride()
    if (dim != 1 and x.shape[3] > 1) or not (batch or position or head):
        x = x.contiguous()
        batch, position, head, _ = x.stride()
    view.data, view.batch_stride, view.position_stride, view.head_stride = (
        x.data_ptr(), batch, position, head)
    return x


def readable(x):
    """The tensor, or a copy that the library can read, and a view of it."""
    view = c.Tensor()
    return place(view, x), view


def floats(x, like, shape, name):
    """Packed f32 on the device of `like`; None stays None."""
    if x is None:
        return None
    if tuple(x.shape) != tuple(shape):
        raise ArgumentError(f"{name} has shape {tuple(x.shape)}, but must have {tuple(shape)}")
    return x.detach().to(device=like.device, dtype=torch.float32).contiguous()


def pointer(x):
    return None if x is None else x.data_ptr()


def numbers(x):
    """A small tensor of whole numbers, or of slopes, as an array of NumPy."""
    if x is None:
        return None
    kind = torch.float32 if x.is_floating_point() else torch.int64
    return numpy.ascontiguousarray(x.detach().to("cpu", kind).numpy())
