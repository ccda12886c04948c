"""Natural derivatives of pytrees that hold structured arrays, against dense references."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tanjax as tj
from comparisons import assert_close, dense_tree, wave

N = 3


def matrix(phase=0.3, n=N):
    return wave(jnp.zeros((n, n)), phase) + 2 * jnp.eye(n)


X = wave(jnp.zeros(N), 0.9)


def arrays():
    return {
        "Diagonal": tj.Diagonal(X + 2),
        "Symmetric": tj.Symmetric(matrix()),
        "Triangular": tj.Triangular(matrix()),
        "unit Triangular": tj.Triangular(matrix(), unit_diagonal=True),
        "Fill": tj.Fill(0.7, (N, N)),
        "Identity": tj.Identity(N),
        "Scaled": tj.Scaled(matrix(), 0.6),
        "LowRank": tj.LowRank(matrix()[:, :1], matrix()[:, 1:2]),
        "LowRankUpdate": tj.LowRankUpdate(tj.Diagonal(X + 2), matrix()[:, :1]),
        "Kronecker": tj.Kronecker(matrix(), jnp.asarray([[1.5]])),
        "BlockDiagonal": tj.BlockDiagonal(tj.Diagonal(X[:1] + 2), matrix(0.4, 2)),
    }


every_type = pytest.mark.parametrize("kind", arrays())


def loss(a):
    """A curved function of the dense array."""
    d = tj.destructure(a)
    return jnp.sum(jnp.sin(wave(d) * d)) + jnp.sum(d @ d @ X)


@every_type
def test_the_natural_gradient_is_the_projected_dense_gradient(kind):
    a = arrays()[kind]

    def run(a):
        dense = jax.grad(loss)(tj.destructure(a))
        projected = tj.destructure(tj.project(a, dense))
        return dense_tree(tj.value_and_grad(loss)(a)), (loss(a), projected)

    got, want = jax.jit(run)(a)
    assert_close(got, want)


RESULTS = {
    "Diagonal": tj.Diagonal,
    "Symmetric": tj.Symmetric,
    "Triangular": tj.Triangular,
    "unit Triangular": tj.Triangular,
    "Fill": tj.Fill,
    "Identity": tj.Zero,
    "Kronecker": tj.Sum,
    "LowRank": tj.Outer,
    "BlockDiagonal": tj.BlockDiagonal,
}


@pytest.mark.parametrize(("kind", "cls"), RESULTS.items(), ids=RESULTS)
def test_classes_of_natural_gradients(kind, cls):
    a = arrays()[kind]
    gradient = tj.grad(loss)(a)
    assert type(gradient) is cls
    if kind == "unit Triangular":
        assert not gradient.unit_diagonal
        assert_close(jnp.diagonal(gradient.to_dense()), jnp.zeros(N))


@pytest.mark.parametrize("kind", ["Scaled", "LowRank", "LowRankUpdate", "Kronecker"])
def test_a_non_linear_type_is_never_its_own_gradient(kind):
    a = arrays()[kind]
    assert type(tj.grad(loss)(a)) is not type(a)
    assert type(tj.vjp(loss, a)[1](jnp.ones(()))[0]) is not type(a)


@every_type
def test_jvp_vjp_and_linearize_of_an_array(kind):
    a = arrays()[kind]
    f = lambda a: jnp.sin(tj.destructure(a)) @ tj.destructure(a)

    def run(a, seed):
        dense = tj.destructure(a)
        t = tj.project(a, seed)
        reference = jax.jvp(f, (dense,), (tj.destructure(t),))
        pulled = tj.destructure(tj.project(a, jax.vjp(f, dense)[1](seed)[0]))
        out, push = tj.linearize(f, a)
        got = tj.jvp(f, (a,), (t,)), (out, push(t)), tj.vjp(f, a)[1](seed)[0]
        return dense_tree(got), (reference, reference, pulled)

    got, want = jax.jit(run)(a, wave(matrix(), 1.3))
    assert_close(got, want)


@pytest.mark.parametrize(
    "kind", ["Diagonal", "Symmetric", "unit Triangular", "Kronecker", "Scaled"]
)
def test_jacobians_are_stacked_natural_gradients(kind):
    a = arrays()[kind]
    f = lambda a: jnp.sin(tj.destructure(a)) @ X

    def run(a):
        dense = jax.jacrev(f)(tj.destructure(a))
        rows = [tj.destructure(tj.project(a, row)) for row in dense]
        stacked = lambda block: jax.vmap(tj.destructure)(block)
        return (stacked(tj.jacrev(f)(a)), stacked(tj.jacfwd(f)(a))), (jnp.stack(rows),) * 2

    got, want = jax.jit(run)(a)
    assert_close(got, want)
    row = jax.tree.map(lambda leaf: leaf[0], tj.jacobian(f)(a))
    assert type(row) is type(tj.grad(lambda a: f(a)[0])(a))


class Pair(NamedTuple):
    first: tj.Symmetric
    second: jax.Array


class Model(eqx.Module):
    weight: tj.Triangular
    bias: jax.Array
    count: jax.Array
    missing: None = None
    name: str = eqx.field(static=True, default="model")


def trees():
    s, t = tj.Symmetric(matrix()), tj.Triangular(matrix(0.8))
    return {
        "dict": {"s": s, "x": X},
        "tuple": (s, (X, None)),
        "named tuple": Pair(s, X),
        "module": Model(t, X, jnp.asarray(3)),
        "several arrays": [s, t, X, tj.Diagonal(X)],
        "integer leaves": {"n": jnp.arange(3), "x": X, "t": t},
    }


def tree_loss(tree):
    total = jnp.zeros(())
    for leaf in jax.tree.leaves(tree, is_leaf=tj.is_structured):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            d = tj.destructure(leaf)
            total = total + jnp.sum(jnp.sin(wave(d) * d)) ** 2
    return total


@pytest.mark.parametrize("kind", trees())
def test_gradients_of_pytrees_have_the_tree_of_the_argument(kind):
    tree = trees()[kind]
    value, gradient = jax.jit(tj.value_and_grad(tree_loss))(tree)
    assert_close(value, tree_loss(tree))
    leaves, treedef = jax.tree.flatten(tree, is_leaf=tj.is_structured)
    bars = treedef.flatten_up_to(gradient)
    for i, (leaf, bar) in enumerate(zip(leaves, bars, strict=True)):
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            assert bar is None
            continue
        of_one = lambda d, i=i: tree_loss([*leaves[:i], d, *leaves[i + 1 :]])
        want = tj.project(leaf, jax.grad(of_one)(tj.destructure(leaf)))
        assert type(bar) is type(want)
        assert_close(tj.destructure(bar), tj.destructure(want))


def test_several_argnums_and_aux():
    s, t = tj.Symmetric(matrix()), tj.Triangular(matrix(0.8))

    def f(s, x, t):
        y = tj.destructure(s) @ jnp.sin(x) + tj.destructure(t) @ x
        return jnp.sum(y**2), {"y": y}

    (value, aux), (t_bar, s_bar) = tj.value_and_grad(f, (2, 0), has_aux=True)(s, X, t)
    d_bar = jax.grad(lambda *a: f(*a)[0], (2, 0))(s.to_dense(), X, t.to_dense())
    assert isinstance(t_bar, tj.Triangular)
    assert isinstance(s_bar, tj.Symmetric)
    assert_close(t_bar.to_dense(), jnp.tril(d_bar[0]))
    assert_close(s_bar.to_dense(), (d_bar[1] + d_bar[1].T) / 2)
    assert_close((value, aux["y"]), (f(s, X, t)[0], f(s, X, t)[1]["y"]))
    x_bar, aux = tj.grad(f, 1, has_aux=True)(s, X, t)
    assert_close(x_bar, jax.grad(lambda x: f(s, x, t)[0])(X))
    assert_close(tj.vjp(lambda s: f(s, X, t), s, has_aux=True)[2]["y"], aux["y"])
    rows, aux = tj.jacrev(lambda s, x: (f(s, x, t)[1]["y"], "aux"), (0, 1), has_aux=True)(s, X)
    assert aux == "aux"
    assert_close(rows[1], jax.jacrev(lambda x: f(s, x, t)[1]["y"])(X))
    assert rows[0].shape == (N, N, N)


def test_constants_under_jit_are_no_concrete_values():
    """The checks of concrete tangents and cotangents leave compiled code alone."""
    a, t = tj.Diagonal(X + 2), tj.Diagonal(X)
    empty = tj.Kronecker(tj.Identity(1), tj.Identity(2))

    @jax.jit
    def run():
        moved = tj.jvp(tj.destructure, (a,), (t,))[1]
        blind = tj.jvp(tj.destructure, (empty,), (jnp.zeros((2, 2)),))[1]
        bars = tj.grad(lambda p: jnp.sum(tj.destructure(p[0])) * p[1])((empty, jnp.ones(())))
        return moved, blind, tj.destructure(bars[0]), bars[1]

    zero = jnp.zeros((2, 2))
    assert_close(run(), (t.to_dense(), zero, zero, jnp.asarray(2.0)))


def test_integer_fields_inside_a_structured_array():
    """A part without a tangent space gives no part of the natural gradient."""
    ones = tj.Diagonal(jnp.asarray([1, 2]))
    a = tj.BlockDiagonal(ones, tj.Diagonal(jnp.asarray([3, 4])))
    update = tj.Scaled(tj.Diagonal(X), jnp.asarray(2.0))
    f = lambda p: (
        jnp.sum(tj.destructure(p["u"]) ** 2) + 0 * tj.destructure(p["a"])[0, 0].astype(float)
    )
    gradient = tj.grad(f)({"a": a, "u": update})
    assert_close(tj.destructure(gradient["u"]), 2 * update.to_dense())


def test_structured_outputs_take_and_give_natural_cotangents():
    a, seed = tj.Diagonal(X + 2), tj.Diagonal(X)
    out, pull = tj.vjp(lambda a: {"p": tj.matmul(a, a), "n": 3}, a)
    assert isinstance(out["p"], tj.Diagonal)
    assert_close(pull({"p": seed, "n": None})[0], tj.Diagonal(2 * a.diag * X))
    assert_close(pull({"p": seed.to_dense(), "n": None})[0], tj.Diagonal(2 * a.diag * X))
    assert_close(pull({"p": tj.Outer(X, X), "n": None})[0], tj.Diagonal(2 * a.diag * X * X))
    assert_close(pull({"p": None, "n": None})[0], tj.Diagonal(0 * X))
    out, moved = tj.jvp(lambda a: tj.matmul(a, a), (a,), (seed,))
    assert_close(moved, tj.Diagonal(2 * a.diag * X))


@pytest.mark.parametrize("kind", ["Diagonal", "Symmetric", "Triangular"])
def test_hessians(kind):
    """Blocks against the dense Hessian, projected on both sides."""
    a = arrays()[kind]
    f = lambda p: loss(p["a"]) + jnp.sum(tj.destructure(p["a"]) @ jnp.sin(p["x"])) ** 2

    def run(a, x):
        point = {"a": tj.destructure(a), "x": x}
        dense = jax.hessian(f)(point)
        project = jax.vmap(lambda block: tj.destructure(tj.project(a, block)))
        blocks = tj.hessian(f)({"a": a, "x": x})
        return (
            (blocks["x"]["x"], jax.vmap(tj.destructure)(blocks["x"]["a"])),
            (dense["x"]["x"], project(dense["x"]["a"])),
            blocks["a"]["a"],
            dense["a"]["a"],
        )

    got, want, block, dense = jax.jit(run)(a, X)
    assert_close(got, want)
    # the block of the array with itself: as a quadratic form along two tangents
    s, t = (tj.destructure(tj.project(a, wave(matrix(), p))) for p in (0.2, 1.9))
    form = jnp.einsum("ij,ijkl,kl", s, dense, t)
    rows = jnp.asarray(jax.vmap(jax.vmap(tj.destructure))(block))
    assert_close(jnp.einsum("ij,ijkl,kl", s, rows, t), form)


def test_jacobians_of_trees_and_the_order_of_reverse_and_forward():
    tree = {"s": tj.Symmetric(matrix()), "x": X, "n": jnp.arange(2)}
    f = lambda p: {"y": tj.destructure(p["s"]) @ jnp.sin(p["x"]), "z": jnp.sum(p["x"] ** 2)}
    rev, fwd = tj.jacrev(f)(tree), tj.jacfwd(f)(tree)
    for rows in (rev, fwd):
        assert_close(rows["y"]["x"], jax.jacfwd(lambda x: f({**tree, "x": x})["y"])(X))
        assert_close(rows["z"]["x"], 2 * X)
        assert isinstance(rows["y"]["s"], tj.Symmetric)
        assert rows["y"]["n"] is None
    assert_close(rev["y"]["s"], fwd["y"]["s"])
    assert_close(rev["z"]["s"], tj.Symmetric(jnp.zeros((N, N))))


def test_structural_gradients_drive_an_optimiser():
    """A few steps of Adam keep every storage invariant and lower the loss."""
    parameters = {
        "s": tj.Symmetric(matrix()),
        "t": tj.Triangular(matrix(0.8)),
        "k": tj.Kronecker(matrix(0.1, 2), matrix(0.2, 2)),
        "x": X,
    }

    def objective(p):
        s = tj.quadratic_form(p["s"], p["x"]) - jnp.sum(tj.matmul(p["t"], p["x"]))
        return s**2 + (tj.trace(p["k"]) - 1) ** 2 + tj.dot(p["s"], p["s"])

    @jax.jit
    def step(p, state):
        value, gradient = jax.value_and_grad(objective)(p)
        updates, state = optimiser.update(gradient, state, p)
        return optax.apply_updates(p, updates), state, value

    with jax.numpy_dtype_promotion("standard"):  # Adam mixes its integer count with floats
        optimiser = optax.adam(0.05)
        state, values = optimiser.init(parameters), []
        for _ in range(8):
            parameters, state, value = step(parameters, state)
            values.append(float(value))
    assert values[-1] < values[0]
    assert isinstance(parameters["s"], tj.Symmetric)
    np.testing.assert_array_equal(parameters["s"].data, parameters["s"].data.T)
    np.testing.assert_array_equal(jnp.triu(parameters["t"].data, 1), 0)
    assert isinstance(parameters["k"], tj.Kronecker)


def test_pairing_of_the_public_gradient():
    """`⟨natural gradient, J ẇ⟩ = ⟨structural gradient, ẇ⟩`: what catches double counting."""
    for kind, a in arrays().items():
        moved = tj.pushforward_of_destructure(a)(wave(a, 1.1))
        natural = jnp.sum(tj.destructure(tj.grad(loss)(a)) * tj.destructure(moved))
        structural = tj.inner_product(jax.grad(loss)(a), wave(a, 1.1))
        np.testing.assert_allclose(natural, structural, rtol=1e-10, atol=1e-10, err_msg=kind)
