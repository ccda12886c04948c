"""What numbers too small for their dtype do: errors are bounds, and no flag is silent.

Each law that follows errors is compared with float64: operands are moved by as much as they may be
off, and the result may move by no more than the law says. Each flag that stays down is compared
with float64, too: the result has all its digits.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tanjax.scale.graph._build import build
from tanjax.scale.laws._law import LAWS, vanish_of
from tanjax.scale.laws._vanish import HARMFUL, Operand

pytestmark = pytest.mark.core

ENTRYWISE = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y, "square": lambda x: lax.square(x),
    "sqrt": lambda x: lax.sqrt(lax.abs(x)),
    "rsqrt": lambda x: lax.rsqrt(lax.abs(x)), "cbrt": lambda x: lax.cbrt(x),
    "exp": lambda x: lax.exp(x), "exp2": lambda x: lax.exp2(x), "expm1": lambda x: lax.expm1(x),
    "log": lambda x: lax.log(lax.abs(x)), "log1p": lambda x: lax.log1p(lax.abs(x)),
    "sin": lambda x: lax.sin(x), "cos": lambda x: lax.cos(x), "tanh": lambda x: lax.tanh(x),
    "logistic": lambda x: lax.logistic(x),
    "erf": lambda x: lax.erf(x), "erfc": lambda x: lax.erfc(x),
    "atan": lambda x: lax.atan(x), "asinh": lambda x: lax.asinh(x), "neg": lambda x: lax.neg(x),
    "abs": lambda x: lax.abs(x),
    "integer_pow": lambda x: lax.integer_pow(x, 3), "max": lambda x, y: lax.max(x, y),
    "min": lambda x, y: lax.min(x, y), "select_n": lambda x, y: lax.select(x > y, x, y),
}  # fmt: skip
SUMS = {
    "reduce_sum": lambda x: jnp.sum(x),
    "cumsum": lambda x: jnp.cumsum(x),
    "dot_general": lambda x, y: lax.dot(x, y),
    "fft": lambda x: jnp.fft.fft(x),
    "sort": lambda x: jnp.sort(x),
    "reduce_max": lambda x: jnp.max(x),
    "pad": lambda x: jnp.pad(x, 2),
    "reduce_window_sum": lambda x: lax.reduce_window(
        x, np.array(0, x.dtype), lax.add, (3,), (1,), "VALID"
    ),
    "scatter-add": lambda x, y: jnp.asarray(x).at[jnp.zeros(y.shape, int)].add(y),
    "conv_general_dilated": lambda x, y: jnp.convolve(x, y),
}
PROGRAMS = ENTRYWISE | SUMS
OF_ABSOLUTES = ("log1p", "sqrt", "rsqrt", "log")  # each program takes the absolute value first


def node_of(name, program, args):
    """The equation of a primitive in a program."""
    nodes = [n for n in build(jax.make_jaxpr(program)(*args)).walk() if n.primitive == name]
    assert nodes, f"{name} is not in the program"
    return nodes[0]


def drawn(rng, count, spread):
    """Arrays of numbers of either sign around a random magnitude."""
    centre = rng.uniform(-spread, spread)
    return [rng.normal(size=12) * 2.0 ** (centre + rng.uniform(-4, 4, 12)) for _ in range(count)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_move_by_no_more_than_the_law_says(name):
    """Where the law knows a bound at all: of `rsqrt` none, if an operand may be zero."""
    program, rng, known = PROGRAMS[name], np.random.default_rng(len(name)), 0
    count = program.__code__.co_argcount
    with jax.enable_x64(True):
        for _ in range(40):
            args = drawn(rng, count, 3 if "exp" in name else 20)
            errors = [rng.uniform(-60, -6) + np.log2(np.abs(x).max()) for x in args]
            node = node_of(name, program, args)
            sizes = [np.log2(np.abs(x)) for x in args]
            operands = [
                Operand(e, s.min() - 0.01, s.max() + 0.01, name in OF_ABSOLUTES or (x > 0).all())
                for x, e, s in zip(args, errors, sizes, strict=True)
            ]
            true = np.asarray(program(*args))
            high = np.log2(np.abs(true).max() + 1e-300)
            bound = vanish_of(node).error(node, operands, high)
            if not bound < np.inf:
                continue
            known += 1
            for sign in (1, -1, rng.uniform(-1, 1, 12)):
                moved = [x + sign * 2.0**e for x, e in zip(args, errors, strict=True)]
                if name in OF_ABSOLUTES:
                    moved = [
                        np.maximum(m, 0) if (x >= 0).all() else m
                        for m, x in zip(moved, args, strict=True)
                    ]
                off = np.abs(np.asarray(program(*moved)) - true).max()
                assert off <= 2.0**bound * (1 + 1e-6) + 1e-13 * 2.0**high
    assert known >= 5, "the law says nothing"


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("sort", "pad", "reduce_max")])
def test_a_result_whose_flag_stays_down_has_all_its_digits(name):
    """Operands near the smallest normal number, as float32 flushes them, against float64."""
    program, rng, down = PROGRAMS[name], np.random.default_rng(len(name) + 1), 0
    run = jax.jit(program)
    for _ in range(60):
        spread = 2.0 ** rng.integers(1, 7)
        args = [
            np.float32(rng.normal(size=12) * 2.0 ** rng.uniform(-spread, spread / 4, 12))
            for _ in range(program.__code__.co_argcount)
        ]
        args = [np.where(np.abs(x) < 2.0**-126, 2.0**-126, x).astype(np.float32) for x in args]
        node = node_of(name, program, args)
        vanish = vanish_of(node)
        if vanish.flag is None:
            assert vanish.moves
            return
        out = run(*args)
        inner = [np.abs(x) if name in OF_ABSOLUTES else x for x in args]
        flags = [bool(jnp.any(bad)) for bad in vanish.flag([jnp.asarray(x) for x in inner], out)]
        if any(flags):
            continue
        with jax.enable_x64(True):
            wide = [x.astype(np.float64) for x in args]
            true = np.asarray(program(*wide))
            sums = name in SUMS or name in ("add", "sub")
            sizes = np.abs(np.asarray(program(*map(np.abs, wide))) if sums else true)
        if not np.isfinite(np.asarray(out)).all():
            continue  # overflow is not its business
        down += 1
        if name in ("fft", "conv_general_dilated"):
            sizes = sizes.max()
        room = np.abs(wide[0]) + np.abs(wide[1]) if name == "sub" else np.abs(true) + sizes
        assert np.all(np.abs(np.asarray(out) - true) <= 3e-6 * room)
    assert down >= 5, "the flag is always raised"


def test_a_complex_product_whose_flag_stays_down_has_all_its_digits():
    """One of the four real products may vanish beside the others."""
    rng, multiply, down = np.random.default_rng(7), jax.jit(lambda x, y: x * y), 0
    node = node_of("mul", lambda x, y: x * y, [np.ones(12, np.complex64)] * 2)
    for size in np.linspace(-68, -46, 45):
        x, y = (np.complex64(rng.normal(size=(12, 2)) @ [1, 1j] * 2.0**size) for _ in range(2))
        out = np.asarray(multiply(x, y))
        raised = np.any(
            [*vanish_of(node).flag([jnp.asarray(x), jnp.asarray(y)], jnp.asarray(out))], axis=0
        )
        true = x.astype(complex) * y.astype(complex)
        np.testing.assert_array_less(np.abs(out - true)[~raised], 4e-7 * np.abs(true)[~raised])
        down += np.sum(~raised)
    assert 50 < down < 500


def test_harm_is_what_is_assumed_of_a_primitive_without_a_law_of_its_own():
    assert LAWS["random_gamma"].vanish is HARMFUL
    assert HARMFUL.error(None, [], 0.0) == np.inf
    assert HARMFUL.flag is None
