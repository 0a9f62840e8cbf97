# SPDX-License-Identifier: Apache-2.0
"""ringattn for PyTorch: an operator with autograd, a module, functions with the names and arguments
that people call today, and rings over process groups of torch.distributed.

    out = ringattn.torch.attention(q, k, v, "causal")                    # [batch, tokens, heads, dim]
    out = ringattn.torch.attention(q, k, v, "causal", group=True, partition="zigzag")     # shards
"""
from ._flash import (flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func,
                     flash_attn_varlen_func, flash_attn_varlen_kvpacked_func,
                     flash_attn_varlen_qkvpacked_func, flash_attn_with_kvcache, ring_flash_attn_func,
                     ring_flash_attn_kvpacked_func, ring_flash_attn_qkvpacked_func,
                     ring_flash_attn_varlen_func, ring_flash_attn_varlen_kvpacked_func,
                     ring_flash_attn_varlen_qkvpacked_func, stripe_flash_attn_func,
                     stripe_flash_attn_kvpacked_func, stripe_flash_attn_qkvpacked_func,
                     zigzag_ring_flash_attn_func, zigzag_ring_flash_attn_kvpacked_func,
                     zigzag_ring_flash_attn_qkvpacked_func, zigzag_ring_flash_attn_varlen_func,
                     zigzag_ring_flash_attn_varlen_kvpacked_func,
                     zigzag_ring_flash_attn_varlen_qkvpacked_func)
from ._functions import Attention, attention, sequences_of
from ._merge import merge
from ._mesh import Mesh
from ._pool import clear
from ._sdpa import scaled_dot_product_attention

__all__ = [name for name in dir() if not name.startswith("_")]
