"""`jax.export` with symbolic sizes: every operation on every type, and its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import tanjax as tj
from tanjax.testing import _support as support

RNG = np.random.default_rng(0)
SIZE = 7  # of the samples


def symbols(sizes):
    """The batch, and the symbols that numbers in the shapes of the samples become."""
    if sizes == "b":
        return export.symbolic_shape("b"), {}
    n, *b = export.symbolic_shape(sizes, constraints=["n >= 2"])
    beside = {SIZE - 1: n - 1, 2 * SIZE - 1: 2 * n - 1, SIZE + 2: n + 2, 2 * SIZE: 2 * n}
    return tuple(b), {SIZE: n, **beside}


def normal(*shape):
    return RNG.normal(size=shape)


def positive(*shape):
    return RNG.uniform(1.0, 2.0, size=shape)


def samples(n):
    full = normal(n, n) + 4 * np.eye(n)
    symmetric, small = tj.Symmetric(full), tj.Symmetric(normal(2, 2) + 4 * np.eye(2))
    diagonal = tj.Diagonal(positive(n))
    return {
        "dense": jnp.asarray(full),
        "Diagonal": diagonal,
        "Symmetric": symmetric,
        "definite": tj.Symmetric(full, definite=True),
        "Hermitian": tj.Hermitian(full + 1j * normal(n, n)),
        "Triangular": tj.Triangular(full),
        "Tridiagonal": tj.Tridiagonal(normal(n - 1), 4 * positive(n), normal(n - 1)),
        "SymTridiagonal": tj.SymTridiagonal(4 * positive(n), normal(n - 1)),
        "Banded": tj.Banded(np.stack([normal(n), 5 * positive(n), normal(n)]), 1, 1),
        "Toeplitz": tj.Toeplitz(normal(2 * n - 1)),
        "Circulant": tj.Circulant(normal(n)),
        "Permutation": tj.Permutation(np.arange(n)[::-1]),
        "Kronecker": tj.Kronecker(small, symmetric),
        "LowRank": tj.LowRank(normal(n, 1), normal(n, 1)),
        "LowRankUpdate": tj.LowRankUpdate(diagonal, normal(n, 1)),
        "BlockDiagonal": tj.BlockDiagonal(small, full),
        "Scaled": tj.Scaled(symmetric, 2.0),
        "Identity": tj.Identity(n),
        "Fill": tj.Fill(2.0, (n, n)),
        "Zero": tj.Zero((n, n)),
    }


TYPES = samples(SIZE)
SIZED = {  # types whose size is static are made of it inside of the program
    "Toeplitz": lambda a, n: tj.Toeplitz(a.values),
    "Identity": lambda a, n: tj.Identity(n),
    "Fill": lambda a, n: tj.Fill(a.value, (n, n)),
    "Zero": lambda a, n: tj.Zero((n, n)),
}
# What JAX cannot export, as `ecosystem.md` says: transforms of unknown length, and the
# derivative of a product of numbers, also along a symbolic batch.
FOURIER = {
    *("A @ dense", "dense @ A", "solve(A, dense)", "logdet(A)", "slogdet(A)", "det(A)"),
    *("quadratic_form(A, x)", "inv_quad_logdet(A, x)", "lstsq(A, dense)", "sum(A)"),
}
SPECTRUM = {"inv(A)", "norm(A, 'nuc')", "svd(A), values", "condition_number(A)", "matrix_rank(A)"}
PRODUCTS = ("Diagonal", "Triangular", "LowRankUpdate", "Circulant")


def cannot(kind, sizes):
    """The operations that do not export."""
    by_length = {"Toeplitz": FOURIER, "Circulant": FOURIER | SPECTRUM}.get(kind, set())
    return (by_length if sizes != "b" else set()) | ({"det(A)"} if kind in PRODUCTS else set())


def symbolic(tree, batch, sizes):
    """The tree with symbols for sizes, behind a batch."""
    size = lambda k: sizes.get(k, k)
    spec = lambda x: jax.ShapeDtypeStruct((*batch, *map(size, x.shape)), x.dtype)
    return jax.tree.map(spec, tree)


def moving(tree):
    """The leaves by which one differentiates, and the function that puts them back."""
    leaves, treedef = jax.tree.flatten(tree)
    places = [i for i, x in enumerate(leaves) if jnp.issubdtype(x.dtype, jnp.inexact)]

    def back(values):
        found = dict(zip(places, values, strict=True))
        return treedef.unflatten([found.get(i, x) for i, x in enumerate(leaves)])

    return [leaves[i] for i in places], back


def with_gradient(kind, op, make, keywords):
    """A call of the support table, and its pullback of ones to all numbers."""

    def run(a, square, vector):
        values, back = moving((a, square, vector))

        def call(*values):
            a, square, vector = back(values)
            a = SIZED.get(kind, lambda a, n: a)(a, square.shape[-1])
            given = {id(support.SQUARE): square, id(support.VECTOR): vector}
            out = op(*(given.get(id(x), x) for x in make(a)), **keywords)
            return jax.tree.leaves(out)

        out, pullback = jax.vjp(lambda *v: moving(call(*v))[0], *values)
        return call(*values), pullback([jnp.ones_like(x) for x in out])

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("dense", "n"),  # of a batch, dense operations are those of JAX
        *((kind, "n, b") for kind in TYPES if kind != "dense"),
        *(("Symmetric", "n"), ("Toeplitz", "b"), ("Circulant", "b")),
    ],
)
def test_every_operation_exports_with_its_gradient(kind, sizes):
    batch, known = symbols(sizes)
    a = TYPES[kind]
    n, dtype = a.shape[-1], np.promote_types(a.dtype, np.float64)
    asked, failed = set(), {}
    for name, op, make, keywords in support.CALLS:
        vector = jnp.ones((n, 1) if batch and name.startswith("inv") else n, dtype)
        concrete = a, jnp.ones((n, n), dtype), vector
        run = with_gradient(kind, op, make, keywords)
        with tj.densify("allow"), jax.numpy_dtype_promotion("standard"):
            if support.is_refused(run, *symbolic(concrete, batch and (2,), {})):
                continue
            asked.add(name)
            try:
                export.export(jax.jit(run))(*symbolic(concrete, batch, known))
            except Exception as error:  # JAX has as many classes of errors as reasons
                failed[name] = error
    assert set(failed) == cannot(kind, sizes) & asked, failed


def test_one_program_serves_all_sizes():
    """Values and gradients of a batch of models, called with two sizes of matrices and batches."""

    def loss(diag, u, off, y):
        update = tj.LowRankUpdate(tj.Diagonal(diag), u)
        quadratic, logdet = tj.linalg.inv_quad_logdet(update, y)
        tridiagonal = tj.SymTridiagonal(4 * diag, off)
        values = tj.linalg.eigvalsh(tj.Symmetric(update.to_dense(), definite=True))
        order = tj.Permutation(jnp.argsort(diag, axis=-1))
        terms = quadratic + logdet + tj.logdet(tridiagonal) + order.sign()
        parts = (
            tj.solve(tridiagonal, order @ y),
            jnp.sin(values),
            tj.linalg.expm(0.1 * update.to_dense()),
        )
        return jnp.sum(terms) + sum(map(jnp.sum, parts))

    (n, b) = export.symbolic_shape("n, b", constraints=["n >= 2"])
    shapes = lambda n, b: ((b, n), (b, n, 1), (b, n - 1), (b, n, 1))
    both = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3)))
    with tj.densify("allow"):
        specs = (jax.ShapeDtypeStruct(s, jnp.float64) for s in shapes(n, b))
        program = export.deserialize(export.export(both)(*specs).serialize())
        for sizes in ((3, 2), (5, 1)):
            given = [positive(*s) for s in shapes(*sizes)]
            got, want = program.call(*given), both(*given)
            jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-9), got, want)


def test_arrays_made_and_taken_by_exported_programs():
    """A structured argument and result, static sizes of the program, and a natural gradient."""
    (n,) = export.symbolic_shape("n", constraints=["n >= 2"])

    def program(a, x):
        shifted = a + 2.0 * tj.Identity(x.shape[0])
        block = tj.linalg.concatenate([a @ x, x])
        parts = tj.solve(a, a[0]), a[1:, 1:], block, tj.Zero(a.shape) + a
        return tj.grad(tj.logdet)(shifted), *parts

    a, x = tj.Symmetric(normal(3, 3) + 4 * np.eye(3)), normal(3)
    spec = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((n,) * leaf.ndim, leaf.dtype), (a, x))
    with tj.densify("allow"):
        exported = export.deserialize(export.export(jax.jit(program))(*spec).serialize())
        got, want = exported.call(a, x), program(a, x)
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-12), got, want)
