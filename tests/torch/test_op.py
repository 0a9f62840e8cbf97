# SPDX-License-Identifier: Apache-2.0
"""The operator: PyTorch's own checks of it, gradients, compilers, autocast, threads."""
import os
import threading

import numpy
import pytest
import ringattn
import ringattn.torch as rt
import torch
from conftest import exact, near
from ringattn.torch import _op, _pool
from ringattn.torch._op import attend, gradient, text_of


def seen_by(pattern, queries, keys, **options):
    return torch.from_numpy(ringattn.mask(pattern, queries, keys, **options)[0]) > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("pattern", ["full", "causal", "window:5,2", "blocks:8;local=1"])
@pytest.mark.parametrize("ring", [1, 3])
def test_forward_and_backward(make, dtype, pattern, ring):
    q = make(2, 30, 4, 16, dtype=dtype)
    k, v = (make(2, 30, 2, 16, dtype=dtype, seed=seed) for seed in (1, 2))
    out, lse = rt.attention(q, k, v, pattern, ring=ring, partition="zigzag", return_lse=True)
    want, want_lse = exact(q, k, v, seen_by(pattern, 30, 30))
    near(out, want)
    near(lse, want_lse, dtype)
    dout, dlse = make(2, 30, 4, 16, dtype=dtype, seed=3), make(2, 30, 4, seed=4)
    got = torch.autograd.grad((out, lse), (q, k, v), (dout, dlse))
    expected = torch.autograd.grad((want, want_lse), (q, k, v), (dout.double(), dlse.double()))
    for mine, theirs in zip(got, expected):
        near(mine, theirs, factor=4)


CASES = {
    "plain": {},
    "sinks": {"sinks": lambda: torch.randn(4, requires_grad=True)},
    "mask": {"bias": lambda: torch.rand(1, 1, 9, 9) > 0.3},
    "bias": {"bias": lambda: torch.randn(2, 4, 9, 9)},
    "alibi": {"alibi": lambda: torch.rand(4)},
    "sequences": {"sequences": lambda: rt.sequences_of(torch.tensor([4, 5]))},
    "seed": {"seed": lambda: torch.tensor(7)},
}


@pytest.mark.parametrize("case", CASES)
def test_opcheck(case, device):
    q = torch.randn(2, 9, 4, 8, device=device, requires_grad=True)
    k, v = (torch.randn(2, 9, 2, 8, device=device, requires_grad=True) for _ in range(2))
    given = {name: make() for name, make in CASES[case].items()}
    if "sinks" in given or "bias" in given:
        given = {name: x.detach().to(device).requires_grad_(x.requires_grad)
                 for name, x in given.items()}
    more = [given.get(name) for name in ("bias", "sinks", "alibi", "sequences", "seed")]
    options = text_of({"pattern": "causal", "dropout": 0.2 if case == "seed" else 0.0})
    torch.library.opcheck(attend, (q, k, v, *more, options))
    with torch.no_grad():
        out, lse = attend(q, k, v, *more, options)
    plain = [x.detach() for x in (torch.randn_like(out), torch.randn_like(lse), q, k, v, out, lse)]
    more[1] = None if more[1] is None else more[1].detach()
    torch.library.opcheck(gradient, (*plain, *more, options, case == "bias"))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_without_graph_breaks(device, backend):
    layer = rt.Attention(32, 4, kv_heads=2, pattern="window:7").to(device)
    x = torch.randn(2, 20, 32, device=device)

    def loss(x):
        return (layer(x.sin()) ** 2).mean()

    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    want = torch.autograd.grad(loss(x), layer.parameters())
    got = torch.autograd.grad(compiled(x), layer.parameters())
    for mine, theirs in zip(got, want):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_compile_with_symbols(make):
    """dynamic=True makes symbols of all lengths, and of numbers that are made of them."""

    @torch.compile(dynamic=True, fullgraph=True, backend="aot_eager")
    def compiled(q, k, v, factor):
        return rt.attention(q, k, v, f"window:{q.shape[1] // 2}", scale=factor * q.shape[3] ** -0.5)

    for tokens, dim, factor in ((20, 16, 1.0), (28, 16, 1.5), (36, 24, 2.0)):
        q, k, v = (make(2, tokens, 2, dim, seed=seed) for seed in range(3))
        dout = make(2, tokens, 2, dim, seed=4).detach()
        got = compiled(q, k, v, factor)
        want = rt.attention(q, k, v, f"window:{tokens // 2}", scale=factor * dim ** -0.5)
        for mine, theirs in zip((got, *torch.autograd.grad(got, (q, k, v), dout)),
                                (want, *torch.autograd.grad(want, (q, k, v), dout))):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_the_operator_is_there_for_who_watches(make):
    q, k, v = (make(1, 20, 2, 16, seed=seed) for seed in range(3))
    dout = make(1, 20, 2, 16, seed=4).detach()

    def run():
        out = rt.attention(q, k, v, "causal")
        return out, *torch.autograd.grad(out, (q, k, v), dout)

    alone = run()
    with torch.profiler.profile() as profile:
        watched = run()
    for mine, theirs in zip(watched, alone):
        assert torch.equal(mine, theirs)
    names = {event.key for event in profile.key_averages()}
    assert {"ringattn::attend", "ringattn::gradient"} <= names
    graph = torch.autograd.grad(rt.attention(q, k, v), q, dout.requires_grad_(), create_graph=True)
    with pytest.raises(RuntimeError, match="twice"):
        graph[0].sum().backward()


def test_only_lse_has_a_gradient(make):
    q, k, v = (make(1, 20, 2, 16, seed=seed) for seed in range(3))
    _, lse = rt.attention(q, k, v, return_lse=True)
    got = torch.autograd.grad(lse.sum(), (q, k, v))
    want = torch.autograd.grad(exact(q, k, v)[1].sum(), (q, k, v), allow_unused=True)
    near(got[0], want[0], factor=4)
    near(got[1], want[1], factor=4)
    assert not got[2].any()


def test_shapes_without_data():
    with torch.device("meta"):
        q, k = torch.empty(2, 9, 4, 8), torch.empty(2, 7, 2, 8)
        v = torch.empty(2, 7, 2, 12)
    out, lse = rt.attention(q, k, v, return_lse=True)
    assert out.is_meta and out.shape == (2, 9, 4, 12) and lse.shape == (2, 9, 4)


def test_autocast(make, device):
    q, k, v = (make(1, 20, 2, 16, seed=seed) for seed in range(3))
    with torch.autocast(device, torch.bfloat16):
        out = rt.attention(q, k, v, "causal")
    assert out.dtype == torch.bfloat16
    near(out, exact(q, k, v, seen_by("causal", 20, 20))[0])
    out.sum().backward()
    assert q.grad.dtype == torch.float32


def test_sinks_and_dropout(make):
    q, k, v = (make(1, 40, 2, 16, seed=seed) for seed in range(3))
    sinks = make(2, seed=5)
    out = rt.attention(q, k, v, "causal", sinks=sinks)
    dout = make(1, 40, 2, 16, seed=6)
    found = torch.autograd.grad(out, (q, sinks), dout)
    seen = seen_by("causal", 40, 40)
    more = [torch.cat([x, torch.zeros_like(x[:, :1])], 1) for x in (k, v)]
    bias = torch.cat([torch.zeros(2, 40, 40), sinks.cpu()[:, None, None].expand(2, 40, 1)], 2)
    seen = torch.cat([seen, torch.ones(40, 1, dtype=torch.bool)], 1)
    want, _ = exact(q, *more, seen, bias.to(q.device))
    near(out, want)
    for mine, theirs in zip(found, torch.autograd.grad(want, (q, sinks), dout.double())):
        near(mine, theirs, factor=4)
    torch.manual_seed(1)
    dropped = [rt.attention(q, k, v, dropout=0.5) for _ in range(2)]
    torch.manual_seed(1)
    assert torch.equal(dropped[0], rt.attention(q, k, v, dropout=0.5))
    assert not torch.equal(*dropped)


@pytest.mark.parametrize("shape", [(20, 20), (4, 20, 20), (2, 1, 20, 20), (2, 4, 1, 20), (1, 20)])
@pytest.mark.parametrize("ring", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_of_a_bias(shape, ring, dtype, make):
    q, k, v = (make(2, 20, heads, 16, seed=seed, dtype=dtype)
               for seed, heads in enumerate((4, 2, 2)))
    bias = make(*shape, seed=3)
    out = rt.attention(q, k, v, "causal", bias=bias, ring=ring, partition="zigzag")
    want, _ = exact(q, k, v, seen_by("causal", 20, 20), bias.double())
    near(out, want)
    dout = make(2, 20, 4, 16, seed=4, dtype=dtype).detach()
    for mine, theirs in zip(torch.autograd.grad(out, (q, k, v, bias), dout),
                            torch.autograd.grad(want, (q, k, v, bias), dout.double())):
        near(mine, theirs, dtype, factor=4)


def test_strides_that_change(make):
    """Calls of one plan with other strides each, some of which the library cannot read."""
    q, k, v = (make(2, 12, 4, 16, seed=seed).detach() for seed in range(3))
    forms = (lambda x: x, lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
             lambda x: x.mT.contiguous().mT, lambda x: torch.cat([x, x], 3)[..., :16])
    want = rt.attention(q, k, v, "causal")
    for of_q in forms:
        for of_k in forms:
            near(rt.attention(of_q(q), of_k(k), of_q(v), "causal"), want)
    one = v[:1, :1, :1].expand(2, 12, 4, 16)  # strides of 0
    near(rt.attention(q, k, one, "causal"), rt.attention(q, k, one.clone(), "causal"))


def test_idle_crews():
    """Each is found by its own key, the one given last first; of too many the oldest is closed."""
    class Idle:
        closed = False

        def close(self):
            self.closed = True

    pool, crews = _pool.Pool(), [Idle() for _ in range(_pool._IDLE + 2)]
    for number, crew in enumerate(crews):
        pool.give(number % 2, crew)
    assert [crew.closed for crew in crews] == [True] * 2 + [False] * _pool._IDLE
    assert pool.take(0) is crews[-2] and pool.take(1) is crews[-1] and pool.take(2) is None
    for crew in crews[-4:1:-2]:
        assert pool.take(0) is crew
    assert pool.take(0) is None
    pool.clear()
    assert pool.take(1) is None and crews[3].closed and not crews[-1].closed


@pytest.mark.parametrize("pattern", ["full", "causal", "window:30"])
def test_keys_that_grow(pattern, make, monkeypatch):
    """As on GPUs: one plan for a capacity, whatever the number of keys, and none after them read."""
    made = []

    class Counted(_op.TensorRing):
        def __init__(self, setup, *more):
            if setup.options.counts:
                made.append(setup.k_len)
            super().__init__(setup, *more)

    monkeypatch.setattr(_op, "_grows", lambda q: True)
    monkeypatch.setattr(_op, "TensorRing", Counted)
    rt.clear()
    keys, values = (make(2, 400, 2, 16, seed=seed).detach() for seed in (1, 2))
    q, sinks = make(2, 3, 4, 16).detach(), make(4, seed=5).detach()
    for n in (3, 4, 200, 256, 257, 400, 3):
        got = rt.attention(q, keys[:, :n], values[:, :n], pattern, sinks=sinks)
        want = rt.attention(q, keys[:, :n], values[:, :n], pattern, sinks=sinks, dropout=1e-12)
        near(got, want)
    assert made == [256, 512]
    with pytest.raises(ValueError, match="tokens and heads those of k and v"):
        rt.attention(q, keys[:, :200], values[:, :100], pattern)
    with pytest.raises(ValueError, match="k has shape"):
        rt.attention(q, keys[0, 0, 0], values, pattern)
    lengths = numpy.array([17, 390])
    options = _op.text_of({"pattern": pattern})
    out, lse = _op.attend_counted(q, keys, values, None, lengths, options)
    for item, n in enumerate(lengths):
        one = (x[item:item + 1] for x in (q, keys[:, :n], values[:, :n]))
        want = rt.attention(*one, pattern, return_lse=True)
        near(out[item:item + 1], want[0])
        near(lse[item:item + 1], want[1])
    rt.clear()


def test_second_use_of_a_graph(make):
    q, k, v = (make(1, 20, 2, 16, seed=seed) for seed in range(3))
    out = rt.attention(q, k, v).sum()
    first = torch.autograd.grad(out, q, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(out, q)[0])


def test_threads_at_once(make):
    q, k, v = (make(1, 60, 2, 16, seed=seed).detach() for seed in range(3))
    want = rt.attention(q, k, v, "causal")
    wrong = []

    def work():
        for _ in range(20):
            if not torch.equal(rt.attention(q, k, v, "causal"), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    rt.clear()


def test_plans_share_their_threads(make):
    q = make(1, 40, 2, 16).detach()
    rt.clear()
    rt.attention(q, q, q, threads=3)
    before = threads_of_this_process()
    for n in range(1, 30):
        rt.attention(q[:, :n], q[:, :n], q[:, :n], threads=3)
    assert threads_of_this_process() == before
    with pytest.raises(ValueError, match="pattern"):
        rt.attention(q, q, q, "casual", threads=3)
    rt.attention(q, q, q, threads=3)
    assert threads_of_this_process() == before


def threads_of_this_process():
    return len(os.listdir("/proc/self/task"))


def test_a_module_drops_nothing_in_eval(make):
    layer = rt.Attention(32, 4, dropout=0.5)
    x = torch.randn(1, 10, 32)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))


def test_a_bitmap_is_read_again(make, tmp_path):
    q = make(1, 8, 1, 8).detach()
    path = tmp_path / "map.npy"
    numpy.save(path, numpy.eye(2, dtype=numpy.uint8))
    first = rt.attention(q, q, q, f"blocks:4;bitmap={path}")
    numpy.save(path, numpy.ones((2, 2), numpy.uint8))
    assert not torch.equal(first, rt.attention(q, q, q, f"blocks:4;bitmap={path}"))


def test_numbers_of_any_kind(make):
    q = make(1, 8, 2, 16).detach()
    want = rt.attention(q, q, q, scale=0.25, alibi=torch.ones(2))
    assert torch.equal(want, rt.attention(q, q, q, scale=1 / numpy.sqrt(16),
                                          alibi=torch.ones(2, dtype=torch.bfloat16)))
    dropped = [rt.attention(q, q, q, dropout=0.5, seed=seed) for seed in (3, torch.tensor(3))]
    assert torch.equal(*dropped)


def test_what_cannot_be_honoured_is_refused(make, device):
    q, k, v = (make(1, 8, 2, 16, seed=seed) for seed in range(3))
    with pytest.raises(ValueError, match="torch.bool"):
        rt.attention(q, k, v, mask=torch.ones(8, 8))
    with pytest.raises(ValueError, match="float64"):
        rt.attention(q.double(), k.double(), v.double())
    with pytest.raises(ValueError, match="alike"):
        rt.attention(q, k.half(), v)
    with pytest.raises(ValueError, match="pattern"):
        rt.attention(q, k, v, "casual")
    with pytest.raises(ValueError, match=r"has shape \(3, 8\)"):
        rt.attention(q, k, v, bias=torch.zeros(3, 8))
    with pytest.raises(ValueError, match="add up to 5, but there are 8"):
        rt.attention(q, k, v, lengths=torch.tensor([3, 2]))
    with pytest.raises(ValueError, match="without lengths"):
        rt.attention(q, k, v, k_lengths=torch.tensor([8]))
    with pytest.raises(ValueError, match="not both"):
        rt.attention(q, k, v, lengths=torch.tensor([8]), sequences=torch.tensor([[0, 8, 0, 8]]))
    with pytest.raises(ValueError, match=r"\[count, 4\] are expected"):
        rt.attention(q, k, v, sequences=torch.tensor([[0, 8, 0]]))
    with pytest.raises(ValueError, match="whole numbers"):
        rt.attention(q, k, v, sequences=torch.tensor([[0.0, 8.0, 0.0, 8.0]]))
    with pytest.raises(ValueError, match="scale is nan; a finite number"):
        rt.attention(q, k, v, scale=float("nan"))
    with pytest.raises(ValueError, match="pattern is None; a text"):
        rt.attention(q, k, v, None)
    with pytest.raises(ValueError, match="k is of type ndarray; a tensor"):
        rt.attention(q, numpy.zeros((1, 8, 2, 16), "f4"), v)
    with pytest.raises(NotImplementedError, match="gradient of slopes"):
        rt.attention(q, k, v, alibi=torch.ones(2, requires_grad=True))
    with pytest.raises(ValueError, match="same seed"):
        rt.attention(q, k, v, group=True, dropout=0.5)
    with pytest.raises(ValueError, match="not initialized"):
        rt.attention(q, k, v, group=True)
    with pytest.raises(ValueError, match="Mesh"):
        rt.attention(q, k, v, group=True, threads=3)
