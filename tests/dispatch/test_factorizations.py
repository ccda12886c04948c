"""Factorizations put together again, in every type; batches, units, bad input, front doors."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tanjax.numpy.linalg as tnl

import tanjax as tj
from comparisons import assert_close

R = np.random.default_rng(5)


def normal(*shape):
    return jnp.asarray(R.normal(size=shape))


def definite(n):
    x = R.normal(size=(n, n))
    return jnp.asarray(x @ x.T + n * np.eye(n))


def dense(x):
    return np.asarray(tj.destructure(x) if tj.is_structured(x) else x)


def complex_normal(*shape):
    return jnp.asarray(R.normal(size=shape) + 1j * R.normal(size=shape))


SQUARE = {
    "dense": lambda: definite(4),
    "Diagonal": lambda: tj.Diagonal(jnp.array([3.0, -1.0, 2.0])),
    "Identity": lambda: tj.Identity(3),
    "Symmetric": lambda: tj.Symmetric(normal(3, 3)),
    "Hermitian": lambda: tj.Hermitian(complex_normal(3, 3)),
    "Scaled": lambda: tj.Scaled(tj.Symmetric(normal(3, 3)), -2.0),
    "Kronecker": lambda: tj.Kronecker(tj.Symmetric(normal(2, 2)), tj.Diagonal(normal(3))),
    "BlockDiagonal": lambda: tj.BlockDiagonal(definite(2), tj.Diagonal(normal(2))),
}
ANY = SQUARE | {
    "lower": lambda: tj.Triangular(definite(3)),
    "upper": lambda: tj.Triangular(definite(3), lower=False),
    "wide": lambda: normal(2, 4),
    "tall Kronecker": lambda: tj.Kronecker(normal(3, 2), normal(2, 1)),
    "tall BlockDiagonal": lambda: tj.BlockDiagonal(normal(3, 2), normal(2, 1)),
    "LowRank": lambda: tj.LowRank(normal(5, 2), normal(4, 2)),
    "complex LowRank": lambda: tj.LowRank(complex_normal(3, 1), complex_normal(4, 1)),
}


def adjoint(x):
    return np.conj(np.swapaxes(dense(x), -1, -2))


def assert_unitary(q):
    eye = np.eye(q.shape[1])
    np.testing.assert_allclose(adjoint(q) @ dense(q), eye, atol=1e-12)


@pytest.mark.parametrize("kind", SQUARE)
def test_eigh_makes_the_matrix(kind):
    a = SQUARE[kind]()
    with tj.densify("error"):
        w, v = tj.eigh(a)
        sorted_ = tj.eigvalsh(a)
    assert_unitary(v)
    np.testing.assert_allclose((dense(v) * np.asarray(w)) @ adjoint(v), dense(a), atol=1e-12)
    np.testing.assert_allclose(sorted_, np.linalg.eigvalsh(dense(a)), atol=1e-12)


@pytest.mark.parametrize("kind", ANY)
def test_thin_svd_makes_the_matrix(kind):
    a = ANY[kind]()
    with tj.densify("error"):
        u, s, vh = tj.svd(a, full_matrices=False)
        values = tj.svd(a, compute_uv=False)
    assert_unitary(u)
    assert_unitary(adjoint(vh))
    np.testing.assert_allclose((dense(u) * np.asarray(s)) @ dense(vh), dense(a), atol=1e-12)
    want = np.linalg.svd(dense(a), compute_uv=False)
    got = np.sort(np.append(values, np.zeros(want.size - values.size)))[::-1]
    np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("kind", ["Kronecker", "tall Kronecker", "LowRank", "tall BlockDiagonal"])
def test_full_svd_makes_the_matrix(kind):
    a = ANY[kind]()
    with tj.densify("allow"):
        u, s, vh = tj.svd(a)
    assert_unitary(u)
    assert u.shape[0] == u.shape[1]
    assert vh.shape[0] == vh.shape[1]
    k = s.size
    np.testing.assert_allclose(
        (dense(u)[:, :k] * np.asarray(s)) @ dense(vh)[:k], dense(a), atol=1e-12
    )


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("kind", ANY)
def test_qr_makes_the_matrix(kind, mode):
    a = ANY[kind]()
    with tj.densify("allow"):
        result = tj.qr(a, mode)
    r = dense(result if mode == "r" else result.R)
    np.testing.assert_allclose(np.tril(r, -1), 0, atol=1e-12)
    if mode == "r":
        np.testing.assert_allclose(adjoint(r) @ r, adjoint(a) @ dense(a), atol=1e-11)
        return
    assert_unitary(result.Q)
    np.testing.assert_allclose(dense(result.Q) @ r, dense(a), atol=1e-12)
    if mode == "complete":
        assert result.Q.shape == (a.shape[0],) * 2


@pytest.mark.parametrize("kind", [*SQUARE, "lower", "upper"])
def test_lu_makes_the_matrix(kind):
    a = ANY[kind]()
    with tj.densify("error"):
        p, lower, u = map(dense, tj.lu(a))
    np.testing.assert_allclose(np.diagonal(lower), 1)
    np.testing.assert_allclose(np.triu(lower, 1), 0)
    np.testing.assert_allclose(np.tril(u, -1), 0)
    np.testing.assert_allclose(np.sort(p @ np.arange(p.shape[0])), np.arange(p.shape[0]))
    np.testing.assert_allclose(p @ lower @ u, dense(a), atol=1e-12)


@pytest.mark.parametrize("kind", ANY)
def test_pinv_lstsq_norms_rank_and_condition(kind):
    a = ANY[kind]()
    whole, b = dense(a), normal(a.shape[0])
    with tj.densify("error"):
        np.testing.assert_allclose(dense(tj.pinv(a)), np.linalg.pinv(whole), atol=1e-12)
        x = tj.lstsq(a, b.astype(a.dtype))
        assert tj.matrix_rank(a) == np.linalg.matrix_rank(whole)
        orders = [None, "fro", "nuc", 2, -2]
        if kind not in ("LowRank", "complex LowRank"):
            orders += [1, -1, math.inf, -math.inf]
        for ord in orders if "wide" not in kind else orders[:5]:
            if kind == "tall BlockDiagonal" and ord not in (None, "fro", "nuc", 2, -2, 1, math.inf):
                continue
            got, want = tj.norm(a, ord), np.linalg.norm(whole, ord)
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12, err_msg=str(ord))
    np.testing.assert_allclose(x, np.linalg.lstsq(whole, b)[0], atol=1e-12)
    if a.shape[0] == a.shape[1] and kind != "LowRank":
        for p in (None, 1, "fro", -2):
            want = np.linalg.cond(whole, p)
            np.testing.assert_allclose(tj.condition_number(a, p), want, rtol=1e-10)


# -- batches ---------------------------------------------------------------------------------------


def test_batches_are_those_of_jax_numpy():
    a, tall = normal(2, 1, 3, 3), normal(2, 4, 3)
    h = a + jnp.swapaxes(a, -1, -2)
    np.testing.assert_allclose(tj.eigvalsh(h), jnp.linalg.eigvalsh(h), atol=1e-12)
    np.testing.assert_allclose(tj.eigh(h)[1], jnp.linalg.eigh(h)[1], atol=1e-12)
    for full in (True, False):
        for got, want in zip(tj.svd(tall, full), jnp.linalg.svd(tall, full), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-12)
    np.testing.assert_allclose(tj.qr(tall, "r"), jnp.linalg.qr(tall, "r"), atol=1e-12)
    np.testing.assert_allclose(tj.pinv(tall), jnp.linalg.pinv(tall), atol=1e-12)
    assert tj.matrix_rank(tall).shape == (2,)
    assert tj.condition_number(a).shape == (2, 1)
    for ord in (None, "nuc", 1):
        got = tj.norm(tall, ord, axis=(-2, -1), keepdims=True)
        want = np.linalg.norm(tall, ord, axis=(-2, -1), keepdims=True)
        np.testing.assert_allclose(got, want, atol=1e-12)
    b = normal(5, 3, 2)
    f, x = tj.factorize(a), tj.factorize(a).solve(b)
    np.testing.assert_allclose(x, jnp.linalg.solve(a, b), atol=1e-11)
    np.testing.assert_allclose(f.solve(b[0, :, 0]), jnp.linalg.solve(a, b[:1])[..., 0], atol=1e-11)
    np.testing.assert_allclose(f.logdet(), jnp.linalg.slogdet(a)[1], atol=1e-12)
    np.testing.assert_allclose(f.slogdet().sign, jnp.linalg.slogdet(a)[0], atol=1e-12)
    x = tj.solve_triangular(h[:, 0], b[:2], lower=True)
    np.testing.assert_allclose(jnp.tril(h[:, 0]) @ x, b[:2], atol=1e-11)


@pytest.mark.parametrize(
    "shapes", [((2, 4, 3), (4,)), ((4, 3), (2, 4, 1)), ((2, 1, 4, 3), (3, 4, 2))]
)
def test_batched_least_squares(shapes):
    """Right-hand sides and matrices broadcast, and their cotangents are summed again."""
    a, b = map(lambda s: normal(*s), shapes)
    loss = lambda solve: lambda a, b: jnp.sum(jnp.sin(solve(a, b)))
    by_hand = lambda a, b: (
        jnp.linalg.solve(jnp.swapaxes(a, -1, -2) @ a, jnp.swapaxes(a, -1, -2)) @ b
    )
    got = jax.value_and_grad(loss(tj.lstsq), (0, 1))(a, b)
    want = jax.value_and_grad(loss(by_hand), (0, 1))(a, b)
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, atol=1e-9), got, want)


def test_vmap_and_scan_over_structured_arrays():
    batch = normal(3, 4, 4)
    f = lambda x: tj.factorize(tj.Symmetric(x, "mean")).logdet()
    want = jnp.stack([f(x) for x in batch])
    np.testing.assert_allclose(jax.vmap(f)(batch), want, atol=1e-12)
    stacked = jax.vmap(lambda x: tj.factorize(tj.Symmetric(x, "mean")))(batch)
    step = lambda x, f: (f.solve(x), f.logdet())
    end, logs = jax.lax.scan(step, jnp.ones(4), stacked)
    np.testing.assert_allclose(logs, want, atol=1e-12)
    assert np.isfinite(end).all()


# -- units -----------------------------------------------------------------------------------------


def test_units():
    m, s = tj.unit("m"), tj.unit("s")
    a, b = definite(3) * m, normal(3) * s
    structured = tj.Kronecker(tj.Symmetric(definite(2)) * m, tj.Diagonal(jnp.ones(2)))
    for x in (a, structured):
        w, v = tj.eigh(x)
        assert (w.unit, getattr(v, "unit", None)) in ((m, None), (m, tj.unit("")))
        assert tj.eigvalsh(x).unit == m
        assert tj.svd(x).S.unit == m
        assert tj.svd(x, compute_uv=False).unit == m
        assert tj.qr(x).R.unit == m
        assert tj.qr(x, "r").unit == m
        assert tj.lu(x).U.unit == m
        assert tj.pinv(x).unit == m**-1
        assert tj.norm(x, "nuc").unit == m
        assert getattr(tj.condition_number(x), "unit", tj.unit("")) == tj.unit("")
        assert tj.matrix_rank(x).dtype.kind == "i"
    assert tj.lstsq(a, b).unit == s / m
    assert tj.solve_triangular(a, b).unit == s / m
    assert tj.norm(b, 0).dtype.kind == "f"


def test_a_factorization_remembers_the_unit():
    m, s = tj.unit("m"), tj.unit("s")
    value, b = definite(3), normal(3)
    f = tj.factorize(tj.Symmetric(value, definite=True) * m)
    x = f.solve(b * s)
    assert x.unit == s / m
    np.testing.assert_allclose(x.value, np.linalg.solve(value, b), atol=1e-12)
    assert f.solve(b).unit == m**-1
    assert f.inv_quad(b * s).unit == s**2 / m
    with pytest.raises(tj.UnitError, match="logarithm"):
        f.logdet()
    percent = tj.factorize(jnp.eye(2) * 50 * tj.unit("percent"))
    np.testing.assert_allclose(percent.logdet(), 2 * math.log(0.5))
    gradient = tj.grad(lambda a: tj.factorize(a).inv_quad(b * s))(value * m)
    assert gradient.unit == s**2 / m**2
    quad, log = tj.inv_quad_logdet(value, b * s)
    assert quad.unit == s**2
    np.testing.assert_allclose(log, np.linalg.slogdet(value)[1])


# -- front doors -----------------------------------------------------------------------------------


def test_numpy_and_the_namespace_find_the_operations():
    a = tj.Diagonal(jnp.array([3.0, 4.0]))
    with tj.densify("error"):
        for module in (np.linalg, tnl):
            assert isinstance(module.pinv(a), tj.Diagonal)
            assert isinstance(module.qr(a)[1], tj.Diagonal)
            assert module.norm(a, "nuc") == 7
            assert module.cond(a) == 4 / 3
            assert module.matrix_rank(a) == 2
            assert isinstance(module.eigh(a)[1], tj.Permutation)
            np.testing.assert_allclose(module.eigvalsh(a), [3.0, 4.0])


SORTED = {
    "Diagonal": tj.Diagonal(jnp.array([1.0, -3.0, 2.0])),
    "Identity": tj.Identity(3, jnp.float64),
    "Kronecker": tj.Kronecker(
        tj.Symmetric(jnp.array([[2.0, 1.0], [1.0, 2.0]])), tj.Diagonal([5.0, -1.0])
    ),
    "BlockDiagonal": tj.BlockDiagonal(
        tj.Symmetric(jnp.array([[0.5, 1.0], [1.0, 0.0]])), tj.Diagonal([3.0, -4.0])
    ),
    "batch": tj.Diagonal(jnp.array([[1.0, -3.0, 2.0], [5.0, 4.0, 0.5]])),
    "rectangles": tj.BlockDiagonal(jnp.ones((1, 3)), jnp.array([[2.0], [0.0]])),
    "LowRank": tj.LowRank(jnp.arange(6.0).reshape(3, 2), jnp.ones((4, 2))),
}


@pytest.mark.parametrize("door", [np.linalg, tnl], ids=["numpy", "tanjax.numpy"])
@pytest.mark.parametrize("name", SORTED)
def test_numpy_promises_an_order(door, name):
    """`s[0]` is the largest singular value to who calls NumPy's function."""
    a = SORTED[name]
    want = dense(a)
    values = np.linalg.svd(want, compute_uv=False)
    with tj.densify("error"):
        assert_close(door.svd(a, compute_uv=False), values)
    with tj.densify("allow"):
        u, s, vh = map(dense, door.svd(a, full_matrices=name != "LowRank"))
        assert_close(s, values[..., : s.shape[-1]])
        k = s.shape[-1]
        assert_close((u[..., :, :k] * s[..., None, :]) @ vh[..., :k, :], want, 1e-12)
        if name in ("rectangles", "LowRank"):
            return
        w, v = map(dense, door.eigh(a))
    assert_close(w, np.linalg.eigvalsh(want))
    assert_close(v * w[..., None, :] @ np.swapaxes(v, -1, -2), want, 1e-12)


@pytest.mark.parametrize("door", [np.linalg, tnl], ids=["numpy", "tanjax.numpy"])
def test_numpy_promises_one_rank(door):
    """What is zero beside the whole matrix is not what is zero within its block or factor."""
    regular = tj.Diagonal(jnp.array([1.0, 0.5]))
    small = tj.Diagonal(jnp.array([1.0, 1e-9]))
    for a in (tj.BlockDiagonal(regular, 1e-20 * regular), tj.Kronecker(small, small)):
        with tj.densify("allow"):
            found = dense(door.pinv(a))
        assert_close(found, np.linalg.pinv(dense(a)), 1e-12)
        assert float(jnp.max(dense(tj.pinv(a)))) > 1e17
    with tj.densify("error"):
        for a in (regular, tj.LowRank(jnp.ones((3, 1)), jnp.ones((3, 1))), 2.0 * regular):
            assert tj.is_structured(door.pinv(a))


# -- bad input -------------------------------------------------------------------------------------

RECTANGLE = np.ones((2, 3))
BAD = {
    "eigh, Triangular": (lambda: tj.eigh(tj.Triangular(np.eye(2))), "eigh: .*not Hermitian"),
    "eigvalsh, LowRank": (
        lambda: tj.eigvalsh(tj.LowRank(np.ones((2, 1)), np.ones((2, 1)))),
        "eigvalsh: .*not Hermitian",
    ),
    "eigh, Kronecker of dense": (
        lambda: tj.eigh(tj.Kronecker(np.eye(2), np.eye(2))),
        "(?s)not Hermitian.*tj.Symmetric",
    ),
    "eigh, Tridiagonal": (
        lambda: tj.eigh(tj.Tridiagonal(np.ones(1), np.ones(2), np.ones(1))),
        "(?s)not Hermitian.*tj.Symmetric",
    ),
    "eigvalsh, Toeplitz": (lambda: tj.eigvalsh(tj.Toeplitz(np.ones(3))), "not Hermitian"),
    "eigh, Permutation": (lambda: tj.eigh(tj.Permutation(np.array([1, 0]))), "not Hermitian"),
    "eigh, complex Diagonal": (lambda: tj.eigh(tj.Diagonal(1j * np.ones(2))), "not Hermitian"),
    "eigh, sum with a Triangular": (
        lambda: tj.eigh(tj.Sum(tj.Symmetric(np.eye(2)), tj.Triangular(np.ones((2, 2))))),
        "not Hermitian",
    ),
    "eigh, complex multiple": (
        lambda: tj.eigh(tj.Scaled(tj.Symmetric(np.eye(2)), 1j)),
        "not Hermitian",
    ),
    "eigh, complex Symmetric": (lambda: tj.eigh(tj.Symmetric(1j * np.eye(2))), "not Hermitian"),
    "eigh, not square": (lambda: tj.eigh(tj.Fill(1.0, (2, 3))), "eigh: needs a square"),
    "qr, mode": (lambda: tj.qr(np.eye(2), "raw"), "qr: `mode` is one of 'reduced'"),
    "qr, vector": (lambda: tj.qr(tj.Fill(1.0, (2,))), "qr: needs a matrix"),
    "lu, parts": (
        lambda: tj.lu(tj.BlockDiagonal(RECTANGLE, RECTANGLE.T)),
        "lu: .*must be square",
    ),
    "lstsq": (
        lambda: tj.lstsq(tj.Diagonal(np.ones(3)), np.ones(2)),
        r"lstsq: the right-hand side \[2\] does not fit a matrix \[3, 3\]",
    ),
    "norm, order": (lambda: tj.norm(np.eye(2), 3), "norm: matrices have no norm of order 3"),
    "norm, structured order": (lambda: tj.norm(tj.Diagonal(np.ones(2)), "max"), "no norm of order"),
    "norm, vector order": (lambda: tj.norm(np.ones(2), "fro"), "vectors have no norm"),
    "norm, batch": (lambda: tj.norm(np.ones((2, 2, 2)), 1), "axis=-1"),
    "factorize, dense": (lambda: tj.factorize(RECTANGLE), r"factorize: .*\(2, 3\)"),
    "factorize, factors": (
        lambda: tj.factorize(tj.Kronecker(RECTANGLE, RECTANGLE.T)),
        "factorize .*Kronecker factor.*square",
    ),
    "factorization, right-hand side": (
        lambda: tj.factorize(np.eye(2)).solve(np.ones(3)),
        r"right-hand side float64\[3\] does not fit a matrix \[2, 2\]",
    ),
    "solve_triangular, type": (
        lambda: tj.solve_triangular(tj.Symmetric(np.eye(2)), np.ones(2)),
        "not triangular by its type",
    ),
    "solve_triangular, side": (
        lambda: tj.solve_triangular(tj.Triangular(np.eye(2)), np.ones(2), lower=False),
        "the matrix is lower triangular",
    ),
    "solve_triangular, trans": (
        lambda: tj.solve_triangular(np.eye(2), np.ones(2), trans=3),
        "`trans` is 0, 1, 2",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    function, pattern = BAD[name]
    with pytest.raises(tj.ShapeError, match=pattern):
        function()


def test_singular_and_indefinite_matrices_give_what_solve_gives():
    singular = jnp.array([[1.0, 1.0], [1.0, 1.0]])
    assert tj.factorize(singular).logdet() == -jnp.inf
    assert tj.factorize(singular).slogdet().sign == 0
    assert not np.isfinite(tj.factorize(singular).solve(jnp.array([1.0, 2.0]))).all()
    broken = tj.Symmetric(jnp.array([[1.0, 2.0], [2.0, 1.0]]), definite=True)
    assert np.isnan(tj.factorize(broken).logdet())
    assert np.isnan(tj.factorize(broken).solve(jnp.ones(2))).all()
    assert tj.condition_number(tj.Diagonal(jnp.array([1.0, 0.0]))) == jnp.inf


@pytest.mark.parametrize("shape", [(0, 0), (0, 2), (2, 0)], ids=str)
def test_empty_matrices(shape):
    a = jnp.zeros(shape)
    u, s, vh = tj.svd(a, full_matrices=False)
    assert (u.shape, s.shape, vh.shape) == ((shape[0], 0), (0,), (0, shape[1]))
    assert tj.pinv(a).shape == shape[::-1]
    assert tj.norm(a, "fro") == 0
    assert tj.matrix_rank(a) == 0
    if shape == (0, 0):
        assert tj.eigh(a).eigenvectors.shape == (0, 0)
        assert tj.factorize(a).logdet() == 0
        assert tj.eigvalsh(tj.Diagonal(jnp.zeros(0))).shape == (0,)


def test_integers_and_lists_of_numbers():
    a = np.array([[2, 1], [1, 3]])
    np.testing.assert_allclose(tj.eigvalsh(a), np.linalg.eigvalsh(a))
    np.testing.assert_allclose(tj.factorize(a).solve(np.ones(2)), np.linalg.solve(a, np.ones(2)))


@pytest.mark.parametrize("ord", [None, 1, 2, 3, math.inf])
@pytest.mark.parametrize("dtype", [float, complex])
def test_norms_of_zero_have_a_subgradient(ord, dtype):
    gradient = jax.grad(lambda x: tj.norm(x, ord))(jnp.zeros(3, dtype))
    assert np.isfinite(gradient).all()
    if ord in (None, 2):
        np.testing.assert_array_equal(gradient, 0)
    for kind in (tj.Diagonal, lambda d: tj.Symmetric(jnp.diag(d))):
        structured = jax.grad(lambda d, kind=kind: tj.norm(kind(d), "fro"))(jnp.zeros(3))
        np.testing.assert_array_equal(structured, 0)
