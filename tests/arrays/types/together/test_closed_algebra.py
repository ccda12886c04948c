"""Sums and products that the table of the algebra does not have; blocks; systems with units."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

RNG = np.random.default_rng(7)
PLACES = [[2, 1], [0, 3], [2, 0], [1, 1], [0, 0]]


def draw(*shape):
    return jnp.asarray(RNG.normal(size=shape))


STRUCTURED = types.SimpleNamespace(
    diagonal=tj.Diagonal(draw(4)),
    tri=tj.Tridiagonal(draw(3), draw(4), draw(3)),
    sym_tri=tj.SymTridiagonal(draw(4), draw(3)),
    band=tj.Banded(draw(4, 4), 1, 2),
    upper=tj.Banded(draw(3, 4), 0, 2),
    sparse=tj.Sparse(draw(5), PLACES, (4, 4)),
    other=tj.Sparse(draw(3), [[3, 3], [0, 3], [1, 2]], (4, 4)),
    toeplitz=tj.Toeplitz(draw(7)),
    circulant=tj.Circulant(draw(4)),
    full=draw(4, 4),
    column=draw(4, 1),
)
with tj.densify("allow"):
    DENSE = types.SimpleNamespace(**{k: tj.destructure(v) for k, v in vars(STRUCTURED).items()})


@pytest.mark.parametrize(
    ("f", "kind"),
    [
        (lambda x: x.tri * x.band, tj.Tridiagonal),
        (lambda x: x.band - x.band.mT, tj.Banded),
        (lambda x: x.band @ x.band, tj.Banded),
        (lambda x: x.sparse - x.other, tj.Sparse),
        (lambda x: x.sparse @ x.other, tj.Sparse),
        (lambda x: x.sparse.mT @ x.sparse, tj.Sparse),
        (lambda x: x.upper @ x.sparse, tj.Sparse),
        (lambda x: x.diagonal @ x.sparse @ x.diagonal, tj.Sparse),
        (lambda x: x.sparse * x.full, tj.Sparse),
        (lambda x: x.sparse * x.column, tj.Sparse),
        (lambda x: x.sparse * x.column[:, 0], tj.Sparse),
        (lambda x: x.sparse * x.other, tj.Sparse),
        (lambda x: x.sparse + x.full, jax.Array),
        (lambda x: tj.linalg.kron(x.sparse, x.diagonal), tj.Kronecker),
        (lambda x: x.circulant + x.toeplitz, tj.Toeplitz),
    ],
)
def test_sums_and_products_have_the_closed_type_and_form_nothing(f, kind):
    with tj.densify("error"):
        got = f(STRUCTURED)
    assert isinstance(got, kind)
    np.testing.assert_allclose(tj.destructure(got), f(DENSE), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("sparse", tj.Sparse), ("toeplitz", tj.Toeplitz), ("circulant", tj.Toeplitz)],
)
def test_blocks_stay_in_the_type(name, kind):
    part = getattr(STRUCTURED, name).submatrix(slice(1, 4), slice(0, 2))
    assert isinstance(part, kind)
    np.testing.assert_array_equal(part.to_dense(), getattr(DENSE, name)[1:4, :2])


@pytest.mark.parametrize("name", ["tri", "sym_tri", "band", "toeplitz", "circulant"])
def test_systems_of_quantities_have_units(name):
    """A stiffness matrix in N/m: displacements, unit of the determinant, gradient in 1/unit."""
    a, force = getattr(STRUCTURED, name), jnp.arange(1.0, 5.0)
    stiffness = a * tj.unit("N/m")
    displacement = lambda k: tj.solve(k, force * tj.unit("kN"))
    want = np.linalg.solve(getattr(DENSE, name), force)
    np.testing.assert_allclose(displacement(stiffness).to_value("km"), want, rtol=1e-9)
    assert tj.det(stiffness).unit == tj.unit("N4/m4")
    gradient = tj.grad(lambda k: tj.linalg.sum(displacement(k)))(stiffness)
    assert gradient.unit == tj.unit("m2/N") * tj.unit("kN/N")
    with pytest.raises(tj.UnitError):
        tj.logdet(stiffness)
