"""What the compiled value and gradient of a structured cell does, counted and not timed.

`benchmarks/bench_structured.py` compares times with hand-written JAX; here stands what makes them:
scratch memory, factorisations and products in the optimised program.
"""

import re

import jax
import jax.numpy as jnp
import pytest

import tanjax as tj
from comparisons import wave

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
    return len(re.findall(rf'custom_call_target="lapack_s{name}_ffi"', program.as_text()))


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
