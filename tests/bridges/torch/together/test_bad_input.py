"""What is refused: by an error that says what, where, why and what to do; never in silence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

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
from tanjax.bridges.torch import _lift


def ours(*size: int) -> Any:
    return tjt.from_jax(jnp.ones(size or (2, 3), jnp.float32))


REFUSED: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "a plain tensor with a gradient": (
        tjt.TensorError,
        "with a gradient or a tangent meets",
        lambda: ours() + torch.ones(2, 3, requires_grad=True),
    ),
    "a write into a plain tensor": (
        tjt.TensorError,
        "plain torch tensor cannot be written",
        lambda: torch.ones(2, 3).add_(ours()),
    ),
    "out= a plain tensor": (
        tjt.TensorError,
        "plain torch tensor cannot be written",
        lambda: torch.add(ours(), 1, out=torch.ones(2, 3)),
    ),
    "sparse": (tjt.DtypeError, "sparse_coo", lambda: ours(3, 3) @ torch.eye(3).to_sparse()),
    "nested": (
        tjt.DtypeError,
        "nested True",
        lambda: tjt.from_torch(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
    ),
    "quantized": (
        tjt.DtypeError,
        "quantized True",
        lambda: tjt.from_torch(torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)),
    ),
    "a dtype that JAX has not": (
        tjt.DtypeError,
        "JAX has no dtype torch.float8_e8m0fnu",
        lambda: ours().to(torch.float8_e8m0fnu),
    ),
    "a dtype that torch has not": (
        tjt.DtypeError,
        "torch has no dtype int4",
        lambda: tjt.from_jax(jnp.ones(2, jnp.int4)),
    ),
    "another device": (
        tjt.TensorError,
        "device cuda",
        lambda: torch.ops.aten._to_copy(ours(), device="cuda"),
    ),
    "pinned memory": (
        tjt.TensorError,
        "pinned True",
        lambda: torch.ops.aten.zeros_like(ours(), pin_memory=True),
    ),
    "a tensor on another device": (
        tjt.DtypeError,
        "on meta cannot become ours",
        lambda: ours() + torch.ones(2, 3, device="meta"),
    ),
    "another layout": (tj.NoRuleError, "_to_sparse", lambda: ours().to_sparse()),
    "no array": (tjt.TensorError, "got: str", lambda: tjt.from_jax("one")),
    "a tensor of torch as an array": (
        tjt.TensorError,
        "from_torch",
        lambda: tjt.from_jax(torch.ones(2)),
    ),
    "no tensor": (tjt.TensorError, "no tensor of torch", lambda: tjt.from_torch([1.0])),
    "to_jax of no tensor": (tjt.TensorError, "no tensor of torch", lambda: tjt.to_jax("x")),
    "a shared conjugate": (
        tjt.DtypeError,
        "as it is",
        lambda: tjt.to_jax(torch.tensor([1j]).conj(), copy=False),
    ),
    "a lazy module": (
        tjt.TensorError,
        "has no sizes yet",
        lambda: tjt.convert(nn.LazyLinear(2)),
    ),
    "data_ptr": (tjt.TensorError, "no storage of torch's", lambda: ours().data_ptr()),
    "storage": (tjt.TensorError, "no storage", lambda: ours().storage()),
    "apply_": (tjt.TensorError, "no storage", lambda: ours().apply_(abs)),
    "share_memory_": (tjt.TensorError, "no storage", lambda: ours().share_memory_()),
    "pin_memory": (tjt.TensorError, "no storage", lambda: ours().pin_memory()),
    "resize_": (tj.NoRuleError, "aten.resize_.default", lambda: ours().resize_(3)),
    "set_": (tj.NoRuleError, "aten.set_", lambda: ours().set_(ours())),
    "an expanded write": (
        ValueError,
        "several entries of this view are one of its base",
        lambda: ours(1, 3).expand(2, 3).add_(1),
    ),
    "an operation without a rule": (
        tj.NoRuleError,
        r"aten.to_mkldnn.default has no entry[\s\S]*implements",
        lambda: ours().to_mkldnn(),
    ),
    "out= of another size": (
        RuntimeError,
        r"output with shape \[3\] doesn't match",
        lambda: torch.add(ours(), 1, out=ours(3)),
    ),
    "out= of a narrower kind": (
        RuntimeError,
        "can't be cast",
        lambda: torch.add(ours(3), 1, out=tjt.from_jax(jnp.zeros(3, jnp.int32))),
    ),
    "a gradient of another size": (
        RuntimeError,
        "gradient of size",
        lambda: setattr(ours().requires_grad_(), "grad", ours(3)),
    ),
    "as_strided beyond the memory": (
        RuntimeError,
        "out of bounds for storage of 6 entries",
        lambda: ours().as_strided((3, 3), (3, 1)),
    ),
    "as_strided of a conjugate": (
        ValueError,
        "changes numbers",
        lambda: (ours() * 1j).conj().as_strided((2,), (1,)),
    ),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested", "ignore:torch.quantize_per")
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    """Each raises its error, which no operator turns into another one."""
    kind, words, run = REFUSED[name]
    with pytest.raises(kind, match=words) as caught:
        run()
    assert not isinstance(caught.value, TypeError)


def test_operators_keep_the_error() -> None:
    """`plain += ours` does not become `plain = plain + ours`, nor "unsupported operand"."""
    plain, leaf = torch.ones(2), torch.ones(2, requires_grad=True)
    with pytest.raises(tjt.TensorError, match="cannot be written"):
        plain += ours(2)
    for run in (lambda: leaf + ours(2), lambda: ours(2) * leaf, lambda: ours(2, 2) @ leaf):
        with pytest.raises(tjt.TensorError, match="from_torch"):
            run()


def test_lifting_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain floats with axes are lifted with one warning; numbers, indices and masks in silence."""
    monkeypatch.setattr(_lift, "_SAID", [False])
    x = ours(3)
    quiet = [torch.tensor(2.0), torch.tensor([1, 2, 3]), torch.tensor([True, False, True])]
    for t in quiet:
        assert type(x * t) is tjt.Tensor
    x[torch.tensor([0, 1])] = torch.tensor(5.0)
    x[[0, 2]] = 1.0
    with pytest.warns(tjt.LiftWarning, match=r"size \[3\] was copied[\s\S]*from_torch") as said:
        assert (x + torch.ones(3)).tolist() == [2.0, 6.0, 2.0]
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x + torch.ones(3)


def test_the_mask_that_attention_makes_is_lifted_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Torch makes it of plain numbers where it computes by the formula, as with dropout."""
    monkeypatch.setattr(_lift, "_SAID", [False])
    q = tjt.from_torch(torch.linspace(-1, 1, 8).reshape(1, 1, 4, 2))
    with sdpa_kernel(SDPBackend.MATH):
        for length in (1, 4):
            part = q[..., :length, :]
            out = F.scaled_dot_product_attention(part, part, part, is_causal=True)
            assert torch.equal(out[..., 0, :], q[..., 0, :])
    assert not _lift._SAID[0]
    with pytest.warns(tjt.LiftWarning, match=r"size \[2\]"):
        q + torch.zeros(2)


def test_backward_lifts_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own formulas make plain zeros, of which nobody need hear."""
    monkeypatch.setattr(_lift, "_SAID", [False])
    x = ours(3, 3).requires_grad_()
    z = x * 1
    z[[0, 1], [1, 0]] = ours(2)
    z.sum().backward()
    assert not _lift._SAID[0]
    assert x.grad.tolist() == [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 1.0]]


def test_numbers_never_become_narrower(float32: None) -> None:
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
    for share in (torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.float64)):
        with pytest.raises(tjt.DtypeError):
            tjt.to_jax(share, copy=False)
    assert tjt.from_torch(torch.tensor([1, 2])).dtype == torch.int32
    assert tjt.from_jax([1, 2]).dtype == torch.int32
    assert tjt.from_jax(0.5).dtype == torch.float32
    assert ours().argmax().dtype == torch.int32
    x = tjt.from_jax(jnp.array([2.0**20, 1e9]))
    assert (x.to(torch.int64)).dtype == torch.int32


def test_shapes_that_values_decide() -> None:
    """`nonzero` and masks work on values, and are refused by name under `jax.jit`."""
    assert ours(3)[torch.tensor([True, False, True])].shape == (2,)
    for run in (torch.nonzero, lambda t: t[t > 0], lambda t: torch.unique(t)):
        with pytest.raises((RuntimeError, tj.NoRuleError), match=r"values|shape"):
            jax.jit(lambda x, run=run: tjt.to_jax(run(tjt.from_jax(x))))(jnp.ones(3))


def test_control_flow_on_traced_values() -> None:
    """`if t:` under `jax.jit` raises JAX's own error."""
    with pytest.raises((jax.errors.ConcretizationTypeError, tj.NoRuleError)):
        jax.jit(lambda x: 1.0 if tjt.from_jax(x).sum() > 0 else 2.0)(jnp.ones(3))


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda t, x: t.add_(x),
    "+=": lambda t, x: t.__iadd__(x),
    "row": lambda t, x: t.__setitem__(0, x[0]),
    "view": lambda t, x: t.view(-1)[1:].mul_(x[0]),
    "constant": lambda t, x: t.zero_(),
    "out=": lambda t, x: torch.mul(x, 2, out=t),
    "data": lambda t, x: t.data.copy_(x),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, lambda f: jax.jacfwd(f)])
def test_no_tracer_leaks(name: str, transform: Any) -> None:
    """A write under a trace into a tensor made outside raises and leaves it as it was."""
    outside = ours(2)

    def f(x: Any) -> Any:
        WRITES[name](outside, tjt.from_jax(x))
        return x

    with pytest.raises(tjt.TensorError, match="made outside of a trace"), torch.no_grad():
        transform(f)(jnp.ones((2, 2)) if transform is jax.vmap else jnp.ones(2))
    assert outside.tolist() == [1.0, 1.0]


def test_reading_under_a_trace() -> None:
    """A view whose base changed, first read under a trace, does not keep what it read there."""
    base = ours(2, 2)
    row = base[0]
    base.mul_(3)
    assert jax.jit(lambda x: tjt.to_jax(row * tjt.from_jax(x)))(2.0).tolist() == [6.0, 6.0]
    assert row.tolist() == [3.0, 3.0]


def test_inner_traces() -> None:
    """A tensor of a trace may be written there, and not in a trace inside of it."""

    def inner(t: Any, x: Any) -> Any:
        t.add_(tjt.from_jax(x))
        return x

    @jax.jit
    def good(x: Any) -> Any:
        t = tjt.from_jax(x)
        inner(t, x)
        return tjt.to_jax(t)

    @jax.jit
    def bad(x: Any) -> Any:
        t = tjt.from_jax(x)
        return jax.grad(lambda y: inner(t, y))(x)

    assert good(jnp.float32(1.0)).item() == 2.0
    with pytest.raises(tjt.TensorError, match="made outside"):
        bad(jnp.float32(1.0))
