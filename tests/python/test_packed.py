# SPDX-License-Identifier: Apache-2.0
"""Packed sequences and query offsets: each sequence gives what it gives alone."""
import numpy
import pytest
import ringattn
from hypothesis import given, settings
from hypothesis import strategies as st

LENGTHS, KEYS = (9, 0, 14, 5), (20, 3, 14, 0)
PATTERNS = ["full", "causal", "window:6,2", "dilated:4/1,8/2", "blocks:4;local=1;global=1"]
RINGS = [(1, None, None), (3, "zigzag", None), (2, "striped", "allgather"), (2, None, "ulysses")]


def alone(q, k, v, pattern, lengths, keys):
    """(out, lse) of each sequence by a call of its own."""
    out = numpy.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    lse = numpy.full(q.shape[:3], -numpy.inf, numpy.float32)
    for start, n, k_start, nk in zip(numpy.cumsum(lengths) - lengths, lengths,
                                     numpy.cumsum(keys) - keys, keys):
        if n and nk:
            rows, columns = slice(start, start + n), slice(k_start, k_start + nk)
            out[:, rows], lse[:, rows] = ringattn.attention(
                q[:, rows], k[:, columns], v[:, columns], pattern, return_lse=True)
    return out, lse


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("ring, partition, strategy", RINGS)
def test_each_sequence_is_a_problem_of_its_own(make, pattern, ring, partition, strategy):
    q = make((2, sum(LENGTHS), 4, 16))
    k, v = (make((2, sum(KEYS), 2, 16), seed=seed) for seed in (1, 2))
    options = {"ring": ring, "partition": partition, "strategy": strategy, "lengths": LENGTHS,
               "k_lengths": KEYS}
    out, lse = ringattn.attention(q, k, v, pattern, return_lse=True, **options)
    want, want_lse = alone(q, k, v, pattern, LENGTHS, KEYS)
    numpy.testing.assert_allclose(out, want, rtol=2e-5, atol=2e-5)
    numpy.testing.assert_allclose(lse, want_lse, rtol=2e-5, atol=2e-5)
    found = ringattn.attention_backward(out, q, k, v, out, lse, pattern, **options)
    rows, columns = slice(9, 23), slice(23, 37)  # the third
    part = ringattn.attention_backward(want[:, rows], q[:, rows], k[:, columns], v[:, columns],
                                       want[:, rows], want_lse[:, rows], pattern)
    numpy.testing.assert_allclose(found.dq[:, rows], part.dq, rtol=1e-4, atol=1e-4)
    numpy.testing.assert_allclose(found.dk[:, columns], part.dk, rtol=1e-4, atol=1e-4)
    numpy.testing.assert_allclose(found.dv[:, columns], part.dv, rtol=1e-4, atol=1e-4)
    assert not found.dk[:, 20:23].any()  # keys of a sequence without queries


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=5),
       st.sampled_from(["full", "causal", "window:3,1"]), st.integers(1, 4))
def test_any_lengths(both, pattern, ring):
    lengths, keys = zip(*both)
    random = numpy.random.default_rng(sum(lengths) * 31 + sum(keys))
    q = random.standard_normal((1, sum(lengths), 2, 8)).astype("f4")
    k, v = (random.standard_normal((1, sum(keys), 2, 8)).astype("f4") for _ in range(2))
    out, lse = ringattn.attention(q, k, v, pattern, ring=ring, lengths=lengths, k_lengths=keys,
                                  return_lse=True)
    want, want_lse = alone(q, k, v, pattern, lengths, keys)
    numpy.testing.assert_allclose(out, want, rtol=2e-5, atol=2e-5)
    numpy.testing.assert_allclose(lse, want_lse, rtol=2e-5, atol=2e-5)


def test_an_offset_moves_queries(make):
    q, k, v = (make((1, 30, 2, 16), seed=seed) for seed in range(3))
    whole = ringattn.attention(q, k, v, "causal")
    part = ringattn.attention(q[:, 5:12], k, v, "causal", query_offset=5 - (30 - 7), ring=2)
    numpy.testing.assert_allclose(part, whole[:, 5:12], rtol=1e-5, atol=1e-5)
    seen = ringattn.mask("causal", 3, 8, query_offset=-4)[0]
    assert seen.sum(axis=1).tolist() == [2, 3, 4]


def test_masks_and_positions_of_sequences():
    seen = ringattn.mask("causal", 5, 6, lengths=[2, 3], k_lengths=[3, 3])[0]
    assert seen.tolist() == [[1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0],
                             [0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1]]
    first, second = ringattn.positions(12, 2, "zigzag", lengths=[4, 8])
    assert first.tolist() == [0, 3, 4, 5, 10, 11] and second.tolist() == [1, 2, 6, 7, 8, 9]


def test_what_makes_no_sense_is_refused(make):
    q = make((1, 10, 2, 8))
    with pytest.raises(ValueError, match="add up to 9.*there are 10 queries"):
        ringattn.attention(q, q, q, lengths=[4, 5])
    with pytest.raises(ValueError, match="-1 as the smallest"):
        ringattn.attention(q, q, q, lengths=[11, -1])
    with pytest.raises(ValueError, match="whole numbers"):
        ringattn.attention(q, q, q, lengths=[5.0, 5.0])
    with pytest.raises(ValueError, match="2 lengths, but 1 k_lengths"):
        ringattn.attention(q, q, q, lengths=[5, 5], k_lengths=[10])
    with pytest.raises(ValueError, match="without lengths"):
        ringattn.attention(q, q, q, k_lengths=[10])
    with pytest.raises(NotImplementedError, match="more queries"):
        ringattn.attention(q, q, q, "prefix:2", lengths=[7, 3], k_lengths=[3, 7])
    with pytest.raises(NotImplementedError, match="order"):
        ringattn.attention(q, q, q, order="shuffled:1", lengths=[5, 5])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_cache_with_lengths_of_its_own(make, pattern):
    cache = ringattn.Cache(40, 4, 16, kv_heads=2, batch=3, pattern=pattern)
    kept = [([], []) for _ in range(3)]
    for step, counts in enumerate([(20, 3, 30), (1, 1, 1), (0, 1, 1), (2, 0, 3), (1, 1, 1)]):
        tokens = max(counts)
        q = make((3, tokens, 4, 16), seed=step)
        k, v = (make((3, tokens, 2, 16), seed=50 + 2 * step + i) for i in range(2))
        out, lse = cache.step(q, k, v, counts=counts, return_lse=True)
        for item, count in enumerate(counts):
            for whole, x in zip(kept[item], (k, v)):
                whole.append(x[item, :count])
            if count:
                want = ringattn.attention(q[item, :count], *map(numpy.concatenate, kept[item]),
                                          pattern)
                numpy.testing.assert_allclose(out[item, :count], want, rtol=1e-5, atol=1e-5)
            assert not out[item, count:].any() and numpy.isneginf(lse[item, count:]).all()
    assert cache.lengths.tolist() == [24, 6, 36] and cache.length == 36
    with pytest.raises(ValueError, match="not for 41"):
        cache.append(k[:, [0] * 6], v[:, [0] * 6], counts=[0, 0, 5])
    with pytest.raises(ValueError, match="counts"):
        cache.append(k, v, counts=[0, 0, 9])
    with pytest.raises(ValueError, match="one for each of 3"):
        cache.append(k, v, counts=[1, 1])
    cache.truncate([20, 6, 1])
    assert cache.lengths.tolist() == [20, 6, 1]
    with pytest.raises(ValueError, match=r"holds \[20, 6, 1\] tokens, not 6"):
        cache.truncate(6)
