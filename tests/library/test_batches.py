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
from tanjax.arrays import batch_of, is_inexact, is_structured
from tanjax.testing import cases_of

EXPENSIVE = (
    "slogdet",
    "condition_number",
    "expm",
    "logm",
    "sqrtm",
    "fractional_matrix_power",
)  # to compile
REDUCTIONS = ("sum", "norm", "dot")  # of all axes: `test_batch_reductions`


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
        types = tuple(type(a).__name__ for a in case.args)
        quantities = any(isinstance(a, tj.Unitful) for a in case.args)
        if any(is_structured(a) and jax.tree.leaves(a) for a in case.args) and not quantities:
            found.setdefault((case.operation.name, types, tuple(case.static)), case)
    by_operation = {}
    for case in found.values():
        if case.operation.name not in REDUCTIONS:
            by_operation.setdefault(case.operation.name, []).append(case)
    return by_operation


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


def dense(out):
    return jax.tree.map(
        lambda x: tj.destructure(x) if is_structured(x) else x, out, is_leaf=is_structured
    )


def both(case, args):
    """The call on a batch of two, and on each of it, in a loop."""
    call = lambda *a: dense(case.operation(*a, **case.static))
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


def matrices(make, sizes, seed):
    """A batch of well conditioned matrices."""
    rng = np.random.default_rng(seed)
    return make(lambda *shape: jnp.asarray(rng.normal(size=(*sizes, *shape))))


def dominant(draw):
    """A definite matrix."""
    x = draw(4, 4)
    return 8 * jnp.eye(4) + (x + jnp.swapaxes(x, -1, -2)) / 2


TYPES = {
    "Diagonal": lambda draw: tj.Diagonal(3 + jnp.tanh(draw(4))),
    "Symmetric": lambda draw: tj.Symmetric(dominant(draw)),
    "definite": lambda draw: tj.Symmetric(dominant(draw), definite=True),
    "Hermitian": lambda draw: tj.Hermitian(dominant(draw)),
    "Triangular": lambda draw: tj.Triangular(8 * jnp.eye(4) + draw(4, 4)),
    "Tridiagonal": lambda draw: tj.Tridiagonal(draw(3), 6 + draw(4), draw(3)),
    "SymTridiagonal": lambda draw: tj.SymTridiagonal(6 + draw(4), draw(3)),
    "Banded": lambda draw: tj.Banded(draw(3, 4) + jnp.array([[0.0], [8], [0]]), 1, 1),
    "Toeplitz": lambda draw: tj.Toeplitz(draw(7) + 8 * jnp.eye(7)[3]),
    "Circulant": lambda draw: tj.Circulant(draw(4) + 8 * jnp.eye(4)[0]),
    "Kronecker": lambda draw: tj.Kronecker(
        tj.Diagonal(3 + jnp.tanh(draw(2))), 4 * jnp.eye(2) + draw(2, 2)
    ),
    "BlockDiagonal": lambda draw: tj.BlockDiagonal(
        tj.Identity(1), tj.Diagonal(3 + jnp.tanh(draw(1))), 4 * jnp.eye(2) + draw(2, 2)
    ),
    "LowRankUpdate": lambda draw: tj.LowRankUpdate(tj.Diagonal(jnp.full(4, 5.0)), draw(4, 1)),
    "Scaled": lambda draw: tj.Scaled(8 * jnp.eye(4) + draw(4, 4), 2 + jnp.tanh(draw())),
    "Permutation": lambda draw: tj.Permutation(jnp.argsort(draw(4), axis=-1)),
}


def outputs(a, b, x):
    """What operations make of two matrices and a vector, as arrays."""
    return {
        "solve": tj.solve(a, x[..., None])[..., 0],
        "matmul": dense(tj.matmul(a, b)),
        "add": dense(tj.add(a, b)),
        "logdet": tj.logdet(a),
        "trace": tj.trace(b),
        "form": tj.quadratic_form(a, x),
        "inv": dense(tj.inv(a)),
    }


def weighted(out):
    """A number that depends on every entry of every output, each matrix in its own way."""
    weigh = lambda v: jnp.sum(jnp.real(v) * jnp.cos(jnp.arange(v.size).reshape(v.shape)))
    return sum(map(weigh, out.values()))


@jax.jit
def run_batch(a, b, x):
    out = outputs(a, b, x)
    return out, jax.grad(lambda *args: weighted(outputs(*args)), (0, 1, 2), allow_int=True)(a, b, x)


@jax.jit
def run_loop(a, b, x):
    """The same, of dense arrays: `(2, 1)` with `(3,)`, differentiated through the definition."""

    def loss(a, b, x):
        one = lambda i, j: outputs(tj.destructure(at(a, (i, 0))), tj.destructure(at(b, (j,))), x)
        out = jax.lax.map(lambda i: jax.lax.map(lambda j: one(i, j), np.arange(3)), np.arange(2))
        # What only depends on one of the two is as large as that one.
        out["logdet"], out["form"] = out["logdet"][:, :1], out["form"][:, :1]
        out["inv"], out["solve"] = out["inv"][:, :1], out["solve"][:, :1]
        out["trace"] = out["trace"][0]
        return weighted(out), out

    grads, out = jax.grad(loss, (0, 1, 2), has_aux=True, allow_int=True)(a, b, x)
    return out, grads


def at(x, index):
    return jax.tree.map(lambda v: v[index], x)


@pytest.mark.parametrize("name", TYPES)
def test_batches_broadcast_in_values_and_gradients(name):
    a, b = matrices(TYPES[name], (2, 1), 0), matrices(TYPES["Diagonal"], (3,), 1)
    assert (a.shape, b.shape) == ((2, 1, 4, 4), (3, 4, 4))
    x = jnp.asarray([1.0, -0.5, 2.0, 0.25])
    (out, grads), (want, expected) = run_batch(a, b, x), run_loop(a, b, x)
    jax.tree.map(
        lambda g, w: (
            g.dtype == jax.dtypes.float0 or np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-9)
        ),
        (out, grads),
        (want, expected),
    )
    assert jax.tree.structure(grads) == jax.tree.structure((a, b, x))


def test_results_have_the_types_that_one_matrix_gives():
    batch = tj.Diagonal(jnp.ones((5, 3)) + 1)
    kinds = {
        tj.Diagonal: (batch @ batch, batch + batch, 2 * batch, tj.inv(batch), batch.mT, batch[1:3]),
        tj.Triangular: (tj.cholesky(tj.Symmetric(batch.to_dense())), batch @ tj.Triangular(EYE)),
        tj.Kronecker: (tj.kron(batch, EYE), tj.Kronecker(batch, tj.Identity(2), EYE)),
        tj.LowRankUpdate: (batch + tj.LowRank(jnp.ones((3, 1)), jnp.ones((3, 1))),),
    }
    for kind, results in kinds.items():
        assert [type(r) for r in results] == [kind] * len(results)
    assert all(r.batch_shape == (5,) for r in (*kinds[tj.Diagonal][:-1], *kinds[tj.Kronecker]))
    vectors = tj.eigh(batch).eigenvectors  # of one, an `Identity`, which has no place for axes
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
        np.testing.assert_allclose(tj.sum(batch, axis=axis), jnp.sum(full, axis))
    assert type(tj.sum(batch, axis=0)) is tj.Symmetric
    spectral = {"axis": (-2, -1), "ord": 2, "keepdims": True}
    for how in ({}, {"axis": (-2, np.int64(-1))}, spectral, {"axis": np.int64(0)}):
        np.testing.assert_allclose(tj.norm(batch, **how), tj.norm(full, **how))
    np.testing.assert_allclose(tj.dot(batch, full), jnp.sum(full**2))
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
    back = tj.structural(diagonal, cotangent)
    np.testing.assert_array_equal(back.diag, jnp.diagonal(cotangent, axis1=-2, axis2=-1))
    np.testing.assert_array_equal(tj.project(diagonal, cotangent).diag, back.diag)
    np.testing.assert_array_equal(tj.restructure(diagonal, cotangent).diag, back.diag)
    moved = tj.Permutation([[1, 0], [0, 1]])
    assert tj.natural(moved, tj.zero_tangent(moved)).shape == (2, 2, 2)
    out, back = tj.rrule(tj.logdet, diagonal)
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

    teeth: jax.Array = tj.array_field(ndim=1)
    n: int = tj.static_field(default=3)

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
    assert tj.assert_definite(good).definite
    assert tj.assert_definite(tj.Scaled(good, jnp.ones(2))).shape == (2, 3, 3)
    for bad in (
        tj.Symmetric(good.data.at[1].multiply(-1)),
        tj.Scaled(good, jnp.array([1.0, -1.0])),
        tj.BlockDiagonal(good, tj.Diagonal(jnp.array([[1.0], [0.0]]))),
    ):
        with pytest.raises(tj.NotDefiniteError):
            tj.assert_definite(bad)


def test_small_systems_solved_at_once_have_the_gradients_of_each():
    """Equal blocks and definite batches: one call, against `jnp.linalg.solve` one by one."""
    random = np.random.default_rng(0)
    matrices = jnp.asarray(random.normal(size=(3, 4, 4)) + 4 * np.eye(4))
    definite = matrices @ matrices.mT
    b = jnp.asarray(random.normal(size=(3, 4, 2)))
    alone = lambda x: jnp.sum(jax.vmap(jnp.linalg.solve)(x, b) ** 2)

    def by_blocks(x):
        return jnp.sum(tj.solve(tj.BlockDiagonal(*x), b.reshape(12, 2)) ** 2)

    def by_batch(x):
        return jnp.sum(tj.solve(tj.Symmetric(x, definite=True), b) ** 2)

    dense = lambda x: alone(tj.Symmetric(x, definite=True).to_dense())
    for f, literal, x in ((by_blocks, alone, matrices), (by_batch, dense, definite)):
        np.testing.assert_allclose(f(x), literal(x), rtol=1e-6)
        expected = jax.grad(literal)(x)
        np.testing.assert_allclose(jax.jit(jax.grad(f))(x), expected, rtol=1e-5, atol=1e-7)
