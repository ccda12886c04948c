"""Every operation on a batch is what it is on each matrix: values and gradients.

The cases of the rule packs say which operation takes which types. A batch is made of each by
scaling its numbers, mapped by the operation itself, and compared with a loop over its matrices.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import assert_close, dense_tree
from tanjax.arrays import batch_of, is_inexact, is_structured
from tanjax.testing import cases_of

# To compile: two cases of each are enough.
EXPENSIVE = ("slogdet", "condition_number", *("expm", "logm", "sqrtm", "fractional_matrix_power"))
REDUCTIONS = ("sum", "norm", "pairing")  # of all axes: `test_batch_reductions`


@pytest.fixture(autouse=True)
def densify():
    """Some results are dense by nature, some cases mix dtypes: neither is the subject."""
    with tj.densify("allow"), jax.numpy_dtype_promotion("standard"):
        yield


@functools.cache
def table():
    """One case per operation and types, by operation: those with a structured argument.

    Of what has no numbers, `Identity` and `Zero`, there is no batch.
    """
    found = {}
    for case in cases_of("tanjax_rules"):
        name, types = case.operation.name, tuple(type(a).__name__ for a in case.args)
        structured = any(is_structured(a) and jax.tree.leaves(a) for a in case.args)
        if structured and name not in REDUCTIONS and "Quantity" not in types:
            found.setdefault(name, {}).setdefault((types, tuple(case.static)), case)
    return {name: list(cases.values()) for name, cases in found.items()}


def is_array(arg):
    return jax.tree_util.all_leaves([arg]) and not callable(arg)


def batched(case, place, sizes):
    """One argument of a case with leading axes, where the operation can tell them; or as it is."""
    arg, op = case.args[place], case.operation
    rank = None if op.core_ndims is None else op.core_ndims[min(place, len(op.core_ndims) - 1)]
    if not is_structured(arg) and not (is_array(arg) and jnp.ndim(arg) == rank):
        return arg
    return batch_of_one(arg, sizes)


def batch_of_one(arg, sizes):
    """An array of any type, scaled a little differently for each of a batch."""

    def scaled(v):
        v = jnp.asarray(v)
        spread = jnp.broadcast_to(v, (*sizes, *v.shape))
        factors = 1 + 0.3 * np.arange(np.prod(sizes)).reshape(*sizes, *(1,) * v.ndim)
        return spread * factors.astype(v.dtype) if is_inexact(v) else spread

    return jax.tree.map(scaled, arg)


def of_one(case, args, index):
    """The arguments that one matrix of the batch has."""
    for given, arg in zip(case.args, args, strict=True):
        grew = is_structured(arg) or (is_array(arg) and jnp.ndim(arg) > jnp.ndim(given))
        yield jax.tree.map(lambda v: v[index], arg) if grew else arg


def both(case, args):
    """The call on a batch of two, and on each of it, in a loop."""
    call = lambda *a: dense_tree(case.operation(*a, **case.static))
    return call(*args), jax.lax.map(lambda k: call(*of_one(case, args, k)), np.arange(2))


def moving(args):
    """The arguments that are arrays: the others, functions, are not passed to a compiled one."""
    return [None if callable(a) else a for a in args]


def assert_agree(got, want, where):
    assert jax.tree.structure(got) == jax.tree.structure(want), where
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert g.dtype == w.dtype, where
        assert g.shape[g.ndim - w.ndim + 1 :] == w.shape[1:], where
        np.testing.assert_allclose(g, w.reshape(g.shape), rtol=1e-8, atol=1e-9, err_msg=where)


@pytest.mark.slow
@pytest.mark.parametrize("name", table())
def test_a_batch_is_a_loop(name):
    cases = table()[name]
    if name in EXPENSIVE:
        cases = cases[:2]
    args = [[batched(c, i, (2,)) for i in range(len(c.args))] for c in cases]

    @jax.jit
    def run(given):
        fill = lambda new, old: [o if n is None else n for n, o in zip(new, old, strict=True)]
        return [both(c, fill(g, a)) for c, g, a in zip(cases, given, args, strict=True)]

    for case, given, (got, want) in zip(cases, args, run(list(map(moving, args))), strict=True):
        assert (2,) in list(map(batch_of, given)), case
        assert_agree(got, want, str(case))


@functools.cache
def invertible():
    """A matrix of each type whose determinant some case asks for."""
    found = {}
    for case in cases_of("tanjax_rules"):
        a = case.args[0]
        asked = case.operation in (tj.logdet, tj.linalg.slogdet, tj.solve) and is_structured(a)
        if asked and a.ndim == 2 and a.size and jax.tree.leaves(a):
            definite = "definite " if getattr(a, "definite", False) else ""
            found.setdefault(f"{definite}{type(a).__name__}", a)
    return found


def results(a, b, x):
    return [
        tj.solve(a, x[..., None])[..., 0],
        tj.logdet(a),
        tj.linalg.quadratic_form(a, x),
        *map(dense_tree, (tj.inv(a), tj.matmul(a, b), tj.linalg.add(a, b))),
    ]


def weighted(results):
    """A number that depends on every entry of the results of two batches, `(2, 1)` and `(3,)`."""
    every = [jnp.real(jnp.broadcast_to(v, (2, 3, *v.shape[2:]))) for v in results]
    return sum(jnp.sum(v * jnp.cos(jnp.arange(v.size).reshape(v.shape))) for v in every)


@pytest.mark.slow
@pytest.mark.parametrize("name", invertible())
def test_batches_broadcast_in_values_and_gradients(name):
    a = batch_of_one(invertible()[name], (2, 1))
    n = a.shape[-1]
    b = batch_of_one(tj.Diagonal(1 + jnp.cos(jnp.arange(float(n)))), (3,))
    assert (a.batch_shape, b.batch_shape) == ((2, 1), (3,))
    x = jnp.sin(1 + jnp.arange(float(n)))

    def one_by_one(a, b, x):
        pair = lambda a, b: results(*map(tj.destructure, (a, b)), x)
        rows = jax.vmap(lambda a: jax.vmap(lambda b: pair(a, b))(b))
        return weighted(rows(jax.tree.map(lambda v: v[:, 0], a)))

    at_once = lambda *args: weighted(results(*args))
    got, want = (
        jax.jit(jax.value_and_grad(f, (0, 1, 2), allow_int=True))(a, b, x)
        for f in (at_once, one_by_one)
    )
    assert_close(got, want, 1e-9)


def test_results_have_the_types_that_one_matrix_gives():
    batch = tj.Diagonal(jnp.ones((5, 3)) + 1)
    kinds = {
        tj.Diagonal: (batch @ batch, batch + batch, 2 * batch, tj.inv(batch), batch.mT, batch[1:3]),
        tj.Triangular: (
            tj.linalg.cholesky(tj.Symmetric(batch.to_dense())),
            batch @ tj.Triangular(EYE),
        ),
        tj.Kronecker: (tj.linalg.kron(batch, EYE), tj.Kronecker(batch, tj.Identity(2), EYE)),
        tj.LowRankUpdate: (batch + tj.LowRank(jnp.ones((3, 1)), jnp.ones((3, 1))),),
    }
    for kind, results in kinds.items():
        assert [type(r) for r in results] == [kind] * len(results)
    assert all(r.batch_shape == (5,) for r in (*kinds[tj.Diagonal][:-1], *kinds[tj.Kronecker]))
    vectors = tj.linalg.eigh(
        batch
    ).eigenvectors  # of one, an `Identity`, which has no place for axes
    assert (type(vectors), vectors.shape) == (tj.Diagonal, (5, 3, 3))
    assert [type(d) for d in batch] == [tj.Diagonal] * len(batch)
    assert (batch[0].shape, batch[None].shape, batch[batch.diag[:, 0] > 5].shape) == (
        *((3, 3), (1, 5, 3, 3), (0, 3, 3)),
    )
    np.testing.assert_array_equal(batch[2, 0], [2.0, 0.0, 0.0])  # beyond the batch it is dense


EYE = jnp.eye(3)


def test_functions_of_batches_that_sum_within():
    """JAX gives axes as NumPy's integers in some programs."""
    batch = tj.Diagonal(jnp.asarray([[1.0, 2.0], [3.0, 0.5]]))
    with tj.densify("allow"):
        found = tj.lift(lambda a: jax.scipy.linalg.expm(0.1 * a))(batch)
    np.testing.assert_allclose(found, tj.Diagonal(jnp.exp(0.1 * batch.diag)).to_dense(), rtol=1e-12)


def test_batch_reductions():
    batch = tj.Symmetric(jnp.arange(18.0).reshape(2, 3, 3))
    full = batch.to_dense()
    for axis in (None, -1, 1, np.int64(1), (-2, -1), (0, np.int64(2))):
        np.testing.assert_allclose(tj.linalg.sum(batch, axis=axis), jnp.sum(full, axis))
    assert type(tj.linalg.sum(batch, axis=0)) is tj.Symmetric
    spectral = {"axis": (-2, -1), "ord": 2, "keepdims": True}
    for how in ({}, {"axis": (-2, np.int64(-1))}, spectral, {"axis": np.int64(0)}):
        np.testing.assert_allclose(tj.norm(batch, **how), tj.norm(full, **how))
    np.testing.assert_allclose(tj.linalg.pairing(batch, full), jnp.sum(full**2))
    zero = jax.grad(lambda a: tj.norm(a))(tj.Symmetric(jnp.zeros((2, 3, 3))))
    np.testing.assert_array_equal(zero.data, jnp.zeros((2, 3, 3)))


def test_sizes_and_scalars():
    """No matrices, one, one number for each; Python's lists; further axes by `jax.vmap`."""
    none, one = tj.Diagonal(jnp.ones((0, 3))), tj.Diagonal([[1.0, 2.0, 4.0]])
    assert tj.solve(none, jnp.ones(3)).shape == (0, 3)
    assert jax.grad(lambda a: jnp.sum(tj.logdet(a)))(none).shape == (0, 3, 3)
    np.testing.assert_allclose(tj.det(one), [8.0])
    assert (one @ none).shape == (0, 3, 3)
    many = tj.Diagonal(jnp.ones((2, 4, 3)))
    scaled = many * jnp.arange(4.0)[:, None, None]
    assert (type(scaled), scaled.shape) == (tj.Diagonal, (2, 4, 3, 3))
    np.testing.assert_array_equal(tj.trace(scaled), jnp.broadcast_to(3 * jnp.arange(4.0), (2, 4)))
    np.testing.assert_array_equal(jax.vmap(tj.trace)(scaled), tj.trace(scaled))
    x, _ = jax.lax.scan(lambda x, a: (tj.solve(a, x), None), jnp.ones((4, 3, 1)), many * 2)
    np.testing.assert_array_equal(x, jnp.ones((4, 3, 1)) / 4)


def test_natural_gradients_and_maps_of_a_batch():
    batch = tj.Kronecker(jnp.arange(1.0, 9).reshape(2, 2, 2) ** 0.5, tj.Diagonal([1.0, 3.0]))
    gradient = tj.grad(lambda k: jnp.sum(tj.logdet(k)))(batch)
    assert gradient.shape == batch.shape
    one = tj.grad(tj.logdet)(batch[1])
    np.testing.assert_allclose(gradient.to_dense()[1], one.to_dense(), atol=1e-12)
    diagonal = tj.Diagonal(jnp.ones((2, 3)))
    assert type(tj.grad(lambda d: jnp.sum(tj.logdet(d)))(diagonal)) is tj.Diagonal
    cotangent = jnp.arange(18.0).reshape(2, 3, 3)
    back = tj.tangents.structural(diagonal, cotangent)
    np.testing.assert_array_equal(back.diag, jnp.diagonal(cotangent, axis1=-2, axis2=-1))
    np.testing.assert_array_equal(tj.tangents.project(diagonal, cotangent).diag, back.diag)
    np.testing.assert_array_equal(tj.tangents.restructure(diagonal, cotangent).diag, back.diag)
    moved = tj.Permutation([[1, 0], [0, 1]])
    assert tj.tangents.natural(moved, tj.tangents.zero_tangent(moved)).shape == (2, 2, 2)
    out, back = tj.rules.rrule(tj.logdet, diagonal)
    np.testing.assert_array_equal(back(jnp.ones_like(out))[0].diag, jnp.ones((2, 3)))


def test_a_batch_of_quantities():
    metre = tj.unit("m")
    batch = tj.Diagonal(jnp.ones((4, 2)) * 2 * metre)
    assert (batch.shape, batch.unit) == ((4, 2, 2), metre)
    x = tj.solve(batch, jnp.ones(2) * tj.unit("km"))
    np.testing.assert_allclose(x.to_value("1"), jnp.full((4, 2), 500.0))
    assert (tj.det(batch).unit, tj.det(batch).shape) == (metre**2, (4,))
    assert (batch[0].shape, (batch @ batch).unit) == ((2, 2), metre**2)
    mixed = tj.Kronecker(batch, jnp.eye(2) * tj.unit("s"))
    assert (mixed.shape, mixed.unit) == ((4, 4, 4), metre * tj.unit("s"))


@tj.register_array_type
class Comb(tj.AbstractArray):
    """A type that says the rank of its field: its constructor takes batches, too."""

    teeth: jax.Array = tj.rules.array_field(ndim=1)
    n: int = tj.rules.static_field(default=3)

    def to_dense(self):
        return jnp.zeros((self.n, self.n), self.teeth.dtype).at[0].set(self.teeth)


def test_a_type_of_ones_own():
    batch = Comb(jnp.arange(6.0).reshape(2, 3))
    assert (batch.shape, batch.batch_shape) == ((2, 3, 3), (2,))
    np.testing.assert_array_equal(batch.to_dense()[:, 0], jnp.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(tj.trace(batch), [0.0, 3.0])
    np.testing.assert_array_equal(batch.transposed()[:, :, 0], jnp.arange(6.0).reshape(2, 3))
    gradient = jax.grad(lambda a: jnp.sum(a @ jnp.arange(3.0)))(batch)
    np.testing.assert_array_equal(gradient.teeth, [[0.0, 1.0, 2.0]] * 2)


@tj.operation(core_ndims=(2, 1))
def bilinear(a, x):
    return jnp.sum(x * (a @ x))


def test_an_operation_of_ones_own():
    batch, x = tj.Diagonal(jnp.arange(6.0).reshape(2, 3)), jnp.ones((2, 3))
    np.testing.assert_array_equal(bilinear(batch, x), [3.0, 12.0])
    np.testing.assert_array_equal(bilinear(batch, x[0]), [3.0, 12.0])
    np.testing.assert_array_equal(bilinear(batch[0], x), [3.0, 3.0])


@pytest.mark.core
def test_no_matrix_is_formed_and_what_is_shared_is_computed_once():
    n, batch = 512, tj.Diagonal(jnp.ones((8, 512)))
    loss = lambda a, b: jnp.sum(tj.solve(a, b) ** 2) + jnp.sum(tj.logdet(a))
    compiled = jax.jit(jax.grad(loss, (0, 1))).lower(batch, jnp.ones((8, n, 2))).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 8 * n * 64
    shared = tj.Symmetric(jnp.eye(4) * 2, definite=True)
    text = jax.jit(lambda a, b: tj.solve(a, b)).lower(shared, jnp.ones((5, 4, 1))).as_text()
    assert "tensor<5x4x4x" not in text  # one factorisation for five systems


def test_definite_batches():
    """The promise of a batch is asked of every matrix."""
    good = tj.Symmetric(jnp.eye(3) * jnp.arange(1.0, 3)[:, None, None])
    assert tj.linalg.assert_definite(good).definite
    assert tj.linalg.assert_definite(tj.Scaled(good, jnp.ones(2))).shape == (2, 3, 3)
    for bad in (
        tj.Symmetric(good.data.at[1].multiply(-1)),
        tj.Scaled(good, jnp.array([1.0, -1.0])),
        tj.BlockDiagonal(good, tj.Diagonal(jnp.array([[1.0], [0.0]]))),
    ):
        with pytest.raises(tj.errors.NotDefiniteError):
            tj.linalg.assert_definite(bad)


def test_a_sum_of_triangles_with_ones_on_the_diagonal_counts_the_ones():
    a = tj.Triangular(jnp.arange(18.0).reshape(2, 3, 3), unit_diagonal=True)
    with tj.densify("allow"):
        np.testing.assert_array_equal(tj.linalg.sum(a, axis=0), a.to_dense().sum(0))
