"""Sparse matrices: what is stored, what a pattern is, and that nothing else is computed."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse as of_jax

import tanjax as tj

RNG = np.random.default_rng(7)
PLACES = np.array([[2, 1], [0, 3], [2, 0], [1, 1], [0, 0]])  # in no order
VALUES = jnp.asarray(RNG.normal(size=5))


@pytest.fixture(autouse=True)
def nothing_becomes_dense():
    with tj.densify("error"):
        yield


def sparse(values=VALUES, shape=(3, 4)):
    return tj.Sparse(values, PLACES, shape)


def dense(values=VALUES, shape=(3, 4)):
    return np.asarray(of_jax.BCOO((values, jnp.asarray(PLACES)), shape=shape).todense())


# -- what is stored ------------------------------------------------------------------------------


def test_places_are_sorted_and_values_go_with_them():
    a = sparse()
    assert a.indices.tolist() == [[0, 0], [0, 3], [1, 1], [2, 0], [2, 1]]
    np.testing.assert_array_equal(a.values, VALUES[np.array([4, 1, 3, 2, 0])])
    np.testing.assert_array_equal(a.to_dense(), dense())
    assert (a.nnz, a.shape, a.dtype) == (5, (3, 4), jnp.float64)


def test_values_at_one_place_are_added_as_bcoo_does_with_their_derivative():
    places = [[1, 0], [0, 1], [1, 0], [1, 0]]
    make = lambda v: tj.Sparse(v, places, (2, 2))
    v = jnp.array([1.0, 2.0, 3.0, 4.0])
    assert make(v).indices.tolist() == [[0, 1], [1, 0]]
    assert make(v).values.tolist() == [2.0, 8.0]
    gradient = jax.grad(lambda v: jnp.sum(make(v).to_dense() ** 2))(v)
    assert gradient.tolist() == [16.0, 4.0, 16.0, 16.0]


def test_a_stored_zero_is_kept_and_has_a_derivative():
    a = tj.Sparse(jnp.zeros(2), [[0, 1], [1, 1]], (2, 2))
    assert a.nnz == 2
    gradient = jax.grad(lambda a: tj.linalg.sum(a @ jnp.array([3.0, 5.0])))(a)
    assert gradient.values.tolist() == [5.0, 5.0]


@pytest.mark.parametrize("shape", [(3, 4), (0, 3), (2, 0), (0, 0)])
def test_no_places_at_all(shape):
    a = tj.Sparse(jnp.zeros(0), np.zeros((0, 2), int), shape)
    assert (a.nnz, a.mT.shape) == (0, shape[::-1])
    m, n = shape
    np.testing.assert_array_equal(a @ jnp.ones((n, 2)), np.zeros((m, 2)))
    np.testing.assert_array_equal((a @ a.mT).to_dense(), np.zeros((m, m)))
    np.testing.assert_array_equal((a + a).to_dense(), np.zeros(shape))
    assert float(tj.linalg.sum(a)) == float(tj.norm(a)) == float(tj.norm(a, 1)) == 0.0
    assert jax.grad(lambda a: tj.linalg.sum(a @ jnp.ones(n)))(a).values.shape == (0,)


def test_integers_and_booleans_are_entries():
    a = tj.Sparse(jnp.array([2, 3]), [[1, 0], [0, 1]], (2, 2))
    assert (a @ jnp.array([10, 100])).tolist() == [300, 20]
    assert (2 * a + a).values.dtype == a.dtype
    assert (3 * a).to_dense().tolist() == [[0, 9], [6, 0]]
    assert a.astype(jnp.float32).values.dtype == jnp.float32
    assert a.astype(bool).to_dense().tolist() == [[False, True], [True, False]]


def test_from_dense_and_bcoo():
    a = sparse()
    again = tj.Sparse.from_dense(a.to_dense())
    assert again.pattern is a.pattern
    np.testing.assert_array_equal(again.values, a.values)
    bcoo = of_jax.BCOO((VALUES, jnp.asarray(PLACES)), shape=(3, 4))
    for given in (bcoo, a.to_bcoo(), of_jax.BCOO.fromdense(dense(), nse=9)):  # nse: filled up
        back = tj.Sparse.from_bcoo(given)
        assert back.pattern is a.pattern
        np.testing.assert_array_equal(back.values, a.values)
    b = jnp.asarray(RNG.normal(size=(4, 2)))
    np.testing.assert_allclose(a.to_bcoo() @ b, a @ b, rtol=1e-14)
    batch = jax.vmap(sparse)(jnp.stack([VALUES, 2 * VALUES]))
    assert (batch.shape, batch.pattern, batch.to_bcoo().n_batch) == ((2, 3, 4), a.pattern, 1)
    np.testing.assert_array_equal(batch.to_bcoo().todense(), batch.to_dense())


# -- the pattern is static -------------------------------------------------------------------------


def test_one_object_per_pattern():
    a, b = sparse(), sparse(2 * VALUES)
    assert a.pattern is b.pattern
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert a.pattern not in (sparse(shape=(4, 4)).pattern, sparse(shape=(3, 5)).pattern)
    assert a.mT.mT.pattern is a.pattern
    for back in (pickle.loads(pickle.dumps(a)), copy.deepcopy(a), copy.copy(a)):
        assert back.pattern is a.pattern
    assert repr(a).endswith("[2, 1]], shape=(3, 4))")


def test_given_indices_may_change_afterwards():
    places = PLACES.astype(np.int32)
    a = tj.Sparse(VALUES, places, (3, 4))
    places[:] = 0
    np.testing.assert_array_equal(a.to_dense(), dense())
    with pytest.raises(ValueError, match="read-only"):
        a.pattern.rows[0] = 1


def test_other_values_do_not_compile_anew_and_other_patterns_do():
    traces = []

    @jax.jit
    def f(a):
        traces.append(a.nnz)
        return a @ jnp.ones(4)

    for a in (sparse(), sparse(3 * VALUES), tj.Sparse([1.0], [[0, 1]], (3, 4))):
        np.testing.assert_allclose(f(a), a.to_dense() @ np.ones(4))
    assert traces == [5, 1]


def test_exported_programs_know_the_pattern():
    from jax import export

    exported = export.export(jax.jit(lambda a: (2 * a, a @ jnp.ones(4))))(sparse())
    back = export.deserialize(exported.serialize())
    twice, product = back.call(sparse())
    assert twice.pattern is sparse().pattern
    np.testing.assert_allclose(product, dense() @ np.ones(4))


def test_norms_and_sums_of_complex_values():
    values = jax.lax.complex(VALUES, VALUES[::-1])
    a, d = sparse(values), dense(values)
    for ord in (None, "fro", 1, -1, np.inf, -np.inf):
        np.testing.assert_allclose(tj.norm(a, ord), np.linalg.norm(d, ord))
    for axis in (None, 0, 1, -1):
        np.testing.assert_allclose(tj.linalg.sum(a, axis=axis), d.sum(axis))
    np.testing.assert_array_equal(a.H.to_dense(), d.conj().T)
    np.testing.assert_allclose(tj.linalg.pairing(a, jnp.asarray(d)), (d * d).sum())
    assert a.off_diagonal(7).shape == a.off_diagonal(-5).shape == (0,)
    assert jax.grad(tj.norm)(0 * sparse()).values.tolist() == [0.0] * 5


def test_product_has_at_most_as_many_places_as_pairs_and_sums_stay_lazy():
    a = sparse(VALUES, (4, 4))
    b = tj.Sparse(VALUES[:3], [[3, 3], [0, 3], [1, 2]], (4, 4))
    assert (a @ b).nnz <= a.nnz * b.nnz
    assert type(a + tj.Symmetric(jnp.eye(4))) is tj.tangents.Sum


@pytest.mark.parametrize("f", [tj.logdet, tj.inv, lambda a: tj.solve(a, jnp.ones(4))])
def test_systems_and_determinants_become_dense_visibly(f):
    with pytest.raises(tj.NoRuleError, match=r"Sparse\[4, 4\] becomes dense"):
        f(sparse(VALUES, (4, 4)) + 3 * tj.Identity(4))


def test_gradient_of_a_quantity_is_a_sparse_quantity():
    k = tj.Sparse(VALUES * tj.unit("N/m"), PLACES, (3, 4))
    x = jnp.ones(4) * tj.unit("cm")
    assert k.unit == tj.unit("N/m")
    np.testing.assert_allclose((k @ x).to_value("N"), dense() @ np.ones(4) / 100)
    gradient = tj.grad(lambda k: tj.linalg.sum(k @ x))(k)
    assert type(gradient.value) is tj.Sparse
    assert gradient.unit == tj.unit("cm")
    np.testing.assert_allclose(gradient.to_value("m").values, 0.01)
    square = (k @ k.mT).to("N2/cm2")
    np.testing.assert_allclose(square.value.to_dense(), dense() @ dense().T * 1e-4)


# -- nothing else is computed ----------------------------------------------------------------------


def largest(function, *args):
    """The entries of the largest buffer in a compiled program."""
    import re

    text = jax.jit(function).lower(*args).compile().as_text()
    shapes = re.findall(r"[a-z]\d+\[([\d,]+)\]", text)
    return max(int(np.prod([int(k) for k in s.split(",")])) for s in shapes)


@pytest.mark.slow
def test_programs_are_as_large_as_what_is_stored():
    """Products, sums, and their gradients in both modes: far from n by n, in every buffer."""
    n, k = 97, 3
    rows = np.arange(n)
    places = np.stack([np.tile(rows, 2), np.r_[(7 * rows + 1) % n, (rows + 5) % n]], 1)
    a = tj.Sparse(jnp.asarray(RNG.normal(size=2 * n)), places, (n, n))
    b, d = jnp.asarray(RNG.normal(size=(n, k))), tj.Diagonal(jnp.ones(n))

    def everything(a, b):
        c = a @ b + (b.T @ a).T + a.mT @ b
        closed = (a @ d + d @ a - a @ a.mT) / 2 + tj.Identity(n)
        scalars = tj.trace(a), tj.norm(a), tj.norm(a, 1), tj.linalg.quadratic_form(a, b[:, 0])
        return (
            jnp.sum(jnp.sin(c))
            + jnp.sum(closed @ b)
            + sum(scalars)
            + jnp.sum(tj.linalg.sum(a, axis=0))
        )

    gradient = jax.grad(everything, (0, 1))
    natural = tj.grad(everything)
    twice = lambda a, b: jax.jvp(lambda a: gradient(a, b), (a,), (a,))
    for f in (gradient, natural, twice):
        assert largest(f, a, b) < n * n // 4
    assert largest(lambda a: jnp.sin(a.to_dense()), a) == n * n  # which this would show


def test_a_type_with_entries_and_no_map_answers_a_sparse_cotangent():
    """The default of Jᵀ asks it for the places, and forms no array."""

    @tj.register_array_type(linear=True, injective=True)
    class Steps(tj.AbstractArray):
        steps: jax.Array

        def to_dense(self):
            return self.steps[:, None] * jnp.arange(4.0)

        def entries_at(self, rows, columns):
            return self.steps[rows] * columns.astype(float)

    a = Steps(jnp.array([1.0, 2.0, 3.0]))
    got = tj.tangents.pullback_of_destructure(a)(sparse())
    np.testing.assert_allclose(got.steps, dense() @ np.arange(4.0))
