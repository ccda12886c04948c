"""JAX functions as functions of torch."""

import gc
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp
import numpy as np
from torch import nn

import tanjax as tj
from tanjax.bridges import torch as tjt
from torch_comparison import TYPES, VECTOR, assert_agree, assert_gradients_agree, normal

pytestmark = pytest.mark.torch

with warnings.catch_warnings():  # torch compiles scripts when forward mode is used first
    warnings.simplefilter("ignore")
    import torch._decomp.decompositions_for_jvp

X = tjt.from_jax(VECTOR)


def test_trees_integers_and_what_is_static():
    calls = []

    def f(tree, n, *, power, name=None):
        calls.append(name)
        y = tree["x"] ** power * n.astype(float)
        return {"y": y, "n": n + 1, "none": None, "pair": (y.sum(), tree["m"] @ y)}

    wrapped = tjt.wrap(f)
    x, m = X.clone().requires_grad_(), tjt.from_jax(TYPES["Kronecker"], requires_grad=True)
    counts = tjt.from_jax(jnp.arange(4))
    for _ in range(2):
        out = wrapped({"x": x, "m": m}, counts, power=3)
    assert calls.count(None) <= 2  # the value, and the value with its pullback
    assert out["none"] is None
    assert not out["n"].requires_grad
    assert out["n"].dtype == torch.int64
    (out["pair"][0] + out["pair"][1].sum()).backward()
    loss = lambda x, m: jnp.sum(x**3 * jnp.arange(4.0)) + jnp.sum(m @ (x**3 * jnp.arange(4.0)))
    expected = jax.grad(loss, (0, 1))(VECTOR, TYPES["Kronecker"])
    assert_agree(x.grad.payload, expected[0])
    assert_agree(m.grad.payload, expected[1])
    wrapped({"x": x, "m": m}, counts, power=2, name="other")
    assert "other" in calls
    with torch.no_grad():
        assert wrapped({"x": x, "m": m}, counts, power=3)["y"].grad_fn is None
    with pytest.raises(tjt.TensorError, match="hashed"):
        wrapped({"x": x, "m": m}, counts, power=3, name={1, 2})
    among = torch.as_tensor(np.array(VECTOR)).requires_grad_()
    mixed = wrapped({"x": among, "m": m}, counts, power=3)["pair"][0]
    assert type(mixed) is tjt.Tensor
    mixed.backward()
    assert type(among.grad) is torch.Tensor
    assert_agree(among.grad.numpy(), 3 * VECTOR**2 * jnp.arange(4.0))


def test_shapes_decide_how_many_results_there_are():
    """What a result is built like belongs to the shapes, also when both are compiled."""
    rows = tjt.wrap(lambda x: [2 * row for row in x])
    sizes = [len(rows(tjt.from_jax(normal(n, 2)))) for n in (2, 3, 2, 3)]
    assert sizes == [2, 3, 2, 3]
    parts = lambda n: torch.unbind(tjt.from_jax(tj.quantity(normal(n, 2), "m")))
    assert [len(parts(n)) for n in (2, 3, 2, 3)] == [2, 3, 2, 3]


def test_functions_with_rules_of_their_own():
    @jax.custom_vjp
    def clipped(x):
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.1, 0.1),))
    x = X.clone().requires_grad_()
    tjt.wrap(clipped)(x).sum().backward()
    assert_agree(x.grad.payload, jnp.full(4, 0.1))
    for name in ("Toeplitz", "LowRankUpdate"):
        g = lambda a, x: x @ tj.solve(a, x)
        assert_gradients_agree(tjt.wrap(g), g, TYPES[name], VECTOR)


def test_fields_that_the_matrix_does_not_determine():
    """The whole gradient in reverse mode; forward mode has matrices, and refuses."""
    k = TYPES["Kronecker"]
    read = lambda k: jnp.sum(k.factors[0] ** 2)
    assert_gradients_agree(tjt.wrap(read), read, k)
    with pytest.raises(tj.NoRuleError, match="reads the fields"):
        torch.func.jvp(lambda k: tjt.wrap(read)(k @ k), (tjt.from_jax(k),), (tjt.from_jax(k),))


def test_second_derivatives_of_each_of_two_results_are_its_own():
    """Gradients that can be differentiated, of the first result and then of the second."""
    x = X.clone().requires_grad_()
    first, second = tjt.wrap(lambda x: (jnp.sum(x**3), jnp.sum(x**4)))(x)
    for y, power in ((first, 3), (second, 4)):
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        assert_agree(slope.detach().payload, power * VECTOR ** (power - 1))
        (curvature,) = torch.autograd.grad(slope.sum(), x)
        assert_agree(curvature.payload, power * (power - 1) * VECTOR ** (power - 2))


def test_every_order_and_transformation():
    f = lambda x: tj.logdet(tj.Diagonal(x * x + 1))
    wrapped, third = tjt.wrap(f), f
    x = X.clone().requires_grad_()
    y = wrapped(x)
    for _ in range(3):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        third = (lambda g: jax.grad(lambda x: jnp.sum(g(x))))(third)
    assert_agree(y.detach().payload, third(VECTOR))
    assert_agree(torch.func.hessian(wrapped)(X).payload, jax.hessian(f)(VECTOR))
    assert_agree(torch.func.jacfwd(torch.func.grad(wrapped))(X).payload, jax.hessian(f)(VECTOR))
    batch = normal(3, 4)
    each = torch.func.vmap(torch.func.grad(wrapped))(tjt.from_jax(batch))
    assert_agree(each.payload, jax.vmap(jax.grad(f))(batch))
    scaled = torch.func.vmap(lambda x, a: wrapped(x * a), in_dims=(None, 0))
    assert_agree(
        scaled(X, tjt.from_jax(batch[:, 0])).payload, jax.vmap(lambda a: f(VECTOR * a))(batch[:, 0])
    )
    assert torch.autograd.gradcheck(lambda x: wrapped(x), (x,))


def test_constants_of_a_trace_do_not_outlive_a_function():
    function = lambda x: x * 2.0
    held = weakref.ref(function)
    tjt.wrap(function)(X)
    del function
    gc.collect()
    assert held() is None


def test_made_arrays():
    x = X.clone().requires_grad_()
    made = tjt.make(tj.Diagonal, x)
    assert type(made.payload) is tj.Diagonal
    (made @ X).sum().backward()
    assert_agree(x.grad.payload, VECTOR)
    length = tjt.make(tj.quantity, x, "m")
    assert length.payload.unit == tj.unit("m")


def test_equal_arguments_of_two_kinds_are_two():
    """`1 == True`, and a function may tell them apart."""
    f = tjt.wrap(lambda x, n: x * 2 if n is True else x * 3)
    x = tjt.from_jax(jnp.ones(2))
    assert [f(x, n)[0].item() for n in (True, 1, True)] == [2, 3, 2]


def recurrence(x, w):
    step = lambda h, row: (jnp.tanh(h + row * w), h.sum())
    return jax.lax.scan(step, jnp.zeros(3), x)


SCALE = jnp.array([0.5, 2.0, -1.0])
# Functions of JAX with the same functions of torch.
PLAIN = {
    "sin": (jnp.sin, lambda x: x.sin()),
    "matmul": (lambda x, y: x @ y.T, lambda x, y: x @ y.T),
    "solve": (
        lambda x, y: jnp.linalg.solve(x @ x.T + jnp.eye(2), y),
        lambda x, y: torch.linalg.solve(x @ x.T + torch.eye(2, dtype=x.dtype), y),
    ),
    "two results": (lambda x: (x**2, jnp.exp(x).sum()), lambda x: (x**2, x.exp().sum())),
    "a jitted function": (jax.jit(lambda x, y: jnp.cos(x * y)), lambda x, y: (x * y).cos()),
    "a closure": (lambda x: x**2 * SCALE, lambda x: x**2 * torch.as_tensor(np.array(SCALE))),
    "a Bessel function": (lambda x: jax.scipy.special.i0(x), lambda x: torch.special.i0(x)),
}


def leaves(*sizes):
    return [torch.as_tensor(np.array(normal(*s))).requires_grad_() for s in sizes]


def pulled(out, given):
    parts = out if isinstance(out, tuple) else (out,)
    total = sum(
        (p * torch.linspace(1, 2, p.numel(), dtype=p.dtype).view(p.shape)).sum() for p in parts
    )
    gradients = torch.autograd.grad(total, given, create_graph=True)
    return [*parts, *gradients, *torch.autograd.grad(sum((g**2).sum() for g in gradients), given)]


@pytest.mark.parametrize("name", PLAIN)
def test_plain_tensors_give_plain_tensors_and_gradients(name):
    """Values and derivatives of first and second order are those of the function of torch."""
    mine, theirs = PLAIN[name]
    given = leaves(*[(2, 3)] * theirs.__code__.co_argcount)
    for found, expected in zip(
        pulled(tjt.wrap(mine)(*given), given), pulled(theirs(*given), given), strict=True
    ):
        assert type(found) is torch.Tensor
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_a_scan_of_plain_tensors():
    x, w = leaves((5, 3), (3,))
    out, sums = tjt.wrap(recurrence)(x, w)
    (out.sum() + sums.sum()).backward()
    loss = lambda x, w: sum(part.sum() for part in recurrence(x, w))
    expected = jax.grad(loss, (0, 1))(jnp.asarray(x.detach()), jnp.asarray(w.detach()))
    for t, g in zip((x, w), expected, strict=True):
        assert type(t.grad) is torch.Tensor
        assert_agree(t.grad.numpy(), g)


def test_a_wrapped_function_in_a_plain_module_trains_as_torchs():
    """With `torch.optim`, on plain tensors; and the module is a JAX function itself."""

    class Layer(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function, self.linear = function, nn.Linear(3, 3, dtype=torch.float64)

        def forward(self, x):
            return self.function(self.linear(x), self.linear.bias).square().mean()

    both = []
    (x,) = leaves((4, 3))
    x = x.detach()
    mine = tjt.wrap(lambda h, b: jnp.sin(h) * b)
    for function in (mine, lambda h, b: h.sin() * b):
        torch.manual_seed(0)
        module = Layer(function)
        optimiser = torch.optim.Adam(module.parameters(), lr=0.05)
        for _ in range(5):
            optimiser.zero_grad()
            loss = module(x)
            loss.backward()
            optimiser.step()
        both.append((loss.detach(), *module.linear.parameters()))
    for found, expected in zip(*both, strict=True):
        assert type(found.detach()) is torch.Tensor
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    module = Layer(mine)
    params, f = tjt.as_jax(module)
    gradient = jax.jit(jax.grad(f))(params, jnp.asarray(x))
    module(x).backward()
    assert_agree(gradient["linear.bias"], module.linear.bias.grad.numpy())
    called = tjt.callback(module, jax.ShapeDtypeStruct((), jnp.float64))
    x.requires_grad_()
    assert_agree(
        jax.grad(called)(jnp.asarray(x.detach())), torch.autograd.grad(module(x), x)[0].numpy()
    )


def test_plain_tensors_under_torch_func_and_forward_mode():
    wrapped = tjt.wrap(lambda x, a: jnp.sum(jnp.sin(x) * a))
    theirs = lambda x, a: (x.sin() * a).sum()
    x, a, t = (t.detach() for t in leaves((4,), (4,), (4,)))
    batch = torch.stack([x, a, t])

    def transformed(f):
        grad, vmap = torch.func.grad, torch.func.vmap
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, t)
            pushed = torch.autograd.forward_ad.unpack_dual(f(dual, a)).tangent
        return [
            grad(f)(x, a),
            torch.func.hessian(f)(x, a),
            torch.func.jvp(f, (x, a), (t, x)),
            vmap(f, (0, None))(batch, a),
            vmap(grad(f), (None, 0))(x, batch),
            torch.func.jacfwd(grad(f), 1)(x, a),
            pushed,
        ]

    found = torch.utils._pytree.tree_leaves(transformed(wrapped))
    expected = torch.utils._pytree.tree_leaves(transformed(theirs))
    for mine, other in zip(found, expected, strict=True):
        assert type(mine) is torch.Tensor
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)
    assert torch.autograd.gradcheck(wrapped, (x.requires_grad_(), a), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(wrapped, (x, a.requires_grad_()))


def test_results_that_a_plain_tensor_cannot_be_are_ours():
    (x,) = leaves((3,))
    made = tjt.make(tj.Diagonal, x)
    assert type(made.payload) is tj.Diagonal
    (made @ tjt.from_jax(jnp.ones(3))).sum().backward()
    assert type(x.grad) is torch.Tensor
    assert x.grad.tolist() == [1.0] * 3
    length = tjt.wrap(lambda x: x * tj.unit("m"))(x)
    assert length.payload.unit == tj.unit("m")


def test_plain_numbers_that_jax_does_not_hold_are_refused(float32):
    for t in (torch.ones(2, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)):
        with pytest.raises(tjt.DtypeError, match="needs 64 bits"):
            tjt.wrap(jnp.sin)(t.requires_grad_())


def test_a_plain_operand_that_was_written_since_raises():
    (x,) = leaves((3,))
    y = x * 1
    out = tjt.wrap(jnp.sin)(y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_gradients_of_complex_numbers_are_torchs():
    """Torch's gradient is the conjugate of JAX's: of plain tensors, of ours, and of structure."""
    c, b = (np.array(normal(3)) + 1j * np.array(normal(3)) for _ in range(2))
    wave = torch.as_tensor(c).requires_grad_()
    for function in (lambda z: jnp.exp(z) * z, lambda z: jnp.conj(z) * z * z, jnp.real):
        assert torch.autograd.gradcheck(tjt.wrap(function), (wave,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(tjt.wrap(lambda z: jnp.exp(z) * z), (wave,))

    def loss(matrix, b):
        with tj.densify("allow"):
            return (
                (torch.linalg.solve(matrix @ matrix, b) + torch.sin(matrix) @ b) * (1 + 3j)
            ).real

    loss(torch.diag(wave), torch.as_tensor(b)).sum().backward()
    x = tjt.from_jax(jnp.asarray(c), requires_grad=True)
    matrix = tjt.from_jax(tj.Diagonal(jnp.asarray(c)), requires_grad=True)
    right = tjt.from_jax(jnp.asarray(b))
    loss(tjt.make(tj.Diagonal, x), right).sum().backward()
    loss(matrix, right).sum().backward()
    assert_agree(x.grad.payload, wave.grad.numpy())
    assert_agree(matrix.grad.payload.diag, wave.grad.numpy())
