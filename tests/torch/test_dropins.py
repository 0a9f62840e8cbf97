# SPDX-License-Identifier: Apache-2.0
"""Functions with the arguments of other libraries give what those say they give."""
import itertools

import pytest
import ringattn.torch as rt
import torch
import torch.nn.functional
from conftest import exact, near


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("queries, keys", [(20, 20), (7, 20), (20, 7), (1, 20)])
@pytest.mark.parametrize("kind", ["full", "causal", "bool", "float", "gqa"])
def test_sdpa(make, dtype, queries, keys, kind):
    heads = 2 if kind == "gqa" else 4
    q = make(2, 4, queries, 16, dtype=dtype)
    k, v = (make(2, heads, keys, 16, dtype=dtype, seed=seed) for seed in (1, 2))
    given = {"causal": {"is_causal": True}, "gqa": {"enable_gqa": True}}.get(kind, {})
    if kind == "bool":
        mask = torch.rand(2, 1, queries, keys) > 0.4
        mask[..., 0] = True  # a query that sees nothing is NaN there, and 0 here
        given = {"attn_mask": mask.to(q.device)}
    if kind == "float":
        given = {"attn_mask": torch.randn(queries, keys, dtype=dtype).to(q.device)}
    out = rt.scaled_dot_product_attention(q, k, v, **given)
    if "attn_mask" in given and kind == "float":
        given["attn_mask"] = given["attn_mask"].double()
    want = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(),
                                                            **given)
    near(out, want)
    dout = torch.ones_like(out)
    for mine, theirs in zip(torch.autograd.grad(out, (q, k, v), dout),
                            torch.autograd.grad(want, (q, k, v), dout.double())):
        near(mine, theirs, factor=4)


def test_sdpa_of_other_ranks(make):
    q = make(3, 2, 4, 9, 8)
    mask = torch.rand(2, 1, 9, 9).to(q.device) > 0.3
    mask[..., 0] = True
    got = rt.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    near(got, torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask))
    near(rt.scaled_dot_product_attention(q[0, 0], q[0, 0], q[0, 0], scale=0.3),
         torch.nn.functional.scaled_dot_product_attention(q[0, 0], q[0, 0], q[0, 0], scale=0.3))
    with pytest.raises(ValueError, match="enable_gqa"):
        rt.scaled_dot_product_attention(q[0], q[0, :, :2], q[0, :, :2])


def window(queries, keys, causal, size):
    """As flash-attn says: key j of query i if i + keys - queries - left <= j <= i + ... + right."""
    at = torch.arange(queries)[:, None] + keys - queries
    distance = torch.arange(keys)[None] - at
    left, right = size
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    return seen & (distance <= 0) if causal else seen


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [(-1, -1), (5, 0), (5, 3), (-1, 2), (4, -1)])
@pytest.mark.parametrize("queries, keys", [(20, 20), (8, 20), (20, 8)])
def test_flash_attn_func(make, causal, size, queries, keys):
    q = make(2, queries, 4, 16)
    k, v = (make(2, keys, 2, 16, seed=seed) for seed in (1, 2))
    out, lse, none = rt.flash_attn_func(q, k, v, causal=causal, window_size=size,
                                        return_attn_probs=True)
    want, want_lse = exact(q, k, v, window(queries, keys, causal, size))
    near(out, want)
    near(lse, want_lse.transpose(1, 2))
    assert none is None
    kv = torch.stack([k, v], 2)
    assert torch.equal(out, rt.flash_attn_kvpacked_func(q, kv, causal=causal, window_size=size))


def test_flash_attn_slopes_and_packed(make):
    qkv = make(1, 12, 3, 4, 16)
    slopes = torch.rand(4).to(qkv.device)
    q, k, v = qkv.unbind(2)
    out = rt.flash_attn_qkvpacked_func(qkv, 0.0, 0.2, alibi_slopes=slopes)
    far = (torch.arange(12)[:, None] - torch.arange(12)).abs().to(qkv.device)
    want, _ = exact(q, k, v, bias=-slopes[:, None, None] * far, scale=0.2)
    near(out, want)
    with pytest.raises(NotImplementedError, match="alibi_slopes"):
        rt.flash_attn_func(q, k, v, alibi_slopes=torch.rand(2, 4))


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attn_varlen_func(make, causal):
    lengths, keys = [7, 0, 12, 1], [7, 3, 20, 9]
    q = make(sum(lengths), 4, 16)
    k, v = (make(sum(keys), 2, 16, seed=seed) for seed in (1, 2))
    ends = [torch.tensor([0, *itertools.accumulate(x)], dtype=torch.int32).to(q.device)
            for x in (lengths, keys)]
    out, lse, _ = rt.flash_attn_varlen_func(q, k, v, *ends, max(lengths), max(keys), causal=causal,
                                            return_attn_probs=True)
    assert lse.shape == (4, sum(lengths))
    parts = [exact(q[None, a:b], k[None, c:d], v[None, c:d], window(b - a, d - c, causal, (-1, -1)))
             for a, b, c, d in zip(*(x.tolist()[i:] for x in ends for i in (0, 1))) if b > a]
    want = torch.cat([part[0][0] for part in parts])
    near(out, want)
    near(lse, torch.cat([part[1][0] for part in parts]).T)
    dout = torch.ones_like(out)
    for mine, theirs in zip(torch.autograd.grad(out, (q, k, v), dout),
                            torch.autograd.grad(want, (q, k, v), dout.double())):
        near(mine, theirs, factor=4)
    with pytest.raises(NotImplementedError, match="block_table"):
        rt.flash_attn_varlen_func(q, k, v, *ends, 12, 20, block_table=ends[0])


def test_flash_attn_with_kvcache(make):
    q = make(3, 2, 4, 16).detach()
    caches = [torch.zeros(3, 30, 2, 16, device=q.device) for _ in range(2)]
    lengths = torch.tensor([5, 0, 20], dtype=torch.int32).to(q.device)
    for cache, seed in zip(caches, (1, 2)):
        cache.copy_(make(3, 30, 2, 16, seed=seed).detach())
    k, v = (make(3, 2, 2, 16, seed=seed).detach() for seed in (3, 4))
    out, lse = rt.flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=lengths, causal=True,
                                          return_softmax_lse=True)
    assert lse.shape == (3, 4, 2)
    for item, before in enumerate([5, 0, 20]):
        assert torch.equal(caches[0][item, before:before + 2], k[item])
        want, want_lse = exact(q[item:item + 1], *(x[item:item + 1, :before + 2] for x in caches),
                               window(2, before + 2, True, (-1, -1)))
        near(out[item:item + 1], want)
        near(lse[item].T, want_lse[0])
    with pytest.raises(ValueError, match=r"room for 30 tokens, not for \[31, 31, 31\]"):
        rt.flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=29)
    with pytest.raises(NotImplementedError, match="rotary_cos"):
        rt.flash_attn_with_kvcache(q, *caches, rotary_cos=q)


def test_caches_that_do_not_belong_together(make):
    q = make(2, 1, 4, 16).detach()
    k_cache, v_cache = (torch.ones(2, 8, 2, 16, device=q.device) for _ in range(2))
    new = torch.ones(2, 1, 2, 16, device=q.device)
    wrong = [("alike", (q, k_cache.half(), v_cache.half()), {}),
             ("tokens and heads", (q, k_cache, v_cache[:, :4]), {}),
             ("tokens and heads", (q, k_cache, v_cache[:, :, :1]), {}),
             ("batch", (q[:1], k_cache, v_cache), {}),
             ("both, or none", (q, k_cache, v_cache), {"k": new, "cache_seqlens": 2}),
             ("v is", (q, k_cache, v_cache), {"k": new, "v": new[:, :, :1], "cache_seqlens": 2}),
             ("whole numbers", (q, k_cache, v_cache), {"cache_seqlens": torch.tensor([2.5, 1.0])}),
             ("whole numbers", (q, k_cache, v_cache), {"cache_seqlens": torch.tensor([2])})]
    for says, args, given in wrong:
        with pytest.raises(ValueError, match=says):
            rt.flash_attn_with_kvcache(*args, **given)
    assert (k_cache == 1).all() and (v_cache == 1).all()
    rt.flash_attn_with_kvcache(q, k_cache, v_cache, new.clone().requires_grad_(), new,
                               cache_seqlens=2)
    assert not k_cache.requires_grad


def test_sequences_that_start_later(make):
    q = make(10, 2, 16)
    ends = torch.tensor([2, 5, 8], dtype=torch.int32)
    out = rt.flash_attn_varlen_func(q, q, q, ends, ends, 3, 3)
    part = rt.flash_attn_func(q[None, 2:5], q[None, 2:5], q[None, 2:5])[0]
    near(out[2:5], part)
    assert not out[:2].any() and not out[8:].any()
    qkv = torch.stack([q, q, q], 1)
    assert torch.equal(out, rt.flash_attn_varlen_qkvpacked_func(qkv, ends, 3))
    assert rt.zigzag_ring_flash_attn_func.__name__ == "zigzag_ring_flash_attn_func"
