# SPDX-License-Identifier: Apache-2.0
"""attention() and attention_backward() against float64, over patterns, rings, dtypes and shapes."""
import numpy
import pytest
import ringattn
from hypothesis import given, settings
from hypothesis import strategies as st

PATTERNS = ["full", "causal", "window:9", "window:9,3", "prefix:7", "dilated:8/1,16/2",
            "blocks:8;local=2", "causal;docs=0,5,20,33"]
RINGS = [(1, None, None), (3, "contiguous", None), (4, "zigzag", None), (2, "striped", "allgather")]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("ring, partition, strategy", RINGS)
def test_every_pattern_on_every_ring(make, right, pattern, ring, partition, strategy):
    q, k, v = make((2, 33, 4, 16)), make((2, 33, 2, 16), seed=1), make((2, 33, 2, 16), seed=2)
    out, lse = ringattn.attention(q, k, v, pattern, ring=ring, partition=partition,
                                  strategy=strategy, return_lse=True)
    right(out, lse, q, k, v, pattern)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dtypes(make, right, dtype):
    q, k, v = (make((1, 40, 2, 32), dtype, seed) for seed in range(3))
    out, lse = ringattn.attention(q, k, v, "causal", ring=2, return_lse=True)
    assert out.dtype == q.dtype and lse.dtype == numpy.float32
    right(out, lse, q, k, v, "causal")


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 24), st.integers(1, 24), st.sampled_from([(1, 1), (2, 1), (6, 3), (4, 4)]),
       st.integers(1, 40), st.integers(1, 2), st.sampled_from(["full", "causal", "window:5"]),
       st.integers(1, 4))
def test_any_shape(queries, keys, heads, dim, batch, pattern, ring):
    random = numpy.random.default_rng(queries * 31 + keys)
    q = random.standard_normal((batch, queries, heads[0], dim)).astype("f4")
    k, v = (random.standard_normal((batch, keys, heads[1], dim)).astype("f4") for _ in range(2))
    out, lse = ringattn.attention(q, k, v, pattern, ring=ring, return_lse=True)
    want, want_lse = ringattn._selftest.reference(q, k, v, pattern)
    numpy.testing.assert_allclose(out, want, rtol=2e-5, atol=2e-5)
    numpy.testing.assert_allclose(lse, want_lse, rtol=2e-5, atol=2e-5)


def slope(q, k, v, dout, pattern, direction):
    """The derivative of sum(dout * out), by differences in float64."""
    h = 1e-4
    ends = []
    for sign in (1, -1):
        moved = [x.astype(float) + sign * h * d for x, d in zip((q, k, v), direction)]
        ends.append((ringattn._selftest.reference(*moved, pattern)[0] * dout).sum())
    return (ends[0] - ends[1]) / (2 * h)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("ring, partition, strategy", RINGS)
def test_gradients(make, pattern, ring, partition, strategy):
    q, k, v = make((1, 33, 4, 8)), make((1, 33, 2, 8), seed=1), make((1, 33, 2, 8), seed=2)
    dout = make((1, 33, 4, 8), seed=3)
    options = {"ring": ring, "partition": partition, "strategy": strategy}
    out, lse = ringattn.attention(q, k, v, pattern, return_lse=True, **options)
    found = ringattn.attention_backward(dout, q, k, v, out, lse, pattern, **options)
    for i in range(3):
        direction = [numpy.zeros(x.shape) for x in (q, k, v)]
        direction[i] = numpy.random.default_rng(9 + i).standard_normal(direction[i].shape)
        want = slope(q, k, v, dout, pattern, direction)
        assert (found[i] * direction[i]).sum() == pytest.approx(want, rel=1e-3, abs=1e-3)


def test_terms(make):
    q, k, v = (make((1, 20, 2, 16), seed=seed) for seed in range(3))
    bias, sinks = make((1, 2, 20, 20), seed=4), make((2,), seed=5)
    scores = numpy.einsum("bqhd,bkhd->bhqk", q, k) * 16 ** -0.5
    scores = 5 * numpy.tanh(scores / 5) + bias
    full = numpy.concatenate([scores, numpy.broadcast_to(sinks[None, :, None, None],
                                                         (1, 2, 20, 1))], axis=-1)
    weights = numpy.exp(full - full.max(-1, keepdims=True))
    weights = (weights / weights.sum(-1, keepdims=True))[..., :20]
    want = numpy.einsum("bhqk,bkhd->bqhd", weights, v)
    for ring in (1, 3):
        out = ringattn.attention(q, k, v, bias=bias, sinks=sinks, softcap=5.0, ring=ring)
        numpy.testing.assert_allclose(out, want, rtol=3e-5, atol=3e-5)


def test_a_mask_is_a_bias_of_infinities(make):
    q, k, v = (make((2, 12, 2, 16), seed=seed) for seed in range(3))
    seen = numpy.random.default_rng(0).random((2, 1, 12, 12)) < 0.5
    bias = numpy.where(seen, 0, -numpy.inf).astype("f4")
    by_mask = ringattn.attention(q, k, v, mask=seen, ring=2)
    numpy.testing.assert_array_equal(by_mask, ringattn.attention(q, k, v, bias=bias, ring=2))


def test_three_dimensions_and_strides(make, right):
    q, k, v = (make((3, 21, 16), seed=seed).transpose(1, 0, 2) for seed in range(3))
    out, lse = ringattn.attention(q, k, v, "causal", return_lse=True)
    assert out.shape == (21, 3, 16) and lse.shape == (21, 3)
    right(out[None], lse[None], q[None], k[None], v[None], "causal")
    reversed_k = k[:, :, ::-1]
    out, lse = ringattn.attention(q, reversed_k, v, return_lse=True)
    right(out[None], lse[None], q[None], reversed_k[None], v[None])


def test_an_order_keeps_results(make):
    q, k, v = (make((1, 64, 2, 16), seed=seed) for seed in range(3))
    plain = ringattn.attention(q, k, v, "full")
    ordered = ringattn.attention(q, k, v, "full", order="hilbert:8x8", ring=2)
    numpy.testing.assert_allclose(ordered, plain, rtol=1e-5, atol=1e-5)


def test_no_keys(make):
    q, k, v = make((1, 3, 2, 8)), make((1, 0, 2, 8)), make((1, 0, 2, 8))
    out, lse = ringattn.attention(q, k, v, return_lse=True)
    assert not out.any() and numpy.isneginf(lse).all()


@pytest.mark.parametrize("ring", [1, 3])
@pytest.mark.parametrize("shape", [(12, 12), (4, 12, 12), (2, 1, 12, 12), (4, 1, 12)])
def test_the_gradient_of_a_bias(make, ring, shape):
    q, k, v, dout = (make((2, 12, 4, 8), seed=seed) for seed in range(4))
    bias = make(shape, seed=5)
    options = {"ring": ring, "partition": "zigzag", "bias": bias}
    out, lse = ringattn.attention(q, k, v, "causal", return_lse=True, **options)
    found = ringattn.attention_backward(dout, q, k, v, out, lse, "causal", dbias=True, **options)
    assert found.dbias.shape == shape
    direction = make(shape, seed=6)
    ends = []
    for sign in (1, -1):
        moved = ringattn.attention(q, k, v, "causal", bias=bias + sign * 1e-2 * direction)
        ends.append((moved.astype(float) * dout).sum())
    assert (found.dbias * direction).sum() == pytest.approx((ends[0] - ends[1]) / 2e-2, rel=2e-3,
                                                            abs=2e-3)
    with pytest.raises(ValueError, match="without a bias"):
        ringattn.attention_backward(dout, q, k, v, out, lse, "causal", dbias=True)
