"""What every array type is: printable, comparable, frozen, conjugated entry by entry."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import FLOAT0

M = np.asarray([[1.0, 2.0], [3.0, 4.0]])


def arrays():
    return [
        tj.Diagonal(M[0]),
        tj.Symmetric(M),
        tj.Hermitian(M + 1j),
        tj.Triangular(M, lower=False, unit_diagonal=True),
        tj.Scaled(tj.Diagonal(M[0]), 2.0),
        tj.Fill(1.5, (2, 3)),
        tj.Identity(2),
        tj.Zero((2, 2)),
        tj.Outer(M[0], M[1]),
        tj.tangents.Masked(jnp.asarray(M), "lower"),
        tj.tangents.Sum(jnp.asarray(M), tj.Identity(2)),
        tj.LowRank(M, M),
        tj.LowRankUpdate(tj.Identity(2), M[:, :1]),
        tj.Kronecker(M, tj.Identity(2)),
        tj.BlockDiagonal(M, tj.Identity(1)),
    ]


every = pytest.mark.parametrize("x", arrays(), ids=lambda x: type(x).__name__)


@every
def test_repr_of_concrete_arrays_and_of_tracers(x):
    assert repr(x).startswith(f"{type(x).__name__}(")
    shown = []
    jax.jit(lambda x: shown.append(repr(x)))(x)
    assert shown[0].startswith(f"{type(x).__name__}(")
    if jax.tree.leaves(x):
        assert "Tracer" not in shown[0]
        assert "float64[" in shown[0] or "complex128[" in shown[0]


def test_repr_shows_small_numbers_but_not_rounding_errors():
    assert repr(tj.Diagonal([6.5e-11, 2e-11])) == "Diagonal(diag=[6.5e-11, 2.0e-11])"
    assert repr(tj.Quantity(np.asarray(2e-5), "m")) == 'Quantity(2.e-05, "m")'
    assert repr(tj.Diagonal([1.0, 1e-17])) == "Diagonal(diag=[1., 0.])"


def test_repr_is_readable():
    assert repr(tj.Diagonal([1.0, 2.0])) == "Diagonal(diag=[1., 2.])"
    assert repr(tj.Diagonal(np.ones(100))) == "Diagonal(diag=float64[100])"
    assert repr(tj.Identity(3)) == "Identity(3, float64)"
    text = repr(tj.Kronecker(M, tj.Triangular(M, False)))
    assert "lower=False" in text


@every
def test_equality_is_elementwise_and_never_one_truth(x):
    assert (x == x).shape == x.shape
    assert bool(jnp.all(x == x.to_dense()))
    assert not bool(jnp.any(x != x))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x == x)
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    assert not hasattr(x, "__jax_array__")


@every
def test_instances_are_frozen(x):
    name = dataclasses.fields(x)[0].name
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        setattr(x, name, 1.0)
    with pytest.raises(TypeError, match="has no field"):
        x.replace(nonsense=1.0)


def test_paths_name_the_fields():
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree.leaves_with_path(tj.LowRank(M, M))]
    assert paths == [".u", ".v"]


def test_integer_fields():
    x = tj.BlockDiagonal(tj.Diagonal([1, 2]), tj.Diagonal([3, 4]))
    bar = tj.tangents.structural(x, jnp.ones((4, 4)))
    assert {leaf.dtype for leaf in jax.tree.leaves(bar)} == {FLOAT0}


def test_an_array_has_no_truth():
    """Except one of a single number, as in NumPy."""
    with pytest.raises(ValueError, match="ambiguous"):
        bool(tj.Diagonal([1.0, 2.0]))
    assert tj.Fill(2.0, ())
    assert not tj.Fill(0.0, (1, 1))


@tj.register_array_type(linear=True, isometric=True, injective=True)
class Rotated(tj.AbstractArray):
    """A diagonal times the imaginary unit: the conjugate of the array is not that of the field."""

    d: jax.Array

    def to_dense(self):
        return 1j * jnp.diag(self.d)

    def pullback_of_destructure(self, natural):
        return self.replace(d=1j * tj.linalg.diagonal(natural))


COMPLEX = np.array([[1.0 + 2j, 0.5j], [0.3 - 1j, 2.0]])


@pytest.mark.parametrize(
    "x",
    [
        tj.LowRankUpdate(tj.Diagonal(COMPLEX[0]), COMPLEX),
        tj.BlockDiagonal(COMPLEX, tj.Hermitian(COMPLEX)),
        tj.Scaled(tj.Diagonal(COMPLEX[1]), 2j),
        tj.Fill(1j, (2, 3)),
        tj.Outer(COMPLEX, COMPLEX),
        tj.tangents.Sum(COMPLEX, tj.Diagonal(COMPLEX[0])),
        tj.tangents.Masked(COMPLEX, "lower"),
        tj.Zero((2, 2), complex),
        tj.Identity(2, complex),
        Rotated(jnp.asarray(COMPLEX[0])),
        tj.Diagonal([1.0, 2.0]),
    ],
    ids=lambda x: type(x).__name__,
)
def test_conjugate_adjoint_norm_and_precision(x):
    dense = np.asarray(x.to_dense())
    with tj.densify("allow"):
        for conjugate in (x.conj(), np.conj(x)):
            np.testing.assert_allclose(tj.destructure(conjugate), dense.conj())
        np.testing.assert_allclose(tj.destructure(x.H), dense.conj().T)
        np.testing.assert_allclose(tj.norm(x), np.linalg.norm(dense))
        for dtype in ("complex64", "float32", "int32"):
            if dtype == "complex64" or not np.iscomplexobj(dense):
                narrow = x.astype(dtype)
                assert narrow.dtype == dtype
                np.testing.assert_allclose(tj.destructure(narrow), dense.astype(dtype))
        assert type(x.conj()) is type(x) or type(x) is Rotated


@pytest.mark.slow
def test_complex_fields_of_an_isometric_type_that_is_not_conjugated_by_fields():
    """J⁺ and J⁺ᵀ of it are conjugated as arrays."""
    x = Rotated(jnp.asarray(COMPLEX[0]))
    with tj.densify("allow"):
        assert tj.testing.check_array_type(x, skip=("copies",)).worst_error < 1e-9


def test_jax_is_told_where_a_dense_array_is_missing():
    x = tj.Diagonal([1.0, 2.0])
    for f in (lambda x: jnp.block([[x, x]]), jnp.asarray):
        with pytest.raises(tj.NoRuleError, match=r"pass `x\.to_dense"):
            jax.jit(f)(x)
