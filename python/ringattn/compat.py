# SPDX-License-Identifier: Apache-2.0
"""Modules of PyTorch with the names and arguments of the reports that ringattn grew from. They
compute attention over tokens: [batch, tokens, heads, dim], exactly, as `--system NAME` does.

    model = RingDilatedAttentionV2Collective(segment_lengths=[2048, 4096], dilation_rates=[1, 2],
                                             ring_size=4)
    out = model(q, k, v, is_causal=True)

Where torch.distributed is initialized, a ring of more than one rank is its processes, q, k and v are
shards, and `ring_size` must be their number. Otherwise it is `ring_size` ranks of this process.
"""
import torch
import torch.distributed as dist

from ._errors import ArgumentError
from .torch import attention

_LONGNET = ((2048, 4096, 8192), (1, 2, 4))


class _System(torch.nn.Module):
    """What the modules share.

    dtype: that q, k and v are converted to; None: as they are. use_pattern_cache: plans are kept for
    the next call. enable_memory_pool, memory_pool_threshold_mb: plans share larger buffers.
    """

    pattern, order, strategy, modifiers = "full", None, "ring", ""

    def __init__(self, *, ring_size=1, dropout=0.0, device=None, dtype=None, use_pattern_cache=True,
                 enable_memory_pool=False, memory_pool_threshold_mb=16.0):
        super().__init__()
        self.ring_size, self.dropout, self.device, self.dtype = ring_size, dropout, device, dtype
        self._kept = {"keep": use_pattern_cache,
                      "pool": int(memory_pool_threshold_mb * 2 ** 20) if enable_memory_pool else None}

    def extra_repr(self):
        return f"pattern={self.pattern + self.modifiers}, ring_size={self.ring_size}"

    def _ranks(self):
        if self.ring_size == 1 or not dist.is_initialized():
            return {"ring": self.ring_size}
        if self.ring_size != dist.get_world_size():
            raise ArgumentError(f"ring_size is {self.ring_size}, but there are "
                                f"{dist.get_world_size()} processes")
        return {"group": True}

    def forward(self, q, k, v, is_causal=False):
        q, k, v = (x.to(device=self.device, dtype=self.dtype) for x in (q, k, v))
        return self._attend(q, k, v, self.pattern + self.modifiers, is_causal)

    def _attend(self, q, k, v, pattern, is_causal, **more):
        if is_causal:
            pattern = "causal" if pattern == "full" else pattern + ";causal"
        options = self._kept | self._ranks() | more
        if "group" in options:
            del options["pool"]  # processes of a group have the library's own
        return attention(q, k, v, pattern, order=self.order, strategy=self.strategy,
                         dropout=self.dropout if self.training else 0.0, **options)


class _Dilated(_System):
    """With segment_lengths and dilation_rates, one for each branch."""

    def __init__(self, segment_lengths=_LONGNET[0], dilation_rates=_LONGNET[1], **options):
        super().__init__(**options)
        if len(segment_lengths) != len(dilation_rates) or not segment_lengths:
            raise ArgumentError(f"there are {len(segment_lengths)} segment_lengths and "
                                f"{len(dilation_rates)} dilation_rates; a rate for each length is "
                                "expected")
        self.branches = [f"{a}/{b}" for a, b in zip(segment_lengths, dilation_rates)]
        self.pattern = "dilated:" + ",".join(self.branches)


class StandardAttention(_System):
    """Dense attention."""


class RingAttentionCorrectV2(_System):
    """Dense ring attention with one running softmax: O(n / ranks) bytes per rank."""


class SimulatedRingAttention(_System):
    """A dense ring inside one process."""

    def __init__(self, ring_size=1, **options):
        super().__init__(ring_size=ring_size, **options)

    def _ranks(self):
        return {"ring": self.ring_size}


class StandardRingAttention(_System):
    """Dense ring attention."""


class DistributedRingAttention(_System):
    """Dense ring attention between processes; a fault is an error on every rank."""

    def _ranks(self):
        if not dist.is_initialized():
            raise ArgumentError("DistributedRingAttention is for processes: call "
                                "torch.distributed.init_process_group() first")
        if self.ring_size not in (1, dist.get_world_size()):
            raise ArgumentError(f"ring_size is {self.ring_size}, but there are "
                                f"{dist.get_world_size()} processes")
        return {"group": True}


class HilbertRingAttention(_System):
    """A dense ring with positions in the order of a Hilbert curve."""

    order = "hilbert"


class BlockSparseRingAttention(_System):
    """Blocks near the diagonal, and the first ones; others are neither computed nor sent."""

    def __init__(self, block_size=64, local_blocks=4, global_blocks=1, **options):
        super().__init__(**options)
        self.pattern = f"blocks:{block_size};local={local_blocks};global={global_blocks}"


class DilatedAttention(_Dilated):
    """A dilated branch for each group of heads."""

    modifiers = ";groups"


class LongNetAttention(_Dilated):
    """LongNet's dilated attention: every head has all branches, in one softmax.

    offsets: "cyclic", as in the paper, or "block", as in Microsoft's code. merge: "exact", or
    "detached", as in that code, where no gradient goes through the weights of the branches: the same
    result, other gradients.
    """

    def __init__(self, segment_lengths=_LONGNET[0], dilation_rates=_LONGNET[1], *, offsets="cyclic",
                 merge="exact", **options):
        super().__init__(segment_lengths, dilation_rates, **options)
        if offsets not in ("cyclic", "block"):
            raise ArgumentError(f'offsets is "{offsets}"; "cyclic" or "block" is expected')
        if merge not in ("exact", "detached"):
            raise ArgumentError(f'merge is "{merge}"; "exact" or "detached" is expected')
        self.modifiers, self.merge = f";offsets={offsets}", merge

    def _attend(self, q, k, v, pattern, is_causal, **more):
        if self.merge == "exact":
            return super()._attend(q, k, v, pattern, is_causal, **more)
        parts = [super(LongNetAttention, self)._attend(q, k, v, f"dilated:{branch}{self.modifiers}",
                                                       is_causal, return_lse=True)
                 for branch in self.branches]
        weights = torch.stack([lse.detach() for _, lse in parts]).softmax(0).nan_to_num()
        return sum(weight[..., None].to(out.dtype) * out
                   for weight, (out, _) in zip(weights, parts))


class RingDilatedAttentionV2(_Dilated):
    """Dilated attention over a ring."""


class RingDilatedAttentionV2Collective(_Dilated):
    """Dilated attention; keys are gathered from all ranks that have wanted ones."""

    strategy = "allgather"


class RingDilatedAttentionV2Robust(_Dilated):
    """Dilated attention over a ring whose messages travel while it computes."""


class RingDilatedAttentionV2Flash(_Dilated):
    """Dilated attention with the fastest kernel of the machine, in the fastest dtype of `device`.
    use_flash_attention: False takes the plain kernel, for comparison."""

    def __init__(self, *args, use_flash_attention=True, **options):
        super().__init__(*args, **options)
        if self.dtype is None and self.device is not None:
            self.dtype = _fastest(torch.device(self.device))
        if not use_flash_attention:
            self._kept["kernel"] = "scalar"


class RingDilatedAttentionFixed(_Dilated):
    """Dilated attention over a ring as wide as it says, or refused."""


class TrueRingDilatedAttention(_Dilated):
    """Dilated attention over a ring, one softmax over all of its blocks."""


class RingDilatedAttention(_Dilated):
    """Dilated attention over a ring, one softmax over all of its blocks."""


RingDilated = RingDilatedAttention


def _fastest(device):
    """Pascal runs f16 at 1/64 of its rate; bf16 is there from Ampere on."""
    if device.type != "cuda":
        return None
    major, _ = torch.cuda.get_device_capability(device)
    return torch.bfloat16 if major >= 8 else torch.float16 if major >= 7 else torch.float32


__all__ = [name for name, value in list(globals().items())
           if isinstance(value, type) and issubclass(value, _System) and not name.startswith("_")]
