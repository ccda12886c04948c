"""Equal blocks as one batch: what a process with one device does, which tests have not.

Tests run with several devices, where blocks stay apart. Here the rules are told that there is one.
"""

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj
from tanjax.testing import Samples, check_operation

S = Samples(1)


@pytest.fixture(scope="module")
def one_device():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "device_count", lambda: 1)
        jax.clear_caches()  # what was traced for several devices
        yield
    jax.clear_caches()


def blocks(m, n):
    return tj.BlockDiagonal(*(S.normal(m, n) + 3 * jnp.eye(m, n) for _ in range(3)))


def program(operation, *args):
    return str(jax.make_jaxpr(operation)(*args))


def is_batch(a):
    """True if the product is one of the batch of all blocks."""
    first = jnp.asarray(a.blocks[0])
    whole = f"f64[{len(a.blocks)},{','.join(map(str, first.shape))}]"
    return whole in program(tj.matmul, a, jnp.ones(a.shape[1]))


def test_with_several_devices_blocks_stay_apart():
    if jax.device_count() == 1:
        pytest.skip("this process has one device")
    assert not is_batch(blocks(3, 3))


@pytest.mark.parametrize(
    ("operation", "args"),
    [
        (tj.solve, (blocks(2, 2), S.normal(6, 2))),
        (tj.logdet, (blocks(2, 2),)),
        (tj.matmul, (blocks(1, 2), S.normal(6))),
        (tj.matmul, (blocks(2, 1), S.normal(3, 2))),
    ],
    ids=["solve", "logdet", "wide", "tall"],
)
def test_a_batch_passes_the_checks_of_the_kit(one_device, operation, args):
    assert is_batch(args[0])
    with jax.numpy_dtype_promotion("standard"):
        assert check_operation(operation, *args).scalars > 0


def test_the_program_is_a_batch(one_device):
    """One factorisation and one product, however many blocks there are."""
    a, b = blocks(3, 3), S.normal(9, 2)
    for text in (program(tj.solve, a, b), program(tj.logdet, a)):
        assert text.count("= lu ") == 1
        assert "f64[3,3,3]" in text
    assert program(tj.matmul, a, b).count("dot_general") == 1
    for operation in (tj.solve, tj.matmul):
        assert operation(a, jnp.zeros((9, 0))).shape == (9, 0)


@jax.numpy_dtype_promotion("standard")
def test_blocks_that_differ_stay_apart(one_device):
    """In shape, in dtype, in type, or too large to copy."""
    eye = jnp.eye(3)
    assert is_batch(tj.BlockDiagonal(eye, eye))
    for other in (jnp.eye(2), eye.astype(jnp.float32), tj.Diagonal(jnp.ones(3))):
        assert not is_batch(tj.BlockDiagonal(eye, other))
    assert not is_batch(tj.BlockDiagonal(eye))
    large = jnp.eye(129)
    assert not is_batch(tj.BlockDiagonal(large, large))
