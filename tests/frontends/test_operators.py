"""Operators on structured arrays, and between them and quantities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from quantities import assert_quantity
from tanjax.units import m


def test_iteration_over_a_structured_array_ends():
    d = tj.Diagonal(jnp.array([1.0, 2.0]))
    with tj.densify("allow"):
        rows = list(d)
        quantities = list(d * m)
    np.testing.assert_array_equal(rows, np.diag([1.0, 2.0]))
    assert len(d) == len(d * m) == len(quantities) == 2
    assert_quantity(quantities[1], "m", [0.0, 2.0])
    with pytest.raises(TypeError):
        len(tj.Fill(1.0, ()))


def test_a_structured_array_compares_with_a_quantity():
    d = tj.Diagonal(jnp.array([1.0, 2.0]))
    with tj.densify("allow"):
        assert np.all(d == d.__mul__(100.0) * tj.unit("percent"))
        assert np.array_equal(d < 2 * d * tj.unit("1"), np.diag([True, True]))
        with pytest.raises(tj.UnitError):
            d == d * m  # noqa: B015


class Deferred:
    """What no operator knows, and knows what to say itself."""

    def answer(self, other):
        return "deferred"

    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rmatmul__ = __rpow__ = answer
    __add__ = __sub__ = __mul__ = __truediv__ = __matmul__ = answer
    __gt__ = __ge__ = __lt__ = __le__ = answer


@pytest.mark.parametrize(
    "a",
    [tj.Diagonal([1.0, 2.0]), tj.Symmetric(np.eye(2)), tj.Kronecker(np.eye(2), np.eye(1))],
    ids=lambda a: type(a).__name__,
)
def test_operators_defer_to_what_they_do_not_know(a):
    """As those of `jax.Array`: a sentinel of another library, a configuration, a default."""
    other = Deferred()
    answers = [a + other, a - other, a * other, a / other, a @ other, a**other, a < other]
    answers += [other + a, other - a, other * a, other / a, other @ a, other < a, a >= other]
    assert answers == ["deferred"] * 14
    assert [a == None, a != None, a == "auto", a == other] == [False, True, False, False]  # noqa: E711
    assert None not in [a]
    with pytest.raises(TypeError, match="unsupported operand"):
        a ** "auto"


BLOCKS = {
    "Diagonal": (tj.Diagonal(jnp.arange(1.0, 5.0)), tj.Diagonal),
    "Tridiagonal": (tj.Tridiagonal(jnp.ones(3), jnp.arange(4.0), jnp.ones(3)), tj.Tridiagonal),
    "SymTridiagonal": (tj.SymTridiagonal(jnp.arange(4.0), jnp.ones(3)), tj.SymTridiagonal),
    "Banded": (tj.Banded(jnp.arange(12.0).reshape(3, 4), 1, 1), tj.Banded),
    "Toeplitz": (tj.Toeplitz(jnp.arange(7.0)), tj.Toeplitz),
    "Circulant": (tj.Circulant(jnp.arange(4.0)), tj.Toeplitz),
    "LowRank": (tj.LowRank(jnp.arange(4.0)[:, None], jnp.ones((4, 1))), tj.LowRank),
    "Sparse": (tj.Sparse([1.0, 2.0], np.array([[1, 1], [2, 3]]), (4, 4)), tj.Sparse),
    "Scaled": (tj.Scaled(tj.Diagonal(jnp.arange(4.0)), jnp.asarray(2.0)), tj.Scaled),
    "Symmetric": (tj.Symmetric(jnp.arange(16.0).reshape(4, 4)), tj.Symmetric),
    "Hermitian": (tj.Hermitian(1j * np.arange(16.0).reshape(4, 4)), tj.Hermitian),
    "Triangular": (tj.Triangular(jnp.arange(16.0).reshape(4, 4), lower=False), tj.Triangular),
    "unit": (tj.Triangular(jnp.arange(16.0).reshape(4, 4), True, True), tj.Triangular),
}


@pytest.mark.parametrize(("a", "kind"), BLOCKS.values(), ids=BLOCKS)
def test_a_contiguous_block_keeps_the_type(a, kind):
    with tj.densify("error"):
        block = a[1:3, 1:3]
    assert type(block) is kind
    np.testing.assert_array_equal(block.to_dense(), a.to_dense()[1:3, 1:3])


def test_a_block_off_the_diagonal_of_full_storage_is_an_array():
    a = BLOCKS["Symmetric"][0]
    with tj.densify("allow"):
        block = a[0:2, 1:3]
    assert isinstance(block, jax.Array)
    np.testing.assert_array_equal(block, a.to_dense()[0:2, 1:3])


def test_other_indices_become_dense_visibly():
    a = tj.Diagonal(jnp.arange(4.0))
    with tj.densify("error"):
        for index in (np.s_[0], np.s_[::2, ::2], np.s_[0, 1:], np.s_[1:, None], np.s_[1:3, :]):
            with pytest.raises(tj.NoRuleError, match="getitem"):
                a[index]


BATCH = tj.Diagonal(jnp.arange(12.0).reshape(4, 3))


@pytest.mark.parametrize(
    ("a", "index"),
    [
        (BATCH[0], ...),
        (BATCH[0], (slice(None), slice(None))),
        (BATCH[0], (..., slice(0, 2), slice(0, 2))),
        (BATCH[0], (slice(0, 2), ..., slice(0, 2))),
        (tj.Kronecker(jnp.eye(2), jnp.eye(2)), ...),
        (BATCH, ...),
        (BATCH, (0, ...)),
        (BATCH, (..., slice(None), slice(None))),
        (BATCH, (slice(1, None), slice(None), ...)),
        (BATCH, (jnp.array([2, 0]), ...)),
    ],
)
def test_whole_axes_keep_the_structure(a, index):
    with tj.densify("error"):
        found, quantity = a[index], (a * m)[index]
    assert type(found) is type(quantity.value) is type(a)
    np.testing.assert_array_equal(found.to_dense(), a.to_dense()[index])


@pytest.mark.parametrize("index", [(..., 0), (None, ...), (1, ..., None), (..., np.array([1, 0]))])
def test_other_indices_with_an_ellipsis_are_those_of_the_dense_array(index):
    with tj.densify("allow"):
        np.testing.assert_array_equal(BATCH[index], BATCH.to_dense()[index])
        for wrong in ((..., ...), (0, 0, 0, 0, ...), (slice(None),) * 4):
            with pytest.raises(IndexError):
                BATCH[wrong]
