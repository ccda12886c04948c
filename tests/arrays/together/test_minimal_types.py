"""Types that say little of themselves: `to_dense`, perhaps one query; all operations are right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj


@pytest.fixture(autouse=True)
def quiet():
    with tj.densify("allow"):
        yield


@tj.register_array_type
class OnlyDense(tj.AbstractArray):
    points: jax.Array

    def to_dense(self):
        return self.points[:, None] ** jnp.arange(3, dtype=self.points.dtype)


@tj.register_array_type(linear=True, injective=True)
class OnlyApply(tj.AbstractArray):
    rows: jax.Array

    def to_dense(self):
        return jnp.tile(self.rows[:, None], (1, 3))

    def apply(self, b):
        return jnp.tensordot(self.rows, jnp.sum(b, axis=0), 0)


@tj.register_array_type
class DenseTransposed(tj.AbstractArray):
    data: jax.Array

    def to_dense(self):
        return jnp.sin(self.data)

    def transposed(self):
        return jnp.sin(self.data).T


NUMBERS = np.random.default_rng(3)
MINIMAL = [
    OnlyDense(jnp.asarray(NUMBERS.normal(size=3))),
    OnlyApply(jnp.asarray(NUMBERS.normal(size=3))),
    DenseTransposed(jnp.asarray(NUMBERS.normal(size=(3, 3)))),
]
X = NUMBERS.normal(size=3)
M = NUMBERS.normal(size=(2, 3))
DIAGONAL = tj.Diagonal(NUMBERS.normal(size=3))


@pytest.mark.parametrize("a", MINIMAL, ids=lambda a: type(a).__name__)
def test_operations_are_right_on_types_that_say_little(a):
    """From both sides, by rows and columns, in a batch: values and gradients of the dense array."""
    uses = (
        lambda a: X @ a,
        lambda a: jnp.asarray(X) @ a,
        lambda a: M @ a,
        lambda a: np.dot(X, a) if not isinstance(a, jax.Array) else X @ a,
        lambda a: a.mT @ X,
        lambda a: a @ a,
        lambda a: a @ DIAGONAL,
        lambda a: DIAGONAL @ a,
        lambda a: tj.linalg.sum(a, axis=0),
        lambda a: tj.linalg.sum(a, axis=1),
        lambda a: jax.vmap(lambda x: x @ a)(jnp.asarray(M)),
        lambda a: tj.linalg.quadratic_form(a, jnp.asarray(X)),
        lambda a: tj.linalg.pairing(a, DIAGONAL),
        lambda a: jax.grad(lambda x: jnp.sum(jnp.sin(a @ x)))(jnp.asarray(X)),
    )

    def values_and_gradients(a, use):
        loss = lambda a: jnp.sum(jnp.sin(tj.destructure(use(a))))
        by_rule, by_ad = jax.grad(loss)(a), jax.grad(lambda a: loss(a.to_dense()))(a)
        return (tj.destructure(use(a)), use(a.to_dense())), (by_rule, by_ad)

    found = jax.jit(lambda a: [values_and_gradients(a, use) for use in uses])(a)
    for i, (values, gradients) in enumerate(found):
        np.testing.assert_allclose(*values, rtol=1e-12, err_msg=f"use {i}")
        for got, want in zip(*map(jax.tree.leaves, gradients), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-10, err_msg=f"use {i}")


# -- types whose fields weigh differently: nothing may go through a solve with JᵀJ -----------------


@tj.register_array_type(linear=True, injective=True)
class Weighted(tj.AbstractArray):
    """`diag(w s)`, with `s` from 1 to `10**-decades`: the condition of J."""

    w: jax.Array
    decades: float = tj.rules.static_field()

    @property
    def s(self):
        return 10.0 ** -jnp.linspace(0, self.decades, self.w.size, dtype=self.w.dtype)

    def to_dense(self):
        return jnp.diag(self.w * self.s)

    def times(self, other):
        return self.replace(w=self.w * other.w * self.s)


@tj.register_array_type(linear=True, injective=True)
class Holds(tj.AbstractArray):
    inner: tj.AbstractArray

    def to_dense(self):
        return tj.destructure(self.inner)

    def pullback_of_restructure(self, structural):
        return tj.tangents.pullback_of_restructure(self.inner)(structural.inner)


tj.matmul.implementation(Weighted, Weighted)(Weighted.times)
tj.matmul.implementation(Holds, Holds)(lambda a, b: Holds(a.inner.times(b.inner)))


@tj.operation
def product(a, b):
    return a.times(b)


@product.natural_rule(hidden="hybrid")
def product_rule(a, b):
    def product_pullback(c_bar):
        return tj.matmul(c_bar, b.mT), tj.matmul(a.mT, c_bar)

    return product.primal(a, b), product_pullback


@pytest.mark.parametrize("decades", [4, 12])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_structural_gradient_never_squares_the_condition(dtype, decades):
    """An output that has no closed form of its pullback is differentiated by AD, part by part."""
    w, v = (np.linspace(*ends, 8).astype(dtype) for ends in ((1, 2), (2, 1)))
    a, b = Weighted(jnp.asarray(w), decades), Weighted(jnp.asarray(v), decades)

    @jax.jit
    def roads(a, b):
        def loss(multiply, inside=lambda c: c):
            return jax.grad(lambda a: jnp.sum(jnp.sin(inside(multiply(a)).w / b.s)))(a).w

        want = loss(lambda a: a.times(b))
        forward = jax.jvp(lambda a: (a @ b).w, (a,), (a,))[1]
        return {
            "matmul": (loss(lambda a: a @ b), want),
            "nested": (loss(lambda a: Holds(a) @ Holds(b), lambda c: c.inner), want),
            "hybrid": (loss(lambda a: product(a, b)), want),
            "forward": (forward, a.times(b).w),
            "pullback": (tj.rules.rrule(tj.matmul, a, b)[1](a)[0].w, a.w * b.w * a.s),
        }

    for name, (got, want) in roads(a, b).items():
        np.testing.assert_allclose(got, want, rtol=100 * np.finfo(dtype).eps, err_msg=name)


# -- integers ------------------------------------------------------------------------------------


@tj.register_array_type(linear=True, isometric=True, injective=True)
class Sparse(tj.AbstractArray):
    values: jax.Array
    rows: jax.Array
    columns: jax.Array
    core_ndim = 2
    shape = property(lambda self: (3, 3))

    def to_dense(self):
        zeros = jnp.zeros((3, 3), self.values.dtype)
        return zeros.at[self.rows, self.columns].add(self.values)


PATTERNS = [(jnp.array([0, 1, 2]), jnp.array([1, 0, 2])), (jnp.array([2, 2, 2]), jnp.arange(3))]
SPARSE = [
    Sparse(jnp.array([1.1, 2.3, 3.7]), *PATTERNS[0]),
    Sparse(jnp.array([0.5, 0.6, 0.7]), *PATTERNS[1]),
    Sparse(jnp.array([4, 5, 6]), *PATTERNS[1]),
]


@pytest.mark.parametrize("pair", [(0, 1), (1, 0), (2, 2)])
def test_the_pattern_of_a_sum_is_never_that_of_its_first_term(pair):
    a, b = (SPARSE[i] for i in pair)
    eye = jnp.eye(3, dtype=a.dtype)
    sums = lambda a, b: (a + b, a - b, a + a, 3 * b - a, -b, b @ a, a + 2 * b, (a + b) @ eye)
    for got, want in zip(sums(a, b), sums(a.to_dense(), b.to_dense()), strict=True):
        np.testing.assert_allclose(tj.destructure(got), want, rtol=1e-14)
    compiled = jax.jit(lambda a, b: tj.destructure(a + 2 * b))(a, b)
    np.testing.assert_allclose(compiled, a.to_dense() + 2 * b.to_dense(), rtol=1e-14)
    assert type(2 * a) is (tj.Scaled if pair == (2, 2) else Sparse)
    with jax.numpy_dtype_promotion("standard"):  # indices are no entries
        np.testing.assert_allclose(tj.destructure(2.5 * a), 2.5 * a.to_dense(), rtol=1e-14)
        np.testing.assert_allclose(tj.destructure(a / 2), a.to_dense() / 2, rtol=1e-14)


def test_gradients_with_an_integer_pattern():
    a, b = SPARSE[:2]
    f = lambda a: jnp.sum(jnp.sin(tj.destructure(a) * 2))
    stored = a.to_dense() != 0
    want = jnp.where(stored, 2 * jnp.cos(2 * a.to_dense()), 0)
    natural = tj.grad(f)(a)
    np.testing.assert_allclose(tj.destructure(natural), want, rtol=1e-14)
    np.testing.assert_allclose(tj.destructure(natural + b), want + b.to_dense(), rtol=1e-14)
    hessian = jax.vmap(jax.vmap(tj.destructure))(tj.hessian(f)(a))
    dense = jax.hessian(f)(a.to_dense())
    i, j = a.rows, a.columns
    np.testing.assert_allclose(hessian[i, j, i, j], dense[i, j, i, j], rtol=1e-14)
    moved = tj.jvp(f, (a,), (natural,))[1]
    np.testing.assert_allclose(moved, jnp.sum(want * want), rtol=1e-14)
    np.testing.assert_allclose(tj.destructure(tj.tangents.restructure(a, want)), want, rtol=1e-14)


@pytest.mark.parametrize(
    "a",
    [
        tj.Diagonal([1, 2]),
        tj.Triangular([[1, 2], [3, 4]]),
        tj.Fill(3, (2, 2)),
        tj.Symmetric([[1, 2], [2, 3]]),
        tj.Kronecker(tj.Diagonal([3]), tj.Diagonal([1, 2])),
        tj.BlockDiagonal(tj.Diagonal([3]), tj.Diagonal([1])),
        tj.Outer([1, 2], [3, 4]),
        tj.LowRank([[1], [2]], [[3], [4]]),
    ],
    ids=lambda a: type(a).__name__,
)
def test_arithmetic_of_integers_is_that_of_the_dense_array(a):
    arithmetic = lambda a: (a + a, a * 2, a * 0.5, a / 2, -a, a - 3 * a, tj.matmul(a, a))
    both = lambda a: (list(map(tj.destructure, arithmetic(a))), arithmetic(a.to_dense()))
    with jax.numpy_dtype_promotion("standard"):
        for got, want in zip(*jax.jit(both)(a), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want)


# -- what a type says is used: no n-by-n array where a query tells enough --------------------------

N = 50


@tj.register_array_type(linear=True, isometric=True, injective=True)
class Entries(tj.AbstractArray):
    """A diagonal that says how to multiply and what its diagonal is, and no map at all."""

    d: jax.Array
    core_ndim = 2

    def to_dense(self):
        return jnp.diag(self.d)

    def apply(self, b):
        return self.d * b if b.ndim == 1 else self.d[:, None] * b

    def transposed(self):
        return self

    def diagonal(self):
        return self.d

    def total(self):
        return jnp.sum(self.d)


@tj.register_array_type(injective=True)
class Reflection(tj.AbstractArray):
    v: jax.Array
    core_ndim = 2

    def to_dense(self):
        return jnp.eye(self.v.size) - 2 * jnp.outer(self.v, self.v) / (self.v @ self.v)

    def apply(self, b):
        return b - jnp.tensordot(2 * self.v / (self.v @ self.v), self.v @ b, 0)

    def transposed(self):
        return self

    def diagonal(self):
        return 1 - 2 * self.v**2 / (self.v @ self.v)

    def total(self):
        return self.v.size - 2 * jnp.sum(self.v) ** 2 / (self.v @ self.v)


@tj.register_array_type(linear=True, injective=True)
class Stretched(tj.AbstractArray):
    """`2 diag(d)`: not isometric; J⁺ᵀ in closed form, and J⁺ is its transpose."""

    d: jax.Array
    core_ndim = 2

    def to_dense(self):
        return 2 * jnp.diag(self.d)

    def diagonal(self):
        return 2 * self.d

    def total(self):
        return 2 * jnp.sum(self.d)

    def apply(self, b):
        return 2 * (self.d * b if b.ndim == 1 else self.d[:, None] * b)

    def transposed(self):
        return self

    def pullback_of_restructure(self, structural):
        return self.replace(d=structural.d / 4)


@tj.register_array_type
class Crossed(tj.AbstractArray):
    """`u vᵀ`, which says only how it multiplies; it is not symmetric."""

    u: jax.Array
    v: jax.Array

    def to_dense(self):
        return jnp.outer(self.u, self.v)

    def apply(self, b):
        return jnp.tensordot(self.u, self.v @ b, 0)


VECTOR = jnp.linspace(0.5, 1.5, N)


@tj.operation
def both_sides(a, x):
    return a @ x, x @ a


@both_sides.natural_rule
def both_sides_rule(a, x):
    def both_sides_pullback(bars):
        left, right = bars
        return tj.tangents.Sum(tj.Outer(left, x), tj.Outer(x, right)), a.mT @ left + a @ right

    return both_sides.primal(a, x), both_sides_pullback


CLASSES = pytest.mark.parametrize("kind", [Entries, Reflection, Stretched])


@CLASSES
def test_no_dense_array_where_a_query_tells_enough(kind):
    """Eagerly and in the program, under the policy that forbids it."""
    product = lambda a: a @ VECTOR
    loss = lambda a: jnp.sum(jnp.sin(product(a)))
    calls = [
        lambda a: jax.grad(loss)(a),
        lambda a: jax.grad(lambda a: sum(map(jnp.sum, both_sides(a, VECTOR))))(a),
        lambda a: jax.grad(tj.trace)(a),
        lambda a: jax.grad(tj.linalg.sum)(a),
        lambda a: jax.jvp(jax.grad(loss), (a,), (a,)),
    ]
    if kind is not Reflection:  # a tangent of a reflection is none, and dense by definition
        calls += [
            lambda a: tj.jvp(product, (a,), (a,))[1],
            lambda a: tj.jvp(product, (a,), (tj.Diagonal(VECTOR),))[1],
            lambda a: tj.linearize(product, a)[1](a),
            lambda a: tj.tangents.project(a, tj.Outer(VECTOR, VECTOR)),
            lambda a: tj.tangents.restructure(a, tj.Diagonal(VECTOR)),
            lambda a: tj.grad(loss)(a),
        ]
    for i, call in enumerate(calls):
        with tj.densify("error"):
            call(kind(VECTOR))
            program = str(jax.make_jaxpr(call)(kind(VECTOR)))
        assert f"[{N},{N}]" not in program, i


@pytest.mark.parametrize(
    "thin",
    [
        tj.Outer(jnp.stack([VECTOR, VECTOR**2], 1), jnp.stack([VECTOR, VECTOR], 1)),
        tj.Outer(VECTOR, VECTOR**2),
        tj.Diagonal(VECTOR),
        tj.tangents.Sum(tj.Outer(VECTOR, VECTOR), tj.Scaled(tj.Diagonal(VECTOR), 3.0)),
        tj.Scaled(tj.tangents.Sum(tj.Outer(VECTOR, VECTOR**2), tj.Zero((N, N))), -0.5),
    ],
    ids=["columns", "vectors", "diagonal", "sum", "nested"],
)
@CLASSES
def test_thin_cotangents_and_tangents_become_fields_without_a_dense_array(kind, thin):
    a, dense = kind(VECTOR), thin.to_dense()
    with tj.densify("error"):
        got = tj.tangents.pullback_of_destructure(a)(thin)
        moved = None if kind is Reflection else tj.tangents.pushforward_of_restructure(a)(thin)
    want = jax.vjp(lambda a: a.to_dense(), a)[1](dense)[0]
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-12), got, want)
    if moved is not None:
        scale = 1 if kind is Entries else 2
        np.testing.assert_allclose(moved.d * scale, jnp.diagonal(dense), rtol=1e-12)


@pytest.mark.parametrize("columns", [1, 2])
def test_the_sides_of_a_thin_cotangent_are_not_exchanged(columns):
    a = Crossed(jnp.arange(1.0, 3.0), jnp.arange(2.0, 5.0))
    left, right = jnp.cos(jnp.arange(2.0 * columns)), jnp.sin(jnp.arange(3.0 * columns))
    thin = tj.Outer(left.reshape(2, columns), right.reshape(3, columns))
    with tj.densify("error"):
        got = tj.tangents.pullback_of_destructure(a)(thin)
    want = jax.vjp(lambda a: a.to_dense(), a)[1](thin.to_dense())[0]
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=1e-12), got, want)


def test_a_complex_multiple_is_pulled_back_whole():
    """Its real part is not that of what is multiplied."""
    thin = tj.Scaled(jnp.full((N, N), 1 + 2j), 1j)
    with tj.densify("allow"):
        got = tj.tangents.pullback_of_destructure(Entries(VECTOR))(thin)
    np.testing.assert_allclose(got.d, -2.0 * jnp.ones(N), rtol=1e-12)


def test_a_tangent_that_is_none_is_refused_without_a_dense_array():
    a = Entries(VECTOR)
    with tj.densify("error"), pytest.raises(tj.errors.CotangentError, match="not tangent"):
        tj.jvp(lambda a: a @ VECTOR, (a,), (tj.Outer(VECTOR, VECTOR),))


def test_the_default_maps_speak_where_they_form_an_array():
    a = Entries(VECTOR)
    masked = tj.tangents.Masked(tj.Outer(VECTOR, VECTOR), "lower")
    with tj.densify("error"), pytest.raises(tj.NoRuleError, match="pullback_of_destructure"):
        tj.tangents.pullback_of_destructure(a)(masked)
    with tj.densify("error"), pytest.raises(tj.NoRuleError, match="pushforward_of_destructure"):
        tj.tangents.project(Reflection(VECTOR), tj.Outer(VECTOR, VECTOR))
