"""The in-place functions that ship as examples: what they compute, and in whose memory.

The cases beside them check their derivatives: `python -m tanjax check tanjax_rules.inplace`.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
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

pytestmark = pytest.mark.core

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


def states_after(name):
    function, states, others = CALLS[name]
    refs = tj.new_ref(states)
    function(*refs, *others)
    return [r[...] for r in refs]


# -- values ----------------------------------------------------------------------------------------


def test_states_are_those_of_the_algorithm():
    assert_close(*states_after("axpy"), 3 * VECTOR)
    assert_close(*states_after("factor_cholesky"), jnp.linalg.cholesky(DEFINITE))
    assert_close(jnp.tril(DEFINITE) @ states_after("solve_lower")[0], SQUARE)
    r, b = states_after("rotate_hessenberg")
    assert_close(jnp.tril(r, -1), 0 * r)
    assert_close(r.T @ r, HESSENBERG.T @ HESSENBERG, 1e-10)  # Q is orthogonal, R triangular
    assert_close(r.T @ b, HESSENBERG.T @ jnp.ones(N + 1), 1e-10)


@pytest.mark.parametrize("n", [1, 2, N])
def test_fourier_transform(n):
    x = tj.new_ref(jax.lax.complex(VECTOR[:n], SQUARE[0, :n]))
    before = x[...]
    fourier.transform(x)
    assert_close(x[...], np.fft.fft(before))


def test_arguments_of_a_wrong_shape_or_dtype_are_refused():
    with pytest.raises(tj.ShapeError, match="axpy"):
        axpy.axpy(tj.new_ref(VECTOR), 2.0, VECTOR[:1])
    for matrix, b in ((SQUARE, VECTOR[:2]), (SQUARE[1:], VECTOR)):
        with pytest.raises(tj.ShapeError, match="gauss_seidel"):
            sweeps.gauss_seidel(tj.new_ref(VECTOR), matrix, b)
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


@pytest.mark.parametrize("key", [jax.random.key(7), jax.random.PRNGKey(7)], ids=["new", "old"])
def test_random_steps_use_and_renew_the_key_in_memory(key):
    x, state = tj.new_ref((jnp.zeros(4), key))
    want = jnp.zeros(4)
    for _ in range(2):
        random.diffuse(x, state, 0.5)
        key, used = jax.random.split(key)
        want += 0.5 * jax.random.normal(used, (4,), float)
        assert_close(x[...], want)


def test_sweeps_of_gauss_seidel_converge():
    x = tj.new_ref(jnp.zeros(N))
    for _ in range(40):
        sweeps.gauss_seidel(x, DEFINITE, VECTOR)
    assert_close(DEFINITE @ x[...], VECTOR, 1e-5)


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_calls_use_the_memory_of_their_refs(name):
    """Every buffer is aliased; no state is copied, and scratch is small beside a matrix."""
    function, states, others = CALLS[name]
    returned = lambda *a: jax.tree.leaves(function(*a))
    compiled = jax.jit(returned).lower(*tj.new_ref(states), *others).compile()
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == sum(x.nbytes for x in states)
    if jax.__version_info__ < (0, 12) and name in ("rotate_hessenberg", "push"):
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
