"""Products in their best order, and what products and inverses are made of."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from passes_support import assert_agrees, names

pytestmark = pytest.mark.core

reassociate = tj.programs.passes.reassociate

CASES = {
    "matrices, then a vector": (lambda a, b, x: tj.matmul(tj.matmul(a, b), x), "abx",
                                "matmul matmul"),
    "written with @": (lambda a, b, x: (a @ b) @ x, "abx", "matmul matmul"),
    "from the left": (lambda x, a, b: x @ (a @ b), "xab", "matmul matmul"),
    "both ends": (lambda x, a, b, y: x @ ((a @ b) @ y), "xaby", "matmul matmul matmul"),
    "thin": (lambda a, b, u: (u @ u.T) @ (a @ b), "abu", "matmul matmul matmul"),
    "structured": (lambda a, b, d: tj.Diagonal(d) @ (a @ (b @ tj.Diagonal(d))) @ d, "abd",
                   "matmul[Diagonal] matmul matmul matmul[Diagonal]"),
    "in a loop": (lambda a, b, x: tj.fori_loop(0, 2, lambda i, x: (a @ b) @ x, x), "abx",
                  "fori_loop matmul matmul"),
    "inverse": (lambda a, x: tj.inv(a) @ x, "ax", "solve"),
    "inverse on the right": (lambda a, b: b @ tj.inv(a), "ab",
                             "transpose transpose solve transpose"),
    "row times inverse": (lambda a, x: x @ tj.inv(a), "ax", "transpose solve"),
    "inverse in a chain": (lambda a, b, x: (b @ tj.inv(a)) @ x, "abx", "solve matmul"),
    "two inverses": (lambda a, b, x: (tj.inv(a) @ tj.inv(b)) @ x, "abx", "solve solve"),
    "quadratic form": (lambda a, x: tj.linalg.quadratic_form(tj.inv(a), x), "ax", "solve matmul"),
    "logdet": (lambda a, b: tj.logdet(a @ b), "ab", "logdet logdet"),
    "slogdet": (lambda a, b: tj.linalg.slogdet(a @ b), "ab", "slogdet slogdet"),
    "slogdet of a negative factor": (lambda a, b: tj.linalg.slogdet(a @ jnp.roll(b, 1, 1)), "ab",
                                     "slogdet slogdet"),
    "logdet of an inverse": (lambda a: tj.logdet(tj.inv(a)), "a", "logdet"),
    "det": (lambda a, b: tj.det(a @ b), "ab", "det det cond det"),
    "update": (lambda d, u, x: tj.solve(tj.Diagonal(d) + u @ u.T, x), "dux",
               "solve[LowRankUpdate]"),
    "update of two": (lambda d, u, x: tj.solve(tj.Diagonal(d) + u @ x[None], x), "dux",
                      "solve[LowRankUpdate]"),
}  # fmt: skip


def multiplications(program):
    """How many multiplications the products of a program take, of dense matrices."""
    count = 0
    for equation in program:
        if equation.name in ("matmul", "dot_general") and set(equation.types) == {"Dense"}:
            first, out = equation.inputs[0].skeleton.aval, equation.outputs[0].skeleton.aval
            count += out.size * first.shape[-1]
        count += sum(map(multiplications, equation.programs.values()))
    return count


@pytest.mark.parametrize("case", CASES)
def test_products_take_the_order_that_costs_least(case, assert_rewrites, given):
    """The products are in the order that costs least; values and gradients agree."""
    f, arguments, wanted = CASES[case]
    new = assert_rewrites(reassociate, f, arguments, wanted)
    assert "inv" not in names(new)
    before = multiplications(tj.capture(f)(*(given[name] for name in arguments)))
    assert multiplications(new) < before or not before or case == "det"


UNCHANGED = {
    "best as written": (lambda a, b, x: a @ (b @ x), "abx"),
    "used twice": (lambda a, b, x: ((p := a @ b) @ x, p), "abx"),
    "a vector in between": (lambda a, b, x: (a @ x) @ b, "abx"),
    "a sum in between": (lambda a, b, x: (a @ b + b) @ x, "abx"),
    "the inverse itself": (lambda a, x: (i := tj.inv(a), i @ x), "ax"),
    "entry by entry": (lambda a, b, x: ((a @ b) * a) @ x, "abx"),
    "an inverse for more than products": (
        lambda a, b, x: ((i := tj.inv(a)) @ x, i @ b, i + b), "abx"),
    "other dtypes": (lambda a, b, x: (a.astype("float32") @ b.astype("float32")).astype(
        "float64") @ x, "abx"),
    "not square": (lambda u, d: tj.logdet(jnp.eye(4) * 9 + 0 * d[0] + u @ u.T), "ud"),
    "a thick update": (lambda d, a, x: tj.solve(tj.Diagonal(d) + a @ a.T, x), "dax"),
    "an update seen outside": (
        lambda d, u, x: (tj.solve(k := tj.Diagonal(d) + u @ u.T, x), k), "dux"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNCHANGED)
def test_reassociate_leaves_a_program_without_occasion(case, assert_rewrites):
    """The very program comes back."""
    f, arguments = UNCHANGED[case]
    assert_rewrites(reassociate, f, arguments, None)


def test_order_of_a_chain_is_the_cheapest():
    """Of the 14 orders of 5 matrices; a rewrite must save a percent."""
    draw = np.random.default_rng(0)

    @functools.cache
    def cheapest(*sizes):
        ends = sizes[0] * sizes[-1]
        return min(
            (
                cheapest(*sizes[: k + 1]) + cheapest(*sizes[k:]) + ends * sizes[k]
                for k in range(1, len(sizes) - 1)
            ),
            default=0,
        )

    for _ in range(20):
        sizes = draw.integers(1, 30, 6).tolist()
        chain = [jax.ShapeDtypeStruct(pair, np.float64) for pair in itertools.pairwise(sizes)]
        program = tj.capture(lambda *chain: functools.reduce(tj.matmul, chain))(*chain)
        assert 0.99 * multiplications(reassociate.rewrite(program)) <= cheapest(*sizes)


def test_order_of_types():
    """A Kronecker product is applied to columns one after the other, as long as they are few."""
    k = tj.Kronecker(jnp.eye(4), jnp.eye(4))
    f = lambda a, x: (k @ a) @ x
    a, x = jnp.cos(jnp.arange(256.0)).reshape(16, 16), jnp.arange(16.0)
    new = reassociate.rewrite(tj.capture(f)(a, x))
    assert names(new) == ["matmul", "matmul[Kronecker]"]
    assert_agrees(f, new, a, x)


def test_determinant_at_the_ends_of_the_range():
    """Where the factors' determinants over- and underflow, that of the product is taken."""
    a, b = 1e100 * jnp.eye(4), 1e-100 * jnp.eye(4)
    f = lambda a, b: tj.det(a @ b)
    new = reassociate.rewrite(tj.capture(f)(a, b))
    assert names(new).count("det") == 3
    np.testing.assert_allclose(new(a, b), 1.0, rtol=1e-12)


def test_determinant_of_a_singular_factor():
    """The derivative is the adjugate, as of the product."""
    a, b = jnp.diag(jnp.array([1.0, 2.0, 0.0])), jnp.eye(3) + 0.1
    f = lambda a, b: tj.det(a @ b)
    assert_agrees(f, reassociate.rewrite(tj.capture(f)(a, b)), a, b)


def test_product_of_quantities_is_left_in_its_order():
    """A product of quantities is left in its order."""
    m = tj.unit("m")
    f = lambda a, b, x: (a @ b) @ x
    args = jnp.eye(3) * m, jnp.ones((3, 3)) * m, jnp.arange(3.0) * m
    new = reassociate.rewrite(tj.capture(f)(*args))
    assert str(new(*args).unit) == str(f(*args).unit)
    np.testing.assert_array_equal(new(*args).value, f(*args).value)
