"""Blocks of one shape as one batch: what a process with one device does, which tests have not.

Tests run with several devices, where blocks stay apart. Here the rules are told that there is one;
the batched product and the batched factorisation must be what runs, and agree with dense arrays.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

COUNT, ROWS = 5, 3


def stacked(a):
    tj.rules.packs()  # before a module of theirs, so that each rule says which one it is from
    from tanjax_rules.linalg.stacked import stacked

    return stacked(a)


@pytest.fixture(scope="module")
def one_device():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "device_count", lambda: 1)
        jax.clear_caches()  # what was traced for several devices
        yield
    jax.clear_caches()


def blocks_of(seed, shape, shift, imaginary=0.0):
    """A random matrix of equal blocks."""
    draw = np.random.default_rng(seed)
    parts = [
        draw.normal(size=shape) + imaginary * draw.normal(size=shape) + shift * np.eye(*shape)
        for _ in range(COUNT)
    ]
    return tj.BlockDiagonal(*map(jnp.asarray, parts))


def columns(seed, rows, *k, imaginary=0.0):
    draw = np.random.default_rng(seed)
    return jnp.asarray(draw.normal(size=(rows, *k)) + imaginary * draw.normal(size=(rows, *k)))


def test_with_several_devices_blocks_stay_apart():
    if jax.device_count() == 1:
        pytest.skip("this process has one device")
    assert stacked(blocks_of(1, (ROWS, ROWS), 4)) is None


PROGRAMS = {
    "solve": (tj.solve, jnp.linalg.solve),
    "matmul": (tj.matmul, jnp.matmul),
    "logdet": (lambda a, b: tj.logdet(a), lambda a, b: jnp.linalg.slogdet(a)[1]),
}


def everything(run, a, b, a_dot):
    """The value, gradients by the blocks and by the columns, a tangent, and a map."""
    loss = lambda a, b: jnp.sum(jnp.real(jnp.sin(run(a, b))))
    factors = jnp.asarray([1.0, 2.0], b.dtype)
    mapped = jax.vmap(lambda s: run(jax.tree.map(lambda x: s * x, a), b))(factors)
    tangent = jax.jvp(lambda a: run(a, b), (a,), (a_dot,))[1]
    return run(a, b), jax.grad(loss, (0, 1))(a, b), tangent, mapped


@pytest.mark.parametrize("imaginary", [0.0, 1j], ids=["real", "complex"])
def test_a_batch_of_blocks_is_the_dense_matrix(one_device, imaginary):
    """Of vectors, of matrices, and of matrices without columns."""
    a, a_dot = (blocks_of(seed, (ROWS, ROWS), 4, imaginary) for seed in (1, 3))
    right = [columns(2, COUNT * ROWS, *k, imaginary=imaginary) for k in ((), (2,), (0,))]

    def of_all(which):
        return {
            (name, b.ndim, b.size): everything(which(pair), a, b, a_dot)
            for name, pair in PROGRAMS.items()
            for b in right[: 1 if name == "logdet" else None]
        }

    got = jax.jit(lambda: of_all(lambda pair: pair[0]))()
    want = jax.jit(lambda: of_all(lambda pair: lambda a, b: pair[1](a.to_dense(), b)))()
    for key, expected in want.items():
        for g, w in zip(jax.tree.leaves(got[key]), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-9, err_msg=str(key))


def test_products_of_wide_and_tall_blocks(one_device):
    for shape in ((2, 4), (4, 2)):
        a = blocks_of(5, shape, 0)
        b = columns(6, COUNT * shape[1], 3)
        np.testing.assert_allclose(a @ b, a.to_dense() @ b, rtol=1e-12, atol=1e-12)


def test_the_program_is_a_batch(one_device):
    """One factorisation and one product, however many blocks there are."""
    a, b = blocks_of(1, (ROWS, ROWS), 4), columns(2, COUNT * ROWS, 2)
    text = {name: str(jax.make_jaxpr(run)(a, b)) for name, (run, _) in PROGRAMS.items()}
    for name in ("solve", "logdet"):
        assert text[name].count("= lu ") == 1, name
        assert f"f64[{COUNT},{ROWS},{ROWS}]" in text[name], name
    assert text["matmul"].count("dot_general") == 1


def test_blocks_that_differ_stay_apart(one_device):
    """In shape, in dtype, in type, or too large to copy."""
    whole = jnp.eye(ROWS)
    for other in (jnp.eye(2), whole.astype(jnp.float32), tj.Diagonal(jnp.ones(ROWS))):
        assert stacked(tj.BlockDiagonal(whole, other)) is None
    large = jnp.eye(129)
    assert stacked(tj.BlockDiagonal(large, large)) is None
    assert stacked(tj.BlockDiagonal(whole)) is None
    assert stacked(tj.BlockDiagonal(whole, whole)).shape == (2, ROWS, ROWS)
