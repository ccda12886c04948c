"""Derivatives by what Refs hold, against the same program in plain functions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj
from tanjax.units import km, m, s

pytestmark = pytest.mark.core

X, B = jnp.array([0.7, -0.4, 1.3]), jnp.array([0.2, 0.5, -1.0])
T = jnp.array([0.3, 1.0, -0.6])
assert_close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-14)


def assert_trees_close(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    jax.tree.map(assert_close, got, want)


# -- a program of Refs beside arrays, and the same in functions ----------------------------------


def settle(memory, gain):
    """Overwrite a state step by step, count, and return what depends on old and new entries."""
    first = memory["state"][0] ** 2

    def body(i, carry):
        memory["state"][i] = jnp.sin(memory["state"][i - 1]) * gain + memory["bias"][i]
        memory["count"][...] += 1
        return carry

    lax.fori_loop(1, 3, body, None)
    return first * jnp.vdot(memory["state"][...], memory["state"][...])


def settled(x, b, gain):
    x1 = jnp.sin(x[0]) * gain + b[1]
    after = jnp.stack([x[0], x1, jnp.sin(x1) * gain + b[2]])
    return x[0] ** 2 * jnp.vdot(after, after), after


def memory(x=X, b=B):
    return {"state": jax.new_ref(x), "bias": b, "count": jax.new_ref(jnp.asarray(0))}


def by_tanjax(x, b, gain):
    """Each derivative on memory of its own, and what that holds afterwards."""
    tree = functools.partial(memory, x, b)
    given, left = [tree() for _ in range(7)], {}
    value, (by_memory, by_gain) = tj.value_and_grad(settle, (0, 1))(given[0], gain)
    assert by_memory["count"] is None
    left["grad"] = value, by_memory["state"], by_memory["bias"], by_gain
    out, pullback = tj.vjp(settle, given[1], gain)
    by_memory, by_gain = pullback(1.0)
    left["vjp"] = out, by_memory["state"], by_memory["bias"], by_gain
    moved = {"state": T, "bias": 2 * T, "count": None}
    left["jvp"] = tj.jvp(settle, (given[2], gain), (moved, 0.5))
    out, push = tj.linearize(settle, given[3], gain)
    left["linearize"] = out, push(moved, 0.5)
    for i, mode in enumerate((tj.jacrev, tj.jacfwd)):
        of_state = lambda memory, gain: (settle(memory, gain), memory["state"][...])[1]
        left[mode.__name__] = mode(of_state)(given[4 + i], gain)["state"]
    left["hessian"] = tj.hessian(settle)(given[6], gain)["state"]["state"]
    after = [(tree["state"][...], tree["count"][...]) for tree in given]
    return left, after


def by_functions(x, b, gain):
    f = lambda *args: settled(*args)[0]
    value, gradient = jax.value_and_grad(f, (0, 1, 2))(x, b, gain)
    jacobian = jax.jacrev(lambda x: settled(x, b, gain)[1])(x)
    moved = jax.jvp(f, (x, b, gain), (T, 2 * T, 0.5))
    found = {"grad": (value, *gradient), "vjp": (value, *gradient), "jvp": moved}
    found |= {"linearize": moved, "jacrev": jacobian, "jacfwd": jacobian}
    return found | {"hessian": jax.hessian(f)(x, b, gain)}, settled(x, b, gain)[1]


@pytest.mark.parametrize("is_traced", [False, True], ids=["eager", "jit"])
def test_every_derivative_by_refs_is_that_of_the_functions(is_traced):
    """Every mode; and each Ref holds afterwards what the function wrote."""
    run = jax.jit(by_tanjax) if is_traced else by_tanjax
    got, states = run(X, B, jnp.asarray(0.8))
    want, after = jax.jit(by_functions)(X, B, jnp.asarray(0.8))
    assert got.keys() == want.keys()
    for name in want:
        for a, b in zip(jax.tree.leaves(got[name]), jax.tree.leaves(want[name]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=name)
    for state, count in states:
        np.testing.assert_allclose(state, after, rtol=1e-12)
        assert count == 2


def test_a_ref_that_is_not_written_stays_where_the_map_does_not_go():
    """A gradient by a Ref that every element of a map reads: it is written for none of them."""
    r = jax.new_ref(X)
    gradient = tj.grad(lambda y, r: jnp.sin(y * r[0]) * r[1], (0, 1))
    got = jax.jit(jax.vmap(lambda y: gradient(y, r)))(T)
    want = jax.vmap(jax.grad(lambda y, x: jnp.sin(y * x[0]) * x[1], (0, 1)), (0, None))(T, X)
    assert_trees_close(got, want)


def test_in_place_rules_and_outer_derivatives_hold():
    """A rule of an in-place function is used; a derivative by a Ref is differentiated again."""

    @tj.inplace(mutates="r")
    def cube(r):
        r[...] = r[...] ** 3

    @cube.natural_rule
    def cube_rule(r):
        return cube.primal(r), lambda r_bar, out_bar: 7.0 * r_bar  # wrong, to be seen

    def total(r):
        cube(r)
        return jnp.sum(r[...])

    assert_close(tj.grad(total)(jax.new_ref(X)), 7.0 * jnp.ones(3))

    def square(r):
        r[...] = r[...] ** 2
        return jnp.sum(r[...] ** 2)

    again = tj.grad(lambda r: jnp.sum(tj.grad(square)(r) ** 2))(jax.new_ref(X))
    assert_close(again, 96 * X**5)
    inside = jax.grad(tj.refs.discharge(lambda x: jnp.sum(tj.grad(square)(tj.new_ref(x)) ** 2)))
    assert_close(inside(X), 96 * X**5)


# -- structured arrays and quantities ------------------------------------------------------------


def test_gradients_of_structured_refs_are_natural_and_have_units():
    factors = jnp.array([[1.0, 2.0], [0.5, 1.0]]), jnp.array([[2.0, 0.1], [1.0, 1.5]])

    def doubled(r):
        r.factors[0][...] = r.factors[0][...] * 2
        return jnp.sum(jnp.sin(r[...].to_dense()))

    r = tj.new_ref(tj.Kronecker(*factors))
    got = tj.grad(doubled)(r)
    want = tj.grad(lambda k: jnp.sum(jnp.sin(2 * k.to_dense())))(tj.Kronecker(*factors))
    assert type(got) is type(want)
    assert_close(got.to_dense(), want.to_dense())
    assert_close(r[...].to_dense(), 2 * jnp.kron(*factors))

    def energy(q):
        q[0] = 500.0 * m
        return q[...] @ q[...]

    q = tj.new_ref(X * km)
    value, slope = tj.value_and_grad(energy)(q)
    assert_close(slope.to_value(km), [0.0, 2 * X[1], 2 * X[2]])
    assert_close(value.to_value(km**2), 0.25 + X[1] ** 2 + X[2] ** 2)
    assert_close(q[...].to_value(km), [0.5, X[1], X[2]])


def test_tangents_in_refs_become_those_of_the_state():
    """As of `jax.jvp`; in the unit of the memory that they are in, and in fields."""
    q = tj.new_ref(X * km)

    def halved(y, q):
        q[...] = q[...] * y
        return q[...] @ q[...]

    moving = tj.new_ref(T * m / s)
    out, push = tj.linearize(halved, 0.5, q)
    out_dot = push(None, moving)
    again = tj.new_ref(T * m / s)
    push(3.6 / tj.unit("h"), again)  # at the rate of the first
    assert_close(again[...].to_value(m / s), 0.5 * T + X, rtol=1e-12)
    assert_close(out.to_value(km**2), 0.25 * X @ X)
    assert_close(out_dot.to_value(km * m / s), 0.5 * X @ T)
    assert_close(moving[...].to_value(m / s), 0.5 * T)

    state = tj.new_ref((tj.Kronecker(X[None], jnp.eye(2)), jnp.asarray(2)))
    tangent = tj.tangents.zero_tangent(state)
    tangent[0].factors[0][...] = T[None]

    def count(state):
        state[0].factors[0][...] = state[0].factors[0][...] * state[1][...].astype(float)
        state[1][...] += 1
        return jnp.sum(state[0][...].to_dense() ** 2)

    moved = tj.jvp(count, (state,), (tangent,))
    assert_close(jnp.stack(moved), [8 * X @ X, 16 * X @ T])
    assert_close(tangent[0].factors[0][...], 2 * T[None])
    assert_close(tangent[0].factors[1][...], 0.0)
    assert state[1][...] == 3
    with pytest.raises(tj.errors.CotangentError, match="fields of its primal"):
        tj.jvp(count, (state,), ((tj.new_ref(jnp.ones((2, 6))), None),))


# -- buffers -------------------------------------------------------------------------------------


def test_gradients_by_refs_are_added_to_buffers():
    """By what the Ref holds before each call, which the call before it wrote."""
    r, buffer = jax.new_ref(X), tj.refs.zero_refs(X)

    def square(r):
        r[...] = r[...] ** 2
        return jnp.sum(r[...] ** 2), r[0]

    step = tj.value_and_grad(square, into=buffer, has_aux=True)
    (first, _), (second, head) = step(r), step(r)
    assert_close(jnp.stack([first, second, head]), [jnp.sum(X**4), jnp.sum(X**8), X[0] ** 4])
    assert_close(buffer[...], 4 * X**3 + 4 * X**6)
    with pytest.raises(tj.errors.AliasError, match="`argument 0` and `into` are the same memory"):
        tj.grad(square, into=r)(r)


# -- Refs that are not differentiated --------------------------------------------------------------


@pytest.mark.parametrize("mode", [tj.grad, tj.jacfwd, tj.jacrev])
def test_a_ref_beside_what_is_differentiated_is_read_and_written(mode):
    seen, matrix = jax.new_ref(jnp.asarray(0.0)), tj.new_ref(tj.Diagonal(T))

    def f(y, seen, matrix):
        seen[...] = seen[...] + 1.0
        return jnp.sum(matrix[...] @ y**2) * seen[...]

    assert_close(mode(f)(X, seen, matrix), 2 * T * X)
    assert seen[...] == 1.0
    assert_close(mode(f)(X, seen, matrix=matrix), 4 * T * X)


def test_what_is_written_to_a_ref_that_is_not_differentiated_must_not_be_either():
    def remember(y, r):
        r[0] = y[0]
        return jnp.sum(y * r[...])

    r = jax.new_ref(T)
    with pytest.raises(
        tj.errors.MutationError, match=r"(?s)remember: .*name its place in `argnums`"
    ):
        tj.grad(remember)(X, r)
    by_both = tj.grad(remember, (0, 1))(X, r)  # as it says
    assert_close(by_both[0], [2 * X[0], T[1], T[2]])
    assert_close(by_both[1], [0.0, X[1], X[2]])
    assert_close(r[...], [X[0], T[1], T[2]])
    closed = jax.new_ref(T)

    def reads_and_writes(r):
        closed[1] = closed[1] + 1.0
        return jnp.sum(r[...] ** 2 * closed[...])

    now = T.at[1].add(1.0)
    assert_close(tj.grad(reads_and_writes)(jax.new_ref(X)), 2 * X * now)
    assert_close(closed[...], now)


# -- refused ---------------------------------------------------------------------------------------


def test_what_is_refused_is_named():
    r = jax.new_ref(X)
    with pytest.raises(
        tj.errors.AliasError, match=r"`argument 0\['a'\]` and `argument 1` are the same"
    ):
        tj.grad(lambda a, b: jnp.sum(a["a"][...] * b[...]))({"a": r}, r)
    with pytest.raises(tj.errors.AliasError, match="closed over and passed as the argument a"):
        tj.grad(lambda a: jnp.sum(a[...] * r[...]))(r)
    with pytest.raises(tj.errors.MutationError, match="a Ref is returned"):
        tj.vjp(lambda a: a, r)
    with pytest.raises(tj.errors.MutationError, match="view of a Ref"):
        jax.jit(lambda r: tj.grad(lambda a: a[...])(r.at[0]))(r)
    with pytest.raises(TypeError, match="nothing to differentiate"):
        tj.grad(lambda a: 1.0 * a[0])(jax.new_ref(jnp.arange(3)))
    with pytest.raises(jax.errors.TracerBoolConversionError, match="of the argument a"):
        tj.grad(lambda a: a[0] if a[0] > 0 else a[1])(r)
