# SPDX-License-Identifier: Apache-2.0
"""A check of an installation, against attention in float64 by NumPy."""
import numpy

from ._functions import attention, attention_backward, mask
from ._library import lib


def reference(q, k, v, pattern="full", scale=None):
    """out and lse in float64, from the scores of all pairs; a key that is seen twice counts twice."""
    q, k, v = (numpy.asarray(x).astype(numpy.float64) for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = numpy.repeat(k, group, axis=2), numpy.repeat(v, group, axis=2)
    seen = mask(pattern, q.shape[1], k.shape[1], heads=q.shape[2]).astype(numpy.float64)
    scores = numpy.einsum("bqhd,bkhd->bhqk", q, k) * (q.shape[3] ** -0.5 if scale is None else scale)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        scores = scores + numpy.log(seen)
        most = scores.max(axis=-1, initial=-numpy.inf, keepdims=True)
        weights = numpy.exp(scores - numpy.where(numpy.isfinite(most), most, 0))
        total = weights.sum(axis=-1, keepdims=True)
        out = numpy.einsum("bhqk,bkhd->bqhd", numpy.divide(weights, total, where=total > 0,
                                                           out=numpy.zeros_like(weights)), v)
        lse = (numpy.log(total) + most)[..., 0]
    return out, numpy.where(total[..., 0] > 0, lse, -numpy.inf).transpose(0, 2, 1)


def selftest() -> None:
    """Computes small problems of several patterns and rings; raises where a result is wrong."""
    random = numpy.random.default_rng(1)
    cases = (("full", 1, None), ("causal", 4, "zigzag"), ("window:20", 3, "contiguous"),
             ("dilated:16/1,32/2", 2, "contiguous"), ("blocks:16;local=2", 1, None))
    for pattern, ring, partition in cases:
        q = random.standard_normal((1, 96, 4, 32)).astype(numpy.float32)
        k, v = (random.standard_normal((1, 96, 2, 32)).astype(numpy.float32) for _ in range(2))
        options = {"ring": ring, "partition": partition}
        out, lse = attention(q, k, v, pattern, return_lse=True, **options)
        right, right_lse = reference(q, k, v, pattern)
        error = max(numpy.abs(out - right).max(), numpy.abs(lse - right_lse).max())
        if not error < 2e-5:
            raise AssertionError(f"ringattn: {pattern} on a ring of {ring} is off by {error:.3g}")
        found = attention_backward(out, q, k, v, out, lse, pattern, **options)
        step = 1e-3 * found.dq / numpy.abs(found.dq).max()
        low, high = (reference(q + sign * step, k, v, pattern)[0] for sign in (-1, 1))
        slope = ((high - low) * out).sum() / 2
        if not abs(slope - (step * found.dq).sum()) < 1e-3 * abs(slope) + 1e-6:
            raise AssertionError(f"ringattn: the gradient of {pattern} on a ring of {ring} is wrong")
        print(f"{pattern:20} ring of {ring}: within {error:.1e} of float64, gradient right")
    print(f"ringattn {lib.ra_version().decode()}: all right")
