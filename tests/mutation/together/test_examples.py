"""The in-place functions that ship as examples: what they compute, and in whose memory.

The cases beside them check their derivatives: `python -m tanjax check tanjax_rules.inplace`.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax import _compat
from tanjax_rules.inplace import (
    axpy,
    cholesky,
    fourier,
    givens,
    random,
    ring,
    sweeps,
    triangular,
)

N = 32
RNG = np.random.default_rng(0)
SQUARE = jnp.asarray(RNG.normal(size=(N, N)))
VECTOR = jnp.asarray(RNG.normal(size=N))
DEFINITE = SQUARE @ SQUARE.T + N * jnp.eye(N)
HESSENBERG = jnp.triu(jnp.asarray(RNG.normal(size=(N + 1, N))), -1)
key = jax.random.key_data(jax.random.key(0))
CALLS = {
    "axpy": (axpy.axpy, (VECTOR,), (2.0, VECTOR)),
    "factor_cholesky": (cholesky.factor_cholesky, (DEFINITE,), ()),
    "solve_lower": (triangular.solve_lower, (SQUARE,), (DEFINITE,)),
    "rotate_hessenberg": (givens.rotate_hessenberg, (HESSENBERG, jnp.ones(N + 1)), ()),
    "transform": (fourier.transform, (VECTOR.astype(complex),), ()),
    "push": (ring.push, (SQUARE, jnp.asarray(1)), (VECTOR,)),
    "diffuse": (random.diffuse, (VECTOR, key), (0.5,)),
}


def assert_close(a, b, atol=1e-12):
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=atol)


def on_refs(name):
    """Run a call; what its Refs hold afterwards, and its output."""
    function, states, others = CALLS[name]
    refs = tj.new_ref(states)
    out = function(*refs, *others)
    return [r[...] for r in refs], out


# -- values ----------------------------------------------------------------------------------------


def test_axpy():
    ((y,), _) = on_refs("axpy")
    assert_close(y, 3 * VECTOR)
    with pytest.raises(tj.ShapeError, match="axpy"):
        axpy.axpy(tj.new_ref(VECTOR), 2.0, VECTOR[:1])


def test_cholesky_factor():
    ((lower,), _) = on_refs("factor_cholesky")
    assert_close(lower, jnp.linalg.cholesky(DEFINITE))


def test_triangular_system():
    ((x,), _) = on_refs("solve_lower")
    assert_close(jnp.tril(DEFINITE) @ x, SQUARE)


def test_givens_rotations():
    (r, b), _ = on_refs("rotate_hessenberg")
    assert_close(jnp.tril(r, -1), 0 * r)
    assert_close(r.T @ r, HESSENBERG.T @ HESSENBERG, 1e-10)  # Q is orthogonal, R triangular
    assert_close(r.T @ b, HESSENBERG.T @ jnp.ones(N + 1), 1e-10)


@pytest.mark.parametrize("n", [1, 2, N])
def test_fourier_transform(n):
    x = tj.new_ref(jax.lax.complex(VECTOR[:n], SQUARE[0, :n]))
    before = x[...]
    fourier.transform(x)
    assert_close(x[...], np.fft.fft(before))


def test_what_the_transform_refuses():
    with pytest.raises(tj.ShapeError, match="3 entries"):
        fourier.transform(tj.new_ref(VECTOR[:3].astype(complex)))
    with pytest.raises(TypeError, match="must be complex"):
        fourier.transform(tj.new_ref(VECTOR))


def test_ring_buffer():
    buffer, head = tj.new_ref((jnp.zeros(3), 0))
    out = [float(ring.push(buffer, head, jnp.asarray(float(i)))) for i in range(1, 6)]
    assert out == [0, 0, 0, 1, 2]
    assert buffer[...].tolist() == [4, 5, 3]
    assert int(head[...]) == 2


def test_gradient_of_a_stream_through_the_ring():
    """A moving average of three, of a stream in a scan: the head is an integer in the state."""

    def roughness(xs):
        buffer, head = tj.new_ref((jnp.zeros(3), 0))

        def body(total, x):
            ring.push(buffer, head, x)
            return total + (jnp.sum(buffer[...]) / 3 - x) ** 2, None

        return jax.lax.scan(body, jnp.zeros(()), xs)[0]

    def plain(xs):
        padded = jnp.concatenate([jnp.zeros(2), xs])
        means = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
        return jnp.sum((means - xs) ** 2)

    got, expected = (
        jax.jit(jax.value_and_grad(f))(VECTOR) for f in (tj.discharge(roughness), plain)
    )
    jax.tree.map(assert_close, got, expected)


@pytest.mark.parametrize("key", [jax.random.key(7), jax.random.PRNGKey(7)], ids=["new", "old"])
def test_keys_in_memory(key):
    x, state = tj.new_ref((jnp.zeros(4), key))
    seen = []
    for _ in range(2):
        random.diffuse(x, state, 0.5)
        seen.append(x[...])
    first, second = (jax.random.normal(k, (4,), float) for k in used_keys(key))
    assert_close(seen[0], 0.5 * first)
    assert_close(seen[1], 0.5 * (first + second))


def used_keys(key):
    for _ in range(2):
        key, used = jax.random.split(key)
        yield used


def test_sweeps_of_numpy():
    x = tj.new_ref(jnp.zeros(N))
    for _ in range(40):
        sweeps.gauss_seidel(x, DEFINITE, VECTOR)
    assert_close(DEFINITE @ x[...], VECTOR, 1e-5)

    def after_two(b):
        x = tj.new_ref(jnp.zeros(3))
        for _ in range(2):
            sweeps.gauss_seidel(x, DEFINITE[:3, :3], b)
        return jnp.sum(x[...] ** 2)

    def plain(b):
        x = jnp.zeros(3)
        for _ in range(2):
            x = sweeps.definition(x, DEFINITE[:3, :3], b).state[0]
        return jnp.sum(x**2)

    for derivative in (jax.grad, jax.hessian):
        assert_close(derivative(tj.discharge(after_two))(VECTOR[:3]), derivative(plain)(VECTOR[:3]))
    with pytest.raises(tj.ShapeError, match="gauss_seidel"):
        sweeps.gauss_seidel(x, SQUARE, VECTOR[:2])


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_calls_use_the_memory_of_their_refs(name):
    """Every buffer is aliased; no state is copied, and scratch is small beside a matrix."""
    function, states, others = CALLS[name]
    returned = lambda *a: jax.tree.leaves(function(*a))
    compiled = jax.jit(returned).lower(*tj.new_ref(states), *others).compile()
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == sum(x.nbytes for x in states)
    if not _compat.BARRIER_KEEPS_ORDER and name in ("rotate_hessenberg", "push"):
        return  # this XLA copies what is read before it is written
    shapes = {",".join(map(str, x.shape)) for x in states if x.ndim == 2}
    copied = re.findall(r"= \w+\[([\d,]*)\]\S* copy\(", compiled.as_text())
    assert not shapes & set(copied)
    # The transform makes all butterflies of a stage at once, beside the ones before.
    assert memory.temp_size_in_bytes <= (2 * states[0].nbytes if name == "transform" else 72 * N)


def test_scratch_of_the_gradient_of_cholesky():
    """Three times the matrix by the rule; derived, the program keeps a copy for each column."""

    def scratch(transition):
        total = lambda a: jnp.sum(transition(a).state[0] ** 3)
        compiled = jax.jit(jax.grad(total)).lower(jnp.eye(128)).compile()
        return compiled.memory_analysis().temp_size_in_bytes / (8 * 128**2)

    assert scratch(cholesky.factor_cholesky.transition) <= 4
    assert scratch(cholesky.factor_cholesky.primal) > 100


def test_a_wrong_rule_is_caught():
    """A copy of the solver that forgets to transpose."""

    @tj.inplace(mutates="b")
    def solve(b, lower):
        triangular.substitute(b, lower, transposed=False)

    @solve.inplace_rule
    def solve_rule(b, lower):
        after = solve.primal(b, lower)

        def solve_pullback(b_bar, out_bar):
            triangular.substitute(b_bar, lower, transposed=False)
            return -jnp.tril(jnp.outer(b_bar[...], after.state[0]))

        return after, solve_pullback

    s = tj.testing.Samples(0)
    with pytest.raises(tj.CheckFailure):
        tj.testing.check_operation(solve.transition, s.normal(2), s.regular(2))
