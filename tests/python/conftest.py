# SPDX-License-Identifier: Apache-2.0
"""What the tests share: random tensors, and attention in float64."""
import ml_dtypes
import numpy
import pytest

from ringattn._selftest import reference

TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


@pytest.fixture
def make():
    """make(shape, dtype, seed): N(0,1)."""
    def tensor(shape, dtype="float32", seed=0):
        kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else numpy.dtype(dtype)
        return numpy.random.default_rng(seed).standard_normal(shape).astype(kind)
    return tensor


@pytest.fixture
def right():
    """right(out, lse, q, k, v, pattern, ...): as exact as the dtype allows."""
    def check(out, lse, q, k, v, pattern="full", **options):
        want, want_lse = reference(q, k, v, pattern, **options)
        tolerance = TOLERANCE[q.dtype.name]
        numpy.testing.assert_allclose(out.astype(float), want, rtol=tolerance, atol=tolerance)
        numpy.testing.assert_allclose(lse, want_lse, rtol=tolerance, atol=tolerance)
    return check
