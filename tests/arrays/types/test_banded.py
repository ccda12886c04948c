"""Tridiagonal and banded matrices: what is stored, what is computed, and when nothing can be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

RNG = np.random.default_rng(0)
JUNK = RNG.normal(size=(4, 5))  # with numbers in the corners
FAMILY = {
    "Tridiagonal": lambda: tj.Tridiagonal([1.0, 2.0], [0.0, 0.5, 3.0], [-1.5, 0.7]),
    "SymTridiagonal": lambda: tj.SymTridiagonal([0.0, 0.5, 3.0], [-1.5, 0.7]),
    "Banded": lambda: tj.Banded(JUNK[:, :3], 1, 2),
}
each = pytest.mark.parametrize("kind", FAMILY)


@pytest.fixture(autouse=True)
def nothing_becomes_dense():
    with tj.densify("error"):
        yield


def scipy_dense(bands, lower, upper):
    """The definition of `scipy.linalg.solve_banded`, entry by entry."""
    n = bands.shape[1]
    dense = np.zeros((n, n))
    for i, j in np.ndindex(n, n):
        if -upper <= i - j <= lower:
            dense[i, j] = bands[upper + i - j, j]
    return dense


@pytest.mark.parametrize(("lower", "upper", "n"), [(1, 2, 5), (3, 0, 2), (0, 3, 1), (2, 1, 0)])
def test_bands_are_those_of_scipy_and_corners_do_not_count(lower, upper, n):
    a = tj.Banded(JUNK[:, :n], lower, upper)
    dense = scipy_dense(JUNK[:, :n], lower, upper)
    np.testing.assert_array_equal(a.to_dense(), dense)
    np.testing.assert_array_equal(a.mT.to_dense(), dense.T)
    assert float(a.total()) == pytest.approx(dense.sum())
    assert float(jnp.sum(a.bands)) == pytest.approx(dense.sum())  # no junk is stored


def test_three_diagonals_are_where_they_belong():
    dense = [[4.0, 7.0, 0.0], [1.0, 5.0, 8.0], [0.0, 2.0, 6.0]]
    a = tj.Tridiagonal([1.0, 2.0], [4.0, 5.0, 6.0], [7.0, 8.0])
    np.testing.assert_array_equal(a.to_dense(), dense)
    symmetric = tj.SymTridiagonal([4.0, 5.0, 6.0], [7.0, 8.0])
    np.testing.assert_array_equal(symmetric.to_dense(), [[4, 7, 0], [7, 5, 8], [0, 8, 6]])
    assert symmetric.transposed() is symmetric


@pytest.mark.parametrize("n", [0, 1])
def test_the_smallest(n):
    """No entry beside the diagonal, and none at all."""
    none, diag, b = jnp.zeros(0), jnp.full(n, 2.0), jnp.full((n, 1), 3.0)
    small = tj.Tridiagonal(none, diag, none), tj.SymTridiagonal(diag, none)
    for a in (*small, tj.Banded(jnp.full((3, n), 2.0), 1, 1)):
        assert a.shape == (n, n)
        np.testing.assert_allclose(a @ b, 2 * b)
        np.testing.assert_allclose(tj.solve(a, b), b / 2)
        np.testing.assert_allclose(tj.logdet(a), n * np.log(2.0))
        np.testing.assert_allclose(tj.grad(tj.logdet)(a).diagonal(), np.full(n, 0.5))


def test_fields_take_one_dtype_and_one_unit():
    assert tj.SymTridiagonal(jnp.ones(2), jnp.ones(1)).dtype == jnp.float64
    with jax.numpy_dtype_promotion("standard"):
        a = tj.Tridiagonal(jnp.ones(1, int), jnp.ones(2, "float32"), jnp.ones(1, complex))
    assert {leaf.dtype for leaf in jax.tree.leaves(a)} == {jnp.dtype("complex128")}
    q = tj.SymTridiagonal(jnp.ones(2) * tj.units.metre, 100 * jnp.ones(1) * tj.unit("cm"))
    assert q.unit == tj.unit("m")
    np.testing.assert_allclose(q.value.to_dense(), np.ones((2, 2)))


def test_leading_axes_are_a_batch():
    """The facts and the queries of a type look at the last axes of its leaves."""
    for make in FAMILY.values():
        a = make()
        batch = jax.tree.map(lambda v: jnp.stack([v, 2 * v]), a)
        for got, want in ((batch, a), (batch.transposed(), a.transposed())):
            assert got.shape == (2, 3, 3)
            dense = want.to_dense()
            np.testing.assert_array_equal(got.to_dense(), jnp.stack([dense, 2 * dense]))
        assert batch.diagonal().shape == (2, 3)
        assert batch.off_diagonal(-1).shape == (2, 2)


MISTAKES = {
    "length": (
        lambda: tj.Tridiagonal([1.0], [1.0], [2.0]),
        "`lower` must have one entry less.*, 0",
    ),
    "off": (lambda: tj.SymTridiagonal([1.0, 2.0], [3.0, 4.0]), "SymTridiagonal: `off` must.*, 1"),
    "rank": (lambda: tj.SymTridiagonal(1.0, [3.0]), "`diag` must have 1 dimension"),
    "rows": (lambda: tj.Banded(np.ones((3, 4)), 1, 2), r"Banded: 1 .* 2 above .*\(4, n\)"),
    "negative": (lambda: tj.Banded(np.ones((2, 4)), -1, 2), "Banded: -1 diagonals"),
    "system": (lambda: tj.solve(FAMILY["Banded"](), np.ones(4)), "does not fit a matrix"),
    "product": (lambda: FAMILY["Tridiagonal"]() @ np.ones(2), "cannot multiply"),
    "sum": (lambda: FAMILY["Banded"]() + tj.SymTridiagonal([1.0], []), "differ"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake):
    make, match = MISTAKES[mistake]
    with pytest.raises(tj.ShapeError, match=f"(?s){match}"):
        make()


# -- the numbers -----------------------------------------------------------------------------------


def everything(a, b):
    """Values and gradients of all that an elimination serves."""
    loss = lambda a, b: jnp.sum(jnp.sin(tj.solve(a, b)))
    value, (a_bar, b_bar) = jax.value_and_grad(loss, (0, 1))(a, b)
    bars = (a_bar, jax.grad(tj.logdet)(a), jax.grad(tj.det)(a))  # isometric: natural as they are
    return value, b_bar, tj.slogdet(a), tj.det(a), *map(tj.destructure, bars)


@pytest.mark.parametrize("case", ["Tridiagonal", "wide", "low", "high", "n below the band"])
def test_elimination_agrees_with_dense(case):
    """Rows are exchanged in all of them: the first pivot is zero, or smaller than what is below."""
    n = 3 if case == "n below the band" else 7
    lower, upper = {"wide": (3, 2), "low": (2, 0), "high": (0, 2)}.get(case, (4, 1))
    a = tj.Banded(RNG.normal(size=(lower + upper + 1, n)), lower, upper)
    if case == "Tridiagonal":
        beside = RNG.normal(size=(2, n - 1))
        a = tj.Tridiagonal(beside[0], 0.1 * np.arange(n), beside[1])
    b = jnp.asarray(RNG.normal(size=(n, 2)))

    def dense(d, b):
        value, (d_bar, b_bar) = jax.value_and_grad(
            lambda d, b: jnp.sum(jnp.sin(jnp.linalg.solve(d, b))), (0, 1)
        )(d, b)
        inverse = jnp.linalg.inv(d).T
        pattern = tj.destructure(jax.tree.map(jnp.ones_like, a).canonical()) != 0
        det = jnp.linalg.det(d)
        keep = lambda m: jnp.where(pattern, m, 0)
        bars = (d_bar, inverse, det * inverse)
        return value, b_bar, jnp.linalg.slogdet(d), det, *map(keep, bars)

    got, want = jax.jit(everything)(a, b), jax.jit(dense)(a.to_dense(), b)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-8, atol=1e-9)


def test_singular_matrices():
    """Logarithm `-inf`, sign and determinant 0; the gradient of `det` is the adjugate."""
    a = tj.Tridiagonal([2.0, 0.0], [1.0, 2.0, 3.0], [1.0, 5.0])  # rows 0 and 1: 1 1, 2 2 5
    singular = tj.Tridiagonal([2.0, 1.0], [1.0, 2.0, 0.0], [1.0, 0.0])
    for x in (singular, tj.Banded(jnp.zeros((3, 2)), 1, 1)):
        out = tj.slogdet(x)
        assert (float(out.sign), float(out.logabsdet), float(tj.det(x))) == (0.0, -np.inf, 0.0)
        assert float(tj.logdet(x)) == -np.inf
        assert not np.isfinite(tj.solve(x, jnp.ones(x.shape[0]))).all()
    gradient = tj.grad(tj.det)(singular)
    adjugate = jax.jacobian(lambda d: jnp.linalg.det(d))(singular.to_dense())
    np.testing.assert_allclose(gradient.diag, jnp.diagonal(adjugate), atol=1e-12)
    np.testing.assert_allclose(gradient.upper, jnp.diagonal(adjugate, 1), atol=1e-12)
    np.testing.assert_allclose(gradient.lower, jnp.diagonal(adjugate, -1), atol=1e-12)
    np.testing.assert_allclose(tj.det(a), 0.0, atol=1e-14)


def test_logarithms_do_not_overflow():
    """The determinant of 50 entries of 1e200 does; its logarithm does not."""
    a = tj.SymTridiagonal(jnp.full(50, 1e200), jnp.full(49, 1e199))
    small = tj.SymTridiagonal(jnp.ones(50), jnp.full(49, 0.1))
    np.testing.assert_allclose(tj.logdet(a), tj.logdet(small) + 50 * 200 * np.log(10), rtol=1e-12)
    gradient, expected = (jax.grad(tj.logdet)(x) for x in (a, small))
    np.testing.assert_allclose(gradient.off * 1e200, expected.off, rtol=1e-10)


def test_integers_are_solved_in_floating_point():
    a = tj.SymTridiagonal([2, 2, 2], [-1, -1])
    with jax.numpy_dtype_promotion("standard"):
        np.testing.assert_allclose(tj.solve(a, jnp.array([1, 0, 1])), np.ones(3))
    np.testing.assert_allclose(tj.det(a), 4.0)
    assert (a @ jnp.array([1, 1, 1])).tolist() == [1, 0, 1]


@each
def test_batches_by_vmap(kind):
    a, b = FAMILY[kind](), jnp.arange(6.0).reshape(2, 3)
    batch = jax.tree.map(lambda v: jnp.stack([v, 1 + v]), a)
    batch = jax.vmap(lambda a: a.canonical())(batch)
    one = lambda a, b: (tj.solve(a, b), tj.slogdet(a), jax.grad(tj.logdet)(a).diagonal())
    for arguments, axes in (((batch, b), (0, 0)), ((a, b), (None, 0)), ((batch, b[0]), (0, None))):
        got = jax.vmap(one, axes)(*arguments)
        for i in range(2):
            single = [jax.tree.map(lambda v: v[i], x) if ax == 0 else x  # noqa: B023
                      for x, ax in zip(arguments, axes, strict=True)]  # fmt: skip
            want = one(*single)
            for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
                np.testing.assert_allclose(g[i], w, rtol=1e-9, atol=1e-12)


def test_types_that_sums_and_products_have():
    """The closed algebra of the support table, and its numbers."""
    t, s, b = (make() for make in FAMILY.values())
    d, one = tj.Diagonal([2.0, 3.0, 4.0]), tj.Identity(3)
    dense = tj.destructure
    for got, want, kind in (
        (t + d, dense(t) + dense(d), tj.Tridiagonal),
        (one - t, np.eye(3) - dense(t), tj.Tridiagonal),
        (s + 2.0 * one, dense(s) + 2 * np.eye(3), tj.SymTridiagonal),
        (d - s, dense(d) - dense(s), tj.SymTridiagonal),
        (s + s, 2 * dense(s), tj.SymTridiagonal),
        (t + s, dense(t) + dense(s), tj.Tridiagonal),
        (b + t, dense(b) + dense(t), tj.Banded),
        (b - b.mT, dense(b) - dense(b).T, tj.Banded),
        (d @ t, dense(d) @ dense(t), tj.Tridiagonal),
        (s @ d, dense(s) @ dense(d), tj.Tridiagonal),
        (t @ s, dense(t) @ dense(s), tj.Banded),
        (b @ b, dense(b) @ dense(b), tj.Banded),
        (t * b, dense(t) * dense(b), tj.Tridiagonal),
        (s * s, dense(s) ** 2, tj.SymTridiagonal),
        (tj.solve(d, t), np.diag([1 / 2, 1 / 3, 1 / 4]) @ dense(t), tj.Tridiagonal),
    ):
        assert type(got) is kind
        np.testing.assert_allclose(dense(got), want, atol=1e-14)


def test_quantities():
    """A stiffness matrix in N/m: displacement, unit of the determinant, gradient in 1/unit."""
    a = tj.SymTridiagonal(jnp.array([2.0, 2.0]), jnp.array([-1.0])) * tj.unit("N/m")
    x = tj.solve(a, jnp.array([1.0, 0.0]) * tj.units.newton)
    np.testing.assert_allclose(x.to_value("m"), [2 / 3, 1 / 3])
    np.testing.assert_allclose(tj.det(a).to_value("N2/m2"), 3.0)
    energy = lambda a: tj.sum(tj.solve(a, jnp.array([1.0, 0.0]) * tj.units.newton))
    assert tj.grad(energy)(a).unit == tj.unit("m2/N")


def test_a_step_of_descent_stays_in_the_type():
    """The corners that a gradient has no part in stay zero."""
    a = tj.Banded(JUNK, 1, 2)
    step = jax.tree.map(lambda p, g: p - 0.1 * g, a, jax.grad(lambda a: tj.norm(a @ a))(a))
    np.testing.assert_array_equal(step.bands, step.canonical().bands)


def test_hessians_pass_through_the_elimination():
    """Forward over reverse, with exchanged rows."""
    diag, beside = jnp.array([0.0, 0.3, 1.0]), jnp.array([1.5, -0.7])
    f = lambda d: tj.logdet(tj.SymTridiagonal(d, beside)) ** 2
    dense = lambda d: jnp.linalg.slogdet(jnp.diag(d) + jnp.diag(beside, 1) + jnp.diag(beside, -1))
    want = jax.hessian(lambda d: dense(d).logabsdet ** 2)(diag)
    np.testing.assert_allclose(jax.hessian(f)(diag), want, rtol=1e-8, atol=1e-10)
