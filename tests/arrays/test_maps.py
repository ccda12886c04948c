"""The free functions: maps, projections, and the space of tangents."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import FLOAT0, assert_close, wave
from tanjax.testing import Samples

pytestmark = pytest.mark.core

N = 3


def matrix(phase=0.3):
    return wave(jnp.zeros((N, N)), phase) + 2 * jnp.eye(N)


@pytest.mark.parametrize(
    "x",
    [
        tj.Diagonal(matrix()[0]),
        tj.Symmetric(matrix()),
        tj.Triangular(matrix()),
        tj.Triangular(matrix(), lower=False, unit_diagonal=True),
        tj.Fill(0.7, (N, N)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_restructure_into_a_linear_or_affine_type_is_the_nearest_array(x):
    y = matrix(1.4)
    near = tj.destructure(tj.tangents.restructure(x, y))
    direction = tj.destructure(tj.tangents.project(x, wave(jnp.zeros((N, N)), 2.0)))
    np.testing.assert_allclose(jnp.sum((y - near) * direction), 0, atol=1e-10)


def test_small_hidden_part_is_not_visible():
    x = tj.Scaled(matrix(), 0.7)
    hidden = x.replace(matrix=0.7 * matrix(), factor=-jnp.sum(matrix() ** 2))
    seen = tj.tangents.structural(x, matrix(0.9))
    assert bool(jax.jit(tj.tangents.is_visible)(x, seen))
    assert not bool(
        tj.tangents.is_visible(x, jax.tree.map(lambda s, h: s + 1e-5 * h, seen, hidden))
    )
    assert bool(tj.tangents.is_visible(matrix(), matrix()))
    assert bool(tj.tangents.is_visible(tj.Identity(2), tj.Identity(2)))


def test_tangent_types_differ_where_trees_shapes_or_dtypes_do():
    a = tj.Diagonal([1.0, 2.0])
    assert tj.tangents.tangent_type(a) == tj.tangents.tangent_type(tj.Diagonal([3.0, 4.0]))
    assert hash(tj.tangents.tangent_type(a)) == hash(
        tj.tangents.tangent_type(tj.Diagonal([3.0, 4.0]))
    )
    others = [
        tj.Diagonal([1.0]),
        tj.Diagonal(jnp.ones(2, jnp.float32)),
        tj.Diagonal([1, 2]),
        tj.Scaled(a, 1.0),
        tj.Triangular(jnp.eye(2)),
        tj.Triangular(jnp.eye(2), lower=False),
    ]
    kinds = [tj.tangents.tangent_type(x) for x in (a, *others)]
    assert all(s != t for i, s in enumerate(kinds) for t in kinds[:i])
    assert "Diagonal" in repr(kinds[0])
    assert kinds[0].dimension == 2
    assert tj.tangents.tangent_type(tj.Hermitian(jnp.eye(2, dtype=complex))).dimension == 8
    assert tj.tangents.tangent_type(tj.Diagonal([1, 2])).leaves == (((2,), FLOAT0),)
    assert tj.tangents.zero_tangent(jnp.arange(2)).dtype == FLOAT0


def test_natural_and_structural_do_not_add():
    a = tj.Kronecker(matrix(), [[2.0]])
    structural = tj.tangents.structural(a, matrix(1.0))
    natural = tj.tangents.natural(a, structural)
    for pair in ((structural, natural), (natural, structural), (structural, matrix())):
        with pytest.raises(
            tj.errors.CotangentError, match=r"(?s)not of one type.*left:.*right:.*Hint"
        ):
            tj.tangents.add_tangents(*pair)
    with pytest.raises(tj.errors.CotangentError, match="not of one type"):
        tj.tangents.add_tangents(tj.Diagonal([1.0]), tj.Diagonal([1.0, 2.0]))
    with pytest.raises(tj.errors.CotangentError, match="inner_product: the two trees differ"):
        tj.tangents.inner_product(structural, natural)


def test_maps_refuse_wrong_trees_shapes_and_dtypes():
    a = tj.Diagonal(matrix()[0])
    with pytest.raises(tj.errors.CotangentError, match=r"(?s)wrong shape.*expected: \(3, 3\)"):
        tj.tangents.structural(a, jnp.ones((2, 2)))
    with pytest.raises(tj.errors.CotangentError, match=r"(?s)wrong tree.*Hint"):
        tj.tangents.natural(a, jnp.ones(3))
    with pytest.raises(tj.errors.CotangentError, match=r"leaf 0 must have shape \(3,\)"):
        tj.tangents.natural(a, tj.Diagonal([1.0]))
    with pytest.raises(tj.errors.CotangentError, match=r"(?s)wrong dtype.*float16"):
        tj.tangents.structural(a, jnp.ones((3, 3), jnp.float16))
    for wrong in (jnp.ones((2, 2)), jnp.ones(3), 1.0):  # the last two would broadcast
        with pytest.raises(
            tj.errors.CotangentError, match=r"(?s)restructure: .*expected: \(3, 3\)"
        ):
            tj.tangents.restructure(a, wrong)


def test_dense_arrays_are_their_own_tangents():
    x, y = matrix(), matrix(1.0)
    for convert in (tj.tangents.natural, tj.tangents.structural, tj.tangents.project):
        assert_close(convert(x, y), y)
    assert_close(tj.tangents.restructure(x, y), y)
    assert_close(tj.destructure(np.asarray(x)), x)


@pytest.mark.parametrize("cls", [tj.Symmetric, tj.Hermitian])
def test_a_tangent_of_a_definite_matrix_is_not_definite(cls):
    """Tangents of a definite matrix are of its class, and not definite."""
    x = cls(jnp.array([[2.0, 0.5], [0.5, 1.0]]), definite=True)
    natural = cls(jnp.array([[0.1, 0.2], [0.2, -0.3]]))
    moved = tj.tangents.pushforward_of_restructure(x)(natural)
    assert jax.tree.structure(moved) == jax.tree.structure(x)
    np.testing.assert_array_equal(moved.data, natural.data)
    np.testing.assert_array_equal(tj.tangents.pushforward_of_destructure(x)(moved), natural)
    np.testing.assert_allclose(
        tj.tangents.restructure(x, natural),
        natural,
        err_msg="the value nearest to it, promise and all",
    )


@pytest.mark.parametrize(
    "hold",
    [
        tj.Symmetric,
        lambda d: tj.Hermitian(jax.lax.complex(d, d.T)),
        tj.Triangular,
        lambda d: tj.Banded(d, 1, 1),
        lambda d: tj.Scaled(tj.Symmetric(d), jnp.asarray(0.5)),
    ],
)
@jax.numpy_dtype_promotion("standard")
def test_array_held_by_another_keeps_its_invariant(hold):
    """J⁺ and `canonical` of an array that holds one with redundant storage."""
    s = Samples(31)
    x = tj.Scaled(hold(s.normal(3, 3)), jnp.asarray(0.7))
    v = s.normal(3).astype(x.dtype)
    moved = tj.tangents.restructure(x, s.normal(3, 3).astype(x.dtype))
    np.testing.assert_allclose(moved @ v, moved.to_dense() @ v, rtol=1e-5)
    upper = lambda leaf: leaf + jnp.triu(jnp.ones_like(leaf)) if leaf.ndim == 2 else leaf
    junk = jax.tree.map(upper, x)
    np.testing.assert_allclose(junk.canonical() @ v, junk.to_dense() @ v, rtol=1e-5)


@pytest.mark.parametrize("own", [True, False], ids=["own", "foreign"])
@pytest.mark.parametrize(
    "map_of", [tj.tangents.pullback_of_destructure, tj.tangents.pushforward_of_restructure]
)
def test_a_real_array_is_asked_in_real_numbers(map_of, own):
    """A map that adds to zeros of the field's dtype need not know that complex numbers exist."""

    def pull(self, natural):
        assert not jnp.iscomplexobj(natural)
        return dataclasses.replace(self, column=jnp.sum(natural, 1))

    dense = lambda self: jnp.stack([self.column, self.column], 1)
    body = {"__annotations__": {"column": jax.Array}}
    facts = {"linear": True, "injective": True}
    maps = {"pullback_of_destructure": pull, "pushforward_of_restructure": pull}
    if own:
        cls = type("Repeated", (tj.AbstractArray,), {**body, "to_dense": dense, **maps})
        cls = tj.register_array_type(cls, **facts)
    else:
        cls = jax.tree_util.register_dataclass(dataclasses.dataclass(type("Other", (), body)))
        tj.register_array_type(cls, destructure=dense, **maps, **facts)
    bar = jnp.array([[1 + 2j, 3], [4, 5j]])
    np.testing.assert_allclose(map_of(cls(jnp.ones(2)))(bar).column, [4, 4])
