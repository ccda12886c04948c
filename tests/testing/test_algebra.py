"""The table of the closed algebra says what the calls give, and they give what dense ones do."""

import io
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import tanjax as tj
from tanjax.testing import _algebra
from tanjax.testing._algebra import (
    BINARY,
    DENSIFIES,
    REFUSED,
    UNARY,
    algebra,
    algebra_markdown,
    algebra_samples,
    kind_of,
)
from tanjax.testing._commands import main

SAMPLES = algebra_samples()
DENSE_OF = {name: np.asarray(tj.destructure(a)) for name, a in SAMPLES.items()}
SINGULAR = {"LowRank", "Fill", "Zero"}
BY_NUMPY = {
    "A @ B": np.matmul,
    "A + B": np.add,
    "A - B": np.subtract,
    "A * B": np.multiply,
    "solve(A, B)": np.linalg.solve,
    "c * A": lambda a: _algebra.SCALAR * a,
    "A / c": lambda a: a / _algebra.SCALAR,
    "-A": np.negative,
    "A.mT": np.transpose,
    "A.H": lambda a: a.conj().T,
    "inv(A)": np.linalg.inv,
    "kron(A, A)": lambda a: np.kron(a, a),
}


def standard_promotion():
    """Real matrices meet the complex `Hermitian`, as in users' programs."""
    return jax.numpy_dtype_promotion("standard")


@pytest.fixture(scope="module")
def cells():
    with standard_promotion():
        return algebra()


def calls(op):
    """The types and arguments of every cell of an operation that has a value."""
    if op in UNARY:
        pairs = [((a,), (x,)) for a, x in SAMPLES.items()]
    else:
        pairs = [((a, b), (x, y)) for a, x in SAMPLES.items() for b, y in SAMPLES.items()]
    divides = op in ("solve(A, B)", "inv(A)")
    found = [(names, args) for names, args in pairs if not (divides and names[0] in SINGULAR)]
    return found[::7] if op == "A - B" else found  # `A + (-B)`; a stride that meets every type


@pytest.mark.slow
@pytest.mark.parametrize("op", [*UNARY, *BINARY])
def test_every_cell(op, cells):
    """The type is that of the table, the numbers are NumPy's; eager: nothing is compiled."""
    function, expected = {**UNARY, **BINARY}[op], BY_NUMPY[op]
    with tj.densify("allow"), jax.disable_jit(), standard_promotion():
        for names, args in calls(op):
            cell = cells[op, *names]
            if cell == REFUSED:
                continue
            got = function(*args)
            assert cell in (DENSIFIES, kind_of(got)), (op, names)
            right = expected(*(DENSE_OF[name] for name in names))
            np.testing.assert_allclose(
                tj.destructure(got), right, rtol=1e-12, atol=1e-12, err_msg=f"{op} {names}"
            )


def test_every_exported_type_has_a_sample():
    left_out = {
        tj.Quantity,
        tj.tangents.Masked,
        tj.Outer,
        tj.tangents.Sum,
        tj.KroneckerSum,
    }  # sums have no algebra
    ours = {k for k in vars(tj).values() if isinstance(k, type) and issubclass(k, tj.AbstractArray)}
    assert ours - {tj.AbstractArray} - left_out == {type(a) for a in SAMPLES.values()}


def test_page_is_current(cells, monkeypatch):
    monkeypatch.setattr(_algebra, "algebra", lambda: cells)
    page = Path(__file__).parents[2] / "docs" / "pages" / "algebra.md"
    fresh = "`python -m tanjax rules --algebra --markdown > docs/pages/algebra.md`"
    assert page.read_text() == algebra_markdown(), f"stale: run {fresh}"


def test_command_prints_the_table_of_algebra(cells, monkeypatch, capsys):
    monkeypatch.setattr(_algebra, "algebra", lambda: cells)
    assert main(["rules", "--algebra", "--markdown"]) == 0
    assert capsys.readouterr().out == algebra_markdown()
    out = io.StringIO()
    assert main(["rules", "--algebra"], Console(file=out, width=400)) == 0
    assert "c·Identity" in out.getvalue()


# -- what the table does not show ------------------------------------------------------------------


def test_blocks_of_other_shapes_densify_visibly():
    a = tj.BlockDiagonal(jnp.eye(1), jnp.eye(2))
    b = tj.BlockDiagonal(jnp.eye(2), jnp.eye(1))
    for call in (tj.matmul, tj.solve):
        with tj.densify("error"), pytest.raises(tj.NoRuleError, match="same blocks"):
            call(a, b)
    assert isinstance(a + b, tj.tangents.Sum)


def test_an_update_of_what_only_sums_stays_a_sum():
    """Woodbury would divide by a base that is a sum as by a dense matrix."""
    update = tj.LowRankUpdate(tj.Toeplitz(np.arange(5.0)), np.ones((3, 1)))
    total = update + tj.Diagonal(np.ones(3))
    assert isinstance(total, tj.tangents.Sum)
    np.testing.assert_allclose(tj.destructure(total), tj.destructure(update) + np.eye(3))


def test_symmetric_keeps_the_promise_only_where_both_keep_it():
    definite = tj.Symmetric(np.eye(2), definite=True)
    assert (definite + 1.0 * tj.Identity(2)).definite is False  # the number may be negative
    assert (definite + tj.Identity(2)).definite is True
    assert (definite + tj.LowRankUpdate(tj.Diagonal([1.0, 2.0]), np.ones((2, 1)))).definite is False


def test_multiples_of_the_identity_stay_multiples():
    eye, c = tj.Identity(3), jnp.asarray(0.5)
    for a, number in (
        (c * eye, 0.5),
        (eye / c, 2.0),
        (-eye, -1.0),
        (eye + c * eye, 1.5),
        (2 * (eye - c * eye), 1.0),
        (tj.inv(c * eye), 2.0),
        ((c * eye) @ (c * eye), 0.25),
    ):
        assert isinstance(a, tj.Scaled)
        assert isinstance(a.matrix, tj.Identity)
        np.testing.assert_allclose(tj.destructure(a), number * np.eye(3))


def test_kronecker_plus_a_multiple_of_the_identity_takes_the_eigenvectors():
    k = tj.Kronecker(tj.Symmetric([[2.0, 1.0], [1.0, 3.0]]), tj.Diagonal([1.0, 2.0]))
    with tj.densify("error"):
        x = tj.solve(k + 0.5 * tj.Identity(4), jnp.ones(4))
        y = tj.solve(0.5 * tj.Identity(4) + k, jnp.ones(4))
    expected = np.linalg.solve(np.asarray(tj.destructure(k)) + 0.5 * np.eye(4), np.ones(4))
    np.testing.assert_allclose(x, expected)
    np.testing.assert_allclose(y, expected)
