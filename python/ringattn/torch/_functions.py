# SPDX-License-Identifier: Apache-2.0
"""attention() for tensors of PyTorch, and a module."""
import functools

import torch

from .._errors import ArgumentError, UnsupportedError
from ._mesh import mesh_for
from ._op import call, text_of

_OPTIONS = ("pattern", "partition", "strategy", "scale", "softcap", "dropout", "memory", "kernel",
            "threads", "query_offset", "any_order", "order", "pool", "keep", "packed", "ring",
            "mesh")


def _text(values) -> str:
    return text_of(dict(zip(_OPTIONS, values)))


_kept_text = functools.lru_cache(maxsize=512)(_text)  # compilers cannot trace it


def _autocast(q, k, v):
    """As PyTorch's own attention: in the dtype of autocast, where that is on."""
    kind = "cuda" if q.is_cuda else "cpu" if q.is_cpu else q.device.type  # a name takes long to make
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return q, k, v
    dtype = torch.get_autocast_dtype(kind)
    return tuple(x.to(dtype) if x.is_floating_point() else x for x in (q, k, v))


def _check_types(q, k, v, bias, mask):
    if isinstance(q, torch.Tensor) and isinstance(k, torch.Tensor) and \
            isinstance(v, torch.Tensor) and (bias is None or isinstance(bias, torch.Tensor)) and \
            (mask is None or isinstance(mask, torch.Tensor)):
        return
    for x, name in ((q, "q"), (k, "k"), (v, "v"), (bias, "bias"), (mask, "mask")):
        if not isinstance(x, torch.Tensor):
            raise ArgumentError(f"{name} is of type {type(x).__name__}; a tensor of PyTorch is "
                                "expected (ringattn.attention takes arrays of NumPy)")


def _check_shards(order, ring, threads, pool):
    """With a group: what belongs to whole tensors, or to its mesh."""
    if order is not None:
        raise ArgumentError("an order is for whole tensors, not for shards of a group")
    if ring != 1 or threads is not None or pool is not None:
        raise ArgumentError("ring, threads and pool are not for a group: its processes are the ring, "
                            "and Mesh(group, threads=...) sets their threads")


def sequences_of(lengths, k_lengths=None):
    """Packed sequences, one after the other, as the library has them: [count, 4] of first query,
    queries, first key, keys. Tensors of whole numbers."""
    lengths = lengths.to(torch.int64)
    k_lengths = lengths if k_lengths is None else k_lengths.to(torch.int64)
    if lengths.dim() != 1 or lengths.shape != k_lengths.shape:
        raise ArgumentError(f"lengths are of shape {tuple(lengths.shape)}, k_lengths of "
                            f"{tuple(k_lengths.shape)}; one number for each sequence is expected")
    columns = [column for side in (lengths, k_lengths) for column in (side.cumsum(0) - side, side)]
    return torch.stack(columns, 1)


def attention(q, k, v, pattern="full", *, scale=None, softcap=0.0, alibi=None, sinks=None,
              bias=None, mask=None, dropout=0.0, seed=None, query_offset=0, lengths=None,
              k_lengths=None, sequences=None, group=None, ring=1, partition=None, strategy=None,
              order=None, memory=None, kernel=None, threads=None, any_order=False, pool=None,
              keep=True, return_lse=False):
    """Exact attention over a pattern: softmax(scale q k^T) v, with gradients.

    q: [batch, tokens, heads, dim]; k and v may have fewer heads (GQA) and another number of tokens.
    float32, float16 or bfloat16, on a CPU or a GPU.

    group: a process group of torch.distributed, or True for all processes: q, k and v are the
        shards that `partition` gives this process, and every process calls this alike.
    ring: how many ranks share the work inside this process; tensors are whole.
    bias, mask: [1 or batch, 1 or heads, 1 or queries, keys]: numbers that are added to scores, or
        False where a key is hidden. A bias may require a gradient.
    alibi, sinks: [heads]; sinks may require a gradient.
    lengths, k_lengths: of packed sequences, 1-D tensors, over all processes of a group. sequences:
        the same as sequences_of() gives it.
    dropout: its weights are chosen by `seed`, a number or a tensor, or else by PyTorch's generator.
    order: another order of the tokens, such as "hilbert"; not on shards.
    pool, keep: the threshold of the buffer pool of this plan's ranks (-1: none); whether the plan
        is kept for the next call.
    return_lse: returns (out, lse), lse [batch, tokens, heads] in float32.
    """
    _check_types(q, k, v, bias, mask)
    q, k, v = _autocast(q, k, v)
    if bias is not None and mask is not None:
        raise ArgumentError("give a bias or a mask, not both: a bias of -inf hides a key")
    if mask is not None and mask.dtype != torch.bool:
        raise ArgumentError(f"the mask is {mask.dtype}; torch.bool is expected, False where a key "
                            "is hidden")
    if bias is not None and not bias.is_floating_point():
        raise ArgumentError(f"the bias is {bias.dtype}; floating numbers are expected. What hides "
                            "keys is a mask")
    if alibi is not None and alibi.requires_grad:
        raise UnsupportedError("the gradient of slopes is not there; detach() alibi")
    if lengths is None and k_lengths is not None:
        raise ArgumentError("k_lengths is given without lengths")
    if lengths is not None:
        if sequences is not None:
            raise ArgumentError("give lengths or sequences, not both")
        sequences = sequences_of(lengths, k_lengths)
    if isinstance(seed, int):
        seed = torch.tensor(seed)
    if dropout > 0 and seed is None:
        if group is not None:
            raise ArgumentError("dropout over a group: give every process the same seed=")
        seed = torch.randint(0, 2 ** 62, (), dtype=torch.int64, device="cpu")
    mesh = None
    if group is not None:
        _check_shards(order, ring, threads, pool)
        mesh = mesh_for(group, q.device).name
    text = _text if torch.compiler.is_compiling() else _kept_text
    options = text((
        pattern, partition, strategy, None if scale is None else float(scale), float(softcap),
        float(dropout), memory, kernel, threads, query_offset, any_order, order, pool, keep,
        lengths is not None, ring, mesh))
    out, lse = call(q, k, v, mask if bias is None else bias, sinks, alibi, sequences, seed, options,
                    return_lse)
    return (out, lse) if return_lse else out


class Attention(torch.nn.Module):
    """Self-attention of a model: projections, and attention() between them.

    Arguments after `heads` as those of attention(): pattern, group, partition, ...
    """

    def __init__(self, width, heads, *, kv_heads=None, dim=None, bias=False, **options):
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        dim = width // heads if dim is None else dim
        self.heads, self.kv_heads, self.dim, self.options = heads, kv_heads, dim, options
        self.qkv = torch.nn.Linear(width, (heads + 2 * kv_heads) * dim, bias=bias)
        self.out = torch.nn.Linear(heads * dim, width, bias=bias)

    def forward(self, x):
        """x: [batch, tokens, width]."""
        qkv = self.qkv(x).unflatten(-1, (self.heads + 2 * self.kv_heads, self.dim))
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=2)
        options = dict(self.options)
        if not self.training:
            options["dropout"] = 0.0
        return self.out(attention(q, k, v, **options).flatten(2))
