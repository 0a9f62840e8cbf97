# SPDX-License-Identifier: Apache-2.0
"""One process of a ring: the ring functions on its shards, against the whole problem on one rank,
forward and backward.

    usage: ring_worker.py RANK RANKS FILE BACKEND DEVICE     (FILE: where the processes meet)
"""
import sys

import ringattn
import ringattn.torch as rt
import torch
import torch.distributed as dist

BACKEND, DEVICE = sys.argv[4:]
FAMILIES = {"contiguous": (rt.ring_flash_attn_func, rt.ring_flash_attn_qkvpacked_func,
                           rt.ring_flash_attn_varlen_func),
            "zigzag": (rt.zigzag_ring_flash_attn_func, rt.zigzag_ring_flash_attn_qkvpacked_func,
                       rt.zigzag_ring_flash_attn_varlen_func),
            "striped": (rt.stripe_flash_attn_func, rt.stripe_flash_attn_qkvpacked_func, None)}
# Heads, KV heads, dim, window and lengths of other libraries' tests, made smaller where they may be.
SHAPES = [(5, 5, 128, (-1, -1)), (8, 2, 16, (-1, -1)), (12, 2, 64, (51, 0)), (4, 4, 32, (51, 51))]
SEQUENCES = [[120, 1128, 2984], [7, 7, 2], [31, 0, 64]]


def whole(*shape, seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


def total(x):
    """The sum over all processes."""
    sent = x.cpu() if BACKEND == "gloo" else x
    dist.all_reduce(sent)
    return sent.to(x.device)


def compare(what, got, want, tolerance=1e-4):
    difference = (got - want).abs().max().item() if got.numel() else 0.0
    assert difference < tolerance, f"{what}: {difference}"


def check(what, ring, alone, tensors, places, tolerance):
    """ring(shards) and alone(whole): results, and gradients of one sum."""
    shards = [x[:, places].clone().requires_grad_() for x in tensors]
    full = [x.clone().requires_grad_() for x in tensors]
    out, want = ring(*shards), alone(*full)
    compare(what, out, want[:, places], tolerance)
    dout = whole(*want.shape, seed=9).to(want.dtype)
    got = torch.autograd.grad(out, shards, dout[:, places])
    expected = torch.autograd.grad(want, full, dout)
    for name, mine, theirs in zip("qkv", got, expected):
        compare(f"{what}, d{name}", mine, theirs[:, places], 4 * tolerance)


def dense(rank, ranks):
    for partition, (func, packed, _) in FAMILIES.items():
        for heads, kv_heads, dim, size in SHAPES:
            for causal in (False, True):
                n = 2 * ranks * 13
                places = torch.from_numpy(ringattn.positions(n, ranks, partition)[rank])
                tensors = [whole(1, n, h, dim, seed=seed)
                           for seed, h in enumerate((heads, kv_heads, kv_heads))]
                given = {"causal": causal, "window_size": size}
                what = f"{partition} {heads}/{kv_heads} {dim} {size} causal={causal}"
                check(what, lambda *x: func(*x, **given), lambda *x: rt.flash_attn_func(*x, **given),
                      tensors, places, 1e-4)
                if heads == kv_heads:
                    qkv = torch.stack([x[:, places] for x in tensors], 2)
                    compare(what, packed(qkv, **given), func(*qkv.unbind(2), **given))
    n = 2 * ranks * 20
    tensors = [whole(2, n, 4, 32, seed=seed, dtype=torch.bfloat16) for seed in range(3)]
    places = torch.from_numpy(ringattn.positions(n, ranks, "zigzag")[rank])
    check("bf16", lambda *x: rt.zigzag_ring_flash_attn_func(*x, causal=True),
          lambda *x: rt.flash_attn_func(*x, causal=True), tensors, places, 3e-2)
    slopes = torch.rand(4, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    check("alibi", lambda *x: rt.ring_flash_attn_func(*x, causal=True, alibi_slopes=slopes),
          lambda *x: rt.flash_attn_func(*x, causal=True, alibi_slopes=slopes),
          [x.float() for x in tensors], torch.arange(n).chunk(ranks)[rank], 1e-4)


def packed_sequences(rank, ranks):
    for partition in ("contiguous", "zigzag"):
        for lengths in SEQUENCES:
            lengths = [-(-n // (2 * ranks)) * 2 * ranks for n in lengths]
            n = sum(lengths)
            places = torch.from_numpy(ringattn.positions(n, ranks, partition, lengths=lengths)[rank])
            ends = torch.tensor([0, *lengths], device=DEVICE).cumsum(0).to(torch.int32)
            tensors = [whole(1, n, h, 16, seed=seed) for seed, h in enumerate((4, 2, 2))]

            def ring(q, k, v):
                return FAMILIES[partition][2](q[0], k[0], v[0], ends // ranks, max(lengths) // ranks,
                                              causal=True)[None]

            def alone(q, k, v):
                return rt.flash_attn_varlen_func(q[0], k[0], v[0], ends, ends, max(lengths),
                                                 max(lengths), causal=True)[None]

            check(f"varlen {partition} {lengths}", ring, alone, tensors, places, 1e-4)


def general(rank, ranks):
    """attention() itself: any pattern, terms and strategies."""
    n = 24 * ranks
    tensors = [whole(2, n, h, 16, seed=seed) for seed, h in enumerate((4, 2, 2))]
    for pattern in ("dilated:8/1,32/2", "blocks:8;local=1;global=1", "prefix:9"):
        for strategy in ("ring", "allgather"):
            places = torch.from_numpy(ringattn.positions(n, ranks, "striped")[rank])
            check(f"{pattern} {strategy}",
                  lambda *x: rt.attention(*x, pattern, group=True, partition="striped",
                                          strategy=strategy),
                  lambda *x: rt.attention(*x, pattern), tensors, places, 1e-4)
    sinks = whole(4, seed=7)
    seed = torch.tensor(3)
    places = torch.arange(n).chunk(ranks)[rank]
    for options in ({"sinks": sinks, "softcap": 5.0}, {"dropout": 0.3, "seed": seed}):
        check(f"{options}", lambda *x: rt.attention(*x, "causal", group=True, **options),
              lambda *x: rt.attention(*x, "causal", **options), tensors, places, 1e-4)
    if ranks > 1:
        short = [x[:, places][:, :23] for x in tensors]
        try:
            rt.attention(*short, "causal", group=True, partition="zigzag")
            uneven = [len(p) for p in ringattn.positions(23 * ranks, ranks, "zigzag")]
            assert len(set(uneven)) == 1, "shards that do not fit were taken"
        except ValueError as error:
            assert "partition zigzag gives it" in str(error), error


def meshes(rank, ranks):
    """Meshes that are closed and made again are not mixed up, and what fails says so."""
    q = whole(1, 6, 2, 8, seed=0)
    first, second = rt.Mesh(device=DEVICE), rt.Mesh(device=DEVICE)
    want = rt.attention(q, q, q, group=first)
    first.close()
    third = rt.Mesh(device=DEVICE)
    assert len({first.name, second.name, third.name}) == 3
    for mesh in (second, third):
        compare("another mesh", rt.attention(q, q, q, group=mesh), want)
    try:
        rt.attention(q, q, q, group=first)
        raise AssertionError("a closed mesh was used")
    except ValueError as error:
        assert "was closed" in str(error), error
    sinks = whole(2, seed=4).requires_grad_()
    full = whole(1, 6 * ranks, 2, 8, seed=3)
    part = full[:, 6 * rank:6 * rank + 6]
    found = total(torch.autograd.grad(
        rt.attention(part, part, part, sinks=sinks, group=second).sum(), sinks)[0])
    expected = torch.autograd.grad(rt.attention(full, full, full, sinks=sinks).sum(), sinks)[0]
    compare("dsinks over processes", found, expected)
    bias = whole(6 * ranks, 6 * ranks, seed=5)
    rows = bias[6 * rank:6 * rank + 6].clone().requires_grad_()
    all_rows = bias.clone().requires_grad_()
    found = torch.autograd.grad(rt.attention(part, part, part, bias=rows, group=second).square().sum(),
                                rows)[0]
    out = rt.attention(full, full, full, bias=all_rows)
    expected = torch.autograd.grad(out.square().sum(), all_rows)[0]
    compare("dbias over processes", found, expected[6 * rank:6 * rank + 6])


def devices(rank, ranks):
    """Tensors decide what carries them. Calls of one plan that follow one another on a stream, each
    with other numbers; and tensors that the process group, or the mesh, is not for."""
    every = [whole(1, 16 * ranks, 2, 8, seed=seed) for seed in range(8)]
    mine = [x[:, 16 * rank:16 * rank + 16].contiguous() for x in every]
    found = [rt.attention(x, x, x, "causal", group=True) for x in mine]
    for x, got in zip(every, found):
        compare("calls in a row", got, rt.attention(x, x, x, "causal")[:, 16 * rank:16 * rank + 16])
    on_cpu = mine[0].cpu()
    if BACKEND == "nccl":
        refused("does not carry them", lambda: rt.attention(on_cpu, on_cpu, on_cpu, group=True))
    else:
        got = rt.attention(on_cpu, on_cpu, on_cpu, "causal", group=True)
        compare("tensors of CPUs", got, found[0].cpu())
    mesh = rt.Mesh(device=DEVICE)
    mesh.device = torch.device("cuda", 77)
    refused("the mesh is for cuda:77", lambda: rt.attention(*3 * mine[:1], group=mesh))


def refused(sentence, call):
    try:
        call()
    except ringattn.RingattnError as error:
        assert sentence in str(error), error
    else:
        raise AssertionError(f"not refused: {sentence}")


def caches(rank, ranks):
    """One query that all processes have, over keys that are spread over them; some have none."""
    from ringattn._generation import Step
    n, window = 5 * ranks, 7
    q, k, v = (whole(2, n, h, 16, seed=h).transpose(1, 2) for h in (4, 2, 2))
    places = torch.arange(n - 1)[rank::ranks]
    sinks = whole(4, seed=5)
    for size, terms in ((None, {}), (window, {"sinks": sinks, "softcap": 3.0}), (1, {})):
        pattern = "causal" if size is None else f"window:{size - 1}"
        want = rt.attention(*(x.transpose(1, 2) for x in (q, k, v)), pattern, **terms)[:, -1:]
        keeps = rank == 0
        mine = [torch.cat([x[:, :, places], x[:, :, -1:]], 2) for x in (k, v)]
        step = Step(True, n - 1, places.numpy(), keeps)
        got = step.attend(q[:, :, -1:], *mine, window=size, scale=None,
                          softcap=terms.get("softcap", 0.0), sinks=terms.get("sinks"))
        compare(f"keys of all processes, {pattern}", got, want)


def models(rank, ranks):
    """A model of transformers on shards, with the logits and gradients of one process."""
    try:
        import transformers
    except ImportError:
        return
    import ringattn.transformers
    sizes = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2}
    for config in (transformers.LlamaConfig(**sizes),
                   transformers.MistralConfig(**sizes, sliding_window=9)):
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config,
                                                              attn_implementation="ringattn")
        model = model.to(DEVICE)
        n = 16 * ranks
        ids = torch.randint(0, 50, (1, n), generator=torch.Generator().manual_seed(2)).to(DEVICE)
        places = torch.from_numpy(ringattn.positions(n, ranks, "zigzag")[rank])
        want = model(ids, use_cache=False).logits
        dlogits = whole(*want.shape, seed=3)
        expected = torch.autograd.grad(want, list(model.parameters()), dlogits)
        with ringattn.transformers.ring(partition="zigzag"):
            got = model(ids[:, places], position_ids=places[None].to(DEVICE),
                        use_cache=False).logits
            found = torch.autograd.grad(got, list(model.parameters()), dlogits[:, places])
        compare("logits", got, want[:, places])
        for mine, theirs in zip(found, expected):
            compare("gradients of a model", total(mine), theirs, 1e-3)
        continue_text(model.eval(), ids, ranks)


def continue_text(model, ids, ranks):
    """Generation with a cache on all processes, as on one: prompts that shards divide evenly, that
    they do not, and that are too short for them; sequences that end early."""
    pairs = torch.cat([ids, ids.flip(1)])
    for partition, given in (("zigzag", pairs), ("contiguous", pairs[:, :-3]), (None, pairs[:, :3])):
        want = model.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=12,
                              do_sample=False, eos_token_id=49, pad_token_id=0)
        model.generation_config.pad_token_id = 0
        got = ringattn.transformers.generate(model, given, 12, partition=partition, eos_token_id=49)
        assert torch.equal(got, want), (partition, got, want)
    rank = dist.get_rank()
    for other in ({"input_ids": given + rank % 2}, {"max_new_tokens": 12 + rank},
                  {"input_ids": ids[:, :5 + rank]}):
        try:
            ringattn.transformers.generate(**{"model": model, "input_ids": given,
                                              "max_new_tokens": 12, **other})
            assert ranks == 1, other
        except ringattn.MismatchError as error:
            assert "was given another" in str(error)
    end = int(want[0, 5])
    want = model.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=12,
                          do_sample=False, eos_token_id=[end, 49], pad_token_id=0)
    got = ringattn.transformers.generate(model, given, 12, eos_token_id=[end, 49])
    assert torch.equal(got, want), (got, want)


def main():
    rank, ranks, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    if DEVICE == "cuda":
        torch.cuda.set_device(rank if "nccl" in BACKEND else 0)
    torch.set_num_threads(1)
    dist.init_process_group(BACKEND, init_method=f"file://{path}", rank=rank, world_size=ranks)
    devices(rank, ranks)
    dense(rank, ranks)
    packed_sequences(rank, ranks)
    general(rank, ranks)
    meshes(rank, ranks)
    caches(rank, ranks)
    models(rank, ranks)
    dist.barrier()
    dist.destroy_process_group()
    print("all right")


main()
