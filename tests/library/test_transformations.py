"""JAX transformations over shipped rules, a rule of a user, and a type of a user.

The kit maps, scans, checkpoints and differentiates every case; here is what else JAX does to them.
Each case is a function of a structured matrix and a vector, beside plain JAX on dense arrays.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import Counter, assert_close, densely, scalar, wave
from tanjax.testing import check_operation

pytestmark = pytest.mark.core

N = 4
MATRIX = wave(jnp.zeros((N, N))) + 3 * jnp.eye(N)
X = 1 + wave(jnp.zeros(N), 1.1)
DIAGONAL = tj.Diagonal(jnp.arange(1.1, 1 + N))


@tj.operation
def quadratic(a, x):
    return x @ (a @ x) * x


@quadratic.implementation(tj.Diagonal, tj.Dense)
def _(a, x):
    return jnp.sum(a.diag * x * x) * x


@quadratic.natural_rule
def quadratic_rule(a, x):
    inner = x @ (a @ x)

    def quadratic_pullback(y_bar):
        along = y_bar @ x
        return tj.Outer(along * x, x), inner * y_bar + along * (a @ x + a.mT @ x)

    return quadratic.primal(a, x), quadratic_pullback


@tj.register_array_type
class Powers(tj.AbstractArray):
    """A Vandermonde matrix, with nothing but `to_dense`."""

    points: jax.Array
    degree: int = tj.rules.static_field()

    def to_dense(self):
        return self.points[:, None] ** jnp.arange(self.degree, dtype=self.points.dtype)


POWERS = Powers(0.5 + jnp.arange(1.0, 1 + N) / N, N)
UPDATE = tj.LowRankUpdate(tj.Diagonal(jnp.arange(2.0, 2 + N)), MATRIX[:, :2])
CASES = {
    "matmul, Triangular": (tj.matmul, jnp.matmul, tj.Triangular(MATRIX)),
    "solve, LowRankUpdate": (tj.solve, jnp.linalg.solve, UPDATE),
    "own rule, own type": (quadratic, quadratic.__wrapped__, POWERS),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(autouse=True)
def densify():
    """A type that has nothing but `to_dense` becomes dense: that is not the subject."""
    with tj.densify("allow"):
        yield


def stack(tree):
    """A batch of three."""
    return jax.tree.map(lambda v: jnp.stack([v, 1.1 * v, 0.9 * v]), tree)


def moved(f, a, x):
    """A value and its tangent."""
    return jax.jvp(f, (a, x), (jax.tree.map(jnp.sin, a), jnp.sin(x)))


def gradient(f):
    return jax.value_and_grad(scalar(f), (0, 1))


@pytest.mark.parametrize("a", [DIAGONAL, POWERS], ids=lambda a: type(a).__name__)
def test_a_rule_of_a_user_passes_the_checks_of_the_kit(a):
    assert check_operation(quadratic, a, X).derivative == "quadratic_rule"


# -- what the kit does not run ---------------------------------------------------------------------


def nested_maps(f):
    table = jax.vmap(jax.vmap(f, (None, 0)), (0, None))
    row = jax.grad(scalar(jax.vmap(f, (0, None))))
    return lambda a, x: (
        table(stack(a), stack(x)),
        jax.vmap(row, (None, 0))(stack(a), stack(x)),
    )


def batched_hessian(f):
    """Second derivatives with batched and unbatched residuals."""
    hessian = jax.hessian(lambda x, a: scalar(f)(a, x))
    return lambda a, x: (
        jax.vmap(hessian, (0, None))(stack(x), a),
        jax.vmap(hessian, (None, 0))(x, stack(a)),
    )


def closed_over(f):
    loop = lambda a, x: jax.lax.fori_loop(0, 3, lambda _, x: jnp.sin(f(a, x)), x)
    return lambda a, x: moved(gradient(loop), a, x)


def branches(f):
    def choice(a, x):
        pick = lambda k: jax.lax.switch(k, [f, lambda a, x: f(a, 2 * x), lambda a, x: x], a, x)
        either = jax.lax.cond(x[0] > 0, lambda a: f(a, x), lambda a: 2 * f(a, x), a)
        return [either, pick(0), pick(1), jax.vmap(pick)(jnp.arange(3))]

    return lambda a, x: moved(gradient(choice), a, x)


def while_loop(f):
    """Forward mode through a loop of unknown length, with a structured array in the carry."""

    def loop(a, x):
        go = lambda state: (state[0] < 3) & jnp.isfinite(state[2][0])
        shrunk = lambda a: jax.tree.map(lambda v: 1.01 * v, a)
        step = lambda state: (state[0] + 1, shrunk(state[1]), jnp.sin(f(state[1], state[2])))
        return jax.lax.while_loop(go, step, (0, a, x))[2]

    return lambda a, x: (moved(loop, a, x), jax.vmap(loop, (None, 0))(a, stack(x)))


@pytest.mark.parametrize(
    "transform",
    [nested_maps, batched_hessian, closed_over, branches, while_loop],
    ids=lambda f: f.__name__,
)
@every_case
def test_a_transformed_call_is_that_of_the_dense_function(case, transform):
    function, reference, a = case
    got, want = (jax.jit(transform(f))(a, X) for f in (function, densely(reference)))
    assert_close(got, want)


# -- programs as data ------------------------------------------------------------------------------


@every_case
def test_an_exported_gradient_runs_without_this_library(case):
    """What is exported is StableHLO: no primitive, no callback, no rule is left in it."""
    function, reference, a = case
    leaves, tree = jax.tree.flatten((a, X))
    flat = lambda *leaves: jax.tree.leaves(gradient(function)(*tree.unflatten(leaves)))
    exported = jax.export.export(jax.jit(flat))(*leaves)
    text = exported.mlir_module()
    assert "stablehlo" in text
    assert "callback" not in text
    want = gradient(densely(reference))(a, X)
    assert_close(jax.jit(exported.call)(*leaves), jax.tree.leaves(want))
    bars = jax.eval_shape(jax.grad(scalar(function), (0, 1)), a, X)
    assert jax.tree.structure(bars) == tree
    assert [v.shape for v in jax.tree.leaves(bars)] == [v.shape for v in leaves]


def test_linear_transpose_in_either_argument():
    y = wave(jnp.zeros(N), 2.0)
    a = tj.Triangular(MATRIX)
    (x_bar,) = jax.linear_transpose(lambda x: tj.matmul(a, x), X)(y)
    assert_close(x_bar, a.to_dense().T @ y)
    (d_bar,) = jax.linear_transpose(lambda d: tj.matmul(tj.Diagonal(d), X), y)(y)
    assert_close(d_bar, X * y)


def test_a_custom_jvp_inside_an_implementation():
    @jax.custom_jvp
    def clipped_sin(v):
        return jnp.sin(v)

    clipped_sin.defjvp(lambda p, t: (jnp.sin(p[0]), 5 * t[0]))  # not the derivative: it must show
    op = tj.operation(lambda a, x: jnp.sum(clipped_sin(a @ x)))
    assert_close(jax.grad(op, 1)(DIAGONAL, X), 5 * DIAGONAL.diag)
    tangent = jax.jvp(lambda x: op(DIAGONAL, x), (X,), (X,))[1]
    assert_close(tangent, 5 * jnp.sum(DIAGONAL.diag * X))


def test_an_operation_inside_a_custom_jvp_and_a_custom_vjp():
    forward = jax.custom_jvp(quadratic)
    forward.defjvp(lambda p, t: jax.jvp(quadratic, p, t))
    backward = jax.custom_vjp(quadratic)
    backward.defvjp(lambda *p: jax.vjp(quadratic, *p), lambda pull, bar: pull(bar))
    want = gradient(quadratic)(DIAGONAL, X)
    for f in (forward, backward):
        assert_close(gradient(f)(DIAGONAL, X), want)


# -- tracing ---------------------------------------------------------------------------------------


def test_repeated_calls_trace_once():
    primal_traced, rule_traced, pullback_traced = Counter(), Counter(), Counter()

    @tj.operation
    def total(a):
        primal_traced()
        return jnp.sum(jnp.sin(a.diag))

    @total.natural_rule
    def total_rule(a):
        rule_traced()

        def total_pullback(y_bar):
            pullback_traced()
            return tj.Diagonal(y_bar * jnp.cos(a.diag))

        return total.primal(a), total_pullback

    counts = lambda: (primal_traced.count, rule_traced.count, pullback_traced.count)
    compiled = jax.jit(jax.grad(total))
    for f in (total, compiled, jax.grad(total), lambda a: jax.jvp(total, (a,), (a,))):
        f(DIAGONAL)
        before = counts()
        for scale in (2.0, 3.0):
            f(tj.Diagonal(scale * DIAGONAL.diag))
        assert counts() == before
    total(tj.Diagonal(jnp.ones(N + 1)))
    assert primal_traced.count > before[0]


# -- other dtypes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("function", "a"),
    [(tj.matmul, tj.Triangular(MATRIX)), (tj.solve, DIAGONAL), (quadratic, DIAGONAL)],
    ids=["matmul", "solve", "own rule"],
)
def test_half_precision_is_kept_and_agrees_with_double(function, a, dtype):
    small = jax.tree.map(lambda v: v.astype(dtype), (a, X))
    both = jax.jit(jax.value_and_grad(lambda a, x: jnp.sum(function(a, x) * x), (0, 1)))
    got, want = both(*small), both(*jax.tree.map(lambda v: v.astype(float), small))
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert g.dtype == dtype
        limit = 16 * float(jnp.finfo(dtype).eps) * np.max(np.abs(w))
        assert np.max(np.abs(np.asarray(g, float) - w)) <= limit
