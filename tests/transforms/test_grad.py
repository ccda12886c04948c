"""Natural derivatives of functions of structured arrays, against dense references."""

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj
from comparisons import assert_close, dense_tree, wave

pytestmark = pytest.mark.core

N = 3


def matrix(phase=0.3, n=N):
    return wave(jnp.zeros((n, n)), phase) + 2 * jnp.eye(n)


X = wave(jnp.zeros(N), 0.9)


ARRAYS = {
    "Diagonal": tj.Diagonal(X + 2),
    "Symmetric": tj.Symmetric(matrix()),
    "Triangular": tj.Triangular(matrix()),
    "unit Triangular": tj.Triangular(matrix(), unit_diagonal=True),
    "Fill": tj.Fill(0.7, (N, N)),
    "Identity": tj.Identity(N),
    "Scaled": tj.Scaled(matrix(), 0.6),
    "LowRank": tj.LowRank(matrix()[:, :1], matrix()[:, 1:2]),
    "Kronecker": tj.Kronecker(matrix(), jnp.asarray([[1.5]])),
    "BlockDiagonal": tj.BlockDiagonal(tj.Diagonal(X[:1] + 2), matrix(0.4, 2)),
}


def loss(a):
    """A curved function of the dense array."""
    d = tj.destructure(a)
    return jnp.sum(jnp.sin(wave(d) * d)) + jnp.sum(d @ d @ X)


@pytest.mark.parametrize("kind", ["Symmetric", "unit Triangular", "Kronecker", "Scaled"])
def test_derivatives_are_those_of_the_dense_array_projected(kind):
    """In every transformation, of linear and non-linear types."""
    a, seed = ARRAYS[kind], wave(matrix(), 1.3)
    f = lambda a: jnp.sin(tj.destructure(a)) @ X

    @jax.jit
    def run(a):
        dense, t = tj.destructure(a), tj.tangents.project(a, seed)
        project = lambda bar: tj.destructure(tj.tangents.project(a, bar))
        rows = jax.vmap(project)(jax.jacrev(f)(dense))
        moved = jax.jvp(f, (dense,), (tj.destructure(t),))
        pulled = project(jax.vjp(f, dense)[1](X)[0])
        want = loss(a), project(jax.grad(loss)(dense)), moved, moved, pulled, rows, rows
        out, push = tj.linearize(f, a)
        blocks = [jax.vmap(tj.destructure)(mode(f)(a)) for mode in (tj.jacrev, tj.jacfwd)]
        moved = tj.jvp(f, (a,), (t,))
        got = *tj.value_and_grad(loss)(a), moved, (out, push(t)), tj.vjp(f, a)[1](X)[0], *blocks
        return dense_tree(got), want

    assert_close(*run(a))
    row = jax.tree.map(lambda leaf: leaf[0], tj.jacobian(f)(a))
    assert type(row) is type(tj.grad(lambda a: f(a)[0])(a))


@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        ("Diagonal", tj.Diagonal),
        ("Symmetric", tj.Symmetric),
        ("Triangular", tj.Triangular),
        ("unit Triangular", tj.Triangular),
        ("Fill", tj.Fill),
        ("Identity", tj.Zero),
        ("Kronecker", tj.tangents.Sum),
        ("LowRank", tj.Outer),
        ("BlockDiagonal", tj.BlockDiagonal),
    ],
)
def test_classes_of_natural_gradients(kind, cls):
    gradient = tj.grad(loss)(ARRAYS[kind])
    assert type(gradient) is cls
    if kind == "unit Triangular":
        assert not gradient.unit_diagonal
        assert_close(jnp.diagonal(gradient.to_dense()), jnp.zeros(N))


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


def test_blocks_of_a_hessian_are_those_of_the_dense_hessian_projected_on_both_sides():
    a = ARRAYS["Symmetric"]
    f = lambda p: loss(p["a"]) + jnp.sum(tj.destructure(p["a"]) @ jnp.sin(p["x"])) ** 2

    def run(a, x):
        point = {"a": tj.destructure(a), "x": x}
        dense = jax.hessian(f)(point)
        project = jax.vmap(lambda block: tj.destructure(tj.tangents.project(a, block)))
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
    s, t = (tj.destructure(tj.tangents.project(a, wave(matrix(), p))) for p in (0.2, 1.9))
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


@pytest.mark.parametrize("argnums", [-1, (-1, 0), (1, -2)])
def test_arguments_counted_from_the_last_may_hold_what_is_no_array(argnums):
    """A text or function in the tree stays in its place."""
    f = lambda y, tree: jnp.sum(tree["call"](tree["x"])) * y
    tree = {"x": X, "call": jnp.sin, "name": "text"}
    got = tj.value_and_grad(f, argnums)(0.7, tree)
    want = jax.value_and_grad(lambda y, x: jnp.sum(jnp.sin(x)) * y, argnums)(0.7, X)
    assert_close(jax.tree.leaves(got), jax.tree.leaves(want))


@pytest.mark.parametrize("mode", [tj.grad, tj.jacfwd, tj.jacrev, tj.hessian])
def test_an_argument_that_is_not_given_by_position_is_named(mode):
    with pytest.raises(TypeError, match=r"(?s)no argument for `argnums=0`.*given by position: 0"):
        mode(jnp.sum)(a=X)
    with pytest.raises(TypeError, match="no argument for `argnums=-2`"):
        mode(jnp.sum, -2)(X)
