# SPDX-License-Identifier: Apache-2.0
"""Decoding through a cache gives what attention over the whole sequence gives."""
import weakref

import numpy
import pytest
import ringattn
from ringattn import _library


@pytest.mark.parametrize("pattern", ["causal", "window:20", "dilated:16/1,32/2"])
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("bfloat16", 3e-2)])
def test_token_by_token(make, pattern, dtype, tolerance):
    q = make((2, 60, 4, 16), dtype)
    k, v = (make((2, 60, 2, 16), dtype, seed) for seed in (1, 2))
    cache = ringattn.Cache(64, 4, 16, kv_heads=2, batch=2, dtype=dtype, pattern=pattern)
    parts = [cache.step(q[:, :30], k[:, :30], v[:, :30])]  # a prompt
    parts += [cache.step(q[:, t:t + 1], k[:, t:t + 1], v[:, t:t + 1]) for t in range(30, 56)]
    parts.append(cache.step(q[:, 56:], k[:, 56:], v[:, 56:]))  # a few at once
    got = numpy.concatenate(parts, axis=1).astype(float)
    if pattern.startswith("dilated"):  # its segments depend on how many keys there are
        want = numpy.concatenate([ringattn.attention(q[:, t:t + 1], k[:, :t + 1], v[:, :t + 1],
                                                     pattern) for t in range(30, 56)], axis=1)
        got = got[:, 30:56]
    else:
        want = ringattn.attention(q, k, v, pattern)
    numpy.testing.assert_allclose(got, want.astype(float), rtol=tolerance, atol=tolerance)
    numpy.testing.assert_array_equal(cache.keys, k)


def test_nothing_is_allocated_after_the_first_token(make):
    q, k, v = (make((1, 300, 2, 32), seed=seed) for seed in range(3))
    cache = ringattn.Cache(300, 2, 32)
    held = set()
    for t in range(300):
        cache.step(q[:, t:t + 1], k[:, t:t + 1], v[:, t:t + 1])
        held.add(_library.lib.ra_allocated_bytes())
    assert len(held) == 1


def test_sinks_and_lse(make):
    q, k, v = (make((1, 9, 2, 16), seed=seed) for seed in range(3))
    sinks = make((2,), seed=5)
    cache = ringattn.Cache(9, 2, 16)
    cache.append(k, v)
    out, lse = cache.attend(q[:, -1:], sinks=sinks, return_lse=True)
    want, want_lse = ringattn.attention(q[:, -1:], k, v, sinks=sinks, return_lse=True)
    numpy.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)
    numpy.testing.assert_allclose(lse, want_lse, rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_is_refused(make):
    k = make((1, 5, 2, 16))
    cache = ringattn.Cache(8, 2, 16)
    cache.append(k, k)
    with pytest.raises(ValueError, match="room for 8 tokens, not for 10"):
        cache.append(k, k)
    with pytest.raises(ValueError, match="shape"):
        cache.append(k[:, :2], k[:, :1])
    with pytest.raises(ValueError, match="float16"):
        cache.attend(k[:, :1].astype("f2"))
    cache.truncate(2)
    assert cache.length == 2 and cache.keys.shape[1] == 2
    with pytest.raises(ValueError, match="holds 2"):
        cache.truncate(3)
    assert not ringattn.Cache(4, 2, 16).attend(k[:, :1]).any()


def test_a_step_that_fails_adds_nothing(make):
    k = make((1, 1, 2, 16))
    cache = ringattn.Cache(8, 2, 16)
    with pytest.raises(ValueError, match="float64"):
        cache.step(k.astype("f8"), k, k)
    with pytest.raises(ValueError, match="sinks"):
        cache.step(k, k, k, sinks=[1.0])
    assert cache.length == 0
    with pytest.raises(ringattn.RingattnError, match="quantum"):
        ringattn.Cache(8, 2, 16, kernel="quantum")
    with pytest.raises(ValueError, match="heads"):
        ringattn.Cache(8, 3, 16, kv_heads=2)
    with cache:
        pass
    with pytest.raises(ValueError, match="closed"):
        cache.step(k, k, k)


def test_a_cache_ends_with_its_last_name():
    cache = ringattn.Cache(8, 1, 8)
    gone = weakref.ref(cache)
    del cache  # frees threads and memory now, not when cycles are collected
    assert gone() is None


def test_arrays_that_are_not_aligned():
    plain = numpy.arange(8, dtype=numpy.float32).reshape(1, 1, 1, 8)
    odd = numpy.empty(33, numpy.uint8)[1:].view(numpy.float32).reshape(1, 1, 1, 8)
    odd[...] = plain
    with ringattn.Cache(8, 1, 8) as one, ringattn.Cache(8, 1, 8) as other:
        assert (one.step(odd, odd, odd) == other.step(plain, plain, plain)).all()
