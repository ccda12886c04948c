"""Every JAX transformation, over shipped rules, a rule of a user, and a type of a user.

Each case is a function of a structured matrix and a vector, next to the same lines of plain JAX on
dense arrays; each transformation is applied to both, and the results must agree.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import Counter, assert_close, densely, scalar, wave
from transformed import N, assert_agree, every_case, load, matrix, quadratic, stack

# -- batching --------------------------------------------------------------------------------------

AXES = {"0, 0": (0, 0), "0, None": (0, None), "None, 0": (None, 0), "-1, 1": (-1, 1)}


def batch(args, axes):
    return [v if axis is None else stack(v, axis) for v, axis in zip(args, axes, strict=True)]


@pytest.mark.parametrize("axes", AXES.values(), ids=AXES)
@every_case
def test_vmap_and_its_gradient(case, axes):
    def transform(f):
        many = jax.vmap(f, axes, out_axes=1)

        def run(*args):
            args = batch(args, axes)
            return many(*args), jax.grad(scalar(many), (0, 1))(*args)

        return run

    assert_agree(case, transform)


@every_case
def test_vmap_of_the_gradient_and_of_the_jvp(case):
    def transform(f):
        gradient, tangent = jax.grad(scalar(f), (0, 1)), lambda v: jax.tree.map(jnp.cos, v)
        push = lambda a, x: jax.jvp(f, (a, x), (tangent(a), tangent(x)))[1]
        return lambda a, x: (
            jax.vmap(gradient)(stack(a), stack(x)),
            jax.vmap(gradient, (None, 0))(a, stack(x)),
            jax.vmap(push, (0, None))(stack(a), x),
        )

    assert_agree(case, transform)


@every_case
def test_nested_vmap(case):
    def transform(f):
        table = jax.vmap(jax.vmap(f, (None, 0)), (0, None))
        return lambda a, x: (
            table(stack(a), stack(x)),
            jax.vmap(jax.grad(scalar(jax.vmap(f, (0, None)))), (None, 0))(stack(a), stack(x)),
        )

    assert_agree(case, transform)


@every_case
def test_batched_hessian(case):
    """Second derivatives with batched and unbatched residuals."""

    def transform(f):
        hessian = jax.hessian(lambda x, a: scalar(f)(a, x))
        return lambda a, x: (
            jax.vmap(hessian, (0, None))(stack(x), a),
            jax.vmap(hessian, (None, 0))(x, stack(a)),
        )

    assert_agree(case, transform)


# -- Jacobians, remat, linearize -------------------------------------------------------------------


@every_case
def test_jacobians_and_linearize(case):
    def transform(f):
        def run(a, x):
            _, push = jax.linearize(f, a, x)
            moved = push(jax.tree.map(jnp.sin, a), jnp.sin(x))
            return jax.jacrev(f, (0, 1))(a, x), jax.jacfwd(f, (0, 1))(a, x), moved

        return run

    assert_agree(case, transform)


@every_case
def test_checkpoint(case):
    def transform(f):
        loss = scalar(jax.checkpoint(f))
        along = lambda a, x: jax.jvp(
            jax.grad(loss, (0, 1)), (a, x), (jax.tree.map(jnp.sin, a), jnp.sin(x))
        )
        return lambda a, x: (
            jax.grad(loss, (0, 1))(a, x),
            jax.hessian(loss, 1)(a, x),
            along(a, x)[1],
        )

    assert_agree(case, transform)


# -- loops and branches ----------------------------------------------------------------------------


def loops(f):
    """Functions of a structured matrix and a vector that use control flow."""

    def structured_carry(a, x):
        def step(carry, scale):
            a, x = carry
            return (jax.tree.map(lambda v: v * scale, a), jnp.sin(f(a, x))), x

        return jax.lax.scan(step, (a, x), jnp.asarray([1.1, 0.9, 1.05]))

    def structured_xs(a, x):
        return jax.lax.scan(lambda x, a: (jnp.sin(f(a, x)), x), x, stack(a))

    def closed_over(a, x):
        return jax.lax.fori_loop(0, 3, lambda _, x: jnp.sin(f(a, x)), x)

    def branch(a, x):
        return jax.lax.cond(x[0] > 0, lambda a: f(a, x), lambda a: 2 * f(a, x), a)

    def choice(a, x):
        pick = lambda k: jax.lax.switch(k, [f, lambda a, x: f(a, 2 * x), lambda a, x: x], a, x)
        return [pick(0), pick(1), jax.vmap(pick)(jnp.arange(3))]

    return {g.__name__: g for g in (structured_carry, structured_xs, closed_over, branch, choice)}


@pytest.mark.parametrize("name", loops(None))
@every_case
def test_loops_and_branches(case, name):
    def transform(f):
        loop = loops(f)[name]
        both = jax.value_and_grad(scalar(loop), (0, 1))
        return lambda a, x: jax.jvp(both, (a, x), (jax.tree.map(jnp.sin, a), jnp.sin(x)))

    assert_agree(case, transform)


@every_case
def test_while_loop(case):
    """Forward mode through a loop of unknown length, with a structured array in the carry."""

    def transform(f):
        def loop(a, x):
            go = lambda state: (state[0] < 3) & jnp.isfinite(state[2][0])
            step = lambda state: (
                state[0] + 1,
                jax.tree.map(lambda v: 1.01 * v, state[1]),
                jnp.sin(f(state[1], state[2])),
            )
            return jax.lax.while_loop(go, step, (0, a, x))[2]

        moved = lambda a, x: jax.jvp(loop, (a, x), (jax.tree.map(jnp.sin, a), jnp.sin(x)))
        return lambda a, x: (moved(a, x), jax.vmap(loop, (None, 0))(a, stack(x)))

    assert_agree(case, transform)


# -- programs as data ------------------------------------------------------------------------------


@every_case
def test_an_exported_gradient_runs_without_this_library(case):
    """What is exported is StableHLO: no primitive, no callback, no rule is left in it."""
    function, reference, args = load(case)
    leaves, tree = jax.tree.flatten(args)

    def gradient(*leaves):
        both = jax.value_and_grad(scalar(function), (0, 1))(*tree.unflatten(leaves))
        return jax.tree.leaves(both)

    with tj.densify("allow"):
        exported = jax.export.export(jax.jit(gradient))(*leaves)
    text = exported.mlir_module()
    assert "stablehlo" in text
    assert "callback" not in text
    want = jax.value_and_grad(scalar(densely(reference)), (0, 1))(*args)
    assert_close(jax.jit(exported.call)(*leaves), jax.tree.leaves(want))


@every_case
def test_eval_shape(case):
    function, _, args = load(case)
    with tj.densify("allow"):
        bars = jax.eval_shape(jax.grad(scalar(function), (0, 1)), *args)
    assert jax.tree.structure(bars) == jax.tree.structure(args)
    assert [v.shape for v in jax.tree.leaves(bars)] == [v.shape for v in jax.tree.leaves(args)]


def test_linear_transpose_in_either_argument():
    x, y = wave(jnp.zeros(N)), wave(jnp.zeros(N), 2.0)
    a = tj.Triangular(matrix())
    (x_bar,) = jax.linear_transpose(lambda x: tj.matmul(a, x), x)(y)
    assert_close(x_bar, a.to_dense().T @ y)
    (d_bar,) = jax.linear_transpose(lambda d: tj.matmul(tj.Diagonal(d), x), y)(y)
    assert_close(d_bar, x * y)


def test_a_custom_jvp_inside_an_implementation():
    @jax.custom_jvp
    def clipped_sin(v):
        return jnp.sin(v)

    clipped_sin.defjvp(lambda p, t: (jnp.sin(p[0]), 5 * t[0]))  # not the derivative: it must show
    op = tj.operation(lambda a, x: jnp.sum(clipped_sin(a @ x)))
    a, x = tj.Diagonal(jnp.arange(1.0, 1 + N)), wave(jnp.zeros(N))
    assert_close(jax.grad(op, 1)(a, x), 5 * a.diag)
    assert_close(jax.jvp(lambda x: op(a, x), (x,), (x,))[1], 5 * jnp.sum(a.diag * x))


def test_an_operation_inside_a_custom_jvp_and_a_custom_vjp():
    a, x = tj.Diagonal(jnp.arange(1.0, 1 + N)), wave(jnp.zeros(N))
    forward = jax.custom_jvp(quadratic)
    forward.defjvp(lambda p, t: jax.jvp(quadratic, p, t))
    backward = jax.custom_vjp(quadratic)
    backward.defvjp(lambda *p: jax.vjp(quadratic, *p), lambda pull, bar: pull(bar))
    want = jax.grad(scalar(quadratic), (0, 1))(a, x)
    assert_close(jax.grad(scalar(forward), (0, 1))(a, x), want)
    assert_close(jax.grad(scalar(backward), (0, 1))(a, x), want)


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

    a = tj.Diagonal(jnp.arange(1.0, 1 + N))
    counts = lambda: (primal_traced.count, rule_traced.count, pullback_traced.count)
    compiled = jax.jit(jax.grad(total))
    functions = [total, compiled, jax.grad(total), lambda a: jax.jvp(total, (a,), (a,))]
    for f in functions:
        f(a)
        before = counts()
        for scale in (2.0, 3.0):
            f(tj.Diagonal(scale * a.diag))
        assert counts() == before
    total(tj.Diagonal(jnp.ones(N + 1)))
    assert primal_traced.count > before[0]


# -- other dtypes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "complex64"])
@pytest.mark.parametrize("case", ["matmul, Triangular", "solve, Symmetric", "own rule, Diagonal"])
def test_other_dtypes_keep_their_dtype_and_agree_with_double_precision(case, dtype):
    function, reference, args = load(case)
    if "solve" in case and dtype in ("bfloat16", "float16"):
        args = (tj.Diagonal(jnp.diagonal(args[0].data)), args[1])  # LAPACK has no half precision
    wide = jnp.complex128 if dtype == "complex64" else jnp.float64
    turn = jnp.exp(0.3j) if dtype == "complex64" else 1.0
    small = jax.tree.map(lambda v: (v.astype(wide) * turn).astype(dtype), args)
    loss = lambda f: lambda *args: jnp.sum(jnp.real(f(*args) * args[1]))
    got = jax.jit(jax.value_and_grad(loss(function), (0, 1)))(*small)
    want = jax.value_and_grad(loss(densely(reference)), (0, 1))(
        *jax.tree.map(lambda v: v.astype(wide), small)
    )
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert g.dtype == (dtype if g.shape else jnp.finfo(dtype).dtype)
        scale = float(jnp.max(jnp.abs(w)))
        error = np.max(np.abs(np.asarray(g).astype(wide) - np.asarray(w)))
        assert error <= 16 * float(jnp.finfo(dtype).eps) * scale
