"""Random formulas with random prefixes are the same formulas on SI numbers; gradients too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tanjax as tj
import tanjax.numpy as tnp
from quantities import factor, si
from tanjax.testing import strategies

# How the steps of a random program act on dimensions (length, time), as pairs of exponents.
PREFIXES = {"length": ("m", "km", "cm", "mm", "µm"), "time": ("s", "ms", "min", "h")}
N = 3
# A step of a program: its value from two operands, and how many powers of their dimensions it has.
STEPS = {
    "mul": (lambda np_, a, b: a * b, 1, 1),
    "div": (lambda np_, a, b: a / b, 1, -1),
    "square": (lambda np_, a, b: a**2, 2, 0),
    "sqrt": (lambda np_, a, b: np_.sqrt(np_.abs(a)), 0.5, 0),
    "add": (lambda np_, a, b: a + b, 1, 0),
    "sub": (lambda np_, a, b: a - 0.37 * b, 1, 0),
    "maximum": (lambda np_, a, b: np_.maximum(a, b), 1, 0),
    "where": (lambda np_, a, b: np_.where(a > b, a, 2.0 * b), 1, 0),
    "cumsum": (lambda np_, a, b: np_.cumsum(a), 1, 0),
    "mean": (lambda np_, a, b: a - 1.37 * np_.mean(a), 1, 0),
    "scale": (lambda np_, a, b: -1.7 * a, 1, 0),
    "norm": (lambda np_, a, b: a / np_.linalg.norm(b), 1, -1),
    "sort": (lambda np_, a, b: np_.sort(a), 1, 0),
    "ratio": (lambda np_, a, b: np_.tanh(a / np_.max(np_.abs(a))), 0, 0),
}
ALIKE = ("add", "sub", "maximum", "where")  # both operands have one dimension


@st.composite
def programs(draw):
    """A list of steps; each takes two earlier values by position."""
    count = draw(st.integers(2, 6))
    pick = st.integers(0, 50)
    return [(draw(st.sampled_from(list(STEPS))), draw(pick), draw(pick)) for _ in range(count)]


def run(program, np_, values, dimensions):
    """Run a program; a step whose operands do not fit takes one operand twice.

    `dimensions` holds exponents, tracked here by hand: the oracle of the units.
    """
    values, dimensions = list(values), list(dimensions)
    for step, i, j in program:
        i, j = i % len(values), j % len(values)
        if step in ALIKE and dimensions[i] != dimensions[j]:
            same = [k for k, d in enumerate(dimensions) if d == dimensions[i]]
            j = same[j % len(same)]
        f, p, q = STEPS[step]
        values.append(f(np_, values[i], values[j]))
        pairs = zip(dimensions[i], dimensions[j], strict=True)
        dimensions.append(tuple(p * a + q * b for a, b in pairs))
    return values[-1], dimensions[-1]


INPUTS = [(1, 0), (1, 0), (0, 1)]
KINDS = ["length", "length", "time"]


def quantities(data):
    """Positive inputs of fixed SI values in drawn prefixes."""
    numbers = [np.abs(np.asarray(data.draw(strategies.values((N,))))) for _ in INPUTS]
    # Without ties, between entries or between inputs: rounding would decide them.
    apart = (1 + 0.1 * np.arange(N)) * np.asarray([1.0, 1.0371, 0.9173])[:, None]
    numbers = [v * factors for v, factors in zip(numbers, apart, strict=True)]
    units = [tj.unit(data.draw(st.sampled_from(PREFIXES[kind]))) for kind in KINDS]
    return numbers, [jnp.asarray(v / factor(u)) * u for v, u in zip(numbers, units, strict=True)]


def assert_close(got, want, scale=None):
    size = np.max(np.abs(want), initial=0.0) if scale is None else scale
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-9 * max(size, 1e-30))


def assert_dimension(q, dimension):
    length, time = dimension
    unit = q.unit if type(q) is tj.Quantity else tj.units.one
    assert unit.dimension is (tj.unit("m") ** length * tj.unit("s") ** time).dimension


@settings(max_examples=40)
@given(data=st.data(), program=programs())
def test_random_formulas_and_their_gradients_are_those_in_si(data, program):
    """Another prefix of the inputs is another name for the same value and the same gradient."""
    numbers, inputs = quantities(data)
    plain = list(map(jnp.asarray, numbers))
    value, dimension = run(program, jnp, plain, INPUTS)
    found, _ = run(program, tnp, inputs, INPUTS)
    assert type(found) is tj.Quantity
    assert_dimension(found, dimension)
    assert_close(si(found), value)
    weights = jnp.asarray([0.5, -1.0, 2.0])
    loss = lambda np_, *xs: np_.sum(weights * run(program, np_, xs, INPUTS)[0])
    want = jax.grad(lambda *v: loss(jnp, *v), (0, 1, 2))(*plain)
    # A gradient may cancel: zero in one prefix is rounding noise of `loss / input` in another.
    scale = max(float(jnp.max(jnp.abs(w))) for w in [*want, value / min(map(np.min, numbers))])
    gradient = tj.grad(lambda *q: loss(tnp, *q), (0, 1, 2))
    kinds = zip(inputs, KINDS, strict=True)
    other = [q.to(data.draw(st.sampled_from(PREFIXES[kind]))) for q, kind in kinds]
    for arguments in (inputs, other):
        for bar, w, own in zip(gradient(*arguments), want, INPUTS, strict=True):
            assert_dimension(bar, tuple(p - q for p, q in zip(dimension, own, strict=True)))
            assert_close(si(bar), w, scale)


@settings(max_examples=30)
@given(data=st.data(), program=programs())
def test_random_programs_of_nonsense(data, program):
    """The same programs with a sum of length and time at the end are refused."""
    _, inputs = quantities(data)
    last, dimension = run(program, tnp, inputs, INPUTS)
    wrong = inputs[0] * inputs[2] * last  # differs by a length times a time
    assert dimension != tuple(p + 1 for p in dimension)
    for f in (lambda: last + wrong, lambda: last < wrong, lambda: tnp.concatenate([last, wrong])):
        with pytest.raises(tj.UnitError):
            f()


@settings(max_examples=30)
@given(data=st.data())
def test_structured_quantities_of_random_prefix(data):
    """solve, product and trace of a random structured matrix in a random prefix."""
    kind = data.draw(st.sampled_from([tj.Diagonal, tj.Symmetric, tj.Kronecker, tj.Fill]))
    a = data.draw(strategies.arrays_of(kind, n=4))
    b = data.draw(strategies.values((4,)))
    u, v = (tj.unit(data.draw(st.sampled_from(PREFIXES[k]))) for k in ("length", "time"))
    q, r = tj.Quantity(a, u), tj.Quantity(b, v)
    product = q @ r
    assert product.unit == u * v
    assert_close(si(product), np.asarray(tj.destructure(a) @ b) * factor(u) * factor(v))
    assert_close(si(tj.trace(q)), np.trace(np.asarray(tj.destructure(a))) * factor(u))
    moved = q.to("m")
    assert type(moved.value) is type(a)
    assert_close(tj.destructure(moved.value), np.asarray(tj.destructure(a)) * factor(u))
