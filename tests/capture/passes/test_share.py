"""One factorisation for all that asks for one of the same matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from passes_support import assert_agrees, names

pytestmark = pytest.mark.core

share = tj.programs.passes.share_factorizations
definite = lambda s: tj.Symmetric(s, definite=True)


def both(s, x):
    a = definite(s)
    return tj.solve(a, x), tj.logdet(a)


def everything(s, x):
    a = definite(s)
    quadratic, logarithm = tj.linalg.inv_quad_logdet(a, x)
    results = tj.linalg.slogdet(a), tj.det(a), tj.inv(a), tj.factorize(a).solve(x)
    return quadratic, logarithm, results, tj.linalg.cholesky(a) @ x, tj.solve(a, x)


def steps(scan, a, x):
    return scan(lambda c, _: (tj.solve(a, c) + x, None), x, None, length=2)[0]


def loop_first(s, x):
    a = definite(s)
    return steps(tj.scan, a, x), tj.logdet(a)


def loop_of_jax(s, x):
    a = definite(s)
    return steps(jax.lax.scan, a, x), tj.logdet(a)


def loop_last(s, x):
    a = definite(s)
    value = tj.logdet(a)
    return value, tj.fori_loop(0, 3, lambda i, c: tj.solve(a, c) + x, x)


def within_a_step(s, x):
    def step(c, _):
        a = definite(s + c[0] ** 2 * jnp.eye(4))
        return tj.solve(a, c) + x, tj.logdet(a)

    return tj.scan(step, x, None, length=2)


def in_a_branch(s, x):
    a = definite(s)
    one = tj.cond(x[0] > 0, lambda x: tj.solve(a, x), lambda x: x, x)
    return one, tj.logdet(a), tj.solve(a, one)


def in_a_branch_of_jax(s, x):
    a = definite(s)
    one = jax.lax.cond(x[0] > 0, lambda x: tj.solve(a, x), lambda x: x, x)
    return one, tj.logdet(a), tj.solve(a, one)


def nested(s, x):
    a = definite(s)
    return tj.scan(lambda c, _: (steps(tj.scan, a, c), None), x, None, length=2)[0]


def gradient_inside(s, x):
    a = definite(s)
    return tj.grad(lambda x: x @ tj.solve(a, x))(x), tj.logdet(a)


def two_matrices(s, a, x):
    b, values = definite(s + jnp.eye(4)), both(s, x)
    return values, tj.logdet(a), tj.solve(b, x), tj.solve(a, x), tj.logdet(b)


def low_rank(s, d, u, x):
    a = tj.LowRankUpdate(tj.Diagonal(d), u)
    return tj.solve(a, x), tj.logdet(a)


def dense(a, x):
    """The derivative of a determinant where the matrix is singular is the adjugate: not by LU."""
    return tj.solve(a, x), tj.linalg.slogdet(a), tj.inv(a), tj.det(a)


ALL = "inv_quad_logdet* slogdet* det* inv* cholesky* matmul[Triangular] solve*"
BOTH = "factorize[Symmetric] solve* logdet*"
CASES = [
    (both, "sx", BOTH),
    (everything, "sx", f"factorize[Symmetric] {ALL}"),
    (loop_first, "sx", "factorize[Symmetric] scan* solve* logdet*"),
    (loop_last, "sx", "factorize[Symmetric] logdet* fori_loop* solve*"),
    (loop_of_jax, "sx", "factorize[Symmetric] scan solve* logdet*"),
    (within_a_step, "sx", f"scan {BOTH}"),
    (in_a_branch, "sx", "factorize[Symmetric] cond* solve* logdet* solve*"),
    (in_a_branch_of_jax, "sx", "factorize[Symmetric] cond solve* logdet* solve*"),
    (nested, "sx", "factorize[Symmetric] scan* scan* solve*"),
    (gradient_inside, "sx", "factorize[Symmetric] grad* solve* logdet*"),
    (two_matrices, "sax", f"{BOTH} factorize logdet* factorize[Symmetric] solve* solve* logdet*"),
    (low_rank, "sdux", "factorize[LowRankUpdate] solve* logdet*"),
    (dense, "ax", "factorize solve* slogdet* inv* det"),
]


@pytest.mark.parametrize(("f", "arguments", "wanted"), CASES, ids=[f.__name__ for f, *_ in CASES])
def test_factorisation_is_shared(f, arguments, wanted, assert_rewrites):
    """Outside of loops that keep the matrix, whichever comes first; values, gradients agree."""
    assert_rewrites(share, f, arguments, wanted)


def in_one_branch(a, x):
    one = lambda i: tj.cond(x[i] > 0, lambda x: tj.solve(a, x), lambda x: x, x)
    return one(0) + one(1)


def another_each_step(s, x):
    step = lambda c, r: (tj.solve(definite(s + r), c), None)
    return tj.scan(step, x, jnp.ones((2, 4, 4)))[0]


pair = lambda a, x: (tj.solve(a, x), tj.logdet(a))
UNCHANGED = {
    "one use": (lambda s, x: tj.solve(definite(s), x), "sx"),
    "needs no factors": (lambda d, x: pair(tj.Diagonal(d), x), "dx"),
    "two matrices": (lambda a, b, x: (tj.solve(a, x), tj.logdet(b)), "abx"),
    "equal, and not the same": (lambda s, x: (tj.solve(definite(s), x), tj.logdet(definite(s))),
                                "sx"),
    "in one branch": (in_one_branch, "ax"),
    "would be dense": (lambda d, x: pair(tj.Circulant(d), x), "dx"),
    "has a way of its own": (lambda d, x: pair(tj.Tridiagonal(x[1:], 4 + d, x[:3]), x), "dx"),
    "another each step": (another_each_step, "sx"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNCHANGED)
def test_share_leaves_a_program_without_occasion(case, assert_rewrites):
    """The very program comes back."""
    f, arguments = UNCHANGED[case]
    assert_rewrites(share, f, arguments, None)


def test_derivative_of_the_root(given):
    """Samples by the shared factor: first and second derivatives by the stored matrix."""
    s, x = given["s"], given["x"]

    def f(s, x):
        a = definite(s)
        return jnp.sum(jnp.sin(tj.linalg.cholesky(a) @ x)) + tj.logdet(a)

    new = share.rewrite(tj.capture(f)(s, x))
    assert "cholesky[Factorization]" in names(new)
    want, got = (jax.jit(jax.hessian(g))(s, x) for g in (f, new))
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)

    by_type = lambda a, x: jnp.sum(tj.linalg.cholesky(a) @ x) + tj.logdet(a)
    new = share.rewrite(tj.capture(by_type)(definite(s), x))
    want, got = (jax.grad(g)(definite(s), x).data for g in (by_type, new))
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


def test_complex_root():
    """The root of a Hermitian matrix: conjugates are where they belong."""
    draw = np.random.default_rng(1)
    m = draw.normal(size=(3, 3)) + 1j * draw.normal(size=(3, 3))
    h, z = jnp.asarray(m @ m.conj().T + np.eye(3)), jnp.asarray(m[0])

    def f(h, z):
        a = tj.Hermitian(h, definite=True)
        return jnp.real(jnp.vdot(z, tj.linalg.cholesky(a) @ z)) + tj.logdet(a)

    new = share.rewrite(tj.capture(f)(h, z))
    assert names(new)[0] == "factorize[Hermitian]"
    assert_agrees(f, new, h, z)


def test_matrix_with_a_unit_is_shared_and_solutions_keep_their_units(given):
    """A matrix with a unit is shared for solutions, which have the unit that they had."""
    m, s = tj.unit("m"), tj.unit("s")

    def f(a, x):
        return tj.solve(a, x), tj.solve(a, 2 * x)

    a, x = tj.Symmetric(given["s"], definite=True) * m, given["x"] * s
    new = share.rewrite(tj.capture(f)(a, x))
    assert sum(name.startswith("factorize") for name in names(new)) == 1
    for want, got in zip(f(a, x), new(a, x), strict=True):
        assert str(got.unit) == str(want.unit)
        np.testing.assert_allclose(got.to(want.unit).value, want.value, rtol=1e-13)


def test_factorisations_of_the_lowered_program(given):
    """Cholesky is called once where it was called twice."""
    s, x = given["s"], given["x"]
    new = share.rewrite(tj.capture(both)(s, x))
    counts = [str(jax.make_jaxpr(g)(s, x)).count("= cholesky") for g in (both, new)]
    assert counts == [2, 1]


def test_the_root_is_refused(given):
    """No Cholesky factor is among the factors of LU."""
    f = tj.factorize(given["a"])
    assert not f.has_root
    with pytest.raises(tj.ShapeError, match=r"tj\.linalg\.cholesky"):
        f.root()


def test_pass_refuses_what_is_no_function_by_name():
    """What is no function or program is refused by name."""
    with pytest.raises(tj.errors.CaptureError, match="share_factorizations"):
        share(3)
    with pytest.raises(tj.errors.CaptureError, match="rewrite"):
        share.rewrite(both)
