"""Types for matrices whose construction shows their structure."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from passes_support import assert_agrees, names

pytestmark = pytest.mark.core

promote = tj.programs.passes.promote


def closed_over(d, x):
    m = jnp.diag(d)
    return tj.scan(lambda c, _: (tj.solve(m, c) + x, None), x, None, length=2)[0]


def closed_over_by_jax(d, x):
    m = jnp.diag(d)
    return jax.lax.scan(lambda c, _: (tj.solve(m, c) + x, None), x, None, length=2)[0]


CASES = {
    "diag": (lambda d, x: tj.solve(jnp.diag(d), x), "dx", "solve[Diagonal]"),
    "tril": (lambda a, x: tj.solve(jnp.tril(a), x), "ax", "solve[Triangular]"),
    "triu": (lambda a, x: tj.solve(jnp.triu(a), x), "ax", "solve[Triangular]"),
    "tril below": (lambda a: tj.logdet(jnp.tril(a, -1) + jnp.eye(4)) + tj.trace(jnp.tril(a, -1)),
                   "a", "logdet trace[Triangular]"),
    "kron": (lambda a, d: tj.logdet(jnp.kron(a, jnp.diag(d))), "ad", "logdet[Kronecker]"),
    "eye": (lambda a: tj.solve(jnp.eye(4), a), "a", "solve[Identity]"),
    "multiple of eye": (lambda a, x: tj.solve(x[0] * jnp.eye(4), a), "ax",
                        "multiply[Identity] solve[Scaled]"),
    "a + a.T": (lambda a: tj.inv(a + a.T), "a", "inv[Symmetric]"),
    "half of both": (lambda a, x: tj.solve((a + a.T) / 2, x), "ax", "solve[Symmetric]"),
    "b @ b.T": (lambda a, x: tj.solve(a @ a.T, x), "ax", "solve[Symmetric]"),
    "b.T @ b by einsum": (lambda a: tj.logdet(jnp.einsum("ki,kj->ij", a, a)), "a",
                          "logdet[Symmetric]"),
    "outer": (lambda u, x: tj.logdet(jnp.outer(x, x) + 2.0 * jnp.eye(4)) + u[0, 0], "ux",
              "logdet[Symmetric]"),
    "kernel": (lambda x: tj.logdet(jnp.exp(-((x[:, None] - x) ** 2)) + 0.1 * jnp.eye(4)), "x",
               "logdet[Symmetric]"),
    "distances": (lambda x: tj.logdet(jnp.exp(-jnp.abs(x[:, None] - x[None])) + jnp.eye(4)), "x",
                  "logdet[Symmetric]"),
    "product": (lambda d, a: tj.matmul(jnp.diag(d), a), "da", "matmul[Diagonal]"),
    "product with @": (lambda d, a: a @ jnp.diag(d), "da", "matmul[Diagonal]"),
    "kept between": (lambda d, x: tj.solve(tj.inv(jnp.diag(d)), x), "dx",
                     "inv[Diagonal] solve[Diagonal]"),
    "dense again outside": (lambda d: tj.inv(jnp.diag(d)), "d", "inv[Diagonal]"),
    "cholesky": (lambda a, x: tj.linalg.cholesky(a @ a.T) @ x, "ax",
                 "cholesky[Symmetric] matmul[Triangular]"),
    "closed over": (closed_over, "dx", "scan[Diagonal] solve[Diagonal]"),
    "closed over by JAX": (closed_over_by_jax, "dx", "scan solve[Diagonal]"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_type_shown_by_construction(case, assert_rewrites):
    """The operation is dispatched on the type; values and gradients agree."""
    assert_rewrites(promote, *CASES[case])


UNCHANGED = {
    "nothing known": (lambda a, x: tj.solve(a, x), "ax"),
    "above the diagonal too": (lambda a, x: tj.solve(jnp.tril(a, 1), x), "ax"),
    "beside the diagonal": (lambda d, x: tj.det(jnp.diag(d[:3], 1)), "dx"),
    "shifted eye": (lambda d, x: tj.det(jnp.eye(4, k=1)) + d[0], "dx"),
    "another transpose": (lambda a, b: tj.logdet(a + b.T), "ab"),
    "a difference": (lambda a: tj.logdet(a - a.T + 9 * jnp.eye(4)), "a"),
    "two vectors": (lambda x, y, b: tj.logdet(jnp.outer(x, y) + b), "xyb"),
    "differences": (lambda x: tj.logdet((x[:, None] - x) ** 3 + 9 * jnp.eye(4)), "x"),
    "odd of differences": (lambda x: tj.det(jnp.exp(x[:, None] - x)), "x"),
    "added to rows": (lambda a, x: tj.logdet(a + a.T + x), "ax"),
    "two rows": (lambda x, y, a: tj.logdet((x[:, None] - y) ** 2 + 9 * jnp.eye(4)), "xya"),
    "eigenvalues in order": (lambda d: tj.linalg.eigh(jnp.diag(d)).eigenvalues, "d"),
    "not for an operation": (lambda a: jnp.linalg.inv(a + a.T), "a"),
    "only a product": (lambda a, x: tj.matmul(a + a.T, x), "ax"),
    "typed already": (lambda d, x: tj.solve(tj.Diagonal(d), x), "dx"),
    "cholesky of negative factors": (
        lambda a: tj.linalg.cholesky(jnp.kron(-a @ a.T, -jnp.eye(2))), "a"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNCHANGED)
def test_promote_leaves_a_program_without_occasion(case, assert_rewrites):
    """What is not known for certain is not said."""
    f, arguments = UNCHANGED[case]
    assert_rewrites(promote, f, arguments, None)


def test_one_type_for_all_uses(assert_rewrites):
    """Made once, where the matrix was made, for the loop and what comes after it."""

    def f(a, x):
        k = a @ a.T
        carry = tj.scan(lambda c, _: (tj.solve(k, c) + x, None), x, None, length=2)[0]
        return carry, tj.solve(k, x), tj.logdet(k)

    wanted = "scan[Symmetric] solve[Symmetric] solve[Symmetric] logdet[Symmetric]"
    new = assert_rewrites(promote, f, "ax", wanted)
    assert str(new).count("= Symmetric") == 1


def test_with_other_passes(given):
    """A type found by one pass is factorised by the next; all of it within `tj.jit`."""
    a, x = given["a"], given["x"]

    def f(a, x):
        k = a @ a.T
        return x @ (tj.inv(k) @ x) + tj.logdet(k)

    passes = [tj.programs.passes.reassociate, promote, tj.programs.passes.share_factorizations]
    new = functools.reduce(lambda p, apply: apply.rewrite(p), passes, tj.capture(f)(a, x))
    assert "factorize[Symmetric]" in names(new)
    assert "inv" not in names(new)
    assert_agrees(f, new, a, x)
    np.testing.assert_allclose(tj.jit(f, passes=passes)(a, x), f(a, x), rtol=1e-12)
    got = jax.grad(tj.jit(f, passes=passes, scale=False))(a, x)
    np.testing.assert_allclose(got, jax.grad(f)(a, x), rtol=1e-10, atol=1e-12)
