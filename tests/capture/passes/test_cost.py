"""What every equation does, loops as often as they run."""

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

import tanjax as tj
from tanjax.capture.passes import Cost

pytestmark = pytest.mark.core


def table(f, *args):
    return tj.programs.passes.cost(tj.capture(f)(*args))


A, X = jnp.eye(8) * 2, jnp.ones(8)


def test_product_costs_two_operations_per_entry_and_column():
    """A product does two operations for each entry and column, and reads its arrays."""
    rows = list(table(lambda a, x: a @ (a @ x), A, X))
    assert [row.flops for row in rows] == [128, 128]
    assert rows[0].bytes == 8 * (64 + 8 + 8)
    assert all(row.name == "dot_general" and row.type == "f64[8]" for row in rows)
    assert all("test_cost.py" in row.source for row in rows)


def test_loops_run_as_often_as_they_do():
    """A body has rows of its own, which sum up to the cost of the loop."""

    def f(a, x):
        inner = lambda c, _: (a @ c, None)
        outer = lambda c, _: (tj.scan(inner, c, None, length=5)[0], None)
        return jax.lax.scan(outer, x, None, length=3)[0]

    found = table(f, A, X)
    assert [(row.depth, row.name, row.times) for row in found] == [
        (0, "scan", 1), (1, "scan", 3), (2, "dot_general", 15),
    ]  # fmt: skip
    assert [row.flops for row in found] == [15 * 128] * 3
    assert found.total == Cost(15 * 128, found.rows[0].bytes, True)


def test_loop_of_unknown_length_is_marked_as_a_lower_bound():
    """A loop that decides while running counts once, and is marked."""

    def f(a, x):
        return tj.while_loop(lambda c: jnp.sum(c) < 9, lambda c: a @ c, x)

    found = table(f, A, X)
    assert not found.total.exact
    assert [row.times for row in found][1:] == [None] * (len(found) - 1)
    assert found.total.flops >= 128
    assert "≥" in str(found)
    assert "?" in str(found)


def test_dearest_branch_counts():
    """The dearest branch counts."""
    f = lambda a, x: tj.cond(x[0] > 0, lambda x: a @ (a @ x), lambda x: a @ x, x)
    found = table(f, A, X)
    (cond,) = [row for row in found if row.name == "cond"]
    assert 256 <= cond.flops < 384
    assert "true_fun" in str(found)


def test_lapack_counts():
    """XLA does not look into LAPACK: factorisations count as in textbooks, also in operations."""
    n = 64
    a = jnp.eye(n)
    (lu,) = table(tj.logdet, a)
    assert 2 * n**3 / 3 < lu.flops < 0.9 * n**3
    cholesky = table(lambda a: tj.linalg.cholesky(tj.Symmetric(a)), a).rows[-1]
    assert n**3 / 3 < cholesky.flops < 0.6 * n**3
    assert cholesky.name == "cholesky[Symmetric]"


def test_shared_factorization_lowers_the_cost():
    """The table shows it: Woodbury is prepared once."""
    d, u = jnp.ones(200), jnp.ones((200, 20))

    def f(d, u):
        k = tj.LowRankUpdate(tj.Diagonal(d), u)
        return d @ tj.solve(k, d) + tj.logdet(k)

    program = tj.capture(f)(d, u)
    shared = tj.programs.passes.share_factorizations.rewrite(program)
    before, after = (tj.programs.passes.cost(p).total.flops for p in (program, shared))
    assert after < 0.7 * before


def test_lost_structure():
    """Where an array becomes dense, and in which line."""
    with tj.densify("allow"):
        found = table(lambda d: tj.linalg.svd(tj.Tridiagonal(d[1:], d, d[1:])).S, X)
    (row,) = [row for row in found if row.lost]
    assert row.lost == ("Tridiagonal",)
    assert row.name == "svd[densify[Tridiagonal]]"
    assert "test_lost_structure" in row.source


def test_cost_table_prints_on_a_console_and_as_text():
    """On a console, and as text."""
    found = table(lambda a, x: a @ x, A, X)
    with (console := Console(width=100, file=None)).capture() as captured:
        console.print(found)
    assert "dot_general" in captured.get()
    assert "total" in repr(found)
    assert len(found) == 1


def test_cost_of_a_function_is_refused():
    with pytest.raises(tj.errors.CaptureError, match=r"tj\.capture"):
        tj.programs.passes.cost(lambda x: x)
