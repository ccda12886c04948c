"""Linear solves by lineax: units, tags, and the way back."""

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import pytest

import tanjax as tj
from tanjax.bridges.lineax import from_lineax, linear_solve, to_lineax

DENSE = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 5.0]])
B = np.array([1.0, -2.0, 3.0])
diagonal, tridiagonal = lineax.is_diagonal, lineax.is_tridiagonal
symmetric, definite = lineax.is_symmetric, lineax.is_positive_semidefinite
lower, upper = lineax.is_lower_triangular, lineax.is_upper_triangular
unit_diagonal = lineax.has_unit_diagonal
PREDICATES = (diagonal, tridiagonal, symmetric, definite, lower, upper, unit_diagonal)
MATRICES = {
    "dense": (jnp.array(DENSE + np.triu(DENSE)), set()),
    "diagonal": (tj.Diagonal(DENSE[0]), {diagonal}),
    "identity": (tj.Identity(3), {diagonal}),
    "scaled": (tj.Scaled(tj.Diagonal(DENSE[0]), 3.0), {diagonal}),
    "symmetric": (tj.Symmetric(DENSE), {symmetric}),
    "definite": (tj.Symmetric(DENSE, definite=True), {symmetric, definite}),
    "hermitian": (tj.Hermitian(DENSE, definite=True), {symmetric, definite}),
    "complex hermitian": (tj.Hermitian(DENSE + 1j * np.triu(DENSE, 1)), set()),
    "lower": (tj.Triangular(DENSE), {lower}),
    "upper": (tj.Triangular(DENSE, lower=False), {upper}),
    "unit lower": (tj.Triangular(DENSE, unit_diagonal=True), {lower, unit_diagonal}),
    "tridiagonal": (tj.Tridiagonal([1.0, 0.2], DENSE[2] + 2, [0.5, 3.0]), {tridiagonal}),
    "symmetric tridiagonal": (
        tj.SymTridiagonal(DENSE[2] + 2, [0.5, 3.0]),
        {symmetric, tridiagonal},
    ),
    "sparse": (tj.Sparse.from_dense(np.triu(DENSE, -1) - np.triu(DENSE, 2)), set()),
    "update": (tj.LowRankUpdate(tj.Diagonal(DENSE[1]), DENSE[:, :1]), {symmetric}),
    "one-sided update": (
        tj.LowRankUpdate(tj.Diagonal(DENSE[1]), DENSE[:, :1], None, DENSE[:, 1:2]),
        set(),
    ),
}


@pytest.mark.parametrize("kind", MATRICES)
def test_values_tags_and_units(kind):
    matrix, expected_tags = MATRICES[kind]
    operator = to_lineax(matrix)
    dense = np.asarray(tj.destructure(matrix))
    np.testing.assert_allclose(operator.as_matrix(), dense, rtol=1e-14)
    if not lineax.is_diagonal(operator):
        assert {p for p in PREDICATES if p(operator)} == expected_tags
    b = jnp.asarray(B, dense.dtype)
    solution = linear_solve(tj.Quantity(matrix, "kN/m"), b * tj.unit("N")).value
    assert solution.unit == tj.unit("N m/kN")
    np.testing.assert_allclose(
        solution.to_value("mm"), np.linalg.solve(dense, B), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("kind", [k for k in MATRICES if k not in ("hermitian", "scaled")])
def test_the_way_back_keeps_the_type(kind):
    matrix = MATRICES[kind][0]
    back = from_lineax(to_lineax(matrix), definite=kind == "definite")
    if kind != "complex hermitian":
        assert type(back) is type(matrix)
        assert jax.tree.structure(back) == jax.tree.structure(matrix)
    np.testing.assert_array_equal(tj.destructure(back), tj.destructure(matrix))


def test_semidefinite_is_no_promise():
    operator = to_lineax(tj.Symmetric(DENSE, definite=True))
    assert not from_lineax(operator).definite


def test_tridiagonal_operators_of_others():
    """Also a dense matrix with the tag; the type says what the tags say."""
    operator = lineax.TridiagonalLinearOperator(B, B[1:], B[:-1])
    tagged = lineax.MatrixLinearOperator(operator.as_matrix(), lineax.tridiagonal_tag)
    for given in (operator, tagged):
        back = from_lineax(given)
        assert type(back) is tj.Tridiagonal
        np.testing.assert_array_equal(back.to_dense(), operator.as_matrix())


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["dense", "diagonal", "definite", "lower", "update"])
def test_gradients_agree_with_ours_in_true_units(kind, compiled):
    """The energy b·A⁻¹b: natural gradients by lineax and by `tj.solve`."""
    matrix = tj.Quantity(MATRICES[kind][0], "N/cm")
    b = B * tj.unit("N")
    by_lineax = lambda a, b: (b * linear_solve(a, b).value).sum()
    by_tanjax = lambda a, b: (b * tj.solve(a, b)).sum()
    gradient, expected = (tj.grad(f, (0, 1)) for f in (by_lineax, by_tanjax))
    gradient = jax.jit(gradient) if compiled else gradient
    for got, want in zip(gradient(matrix, b), expected(matrix, b), strict=True):
        assert got.unit == want.unit
        got, want = (tj.destructure(x.value) for x in (got, want))
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_plain_stays_plain_and_operators_are_dimensionless():
    assert isinstance(linear_solve(tj.Diagonal(DENSE[0]), B).value, jax.Array)
    operator = lineax.MatrixLinearOperator(jnp.array(DENSE))
    solution = linear_solve(operator, B * tj.unit("m"), lineax.LU())
    assert solution.value.unit is tj.unit("m")
    np.testing.assert_allclose(solution.value.value, np.linalg.solve(DENSE, B))


def test_trees_of_vectors_in_one_unit():
    operator = lineax.DiagonalLinearOperator({"a": jnp.array(2.0), "b": jnp.array([4.0, 8.0])})
    vector = {"a": 1.0 * tj.unit("m"), "b": np.array([100.0, 400.0]) * tj.unit("cm")}
    value = linear_solve(operator, vector).value
    np.testing.assert_allclose(value["b"].to_value("m"), [0.25, 0.5])
    with pytest.raises(tj.UnitError, match="a part of the vector"):
        linear_solve(operator, vector | {"a": 1.0 * tj.unit("s")})


def test_a_first_guess_is_a_quantity():
    matrix = tj.Symmetric(DENSE, definite=True) * tj.unit("N/m")
    guess = np.linalg.solve(DENSE, B) * 1e2 * tj.unit("cm")
    solver = lineax.CG(1e-10, 1e-10)
    solve = lambda **options: linear_solve(matrix, B * tj.unit("N"), solver, options=options)
    solution = solve(y0=guess)
    assert solution.stats["num_steps"] < solve().stats["num_steps"]
    np.testing.assert_allclose(solution.value.to_value("cm"), guess.value, rtol=1e-9)
    with pytest.raises(tj.UnitError, match="y0"):
        solve(y0=B * tj.unit("s"))


def test_an_operator_has_no_unit():
    with pytest.raises(tj.UnitError, match="cannot be in N"):
        to_lineax(tj.Diagonal(B) * tj.unit("N"))


@tj.register_array_type(linear=True, injective=True)
class SymmetricToeplitz(tj.AbstractArray):
    column: jax.Array
    definite: bool = tj.rules.static_field(default=False)

    def to_dense(self):
        n = self.column.shape[0]
        return self.column[np.abs(np.arange(n)[:, None] - np.arange(n))]

    def apply(self, b):
        return self.to_dense() @ b

    def transposed(self):
        return self


def test_a_type_of_ones_own_says_what_it_is():
    """Its own transpose: symmetric; a static `definite`: a promise, and conjugate gradients run."""
    column = jnp.array([4.0, 1.0, 0.5])
    plain, promised = (SymmetricToeplitz(column, definite=d) for d in (False, True))
    assert lineax.is_symmetric(to_lineax(plain))
    assert not lineax.is_positive_semidefinite(to_lineax(plain))
    assert lineax.is_positive_semidefinite(to_lineax(promised))
    x = linear_solve(promised, jnp.asarray(B), lineax.CG(1e-12, 1e-12)).value
    np.testing.assert_allclose(promised.to_dense() @ x, B, rtol=1e-9)


@pytest.mark.parametrize(
    "solver", [lineax.CG(1e-12, 1e-12), lineax.Cholesky()], ids=["CG", "Cholesky"]
)
def test_who_chooses_a_solver_of_definite_matrices_promises_one(solver):
    """As in `tj.solve`: a covariance of the README has no flag to promise it by."""
    a = tj.LowRankUpdate(tj.Diagonal([1.0, 2.0, 3.0]), jnp.ones((3, 1)))
    for matrix in (a, a.to_dense(), tj.Kronecker(tj.Symmetric(a.to_dense()), jnp.eye(1))):
        found = linear_solve(matrix * tj.unit("kg"), jnp.asarray(B), solver).value
        np.testing.assert_allclose(found.to_value("1/kg"), np.linalg.solve(a, B), rtol=1e-9)
    with pytest.raises(ValueError, match="definite"):
        linear_solve(lineax.MatrixLinearOperator(a.to_dense()), jnp.asarray(B), solver)
