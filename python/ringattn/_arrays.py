# SPDX-License-Identifier: Apache-2.0
"""Arrays of the caller as tensors of the library: without a copy where strides allow it."""
import functools

import numpy

from ._errors import ArgumentError
from ._library import BF16, F16, F32, Tensor

_DTYPES = {"float32": F32, "bfloat16": BF16, "float16": F16}


@functools.lru_cache(maxsize=64)
def _number_of(dtype) -> int | None:
    return _DTYPES.get(dtype.name)  # a name takes long to make


def dtype_of(array, name: str) -> int:
    number = _number_of(array.dtype)
    if number is None:
        raise ArgumentError(f"{name} is of dtype {array.dtype.name}; float32, float16 and bfloat16 "
                            "(of ml_dtypes) are taken")
    return number


def as_array(x, name: str) -> numpy.ndarray:
    """Whatever has the array interface or DLPack, as an array of NumPy that shares its memory; in
    the byte order of this machine."""
    if isinstance(x, numpy.ndarray):
        array = x
    elif hasattr(x, "__array_interface__") or not hasattr(x, "__dlpack__"):
        array = numpy.asarray(x)
    else:
        try:
            array = numpy.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError) as error:
            raise ArgumentError(f"{name} cannot be read by NumPy: {error}") from error
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def address(array) -> int | None:
    """Where its numbers are; None stays None. array.ctypes.data takes several times as long."""
    return None if array is None else array.__array_interface__["data"][0]


def is_packed(x, shape, dtype) -> bool:
    """An array of NumPy that the library can read as it is, with strides of 0."""
    return (type(x) is numpy.ndarray and x.shape == shape and x.dtype == dtype and
            x.flags.c_contiguous and x.flags.aligned)


def tensor_of(array) -> Tensor | None:
    """A view of [batch, tokens, heads, dim]; None where the library cannot read these strides."""
    size = array.itemsize
    strides = array.strides
    if array.ndim != 4 or (array.shape[3] > 1 and strides[3] != size) or not any(strides[:3]):
        return None
    if not array.flags.aligned:
        return None
    if any(stride < 0 or stride % size for stride in strides[:3]):
        return None
    return Tensor(address(array), *(stride // size for stride in strides[:3]))


def readable(array) -> tuple[numpy.ndarray, Tensor]:
    """The array, or a copy that the library can read, and a view of it."""
    tensor = tensor_of(array)
    if tensor is None:
        array = numpy.require(array, requirements=("C", "A"))
        tensor = Tensor(address(array), 0, 0, 0)
    return array, tensor


def floats(x, name: str, shape) -> numpy.ndarray | None:
    """Packed f32 of a shape; None stays None."""
    if x is None:
        return None
    array = numpy.ascontiguousarray(as_array(x, name), dtype=numpy.float32)
    if array.shape != tuple(shape):
        raise ArgumentError(f"{name} has shape {array.shape}, but must have {tuple(shape)}")
    return array
