"""Programs with Toeplitz, Circulant and Permutation matrices, and the memory that they take."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import tanjax as tj

RNG = np.random.default_rng(8)


def assert_gradients_agree(structured, dense, *parameters, tolerance=1e-9):
    """Value and gradients of two forms of one loss."""
    places = tuple(range(len(parameters)))
    got, want = (jax.jit(jax.value_and_grad(f, places))(*parameters) for f in (structured, dense))
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance * np.max(np.abs(w)))
    return got


def test_a_gaussian_process_on_a_regular_grid():
    n = 40
    lags, y = jnp.arange(float(n)) / 10, jnp.asarray(RNG.normal(size=n))

    def likelihood(covariance):
        def loss(length, variance, noise):
            column = variance * jnp.exp(-lags / length)
            k = covariance(column, noise)
            return 0.5 * (y @ tj.solve(k, y) + tj.logdet(k) + n * jnp.log(2 * jnp.pi))

        return loss

    structured = lambda column, noise: (
        tj.Toeplitz.from_column(column) + tj.Scaled(tj.Identity(n), noise)
    )
    dense = lambda column, noise: (
        column[jnp.abs(jnp.arange(n)[:, None] - jnp.arange(n))] + noise * jnp.eye(n)
    )
    with tj.densify("error"):
        assert_gradients_agree(likelihood(structured), likelihood(dense), 0.7, 1.3, 0.2)


def test_deconvolution_learns_a_kernel_and_a_signal():
    m, n = 9, 6
    signal, data = jnp.asarray(RNG.normal(size=n)), jnp.asarray(RNG.normal(size=m))
    kernel = jnp.asarray(RNG.normal(size=m - n + 1))

    def structured(kernel, signal):
        blur = tj.Toeplitz(jnp.pad(kernel, (n - 1, n - 1)), (m, n))
        return jnp.sum((blur @ signal - data) ** 2)

    def dense(kernel, signal):
        return jnp.sum((jnp.convolve(kernel, signal) - data) ** 2)

    assert_gradients_agree(structured, dense, kernel, signal)


def test_yule_walker_fits_an_autoregression():
    series = jnp.asarray(np.convolve(RNG.normal(size=200), 0.8 ** np.arange(20))[:200])
    correlation = jnp.stack([jnp.mean(series[k:] * series[: 200 - k]) for k in range(6)])

    def coefficients(correlation):
        return tj.solve(tj.Toeplitz.from_column(correlation[:-1]), correlation[1:])

    want = scipy.linalg.solve_toeplitz(np.asarray(correlation[:-1]), np.asarray(correlation[1:]))
    np.testing.assert_allclose(coefficients(correlation), want, atol=1e-13)
    by_hand = lambda r: jnp.linalg.solve(r[jnp.abs(jnp.arange(5)[:, None] - jnp.arange(5))], r[1:])
    got, want = jax.jacobian(coefficients)(correlation), jax.jacobian(by_hand)(correlation)
    np.testing.assert_allclose(got, want, atol=1e-10)


def test_periodic_diffusion_by_implicit_steps():
    n = 16
    start = jnp.asarray(RNG.normal(size=n))
    laplacian = jnp.zeros(n).at[jnp.array([0, 1, n - 1])].set(jnp.array([-2.0, 1.0, 1.0]))

    def run(matrix):
        def loss(diffusivity):
            step = matrix(jnp.zeros(n).at[0].set(1) - 0.1 * diffusivity * laplacian)
            body = lambda u, _: (tj.solve(step, u), None)
            return jnp.sum(jax.lax.scan(body, start, None, length=5)[0] ** 3)

        return loss

    dense = lambda column: tj.Circulant(column).to_dense()
    assert_gradients_agree(run(tj.Circulant), run(dense), 0.7)


def test_a_pivoted_factorisation_and_a_sort():
    a = jnp.asarray(RNG.normal(size=(5, 5)))
    lu, _, order = jax.lax.linalg.lu(a)
    p = tj.inv(tj.Permutation(order))
    lower, upper = tj.Triangular(lu, unit_diagonal=True), tj.Triangular(lu, lower=False)
    with tj.densify("allow"):
        np.testing.assert_allclose(p @ (lower @ upper), a, atol=1e-14)
        np.testing.assert_allclose((p @ lower) @ upper, a, atol=1e-14)
    np.testing.assert_allclose(tj.det(p) * tj.det(upper), np.linalg.det(a), rtol=1e-12)
    x, weights = jnp.asarray(RNG.normal(size=5)), jnp.arange(5.0)
    by_matrix = lambda x: weights @ (tj.Permutation(jnp.argsort(x)) @ x)
    np.testing.assert_allclose(jax.grad(by_matrix)(x), jax.grad(lambda x: weights @ jnp.sort(x))(x))


N, K = 1040, 2  # a Toeplitz system of up to 1024 rows is formed
COLUMN = 0.9 ** np.arange(N) + (np.arange(N) == 0)
MATRICES = {
    "Toeplitz": lambda: tj.Toeplitz.from_column(jnp.asarray(COLUMN)),
    "Circulant": lambda: tj.Circulant(jnp.asarray(COLUMN)),
}
LOSSES = {
    "products": lambda a, b: jnp.sum(jnp.sin(a @ b)) + jnp.sum(jnp.sin(b.T @ a)),
    "solve": lambda a, b: jnp.sum(jnp.sin(tj.solve(a, b))),
    "slogdet": lambda a, b: tj.slogdet(a).logabsdet,
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", MATRICES)
def test_value_and_gradient_take_no_matrix(kind, loss):
    """What a compiled program needs is a few vectors per column; a matrix is 4096 of them."""
    a, b = MATRICES[kind](), jnp.asarray(RNG.normal(size=(N, K)))
    program = jax.jit(jax.value_and_grad(LOSSES[loss], (0, 1))).lower(a, b).compile()
    assert program.memory_analysis().temp_size_in_bytes < 200 * N * 8
    assert f"{N},{N}]" not in program.as_text()


@pytest.mark.parametrize(("limits", "n"), [((0, 0), 7), ((0, 1024), 9), ((256, 1024), 11)])
def test_all_ways_to_solve_agree_with_the_dense_matrix(monkeypatch, limits, n):
    """By columns of the inverse, as found definite or by LU while it runs, and by LU."""
    module = importlib.import_module("tanjax_rules.linalg.factored_toeplitz")
    monkeypatch.setattr(module, "SMALL", limits[0])
    monkeypatch.setattr(module, "FORMED", limits[1])
    b, weights = (jnp.asarray(RNG.normal(size=n)) for _ in range(2))
    dense = lambda v: v[jnp.arange(n)[:, None] - jnp.arange(n) + n - 1]
    losses = (
        lambda v, b: weights @ tj.solve(tj.Toeplitz(v), b),
        lambda v, b: weights @ jnp.linalg.solve(dense(v), b),
    )
    general = jnp.asarray(RNG.normal(size=2 * n - 1)).at[n - 1].add(3.0)
    definite = jnp.concatenate([COLUMN[n - 1 : 0 : -1], COLUMN[:n]])
    values = jnp.stack([general, definite, general + general[::-1]])
    one, all_of_them = (jax.jit(jax.value_and_grad(f, (0, 1))) for f in losses)
    mapped = jax.jit(jax.vmap(jax.value_and_grad(losses[0], (0, 1)), (0, None)))(values, b)
    for i, v in enumerate(values):
        want = jax.tree.leaves(all_of_them(v, b))
        for got in (one(v, b), jax.tree.map(lambda x, i=i: x[i], mapped)):
            for g, w in zip(jax.tree.leaves(got), want, strict=True):
                np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-9 * jnp.max(jnp.abs(w)))


def test_a_small_system_is_factorised_once():
    n, k = 96, 12
    a = tj.Toeplitz(jnp.zeros(2 * n - 1).at[n - 1].set(2.0))
    loss = lambda a, b: jnp.sum(jnp.sin(tj.solve(a, b)))
    program = jax.jit(jax.value_and_grad(loss)).lower(a, jnp.ones((n, k))).compile()
    count = lambda name: program.as_text().count(f'custom_call_target="lapack_d{name}_ffi"')
    assert (count("getrf"), count("trsm")) == (1, 4)


def test_columns_of_a_product_are_read_from_rows_apart():
    n, k = 64, 8
    a = tj.Toeplitz(jnp.ones(2 * n - 1))
    program = jax.jit(lambda a, b: a @ b).lower(a, jnp.ones((n, k))).compile()
    assert f"f64[{k},{n + 16}]" in program.as_text()
