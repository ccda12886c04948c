"""Second derivatives of loops: JAX before 0.12 drops rules of a scan that it takes apart.

What it keeps of a `jax.custom_jvp` is the body. One that takes a factorisation as constant would
have the derivative zero, in silence, and tangents off a storage invariant would go by it.
"""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

pytestmark = [pytest.mark.core, pytest.mark.slow]

N = 5
RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=(N, N))
DENSE = jnp.asarray(4 * np.eye(N) + 0.3 * NOISE)
DEFINITE = jnp.asarray(np.diag(np.arange(3.0, 3 + N)) + 0.2 * NOISE @ NOISE.T)
B = jnp.asarray(RNG.normal(size=(N, 2)))
SYMMETRIC = tj.Symmetric(DEFINITE)
BANDED = tj.Banded(jnp.asarray(RNG.normal(size=(3, N)) * 0.2).at[1].add(3.0), lower=1, upper=1)
TRIDIAGONAL = tj.SymTridiagonal(jnp.arange(3.0, 3 + N), jnp.array([0.5, -0.4, 0.3, 0.2]))
TOEPLITZ = tj.Toeplitz(jnp.asarray(0.2 * RNG.normal(size=2 * N - 1)).at[N - 1].add(3.0))
CIRCULANT = tj.Circulant(jnp.array([3.0, 0.5, -0.2, 0.3, 0.1]))  # singular values in pairs
KRONECKER = tj.Kronecker(tj.Symmetric(DEFINITE[:2, :2]), DENSE[:2, :2])
BLOCKS = tj.BlockDiagonal(DENSE[:2, :2], tj.Symmetric(DEFINITE[:3, :3]))


def loss(run, unravel):
    """A number of the coordinates of a matrix, which sees every entry of the result."""

    def of(x):
        with tj.densify("allow"):
            leaves = jax.tree.leaves(run(unravel(x)), is_leaf=tj.rules.is_structured)
            entries = jnp.concatenate([jnp.ravel(tj.destructure(leaf)) for leaf in leaves])
        return jnp.sum(jnp.sin(entries + 0.1 * np.arange(entries.size)))

    return of


@pytest.mark.parametrize(
    ("run", "a"),
    [
        *((lambda a: tj.linalg.inv_quad_logdet(a, B), a) for a in (DENSE, BANDED, TRIDIAGONAL)),
        *((lambda a: tj.factorize(a).inv_quad(B), a) for a in (TOEPLITZ, BLOCKS)),
        *((lambda a: tj.factorize(a).logdet(), a) for a in (TOEPLITZ, BLOCKS)),
        *((lambda a: tj.linalg.lstsq(a, B[: a.shape[0]]), a) for a in (KRONECKER, CIRCULANT)),
        (lambda a: tj.linalg.fractional_matrix_power(a, 0.3), BANDED),
        (tj.logdet, TOEPLITZ),
        (tj.linalg.sqrtm, KRONECKER),
        (tj.linalg.condition_number, TRIDIAGONAL),
        (tj.linalg.pinv, CIRCULANT),
        (lambda a: tj.linalg.qr(a).R, SYMMETRIC),
        (lambda a: tj.linalg.lu(a).U, SYMMETRIC),
    ],
    ids=lambda x: type(x).__name__,
)
def test_hessians_of_rules_made_of_others(run, a):
    """The kit asks the others for theirs; these have cases without second derivatives."""
    point, unravel = jax.flatten_util.ravel_pytree(a)
    each = loss(run, unravel)
    step = lambda total, x: (total + each(x), None)
    loop = lambda x: jax.lax.scan(step, 0.0, jnp.stack([x, 1.2 * x]))[0]
    hessian = lambda f: jax.jit(jax.jacfwd(jax.grad(f)))(point)
    want = hessian(lambda x: each(x) + each(1.2 * x))
    np.testing.assert_allclose(hessian(loop), want, rtol=1e-7, atol=1e-9)
    assert np.any(want)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_phase_of_complex_determinants(n):
    """JAX 0.10.2 drops it from the Hessian of a loop for one row and for two."""
    draw = lambda: jnp.asarray(RNG.normal(size=(n, n)) + 1j * RNG.normal(size=(n, n)))
    start, along, point = draw(), draw(), jnp.array([0.4, 0.6])

    def each(s, t, slogdet=tj.linalg.slogdet):
        sign, logarithm = slogdet(start + (s * t[0] + t[1] ** 2).astype(along.dtype) * along)
        return jnp.real((1 + 0.3j) * sign) * logarithm

    steps = jnp.array([0.3, 0.7])
    loop = lambda t: jax.lax.scan(lambda c, s: (c + each(s, t), None), 0.0, steps)[0]
    want = jax.hessian(lambda t: sum(each(s, t, jnp.linalg.slogdet) for s in (0.3, 0.7)))(point)
    for hessian in (jax.hessian, lambda f: jax.jacrev(jax.grad(f))):
        np.testing.assert_allclose(jax.jit(hessian(loop))(point), want, rtol=1e-9)


def test_rules_of_callbacks():
    """Of the body, which AD cannot look into, JAX before 0.12 asks a derivative in loops."""

    @tj.operation
    def cube(x):
        return jax.pure_callback(lambda x: np.asarray(x) ** 3, jax.typeof(x), x)

    @cube.natural_rule
    def _(x):
        return cube(x), lambda y_bar: (3 * cube(x) / x * y_bar,)  # the rule calls back, too

    steps = jnp.array([1.1, 0.9])
    loop = lambda x: jnp.sum(jax.lax.scan(lambda c, s: (cube(c * s), None), x, steps)[0])
    x = jnp.array([0.7, -1.2])
    want = jax.hessian(lambda x: jnp.sum((0.9 * (1.1 * x) ** 3) ** 3))(x)
    for outer, inner in (
        (jax.jacfwd, jax.jacrev),
        (jax.jacrev, jax.jacrev),
        (jax.jacrev, jax.jacfwd),
    ):
        np.testing.assert_allclose(jax.jit(outer(inner(loop)))(x), want, rtol=1e-12)
    moved = lambda f: jax.jit(lambda: jax.jvp(f, (0.7,), (1.0,)))()  # numbers of Python
    for derivative in (lambda f: f, jax.grad, lambda f: jax.grad(jax.grad(f))):
        want = moved(derivative(lambda x: x**3))
        np.testing.assert_allclose(moved(derivative(cube)), want, rtol=1e-12)


def test_callbacks_with_integers_among_their_results():
    """These stay as JAX has them: the integers have no place in a linear primitive."""

    @tj.operation
    def cube(x):
        like = jax.typeof(x), jax.ShapeDtypeStruct((), int)
        return jax.pure_callback(lambda x: (np.asarray(x) ** 3, x.size), like, x)

    @cube.natural_rule
    def _(x):
        return cube(x), lambda bar: (3 * x**2 * bar[0],)

    x = jnp.array([0.7, -1.2])
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(cube(x)[0]))(x), 3 * x**2, rtol=1e-12)
    assert int(cube(x)[1]) == 2


def test_third_derivatives():
    point, unravel = jax.flatten_util.ravel_pytree(SYMMETRIC)
    each = loss(tj.logdet, unravel)
    off = jnp.asarray(NOISE).ravel()  # a tangent off the storage invariant
    loop = lambda t: jax.lax.scan(lambda c, x: (c + each(x), None), 0.0, (point + t * off)[None])[0]
    third = lambda f: jax.jit(jax.jacfwd(jax.grad(jax.grad(f))))(0.0)
    want = third(lambda t: each(point + t * off))
    np.testing.assert_allclose(third(loop), want, rtol=1e-8)
    assert want


def test_functions_with_rules():
    """`tj.rules.custom_jvp` by itself: trees, integers beside numbers, batches, wrong results."""

    @tj.rules.custom_jvp
    def scaled(parts, table):
        return {"out": jnp.round(parts["x"]) * table[1].astype(float)}

    @scaled.defjvp
    def _(primals, tangents):
        return scaled(*primals), {"out": 2 * tangents[0]["x"] * primals[0]["x"]}

    table = jnp.arange(3)
    f = lambda x: scaled({"x": x}, table.astype(x.dtype))["out"] + scaled({"x": x}, table)["out"]
    assert scaled.__name__ == "scaled"
    x = jnp.array([1.2, 2.6])
    np.testing.assert_allclose(jax.jit(jax.vmap(f))(x), [2.0, 6.0])
    np.testing.assert_allclose(jax.vmap(jax.grad(jax.grad(f)))(x), [4.0, 4.0])
    rounded = tj.rules.custom_jvp(lambda x: x.astype(int))
    rounded.defjvp(lambda primals, tangents: (rounded(*primals), None))  # it has no derivative
    assert rounded(x).dtype == int
    both = tj.rules.custom_jvp(lambda x: (x, x.astype(int)))
    both.defjvp(lambda primals, tangents: (both(*primals), None))
    with pytest.raises(
        tj.errors.RegistrationError, match=r"<lambda>: results of a .* are floating"
    ):
        both(x)


def test_linear_bodies_have_a_transpose():
    """JAX, and solvers by it, ask for the transpose of a product: the body is linear in columns."""
    a = SYMMETRIC
    product = lambda b: tj.linalg.funm_multiply(a, b, jnp.sin)  # symmetric
    (transposed,) = jax.jit(jax.linear_transpose(product, B))(B)
    np.testing.assert_allclose(transposed, product(B), rtol=1e-12)
