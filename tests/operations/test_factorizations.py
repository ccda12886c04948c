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
    return np.asarray(tj.destructure(x) if tj.rules.is_structured(x) else x)


def complex_normal(*shape):
    return jnp.asarray(R.normal(size=shape) + 1j * R.normal(size=shape))


SQUARE = {
    "dense": definite(4),
    "Diagonal": tj.Diagonal(jnp.array([3.0, -1.0, 2.0])),
    "Identity": tj.Identity(3, jnp.float64),
    "Symmetric": tj.Symmetric(normal(3, 3)),
    "Hermitian": tj.Hermitian(complex_normal(3, 3)),
    "Scaled": tj.Scaled(tj.Symmetric(normal(3, 3)), -2.0),
    "Kronecker": tj.Kronecker(tj.Symmetric(normal(2, 2)), tj.Diagonal(normal(3))),
    "BlockDiagonal": tj.BlockDiagonal(definite(2), tj.Diagonal(normal(2))),
}
TRIANGLES = {
    "lower": tj.Triangular(definite(3)),
    "upper": tj.Triangular(definite(3), lower=False),
}
ANY = {
    **SQUARE,
    **TRIANGLES,
    "wide": normal(2, 4),
    "tall Kronecker": tj.Kronecker(normal(3, 2), normal(2, 1)),
    "tall BlockDiagonal": tj.BlockDiagonal(normal(3, 2), normal(2, 1)),
    "LowRank": tj.LowRank(normal(5, 2), normal(4, 2)),
    "complex LowRank": tj.LowRank(complex_normal(3, 1), complex_normal(4, 1)),
}


def adjoint(x):
    return np.conj(np.swapaxes(dense(x), -1, -2))


def assert_near(got, want, tolerance=1e-12):
    np.testing.assert_allclose(dense(got), dense(want), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ANY)
def test_factorizations_keep_the_structure(kind):
    """And the orders of a norm; the kit has the other values."""
    a, b = ANY[kind], normal(ANY[kind].shape[0])
    orders = [None, "fro", "nuc", 2, -2]
    if "wide" not in kind and "LowRank" not in kind:
        orders += [1, math.inf] + ([-1, -math.inf] if kind != "tall BlockDiagonal" else [])
    with tj.densify("error"):
        for ord in orders:
            assert_near(tj.norm(a, ord), np.linalg.norm(dense(a), ord))
        assert tj.linalg.matrix_rank(a) == np.linalg.matrix_rank(dense(a))
        assert_near(tj.linalg.pinv(a), np.linalg.pinv(dense(a)))
        assert_near(tj.linalg.lstsq(a, b.astype(a.dtype)), np.linalg.lstsq(dense(a), b)[0])
        parts = tj.linalg.svd(a, full_matrices=False)
        want = np.linalg.svd(dense(a), compute_uv=False)
        for values in (parts.S, tj.linalg.svd(a, compute_uv=False)):
            assert_near(np.sort(values)[::-1], want[: values.size])
        if kind in SQUARE:
            assert_near(np.sort(tj.linalg.eigh(a).eigenvalues), tj.linalg.eigvalsh(a))
        if kind in SQUARE | TRIANGLES:
            p, lower, u = tj.linalg.lu(a)
            assert_near(dense(p) @ dense(lower) @ dense(u), a)
            for p in (None, 1, "fro", -2):
                assert_near(tj.linalg.condition_number(a, p), np.linalg.cond(dense(a), p), 1e-10)


@pytest.mark.parametrize("kind", ANY)
def test_full_factors_make_the_matrix(kind):
    """The kit has no derivative that could judge them."""
    a = ANY[kind]
    with tj.densify("allow"):
        u, s, vh = map(dense, tj.linalg.svd(a))
        q, r = map(dense, tj.linalg.qr(a, "complete"))
    for factor in (u, vh, q):
        assert factor.shape[0] == factor.shape[1]
        assert_near(adjoint(factor) @ factor, np.eye(factor.shape[0]))
    assert_near((u[:, : s.size] * s) @ vh[: s.size], a)
    assert_near(np.triu(r), r)
    assert_near(q @ r, a)


@pytest.mark.slow
def test_batches_are_those_of_jax_numpy():
    a, tall = normal(2, 1, 3, 3), normal(2, 4, 3)
    h = a + jnp.swapaxes(a, -1, -2)
    assert_near(tj.linalg.eigvalsh(h), jnp.linalg.eigvalsh(h))
    for got, want in zip(tj.linalg.svd(tall), jnp.linalg.svd(tall), strict=True):
        assert_near(got, want)
    assert tj.linalg.matrix_rank(tall).shape == (2,)
    assert tj.linalg.condition_number(a).shape == (2, 1)
    for ord in (None, "nuc", 1):
        got = tj.norm(tall, ord, axis=(-2, -1), keepdims=True)
        assert_near(got, np.linalg.norm(tall, ord, axis=(-2, -1), keepdims=True))
        got = tj.norm(tall, ord, axis=(0, 2), keepdims=True)
        assert_near(got, np.linalg.norm(tall, ord, axis=(0, 2), keepdims=True))
    b = normal(5, 3, 2)
    f = tj.factorize(a)
    assert_near(f.solve(b), jnp.linalg.solve(a, b), 1e-11)
    assert_near(f.solve(b[0, :, 0]), jnp.linalg.solve(a, b[:1])[..., 0], 1e-11)
    sign, logarithm = jnp.linalg.slogdet(a)
    assert_near(f.logdet(), logarithm)
    assert_near(f.slogdet().sign, sign)


# -- units -----------------------------------------------------------------------------------------


def test_factors_of_a_quantity_have_their_units():
    m, s = tj.unit("m"), tj.unit("s")
    a, b = definite(3) * m, normal(3) * s
    structured = tj.Kronecker(tj.Symmetric(definite(2)) * m, tj.Diagonal(jnp.ones(2)))
    for x in (a, structured):
        w, v = tj.linalg.eigh(x)
        assert (w.unit, getattr(v, "unit", None)) in ((m, None), (m, tj.unit("")))
        assert tj.linalg.eigvalsh(x).unit == m
        assert tj.linalg.svd(x).S.unit == m
        assert tj.linalg.svd(x, compute_uv=False).unit == m
        assert tj.linalg.qr(x).R.unit == m
        assert tj.linalg.qr(x, "r").unit == m
        assert tj.linalg.lu(x).U.unit == m
        assert tj.linalg.pinv(x).unit == m**-1
        assert tj.norm(x, "nuc").unit == m
        assert getattr(tj.linalg.condition_number(x), "unit", tj.unit("")) == tj.unit("")
        assert tj.linalg.matrix_rank(x).dtype.kind == "i"
    assert tj.linalg.lstsq(a, b).unit == s / m
    assert tj.linalg.solve_triangular(a, b).unit == s / m
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
    quad, log = tj.linalg.inv_quad_logdet(value, b * s)
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


UNSORTED = {
    **ANY,
    "batch": tj.Diagonal(jnp.array([[1.0, -3.0, 2.0], [5.0, 4.0, 0.5]])),
    "zero": tj.BlockDiagonal(jnp.ones((1, 3)), jnp.array([[2.0], [0.0]])),
}
HERMITIAN = ["batch", "Diagonal", "Identity", "Hermitian", "Kronecker", "BlockDiagonal"]


@pytest.mark.parametrize("door", [np.linalg, tnl], ids=["numpy", "tanjax.numpy"])
@pytest.mark.parametrize("name", ["LowRank", "zero", *HERMITIAN])
def test_numpy_promises_an_order(door, name):
    """`s[0]` is the largest singular value to who calls NumPy's function."""
    a = UNSORTED[name]
    want = dense(a)
    values = np.linalg.svd(want, compute_uv=False)
    with tj.densify("error"):
        assert_close(door.svd(a, compute_uv=False), values)
    with tj.densify("allow"):
        u, s, vh = map(dense, door.svd(a, full_matrices=name != "LowRank"))
        assert_close(s, values[..., : s.shape[-1]])
        k = s.shape[-1]
        assert_near((u[..., :, :k] * s[..., None, :]) @ vh[..., :k, :], want)
        if name not in HERMITIAN:
            return
        w, v = map(dense, door.eigh(a))
    assert_close(w, np.linalg.eigvalsh(want))
    assert_near(v * w[..., None, :] @ adjoint(v), want)


@pytest.mark.parametrize("door", [np.linalg, tnl], ids=["numpy", "tanjax.numpy"])
def test_numpy_promises_one_rank(door):
    """What is zero beside the whole matrix is not what is zero within its block or factor."""
    regular = tj.Diagonal(jnp.array([1.0, 0.5]))
    small = tj.Diagonal(jnp.array([1.0, 1e-9]))
    for a in (tj.BlockDiagonal(regular, 1e-20 * regular), tj.Kronecker(small, small)):
        with tj.densify("allow"):
            found = dense(door.pinv(a))
        assert_close(found, np.linalg.pinv(dense(a)), 1e-12)
        assert float(jnp.max(dense(tj.linalg.pinv(a)))) > 1e17
    with tj.densify("error"):
        for a in (regular, tj.LowRank(jnp.ones((3, 1)), jnp.ones((3, 1))), 2.0 * regular):
            assert tj.rules.is_structured(door.pinv(a))


# -- bad input -------------------------------------------------------------------------------------

ONE, TWO, THREE, RECTANGLE = np.eye(1), np.eye(2), np.ones(3), np.ones((2, 3))
NOT_HERMITIAN = [
    tj.Triangular(TWO),
    tj.LowRank(TWO[:, :1], TWO[:, :1]),
    tj.Kronecker(TWO, TWO),
    tj.Tridiagonal(np.ones(1), np.ones(2), np.ones(1)),
    tj.Toeplitz(THREE),
    tj.Permutation(np.array([1, 0])),
    tj.Diagonal(1j * np.ones(2)),
    tj.tangents.Sum(tj.Symmetric(TWO), tj.Triangular(TWO)),
    tj.Scaled(tj.Symmetric(TWO), 1j),
    tj.Symmetric(1j * TWO),
]


@pytest.mark.parametrize("a", NOT_HERMITIAN, ids=lambda a: type(a).__name__)
def test_types_that_are_not_hermitian_have_no_eigh(a):
    for op in (tj.linalg.eigh, tj.linalg.eigvalsh):
        with pytest.raises(tj.ShapeError, match=rf"{op.name}: .*not Hermitian"):
            op(a)
    if type(a) in (tj.Kronecker, tj.Tridiagonal):
        with pytest.raises(tj.ShapeError, match=r"(?s)not Hermitian.*tj\.Symmetric"):
            tj.linalg.eigh(a)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: tj.linalg.eigh(tj.Fill(1.0, (2, 3))), "eigh: needs a square"),
        (lambda: tj.linalg.qr(TWO, "raw"), "qr: `mode` is one of 'reduced'"),
        (lambda: tj.linalg.qr(tj.Fill(1.0, (2,))), "qr: needs a matrix"),
        (lambda: tj.linalg.lu(tj.BlockDiagonal(RECTANGLE, RECTANGLE.T)), "lu: .*must be square"),
        (
            lambda: tj.linalg.lstsq(tj.Diagonal(THREE), np.ones(2)),
            r"lstsq: the right-hand side \[2\] does not fit a matrix \[3, 3\]",
        ),
        (lambda: tj.norm(TWO, 3), "norm: matrices have no norm of order 3"),
        (lambda: tj.norm(tj.Diagonal(THREE), "max"), "no norm of order"),
        (lambda: tj.norm(THREE, "fro"), "vectors have no norm"),
        (lambda: tj.norm(np.ones((2, 2, 2)), 1), "axis=-1"),
        (lambda: tj.factorize(RECTANGLE), r"factorize: .*\[2, 3\]"),
        (
            lambda: tj.factorize(tj.Kronecker(RECTANGLE, RECTANGLE.T)),
            "factorize .*Kronecker factor.*square",
        ),
        (
            lambda: tj.factorize(TWO).solve(THREE),
            r"right-hand side float64\[3\] does not fit a matrix \[2, 2\]",
        ),
        (lambda: tj.linalg.solve_triangular(tj.Symmetric(ONE), ONE), "not triangular by its type"),
        (
            lambda: tj.linalg.solve_triangular(tj.Triangular(TWO), TWO, lower=False),
            "the matrix is lower triangular",
        ),
        (lambda: tj.linalg.solve_triangular(TWO, TWO, trans=3), "`trans` is 0, 1, 2"),
        (lambda: tj.linalg.solve_triangular(tj.Triangular(TWO), TWO, trans="X"), "trans"),
        (lambda: tj.linalg.solve_triangular(tj.Diagonal(THREE), THREE, trans=None), "trans"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(tj.ShapeError, match=says):
        call()


@pytest.mark.parametrize("a", [jnp.eye(2), tj.Diagonal(jnp.ones(2))], ids=["dense", "diagonal"])
def test_tolerances_are_python_numbers(a):
    for call in (
        lambda rtol: tj.linalg.pinv(a, rtol),
        lambda rtol: tj.linalg.matrix_rank(a, rtol=rtol),
        lambda rtol: tj.linalg.lstsq(a, jnp.ones(2), rcond=rtol),
    ):
        for wrong in ("x", jnp.ones(2), jnp.asarray(0.1)):
            with pytest.raises(TypeError, match=r"is static, a real number.*\n.*float"):
                call(wrong)
        with pytest.raises(TypeError, match="is static, a real number"):
            jax.jit(call)(0.1)
        call(np.float64(0.1))


def test_singular_and_indefinite_matrices_give_what_solve_gives():
    singular = jnp.array([[1.0, 1.0], [1.0, 1.0]])
    assert tj.factorize(singular).logdet() == -jnp.inf
    assert tj.factorize(singular).slogdet().sign == 0
    broken = tj.Symmetric(jnp.array([[1.0, 2.0], [2.0, 1.0]]), definite=True)
    assert all(map(jnp.isnan, tj.factorize(broken).slogdet()))
    assert not np.isfinite(tj.factorize(singular).solve(jnp.array([1.0, 2.0]))).all()
    broken = tj.Symmetric(jnp.array([[1.0, 2.0], [2.0, 1.0]]), definite=True)
    assert np.isnan(tj.factorize(broken).logdet())
    assert np.isnan(tj.factorize(broken).solve(jnp.ones(2))).all()
    assert tj.linalg.condition_number(tj.Diagonal(jnp.array([1.0, 0.0]))) == jnp.inf


@pytest.mark.parametrize("shape", [(0, 0), (0, 2), (2, 0)], ids=str)
def test_empty_matrices(shape):
    a = jnp.zeros(shape)
    u, s, vh = tj.linalg.svd(a, full_matrices=False)
    assert (u.shape, s.shape, vh.shape) == ((shape[0], 0), (0,), (0, shape[1]))
    assert tj.linalg.pinv(a).shape == shape[::-1]
    assert tj.norm(a, "fro") == 0
    assert tj.linalg.matrix_rank(a) == 0
    if shape == (0, 0):
        assert tj.linalg.eigh(a).eigenvectors.shape == (0, 0)
        assert tj.factorize(a).logdet() == 0
        assert tj.linalg.eigvalsh(tj.Diagonal(jnp.zeros(0))).shape == (0,)


def test_integers_and_lists_of_numbers():
    a = np.array([[2, 1], [1, 3]])
    np.testing.assert_allclose(tj.linalg.eigvalsh(a), np.linalg.eigvalsh(a))
    np.testing.assert_allclose(tj.factorize(a).solve(np.ones(2)), np.linalg.solve(a, np.ones(2)))


@pytest.mark.parametrize("ord", [None, 1, 2, 3, math.inf])
@pytest.mark.parametrize("dtype", [float, complex])
def test_norms_of_zero_have_a_subgradient(ord, dtype):
    gradient = jax.grad(lambda x: tj.norm(x, ord))(jnp.zeros(3, dtype))
    assert np.isfinite(gradient).all()
    if ord in (None, 2):
        np.testing.assert_array_equal(gradient, 0)
    np.testing.assert_array_equal(jax.grad(tj.norm)(jnp.zeros((2, 2), dtype)), 0)
    for kind in (tj.Diagonal, lambda d: tj.Symmetric(jnp.diag(d))):
        structured = jax.grad(lambda d, kind=kind: tj.norm(kind(d), "fro"))(jnp.zeros(3))
        np.testing.assert_array_equal(structured, 0)


@pytest.mark.parametrize("axis", [5, (0, 0), (0, -2), (0, 2), "a"])
def test_norm_along_axes_that_do_not_exist(axis):
    for a in (jnp.ones((3, 3)), tj.Diagonal(jnp.ones(3))):
        with tj.densify("allow"), pytest.raises(tj.ShapeError, match=r"norm: axis .* does"):
            tj.norm(a, axis=axis)


@pytest.mark.parametrize("kind", ["rank 2", "equal singular values"])
def test_pinv_of_degenerate_matrices_has_both_derivatives(kind):
    """Within the rank: across it the inverse is not continuous."""
    q = jnp.linalg.qr(normal(4, 4))[0]
    a = normal(4, 2) @ normal(2, 4) if kind == "rank 2" else 2 * q
    a_dot = a @ normal(4, 4)

    def measured(inverse):
        loss = lambda x: jnp.sum(jnp.sin(jnp.abs(inverse(x, rtol=1e-9)) ** 2))
        slope = lambda x: jax.jvp(loss, (x,), (a_dot,))[1]
        return loss(a), slope(a), jax.grad(loss)(a), jax.grad(slope)(a)

    for ours, theirs in zip(*map(measured, (tj.linalg.pinv, jnp.linalg.pinv)), strict=True):
        assert_near(ours, theirs, 1e-9)


@pytest.mark.parametrize("dtype", ["complex64", "float32"])
def test_least_singular_value_of_few_columns_is_a_real_zero(dtype):
    a = tj.LowRank(jnp.ones((4, 1), dtype), jnp.ones((3, 1), dtype))
    least = tj.norm(a, -2)
    assert (float(least), least.dtype) == (0.0, jnp.float32)


def test_singular_vectors_of_a_diagonal_with_a_zero_are_unitary():
    for number in (-2.0, 1.0 - 2.0j):
        u, s, vh = tj.linalg.svd(tj.Diagonal(jnp.array([number, 0.0])))
        np.testing.assert_array_equal(s, [abs(number), 0.0])
        assert_near(adjoint(dense(u)) @ dense(u), np.eye(2))
        assert_near(np.asarray(dense(u)) @ np.diag(s) @ np.asarray(dense(vh)), np.diag([number, 0]))
