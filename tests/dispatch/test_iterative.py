"""Solvers of lineax behind `tj.solve`: values, derivatives, preconditioners, units, bad input."""

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import pytest

import tanjax as tj

R = np.random.default_rng(4)
N, K = 12, 2
CG = lineax.CG(1e-11, 1e-11)


def definite(n):
    x = R.normal(size=(n, n))
    return jnp.asarray(x @ x.T / n + np.eye(n))


A = tj.Sum(
    tj.Kronecker(tj.Symmetric(definite(3)), tj.Symmetric(definite(4))),
    tj.Diagonal(jnp.asarray(R.uniform(1, 2, N))),
)
GENERAL = tj.Sum(A, tj.LowRank(0.3 * R.normal(size=(N, 1)), R.normal(size=(N, 1))))
DENSE = A.to_dense()
B = jnp.asarray(R.normal(size=(N, K)))
X = jnp.linalg.solve(DENSE, B)


def assert_near(got, want, tolerance=1e-8):
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, atol=tolerance), got, want)


def forbid_densify(function):
    def strict(*args):
        with tj.densify("error"):
            return function(*args)

    return strict


@pytest.mark.parametrize(
    "solver",
    [
        CG,
        lineax.GMRES(1e-11, 1e-11),
        lineax.BiCGStab(1e-12, 1e-12),
        lineax.Normal(lineax.CG(1e-13, 1e-13)),
        lineax.LSMR(1e-13, 1e-13),
    ],
    ids=lambda s: type(s).__name__,
)
def test_every_iterative_solver_and_both_gradients(solver):
    a = A if solver is CG else GENERAL
    loss = forbid_densify(lambda a, b: jnp.sum(jnp.sin(tj.solve(a, b, solver=solver))))
    dense = lambda a, b: jnp.sum(jnp.sin(jnp.linalg.solve(a.to_dense(), b)))
    both = lambda f: jax.jit(jax.value_and_grad(f, (0, 1)))(a, B)
    assert_near(both(loss), both(dense))


@pytest.mark.parametrize(
    ("a", "solver"),
    [
        (GENERAL, lineax.LU()),
        (A, lineax.Cholesky()),
        (tj.Diagonal(DENSE[0] + 5), lineax.Diagonal()),
        (tj.Triangular(DENSE + jnp.triu(DENSE)), lineax.Triangular()),
        (tj.Symmetric(DENSE, definite=True), lineax.AutoLinearSolver(well_posed=True)),
        (DENSE, lineax.QR()),
    ],
    ids=lambda v: type(v).__name__,
)
def test_direct_solvers_get_the_entries(a, solver):
    with tj.densify("allow"):
        assert_near(tj.solve(a, B, solver=solver), jnp.linalg.solve(tj.destructure(a), B), 1e-10)


def test_a_direct_solver_makes_dense_as_visibly_as_anything():
    with pytest.warns(tj.DensifyWarning, match="choose an iterative solver"):
        tj.solve(tj.Sum(A, A, A), B, solver=lineax.QR())


def test_modes_and_orders():
    """Forward, second order, a Hessian-vector product, maps over either argument, a scan."""
    weights = jnp.linspace(0.5, 1.5, N)

    def everything(solve, b):
        def loss(s, b):
            m = tj.Sum(A, tj.Scaled(tj.Identity(N), s))
            return jnp.sum(weights * jnp.sin(solve(m, b)))

        gradient = jax.grad(loss, (0, 1))
        step = lambda x, _: (solve(A, x + b), None)
        return (
            jax.jvp(loss, (0.4, b), (1.0, weights)),
            jax.jvp(gradient, (0.4, b), (1.0, weights)),
            jax.grad(lambda s: gradient(s, b)[1] @ weights)(0.4),
            jax.vmap(lambda s: loss(s, b))(jnp.array([0.2, 0.9])),
            jax.lax.scan(step, b, length=3)[0],
        )

    ours = jax.jit(lambda b: everything(lambda a, b: tj.solve(a, b, solver=CG), b))
    theirs = jax.jit(lambda b: everything(lambda a, b: jnp.linalg.solve(a.to_dense(), b), b))
    assert_near(ours(B[:, 0]), theirs(B[:, 0]))


PRECONDITIONERS = {
    "one of ours": lambda: tj.Diagonal(1 / A.diagonal()),
    "factorized": lambda: tj.factorize(tj.LowRankUpdate(tj.Diagonal(A.diagonal()), 0.1 * B[:, :1])),
    "of lineax": lambda: lineax.DiagonalLinearOperator(1 / A.diagonal()),
    "dense": lambda: jnp.linalg.inv(DENSE),
}


@pytest.mark.parametrize("kind", PRECONDITIONERS)
def test_preconditioners_change_the_steps_and_not_the_solution(kind):
    p = PRECONDITIONERS[kind]()
    options = {"preconditioner": p, "y0": 0.9 * X}
    loss = lambda b: jnp.sum(jnp.sin(tj.solve(A, b, solver=CG, options=options)))
    want = jax.value_and_grad(lambda b: jnp.sum(jnp.sin(jnp.linalg.solve(DENSE, b))))(B)
    assert_near(jax.jit(jax.value_and_grad(loss))(B), want)


def test_a_good_preconditioner_is_used():
    """One step suffices with the inverse, and does not without."""
    once = lineax.CG(1e-9, 1e-9, max_steps=3)
    inverse = {"preconditioner": jnp.linalg.inv(DENSE)}
    assert_near(tj.solve(A, B, solver=once, options=inverse), X)
    with pytest.raises(tj.ConvergenceError):
        tj.solve(A, B, solver=once)


def test_the_preconditioner_of_the_transposed_system_is_transposed():
    lower = jnp.tril(DENSE)
    options = {"preconditioner": jnp.linalg.inv(lower)}
    few = lineax.GMRES(1e-10, 1e-10, max_steps=10)
    loss = lambda b: jnp.sum(tj.solve(lower, b, solver=few, options=options) ** 2)
    want = jax.grad(lambda b: jnp.sum(jnp.linalg.solve(lower, b) ** 2))(B[:, 0])
    assert_near(jax.grad(loss)(B[:, 0]), want)


def test_a_preconditioner_may_depend_on_parameters_and_has_no_derivative():
    def loss(d):
        options = {"preconditioner": tj.Diagonal(d)}
        return jnp.sum(tj.solve(A, B[:, 0], solver=CG, options=options))

    assert_near(jax.grad(loss)(1 / A.diagonal()), jnp.zeros(N), 0)


def test_units():
    a, b = tj.Unitful(A, "kN/m"), B * tj.unit("N")
    x = tj.solve(a, b, solver=CG, options={"y0": 1e-3 * X * tj.unit("m")})
    assert x.unit == tj.unit("N m/kN")
    assert_near(x.to_value("mm"), X)
    assert tj.solve(a, B, solver=CG).unit == tj.unit("m/kN")
    inverse = tj.Unitful(tj.Diagonal(1e-3 / A.diagonal()), "m/N")
    assert_near(tj.solve(a, b, solver=CG, options={"preconditioner": inverse}).to_value("mm"), X)
    with pytest.raises(tj.UnitError, match="preconditioner"):
        tj.solve(a, b, solver=CG, options={"preconditioner": a})
    energy = lambda b: tj.dot(b, tj.solve(a, b, solver=CG))
    assert_near(tj.grad(energy)(b).to_value("mm"), 2 * X)


def test_complex_and_mixed_dtypes():
    h = jax.lax.complex(DENSE, 0.1 * (jnp.triu(DENSE, 1) - jnp.tril(DENSE, -1)))
    b = jax.lax.complex(B, B[::-1])
    with jax.numpy_dtype_promotion("standard"):
        for a, right, solver in ((tj.Hermitian(h), b, CG), (A, b, lineax.GMRES(1e-11, 1e-11))):
            want = jnp.linalg.solve(tj.destructure(a), right)
            assert_near(tj.solve(a, right, solver=solver), want)
    whole = tj.solve(tj.Diagonal(jnp.arange(1, 4)), jnp.ones(3, int), solver=CG)
    assert_near(whole, 1 / jnp.arange(1.0, 4.0))


def test_without_a_solver_nothing_changes():
    assert_near(tj.solve(DENSE, B, solver=None), X)
    with pytest.raises(TypeError, match="options"):
        tj.solve(DENSE, B, options={})


SHORT = lineax.CG(1e-12, 1e-12, max_steps=2)


def test_what_does_not_converge_is_said():
    with pytest.raises(tj.ConvergenceError, match="did not reach its tolerance"):
        tj.solve(A, B, solver=SHORT)
    assert jnp.isnan(tj.solve(A, B, solver=SHORT, throw=False)).all()
    loss = lambda b: tj.solve(A, b, solver=SHORT, throw=False).sum()
    assert jnp.isnan(jax.jit(jax.grad(loss))(B)).all()


def test_what_does_not_converge_is_said_while_running(capfd):
    with pytest.raises(RuntimeError, match="did not reach its tolerance"):
        jax.block_until_ready(jax.jit(lambda b: tj.solve(A, b, solver=SHORT))(B))


@pytest.mark.parametrize(
    "a",
    [
        tj.Diagonal(jnp.zeros(N)),
        tj.Diagonal(jnp.linspace(-1.0, 0.0, N)),
        tj.Diagonal(jnp.full(N, jnp.nan)),
    ],
    ids=["zero", "singular", "nan"],
)
def test_a_matrix_that_cannot_be_solved_is_said(a):
    with pytest.raises(tj.ConvergenceError):
        tj.solve(a, B[:, 0], solver=CG)


def test_an_indefinite_preconditioner_is_said():
    """CG stops at once, and reports success."""
    with pytest.raises(tj.ConvergenceError):
        tj.solve(A, B, solver=CG, options={"preconditioner": tj.Diagonal(-jnp.ones(N))})


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: tj.solve(A, B, solver="cg"), TypeError, "solver of lineax"),
        (lambda: tj.solve(A, B[:3], solver=CG), tj.ShapeError, "does not fit"),
        (lambda: tj.solve(A.terms[0].factors[0], B, solver=CG), tj.ShapeError, "does not fit"),
        (lambda: tj.solve(tj.LowRank(B, B[:3]), B, solver=CG), tj.ShapeError, "square"),
        (
            lambda: tj.solve(A, B, solver=CG, options={"preconditioner": jnp.eye(3)}),
            tj.ShapeError,
            "preconditioner",
        ),
        (
            lambda: tj.solve(A, B, solver=CG, options={"precondtioner": jnp.eye(N)}),
            TypeError,
            "CG has no option 'precondtioner'",
        ),
        (
            lambda: tj.solve(A, B[:, 0], solver=CG, options={"y0": jnp.ones(3)}),
            tj.ShapeError,
            "`y0` has shape",
        ),
    ],
)
def test_bad_input(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_options_of_other_solvers_are_theirs():
    class Scaling(lineax.LU):
        def init(self, operator, options):
            return super().init(operator * options["by"], {})

    x = tj.solve(DENSE, B, solver=Scaling(), options={"by": 2.0})
    np.testing.assert_allclose(2 * x, jnp.linalg.solve(DENSE, B), rtol=1e-9)


def test_empty_systems():
    empty = tj.Diagonal(jnp.zeros(0))
    assert tj.solve(empty, jnp.zeros(0), solver=CG).shape == (0,)
    assert tj.solve(A, jnp.zeros((N, 0)), solver=CG).shape == (N, 0)


def test_a_batch_of_systems_and_of_estimates():
    """Each matrix of a batch has its own system; the algorithm is one for all."""
    rng = np.random.default_rng(5)
    half, b = jnp.asarray(rng.normal(size=(2, 3, 3))), jnp.asarray(rng.normal(size=(2, 3, 1)))
    a = tj.Symmetric(half @ half.mT + jnp.eye(3))
    solver = lineax.CG(rtol=1e-12, atol=1e-12)
    loss = lambda a, **how: jnp.sum(tj.solve(a, b, **how) ** 2)
    np.testing.assert_allclose(tj.solve(a, b, solver=solver), tj.solve(a, b), rtol=1e-9)
    got, want = tj.grad(lambda a: loss(a, solver=solver))(a), tj.grad(loss)(a)
    np.testing.assert_allclose(got.data, want.data, rtol=1e-7)
    estimator = tj.bridges.matfree.Lanczos(3, 4, jax.random.key(0))
    each = [tj.logdet(one, estimator=estimator) for one in a]
    np.testing.assert_allclose(tj.logdet(a, estimator=estimator), each, rtol=1e-12)
    with pytest.raises(tj.ShapeError, match="takes one matrix, and this is a batch"):
        tj.inv_quad_logdet(a, b, estimator=estimator)


NORMAL = lineax.Normal(lineax.CG(rtol=1e-6, atol=1e-6))


def test_a_matrix_with_nan_is_not_solved_by_zero():
    """On the normal equations conjugate gradients make no step, and call that success."""
    spoiled = jnp.diag(jnp.asarray([1.0, 2.0, 3.0])).at[0, 0].set(jnp.nan)
    for solver in (NORMAL, lineax.LSMR(rtol=1e-6, atol=1e-6), lineax.CG(rtol=1e-6, atol=1e-6)):
        for a in (spoiled, tj.Symmetric(spoiled)):
            with pytest.raises(tj.ConvergenceError, match="solve: "):
                tj.solve(a, jnp.ones(3), solver=solver)
            assert jnp.isnan(tj.solve(a, jnp.ones(3), solver=solver, throw=False)).all()


def test_least_squares_by_normal_equations():
    """What is left over is judged by the normal equations, complex ones too."""
    rng = np.random.default_rng(8)
    a = jnp.asarray(rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4)))
    b = jnp.asarray(rng.normal(size=4) + 1j * rng.normal(size=4))
    exact = lineax.Normal(lineax.CG(rtol=1e-11, atol=1e-11))
    np.testing.assert_allclose(tj.solve(a, b, solver=exact), jnp.linalg.solve(a, b), rtol=1e-7)
    ones = jnp.ones((3, 3))
    best = tj.solve(ones, jnp.asarray([1.0, 2.0, 3.0]), solver=NORMAL)
    np.testing.assert_allclose(best, jnp.full(3, 2 / 3), rtol=1e-6)
    thin = a[:, :1] @ jnp.ones((1, 4), complex)  # what is left over is not orthogonal to `a.T`
    np.testing.assert_allclose(
        tj.solve(thin, b, solver=NORMAL), jnp.linalg.lstsq(thin, b)[0], rtol=1e-5, atol=1e-6
    )


def test_an_estimator_brings_its_solver():
    """Also the one that it takes if it is given none."""
    a, b = tj.Symmetric(jnp.diag(jnp.asarray([1.0, 2.0, 3.0])), definite=True), jnp.ones(3)
    estimator = tj.bridges.matfree.Lanczos(3, 4, jax.random.key(0))
    square, logarithm = tj.inv_quad_logdet(a, b, estimator=estimator)
    np.testing.assert_allclose([square, logarithm], [11 / 6, np.log(6)], rtol=1e-5)
    with pytest.raises(tj.ShapeError, match=r"^inv_quad_logdet: the right-hand side"):
        tj.inv_quad_logdet(a, jnp.ones(2), estimator=estimator)
    with pytest.raises(tj.ShapeError, match=r"^inv_quad_logdet: needs a square"):
        tj.inv_quad_logdet(jnp.ones((2, 3)), jnp.ones(2), estimator=estimator)
