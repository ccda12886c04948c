"""The situations of ChainRulesCore.jl pull request 449, which natural tangents come from.

Each asks the same question: does a rule that knows nothing of an array's type give exactly the
gradient that AD gives of the definition?
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import assert_close, assert_same_derivatives, densely, wave

N = 4


def matrix(phase=0.3, n=N):
    return wave(jnp.zeros((n, n)), phase) + 2 * jnp.eye(n)


# -- a generic product rule on dense, symmetric and triangular arguments ---------------------------


@tj.operation
def my_mul(a, b):
    return tj.destructure(a) @ tj.destructure(b)


@my_mul.natural_rule
def my_mul_rule(a, b):
    def my_mul_pullback(c_bar):
        with tj.densify("allow"):
            return c_bar @ b.mT, a.mT @ c_bar

    return my_mul.primal(a, b), my_mul_pullback


@tj.register_array_type
class Times(tj.AbstractArray):
    """`alpha * v`, over-parametrised, with nothing but its definition."""

    alpha: jax.Array
    v: jax.Array

    def to_dense(self):
        return self.alpha * self.v


@tj.register_array_type(linear=True, injective=True)
class Small(tj.AbstractArray):
    """A 2-by-2 matrix of four numbers, as one stores it where size is known for good."""

    a: jax.Array
    b: jax.Array
    c: jax.Array
    d: jax.Array

    def to_dense(self):
        return jnp.stack([jnp.stack([self.a, self.b]), jnp.stack([self.c, self.d])])


@tj.register_array_type
class Woodbury(tj.AbstractArray):
    """`diag(s) + u diag(d) uᵀ`, by its definition."""

    s: jax.Array
    u: jax.Array
    d: jax.Array

    def to_dense(self):
        return jnp.diag(self.s) + (self.u * self.d) @ self.u.T

    def solve(self, b):
        """By the formula of Woodbury, which is AD's business only if no rule is used."""
        y, z = b / self.s[:, None], self.u / self.s[:, None]
        core = jnp.diag(1 / self.d) + self.u.T @ z
        return y - z @ jnp.linalg.solve(core, self.u.T @ y)


def woodbury():
    return Woodbury(jnp.arange(2.0, 2 + N), matrix()[:, :2], jnp.asarray([0.5, 1.5]))


FACTORS = {
    "dense": lambda: matrix(),
    "symmetric": lambda: tj.Symmetric(matrix()),
    "triangular": lambda: tj.Triangular(matrix(), lower=False),
    "times": lambda: Times(jnp.asarray(0.7), matrix()),
    "woodbury": woodbury,
}


@pytest.mark.parametrize("right", ["dense", "symmetric", "woodbury"])
@pytest.mark.parametrize("left", ["symmetric", "triangular", "times"])
def test_a_generic_product_rule(left, right):
    a, b = FACTORS[left](), FACTORS[right]()
    if right == "symmetric":
        b = b.replace(data=b.data + 1.0)
    with tj.densify("allow"):
        assert_same_derivatives(my_mul, jnp.matmul, a, b)


# -- a rule with a scalar result -------------------------------------------------------------------


@tj.operation
def bilinear(x, a, y):
    return x @ (a @ y)


@bilinear.natural_rule
def bilinear_rule(x, a, y):
    def bilinear_pullback(z_bar):
        return z_bar * (a @ y), tj.Outer(z_bar * x, y), z_bar * (a.mT @ x)

    return bilinear.primal(x, a, y), bilinear_pullback


@pytest.mark.parametrize("kind", FACTORS)
def test_a_scalar_result(kind):
    x, y = wave(jnp.zeros(N), 0.5), wave(jnp.zeros(N), 1.5)
    with tj.densify("allow"):
        assert_same_derivatives(bilinear, lambda x, a, y: x @ (a @ y), x, FACTORS[kind](), y)


# -- structured arguments with structured results --------------------------------------------------


@tj.operation(generic=False)
def my_scale(a, s):
    """`s * a`, which keeps the type of `a`."""


@my_scale.implementation(tj.Diagonal)
def _(a, s):
    return tj.Diagonal(s * a.diag)


@my_scale.implementation(tj.Symmetric)
def _(a, s):
    return tj.Symmetric(s * a.data)


@my_scale.implementation(tj.Fill)
def _(a, s):
    return tj.Fill(s * a.value, a.shape)


@my_scale.implementation(Times)
def _(a, s):
    return Times(s * a.alpha, a.v)


@my_scale.implementation(Small)
def _(a, s):
    return Small(s * a.a, s * a.b, s * a.c, s * a.d)


@my_scale.natural_rule
def my_scale_rule(a, s):
    def my_scale_pullback(c_bar):
        return tj.multiply(c_bar, s), jnp.sum(tj.destructure(c_bar) * tj.destructure(a))

    return my_scale.primal(a, s), my_scale_pullback


STRUCTURED = {
    "Diagonal": lambda: tj.Diagonal(jnp.arange(1.0, 1 + N)),
    "Symmetric": lambda: tj.Symmetric(matrix()),
    "Fill": lambda: tj.Fill(1.3, (2, 3)),
    "Times": lambda: Times(jnp.asarray(0.7), matrix()),
    "Small": lambda: Small(*jnp.asarray([1.0, -2.0, 3.0, 0.5])),
}


@pytest.mark.parametrize("kind", STRUCTURED)
def test_a_structured_result(kind):
    """Read through the array, and read through the fields: both gradients are those of AD."""
    a, s = STRUCTURED[kind](), jnp.asarray(0.6)
    with tj.densify("allow"):
        assert type(my_scale(a, s)) is type(a)
        assert_same_derivatives(my_scale, lambda a, s: s * a, a, s)

    def reads_fields(f):
        leaves = lambda a, s: jax.tree.leaves(f(a, s))
        return lambda a, s: sum(jnp.sum(wave(v) * v * v) for v in leaves(a, s))

    with tj.densify("allow"):
        got = jax.grad(reads_fields(my_scale), (0, 1))(a, s)
    want = jax.grad(reads_fields(my_scale.primal), (0, 1))(a, s)
    if kind == "Symmetric":  # what is written on the stored redundancy is projected
        want = (want[0].canonical(), want[1])
    assert_close(got, want)


def test_an_over_parametrised_matrix_with_a_specialised_method():
    """The specialised primal runs, the generic rule differentiates it, and AD agrees."""
    ran = []
    mul = tj.operation(my_mul.__wrapped__, dense=False)
    mul.natural_rule(my_mul_rule)

    @mul.implementation(Times, tj.Dense)
    def times_mul(a, b):
        ran.append(1)
        return a.alpha * (a.v @ b)

    with tj.densify("allow"):
        assert_same_derivatives(mul, jnp.matmul, Times(jnp.asarray(0.7), matrix()), matrix(1.0))
    assert ran


def test_a_fill_is_counted_once_per_entry():
    """The cotangent of the one stored number is a sum; its natural form is that sum's mean."""
    a = tj.Fill(2.0, (2, 3))
    seed = wave(jnp.zeros((2, 3)))
    structural = jax.grad(lambda a: jnp.sum(seed * tj.destructure(a)))(a)
    assert_close(structural.value, jnp.sum(seed))
    assert_close(tj.natural(a, structural), tj.Fill(jnp.mean(seed), (2, 3)))
    assert_same_derivatives(tj.trace, jnp.trace, tj.Fill(2.0, (3, 3)))


def test_a_small_matrix_of_fixed_size():
    small = Small(*jnp.asarray([1.0, -2.0, 3.0, 0.5]))
    with tj.densify("allow"):
        assert_same_derivatives(my_mul, jnp.matmul, small, small.replace(a=small.d))
        assert_same_derivatives(tj.inv, jnp.linalg.inv, small)
        assert_same_derivatives(tj.det, jnp.linalg.det, small)
        gradient = tj.grad(lambda m: jnp.sum(jnp.sin(tj.destructure(m))))(small)
    assert isinstance(gradient, Small)
    assert_close(tj.destructure(gradient), jnp.cos(small.to_dense()))


def test_a_woodbury_matrix_with_diagonal_parts():
    b, own = matrix(0.8)[:, :2], woodbury()
    with tj.densify("allow"):
        shipped = tj.LowRankUpdate(tj.Diagonal(own.s), own.u, own.d)
        for op, dense in ((tj.logdet, lambda a: jnp.linalg.slogdet(a)[1]), (tj.trace, jnp.trace)):
            assert_same_derivatives(op, dense, own)
            assert_same_derivatives(op, dense, shipped)
        assert_same_derivatives(tj.solve, jnp.linalg.solve, own, b)
        assert_same_derivatives(tj.solve, jnp.linalg.solve, shipped, b)
        solve = tj.operation(lambda a, b: a.solve(b))

        @solve.natural_rule(Woodbury)
        def solve_rule(a, b):
            x = solve.primal(a, b)

            def solve_pullback(x_bar):
                w = a.solve(x_bar)
                return tj.Outer(-w, x), w

            return x, solve_pullback

        assert_same_derivatives(solve, jnp.linalg.solve, own, b)
        solve.opt_out(Woodbury, tj.Dense)
        assert_same_derivatives(solve, jnp.linalg.solve, own, b)


def test_a_kronecker_product_with_some_rules_opted_out():
    """An opt-out changes who differentiates, never the result."""
    kronecker = tj.Kronecker(matrix(0.1, 2), matrix(0.5, 2))
    marked = tj.operation(lambda a, b: a @ b)
    marked.natural_rule(lambda a, b: (marked.primal(a, b), lambda c_bar: (None, None)))
    other = tj.Diagonal(jnp.arange(1.0, 1 + N))
    vector = wave(jnp.zeros(N))
    loss = lambda a, b: jnp.sum(jnp.sin(marked(a, b)))
    marked.opt_out(tj.Kronecker)
    want = jax.grad(densely(lambda a, b: jnp.sum(jnp.sin(a @ b))), (0, 1))(kronecker, vector)
    assert_close(jax.grad(loss, (0, 1))(kronecker, vector), want)
    assert_close(jax.grad(loss)(other, vector), tj.zero_tangent(other))  # its rule says zero
    for op, dense in ((tj.inv, jnp.linalg.inv), (tj.logdet, lambda a: jnp.linalg.slogdet(a)[1])):
        assert_same_derivatives(op, dense, kronecker)


def test_reading_the_stored_triangle_of_a_symmetric_matrix():
    """The document's gotcha: code that reads the parent array sees what the rules see."""
    a, s = tj.Symmetric(matrix()), jnp.asarray(0.6)
    reads = lambda c: jnp.sum(wave(c.data) * jnp.triu(c.data) ** 2)
    got = jax.grad(lambda a, s: reads(my_scale(a, s)), (0, 1))(a, s)
    scaled = lambda a, s: reads(tj.Symmetric(s * tj.destructure(a)))
    assert_close(got, jax.grad(scaled, (0, 1))(a, s))


# -- three recipes, every pair of types ------------------------------------------------------------


def every_type():
    m = matrix(0.7)
    return {
        "dense": m,
        "Diagonal": tj.Diagonal(jnp.arange(1.0, 1 + N)),
        "Symmetric": tj.Symmetric(m),
        "Hermitian": tj.Hermitian(m + 0.5),
        "lower": tj.Triangular(m),
        "upper": tj.Triangular(m, lower=False),
        "unit": tj.Triangular(m, unit_diagonal=True),
        "Scaled": tj.Scaled(m, 0.7),
        "Fill": tj.Fill(1.5, (N, N)),
        "Identity": tj.Identity(N),
        "Zero": tj.Zero((N, N)),
        "LowRank": tj.LowRank(m[:, :2], m[:2].T + 1),
        "LowRankUpdate": tj.LowRankUpdate(tj.Diagonal(1 + m[0] ** 2), m[:, :1]),
        "Kronecker": tj.Kronecker(m[:2, :2], m[2:, 2:]),
        "BlockDiagonal": tj.BlockDiagonal(tj.Diagonal(m[0, :2]), m[2:, 2:]),
    }


def literal(a, b, seed):
    """Destructure, the dense rule, restructure: word for word."""
    dense_a, pull_a = jax.vjp(tj.destructure, a)
    dense_b, pull_b = jax.vjp(tj.destructure, b)
    c = tj.matmul(a, b)
    c_bar = jax.vjp(tj.destructure, c)[1](seed)[0]
    natural = tj.destructure(tj.pullback_of_restructure(c)(c_bar))
    return pull_a(natural @ dense_b.T) + pull_b(dense_a.T @ natural)


def optimised(a, b, seed):
    return jax.vjp(lambda a, b: tj.destructure(tj.matmul(a, b)), a, b)[1](seed)


def plain(a, b, seed):
    return jax.vjp(lambda a, b: tj.destructure(a) @ tj.destructure(b), a, b)[1](seed)


@pytest.mark.parametrize("left", list(every_type()))
def test_three_recipes_agree_for_every_pair(left):
    types, seed = every_type(), wave(jnp.zeros((N, N)), 2.2)

    def run(a, seed):
        recipes = (literal, optimised, plain)
        return {name: [f(a, b, seed) for f in recipes] for name, b in types.items()}

    with tj.densify("allow"):
        found = jax.jit(run)(types[left], seed)
    for name, (by_letter, by_rule, by_ad) in found.items():
        for got in (by_letter, by_rule):
            try:
                assert_close(got, by_ad)
            except AssertionError as error:
                error.add_note(f"{left} @ {name}, {'literal' if got is by_letter else 'rule'}")
                raise
        assert any(np.any(np.asarray(v) != 0) for v in jax.tree.leaves(by_ad)) or (
            {left, name} <= {"Identity", "Zero"} or "Zero" in (left, name)
        )
