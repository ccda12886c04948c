"""Multiples and quotients by numbers: a type says what they are, nobody asks for its class."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import assert_close
from tanjax import arrays
from tanjax.testing import ARRAY_MODES, Samples, examples_of

SAME_TYPE = (
    tj.Diagonal, tj.Symmetric, tj.Hermitian, tj.Fill, tj.Zero, tj.Scaled, tj.LowRank,
    tj.LowRankUpdate, tj.Kronecker, tj.BlockDiagonal, tj.Outer, tj.tangents.Masked,
)  # fmt: skip


def assert_is(got, want):
    np.testing.assert_allclose(tj.destructure(got), want, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("kind", SAME_TYPE)
def test_real_multiple_of_a_shipped_type_has_its_type(kind):
    for a in examples_of(kind):
        for got, factor in ((-2 * a, -2), (arrays.scaled(a, 3.0), 3.0), (a / -2, -0.5)):
            assert type(got) is kind
            assert_is(got, factor * a.to_dense())
        with jax.numpy_dtype_promotion("standard"):
            assert_is(a / 0.5j, -2j * a.to_dense())


def test_quotients_are_divided():
    """Not multiplied by a rounded inverse: `1 / 49 * 49` is not 1."""
    x = jnp.full(1, 49.0)
    for a in (tj.Diagonal(x), tj.Symmetric(x[None]), tj.Fill(x[0], (1, 1)), tj.Triangular(x[None])):
        assert tj.destructure(a / 49.0)[0, 0] == 1.0


@tj.register_array_type
class Power(tj.AbstractArray):
    """`diag(exp(logarithms))`: not linear, and a positive multiple has a closed form."""

    logarithms: jax.Array
    core_ndim = 2

    def to_dense(self):
        return jnp.diag(jnp.exp(self.logarithms))

    def scaled(self, factor):
        return self.replace(logarithms=self.logarithms + jnp.log(factor))


def test_a_type_of_ones_own_says_what_its_multiples_are():
    """Everywhere: by operators, in another type, in sums of cotangents."""
    a = Power(jnp.array([0.3, -0.4]))
    assert type(2.0 * a) is Power
    assert_is(2.0 * a, 2.0 * a.to_dense())
    assert type(a / 2.0) is Power
    assert_is(a / 2.0, a.to_dense() / 2.0)
    block, other = (2.0 * tj.BlockDiagonal(a, jnp.ones((1, 1)))).blocks
    assert type(block) is Power
    assert_is(other, [[2.0]])
    assert type((2.0 * tj.Kronecker(a, jnp.ones((1, 1)))).factors[0]) is Power
    assert type(arrays.scaled(a, 2.0)) is Power
    with tj.densify("allow"):
        gradient = jax.grad(lambda a: jnp.sum((2.0 * a) @ jnp.ones(2)))(a)
    np.testing.assert_allclose(gradient.logarithms, 2 * jnp.exp(a.logarithms), rtol=1e-13)


@tj.register_array_type
class Squares(tj.AbstractArray):
    """`diag(roots²)`, which says nothing of multiples."""

    roots: jax.Array
    core_ndim = 2

    def to_dense(self):
        return jnp.diag(self.roots**2)


def test_a_type_that_says_nothing_is_scaled_lazily():
    a = Squares(jnp.array([0.3, -0.4]))
    assert a.scaled(2.0) is NotImplemented
    assert a.divided(2.0) is NotImplemented
    assert type(2.0 * a) is tj.Scaled
    assert type(arrays.scaled(a, 2.0)) is tj.Scaled
    assert_is(a / 4.0, a.to_dense() / 4.0)


@tj.register_array_type(linear=True, isometric=True, injective=True)
class Ends(tj.AbstractArray):
    """The two ends of a diagonal, and nothing said about conjugates and multiples."""

    ends: jax.Array
    core_ndim = 2
    fields_are_entries = True

    def to_dense(self):
        return (
            jnp.zeros((4, 4), self.ends.dtype).at[np.array([0, 3]), np.array([0, 3])].set(self.ends)
        )


def test_fields_that_are_entries():
    """Complex and fractional multiples and the conjugate are of the type; nothing is densified."""
    a, whole = Ends(jnp.array([0.3 + 1j, -0.4])), Ends(jnp.array([3, 4]))
    with tj.densify("error"), jax.numpy_dtype_promotion("standard"):
        for got, want in (
            (2j * a, 2j * a.to_dense()),
            (a / 2j, a.to_dense() / 2j),
            (a.conj(), a.to_dense().conj()),
            (2.5 * whole, 2.5 * whole.to_dense()),
            (whole / 2, whole.to_dense() / 2),
            (whole + whole, 2 * whole.to_dense()),
        ):
            assert type(got) is Ends
            assert_is(got, want)


def test_entrywise_products_keep_the_sparser_side():
    """Whichever side it stands on."""
    s = tj.Symmetric(jnp.array([[1.0, 2.0], [2.0, 5.0]]))
    for sparse in (tj.Diagonal([1.0, 3.0]), tj.Zero((2, 2))):
        for a, b in ((s, sparse), (sparse, s), (tj.tangents.Sum(s), sparse)):
            with tj.densify("error"):
                assert type(a * b) is type(sparse)
                assert_is(a * b, a.to_dense() * b.to_dense())
    assert type(s * tj.Fill(2.0, (2, 2))) is tj.Symmetric
    with tj.densify("error"):  # all of it is stored
        assert_is(s * jnp.ones((2, 2)), s.to_dense())


@pytest.mark.parametrize("uplo", ["U", "mean"])
@pytest.mark.parametrize("kind", [tj.Hermitian, tj.Symmetric], ids=["Hermitian", "Symmetric"])
def test_gradients_by_real_linear_fields_under_a_complex_factor(kind, uplo):
    """`D` of these is linear over the reals only, so that the factor stands inside of `Jᵀ`."""
    data = jnp.asarray([[1.0, 0.5], [0.3, -2.0]])
    data = jax.lax.complex(data, data[::-1]) if kind is tj.Hermitian else data
    factor, x = jnp.asarray(1.3 + 0.7j), jnp.asarray([1.0, 2.0])

    def loss(form, data, factor):
        a = form(tj.Scaled(kind(data, uplo), factor))
        calls = tj.trace(a), tj.norm(a), tj.linalg.quadratic_form(a, x), jnp.sum(a @ x)
        return sum(w * (jnp.sin(jnp.real(y)) + jnp.cos(jnp.imag(y) + 0.3))
                   for w, y in zip((1.0, 0.7, -1.3, 0.9), calls, strict=True))  # fmt: skip

    ours = functools.partial(loss, lambda a: a)
    plain = functools.partial(loss, tj.destructure)
    args, tangents = (data, factor), (data[::-1], factor**2)
    with jax.numpy_dtype_promotion("standard"):
        assert_close(jax.grad(ours, (0, 1))(*args), jax.grad(plain, (0, 1))(*args))
        assert_close(jax.jvp(ours, args, tangents), jax.jvp(plain, args, tangents))


def test_least_norm_tangent_of_a_scaled_triangle_keeps_its_storage():
    """J⁺ of a matrix that no such array can have is the pseudo-inverse of J, and hides nothing."""
    with tj.densify("allow"):
        x = tj.Scaled(tj.Triangular(Samples(4).normal(2, 2)), jnp.asarray(1.7))
        tangent = tj.tangents.pushforward_of_restructure(x)(jnp.asarray([[0.2, -1.0], [0.7, 1.5]]))
        assert tangent.matrix.data[0, 1] == 0.0
        others = tuple(mode for mode in ARRAY_MODES if mode != "maps")
        assert tj.testing.check_array_type(x, modes=("maps",), skip=others).worst_error < 1e-9
