# SPDX-License-Identifier: Apache-2.0
"""The modules of the reports: their snippets run as written, and compute attention over tokens."""
import pytest
import ringattn
import torch
from conftest import near
from ringattn import compat

device = "cpu"
# As the reports have them.
SNIPPETS = ['''
model = RingDilatedAttentionV2Collective(
    segment_lengths=[2048, 4096],
    dilation_rates=[1, 2],
    device=device,
    dtype=torch.float32,  # Critical for Pascal!
    use_pattern_cache=True,
    enable_memory_pool=True,
    memory_pool_threshold_mb=16.0,
)
''', '''
model = RingDilatedAttentionV2Flash(
    segment_lengths=[2048, 4096],
    dilation_rates=[1, 2],
    device=device,
    # dtype auto-selected (FP16)
    use_flash_attention=True,
)
''', '''
model = SimulatedRingAttention(4)
''']


def tensors(n=48, heads=4, dim=16):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, n, heads, dim, generator=generator, requires_grad=True)
            for _ in range(3)]


def weights(pattern, n, heads, order=None):
    return torch.from_numpy(ringattn.mask(pattern, n, heads=heads, order=order)).double()


def exact(q, k, v, counts):
    """Keys count as often as the pattern says: [heads, queries, keys]; 0 where none is seen."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    sees = counts.sum(-1, keepdim=True) > 0
    scores = q @ k.mT * q.shape[3] ** -0.5 + torch.where(sees, counts, 1).log()
    return (sees * (scores.softmax(-1) @ v)).transpose(1, 2)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets_run_as_written(snippet):
    names = {**vars(compat), "device": device, "torch": torch}
    exec(snippet, names)
    q, k, v = tensors()
    out = names["model"](q, k, v)
    pattern = names["model"].pattern
    near(out, exact(q, k, v, weights(pattern, 48, 4)))


@pytest.mark.parametrize("name", [n for n in compat.__all__ if n != "DistributedRingAttention"])
@pytest.mark.parametrize("ring_size", [1, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_every_name_computes_attention(name, ring_size, causal):
    given = {"ring_size": ring_size, "use_pattern_cache": ring_size == 1}
    kind = getattr(compat, name)
    if issubclass(kind, compat._Dilated):
        given |= {"segment_lengths": [8, 16], "dilation_rates": [1, 2]}
    if name == "BlockSparseRingAttention":
        given |= {"block_size": 8, "local_blocks": 1}
    model = kind(**given)
    q, k, v = tensors()
    out = model(q, k, v, is_causal=causal)
    pattern = model.pattern + model.modifiers + (";causal" if causal else "")
    want = exact(q, k, v, weights(pattern, 48, 4, model.order))
    near(out, want)
    dout = torch.ones_like(out)
    for mine, theirs in zip(torch.autograd.grad(out, (q, k, v), dout),
                            torch.autograd.grad(want, (q, k, v), dout.double())):
        near(mine, theirs, factor=4)
    # Truth rule 2: a token changes others, which attention over its own heads would not do.
    with torch.no_grad():
        changed = [x.clone() for x in (q, k, v)]
        changed[2][:, 0] += 1
        assert (model(*changed, is_causal=causal) - out)[:, 1:].abs().max() > 1e-3


def test_what_cannot_be_done_is_refused():
    with pytest.raises(ValueError, match="a rate for each"):
        compat.RingDilatedAttentionV2(segment_lengths=[8], dilation_rates=[1, 2])
    with pytest.raises(ValueError, match="init_process_group"):
        compat.DistributedRingAttention()(*tensors())
    with pytest.raises(TypeError):
        compat.RingDilatedAttentionV2(gradient_checkpointing=True)
    assert compat.LongNetAttention([8], [2], offsets="block").modifiers == ";offsets=block"
