"""JAX functions as functions of torch."""

import gc
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch")

import jax
import jax.numpy as jnp

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
    with pytest.raises(tjt.TensorError, match="plain torch tensor with a gradient"):
        wrapped({"x": torch.ones(4, requires_grad=True), "m": m}, counts, power=3)


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
