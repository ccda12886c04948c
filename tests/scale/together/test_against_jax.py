"""Random programs on random magnitudes, against plain JAX where that is right, else float64.

Where every number of a program fits in float32, values and gradients must have the bits of
`jax.jit`. Where some do not, but the results do, they must be as exact as float32 allows: the error
is compared with that of runs in float64 in which every result is shaken by a rounding error. Only
where some number cannot be held may there be a warning.

A program is a list of steps, each an operation and the places of the earlier results it reads.
`wide` runs its jaxpr equation by equation in float64 and keeps every number.
"""

import functools
import warnings
from typing import NamedTuple

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings, strategies as st
from jax import lax

import tanjax as tj
from tanjax._compat import scan_counts

pytestmark = pytest.mark.core

ULPS = 8  # of the results
NOISE = 8  # times the largest error of the shaken runs, which are few
SPREAD = 0.6  # of what an exponent holds, for the numbers of one array: there are others beside it

SIZE = 4

# -- operations: of (operands, constant), on arrays of any dtype and of shape () or (SIZE,) -----


def _vector(x):
    return x if x.ndim else jnp.broadcast_to(x, (SIZE,))


def _scalar(x):
    return x[1] if x.ndim else x


def _scan(a, b, c):
    carry, rows = lax.scan(lambda s, r: (s * r / c + r, s * r), _scalar(a), _vector(b))
    return carry + rows


def _backward_scan(a, b, c):
    return lax.scan(lambda s, r: (s * c - r, s / r), _vector(a), _vector(b)[:2], reverse=True)[0]


def _while(a, b, c):
    step = lambda s: (s[0] * b / c, s[1] + 1)
    return lax.fori_loop(0, 3, lambda _, s: step(s), (a * b / b, 0))[0]


def _cond(a, b, c):
    return lax.cond(_scalar(a) > _scalar(b), lambda x, y: x * y / c, lambda x, y: x + y, a, b)


def _checkpoint(a, b, c):
    return jax.checkpoint(lambda x, y: jnp.sqrt(x * x + y * y) * c)(a, b)


@jax.custom_jvp
def _hypotenuse(a, b):
    return jnp.sqrt(a * a + b * b)


@_hypotenuse.defjvp
def _(primals, tangents):
    (a, b), (s, t) = primals, tangents
    h = _hypotenuse(a, b)
    return h, (a * s + b * t) / h


UNARY = {
    "neg": lambda a, c: -a,
    "abs": lambda a, c: abs(a),
    "square": lambda a, c: lax.square(a),
    "cube": lambda a, c: a**3,
    "sqrt": lambda a, c: jnp.sqrt(abs(a)),
    "rsqrt": lambda a, c: lax.rsqrt(abs(a)),
    "cbrt": lambda a, c: lax.cbrt(a),
    "reciprocal": lambda a, c: 1 / a,
    "inverse_square": lambda a, c: a**-2,
    "power": lambda a, c: abs(a) ** 1.5,
    "exp": lambda a, c: jnp.exp(-abs(a / c)),
    "log": lambda a, c: jnp.log(abs(a)),
    "sin": lambda a, c: jnp.sin(a / c),
    "tanh": lambda a, c: jnp.tanh(a),
    "times": lambda a, c: a * c,
    "plus": lambda a, c: a + c,
    "over": lambda a, c: a / c,
    "of": lambda a, c: c / a,
    "sum": lambda a, c: jnp.sum(a),
    "mean": lambda a, c: jnp.mean(_vector(a)),
    "max": lambda a, c: jnp.max(a),
    "norm": lambda a, c: jnp.sqrt(jnp.sum(a * a)),
    "prod": lambda a, c: jnp.prod(_vector(a)[:2]),
    "cumsum": lambda a, c: jnp.cumsum(_vector(a)),
    "reverse": lambda a, c: _vector(a)[::-1],
    "index": lambda a, c: _vector(a)[jnp.array([0, 2, 2, 3])] * c,
    "reshape": lambda a, c: _vector(a).reshape(2, 2).T.reshape(SIZE),
    "softmax": lambda a, c: jax.nn.softmax(_vector(a / c)),
    "logsumexp": lambda a, c: jax.nn.logsumexp(_vector(a / c)),
}
BINARY = {
    "add": lambda a, b, c: a + b,
    "sub": lambda a, b, c: a - b,
    "mul": lambda a, b, c: a * b,
    "div": lambda a, b, c: a / b,
    "product_over": lambda a, b, c: a * a / b,
    "maximum": lambda a, b, c: jnp.maximum(a, b),
    "minimum": lambda a, b, c: jnp.minimum(a, b),
    "where": lambda a, b, c: jnp.where(a > b, a * c, b),
    "dot": lambda a, b, c: _vector(a) @ _vector(b),
    "outer": lambda a, b, c: (_vector(a)[:, None] * _vector(b)) @ _vector(a),
    "concatenate": lambda a, b, c: jnp.concatenate([_vector(a)[:1], _vector(b)[1:]]),
    "scatter": lambda a, b, c: _vector(a).at[jnp.array([0, 2])].add(_vector(b)[:2] * c),
    "update": lambda a, b, c: lax.dynamic_update_slice(_vector(a), _vector(b)[:2], (1,)),
    "jit": lambda a, b, c: jax.jit(lambda x, y: x * y / c)(a, b),
    "checkpoint": _checkpoint,
    "custom": lambda a, b, c: _hypotenuse(_scalar(a), _scalar(b)),
    "cond": _cond,
    "scan": _scan,
    "backward_scan": _backward_scan,
    "loop": _while,
}


class Step(NamedTuple):
    """One operation, its operands as distances back from the latest result, and its constant."""

    name: str
    operands: tuple[int, ...]
    constant: float


@st.composite
def steps(draw):
    name = draw(st.sampled_from([*UNARY, *BINARY, *BINARY]))  # twice: what has two operands
    count = 1 if name in UNARY else 2
    operands = tuple(draw(st.integers(1, 6)) for _ in range(count))
    return Step(name, operands, draw(constants))


def _number(power, digits):
    """A number of float32, so that it is the same in float64."""
    return float(np.float32(digits * 10.0**power))


constants = st.builds(_number, st.integers(-30, 30), st.sampled_from([1.0, 2.5, 3.3, 7.7]))
programs = st.lists(steps(), min_size=2, max_size=12).map(tuple)
powers = st.integers(-30, 30)


@functools.cache
def results(program):
    """The function of three arrays that returns every result of a program."""

    def run(*inputs):
        values = list(inputs)
        for name, operands, constant in program:
            given = [values[-min(d, len(values))] for d in operands]
            if name in BINARY and name != "outer" and given[0].ndim != given[1].ndim:
                given = [_vector(x) for x in given]
            values.append({**UNARY, **BINARY}[name](*given, constant))
        return values[len(inputs) :]

    return run


def inputs(powers_of_ten, seed, dtype=np.float32):
    """Two vectors and a scalar with random digits and signs."""
    random = np.random.default_rng(seed)
    digits = [random.uniform(0.5, 2.0, shape) for shape in ((SIZE,), (SIZE,), ())]
    signs = [random.choice([-1.0, 1.0, 1.0], np.shape(d)) for d in digits]
    return [
        np.asarray(s * d * 10.0**p, dtype)
        for s, d, p in zip(signs, digits, powers_of_ten, strict=True)
    ]


# -- in a wide range --------------------------------------------------------------------------


class Wide(NamedTuple):
    """What a run in float64 has found: the results; and per variable every number it ever held."""

    outputs: list
    seen: list


def wide(f, args, shaken=None, digits=23):
    """Run a function equation by equation in float64.

    **Arguments:** `shaken`: a random generator by which every result is moved by up to one unit in
    the last of so many binary `digits`.
    """
    args = [x.astype(np.float64) for x in args]
    closed, seen = jax.make_jaxpr(f)(*args), {}

    def keep(variable, x):
        x = np.asarray(x)
        if x.dtype.kind == "f":
            seen.setdefault(variable, []).append(x.ravel())
        return x

    def moved(x):
        x = np.asarray(x)
        if shaken is None or x.dtype.kind != "f":
            return x
        return x * (1 + shaken.uniform(-1, 1, x.shape) * 2.0**-digits)

    def run(jaxpr, consts, args):
        inner = getattr(jaxpr, "jaxpr", jaxpr)
        env = dict(zip(inner.constvars, consts, strict=True))
        env.update((v, keep(v, x)) for v, x in zip(inner.invars, args, strict=True))
        read = lambda v: v.val if hasattr(v, "val") else env[v]
        for eqn in inner.eqns:
            out = _equation(eqn, [read(v) for v in eqn.invars], run)
            out = out if _is_call(eqn) else map(moved, out)
            env.update((v, keep(v, x)) for v, x in zip(eqn.outvars, out, strict=True))
        return [read(v) for v in inner.outvars]

    with np.errstate(all="ignore"):
        outputs = run(closed, closed.consts, list(map(moved, args)))
    return Wide([np.asarray(x) for x in outputs], [np.concatenate(x) for x in seen.values()])


def _is_call(eqn):
    return any(k in eqn.params for k in ("jaxpr", "call_jaxpr", "branches", "body_jaxpr"))


def _equation(eqn, args, run):
    p, name = eqn.params, eqn.primitive.name
    consts = lambda j: getattr(j, "consts", ())
    if name == "cond":
        branch = p["branches"][int(np.clip(args[0], 0, len(p["branches"]) - 1))]
        return run(branch, consts(branch), args[1:])
    if name == "while":
        test, body = p["cond_jaxpr"], p["body_jaxpr"]
        first, second = p["cond_nconsts"], p["body_nconsts"]
        tested, fixed = args[:first], args[first : first + second]
        state = args[first + second :]
        while run(test, consts(test), [*tested, *state])[0]:
            state = run(body, consts(body), [*fixed, *state])
        return state
    if name == "scan":
        return _scan_equation(p, args, run)
    for key in ("jaxpr", "call_jaxpr"):
        if key in p:
            return run(p[key], consts(p[key]), args)
    out = eqn.primitive.bind(*map(jnp.asarray, args), **p)
    return out if eqn.primitive.multiple_results else [out]


def _scan_equation(p, args, run):
    n, m = scan_counts(p)
    fixed, carry, xs, rows = args[:n], args[n : n + m], args[n + m :], []
    order = range(p["length"])
    for i in reversed(order) if p["reverse"] else order:
        out = run(p["jaxpr"], p["jaxpr"].consts, [*fixed, *carry, *[x[i] for x in xs]])
        carry = out[:m]
        rows.append(out[m:])
    rows = rows[::-1] if p["reverse"] else rows
    return [*carry, *(np.stack(column) for column in zip(*rows, strict=True))]


# -- the comparison --------------------------------------------------------------------------------


def fits(x, dtype):
    """Whether every number is zero or normal in a dtype."""
    info, size = jnp.finfo(dtype), np.abs(x)
    return bool(np.all((size == 0) | ((size >= info.smallest_normal) & (size <= 0.99 * info.max))))


def can_be_held(x, dtype, spread):
    """Whether some exponent holds all numbers, with room to spare."""
    size, info = np.abs(x), jnp.finfo(dtype)
    size = size[size != 0]
    most = 2.0 ** (spread * (info.maxexp - info.minexp))
    return not size.size or bool(1e-290 < size.min() <= size.max() < min(1e290, size.min() * most))


def left_the_range(plain, exact):
    """Whether XLA has joined denominators (`x / y / z`) to a number that the program has not."""
    return bool(np.any((np.isfinite(plain) != np.isfinite(exact)) | ((plain == 0) & (exact != 0))))


def with_gradient(program, args):
    """The last results of a program that fit in the dtype, and a gradient that does."""
    dtype, run = args[0].dtype, results(program)
    outputs = wide(run, args).outputs
    places = [i for i, x in enumerate(outputs) if fits(x, dtype) and np.any(x)][-2:]
    if not places:
        return None
    loss = lambda *a: jnp.sum(run(*a)[places[-1]])
    with np.errstate(all="ignore"):
        slopes = wide(jax.grad(loss, (0, 1, 2)), args).outputs
        sizes = [np.max(np.abs(g)) for g in slopes]
    sizes = [g for g in sizes if np.isfinite(g) and g]
    if not sizes:
        return lambda *a: [run(*a)[i] for i in places]
    top = np.log10(float(jnp.finfo(dtype).max)) * 0.8
    factor = float(np.asarray(10.0 ** np.clip(-np.log10(sizes[0]).round(), -top, top), dtype))
    gradient = jax.grad(lambda *a: loss(*a) * factor, (0, 1, 2))
    return lambda *a: ([run(*a)[i] for i in places], gradient(*a))


def assert_right(program, powers, seed, dtype=np.float32, spread=SPREAD):
    """Compare one program on one set of inputs. **Returns:** which of the two laws applied."""
    args = inputs(powers, seed, dtype)
    f = with_gradient(program, args)
    if f is None:
        return "no result fits"
    exact = wide(f, args)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        results = jax.tree.leaves(tj.jit(f)(*args))
    if all(fits(x, dtype) for x in exact.seen):
        plain = jax.tree.leaves(jax.jit(f)(*args))
        if not any(map(left_the_range, plain, exact.outputs)):
            for got, want in zip(results, plain, strict=True):
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got, want)
            assert not said
            return "in range"
    if not all(can_be_held(x, dtype, spread) for x in exact.seen):
        return "cannot be held"
    assert not said, said[0].message
    digits = jnp.finfo(dtype).nmant
    shaken = [
        wide(f, args, shaken=np.random.default_rng(k), digits=digits).outputs for k in range(4)
    ]
    for i, got in enumerate(results):
        want = exact.outputs[i]
        noise = np.max([np.abs(s[i] - want) for s in shaken], axis=0)
        tolerance = NOISE * noise + ULPS * 2.0**-digits * np.abs(want)
        # What rounding alone leaves fewer than two digits of is no result. Just above the smallest
        # normal number a sum has lost terms that no exponent of a value could save.
        size, info = np.abs(want), jnp.finfo(dtype)
        normal = (size >= 2.0**6 * float(info.smallest_normal)) & (size <= 0.99 * float(info.max))
        counts = (noise <= 1e-2 * size) & (normal | (size == 0))
        error = np.abs(np.asarray(got, np.float64) - want)
        assert np.all((error <= tolerance) | ~counts), f"result {i}: {got}, exactly {want}"
    return "out of range"


# Compilation is slow, and smaller examples are found by compiling many: without `phases` they are.
@pytest.mark.slow
@settings(max_examples=15, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(programs, st.tuples(powers, powers, powers), st.integers(0, 9))
def test_random_programs(program, powers, seed):
    hypothesis.event(assert_right(program, powers, seed))


# Programs that went wrong once: (operation, operands, constant), powers of ten, seed.
FOUND = {
    "overflow to nan": ([("dot", (4, 1), 1.0), ("rsqrt", (1,), 1.0)], (28, 21, 25), 2),
    "underflow in a loop": (
        [("backward_scan", (4, 4), 2.5e-14), ("of", (3,), 3.3e26), ("sub", (3, 5), 1.0),
         ("sqrt", (6,), 1.0), ("outer", (1, 6), 1.0)],
        (-13, -19, 21), 3,
    ),
    "little room": (
        [("jit", (3, 1), 33000.0), ("rsqrt", (3,), 1.0), ("loop", (1, 2), 7.7e-27),
         ("sin", (6,), 3.3e29), ("max", (2,), 1.0), ("backward_scan", (1, 5), 1e-24)],
        (11, -22, -11), 1,
    ),
    "quotient and product by constants": (
        [("over", (5,), 7.7e-29), ("where", (1, 4), 7.7e14), ("jit", (1, 2), 3.3e-30)],
        (-24, 16, -9), 0,
    ),
    "joined denominators": (
        [("minimum", (2, 1), 2.5e-9), ("maximum", (1, 6), 3.3e-30), ("product_over", (5, 4), 1e10)],
        (1, -19, 3), 6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_programs_that_went_wrong(name):
    steps, powers, seed = FOUND[name]
    program = tuple(Step(op, places, float(np.float32(c))) for op, places, c in steps)
    assert_right(program, powers, seed, spread=0.95)


def test_the_comparison_notices_a_wrong_plan(monkeypatch):
    """Without exponents the programs above overflow; with any at all the bits are other ones."""
    program = (Step("square", (1,), 1.0), Step("div", (1, 2), 1.0))
    assert assert_right(program, (2, 2, 25), 0) == "out of range"
    with monkeypatch.context() as m:
        m.setattr(tj, "jit", jax.jit)
        with pytest.raises(AssertionError, match="result"):
            assert_right(program, (2, 2, 25), 0)
    assert assert_right(program, (2, 2, 2), 0) == "in range"
    with monkeypatch.context() as m:
        m.setattr(
            tj, "jit", lambda f: jax.jit(lambda *a: jax.tree.map(lambda x: x * 1.0000001, f(*a)))
        )
        with pytest.raises(AssertionError):
            assert_right(program, (2, 2, 2), 0)


@pytest.mark.parametrize("ulps", [0.49, 0.51, 0.99, 2.0])
def test_numbers_at_the_end_of_a_dtype_are_rounded_as_jax_does(ulps):
    """Up to half a unit beyond the largest number they become that number, then infinite."""
    with jax.enable_x64(True):
        x = np.float64(np.finfo(np.float32).max) + ulps * 2.0**104
        narrow = lambda x: x.astype(jnp.float32)
        assert tj.jit(narrow)(x) == jax.jit(narrow)(x)


@pytest.mark.parametrize("power", [-13.5, -14.5, -15.5, -24.5])
def test_small_numbers_of_a_reduced_precision_are_those_of_jax(power):
    f = lambda x: jax.lax.reduce_precision(x, 5, 10)
    x = jnp.float32(2.0**power)
    assert tj.jit(f)(x) == jax.jit(f)(x)
