"""What the shipped operations mean for dense arrays, where that is more than a call of jnp."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp


def test_shape_error_names_arguments_not_tracers():
    with pytest.raises(tj.ShapeError, match=r"Diagonal\[2, 2\] with float64\[3\]"):
        tj.matmul(tj.Diagonal(jnp.ones(2)), jnp.ones(3))


@tj.register_array_type
class Careless(tj.AbstractArray):
    """Its implementations look at no shape and would broadcast."""

    d: jax.Array

    def to_dense(self):
        return jnp.diag(self.d)


for op in (
    tj.matmul,
    tj.solve,
    tj.linalg.add,
    tj.linalg.multiply,
    tj.linalg.pairing,
    tj.linalg.quadratic_form,
):
    op.implementation(Careless, tj.Dense)(lambda a, b: a.d * jnp.sum(b))
for op in (tj.inv, tj.logdet, tj.linalg.slogdet, tj.det, tj.linalg.cholesky):
    op.implementation(Careless)(lambda a: a.d)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda a, b: a @ b, r"matmul: cannot multiply Careless\[3, 3\] with float64\[1\]"),
        (tj.solve, r"solve: the right-hand side \[1\] does not fit"),
        (lambda a, b: tj.linalg.add(a, jnp.ones((2, 1))), "add: shapes .* do not fit"),
        (lambda a, b: a + tj.Diagonal([1.0, 2.0]), "add: shapes .* differ"),
        (lambda a, b: a * tj.Diagonal([1.0, 2.0]), "multiply: shapes .* differ"),
        (tj.vdot, r"pairing: shapes .* differ[^@]*`a @ b` or `tj.dot`"),
        (tj.linalg.pairing, "pairing: shapes .* differ"),
        (tj.linalg.quadratic_form, "quadratic_form: needs a square matrix and a vector"),
        (lambda a, b: tj.inv(tj.Fill(1.0, (2, 3))), "inv: needs a square matrix, got Fill"),
        (lambda a, b: tj.logdet(tj.Fill(1.0, (2, 3))), "logdet: needs a square matrix"),
    ],
)
@pytest.mark.parametrize("road", ["call", "gradient", "primal"])
def test_shapes_are_checked_before_any_implementation(f, message, road):
    """Also a user's, on every road, and in a rule that computes the value itself."""
    a, b = Careless(jnp.arange(3.0)), jnp.ones(1)
    if road == "gradient":
        call = lambda: jax.grad(lambda a: jnp.sum(tj.destructure(f(a, b))))(a)
    elif road == "primal" and isinstance(f, type(tj.solve)):
        call = lambda: f.primal(a, b)
    else:
        call = lambda: f(a, b)
    with tj.densify("allow"), pytest.raises(tj.ShapeError, match=message):
        call()


def test_an_operation_of_ones_own_checks_once():
    def check_vector(name, a, x):
        if x.ndim != 1:
            raise tj.ShapeError(f"{name}: `x` must be a vector.")

    @tj.operation(check=check_vector)
    def along(a, x):
        return a @ x

    a = tj.Diagonal([1.0, 2.0])
    np.testing.assert_allclose(along(a, jnp.ones(2)), [1.0, 2.0])
    with pytest.raises(tj.ShapeError, match="along: `x` must be a vector"):
        along(a, jnp.ones((2, 2)))


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_a_determinant_of_large_numbers_has_an_exponent(size):
    """As in `tanjax.numpy.linalg`: the product of five of them is held by no float32."""
    a = tj.Quantity(jnp.eye(5, dtype=jnp.float32) * jnp.float32(size), "m")
    for found in (tj.det(a), np.linalg.det(a)):
        assert found.unit == tj.unit("m5")
        decimal = math.log10(float(found.stored)) + found.scale * math.log10(2)
        np.testing.assert_allclose(decimal, 5 * math.log10(size), rtol=1e-6)


@pytest.mark.parametrize(
    "a",
    [
        tj.Diagonal([0.0, 3.0]),
        tj.Triangular(-np.tri(3)),
        tj.Symmetric([[1.0, 2.0], [2.0, 1.0]]),
        tj.Symmetric([[3.0, 1.0], [1.0, 2.0]], definite=True),
        tj.Kronecker(tj.Diagonal([-1.0, 1.0]), -np.eye(3)),
        tj.BlockDiagonal(tj.Diagonal([-2.0]), np.array([[1.0, 2.0], [3.0, 4.0]])),
        tj.LowRankUpdate(tj.Diagonal([1.0, -1.0]), np.ones((2, 1))),
        tj.Kronecker(tj.Diagonal([1e-200, 1e-200]), -np.eye(3)),
    ],
    ids=lambda a: type(a).__name__,
)
def test_slogdet_as_numpy_calls_it(a):
    """A named tuple, of the structure: no determinant that leaves the range of numbers."""
    with tj.densify("error"):
        result = np.linalg.slogdet(a)
    want = np.linalg.slogdet(a.to_dense())
    np.testing.assert_allclose(result.sign, want.sign)
    np.testing.assert_allclose(result.logabsdet, want.logabsdet, rtol=1e-12)
    sign, logarithm = tnp.linalg.slogdet(a)
    np.testing.assert_array_equal([sign, logarithm], [result.sign, result.logabsdet])


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_sums_along_an_axis_of_a_banded_matrix(axis):
    a = tj.Banded(jnp.arange(1.0, 7.0).reshape(2, 3), 1, 0)
    with tj.densify("error"):
        np.testing.assert_array_equal(tj.linalg.sum(a, axis=axis), a.to_dense().sum(axis))


@pytest.mark.parametrize("lower", [True, False])
def test_a_triangle_divided_by_a_diagonal_stays_in_its_half(lower):
    a = tj.Triangular(jnp.array([[1.0, 2.0], [3.0, 4.0]]), lower=lower)
    x = tj.solve(tj.Diagonal(jnp.array([2.0, 4.0])), a)
    assert isinstance(x, tj.Triangular)
    half = np.tril if lower else np.triu
    np.testing.assert_allclose(x.to_dense(), half([[0.5, 1.0], [0.75, 1.0]]))


def test_gradients_of_systems_with_a_symmetric_update_of_a_triangle_are_those_of_the_sum():
    """The transposed base needs another solution than the base."""
    data, u, b = (
        jnp.array([[2.0, 0.0], [1.0, 3.0]]),
        jnp.array([[0.5], [0.7]]),
        jnp.array([1.0, 2.0]),
    )
    update = lambda data, u: tj.LowRankUpdate(tj.Triangular(data), u)
    dense = lambda data, u: jnp.tril(data) + u @ u.T
    got = jax.grad(lambda *x: jnp.sum(tj.solve(update(*x), b) ** 2), (0, 1))(data, u)
    want = jax.grad(lambda *x: jnp.sum(jnp.linalg.solve(dense(*x), b) ** 2), (0, 1))(data, u)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_dot_of_numpy_is_the_product():
    """Under all names, of a matrix with vectors and matrices; `vdot` is the sum of products."""
    a, x = tj.Symmetric(jnp.array([[2.0, 1.0], [1.0, 3.0]])), jnp.array([1.0, 2.0])
    for dot in (tj.dot, tnp.dot, np.dot):
        np.testing.assert_array_equal(dot(a, x), [4.0, 7.0])
        np.testing.assert_array_equal(dot(a, jnp.eye(2)), a.to_dense())
    assert tj.vdot(a, jnp.eye(2)) == tj.linalg.pairing(a, jnp.eye(2)) == 5.0


def test_vdot_conjugates_its_first_array_and_the_pairing_none():
    """Of any types, in values, gradients and units."""
    z, metre = jnp.array([[1.0, 2j], [0.5, 3.0]]), tj.unit("m")
    for a in (tj.Hermitian(z), tj.Triangular(z), z):
        dense = tj.destructure(a)
        np.testing.assert_allclose(tj.vdot(a, z), jnp.vdot(dense, z))
        np.testing.assert_allclose(tj.vdot(a, z * metre).to_value("m"), jnp.vdot(dense, z))
        np.testing.assert_allclose(tj.linalg.pairing(a, z), jnp.sum(dense * z))
        got = jax.grad(lambda a: tj.vdot(a, z).real)(a)
        want = jax.grad(lambda a: jnp.vdot(tj.destructure(a), z).real)(a)
        jax.tree.map(np.testing.assert_allclose, got, want)
    assert tj.vdot(jnp.ones((2, 3)), jnp.ones(6)) == 6.0
