"""Formulas of physics in SI are right in float32, bfloat16 and float16, values and gradients."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj

DOCS = Path(__file__).parents[3] / "docs"
sys.path.append(str(DOCS))
import generate_hard_formulas  # noqa: E402
from hard_formulas import ALLOWED, FORMULAS, Formula, cells, ulps  # noqa: E402

pytestmark = [pytest.mark.core, pytest.mark.slow]

CASES = [(formula, dtype) for formula in FORMULAS for dtype in formula.dtypes]
NAMES = [f"{i}-{f}-{dtype.__name__}" for i, f in enumerate(FORMULAS) for dtype in f.dtypes]


@pytest.mark.parametrize(("formula", "dtype"), CASES, ids=NAMES)
def test_value_and_slope_are_as_exact_as_allowed(formula, dtype):
    with jax.enable_x64(False):
        value, slope = cells(formula, dtype, plain=False)
    assert value.error <= ALLOWED
    assert slope.error <= ALLOWED


def test_errors_are_seen():
    """A result that is off by nine units, or not finite, is not right."""
    right = [np.array([1.0, 3.0])]
    assert ulps([np.array([1.0, 3.0 + 9 * 2.0**-22])], right, jnp.float32) == 9
    assert ulps([np.array([1.0, np.inf])], right, jnp.float32) == np.inf
    assert ulps([np.array([1e-30])], [np.array([0.0])], jnp.float32) == np.inf
    assert ulps([np.array([0.0])], [np.array([0.0])], jnp.float32) == 0


def test_plain_arithmetic_is_not_enough():
    """The formulas are hard: without exponents, float32 overflows in Newton's law."""
    with jax.enable_x64(False):
        newton = next(f for f in FORMULAS if str(f) == "Newton's force, plain")
        value, slope = cells(newton, jnp.float32)
    assert not np.isfinite(value.plain_error)
    assert not np.isfinite(slope.plain_error)


def test_page_is_current():
    page = generate_hard_formulas.PAGE.read_text()
    assert not generate_hard_formulas.stale(page)
    assert f"keeps every cell of `tj.jit` at {ALLOWED:.0f} or less" in page


def test_stale_page_is_noticed():
    other = [*FORMULAS, Formula("another", "x", FORMULAS[0].function, (1.0,))]
    page = generate_hard_formulas.PAGE.read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate_hard_formulas, "FORMULAS", other)
        assert generate_hard_formulas.stale(page)


def test_the_largest_numbers_are_held():
    """Of numbers that no exponent holds together, the largest are kept and the tail vanishes."""
    f = lambda x: jnp.sum(x * x * 1e25) * 1e-30
    x = np.logspace(-37, 10, 48).astype(np.float32)
    exact = np.sum(x.astype(np.float64) ** 2) * 1e25 * 1e-30
    with jax.enable_x64(False):
        view = tj.scale_graph(f)(jnp.asarray(x))
        assert not np.isfinite(jax.jit(f)(x))
        assert ulps([np.float64(tj.jit(f)(jnp.asarray(x)))], [exact], jnp.float32) < 4
    assert any("no exponent of float32 holds" in note for note in view.plan.notes)
