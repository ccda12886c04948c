"""Adjoints: `<f*(y), x> = <y, f(x)>`, of arrays, of functions, through loops of any bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.testing import examples_of

pytestmark = pytest.mark.core

RNG = np.random.default_rng(0)
A = jnp.asarray(RNG.normal(size=(4, 3, 3)) + 1j * RNG.normal(size=(4, 3, 3)))
SCALE = jnp.asarray(0.7 + 0.2j)


def vector():
    return jnp.asarray(RNG.normal(size=3) + 1j * RNG.normal(size=3))


def times(i, x):
    return A[i] @ x


def nested(n, x):
    inner = lambda i, y: tj.fori_loop(i, n, times, y) + x
    return tj.fori_loop(0, n, inner, x)


def mixed(n, x):
    """A state that is no counter evolves beside the linear one, and is used after the loop."""
    step = lambda i, s: (times(i, s[0]) * s[1], s[1] * 1.5 + i)
    y, t = tj.fori_loop(0, n, step, (x, 1.0))
    return y * t


def doubling(n, x):
    step = lambda s: (2 * s[0], times(s[0], s[1]))
    return tj.while_loop(lambda s: s[0] < n, step, (1, x))[1]


def strides(n, x):
    step = lambda s: (s[0] + 2, times(s[0], s[1]))
    return tj.while_loop(lambda s: s[0] < n, step, (0, x))[1]


def in_scan(n, x):
    def step(state, row):
        t, y = state
        new = tj.fori_loop(0, n, lambda i, c: t * times(i, c), y) + row
        return (t + 1.0, new), y * t

    (t, y), ys = tj.scan(step, (1.0, x), jnp.stack([x, 2 * x]), reverse=True)
    return y * t + ys.sum(0)


def in_branches(n, x):
    step = lambda i, y: tj.cond(i > 1, lambda y: times(i, y), lambda y: SCALE * y, y)
    long = lambda x: tj.fori_loop(0, n, step, x)
    return tj.cond(n > 1, long, lambda x: 2 * x, x)


def mapped(n, x):
    bounds = jnp.stack([n - 2, 0 * n, n])
    return tj.vmap(lambda x, n: tj.fori_loop(0, n, lambda i, c: SCALE * (i + 1) * c, x))(x, bounds)


def kept(n, x):
    return tj.checkpoint(lambda x: tj.fori_loop(0, n, times, x))(x)


PROGRAMS = {
    "plain": lambda n, x: A[0] @ x,
    "static": lambda n, x: tj.fori_loop(0, 3, times, x),
    "loop": lambda n, x: tj.fori_loop(0, n, times, x),
    "bounds": lambda n, x: tj.fori_loop(-n, n - 2, lambda i, x: times(i % 4, x), x),
    "backwards": lambda n, x: tj.programs.for_loop(n, 0, -1)(times)(x),
    "closure": lambda n, x: tj.fori_loop(0, n, lambda i, y: times(i, y) + x, 0 * x),
    "nested": nested,
    "mixed": mixed,
    "doubling": doubling,
    "strides": strides,
    "scan": in_scan,
    "branches": in_branches,
    "mapped": mapped,
    "checkpoint": kept,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_adjoint_is_the_one_of_the_inner_product(name):
    f = PROGRAMS[name]
    program = tj.capture(tj.programs.adjoint(f))(3, vector())
    replay, twice = jax.jit(program), jax.jit(tj.programs.adjoint(tj.programs.adjoint(f)))
    forward = jax.jit(f)
    if name == "loop":
        y = vector()
        assert jnp.array_equal(replay(0, y), y)
        assert jnp.array_equal(replay(-2, y), y)
    for n in (3, 2, 0):
        x, y = vector(), vector()
        left, right = jnp.vdot(replay(n, y), x), jnp.vdot(y, forward(n, x))
        np.testing.assert_allclose(left, right, rtol=1e-12)
        np.testing.assert_allclose(twice(n, x), forward(n, x), rtol=1e-12)


def test_adjoints_move_with_their_parameters():
    """Forward mode in a parameter, reverse mode in the vector, both against plain JAX."""
    f = lambda theta, n, x: tj.fori_loop(0, n, lambda i, x: theta * times(i, x), x)
    static = lambda theta, y: jax.linear_transpose(
        lambda x: theta**3 * (A[2] @ (A[1] @ (A[0] @ x))), y
    )(y.conj())[0].conj()
    y, theta = vector(), 1.3
    adjoint = lambda theta: tj.programs.adjoint(f)(theta, 3, y)
    found = jax.jvp(adjoint, (theta,), (1.0,))
    expected = jax.jvp(lambda theta: static(theta, y), (theta,), (1.0,))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_static_loops_have_gradients_through_their_adjoint():
    f = lambda theta, x: tj.fori_loop(0, 3, lambda i, x: theta * times(i, x), x)
    loss = lambda theta, y: jnp.sum(jnp.abs(tj.programs.adjoint(f)(theta, y)) ** 2)
    y = vector()
    program = tj.capture(loss)(1.3, y)
    expected = 6 / 1.3 * loss(1.3, y)  # of degree six in theta
    for g in (loss, program):
        np.testing.assert_allclose(jax.grad(g)(1.3, y), expected, rtol=1e-12)


def test_numbers_and_keywords():
    assert float(tj.programs.adjoint(lambda x: 3 * x)(2.0)) == 6.0
    x = jnp.array([1.0, 2.0])
    f = tj.programs.adjoint(lambda s, x, *, t: s * t * x)
    for call in (f, jax.jit(f), tj.capture(f)(3.0, x, t=5.0)):
        assert jnp.array_equal(call(3.0, x, t=5.0), 15 * x)


def test_repeated_adjoints_trace_once():
    calls = []

    def deep(x):
        calls.append(1)
        return 2 * x

    for _ in range(6):
        deep = tj.programs.adjoint(deep)
    assert float(deep(jnp.ones(()))) == 2.0
    assert len(calls) == 1


def test_trees_and_several_dtypes():
    def f(n, x):
        step = lambda i, s: {"a": s["a"] * 2 + s["b"].sum(), "b": s["b"] - s["a"]}
        return tj.fori_loop(0, n, step, x)

    tree = lambda: {"a": jnp.asarray(RNG.normal()), "b": jnp.asarray(RNG.normal(size=2))}
    x, y = tree(), tree()
    dot = lambda u, v: u["a"] * v["a"] + u["b"] @ v["b"]
    np.testing.assert_allclose(dot(tj.programs.adjoint(f)(3, y), x), dot(y, f(3, x)), rtol=1e-12)


@pytest.mark.parametrize("how", ["static", "dynamic", "shared numbers"])
def test_structured_values_have_the_product_of_arrays(how):
    """A number that stands in several places of a matrix counts as often."""
    left = jnp.asarray(RNG.normal(size=(3, 3)))
    mix = jnp.asarray(RNG.normal(size=(5, 5)))
    dense = tj.destructure

    def symmetric(n, s):
        step = lambda i, s: tj.Symmetric(2 * dense(s) + left @ dense(s) @ left.T)
        s = tj.fori_loop(0, n, step, s)
        return tj.Symmetric(jnp.trace(dense(s)) * jnp.diag(left[0]) + dense(s))

    def toeplitz(n, t):
        return tj.fori_loop(0, n, lambda i, t: tj.Toeplitz(mix @ t.values, (3, 3)), t)

    if how == "shared numbers":
        f, make = toeplitz, lambda: tj.Toeplitz(jnp.asarray(RNG.normal(size=5)), (3, 3))
    else:
        f, make = symmetric, lambda: tj.Symmetric(jnp.asarray(RNG.normal(size=(3, 3))), "mean")
    x, y = make(), make()
    if how == "static":
        y_bar = tj.programs.adjoint(lambda s: f(2, s))(y)
    else:
        y_bar = jax.jit(tj.capture(tj.programs.adjoint(f))(2, y))(2, y)
    assert type(y_bar) is type(x)
    dot = lambda u, v: jnp.sum(dense(u) * dense(v))
    np.testing.assert_allclose(dot(y_bar, x), dot(y, f(2, x)), rtol=1e-12)


OURS = [k for k in tj.rules.registered_array_types() if k.__module__.startswith("tanjax.")]


@pytest.mark.parametrize("kind", OURS, ids=lambda k: k.__name__)
def test_adjoints_and_controls_of_every_array_type(kind):
    dense = lambda a: np.asarray(tj.destructure(a) if tj.rules.is_structured(a) else a)
    matrices = [a for a in examples_of(kind) if len(a.shape) == 2]
    for a in matrices[:1] + [a for a in matrices if jnp.iscomplexobj(a)][:1]:
        np.testing.assert_allclose(dense(tj.programs.adjoint(a)), dense(a).conj().T, rtol=1e-13)
        n = a.shape[0]
        if a.shape == (n, n):
            expected = np.eye(4 * n, dtype=a.dtype)
            expected[2 * n : 3 * n, 2 * n : 3 * n] = dense(a)
            np.testing.assert_allclose(dense(tj.programs.ctrl(a, (1, 0))), expected, rtol=1e-13)
            both = (
                tj.programs.ctrl(tj.programs.adjoint(a), (0,)),
                tj.programs.adjoint(tj.programs.ctrl(a, (0,))),
            )
            np.testing.assert_array_equal(*map(dense, both))


def test_adjoint_of_a_matrix_with_a_unit_keeps_it():
    a = tj.quantity(tj.Diagonal(jnp.asarray([1j, 2.0])), "m")
    back = tj.programs.adjoint(a)
    assert back.unit is a.unit
    np.testing.assert_array_equal(back.stored.diag, [-1j, 2.0])
    plain = jnp.asarray([[1.0, 2.0], [3.0, 4.0 + 1j]])
    np.testing.assert_array_equal(tj.programs.adjoint(plain), plain.conj().T)


def test_units_come_out_as_the_product_has_them():
    turn = jnp.asarray([[0.0, 2.0, 0.0], [0.5, 0.0, 1.0], [1.0, 0.0, 0.0]])
    f = lambda q, n, x: q * tj.fori_loop(0, n, lambda i, x: tj.matmul(turn, x), x)
    q, x = tj.quantity(2.0, "s"), tj.quantity(jnp.arange(3.0), "m")
    y = tj.quantity(jnp.asarray([1.0, -2.0, 0.5]), "m")
    program = tj.capture(tj.programs.adjoint(f))(q, 2, y)
    bar = program(q, 2, y)
    assert bar.unit.dimension is (q * x).unit.dimension
    left, right = (p.to("m2 s").value.sum() for p in (bar * x, y * f(q, 2, x)))
    np.testing.assert_allclose(left, right)


def test_equation_that_is_not_linear_is_refused_with_its_line():
    sin = lambda x: jnp.sin(x)
    loop = lambda n, x: tj.fori_loop(0, n, lambda i, x: jnp.sin(x), x)
    for call in (
        lambda: tj.programs.adjoint(sin)(vector()),
        lambda: tj.programs.adjoint(loop)(2, vector()),
    ):
        with pytest.raises(NotImplementedError, match="sin") as error:
            call()
        assert any("linear in" in n and "test_adjoint.py" in n for n in error.value.__notes__)
    trips = lambda x: tj.while_loop(lambda x: jnp.abs(x[0]) < 9, lambda x: 2 * x, x)
    with pytest.raises(TypeError, match="how often"):
        tj.programs.adjoint(trips)(vector())
    branch = lambda n, x: tj.cond(
        jnp.abs(x[0]) > 1, lambda x: tj.fori_loop(0, n, times, x), lambda x: x, x
    )
    with pytest.raises(TypeError, match="which branch"):
        tj.programs.adjoint(branch)(2, vector())


@pytest.mark.parametrize("f", [lambda x: x[:2], lambda x: jnp.real(x), lambda x: (x, x)])
def test_another_space_is_refused(f):
    with pytest.raises(ValueError, match="a value like its last argument"):
        tj.programs.adjoint(f)(vector())
