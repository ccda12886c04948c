"""What compiled values and gradients do, counted and not timed.

`benchmarks/bench_structured.py` compares times with hand-written JAX; here stands what makes them:
scratch memory, factorisations and products in the optimised program.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import wave

pytestmark = pytest.mark.core

N, K = 192, 24
WORD = 4  # bytes of a float32


def normal(*shape, phase=0.3):
    return wave(jnp.zeros(shape, jnp.float32), phase)


def definite(n):
    x = normal(n, n) / n
    return tj.Symmetric(x @ x.T + jnp.eye(n, dtype=jnp.float32), definite=True)


def update(n, v=None):
    base = tj.Diagonal(jnp.linspace(1.0, 2.0, n, dtype=jnp.float32))
    return tj.LowRankUpdate(base, normal(n, 4) / n**0.5, jnp.ones(4, jnp.float32), v)


def compiled(operation, a, b):
    """The optimised value and gradient of `sum(weights * operation(a, b))` for `a`."""
    loss = lambda a, b, weights: jnp.sum(weights * operation(a, b))
    return jax.jit(jax.value_and_grad(loss)).lower(a, b, wave(b, 0.9)).compile()


def scratch(program):
    return program.memory_analysis().temp_size_in_bytes


def calls(program, name):
    """How often a routine of LAPACK is called."""
    return len(re.findall(rf'custom_call_target="lapack_[sd]{name}_ffi"', program.as_text()))


def bodies(program):
    """The text of each fused loop."""
    return re.findall(r"\n%\S+ \([^\n]*\{\n(.*?)\n\}", program.as_text(), re.DOTALL)


def test_a_gradient_of_one_column_is_written_in_one_pass():
    program = compiled(tj.matmul, definite(N), normal(N))
    assert scratch(program) <= 3 * N * WORD
    assert not re.search(rf"f32\[{N},2\]", program.as_text())  # no product of width two


def test_a_few_columns_form_no_second_matrix():
    program = compiled(tj.matmul, definite(N), normal(N, K))
    assert scratch(program) <= 4 * N * K * WORD


@pytest.mark.parametrize("shape", [(N,), (N, K)])
def test_a_definite_matrix_is_factorised_once_and_as_it_lies(shape):
    program = compiled(tj.solve, definite(N), normal(*shape))
    assert (calls(program, "potrf"), calls(program, "trsm")) == (1, 4)
    matrix = rf"f32\[{N},{N}\]"
    given, turned = matrix + r"\{1,0\} parameter", matrix + r"\{0,1\} copy\(%param"
    assert not [b for b in bodies(program) if re.search(given, b) and re.search(turned, b)]


def test_the_inverse_for_a_gradient_of_logdet_is_made_symmetric_in_its_own_memory():
    program = compiled(lambda a, b: tj.logdet(a), definite(N), normal(1))
    assert (calls(program, "potrf"), calls(program, "trsm")) == (1, 2)
    assert scratch(program) <= 1.1 * N * N * WORD


def test_a_low_rank_update_has_one_small_factorisation_for_both_directions():
    program = compiled(tj.solve, update(N), normal(N, K))
    assert (calls(program, "getrf"), calls(program, "trsm")) == (1, 4)
    assert not re.search(r" sort\(", program.as_text())  # of a permutation that is not needed
    assert scratch(program) <= 2.5 * N * K * WORD  # both solutions


def test_a_base_is_factorised_once():
    a = tj.LowRankUpdate(definite(N), normal(N, 4) / N, None, normal(N, 4, phase=1.1) / N)
    program = compiled(tj.solve, a, normal(N, K))
    assert (calls(program, "potrf"), calls(program, "getrf")) == (1, 1)


def blocks(count, m):
    eye = 3 * jnp.eye(m, dtype=jnp.float32)
    return tj.BlockDiagonal(*(normal(m, m, phase=0.1 + 0.2 * i) / m + eye for i in range(count)))


def test_equal_blocks_are_one_batch(monkeypatch):
    """Where they cannot be spread over devices."""
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    count, m = 4, 48
    program = compiled(tj.matmul, blocks(count, m), normal(N, K))
    assert not re.search(rf"f32\[{m},{K}\]", program.as_text())  # no rows of one block alone
    assert scratch(program) <= 2.1 * count * m * m * WORD
    program = compiled(lambda a, b: tj.logdet(a), blocks(count, m), normal(1))
    assert (calls(program, "getrf"), calls(program, "trsm")) == (1, 2)


def test_large_blocks_are_not_copied():
    program = compiled(tj.matmul, blocks(2, 160), normal(320, K))
    assert scratch(program) <= 4 * 320 * K * WORD


@pytest.mark.parametrize(("operation", "columns"), [(tj.matmul, 5), (tj.solve, 7)])
def test_a_band_keeps_each_shifted_right_hand_side_once(operation, columns):
    a = tj.Banded(normal(5, N).at[2].add(8.0), 2, 2)
    assert scratch(compiled(operation, a, normal(N, K))) <= columns * N * K * WORD


# -- Toeplitz and circulant matrices ---------------------------------------------------------------

ROWS = 1040  # a Toeplitz system of up to 1024 rows is formed
COLUMN = jnp.asarray(0.9 ** np.arange(ROWS) + (np.arange(ROWS) == 0))


@pytest.mark.parametrize("make", [tj.Toeplitz.from_column, tj.Circulant], ids=["real", "circulant"])
@pytest.mark.parametrize(
    "loss",
    [
        lambda a, b: jnp.sum(jnp.sin(a @ b)) + jnp.sum(jnp.sin(b.T @ a)),
        lambda a, b: jnp.sum(jnp.sin(tj.solve(a, b))),
        lambda a, b: tj.linalg.slogdet(a).logabsdet,
    ],
    ids=["products", "solve", "slogdet"],
)
def test_value_and_gradient_of_toeplitz_matrices_take_no_matrix(make, loss):
    """What a compiled program needs is a few vectors per column; a matrix is 4096 of them."""
    args = make(COLUMN), wave(jnp.zeros((ROWS, 2)))
    program = jax.jit(jax.value_and_grad(loss, (0, 1))).lower(*args).compile()
    assert scratch(program) < 200 * ROWS * 8
    assert f"{ROWS},{ROWS}]" not in program.as_text()


def test_a_small_toeplitz_system_is_factorised_once():
    a = tj.Toeplitz(jnp.zeros(191).at[95].set(2.0))
    loss = lambda a, b: jnp.sum(jnp.sin(tj.solve(a, b)))
    program = jax.jit(jax.value_and_grad(loss)).lower(a, jnp.ones((96, 12))).compile()
    assert (calls(program, "getrf"), calls(program, "trsm")) == (1, 4)


def test_columns_of_a_toeplitz_product_are_read_from_rows_apart():
    n, k = 64, 8
    a = tj.Toeplitz(jnp.ones(2 * n - 1))
    program = jax.jit(tj.matmul).lower(a, jnp.ones((n, k))).compile()
    assert f"f64[{k},{n + 16}]" in program.as_text()


# -- spectra ---------------------------------------------------------------------------------------


def of_eigh(eigh):
    def loss(a, b):
        w, v = eigh(a)
        return jnp.sum((v * jnp.exp(-w)) @ (v.T @ b))

    return loss


def of_svd(svd):
    def loss(a, b):
        u, s, vh = svd(a, full_matrices=False)
        return jnp.sum((u * jnp.log1p(s)) @ (vh @ b))

    return loss


def products_always_made(text, n):
    """Products of two n-by-n matrices in a lowered program, but for those in branches."""
    square, branches, count = f"tensor<{n}x{n}xf32>", None, 0
    for line in text.splitlines():
        if branches is None and "stablehlo.case" in line:
            branches = line[: len(line) - len(line.lstrip())] + "})"
        elif branches is not None and line.startswith(branches):
            branches = None
        elif branches is None and "dot_general" in line:
            count += f"({square}, {square})" in line
    return count


@pytest.mark.parametrize(
    ("loss", "ours", "plain", "count"),
    [
        (of_eigh, lambda a: tj.linalg.eigh(tj.Symmetric(a)), jnp.linalg.eigh, 2),
        (of_svd, tj.linalg.svd, jnp.linalg.svd, 3),
    ],
    ids=["eigh", "svd"],
)
def test_a_spectrum_without_ties_takes_no_product_and_no_scratch_for_them(loss, ours, plain, count):
    """No more scratch than JAX's own derivative, whatever is checked."""
    args = jnp.zeros((N, N), jnp.float32), jnp.zeros((N, 2), jnp.float32)
    lowered, of_jax = (jax.jit(jax.grad(loss(f))).lower(*args) for f in (ours, plain))
    assert products_always_made(lowered.as_text(), N) == count
    matrix = N * N * WORD
    assert scratch(lowered.compile()) < scratch(of_jax.compile()) + matrix / 2
