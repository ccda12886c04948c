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
from tanjax.testing import Samples

N = 4


@pytest.fixture(autouse=True)
def densify():
    """Types that have nothing but their definition become dense: that is not the subject."""
    with tj.densify("allow"):
        yield


def matrix(phase=0.3, n=N):
    return wave(jnp.zeros((n, n)), phase) + 2 * jnp.eye(n)


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


DENSE, SYMMETRIC = matrix(), tj.Symmetric(matrix())
TRIANGULAR, DIAGONAL = tj.Triangular(matrix(), lower=False), tj.Diagonal(jnp.arange(1.0, 1 + N))
TIMES, SMALL = Times(jnp.asarray(0.7), matrix()), Small(*jnp.asarray([1.0, -2.0, 3.0, 0.5]))
WOODBURY = Woodbury(jnp.arange(2.0, 2 + N), matrix()[:, :2], jnp.asarray([0.5, 1.5]))


def kind(x):
    return type(x).__name__


# -- generic rules on arguments of any type --------------------------------------------------------


def product():
    """A fresh operation `a @ b` with the rule of matrices."""
    mul = tj.operation(lambda a, b: tj.destructure(a) @ tj.destructure(b))

    @mul.natural_rule
    def mul_rule(a, b):
        return mul.primal(a, b), lambda c_bar: (c_bar @ b.mT, a.mT @ c_bar)

    return mul


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (SYMMETRIC, DENSE),
        (TRIANGULAR, tj.Symmetric(matrix(1.0))),
        (TIMES, WOODBURY),
        (WOODBURY, TRIANGULAR),
        (SMALL, SMALL.replace(a=SMALL.d)),
    ],
    ids=kind,
)
def test_a_product_rule_serves_every_type(a, b):
    assert_same_derivatives(product(), jnp.matmul, a, b)


@pytest.mark.parametrize("a", [SYMMETRIC, TRIANGULAR, TIMES, WOODBURY], ids=kind)
def test_a_rule_with_a_scalar_result_serves_every_type(a):
    bilinear = tj.operation(lambda x, a, y: x @ (a @ y))

    @bilinear.natural_rule
    def bilinear_rule(x, a, y):
        def bilinear_pullback(z_bar):
            return z_bar * (a @ y), tj.Outer(z_bar * x, y), z_bar * (a.mT @ x)

        return bilinear.primal(x, a, y), bilinear_pullback

    x, y = wave(jnp.zeros(N), 0.5), wave(jnp.zeros(N), 1.5)
    assert_same_derivatives(bilinear, lambda x, a, y: x @ (a @ y), x, a, y)


def test_a_specialised_primal_runs_under_a_generic_rule():
    ran, mul = [], product()

    @mul.implementation(Times, tj.Dense)
    def times_mul(a, b):
        ran.append(1)
        return a.alpha * (a.v @ b)

    assert_same_derivatives(mul, jnp.matmul, TIMES, matrix(1.0))
    assert ran


def test_shipped_operations_take_a_type_that_has_only_its_definition():
    for op, dense in ((tj.inv, jnp.linalg.inv), (tj.det, jnp.linalg.det)):
        assert_same_derivatives(op, dense, SMALL)
    assert_same_derivatives(tj.solve, jnp.linalg.solve, WOODBURY, matrix(0.8)[:, :2])
    gradient = tj.grad(lambda m: jnp.sum(jnp.sin(tj.destructure(m))))(SMALL)
    assert isinstance(gradient, Small)
    assert_close(tj.destructure(gradient), jnp.cos(SMALL.to_dense()))


@pytest.mark.parametrize("opted_out", [False, True])
def test_a_method_of_a_type_is_differentiated_by_a_rule_or_by_ad(opted_out):
    solve = tj.operation(lambda a, b: a.solve(b))

    @solve.natural_rule(Woodbury)
    def solve_rule(a, b):
        x = solve.primal(a, b)

        def solve_pullback(x_bar):
            w = a.solve(x_bar)
            return tj.Outer(-w, x), w

        return x, solve_pullback

    if opted_out:
        solve.opt_out(Woodbury, tj.Dense)
    assert_same_derivatives(solve, jnp.linalg.solve, WOODBURY, matrix(0.8)[:, :2])


def test_an_opt_out_holds_for_its_types_only():
    marked = tj.operation(lambda a, b: a @ b)
    marked.natural_rule(lambda a, b: (marked.primal(a, b), lambda c_bar: (None, None)))
    marked.opt_out(tj.Kronecker)
    kronecker, vector = tj.Kronecker(matrix(0.1, 2), matrix(0.5, 2)), wave(jnp.zeros(N))
    loss = lambda a, b: jnp.sum(jnp.sin(marked(a, b)))
    want = jax.grad(densely(lambda a, b: jnp.sum(jnp.sin(a @ b))), (0, 1))(kronecker, vector)
    assert_close(jax.grad(loss, (0, 1))(kronecker, vector), want)
    assert_close(
        jax.grad(loss)(DIAGONAL, vector), tj.tangents.zero_tangent(DIAGONAL)
    )  # its rule says zero


# -- structured arguments with structured results --------------------------------------------------


@tj.operation(generic=False)
def my_scale(a, s):
    """`s * a`, which keeps the type of `a`."""


for linear in (tj.Diagonal, tj.Symmetric, tj.Fill, Small):
    my_scale.implementation(linear)(lambda a, s: jax.tree.map(lambda v: s * v, a))
my_scale.implementation(Times)(lambda a, s: a.replace(alpha=s * a.alpha))


@my_scale.natural_rule
def my_scale_rule(a, s):
    def my_scale_pullback(c_bar):
        return tj.linalg.multiply(c_bar, s), jnp.sum(tj.destructure(c_bar) * tj.destructure(a))

    return my_scale.primal(a, s), my_scale_pullback


@pytest.mark.parametrize("a", [DIAGONAL, SYMMETRIC, tj.Fill(1.3, (2, 3)), TIMES, SMALL], ids=kind)
def test_a_structured_result_has_the_gradient_of_ad(a):
    """Read through the array, and read through the fields."""
    s = jnp.asarray(0.6)
    assert type(my_scale(a, s)) is type(a)
    assert_same_derivatives(my_scale, lambda a, s: s * a, a, s)

    def reads_fields(f):
        leaves = lambda a, s: jax.tree.leaves(f(a, s))
        return lambda a, s: sum(jnp.sum(wave(v) * v * v) for v in leaves(a, s))

    got, want = (jax.grad(reads_fields(f), (0, 1))(a, s) for f in (my_scale, my_scale.primal))
    if isinstance(a, tj.Symmetric):  # what is written on the stored redundancy is projected
        want = (want[0].canonical(), want[1])
    assert_close(got, want)


def test_reading_the_stored_triangle_of_a_symmetric_matrix():
    """The document's gotcha: code that reads the parent array sees what the rules see."""
    s = jnp.asarray(0.6)
    reads = lambda c: jnp.sum(wave(c.data) * jnp.triu(c.data) ** 2)
    got = jax.grad(lambda a, s: reads(my_scale(a, s)), (0, 1))(SYMMETRIC, s)
    scaled = lambda a, s: reads(tj.Symmetric(s * tj.destructure(a)))
    assert_close(got, jax.grad(scaled, (0, 1))(SYMMETRIC, s))


def test_a_fill_is_counted_once_per_entry():
    """The cotangent of the one stored number is a sum; its natural form is that sum's mean."""
    a = tj.Fill(2.0, (2, 3))
    seed = wave(jnp.zeros((2, 3)))
    structural = jax.grad(lambda a: jnp.sum(seed * tj.destructure(a)))(a)
    assert_close(structural.value, jnp.sum(seed))
    assert_close(tj.tangents.natural(a, structural), tj.Fill(jnp.mean(seed), (2, 3)))
    assert_same_derivatives(tj.trace, jnp.trace, tj.Fill(2.0, (3, 3)))


# -- the recipe word for word, every pair of types -------------------------------------------------


def examples(n):
    """The real parts of the matrices with `n` rows and columns among the examples of the types."""
    for kind in tj.rules.registered_array_types():
        for x in getattr(kind, "examples", lambda _: [])(Samples(1)):
            x = jax.tree.map(jnp.real, x)
            if x.shape == (n, n) and x.dtype == float and kind is not tj.Quantity:
                yield x


def literal(a, b, seed):
    """Destructure, the dense rule, restructure: word for word."""
    dense_a, pull_a = jax.vjp(tj.destructure, a)
    dense_b, pull_b = jax.vjp(tj.destructure, b)
    c = tj.matmul(a, b)
    c_bar = jax.vjp(tj.destructure, c)[1](seed)[0]
    natural = tj.destructure(tj.tangents.pullback_of_restructure(c)(c_bar))
    return pull_a(natural @ dense_b.T) + pull_b(dense_a.T @ natural)


def plain(a, b, seed):
    return jax.vjp(lambda a, b: tj.destructure(a) @ tj.destructure(b), a, b)[1](seed)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3])
def test_recipe_gives_the_gradient_of_ad_for_every_pair(n):
    types, seed = list(examples(n)), wave(jnp.zeros((n, n)), 2.2)
    assert len(types) > 8
    run = lambda a: [[f(a, b, seed) for f in (literal, plain)] for b in types]
    for a in types:
        for b, (by_letter, by_ad) in zip(types, jax.jit(run)(a), strict=True):
            print(kind(a), kind(b))  # shown where it fails
            assert_close(by_letter, by_ad)
            moves = any(np.any(np.asarray(v) != 0) for v in jax.tree.leaves(by_ad))
            assert moves or {kind(a), kind(b)} & {"Zero", "Identity", "Permutation"}
