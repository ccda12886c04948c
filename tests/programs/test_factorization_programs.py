"""Programs that people write with factorizations: our gradients against those of plain JAX.

The same code runs on two modules: `tj` on structured arguments, and JAX on dense ones, by formulas
that need no factor whose derivative JAX lacks.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import assert_same_gradient

R = np.random.default_rng(9)


def normal(*shape):
    return jnp.asarray(R.normal(size=shape))


def definite(n):
    x = R.normal(size=(n, n))
    return jnp.asarray(x @ x.T / n + np.eye(n))


def test_pca_loss():
    """What two principal components leave out, of data whose other variances are equal."""
    x = jnp.asarray(np.linalg.qr(R.normal(size=(8, 4)))[0]) * jnp.array([3.0, 2.0, 1.0, 1.0])

    def ours(x):
        v = tj.eigh(tj.Symmetric(x.T @ x, "mean")).eigenvectors[:, -2:]
        return jnp.sum((x - x @ v @ v.T) ** 2)

    theirs = lambda x: jnp.sum(jnp.linalg.eigvalsh(x.T @ x)[:2])
    assert_same_gradient(ours, theirs, x)


def test_nuclear_norm_shrinkage():
    """The proximal step is the gradient of the Moreau envelope's complement: `x - grad = prox`."""
    x = jnp.asarray(R.normal(size=(5, 2)) @ R.normal(size=(2, 4)))  # three zero singular values

    def envelope(x):
        s = tj.svd(x, compute_uv=False)
        return jnp.sum(jnp.where(s > 0.5, s - 0.25, s**2))

    u, s, vh = np.linalg.svd(x, full_matrices=False)
    shrunk = (u * np.maximum(s - 0.5, 0)) @ vh
    np.testing.assert_allclose(x - jax.grad(envelope)(x) * 0.5, shrunk, atol=1e-10)
    weights = normal(5, 4)

    def prox(x):
        u, s, vh = tj.svd(x, full_matrices=False)
        return jnp.sum(weights * ((u * jnp.maximum(s - 0.5, 0)) @ vh))

    step = lambda e: (prox(x + e) - prox(x - e)) / 2e-6
    direction = normal(5, 4)
    got = jnp.sum(jax.grad(prox)(x) * direction)
    np.testing.assert_allclose(got, step(1e-6 * direction), atol=1e-7)


def test_procrustes():
    """The rotation that aligns two point clouds: the polar factor, smooth at full rank."""
    x, y = normal(6, 3), normal(6, 3)

    def ours(x):
        u, _, vh = tj.svd(x.T @ y)
        return jnp.sum((x @ (u @ vh) - y) ** 2)

    theirs = lambda x: (
        jnp.sum(x**2) + jnp.sum(y**2) - 2 * jnp.sum(jnp.linalg.svd(x.T @ y, compute_uv=False))
    )
    assert_same_gradient(ours, theirs, x)


@pytest.mark.parametrize("kind", ["definite", "LowRankUpdate", "Kronecker"])
def test_mahalanobis_likelihood(kind):
    """A Gaussian log-density of many points, by one factorisation."""
    make = {
        "definite": lambda c: tj.Symmetric(c, "mean", definite=True),
        "LowRankUpdate": lambda c: tj.LowRankUpdate(tj.Diagonal(jnp.diagonal(c)), c[:, :1]),
        "Kronecker": lambda c: tj.Kronecker(tj.Symmetric(c[:2, :2], "mean"), tj.Diagonal(c[0, :2])),
    }[kind]
    points = normal(4, 6)

    def ours(c):
        f = tj.factorize(make(jnp.abs(c)))
        return 0.5 * (f.inv_quad(points) + 6 * f.logdet())

    def theirs(c):
        a = tj.destructure(make(jnp.abs(c)))
        return 0.5 * (jnp.sum(points * jnp.linalg.solve(a, points)) + 6 * jnp.linalg.slogdet(a)[1])

    assert_same_gradient(ours, theirs, definite(4) + 1)


def test_stiefel_retraction():
    """Ascent on orthonormal frames; the retraction is the Q of a tall QR, its gradient too."""
    a, x = definite(5), jnp.asarray(np.linalg.qr(R.normal(size=(5, 2)))[0])
    loss = lambda x: jnp.trace(x.T @ a @ x)
    for _ in range(200):
        x = tj.qr(x + 0.3 * jax.grad(loss)(x)).Q
    np.testing.assert_allclose(loss(x), jnp.sum(jnp.linalg.eigvalsh(a)[-2:]), rtol=1e-6)
    start = normal(5, 2)
    assert_same_gradient(
        lambda y: loss(tj.qr(y).Q),
        lambda y: jnp.trace(jnp.linalg.solve(y.T @ y, y.T @ a @ y)),
        start,
    )


def test_condition_number_penalty():
    assert_same_gradient(
        lambda d: tj.condition_number(tj.Kronecker(tj.Diagonal(d), tj.Symmetric(A2, "mean"))),
        lambda d: jnp.max(d) / jnp.min(d) * jnp.linalg.cond(A2),
        jnp.array([3.0, 1.0, 2.0]),
    )


A2 = definite(2)


def test_ridge_regression():
    """Least squares of a stacked system; of orthogonal columns, whose singular values are equal."""
    x, y = jnp.asarray(np.linalg.qr(R.normal(size=(6, 3)))[0]), normal(6)

    def ours(x):
        stacked = jnp.concatenate([x, 0.7 * jnp.eye(3)])
        w = tj.lstsq(stacked, jnp.concatenate([y, jnp.zeros(3)]))
        return jnp.sum(jnp.sin(w))

    theirs = lambda x: jnp.sum(jnp.sin(jnp.linalg.solve(x.T @ x + 0.49 * jnp.eye(3), x.T @ y)))
    assert_same_gradient(ours, theirs, x)


def test_grassmann_distance():
    """Between the dominant eigenspaces of two matrices, whose other eigenvalues are equal."""
    other = definite(4)

    def dominant(a):
        v = tj.eigh(a).eigenvectors[:, -2:]
        return v @ v.T

    fixed = dominant(other)
    distance = jax.jit(lambda a: jnp.sum((dominant(a) - fixed) ** 2))
    q = np.linalg.qr(R.normal(size=(4, 4)))[0]
    a, e = jnp.asarray((q * np.array([1.0, 1.0, 2.0, 3.0])) @ q.T), definite(4)
    got = jnp.sum(jax.grad(distance)(a) * e)
    np.testing.assert_allclose(
        got, (distance(a + 1e-6 * e) - distance(a - 1e-6 * e)) / 2e-6, atol=1e-8
    )


def test_gaussian_divergence():
    """KL between a full and a low-rank-plus-diagonal Gaussian."""
    p, mean = definite(4), normal(4)

    def ours(q):
        model = tj.LowRankUpdate(tj.Diagonal(q["noise"]), q["loadings"])
        quad, log = tj.inv_quad_logdet(model, mean - q["mean"])
        return 0.5 * (jnp.trace(tj.solve(model, p)) + quad + log - jnp.linalg.slogdet(p)[1] - 4)

    def theirs(q):
        model = jnp.diag(q["noise"]) + q["loadings"] @ q["loadings"].T
        gap = mean - q["mean"]
        return 0.5 * (
            jnp.trace(jnp.linalg.solve(model, p))
            + gap @ jnp.linalg.solve(model, gap)
            + jnp.linalg.slogdet(model)[1]
            - jnp.linalg.slogdet(p)[1]
            - 4
        )

    q = {"noise": jnp.array([1.0, 2.0, 1.5, 0.7]), "loadings": normal(4, 2), "mean": normal(4)}
    assert_same_gradient(ours, theirs, q)


def products_always_made(text, n):
    """Products of two n-by-n matrices in a lowered program, but for those in branches."""
    square, branches, count = f"tensor<{n}x{n}xf64>", None, 0
    for line in text.splitlines():
        if branches is None and "stablehlo.case" in line:
            branches = line[: len(line) - len(line.lstrip())] + "})"
        elif branches is not None and line.startswith(branches):
            branches = None
        elif branches is None and "dot_general" in line:
            count += f"({square}, {square})" in line
    return count


@pytest.mark.parametrize(("kind", "count"), [("eigh", 2), ("svd", 3)])
def test_a_spectrum_without_ties_pays_no_product_for_them(kind, count):
    n = 12

    def loss(a, b):
        if kind == "eigh":
            w, v = tj.eigh(tj.Symmetric(a))
            return jnp.sum((v * jnp.exp(w)) @ (v.T @ b))
        u, s, vh = tj.svd(a, full_matrices=False)
        return jnp.sum((u * s) @ (vh @ b))

    lowered = jax.jit(jax.grad(loss)).lower(jnp.ones((n, n)), jnp.ones((n, 2)))
    assert products_always_made(lowered.as_text(), n) == count
