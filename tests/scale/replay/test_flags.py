"""Flags that a planned program raises itself, where a number may have left its range."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.scale import _plan, differ, flagged, proof
from tanjax.scale.graph._graph import Exponents, build
from tanjax.transforms import _making

pytestmark = pytest.mark.core

SMALL, LARGE = 1e-25, 1e25


def run_flagged(f, *args):
    """Whether the program as it is raises its flag, and its results."""
    graph = build(jax.make_jaxpr(f)(*args))
    run = flagged(graph, Exponents.none(graph))
    assert run is not None
    raised, results = jax.jit(run)(args)
    return bool(raised), results


def single(*numbers):
    return jnp.array(numbers, jnp.float32)


LEFT = {
    "overflow that tanh hides": (lambda x: jnp.tanh(x * x), single(1.0, LARGE)),
    "overflow in a denominator": (lambda x: 1 / (x * x), single(1.0, LARGE)),
    "underflow of a product": (lambda x: x * x + 1, single(1.0, SMALL)),
    "underflow of a quotient": (lambda x: x / 1e25, single(1.0, SMALL)),
    "underflow of a square": (lambda x: x**2, single(1.0, SMALL)),
    "what a cancellation leaves": (lambda x: (x - 1e-37) * 1e10, single(1.00001e-37)),
    "a sum of small numbers": (lambda x: jnp.sum(x), single(1e-37, -1.00001e-37)),
    "the tail of exp": (lambda x: 1 + jnp.exp(x), single(1.0, -200.0)),
    "products that a sum of products drops": (lambda x: x @ x, single(SMALL, SMALL)),
    "a kernel that drops them": (lambda x: jnp.convolve(x, x), single(SMALL, SMALL)),
    "0 / 0": (lambda x: x / x, single(0.0, 1.0)),
    "a subnormal argument": (lambda x: x + 1, single(1e-40, 1.0)),
    "an infinite argument": (lambda x: jnp.tanh(x), single(jnp.inf)),
    "a part of a call": (lambda x: jax.jit(lambda y: jnp.tanh(y * y))(x), single(LARGE)),
    "float16": (lambda x: x * x, jnp.array([1e-3], jnp.float16)),
    "conversion to float16": (lambda x: x.astype(jnp.float16), single(1e-7)),
    "a singular matrix": (lambda x: jnp.linalg.solve(jnp.diag(x), x), single(0.0, 1.0)),
    "entries of a matrix": (lambda x: jnp.linalg.solve(jnp.diag(x), x), single(1e-36, 1.0)),
    "an indefinite matrix": (lambda x: jnp.linalg.cholesky(jnp.diag(x)), single(-1.0, 1.0)),
}


@pytest.mark.parametrize(("f", "x"), LEFT.values(), ids=LEFT)
def test_a_flag_is_raised_where_a_number_leaves_its_range(f, x):
    assert run_flagged(f, x)[0]


KEPT = {
    "the slope of tanh": (jax.grad(lambda x: jnp.sum(jnp.tanh(x))), single(1.0, 2.0, 500.0)),
    "ordinary numbers": (lambda x: jnp.sum((x - x.mean()) ** 2) / x.std(), single(1.0, 2.0, 5.0)),
    "true zeros": (lambda x: x * x + jnp.sin(x) / (1 + x) + x @ x, single(0.0, 0.0)),
    "equal numbers": (lambda x: jnp.sum(x - x[0]), single(3.0, 3.0, 4.0)),
    "infinite constants": (
        lambda x: jax.nn.softmax(jnp.where(x > 0, x, -jnp.inf)),
        single(1.0, -1.0, 2.0),
    ),
    "moved numbers": (
        lambda x: jnp.sort(jnp.concatenate([x, -x]))[::-1].reshape(2, -1),
        single(1.0, 2.0),
    ),
    "integers": (lambda x: x[jnp.argmax(x)] + jnp.arange(3, dtype=x.dtype)[1], single(1.0, 2.0)),
    "an ordinary system": (
        lambda x: jnp.linalg.solve(jnp.eye(3, dtype=x.dtype) + 0.1 * x[:, None] * x, x),
        single(1.0, 2.0, 3.0),
    ),
    "float16": (lambda x: x * x - x, jnp.array([1.0, 0.25], jnp.float16)),
}  # fmt: skip


@pytest.mark.parametrize(("f", "x"), KEPT.values(), ids=KEPT)
def test_no_flag_is_raised_where_none_does(f, x):
    raised, (result,) = run_flagged(f, x)
    assert not raised
    tolerance = 10 * float(jnp.finfo(x.dtype).eps)
    np.testing.assert_allclose(np.asarray(result, float), np.asarray(f(x), float), rtol=tolerance)


UNKNOWN = {
    "a loop": lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y * y, x),
    "a branch": lambda x: jax.lax.cond(x[0] > 0, lambda y: y * y, lambda y: y, x),
    "a transform": lambda x: jnp.fft.fft(x).real,
    "complex numbers": lambda x: jnp.abs(jax.lax.complex(x, x)),
    "eigenvalues": lambda x: jnp.linalg.eigvalsh(jnp.diag(x)),
}


@pytest.mark.parametrize("f", UNKNOWN.values(), ids=UNKNOWN)
def test_what_cannot_be_told_is_not_told(f):
    graph = build(jax.make_jaxpr(f)(single(1.0, 2.0)))
    assert flagged(graph, Exponents.none(graph)) is None


def bodies(x, v, m):
    """A step in SI units: plans need exponents, and cancellations defeat every proof."""
    apart = x[None] - x[:, None]
    square = jnp.sum(apart**2, -1) + jnp.mean(x * x) * 1e-2
    force = 6.674e-11 * (m[:, None, None] * m[None, :, None]) * apart / square[..., None] ** 1.5
    v = v + 3600.0 * jnp.sum(force, 1) / m[:, None]
    return x + 3600.0 * v, v, m


def drawn(seed, length=1e11, mass=1e28):
    rng = np.random.default_rng(seed)
    draw = lambda size, *shape: jnp.asarray(size * rng.normal(size=shape), jnp.float32)
    return draw(length, 8, 3), draw(3e4, 8, 3), abs(draw(mass, 8))


def assert_agree(got, args):
    with jax.enable_x64(True):
        want = bodies(*[np.asarray(x, np.float64) for x in args])
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a, float), b, rtol=1e-4, atol=1e-5 * abs(b).max())


def test_a_planned_program_that_no_proof_covers_is_looked_at_by_its_flag(monkeypatch):
    monkeypatch.setattr(_making, "_WORTH", 0.0)
    f = tj.jit(bodies)
    for seed in range(3):
        assert_agree(f(*drawn(seed)), drawn(seed))
    plans = len(f.plans)
    monkeypatch.setattr(_making.Making, "plan", None)  # nothing more is planned or run on numbers
    monkeypatch.setattr("tanjax.scale._plan.seen_right", None)
    for seed in range(3, 8):
        assert_agree(f(*drawn(seed)), drawn(seed))
    assert len(f.plans) == plans
    assert f.plans[-1].looks > 5


def test_a_raised_flag_sends_a_call_to_a_better_plan(monkeypatch):
    """Stars in SI units, and suddenly grains of dust, for which their exponents are wrong."""
    monkeypatch.setattr(_making, "_WORTH", 0.0)
    f = tj.jit(bodies)
    for seed in range(3):
        assert_agree(f(*drawn(seed)), drawn(seed))
    (case,) = f._compiled._making.cases.values()
    entry, plans = case.entries[0], len(f.plans)
    assert entry.flagged is not None
    dust = drawn(9, 1e-8, 1e-30)
    assert_agree(f(*dust), dust)
    assert entry.flagged is None
    assert len(f.plans) > plans


def test_jaxs_own_program_keeps_its_bits_beside_its_flag(monkeypatch):
    """A cancellation is not proved; the results are those of `jax.jit`, whatever comes."""
    monkeypatch.setattr(_making, "_WORTH", 0.0)

    def energy(x):
        d = x[:, None] - x[None]
        s = 1 / (jnp.sum(d * d, -1) + jnp.eye(len(x), dtype=x.dtype)) ** 3
        return jnp.sum(jnp.triu(s * s - s, 1))

    f, plain = tj.jit(jax.value_and_grad(energy)), jax.jit(jax.value_and_grad(energy))
    rng = np.random.default_rng(0)
    given = [jnp.asarray(3 * rng.normal(size=(7, 3)), jnp.float32) for _ in range(8)]
    for x in given[:4]:
        f(x)
    monkeypatch.setattr("tanjax.scale._plan.seen_right", None)
    for x in given[4:]:
        for a, b in zip(f(x), plain(x), strict=True):
            np.testing.assert_array_equal(a, b)
    assert {p.identity for p in f.plans} == {True}


def test_flags_that_are_raised_each_time_are_given_up(monkeypatch):
    monkeypatch.setattr(_making, "_WORTH", 0.0)
    f = tj.jit(lambda x: jnp.sum(jnp.exp(-x * x) - x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(12):
            x = np.float32([1.0 + i, 200.0])
            want = np.sum(np.exp(-(np.float64(x) ** 2)) - np.float64(x))
            np.testing.assert_allclose(f(jnp.asarray(x)), want, rtol=1e-6)
    (case,) = f._compiled._making.cases.values()
    assert case.raised == _making._RAISED


def test_a_number_that_an_identity_loses_is_found_by_its_flag(monkeypatch):
    monkeypatch.setattr(_making, "_WORTH", 0.0)
    f = tj.jit(lambda x, y: (x - y) * 1e20 * 1e15 * 1e-30)
    one = jnp.float32(1.0)
    for i in range(5):
        x = jnp.float32(2.0 + i)
        np.testing.assert_allclose(f(x, one), (1.0 + i) * 1e5, rtol=1e-6)
    np.testing.assert_allclose(f(jnp.float32(1e6), one), (1e6 - 1) * 1e5, rtol=1e-6)
    tiny = jnp.float32(3e-37)
    np.testing.assert_allclose(f(tiny, tiny / 2), np.float64(tiny / 2) * 1e5, rtol=1e-6)


@pytest.mark.parametrize(
    ("f", "numbers"),
    [
        (lambda x, y, z: x / y / z, (1e30, 1e25, 1e25)),
        (lambda x, y, z: x / (y / z), (1e30, 1e25, 1e25)),
        (lambda x, y, z: (x * 1e-20) * (y * 1e-21) * z, (1e25, 1e25, 1e5)),  # with JAX 0.10
    ],
)
def test_what_xla_joins_raises_the_flag_of_the_program_that_is_returned(monkeypatch, f, numbers):
    monkeypatch.setattr(_making, "_WORTH", 0.0)
    monkeypatch.setattr(proof, "widest", lambda *_: None)
    monkeypatch.setattr(_plan, "guarded", lambda *_: frozenset())  # what we do not know of
    g, full = tj.jit(f), lambda n: jnp.full(3, n, jnp.float32)
    for k in range(4):
        g(full(1.0 + k), full(2.0 + k), full(3.0 + k))
    assert g._compiled._recent.entries[0].flagged is not None
    np.testing.assert_allclose(g(*map(full, numbers)), f(*numbers), rtol=1e-6)


def test_flags_where_dtypes_are_not_promoted():
    x = jnp.ones((3, 3), jnp.float16)
    with jax.numpy_dtype_promotion("strict"):
        assert not run_flagged(lambda x: x @ x, x)[0]


@pytest.mark.parametrize(
    ("result", "hidden", "is_other"),
    [
        (single(1.0, 0.0), single(1.0, 0.0), False),
        (single(1.0), single(1.0000001), False),
        (single(0.0), single(1e-30), True),
        (single(jnp.inf), single(1e30), True),
        (single(jnp.nan), single(jnp.nan), False),
        (single(jnp.nan), single(1.0), True),
        (jnp.array([True]), jnp.array([False]), True),
    ],
)
def test_results_that_xla_made_into_others_are_seen(result, hidden, is_other):
    assert bool(differ([result], [hidden])) is is_other


def test_programs_with_a_flag_are_compiled_once_and_not_kept_forever(monkeypatch):
    monkeypatch.setattr(_making, "_WORTH", 0.0)
    monkeypatch.setattr(_making, "_PROGRAMS", 2)
    f = tj.jit(lambda x, y: (x - y) * 3.0)
    for n in range(2, 6):
        for i in range(4):
            f(jnp.full(n, 2.0 + i, jnp.float32), jnp.ones(n, jnp.float32))
    making = f._compiled._making
    assert len(making._programs) == 2
    assert sum(case.entries[0].flagged is not None for case in making.cases.values()) == 4
