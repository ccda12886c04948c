"""Views, writes and what autograd makes of them, each as plain torch does it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tanjax.bridges import torch as tjt
from torch_programs import differences

X = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]

WRITES = (
    "x.diagonal().zero_()",
    "x.diagonal(1).add_(10)",
    "x.fill_diagonal_(4)",
    "x[:, 1] = mk([7.0, 8.0, 9.0])",
    "x[[0, 2]] = 1",
    "x[b] = -1",
    "x[b, 1] = -1",
    "x[b][:, 0] = 3",
    "x[i] = y[:1]",
    "x[i, i] += 1",
    "x[..., None] = 3",
    "x[None] = mk([1.0, 2.0, 3.0])",
    "x[1] = x[0]",
    "x[0] += 1; x[0] += 1",
    "x[1, 1] = 5",
    "x[-1, -1] = 5",
    "x[5] = 1",
    "x[0] = y",
    "x[x > 4] = 0",
    "x[x > 4] *= 2",
    "x[1:1] = 3",
    "x[:, ::2] = 0",
    "x[torch.tensor(1)] = 0",
    "x[()] = 0",
    "x[True] = 1",
    "x[0][1] = 9",
    "x[[0, 1], [1, 2]] = mk([8.0, 9.0])",
    "x[i] = mk([[1, 2, 3]])",
    "x[0] = mk([1, 2, 3])",
    "x.t()[0] = 5",
    "x.expand(2, 3, 3).add_(1)",
    "x.expand(2, 3, 3)[1].add_(1)",
    "x.view(-1)[3:5] = 0",
    "x.view(9).view(3, 3).t()[1:].mul_(0)",
    "x.view(torch.int32).zero_()",
    "x.view(torch.int16)[0, 0] = 5",
    "x.view(torch.uint8)[:, 3] = 64",
    "x[0].view(torch.complex64)",
    "x.as_strided((2, 2), (3, 1), 1).fill_(7)",
    "x[1:].as_strided((2,), (1,)).zero_()",
    "x.t().as_strided((4,), (2,), 1).neg_()",
    "x.t()[1:].as_strided((2, 2), (1, 3)).neg_()",
    "x.as_strided((5, 5), (5, 1))",
    "x.as_strided((2,), (-1,))",
    "x.unfold(0, 2, 1)[0].zero_()",
    "x.unbind(1)[0].zero_()",
    "[p.mul_(2) for p in x.split(1)]",
    "[p.mul_(n) for n, p in enumerate(x.chunk(2, 1))]",
    "x.narrow(0, 1, 2).zero_()",
    "x.squeeze().mul_(2)",
    "x.flatten().mul_(2)",
    "x.t().flatten().mul_(2)",
    "x.reshape(9)[0] = 4",
    "x.ravel()[1] = 4",
    "x.T[0, 1] = 9",
    "x.mT[0, 1] = 9",
    "x.select(1, 2).neg_()",
    "x.index_select(0, i).zero_()",
    "x.hsplit(3)[1].zero_()",
    "x.tensor_split(2)[1].zero_()",
    "x.unsqueeze(0)[0, 0] = 3",
    "x.broadcast_to(3, 3)[0] = 3",
    "x.swapaxes(0, 1).add_(y[0])",
    "x.unflatten(0, (3, 1)).add_(1)",
    "x.movedim(0, 1)[0] = 2",
    "v = x.view(-1); x.zero_(); v[2] = 1",
    "v, w = x[0], x[:, 0]; v.add_(1); w.mul_(2); v.add_(1)",
    "x[0:2][1:][0].zero_()",
    "x[0:0].add_(1)",
    "x.view(1, 9)[:, 1::3] = 2",
    "torch.add(x, 1, out=x)",
    "torch.mul(x[0], 2, out=x[1])",
    "torch.mm(x * 1, x * 1, out=x[:])",
    "x.clamp_(1, 4)",
    "x.masked_fill_(x > 3, 0)",
    "x.index_add_(0, i, y)",
    "x.scatter_(0, i[None], 9.0)",
    "x.index_fill_(0, i, 2)",
    "x.index_copy_(0, i, y)",
    "x.put_(i, mk([5.0, 6.0]))",
    "x.fill_(mk(3.0))",
    "x.fill_(y)",
    "x.copy_(b)",
    "x.gt_(3)",
    "x.add_(1j)",
    "x.copy_(mk([1.0, 2.0]))",
    "x[0].add_(x)",
    "b.add_(1)",
    "x.bitwise_and_(1)",
    "x.tril_()",
    "x.cumsum_(0)",
    "x.lerp_(x * 2, 0.5)",
    "x.copy_(x.t().clone())",
    "x.zero_().add_(1)",
    "torch.max(x, 0, out=(x[0], i))",
    "x.unsqueeze(1).squeeze(1)[1] = 0",
)
OTHERS = (
    "v = x.view(-1); x.t_(); x[0] = 7; x, v, list(x.stride())",
    "v = x[1:]; v.unsqueeze_(0).squeeze_().transpose_(0, 1); v[1] = 5; x, v, list(v.stride())",
    "v = x.t(); x.swapaxes_(0, 1).mul_(v.clone()); x, v",
    "c.conj().mul_(2j); c",
    "torch.view_as_real(c)[0, 1] = 7; c",
    "torch.view_as_real(c)[1:].zero_(); c",
    "v = torch.view_as_complex(torch.view_as_real(c)); v[0] = 1j; c",
    "c.real.mul_(2); c",
    "c.imag[0] = 9; c",
    "c.conj().imag.mul_(3); c",
    "c.conj().imag.resolve_neg()",
    "c[1:].conj()[0] = 3 + 1j; c",
    "k = mk([1, 2]); k.add_(0.5)",
    "k = mk([1, 2]); k.div_(2)",
    "k = mk([1, 2]); k.mul_(mk([1.5, 1.0]))",
    "k = mk([1, 2]); k.copy_(mk([1.7, 2.7])); k",
    "k = mk([1, 2]); k[0] = 2.7; k",
    "b.mul_(b); b",
    "o = mk([0.0, 0.0, 0.0]); torch.add(x[0], 1, out=o); o",
    "o = mk([0, 0, 0]); torch.add(x[0], 1, out=o)",
    "o = mk([]); torch.add(x, 1, out=o); o",
    "x[1:].as_strided((2,), (1,))",
    "x[1:].as_strided((2, 2), (1, 1), 0)",
    "x.data.mul_(2); x",
    "x.detach()[0] = 3; x",
    "[r.sum() for r in x]",
    "len(x), x.dim(), list(x.shape)",
    "with torch.no_grad(): x.add_(1)\nx",
    "x.t().stride(), x[1].storage_offset(), x[:, 1].is_contiguous()",
    "x[0]._base is x, x[0]._is_view(), x._is_view()",
    "v = x[0]; x.add_(1); x._version == v._version",
)
GRADIENTS = (
    "z = x * 1; v = z[0]; z.t_(); z[0].mul_(v.detach().clone()); (z * z).sum().backward()",
    "z = x * 1; z.unsqueeze_(0); z[0, 1:].mul_(2); z.squeeze_(0).sum().backward()",
    "x.t_()",
    "x.add_(1)",
    "x[0] = 1",
    "x.view(-1).add_(1)",
    "z = x * 1; z[0] = y[0]; z.sum().backward()",
    "z = x.exp(); z.mul_(2); z.sum().backward()",
    "z = x * 1; v = z[0]; z.mul_(3); v.sum().backward()",
    "z = x * 1; v = z[0]; v.mul_(x[1]); z.sum().backward()",
    "z = x * 1; a, *r = z.unbind(); a.mul_(2)",
    "z = x * 1; a, *r = z.split(1); z.mul_(2); a.sum()",
    "with torch.no_grad(): v = x[0]\nv.mul_(2)",
    "z = x * 1; q = z * z; z.detach().mul_(2); q.sum().backward()",
    "z = x * 1; q = z * z; z.data.mul_(2); q.sum().backward()",
    "o = mk([0.0] * 3); torch.add(x[0], 1, out=o)",
    "z = x * 2; z.t()[0].copy_(x[1]); (z * z).sum().backward()",
    "x.requires_grad_(False).add_(1)",
    "with torch.inference_mode(): z = x * 2\nz.add_(1)",
    "with torch.inference_mode(): z = x * 2\nz * x",
    "with torch.inference_mode(): x.add_(1)",
    "z = x * 1; z.requires_grad = False",
    "i.requires_grad_()",
    "z = x.clone(); z[:, 0] = 0; z.diagonal().mul_(2); (z ** 2).sum().backward()",
    "z = x * 1; z.as_strided((2, 2), (1, 3), 1).mul_(3); (z ** 2).sum().backward()",
    "z = x * 1; z.t()[1:].as_strided((2, 2), (1, 3)).mul_(3); (z ** 2).sum().backward()",
    "z = x + 0; z[b] = 0; z.sum().backward()",
    "z = x + 0; z[i, i] = y[0, :2] * 0; z.sum().backward()",
    "z = x + 0; z[0] = x[2]; z.sum().backward()",
    "x.grad = mk([[1.0] * 3] * 3); x.sum().backward()",
    "z = torch.complex(x, x); z.real.mul_(2); z.abs().sum().backward()",
    "z = torch.complex(x, x); z.conj()[0].mul_(2); torch.view_as_real(z)[..., 0].sum().backward()",
    "torch.sigmoid_(x * 1).sum().backward()",
    "z = x * 1; z += z; z.sum().backward()",
    "z = x * 1; z.t().add_(z.clone()).sum().backward()",
    "z = (x * 1).expand(2, 3, 3); z.sum().backward()",
    "z = x * 1; z.retain_grad(); z.mul_(2); z.sum().backward(); x.grad = z.grad",
    "z = x * 1; z.register_hook(lambda g: g * 2); z[0] = 0; z.sum().backward()",
    "with torch.no_grad(): d = (x * 1).t()\nd[0].mul_(x[0]); d.sum().backward()",
    "torch.autograd.grad((x ** 3).sum(), x, create_graph=True)[0].sum().backward()",
    "z = x * 1; z.view(9)[4:].view(5).mul_(x.view(9)[:5]); z.sum().backward(); z.sum().backward()",
)


def run(program: str, make: Any, requires_grad: bool = False) -> Any:
    """The numbers of the last expression of a program, or that it raised."""
    known = {"torch": torch, "mk": make, "x": make(X).requires_grad_(requires_grad)}
    known |= {"y": make(X[:2]), "c": make([1 + 2j, 3 - 1j]), "i": make([1, 0])}
    known |= {"b": make([True, False, True])}
    before, _, last = program.rpartition("\n" if program.endswith("\nx") else "; ")
    try:
        exec(before, known)
        return listed(eval(last, known))
    except (RuntimeError, ValueError, IndexError, NotImplementedError):
        return "raises"


def listed(x: Any) -> Any:
    """Tensors as nested lists of numbers, rounded."""
    if isinstance(x, torch.Tensor):
        numbers = x.detach().resolve_conj()
        return np.round(numbers.numpy() * 1, 4).tolist()
    return [listed(a) for a in x] if isinstance(x, (list, tuple)) else x


def ours(x: Any) -> tjt.Tensor:
    return tjt.from_torch(torch.tensor(x))


@pytest.mark.parametrize("program", WRITES)
def test_writes(program: str) -> None:
    """What is in the memory after a write, or that torch refuses it."""
    assert run(program + "; x", ours) == run(program + "; x", torch.tensor)


@pytest.mark.parametrize("program", OTHERS)
def test_other_memories(program: str) -> None:
    """Complex numbers, integers, `out=`, and what a view says of itself."""
    assert run(program, ours) == run(program, torch.tensor)


@pytest.mark.parametrize("program", GRADIENTS)
def test_autograd(program: str) -> None:
    """The gradient that is left in the leaf, or that torch refuses the program."""
    program += "; x.grad"
    assert run(program, ours, True) == run(program, torch.tensor, True)


def test_random_programs() -> None:
    """Sixty random programs of views, writes, reads and backward passes agree at each step."""
    found = [differences(seed, lambda x: tjt.from_jax(jnp.asarray(x))) for seed in range(60)]
    assert not list(filter(None, found)), "\n\n".join(filter(None, found))


def test_reads_come_before_writes() -> None:
    """Where torch refuses or gives half-written numbers, the operation reads, then writes."""
    x = ours(X)
    x.add_(x.t())
    np.testing.assert_array_equal(x, np.array(X) + np.array(X).T)
    x = ours(X)
    x[1:].copy_(x[:-1])
    np.testing.assert_array_equal(x, np.array(X)[[0, 0, 1]])


def test_long_chain_of_views() -> None:
    """A chain of a thousand views is read and written as one view of the memory."""
    x = v = ours(X)
    for _ in range(1000):
        v = v.t()
    v[0, 1] = 7
    x[1, 0] = 9
    assert (x[0, 1].item(), v[1, 0].item()) == (7, 9)


def test_loops_do_not_compile_anew() -> None:
    """Programs are compiled for sizes, not for places: the hundredth row costs no compilation."""
    x = tjt.from_jax(jnp.zeros((100, 5)))

    def one(n: int) -> None:
        x[n] += n
        x[n, 2] = x[n - 1, 1]
        x[n : n + 2] *= 2

    one(1)
    with count_compilations() as counted:
        for n in range(2, 98):
            one(n)
    assert counted == []
    assert x[3, 0].item() == 6.0


def test_a_view_that_is_read_under_a_trace_keeps_nothing_of_it() -> None:
    x = tjt.from_jax(jnp.asarray(X))
    row = x[1]
    x.add_(1)  # what the row was is out of date, and is first read again inside
    inside = jax.jit(lambda: row.payload * 2)()
    assert inside.tolist() == [8.0, 10.0, 12.0]
    assert row.tolist() == [4.0, 5.0, 6.0]


@contextlib.contextmanager
def count_compilations() -> Iterator[list[str]]:
    """The names of what JAX compiles meanwhile."""
    events: list[str] = []
    active = [True]

    def listen(name: str, *_: Any, **__: Any) -> None:
        if active[0] and name.endswith("backend_compile_duration"):
            events.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield events
    finally:
        active[0] = False
