"""The free functions: maps, projections, and the space of tangents."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import FLOAT0, assert_close, wave
from tanjax.testing import Samples

N = 3


def matrix(phase=0.3):
    return wave(jnp.zeros((N, N)), phase) + 2 * jnp.eye(N)


def arrays():
    m = matrix()
    return {
        "dense": m,
        "Diagonal": tj.Diagonal(m[0]),
        "Symmetric": tj.Symmetric(m),
        "Hermitian": tj.Hermitian(jax.lax.complex(m, m.T)),
        "Triangular": tj.Triangular(m),
        "unit Triangular": tj.Triangular(m, lower=False, unit_diagonal=True),
        "Scaled": tj.Scaled(m, 0.7),
        "Fill": tj.Fill(0.7, (N, N)),
        "Identity": tj.Identity(N),
        "Zero": tj.Zero((N, N)),
        "LowRank": tj.LowRank(m[:, :1], m[:, 1:2]),
        "LowRankUpdate": tj.LowRankUpdate(tj.Diagonal(m[0]), m[:, :1], m[0, :1]),
        "Kronecker": tj.Kronecker(m, [[2.0]]),
        "BlockDiagonal": tj.BlockDiagonal(tj.Diagonal(m[0, :1]), m[:2, :2]),
        "nested": tj.Scaled(tj.Symmetric(m), 1.3),
    }


every = pytest.mark.parametrize("kind", arrays())


def cotangents(dtype):
    """One of every member of the lattice of natural cotangents, and the same forms dense."""
    u, v = (wave(jnp.zeros((N, 2), dtype), p) for p in (0.2, 1.1))
    full = wave(jnp.zeros((N, N), dtype), 0.8)
    d = tj.Diagonal(full[0])
    return {
        "dense": full,
        "numpy": np.asarray(full),
        "Outer": tj.Outer(u, v),
        "Diagonal": d,
        "Masked": tj.Masked(full, "strictly_upper"),
        "Masked Outer": tj.Masked(tj.Outer(u, v), "lower"),
        "Sum": tj.Sum(tj.Outer(u, v), d, full),
        "Scaled": tj.Scaled(tj.Outer(u, v), jnp.asarray(0.3, dtype)),
        "Zero": tj.Zero((N, N), dtype),
        "Identity": tj.Identity(N, dtype),
        "Symmetric": tj.Symmetric(full),
        "Triangular": tj.Triangular(full),
        "Fill": tj.Fill(full[0, 0], (N, N)),
        "LowRank": tj.LowRank(u, v),
        "LowRankUpdate": tj.LowRankUpdate(d, u),
        "BlockDiagonal": tj.BlockDiagonal(full[:1, :1], full[1:, 1:]),
        "Kronecker": tj.Kronecker(full, jnp.ones((1, 1), dtype)),
    }


@every
def test_every_type_takes_every_member_of_the_lattice(kind):
    x = arrays()[kind]

    def run(x, natural):
        return [
            (tj.structural(x, y), jax.vjp(tj.destructure, x)[1](tj.destructure(y))[0])
            for y in natural
        ]

    for got, want in jax.jit(run)(x, list(cotangents(x.dtype).values())):
        assert_close(got, want)


@every
def test_the_four_maps_belong_together(kind):
    x = arrays()[kind]

    def run(x, t, y):
        structural = tj.structural(x, y)
        natural = tj.natural(x, structural)
        tangent = tj.pushforward_of_destructure(x)(t)
        return {
            "J is the derivative of destructure": (
                tj.destructure(tangent),
                jax.jvp(tj.destructure, (x,), (t,))[1],
            ),
            "Jᵀ undoes J⁺ᵀ on visible cotangents": (tj.structural(x, natural), structural),
            "J undoes J⁺ on natural tangents": (
                tj.destructure(tj.project(x, tangent)),
                tj.destructure(tangent),
            ),
            "J is adjoint to Jᵀ": (
                jnp.real(jnp.sum(y * tj.destructure(tangent))),
                jnp.real(tj.inner_product(structural, t)),
            ),
            "a projection is one": (
                tj.destructure(tj.project(x, tj.project(x, y))),
                tj.destructure(tj.project(x, y)),
            ),
            "visible": (tj.is_visible(x, structural), jnp.asarray(True)),
        }

    x_dot = wave(x) if not hasattr(x, "canonical") else wave(x).canonical()
    y = wave(jnp.zeros(x.shape, x.dtype), 1.0)
    for name, (got, want) in jax.jit(run)(x, x_dot, y).items():
        try:
            assert_close(got, want)
        except AssertionError as error:
            error.add_note(name)
            raise


@every
def test_restructure_gives_back_what_was_destructured(kind):
    x = arrays()[kind]
    assert_close(tj.restructure(x, tj.destructure(x)), x)


@pytest.mark.parametrize("kind", ["Diagonal", "Symmetric", "Triangular", "unit Triangular", "Fill"])
def test_restructure_into_a_linear_or_affine_type_is_the_nearest_array(kind):
    x, y = arrays()[kind], matrix(1.4)
    near = tj.destructure(tj.restructure(x, y))
    direction = tj.destructure(tj.project(x, wave(jnp.zeros((N, N)), 2.0)))
    np.testing.assert_allclose(jnp.sum((y - near) * direction), 0, atol=1e-10)


def test_what_is_hidden_is_not_visible():
    scaled = tj.Scaled(matrix(), 0.7)
    hidden = scaled.replace(matrix=0.7 * matrix(), factor=-jnp.sum(matrix() ** 2))
    assert not bool(tj.is_visible(scaled, hidden))
    assert bool(jax.jit(lambda x: tj.is_visible(x, tj.structural(x, matrix(0.9))))(scaled))
    assert bool(tj.is_visible(matrix(), matrix()))
    assert bool(tj.is_visible(tj.Identity(2), tj.Identity(2)))


@every
def test_tangent_types_and_zero_tangents(kind):
    x = arrays()[kind]
    zero = tj.zero_tangent(x)
    assert tj.tangent_type(zero) == tj.tangent_type(x) == tj.tangent_type(wave(x))
    assert_close(tj.add_tangents(zero, wave(x)), wave(x))
    assert_close(tj.add_tangents(wave(x), wave(x)), jax.tree.map(lambda v: 2 * v, wave(x)))
    assert_close(tj.inner_product(zero, wave(x)), jnp.zeros(()))


def test_tangent_types_differ_where_trees_shapes_or_dtypes_do():
    a = tj.Diagonal([1.0, 2.0])
    assert tj.tangent_type(a) == tj.tangent_type(tj.Diagonal([3.0, 4.0]))
    assert hash(tj.tangent_type(a)) == hash(tj.tangent_type(tj.Diagonal([3.0, 4.0])))
    others = [
        tj.Diagonal([1.0]),
        tj.Diagonal(jnp.ones(2, jnp.float32)),
        tj.Diagonal([1, 2]),
        tj.Scaled(a, 1.0),
        tj.Triangular(jnp.eye(2)),
        tj.Triangular(jnp.eye(2), lower=False),
    ]
    kinds = [tj.tangent_type(x) for x in (a, *others)]
    assert all(s != t for i, s in enumerate(kinds) for t in kinds[:i])
    assert "Diagonal" in repr(kinds[0])
    assert kinds[0].dimension == 2
    assert tj.tangent_type(tj.Hermitian(jnp.eye(2, dtype=complex))).dimension == 8
    assert tj.tangent_type(tj.Diagonal([1, 2])).leaves == (((2,), FLOAT0),)
    assert tj.zero_tangent(jnp.arange(2)).dtype == FLOAT0


def test_natural_and_structural_do_not_add():
    a = tj.Kronecker(matrix(), [[2.0]])
    structural = tj.structural(a, matrix(1.0))
    natural = tj.natural(a, structural)
    for pair in ((structural, natural), (natural, structural), (structural, matrix())):
        with pytest.raises(tj.CotangentError, match=r"(?s)not of one type.*left:.*right:.*Hint"):
            tj.add_tangents(*pair)
    with pytest.raises(tj.CotangentError, match="not of one type"):
        tj.add_tangents(tj.Diagonal([1.0]), tj.Diagonal([1.0, 2.0]))
    with pytest.raises(tj.CotangentError, match="inner_product: the two trees differ"):
        tj.inner_product(structural, natural)


def test_maps_check_what_they_are_given():
    a = tj.Diagonal(matrix()[0])
    with pytest.raises(tj.CotangentError, match=r"(?s)wrong shape.*expected: \(3, 3\)"):
        tj.structural(a, jnp.ones((2, 2)))
    with pytest.raises(tj.CotangentError, match=r"(?s)wrong tree.*Hint"):
        tj.natural(a, jnp.ones(3))
    with pytest.raises(tj.CotangentError, match=r"leaf 0 must have shape \(3,\)"):
        tj.natural(a, tj.Diagonal([1.0]))
    with pytest.raises(tj.CotangentError, match=r"(?s)wrong dtype.*float16"):
        tj.structural(a, jnp.ones((3, 3), jnp.float16))
    for wrong in (jnp.ones((2, 2)), jnp.ones(3), 1.0):  # the last two would broadcast
        with pytest.raises(tj.CotangentError, match=r"(?s)restructure: .*expected: \(3, 3\)"):
            tj.restructure(a, wrong)


def test_dense_arrays_are_their_own_tangents():
    x, y = matrix(), matrix(1.0)
    for convert in (tj.natural, tj.structural, tj.project):
        assert_close(convert(x, y), y)
    assert_close(tj.restructure(x, y), y)
    assert_close(tj.destructure(np.asarray(x)), x)


@pytest.mark.parametrize("cls", [tj.Symmetric, tj.Hermitian])
def test_a_tangent_without_the_promise_of_its_primal(cls):
    """Tangents of a definite matrix are of its class, and not definite."""
    x = cls(jnp.array([[2.0, 0.5], [0.5, 1.0]]), definite=True)
    natural = cls(jnp.array([[0.1, 0.2], [0.2, -0.3]]))
    moved = tj.pushforward_of_restructure(x)(natural)
    assert jax.tree.structure(moved) == jax.tree.structure(x)
    np.testing.assert_array_equal(moved.data, natural.data)
    np.testing.assert_array_equal(tj.pushforward_of_destructure(x)(moved), natural)
    np.testing.assert_allclose(
        tj.restructure(x, natural), natural, err_msg="the value nearest to it, promise and all"
    )


HELD = {
    "Symmetric": lambda d: tj.Symmetric(d),
    "Hermitian": lambda d: tj.Hermitian(jax.lax.complex(d, d.T)),
    "Triangular": lambda d: tj.Triangular(d),
    "Banded": lambda d: tj.Banded(d, 1, 1),
    "twice": lambda d: tj.Scaled(tj.Symmetric(d), jnp.asarray(0.5)),
}


@pytest.mark.parametrize("name", HELD)
@jax.numpy_dtype_promotion("standard")
def test_what_an_array_holds_keeps_its_invariant(name):
    """J⁺ and `canonical` of an array that holds one with redundant storage."""
    s = Samples(31)
    x = tj.Scaled(HELD[name](s.normal(3, 3)), jnp.asarray(0.7))
    v = s.normal(3).astype(x.dtype)
    moved = tj.restructure(x, s.normal(3, 3).astype(x.dtype))
    np.testing.assert_allclose(moved @ v, moved.to_dense() @ v, rtol=1e-5)
    upper = lambda leaf: leaf + jnp.triu(jnp.ones_like(leaf)) if leaf.ndim == 2 else leaf
    junk = jax.tree.map(upper, x)
    np.testing.assert_allclose(junk.canonical() @ v, junk.to_dense() @ v, rtol=1e-5)


@pytest.mark.parametrize("own", [True, False], ids=["own", "foreign"])
@pytest.mark.parametrize("map_of", [tj.pullback_of_destructure, tj.pushforward_of_restructure])
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
