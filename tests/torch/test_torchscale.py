# SPDX-License-Identifier: Apache-2.0
"""LongNet as Microsoft has it: DilatedAttention of torchscale, run as it is, beside ours.

RINGATTN_TORCHSCALE names a checkout of torchscale. On a machine without its GPU kernels, the plain
attention below takes their place.
"""
import os
import sys
import types

import pytest
import torch
from ringattn.compat import LongNetAttention

CHECKOUT = os.environ.get("RINGATTN_TORCHSCALE")
pytestmark = pytest.mark.skipif(not CHECKOUT, reason="RINGATTN_TORCHSCALE is not set")


def plain(q, k, v, dropout=0.0, bias=None, scale=None, is_causal=False):
    """What their kernels compute: [batch, tokens, heads, dim] -> (out, lse [batch, heads, tokens])."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = q @ k.mT * q.shape[3] ** -0.5
    if is_causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    lse = scores.logsumexp(-1)
    return ((scores - lse[..., None]).exp() @ v).transpose(1, 2), lse


@pytest.fixture(scope="module")
def theirs():
    sys.path.insert(0, CHECKOUT)
    from torchscale.component import dilated_attention, multihead_attention
    if multihead_attention.flash_attn_func is None:
        multihead_attention.flash_attn_func = plain

    def make(heads, dim, segments, rates):
        args = types.SimpleNamespace(flash_attention=True, xpos_rel_pos=False, multiway=False,
                                     layernorm_eps=1e-5, segment_length=segments,
                                     dilated_ratio=rates, seq_parallel=False)
        module = dilated_attention.DilatedAttention(args, heads * dim, heads, self_attention=True)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):  # attention alone
            setattr(module, name, torch.nn.Identity())
        return module
    return make


@pytest.mark.parametrize("heads, segments, rates", [(4, [16], [1]), (4, [32], [2]),
                                                    (4, [16, 32, 64], [1, 2, 4]),
                                                    (8, [16, 64], [1, 4]), (6, [8, 24], [1, 3])])
@pytest.mark.parametrize("causal", [False, True])
def test_microsofts_code(theirs, heads, segments, rates, causal):
    n, dim = 192, 16
    generator = torch.Generator().manual_seed(0)
    q, k, v, dout = (torch.randn(2, n, heads, dim, generator=generator) for _ in range(4))
    tensors = [x.requires_grad_() for x in (q, k, v)]
    want = theirs(heads, dim, segments, rates)(*(x.flatten(2) for x in tensors),
                                               is_causal=causal)[0].unflatten(2, (heads, dim))
    expected = torch.autograd.grad(want, tensors, dout)
    for merge in ("detached", "exact"):
        ours = LongNetAttention(segments, rates, offsets="block", merge=merge)
        got = ours(*tensors, is_causal=causal)
        assert (got - want).abs().max() < 1e-5
        found = torch.autograd.grad(got, tensors, dout)
        far = max((a - b).abs().max().item() for a, b in zip(found, expected))
        if merge == "detached" or len(rates) == 1:
            assert far < 1e-5, f"gradients differ by {far}"
        else:
            assert far > 1e-3, "their gradients do not go through the weights of branches"
