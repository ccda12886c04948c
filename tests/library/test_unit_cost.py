"""What quantities cost, counted and not timed: operations, traces, imports, messages.

`benchmarks/bench_units.py` measures time; here is what must hold on any machine.
"""

import collections
import functools
import operator
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from comparisons import Counter
from quantities import assert_quantity, assert_same

m, km, s, N = (tj.unit(name) for name in ("m", "km", "s", "N"))
V = jnp.asarray([3.0, 1.0, 2.0])
M = jnp.eye(3) + 0.25

# -- programs --------------------------------------------------------------------------------------


def arithmetic(xp, x, y, t):
    return (x / t + y / t) * t - x % y


def motion(xp, x, y, t):
    speed = (x - y) / t
    return xp.sqrt(xp.sum(speed**2)) * t


def choices(xp, x, y, t):
    return xp.where(x < y, xp.maximum(x, y), xp.concatenate([x, y])[:3])


def angles(xp, x, y, t):
    return xp.sin(x / y) * xp.hypot(x, y) + xp.exp(-t / (t + t)) * x


def algebra(xp, x, y, t):
    a = xp.outer(x, y) + xp.eye(3) * (x @ y)
    return xp.linalg.solve(a, x * t) * xp.linalg.norm(y)


def loop(xp, x, y, t):
    if xp is tnp:
        return tj.scan(lambda c, v: (c + v * y, c), y * y, x)[0]
    return jax.lax.scan(lambda c, v: (c + v * y, c), y * y, x)[0]


PROGRAMS = [arithmetic, motion, choices, angles, algebra, loop]
program = pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
PLAIN = (V, V + 0.5, V + 1.0)
UNITFUL = (PLAIN[0] * m, PLAIN[1] * m, PLAIN[2] * s)


def primitives(jaxpr):
    """How often each primitive stands in a program, inner programs included."""
    counts = collections.Counter()
    for eqn in jaxpr.eqns:
        counts[eqn.primitive.name] += 1
        for value in jax.tree.leaves(eqn.params, is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                counts += primitives(inner)
    return counts


def optimised(f, *args):
    """How often each operation stands in an optimised program."""
    text = f.lower(*args).compile().as_text()
    names = re.findall(r"^\s*(?:ROOT )?%?\S+ = .*? ([a-z][a-z\-]*)\(", text, re.MULTILINE)
    assert names
    return collections.Counter(names)


def assert_same_program(unitful, plain):
    """Before and after optimisation; the arguments are those of the module."""
    got, expected = tj.jit(unitful), jax.jit(plain)
    assert primitives(got.trace(*UNITFUL).jaxpr) == primitives(expected.trace(*PLAIN).jaxpr)
    assert optimised(got, *UNITFUL) == optimised(expected, *PLAIN)


@program
def test_quantities_add_no_operation(f):
    assert_same_program(functools.partial(f, tnp), functools.partial(f, jnp))


@program
def test_gradients_of_quantities_add_no_operation(f):
    def gradient(xp, grad):
        return lambda *args: grad(lambda *a: f(xp, *a).sum(), (0, 1))(*args)

    assert_same_program(gradient(tnp, tj.grad), gradient(jnp, jax.grad))


@pytest.mark.parametrize(
    ("ours", "plain"),
    [(tj.jacfwd, jax.jacfwd), (tj.jacrev, jax.jacrev), (tj.hessian, tj.hessian)],
    ids=["jacfwd", "jacrev", "hessian"],
)
def test_jacobians_of_quantities_add_no_operation(ours, plain):
    """Our Hessian of plain arrays sums other zeros than JAX's, so it is compared with itself."""
    f = lambda x, y, t: (x * x * y).sum() if ours is tj.hessian else x * x * y
    assert optimised(tj.jit(ours(f)), *UNITFUL) == optimised(jax.jit(plain(f)), *PLAIN)


def test_a_mixed_prefix_is_one_multiplication():
    """And nothing at all where a unit is the other under another name."""
    trace = lambda f, *args: primitives(jax.jit(f).trace(*args).jaxpr)
    add = lambda x, y: x + y
    same = trace(add, V * m, V * m)
    assert trace(add, V * m, V * km) == same + collections.Counter(mul=1)
    assert trace(add, V * N, V * tj.unit("kg m / s2")) == same


# -- traces ----------------------------------------------------------------------------------------

PREFIXES = ("m", "km", "cm", "mm", "µm")
LAYOUTS = {
    "one": lambda f: lambda q: f(q),
    "many": lambda f: lambda q: f(q, q, q, q, q),
    "tree": lambda f: lambda q: f({"a": q, "b": [q, None, 2]}),
    "dict": lambda f: lambda q: f({name: q for name in "badce"}),
    "list": lambda f: lambda q: f([q] * 5),
    "tuple": lambda f: lambda q: f((q,) * 5),
    "keyword": lambda f: lambda q: f(V, key=q),
    "structured": lambda f: lambda q: f(tj.Diagonal(q)),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
def test_prefixes_share_one_trace(layout):
    """However the arguments are laid out, and in whatever order the prefixes come."""
    count = Counter()

    def double(*args, **kwargs):
        count()
        return jax.tree.map(lambda v: v * 2, (args, kwargs), is_leaf=tj.rules.is_structured)

    call = layout(tj.jit(double))
    for name in (*PREFIXES, *PREFIXES[::-1]):
        unit = tj.unit(name)
        got = jax.tree.leaves(call(V * unit), is_leaf=tj.rules.is_structured)
        quantities = [x for x in got if type(x) is tj.Quantity]
        assert quantities
        for x in quantities:
            dense = tj.destructure(x.to(unit).value)
            np.testing.assert_allclose(dense.sum(), 2.0 * V.sum(), rtol=1e-12)
    assert count.count == 1


def test_other_dimensions_and_shapes_are_traced_anew():
    count = Counter()
    f = tj.jit(lambda x: (count(), x * x)[1])
    for argument, traces in ((V * m, 1), (V * km, 1), (V * s, 2), (M * m, 3), (V, 4), (V * km, 4)):
        f(argument)
        assert count.count == traces


@pytest.mark.filterwarnings("ignore:.*it is not planned")
def test_compiled_functions_inside_of_transformations():
    """Many quantities in and out, mapped, differentiated and compiled once more."""
    f = tj.jit(lambda *xs: tuple(x * x for x in xs))
    xs = [V * m] * 5
    for wrap in (jax.jit, jax.vmap, tj.vmap, tj.jit):
        for got in wrap(f)(*xs):
            assert_quantity(got, "m^2", V * V)
    gradient = tj.grad(lambda x: sum(y.sum() for y in f(*[x] * 5)[1:]) + f(*[x] * 5)[0].sum())
    assert_quantity(gradient(V * m), "m", 10 * V)


def test_layouts_with_many_quantities_are_told_apart():
    """More than a few leave by another way: trees, names, order, `None`, the types of items."""
    double = lambda *args: jax.tree.map(lambda x: x * 2, args, is_leaf=tj.rules.is_structured)
    f = tj.jit(double)
    qs = [V * m, V * s, V * N, V * km]
    names, pair = ("d", "a", "c", "b"), collections.namedtuple("Pair", "left right")
    calls = [
        tuple(qs),
        tuple(qs[::-1]),
        (qs,),
        (tuple(qs),),
        (dict(zip(names, qs, strict=True)),),
        (dict(zip(sorted(names), qs, strict=True)),),
        (dict(zip(names, qs[::-1], strict=True)),),
        ([*qs[:3], V],),
        (*qs[:3], V),
        (qs + qs,),
        (pair(qs[0], None), {"l": qs, "n": 3, "b": V}, qs[1]),
    ]
    for args in calls * 2:
        got, expected = (
            jax.tree.flatten(run(*args), is_leaf=tj.rules.is_structured) for run in (f, double)
        )
        assert got[1] == expected[1]
        assert_same(got[0], expected[0])


# -- import ----------------------------------------------------------------------------------------

HEAVY = ("pint", "scipy", "matplotlib", "hypothesis", "rich", "optax", "diffrax", "optimistix")


@pytest.mark.processes
def test_import_creates_no_array_and_loads_no_heavy_module():
    """JAX knows no device of this kind, so that the first array would raise."""
    code = f"""
import sys, jax
before = set(sys.modules)
import tanjax as tj, tanjax.numpy, tanjax.lax
q = 3.0 * tj.unit("km / h")
str(q.to("m / s")), tj.units.metre * tj.units.kg
print([n for n in {HEAVY!r} if n in set(sys.modules) - before])
"""
    env = {**os.environ, "JAX_PLATFORMS": "no_such_device"}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"


# -- messages --------------------------------------------------------------------------------------

GOOD = {
    "sum": lambda x, y: x + y,
    "function": lambda x, y: tnp.add(x, y),
    "literal zero": lambda x, y: tnp.maximum(x, 0),
    "comparison": lambda x, y: x == y,
    "NumPy": lambda x, y: np.concatenate([x, y]),
    "power": lambda x, y: x**0.5,
    "item": lambda x, y: x.at[0].set(y[1]),
    "number": lambda x, y: float((x[0] / y[0]).value),
    "conversion": lambda x, y: y.to("mm").to_value(m),
    "compiled": lambda x, y: tj.jit(operator.add)(x, y),
    "loop": lambda x, y: tj.fori_loop(0, 2, lambda i, c: c + y, x),
    "branch": lambda x, y: tj.cond(True, lambda: x, lambda: y),
    "gradient": lambda x, y: tj.grad(lambda x: (x * y).sum())(x),
    "pullback": lambda x, y: tj.vjp(lambda x: x * y, x)[1](V * s),
    "lifted": lambda x, y: tj.lift(lambda a, b: jnp.sqrt(a * b))(x, y),
    "structured": lambda x, y: tj.solve(tj.Diagonal(x), y),
}


@pytest.fixture
def built():
    """The functions that build a text for an error, in the order in which they are called."""
    names = []

    def profile(frame, event, _):
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        is_builder = name in ("message", "incompatible") and file.endswith("_errors.py")
        if event == "call" and is_builder:
            names.append(name)

    sys.setprofile(profile)
    yield names
    sys.setprofile(None)


@pytest.mark.parametrize("call", GOOD.values(), ids=list(GOOD))
def test_good_calls_build_no_message(built, call):
    """The first time with these units, and when the call is known."""
    for _ in range(2):
        assert jax.tree.leaves(call(V * m, (V + 1.0) * km))
    assert built == []


def test_the_fixture_finds_messages(built):
    """A bad call must reach a builder, or the test above would prove nothing."""
    for bad in (lambda: V * m + V * s, lambda: tnp.exp(V * m), lambda: (V * m).to("s")):
        with pytest.raises(tj.UnitError):
            bad()
        assert built
        built.clear()
