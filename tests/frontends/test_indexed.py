"""`A.at[index]` and single entries: as of the dense array, in the type where it stores them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.units import km, m

RNG = np.random.default_rng(0)
draw = lambda *shape: RNG.normal(size=shape)
MATRICES = {
    "Diagonal": tj.Diagonal(draw(4)),
    "complex Diagonal": tj.Diagonal(draw(4) + 1j * draw(4)),
    "integer Diagonal": tj.Diagonal(np.arange(1, 5)),
    "Symmetric": tj.Symmetric(draw(4, 4)),
    "Hermitian": tj.Hermitian(draw(4, 4) + 1j * draw(4, 4)),
    "Triangular": tj.Triangular(draw(4, 4)),
    "unit Triangular": tj.Triangular(draw(4, 4), unit_diagonal=True),
    "Tridiagonal": tj.Tridiagonal(draw(3), draw(4), draw(3)),
    "SymTridiagonal": tj.SymTridiagonal(draw(4), draw(3)),
    "Banded": tj.Banded(draw(3, 4), 1, 1),
    "Toeplitz": tj.Toeplitz(draw(7)),
    "Circulant": tj.Circulant(draw(4)),
    "BlockDiagonal": tj.BlockDiagonal(draw(2, 2), tj.Diagonal(draw(2))),
    "Sparse": tj.Sparse(draw(3), [[0, 0], [1, 2], [3, 3]], (4, 4)),
    "Kronecker": tj.Kronecker(draw(2, 2), draw(2, 2)),
    "LowRank": tj.LowRank(draw(4, 2), draw(4, 2)),
    "Scaled": tj.Scaled(tj.Diagonal(draw(4)), 2.0),
    "Identity": tj.Identity(4),
    "Fill": tj.Fill(1.0, (4, 4)),
    "Permutation": tj.Permutation([1, 0, 3, 2]),
}
ALL = np.arange(4)
INDICES = {
    "on the diagonal": (1, -3),
    "above": (0, 1),
    "below": (1, 0),
    "corner": (3, 0),
    "block": (slice(0, 2), slice(0, 2)),
    "whole diagonal": (ALL, ALL),
    "row": 2,
    "column": (..., 1),
    "twice the same": (np.array([1, 1]), np.array([1, 1])),
}
DIAGONAL = {"on the diagonal", "whole diagonal"}
KEPT = {
    "Diagonal": DIAGONAL,
    "complex Diagonal": DIAGONAL,
    "integer Diagonal": DIAGONAL,
    "Symmetric": DIAGONAL,
    "Hermitian": DIAGONAL,
    "Triangular": {*DIAGONAL, "below", "corner"},
    "Tridiagonal": {*DIAGONAL, "above", "below", "block"},
    "SymTridiagonal": DIAGONAL,
    "Banded": {*DIAGONAL, "above", "below", "block"},
    "Toeplitz": {"corner"},
    "BlockDiagonal": {*DIAGONAL, "above", "below", "block"},
}
UPDATES = {"set": 3, "add": 2, "subtract": 1, "multiply": 4, "min": 1, "max": 2}


@pytest.fixture(autouse=True)
def silent():
    with tj.densify("allow"):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", MATRICES)
def test_updates_are_those_of_the_dense_array(name):
    a, kept = MATRICES[name], set()
    for where, index in INDICES.items():
        for update, value in UPDATES.items():
            if a.dtype.kind == "c" and update in ("min", "max"):
                continue
            new = getattr(a.at[index], update)(value)
            want = getattr(a.to_dense().at[index], update)(value)
            np.testing.assert_allclose(tj.destructure(new), want, rtol=1e-14, err_msg=where)
            assert new.dtype == want.dtype
        kept |= {where} if type(new) is type(a) else set()
    assert kept == KEPT.get(name, set())


@pytest.mark.parametrize(
    "name", [n for n, a in MATRICES.items() if a.dtype.kind in "fc" and KEPT.get(n)]
)
def test_gradients_are_those_of_the_dense_array(name):
    a = MATRICES[name]
    index = (3, 0) if name == "Toeplitz" else (1, 1)
    values = jnp.asarray(0.7)

    def loss(form):
        def of(a, value):
            new = form(a).at[index].multiply(value).at[index].add(value)
            return jnp.sum(jnp.sin(jnp.real(tj.destructure(new))))

        return jax.jit(jax.grad(of, (0, 1)))(a, values)

    got, want = loss(lambda a: a), loss(lambda a: a.to_dense())
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-14)


def test_arrays_of_values_and_functions():
    a = MATRICES["Tridiagonal"]
    rows, columns = np.array([2, 0]), np.array([1, 0])
    new = a.at[rows, columns].set(jnp.array([5.0, 6.0]))
    assert type(new) is tj.Tridiagonal
    np.testing.assert_array_equal(new.to_dense(), a.to_dense().at[rows, columns].set([5.0, 6.0]))
    new = a.at[ALL, ALL].apply(jnp.cos)
    np.testing.assert_array_equal(new.diag, jnp.cos(a.diag))
    assert type(a.at[0, 3].apply(jnp.cos)) is not tj.Tridiagonal
    np.testing.assert_array_equal(a.at[rows, columns].get(), a.to_dense()[rows, columns])
    with pytest.raises(AttributeError, match="no `sett`"):
        a.at[0].sett(1)


def test_update_that_the_type_cannot_hold_is_dense():
    """Imaginary numbers on the diagonal of a Hermitian matrix, complex ones in a real one."""
    hermitian = MATRICES["Hermitian"]
    assert type(hermitian.at[0, 0].set(2.0)) is tj.Hermitian
    assert hermitian.at[0, 0].set(1j)[0, 0] == 1j
    assert type(hermitian.at[0, 0].apply(lambda v: v + 1j)) is not tj.Hermitian
    with pytest.raises(jax.dtypes.TypePromotionError):  # as of a dense array
        MATRICES["Diagonal"].at[0, 0].set(1j)
    promised = tj.Symmetric(np.eye(3), definite=True).at[0, 0].set(-1.0)
    assert type(promised) is tj.Symmetric
    assert not promised.definite


def test_fields_that_are_no_entries_are_not_updated():
    @tj.register_array_type(linear=True)
    class Halves(tj.AbstractArray):
        twice: jax.Array

        def to_dense(self):
            return jnp.diag(self.twice / 2)

        def entries_at(self, rows, columns):
            return self.to_dense()[rows, columns]

    new = Halves(jnp.ones(3)).at[1, 1].set(7.0)
    np.testing.assert_array_equal(tj.destructure(new), np.diag([0.5, 7.0, 0.5]))


def test_a_traced_index_is_dense_and_options_are_those_of_jax():
    a = MATRICES["Diagonal"]
    moved = jax.jit(lambda a, i: tj.destructure(a.at[i, i].set(2.0)))(a, 1)
    np.testing.assert_array_equal(moved, a.at[1, 1].set(2.0).to_dense())
    dropped = a.at[7, 7].set(2.0, mode="drop")
    np.testing.assert_array_equal(dropped, a.to_dense())


def test_one_of_a_batch():
    batch = tj.Diagonal(draw(3, 4))
    new = batch.at[1].set(tj.Diagonal(np.zeros(4)))
    assert type(new) is tj.Diagonal
    np.testing.assert_array_equal(new.diag, batch.diag.at[1].set(0))


def test_quantities_keep_their_structure():
    q = tj.Diagonal(np.ones(3)) * m
    with tj.densify("error"):
        for new in (q.at[0, 0].set(2 * km), q.at[0, 0].add(1999 * m), q.at[0, 0].multiply(2000.0)):
            assert type(new.stored) is tj.Diagonal
            assert float(new[0, 0].to_value("km")) == 2.0
        with pytest.raises(tj.NoRuleError, match="at"):
            q.at[0, 1].set(1 * m)


@pytest.mark.parametrize("name", MATRICES)
def test_single_entries_form_nothing(name):
    a = MATRICES[name]
    with tj.densify("error"):
        for index in ((1, 2), (-1, 0), (np.int32(2), 2), (np.array([0, 1]), jnp.array([[1], [3]]))):
            np.testing.assert_allclose(a[index], a.to_dense()[index], rtol=1e-14)
    program = str(jax.make_jaxpr(lambda d: tj.Diagonal(d)[3, 4])(jnp.ones(99)))
    assert "[99,99]" not in program


def test_single_entries_of_a_wide_matrix_count_its_columns_from_the_end():
    wide = tj.LowRank(draw(3, 2), draw(5, 2))
    index = (np.array([0, -3, 2]), np.array([-1, -5, 4]))
    with tj.densify("error"):
        np.testing.assert_allclose(wide[index], wide.to_dense()[index], rtol=1e-14)
