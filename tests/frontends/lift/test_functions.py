"""Functions of JAX's own under `lift`: every choice of flags, on every type, against dense arrays.

A flag that is left out gives other numbers: matrices are not symmetric, not sorted, not real.
"""

import functools

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest

import tanjax as tj
from comparisons import dense_tree

pytestmark = [pytest.mark.core, pytest.mark.slow]

with_ = functools.partial
STANDARD = with_(jax.numpy_dtype_promotion, "standard")  # JAX's own functions need it


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def positive(n, seed, imaginary=0):
    x = normal(seed, n, n) + imaginary * normal(seed + 100, n, n)
    return jnp.asarray(x @ x.conj().T + n * np.eye(n))


def triangle(n, seed):
    return jnp.asarray(normal(seed, n, n) + 3 * np.eye(n))


TYPES = {
    "Diagonal": tj.Diagonal(jnp.asarray([3.0, 1.0, 4.0, 2.0])),
    "Symmetric": tj.Symmetric(positive(4, 1)),
    "Hermitian": tj.Hermitian(positive(4, 2, 1j)),
    "lower": tj.Triangular(triangle(4, 3)),
    "upper": tj.Triangular(triangle(4, 4), lower=False),
    "unit": tj.Triangular(triangle(4, 5), unit_diagonal=True),
    "SymTridiagonal": tj.SymTridiagonal(jnp.asarray([3.0, 4, 5, 6]), jnp.asarray([1.0, -1, 0.5])),
    "Tridiagonal": tj.Tridiagonal(
        jnp.asarray([0.3, 0.2, -0.4]), jnp.asarray([3.0, 4, 5, 6]), jnp.asarray([1.0, -1, 0.5])
    ),
    "Kronecker": tj.Kronecker(tj.Symmetric(positive(2, 6)), tj.Diagonal(jnp.asarray([2.0, 1.0]))),
    "BlockDiagonal": tj.BlockDiagonal(
        tj.Symmetric(positive(2, 7)), tj.Diagonal(jnp.asarray([2.5, 1.5]))
    ),
    "dense blocks": tj.BlockDiagonal(triangle(2, 8), triangle(2, 9)),
    "Scaled": tj.Scaled(tj.Kronecker(triangle(2, 8), triangle(2, 9)), jnp.asarray(1.5)),
    "Sparse": tj.Sparse(jnp.arange(1.0, 6), [[0, 0], [1, 1], [2, 2], [3, 3], [1, 3]], (4, 4)),
    "LowRank": tj.LowRank(triangle(4, 10)[:, :2], triangle(4, 11)[:, :2]),
}  # fmt: skip
NUMBERS = normal(20, 4, 2)


def b(a):
    return jnp.asarray(NUMBERS, a.dtype)


FACTORS = {  # of which the product counts, and the sizes of what a sign may change
    "qr": lambda q, r: (q @ r, abs(r), abs(q)),
    "svd": lambda u, s, vh: (u[:, : s.size] * s.astype(u.dtype) @ vh[: s.size], s, abs(vh)),
    "eigh": lambda w, v: (v * w.astype(v.dtype) @ jnp.conj(v.T), w, abs(v)),
    "r": lambda r: abs(r),
}


def after(kind, call):
    """A call, and what of its results does not depend on the choice of signs."""

    def run(f, a):
        out = dense_tree(f(call)(a))
        return FACTORS[kind](*out) if isinstance(out, tuple | list) else FACTORS[kind](out)

    return run


def whole(call):
    return lambda f, a: dense_tree(f(call)(a))


def _systems():
    for assume, lower in (("gen", False), ("sym", True), ("pos", False), ("pos", True)):
        yield (
            f"solve {assume} {lower}",
            lambda a, f={"assume_a": assume, "lower": lower}: jsl.solve(a, b(a), **f),
        )
    yield "solve vector", lambda a: jnp.linalg.solve(a, b(a)[:, 0])
    for lower in (False, True):
        yield f"cho_solve {lower}", lambda a, lower=lower: jsl.cho_solve((a, lower), b(a))
        both = lambda a, lower=lower: jsl.cho_solve(jsl.cho_factor(a, lower=lower), b(a))
        yield f"cho_factor, cho_solve {lower}", both
        yield f"jsl.cholesky {lower}", with_(jsl.cholesky, lower=lower)
        for trans in (0, "T", 2):
            for unit in (False, True):
                flags = {"lower": lower, "trans": trans, "unit_diagonal": unit}
                name = f"solve_triangular {lower} {trans} {unit}"
                yield name, lambda a, f=flags: jsl.solve_triangular(a, b(a), **f)
    for trans in (0, 1, 2):
        both = lambda a, trans=trans: jsl.lu_solve(jsl.lu_factor(a), b(a), trans=trans)
        yield f"lu_factor, lu_solve {trans}", both
    yield "inv", jsl.inv
    yield "det", jsl.det
    yield "slogdet qr", with_(jnp.linalg.slogdet, method="qr")
    yield "pinv", jnp.linalg.pinv
    yield "pinv hermitian", with_(jnp.linalg.pinv, hermitian=True)
    yield "lstsq", lambda a: jnp.linalg.lstsq(a, b(a))


def _others():
    for upper in (False, True):
        for symmetrize in (False, True):
            flags = {"upper": upper, "symmetrize_input": symmetrize}
            yield f"cholesky {upper} {symmetrize}", with_(jnp.linalg.cholesky, **flags)
    yield "lu", jsl.lu
    yield "lu permuted", with_(jsl.lu, permute_l=True)
    for uplo in "LU":
        for symmetrize in (False, True):
            flags = {"UPLO": uplo, "symmetrize_input": symmetrize}
            yield f"eigvalsh {uplo} {symmetrize}", with_(jnp.linalg.eigvalsh, **flags)
    yield "jsl.eigvals", with_(jsl.eigh, eigvals_only=True, lower=False)
    yield "svdvals", jnp.linalg.svdvals
    yield "jsl.svdvals", with_(jsl.svd, compute_uv=False)
    yield "svdvals hermitian", with_(jnp.linalg.svd, hermitian=True, compute_uv=False)
    yield "expm", jsl.expm
    yield "expm of a triangle", with_(jsl.expm, upper_triangular=True)
    yield "sylvester", lambda a: jsl.solve_sylvester(a, 2 * a, b(a) @ b(a).T)
    for order in (None, "fro", "nuc", 1, -1, 2, -2, jnp.inf, -jnp.inf):
        yield f"norm {order}", with_(jnp.linalg.norm, ord=order)
    yield "matrix_norm", jnp.linalg.matrix_norm
    yield "cond 1", with_(jnp.linalg.cond, p=1)
    yield "rank", jnp.linalg.matrix_rank
    for n in (-2, 0, 1, 3):
        yield f"power {n}", with_(jnp.linalg.matrix_power, n=n)
    for k in (0, 1, -2):
        yield f"trace {k}", with_(jnp.trace, offset=k)
        yield f"linalg.trace {k}", with_(jnp.linalg.trace, offset=k)
        yield f"diagonal {k}", with_(jnp.diagonal, offset=k)
        yield f"diag {k}", with_(jnp.diag, k=k)
        yield f"tril {k}", with_(jnp.tril, k=k)
        yield f"triu {k}", with_(jnp.triu, k=k)
    yield "kron", lambda a: (jnp.kron(a, b(a)), jnp.kron(b(a), a), jnp.kron(a, a))
    yield "block_diag", lambda a: jsl.block_diag(a, b(a), a)
    yield "sums", lambda a: (jnp.sum(a), jnp.sum(a, 0), a.sum(1, keepdims=True), jnp.mean(a))
    yield "products", lambda a: (jnp.inner(a, a), jnp.dot(a, b(a)), jnp.tensordot(b(a).T, a, 1))
    yield "einsum", lambda a: (jnp.einsum("ij,ij->", a, a), jnp.einsum("ij,ji->", a, a))
    yield "matvec", lambda a: (jnp.matvec(a, b(a)[:, 0]), jnp.vecmat(b(a)[:, 0], a), a**2)


def _invariant():
    for mode in ("reduced", "complete"):
        yield f"qr {mode}", after("qr", with_(jnp.linalg.qr, mode=mode))
    for mode in ("full", "economic"):
        yield f"jsl.qr {mode}", after("qr", with_(jsl.qr, mode=mode))
    yield "qr r", after("r", with_(jnp.linalg.qr, mode="r"))
    yield "jsl.qr r", after("r", with_(jsl.qr, mode="r"))
    for full in (False, True):
        yield f"svd {full}", after("svd", with_(jnp.linalg.svd, full_matrices=full))
        yield f"jsl.svd {full}", after("svd", with_(jsl.svd, full_matrices=full))
    for uplo in "LU":
        yield f"eigh {uplo}", after("eigh", with_(jnp.linalg.eigh, UPLO=uplo))
        yield f"jsl.eigh {uplo}", after("eigh", with_(jsl.eigh, lower=uplo == "L"))


CALLS = {k: whole(f) for part in (_systems, _others) for k, f in part()} | dict(_invariant())

_OF_AN_OFFSET = ("diag", "diagonal", "trace", "linalg.trace")
SINGULAR = ("solve", "cho", "jsl", "lu", "inv", "det", "slogdet", "cond", "power -", "sylvester")
READ = ("solve pos", "cho_factor", "jsl.cholesky", "cholesky False False", "cholesky True False")
TRIANGLES = ("cho_solve", "solve_triangular", "tril", "triu")
HERMITIAN = ("eigvalsh", "jsl.eigvals", "svdvals hermitian", "pinv hermitian")
VECTORS = ("svd False", "svd True", "jsl.svd ")
PARTS = ("lu_factor", "pinv", "lstsq", "sylvester", *VECTORS, "eigh", "jsl.eigh")
OFFSETS = ("tril 1", "triu 1", "tril -2", "triu -2")
# Their primitives hide the offset or the norm, and JAX factorises or iterates.
ALWAYS = ("cond 1", "sylvester", *(f"{f} {k}" for f in _OF_AN_OFFSET for k in (1, -2)))
DENSE = {  # calls that densify, by the beginning of their name; all others keep the structure
    "Diagonal": (*VECTORS, "lstsq", "lu_factor"),
    "Symmetric": ("lu_factor", *OFFSETS),
    "Hermitian": ("lu_factor", *OFFSETS),
    "lower": ("lu_factor", "pinv h", "eigvalsh L F", "eigvalsh U F", "triu 1", *OFFSETS[2:], *READ),
    "upper": ("lu_factor", "pinv h", "eigvalsh L F", "eigvalsh U F", *OFFSETS[:3], *READ),
    "Kronecker": (*PARTS, *TRIANGLES, "expm"),
    "BlockDiagonal": (*PARTS, *OFFSETS),
    "dense blocks": (*PARTS, *OFFSETS, *HERMITIAN, *READ, "cholesky"),
}


# All types pass, in ten minutes; these have every flag, order and triangle between them.
CHECKED = ("Diagonal", "Hermitian", "upper", "Tridiagonal", "BlockDiagonal", "Sparse", "LowRank")


@functools.cache
def calls_of(name):
    """The calls that mean something for a type, and whether they keep the structure."""
    kept = {}
    for key, run in CALLS.items():
        if name == "Hermitian" and key == "slogdet qr":
            continue  # which JAX has for real matrices only
        if name == "LowRank" and key.startswith(SINGULAR):
            continue
        with tj.densify("error"), STANDARD():
            try:
                jax.eval_shape(functools.partial(run, tj.lift), TYPES[name])
                kept[key] = True
            except tj.NoRuleError:
                kept[key] = False
    return kept


@pytest.mark.parametrize("name", DENSE)
def test_which_calls_keep_the_structure(name):
    dense = {key for key, kept in calls_of(name).items() if not kept}
    assert dense == {key for key in calls_of(name) if key.startswith((*ALWAYS, *DENSE[name]))}


@pytest.mark.parametrize("name", CHECKED)
def test_values_are_those_of_the_dense_array(name):
    """All calls that keep the structure as one program; the kit has the derivatives."""
    calls = {key: CALLS[key] for key, kept in calls_of(name).items() if kept}
    plain = lambda call: lambda a: call(a.to_dense())
    with STANDARD():
        got, want = (
            jax.jit(lambda a, how=how: {k: call(how, a) for k, call in calls.items()})(TYPES[name])
            for how in (tj.lift, plain)
        )
    for key in want:
        assert jax.tree.map(jnp.shape, got[key]) == jax.tree.map(jnp.shape, want[key]), key
        for g, w in zip(jax.tree.leaves(got[key]), jax.tree.leaves(want[key]), strict=True):
            assert g.dtype == w.dtype, key
            np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-9, err_msg=key)


def test_a_batch_is_a_map_and_natural_gradients_are_those_of_the_program():
    a, x = TYPES["Symmetric"], jnp.asarray(NUMBERS)

    def loss(a):
        factor = jsl.cho_factor(a, lower=True)
        _, values = jnp.linalg.svd(jnp.tril(a), compute_uv=False), jnp.linalg.eigvalsh(a)
        return jnp.sum(jsl.cho_solve(factor, x) ** 2) + jnp.sum(jnp.log(values))

    lifted = tj.lift(loss)
    with tj.densify("error"):
        got = tj.grad(lifted)(a)
        batch = jax.tree.map(lambda v: jnp.stack([v, 2 * v]), a)
        mapped = jax.jit(jax.vmap(lifted))(batch)
    assert type(got) is tj.Symmetric
    want = tj.grad(lambda a: loss(a.to_dense()))(a)
    np.testing.assert_allclose(got.to_dense(), want.to_dense(), rtol=1e-9)
    dense = [loss(a.to_dense()), loss(2 * a.to_dense())]
    np.testing.assert_allclose(mapped, dense, rtol=1e-10)


def test_types_of_factors():
    band, diagonal = TYPES["SymTridiagonal"], TYPES["Diagonal"]
    with tj.densify("error"):
        upper, lower = tj.lift(lambda a: jsl.cho_factor(a))(band)
        w, v = tj.lift(jnp.linalg.eigh)(diagonal)
        parts = tj.lift(jsl.lu)(TYPES["Kronecker"])
    assert not lower
    assert type(upper) is tj.Banded
    assert (upper.lower, upper.upper) == (0, 1)
    assert w.tolist() == [1.0, 2.0, 3.0, 4.0]  # ascending, as JAX promises
    assert type(v) is tj.Permutation
    assert {type(part) for part in parts} == {tj.Kronecker}


def test_triangles_ranks_and_values_are_those_of_jax():
    """One triangle is read, a small block counts as zero, left-out singular values are zeros."""
    band = TYPES["Tridiagonal"]
    blocks = tj.BlockDiagonal(tj.Diagonal(jnp.asarray([1e20])), tj.Diagonal(jnp.asarray([1.0])))
    lower = functools.partial(jax.lax.linalg.cholesky, symmetrize_input=False)
    for call, a in ((lower, band), (jnp.linalg.pinv, blocks)):
        with tj.densify("allow"):
            got = dense_tree(tj.lift(call)(a))
        np.testing.assert_allclose(got, call(a.to_dense()), rtol=1e-12, atol=1e-12)
    low = tj.LowRank(jnp.asarray(normal(1, 5, 2)), jnp.asarray(normal(2, 4, 2)))
    with tj.densify("error"):
        values = tj.lift(jnp.linalg.svdvals)(low)
        assert int(tj.lift(jnp.linalg.matrix_rank)(low)) == 2
    want = jnp.linalg.svdvals(low.to_dense())
    assert values.shape == want.shape
    np.testing.assert_allclose(values, want, atol=1e-12)
