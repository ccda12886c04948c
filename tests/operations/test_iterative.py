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
ITERATIVE = (lineax.CG, lineax.GMRES, lineax.BiCGStab, lineax.Normal, lineax.LSMR)


def definite(n):
    x = R.normal(size=(n, n))
    return jnp.asarray(x @ x.T / n + np.eye(n))


A = tj.tangents.Sum(
    tj.Kronecker(tj.Symmetric(definite(3)), tj.Symmetric(definite(4))),
    tj.Diagonal(jnp.asarray(R.uniform(1, 2, N))),
)
GENERAL = tj.tangents.Sum(A, tj.LowRank(0.3 * R.normal(size=(N, 1)), R.normal(size=(N, 1))))
DENSE = A.to_dense()
B = jnp.asarray(R.normal(size=(N, K)))
X = jnp.linalg.solve(DENSE, B)


def assert_near(got, want, tolerance=1e-8):
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, atol=tolerance), got, want)


@pytest.mark.parametrize(
    ("a", "solver"),
    [
        (A, CG),
        (GENERAL, lineax.GMRES(1e-11, 1e-11)),
        (GENERAL, lineax.BiCGStab(1e-12, 1e-12)),
        (GENERAL, lineax.Normal(lineax.CG(1e-13, 1e-13))),
        (GENERAL, lineax.LSMR(1e-13, 1e-13)),
        (GENERAL, lineax.LU()),
        (A, lineax.Cholesky()),
        (tj.Diagonal(DENSE[0] + 5), lineax.Diagonal()),
        (tj.Triangular(DENSE + jnp.triu(DENSE)), lineax.Triangular()),
        (tj.Symmetric(DENSE, definite=True), lineax.AutoLinearSolver(well_posed=True)),
        (DENSE, lineax.QR()),
    ],
    ids=lambda v: type(v).__name__,
)
def test_every_solver(a, solver):
    is_iterative = isinstance(solver, ITERATIVE)
    with tj.densify("error" if is_iterative else "allow"):
        got = tj.solve(a, B, solver=solver)
    assert_near(got, jnp.linalg.solve(tj.destructure(a), B))


def test_gradients_of_both_sides_and_of_a_loop():
    """The kit has every mode with a direct solver; these solve the transposed system by steps."""
    solver = lineax.GMRES(1e-11, 1e-11)

    def loss(solve, a, b):
        step = lambda x, _: (solve(a, x + b), None)
        return jnp.sum(jnp.sin(jax.lax.scan(step, b, length=2)[0]))

    with tj.densify("error"):
        gradient = jax.grad(
            lambda a, b: loss(lambda a, b: tj.solve(a, b, solver=solver), a, b), (0, 1)
        )
        got = jax.jit(gradient)(GENERAL, B)
    dense = lambda a, b: loss(jnp.linalg.solve, a.to_dense(), b)
    assert_near(got, jax.jit(jax.grad(dense, (0, 1)))(GENERAL, B))


def test_a_direct_solver_warns_of_the_dense_array():
    with pytest.warns(tj.DensifyWarning, match="choose an iterative solver"):
        tj.solve(tj.tangents.Sum(A, A, A), B, solver=lineax.QR())


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


def test_a_good_preconditioner_is_used_and_has_no_derivative():
    """One step suffices with the inverse, and does not without."""
    once = lineax.CG(1e-9, 1e-9, max_steps=3)
    inverse = {"preconditioner": jnp.linalg.inv(DENSE)}
    assert_near(tj.solve(A, B, solver=once, options=inverse), X)
    with pytest.raises(tj.errors.ConvergenceError):
        tj.solve(A, B, solver=once)

    def loss(d):
        options = {"preconditioner": tj.Diagonal(d)}
        return jnp.sum(tj.solve(A, B[:, 0], solver=CG, options=options))

    assert_near(jax.grad(loss)(1 / A.diagonal()), jnp.zeros(N), 0)


def test_the_preconditioner_of_the_transposed_system_is_transposed():
    lower = jnp.tril(DENSE)
    options = {"preconditioner": jnp.linalg.inv(lower)}
    few = lineax.GMRES(1e-10, 1e-10, max_steps=10)
    loss = lambda b: jnp.sum(tj.solve(lower, b, solver=few, options=options) ** 2)
    want = jax.grad(lambda b: jnp.sum(jnp.linalg.solve(lower, b) ** 2))(B[:, 0])
    assert_near(jax.grad(loss)(B[:, 0]), want)


@pytest.mark.slow
def test_iterative_solutions_have_their_units():
    a, b = tj.Quantity(A, "kN/m"), B * tj.unit("N")
    x = tj.solve(a, b, solver=CG, options={"y0": 1e-3 * X * tj.unit("m")})
    assert x.unit == tj.unit("N m/kN")
    assert_near(x.to_value("mm"), X)
    assert tj.solve(a, B, solver=CG).unit == tj.unit("m/kN")
    inverse = tj.Quantity(tj.Diagonal(1e-3 / A.diagonal()), "m/N")
    assert_near(tj.solve(a, b, solver=CG, options={"preconditioner": inverse}).to_value("mm"), X)
    with pytest.raises(tj.UnitError, match="preconditioner"):
        tj.solve(a, b, solver=CG, options={"preconditioner": a})
    energy = lambda b: tj.linalg.pairing(b, tj.solve(a, b, solver=CG))
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
    assert tj.solve(tj.Diagonal(jnp.zeros(0)), jnp.zeros(0), solver=CG).shape == (0,)
    assert tj.solve(A, jnp.zeros((N, 0)), solver=CG).shape == (N, 0)
    assert_near(tj.solve(DENSE, B, solver=None), X)


SHORT = lineax.CG(1e-12, 1e-12, max_steps=2)
NORMAL = lineax.Normal(lineax.CG(rtol=1e-6, atol=1e-6))


def test_a_solver_that_does_not_converge_is_an_error():
    with pytest.raises(tj.errors.ConvergenceError, match="did not reach its tolerance"):
        tj.solve(A, B, solver=SHORT)
    assert jnp.isnan(tj.solve(A, B, solver=SHORT, throw=False)).all()
    loss = lambda b: tj.solve(A, b, solver=SHORT, throw=False).sum()
    assert jnp.isnan(jax.jit(jax.grad(loss))(B)).all()
    with pytest.raises(RuntimeError, match="did not reach its tolerance"):
        jax.block_until_ready(jax.jit(lambda b: tj.solve(A, b, solver=SHORT))(B))
    for d in (jnp.zeros(N), jnp.linspace(-1.0, 0.0, N), jnp.full(N, jnp.nan)):
        with pytest.raises(tj.errors.ConvergenceError):
            tj.solve(tj.Diagonal(d), B[:, 0], solver=CG)
    with pytest.raises(tj.errors.ConvergenceError):  # CG stops at once, and reports success
        tj.solve(A, B, solver=CG, options={"preconditioner": tj.Diagonal(-jnp.ones(N))})


def test_a_matrix_with_nan_is_not_solved_by_zero():
    """On the normal equations conjugate gradients make no step, and call that success."""
    spoiled = jnp.diag(jnp.asarray([1.0, 2.0, 3.0])).at[0, 0].set(jnp.nan)
    for solver in (NORMAL, lineax.LSMR(rtol=1e-6, atol=1e-6), lineax.CG(rtol=1e-6, atol=1e-6)):
        for a in (spoiled, tj.Symmetric(spoiled)):
            with pytest.raises(tj.errors.ConvergenceError, match="solve: "):
                tj.solve(a, jnp.ones(3), solver=solver)
            assert jnp.isnan(tj.solve(a, jnp.ones(3), solver=solver, throw=False)).all()


@pytest.mark.parametrize(
    ("a", "b", "solver", "options", "error", "says"),
    [
        (A, B, "cg", None, TypeError, "solver of lineax"),
        (A, B, None, {}, TypeError, "options"),
        (A, B[:3], CG, None, tj.ShapeError, "does not fit"),
        (A.terms[0].factors[0], B, CG, None, tj.ShapeError, "does not fit"),
        (tj.LowRank(B, B[:3]), B, CG, None, tj.ShapeError, "square"),
        (A, B, CG, {"preconditioner": jnp.eye(3)}, tj.ShapeError, "preconditioner"),
        (A, B, CG, {"precondtioner": jnp.eye(N)}, TypeError, "CG has no option 'precondtioner'"),
        (A, B[:, 0], CG, {"y0": jnp.ones(3)}, tj.ShapeError, "`y0` has shape"),
    ],
)
def test_bad_input_is_named(a, b, solver, options, error, says):
    with pytest.raises(error, match=says):
        tj.solve(a, b, solver=solver, options=options)


def test_options_of_other_solvers_are_theirs():
    class Scaling(lineax.LU):
        def init(self, operator, options):
            return super().init(operator * options["by"], {})

    x = tj.solve(DENSE, B, solver=Scaling(), options={"by": 2.0})
    np.testing.assert_allclose(2 * x, jnp.linalg.solve(DENSE, B), rtol=1e-9)


@pytest.mark.slow
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
        tj.linalg.inv_quad_logdet(a, b, estimator=estimator)


LEAST_SQUARES = pytest.mark.parametrize("solver", [NORMAL, lineax.LSMR(1e-9, 1e-9)])


def test_normal_equations_solve_a_complex_system():
    rng = np.random.default_rng(8)
    a = jnp.asarray(rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4)))
    b = jnp.asarray(rng.normal(size=4) + 1j * rng.normal(size=4))
    exact = lineax.Normal(lineax.CG(rtol=1e-11, atol=1e-11))
    np.testing.assert_allclose(tj.solve(a, b, solver=exact), jnp.linalg.solve(a, b), rtol=1e-7)


@LEAST_SQUARES
def test_least_squares_of_a_system_without_a_solution_raise(solver):
    """They satisfy the normal equations, and `a @ x` is not `b`."""
    a = jnp.asarray([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 3.0]])
    with pytest.raises(tj.errors.ConvergenceError, match="did not reach its tolerance"):
        tj.solve(a, jnp.asarray([1.0, 1.0, 3.0]), solver=solver)
    missed = tj.solve(a, jnp.asarray([1.0, 1.0, 3.0]), solver=solver, throw=False)
    assert np.isnan(missed).all()


@LEAST_SQUARES
def test_least_squares_of_a_singular_system_with_a_solution_are_one(solver):
    a = jnp.asarray([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 3.0]])
    x = tj.solve(a, jnp.asarray([1.0, 2.0, 3.0]), solver=solver)
    np.testing.assert_allclose(x, [0.2, 0.4, 1.0], rtol=1e-6)


def test_an_estimator_brings_its_solver():
    """Also the one that it takes if it is given none."""
    a, b = tj.Symmetric(jnp.diag(jnp.asarray([1.0, 2.0, 3.0])), definite=True), jnp.ones(3)
    estimator = tj.bridges.matfree.Lanczos(3, 4, jax.random.key(0))
    square, logarithm = tj.linalg.inv_quad_logdet(a, b, estimator=estimator)
    np.testing.assert_allclose([square, logarithm], [11 / 6, np.log(6)], rtol=1e-5)
    with pytest.raises(tj.ShapeError, match=r"^inv_quad_logdet: the right-hand side"):
        tj.linalg.inv_quad_logdet(a, jnp.ones(2), estimator=estimator)
    with pytest.raises(tj.ShapeError, match=r"^inv_quad_logdet: needs a square"):
        tj.linalg.inv_quad_logdet(jnp.ones((2, 3)), jnp.ones(2), estimator=estimator)
