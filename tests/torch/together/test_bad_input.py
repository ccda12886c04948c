"""What is refused: by an error that says what, where, why and what to do; never in silence."""

import warnings

import pytest

pytest.importorskip("torch")

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import tanjax as tj
from tanjax.bridges import torch as tjt
from tanjax_torch.tensor import _lift

pytestmark = pytest.mark.torch

aten, ONES, QINT8 = torch.ops.aten, torch.ones(2), torch.qint8


def ours(*size):
    return tjt.from_jax(jnp.ones(size or (2, 3), jnp.float32))


REFUSED = {
    tjt.TensorError: [
        ("a gradient or a tangent meets", lambda: ours() + torch.ones(2, 3, requires_grad=True)),
        ("plain torch tensor cannot be written", lambda: torch.ones(2, 3).add_(ours())),
        ("torch tensor cannot be written", lambda: torch.add(ours(), 1, out=torch.ones(2, 3))),
        ("device cuda", lambda: aten._to_copy(ours(), device="cuda")),
        ("pinned True", lambda: aten.zeros_like(ours(), pin_memory=True)),
        ("got: str", lambda: tjt.from_jax("one")),
        ("from_torch", lambda: tjt.from_jax(torch.ones(2))),
        ("no tensor of torch", lambda: tjt.from_torch([1.0])),
        ("no tensor of torch", lambda: tjt.to_jax("x")),
        ("has no sizes yet", lambda: tjt.convert(nn.LazyLinear(2))),
        ("no storage of torch's", lambda: ours().data_ptr()),
        ("no storage", lambda: ours().storage()),
        ("no storage", lambda: ours().apply_(abs)),
        ("no storage", lambda: ours().share_memory_()),
        ("no storage", lambda: ours().pin_memory()),
    ],
    tjt.DtypeError: [
        ("sparse_coo", lambda: ours(3, 3) @ torch.eye(3).to_sparse()),
        ("nested True", lambda: tjt.from_torch(torch.nested.nested_tensor([torch.ones(2)] * 2))),
        ("quantized True", lambda: tjt.from_torch(torch.quantize_per_tensor(ONES, 1.0, 0, QINT8))),
        ("JAX has no dtype torch.float8_e8m0fnu", lambda: ours().to(torch.float8_e8m0fnu)),
        ("torch has no dtype int4", lambda: tjt.from_jax(jnp.ones(2, jnp.int4))),
        ("on meta cannot become ours", lambda: ours() + torch.ones(2, 3, device="meta")),
    ],
    tj.NoRuleError: [
        ("_to_sparse", lambda: ours().to_sparse()),
        ("aten.resize_.default", lambda: ours().resize_(3)),
        ("aten.set_", lambda: ours().set_(ours())),
        (r"aten.to_mkldnn.default has no entry[\s\S]*implements", lambda: ours().to_mkldnn()),
    ],
    RuntimeError: [
        (r"output with shape \[3\] doesn't match", lambda: torch.add(ours(), 1, out=ours(3))),
        ("can't be cast", lambda: torch.add(ours(3), 1, out=tjt.from_jax(jnp.arange(3)))),
        ("gradient of size", lambda: setattr(ours().requires_grad_(), "grad", ours(3))),
        ("bounds for storage of 6 entries", lambda: ours().as_strided((3, 3), (3, 1))),
    ],
    ValueError: [
        ("several entries of this view are one", lambda: ours(1, 3).expand(2, 3).add_(1)),
        ("changes numbers", lambda: (ours() * 1j).conj().as_strided((2,), (1,))),
    ],
}
CALLS = [(kind, *case) for kind, cases in REFUSED.items() for case in cases]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested", "ignore:torch.quantize_per")
@pytest.mark.parametrize(("kind", "words", "run"), CALLS, ids=[words for _, words, _ in CALLS])
def test_calls_without_meaning_raise_their_error(kind, words, run):
    with pytest.raises(kind, match=words) as caught:
        run()
    assert not isinstance(caught.value, TypeError)  # no operator turns it into another one


def test_operators_keep_the_error():
    """`plain += ours` does not become `plain = plain + ours`, nor "unsupported operand"."""
    plain, leaf = torch.ones(2), torch.ones(2, requires_grad=True)
    with pytest.raises(tjt.TensorError, match="cannot be written"):
        plain += ours(2)
    for run in (lambda: leaf + ours(2), lambda: ours(2) * leaf, lambda: ours(2, 2) @ leaf):
        with pytest.raises(tjt.TensorError, match="from_torch"):
            run()


@pytest.fixture
def unsaid(monkeypatch):
    """No plain tensor was lifted before."""
    monkeypatch.setattr(_lift, "_SAID", [False])


@pytest.mark.usefixtures("unsaid")
def test_lifting_floats_warns_once_and_lifting_numbers_and_indices_never():
    x = ours(3)
    for t in (torch.tensor(2.0), torch.tensor([1, 2, 3]), torch.tensor([True, False, True])):
        assert type(x * t) is tjt.Tensor
    x[torch.tensor([0, 1])] = torch.tensor(5.0)
    x[[0, 2]] = 1.0
    with pytest.warns(tjt.LiftWarning, match=r"size \[3\] was copied[\s\S]*from_torch") as said:
        assert (x + torch.ones(3)).tolist() == [2.0, 6.0, 2.0]
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x + torch.ones(3)


@pytest.mark.usefixtures("unsaid")
def test_tensors_that_torch_makes_are_lifted_in_silence():
    """The mask of attention by the formula, as with dropout; zeros of a backward formula."""
    q = tjt.from_torch(torch.linspace(-1, 1, 8).reshape(1, 1, 4, 2))
    with sdpa_kernel(SDPBackend.MATH):
        for length in (1, 4):
            part = q[..., :length, :]
            out = F.scaled_dot_product_attention(part, part, part, is_causal=True)
            assert torch.equal(out[..., 0, :], q[..., 0, :])
    x = ours(3, 3).requires_grad_()
    z = x * 1
    z[[0, 1], [1, 0]] = ours(2)
    z.sum().backward()
    assert x.grad.tolist() == [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    with pytest.warns(tjt.LiftWarning, match=r"size \[2\]"):
        q + torch.zeros(2)


def test_numbers_never_become_narrower(float32):
    """Without x64: float64 is refused, int64 becomes int32 where its numbers fit, visibly."""
    with pytest.raises(tjt.DtypeError, match="needs 64 bits"):
        tjt.from_torch(torch.ones(2, dtype=torch.float64))
    for run in (lambda: ours().double(), lambda: ours() + torch.ones(2, 3).double()):
        with pytest.raises(tjt.DtypeError, match="jax_enable_x64"):
            run()
    with pytest.raises(tjt.DtypeError, match="needs 64 bits"):
        tjt.from_jax(np.ones(2))
    with pytest.raises(tjt.DtypeError, match="from 1 to 1099511627776"):
        tjt.from_torch(torch.tensor([1, 2**40]))
    assert tjt.from_torch(torch.tensor([1, 2])).dtype == torch.int32
    assert tjt.from_jax([1, 2]).dtype == torch.int32
    assert tjt.from_jax(0.5).dtype == torch.float32
    assert ours().argmax().dtype == torch.int32
    x = tjt.from_jax(jnp.array([2.0**20, 1e9]))
    assert (x.to(torch.int64)).dtype == torch.int32


def test_shapes_and_branches_that_values_decide_are_refused_under_a_trace():
    assert ours(3)[torch.tensor([True, False, True])].shape == (2,)
    for run in (torch.nonzero, lambda t: t[t > 0], lambda t: torch.unique(t)):
        with pytest.raises((RuntimeError, tj.NoRuleError), match=r"values|shape"):
            jax.jit(lambda x, run=run: tjt.to_jax(run(tjt.from_jax(x))))(jnp.ones(3))
    with pytest.raises((jax.errors.ConcretizationTypeError, tj.NoRuleError)):
        jax.jit(lambda x: 1.0 if tjt.from_jax(x).sum() > 0 else 2.0)(jnp.ones(3))


WRITES = {
    "add_": lambda t, x: t.add_(x),
    "+=": lambda t, x: t.__iadd__(x),
    "row": lambda t, x: t.__setitem__(0, x[0]),
    "view": lambda t, x: t.view(-1)[1:].mul_(x[0]),
    "constant": lambda t, x: t.zero_(),
    "out=": lambda t, x: torch.mul(x, 2, out=t),
    "data": lambda t, x: t.data.copy_(x),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.jacfwd])
def test_a_write_under_a_trace_into_a_tensor_from_outside_raises(write, transform):
    outside = ours(2)

    def f(x):
        write(outside, tjt.from_jax(x))
        return x

    with pytest.raises(tjt.TensorError, match="made outside of a trace"), torch.no_grad():
        transform(f)(jnp.ones((2, 2)) if transform is jax.vmap else jnp.ones(2))
    assert outside.tolist() == [1.0, 1.0]


def test_a_write_into_a_tensor_of_an_outer_trace_raises():
    """A tensor of a trace may be written there, and not in a trace inside of it."""

    def inner(t, x):
        t.add_(tjt.from_jax(x))
        return x

    @jax.jit
    def good(x):
        t = tjt.from_jax(x)
        inner(t, x)
        return tjt.to_jax(t)

    @jax.jit
    def bad(x):
        t = tjt.from_jax(x)
        return jax.grad(lambda y: inner(t, y))(x)

    assert good(jnp.float32(1.0)).item() == 2.0
    with pytest.raises(tjt.TensorError, match="made outside"):
        bad(jnp.float32(1.0))
