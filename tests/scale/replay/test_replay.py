"""A graph replayed at any exponents whatever computes what the program computes.

Exponents are drawn at random, not because any program would want them, but because every one of
them must be allowed for by the constraints of its equation and undone by the conversions: then
results times their powers of two are the results of the program, to the last digit or two.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import tanjax as tj
from scale_facts import exponents_at
from tanjax import _jaxprs
from tanjax.scale.assign import _assign, _problem
from tanjax.scale.graph._build import build
from tanjax.scale.replay import _replay

pytestmark = pytest.mark.core

X = jnp.array([1.5, 2.0, 3.0])
Y = jnp.array([0.3, 0.7, 2.0])


def loop(x, y):
    def body(c, a):
        c = c * a + y.sum()
        return c, jnp.exp(-c)

    return jax.lax.scan(body, x, jnp.stack([y, y * 2, x]))


def reversed_loop(x, y):
    return jax.lax.scan(lambda c, a: (c * a, c), x, jnp.stack([y, x]), reverse=True)


def unknown_loop(x, y):
    return jax.lax.while_loop(
        lambda s: s[0].sum() < 100.0 * y[2], lambda s: (s[0] * y * 3 + x, s[1] + 1), (x, 0)
    )


def loop_of_rows(x, y):
    grown = lambda a, n: jax.lax.fori_loop(0, n, lambda i, c: (c[0] * a, c[1] + c[0]), (a, y))
    return jax.vmap(grown)(x, jnp.array([0, 3, 1]))


def derivative_of_loop_of_rows(x, y):
    until = lambda a: jax.lax.while_loop(lambda c: c < 40 * y[2], lambda c: c * a + a, a)
    return jax.jvp(jax.vmap(until), (x,), (y,))


def branches(x, y):
    first = jax.lax.cond(x[0] > 1, lambda a, b: a * b, lambda a, b: a + b, x, y)
    choices = [lambda a: a, lambda a: a * a, jnp.sqrt]
    return first, jax.lax.switch(jnp.argmax(y), choices, x)


def remat(x, y):
    return jax.grad(lambda x: jax.checkpoint(lambda x: jnp.sin(x) * x**2 * y)(x).sum())(x)


def gradient_of_loop(x, y):
    return jax.grad(lambda x: loop(x, y)[0].sum())(x)


def hessian(x, y):
    return jax.hessian(lambda x: jnp.sum(jnp.exp(-x * x) * y / (1 + x**3)))(x)


def custom_rules(x, y):
    return jax.jacfwd(jax.jacrev(lambda x: jnp.sum(jax.nn.relu(x) * jnp.tanh(x * y) ** 2)))(x)


def mapped(x, y):
    return jax.vmap(lambda a: jnp.interp(a, x, y))(x + 0.1)


def on_devices(x, y):
    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    both = jnp.concatenate([x[:1], y[:1]])
    return jax.shard_map(
        lambda a: (jax.lax.psum(a * a, "i"), a * 3),
        mesh=mesh,
        in_specs=P("i"),
        out_specs=(P(), P("i")),
    )(both)


PROGRAMS = [
    *(loop, reversed_loop, unknown_loop, branches, remat, gradient_of_loop, hessian, custom_rules),
    *(mapped, on_devices, loop_of_rows, derivative_of_loop_of_rows),
]


def drawn(graph, seed, share):
    """Random exponents for a share of the values, and what follows for the others."""
    problem = _problem.problem_of(
        graph, [None] * len(graph.values), [True] * len(graph.outputs), _problem.DEMANDS[1]
    )
    random = np.random.default_rng(seed)
    low, high = np.full_like(problem.low, -60), np.full_like(problem.high, 60)
    for v in graph.values:
        if v.is_floating and v.kind in ("result", "inner") and random.random() < share:
            low[v.index] = high[v.index] = random.integers(-20, 20)
    solution = _assign.assign(problem._replace(low=low, high=high))
    return _problem.exponents_of(graph, solution)


def replayed(graph, exponents, *arguments):
    return jax.jit(_replay.replay(graph, exponents))(list(arguments))


@pytest.mark.parametrize("program", PROGRAMS)
def test_any_exponents_give_the_program(program):
    closed = jax.make_jaxpr(program)(X, Y)
    expected = jax.tree.leaves(jax.jit(program)(X, Y))
    moved = 0
    for seed, share in enumerate((0.15, 0.7)):
        graph = build(closed)
        exponents = drawn(graph, seed, share)
        moved += sum(map(bool, exponents.values))
        results = replayed(graph, exponents, X, Y)
        for stored, use, number in zip(results, graph.outputs, expected, strict=True):
            stored = np.asarray(stored)
            if stored.dtype.kind in "fc":
                stored = stored * 2.0 ** exponents.of(use)
            # The same numbers up to the order in which XLA fuses, and the error of a power of 100.
            np.testing.assert_allclose(stored, number, rtol=3e-14)
    assert moved, "no exponent was drawn: the comparison would say nothing"


def test_equation_that_no_exponent_touches_is_bound_as_it_was():
    program = jax.make_jaxpr(lambda x: (custom_rules(x, Y), loop(x, Y)))(X)
    graph = build(program)
    again = jax.make_jaxpr(lambda x: _replay.replay(graph, exponents_at(graph, []))([x]))(X)
    needed = _jaxprs.needed_equations(program.jaxpr)
    assert [e.primitive for e in again.eqns] == [e.primitive for e in needed]


def test_a_conversion_is_shared_by_all_who_want_it():
    graph = build(jax.make_jaxpr(lambda x: (x + 1.0, x + 2.0, x * 2.0))(X))
    scaled = [x for node in graph.nodes[:2] for x in (node.outputs[0], *node.uses)]
    exponents = exponents_at(graph, [(x, 5) for x in (*scaled, *graph.outputs[:2])])
    again = jax.make_jaxpr(lambda x: _replay.replay(graph, exponents)([x]))(X)
    names = [e.primitive.name for e in again.eqns]
    assert [n for n in names if n in ("mul", "add")] == ["mul", "add", "add", "mul"]


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_conversion_by_more_than_the_dtype_holds(dtype):
    info = jnp.finfo(dtype)
    tiny = jnp.asarray([info.smallest_normal], dtype)
    far = info.maxexp - 1 - int(np.log2(float(info.smallest_normal)))
    up = jax.jit(lambda x: _replay.convert(x, far))(tiny)
    assert float(up[0]) == 2.0 ** (info.maxexp - 1)
    assert jax.jit(lambda x: _replay.convert(x, -far))(up) == tiny


@pytest.mark.parametrize("shift", [-2, -14, -16, -19, -27, -32])
def test_a_conversion_to_subnormal_numbers_rounds_once(shift):
    """What was rounded twice was 0, or a half more: `(x·2^-14)·2^-2` is not `(x·2^-2)·2^-14`."""
    x = np.arange(0x7C00, dtype=np.uint16).view(np.float16)  # every finite one
    found = jax.jit(lambda x: _replay.convert(x, shift))(x)
    with np.errstate(under="ignore"):
        np.testing.assert_array_equal(found, np.ldexp(x.astype(float), shift).astype(np.float16))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.float32])
def test_conversion_of_anything_to_nothing_takes_few_steps(dtype):
    """A plan for exp(1e5) in float16 took minutes to compile: ten thousand products."""
    x = jnp.asarray([jnp.finfo(dtype).tiny, jnp.finfo(dtype).max, 0, jnp.inf], dtype)
    for shift, want in ((144_000, [jnp.inf, jnp.inf, 0, jnp.inf]), (-144_000, [0, 0, 0, jnp.inf])):
        move = functools.partial(_replay.convert, shift=shift)
        assert len(jax.make_jaxpr(move)(x).eqns) < 30
        assert np.array_equal(move(x), want)


def test_a_tail_is_the_largest_number_or_nothing():
    """Subnormal numbers of float16 are numbers; those of float32 are zeros to XLA."""
    for dtype, small, want in ((jnp.float16, 5e-5, 5e-5), (jnp.float32, 1e-39, 0.0)):
        top = float(jnp.finfo(dtype).max)
        tail = _replay._tail(jnp.asarray([np.inf, -np.inf, small, 2.0], dtype))
        np.testing.assert_allclose(np.asarray(tail, float), [top, -top, want, 2.0], rtol=1e-3)


@pytest.mark.parametrize("shape", [(), (1,), (7,)])
def test_compiler_does_not_join_conversions(shape):
    """XLA makes `(x·y)·2^-200` of `(x·2^-100)·(y·2^-100)`, and 0 of the constant, if it may."""
    x = jnp.full(shape, 2.0**120, jnp.float32)
    move = _replay.convert
    chain = jax.jit(lambda x: move(move(move(x, -100), -100), 100))
    products = jax.jit(lambda x, y: move(move(x, -100) * move(y, -90), 10))
    assert (chain(x) == 2.0**20).all()
    assert (products(x, x) == 2.0**60).all()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_conversions_in_front_of_a_sum_are_not_joined(dtype):
    """The kernels of sums join factors once more with JAX 0.10: 2^-128 is subnormal, and 0."""
    x = jnp.full(3, 2.0**111, dtype)
    move = _replay.convert
    at_once = jax.jit(lambda x: jnp.sum(move(x, -128)))
    in_turn = jax.jit(lambda x: jnp.sum(move(move(x, -65).astype(jnp.float32), -63)))
    assert float(at_once(x)) == float(in_turn(x)) == 3 * 2.0**-17


@pytest.mark.parametrize("one", [1.0, np.ones(4, np.float32)], ids=["number", "array"])
def test_a_one_that_is_stored_as_a_power_of_two_is_hidden(one):
    """XLA made 2^-196 of 2^-120 and of a conversion by 2^-76, so that a gradient lost a term."""
    x, y = jnp.full(4, 2.0**-59, jnp.float32), jnp.full(4, 2.0**20, jnp.float32)
    graph = build(jax.make_jaxpr(lambda x, y: one * x**-2 * y)(x, y))
    power, product, _ = graph.nodes
    at = [*zip((*power.uses, *graph.inputs[:1]), (98, 98), strict=True), (power.outputs[0], -196)]
    at += [*zip(product.uses, (120, -196), strict=True), (product.outputs[0], -76)]
    assert (replayed(graph, exponents_at(graph, at), x, y)[0] == 2.0 ** (-2 * (98 - 59) + 20)).all()


def test_constant_is_converted_at_planning_time():
    graph = build(jax.make_jaxpr(lambda x: x + 3.0)(X))
    (node,) = graph.nodes
    scaled = (*node.uses, node.outputs[0], graph.outputs[0])
    exponents = exponents_at(graph, [(x, 4) for x in scaled])
    again = jax.make_jaxpr(lambda x: _replay.replay(graph, exponents)([x]))(X)
    names = [e.primitive.name for e in again.eqns]
    assert [n for n in names if n in ("mul", "add")] == ["mul", "add"]  # x is converted, 3 was
    numbers = np.concatenate([np.ravel(c) for c in again.consts])
    assert 3.0 / 16 in numbers
    assert 3.0 not in numbers


def test_hidden_numbers_are_handed_over_in_one_array():
    """Five arrays of one number each made a call of 4 us a tenth longer."""

    def program(x):
        for c in (1e25, 1e20, 1e-25, 5e-21):
            x = x * c + 0.7
        return x

    x = jnp.linspace(1.0, 2.0, 3, dtype=jnp.float32)
    f = tj.jit(program)
    want = program(np.linspace(1.0, 2.0, 3))
    np.testing.assert_allclose(f(x), want, rtol=1e-6)
    assert not f.plans[0].identity
    lowered = f.lower(x)
    assert lowered.as_text().count("optimization_barrier") == 1
    entry = lowered.compile().as_text().split("ENTRY")[1]
    assert len(re.findall(r"f32\[\d+\]\S* constant", entry)) == 1
    assert not re.findall(r"f32\[\]\S* constant", entry)


def test_a_loop_of_rows_with_counts_and_keys_beyond_the_range_stops_each_row_by_itself():
    def grown(x, key, n):
        def step(i, carry):
            y, key = carry
            return y * 10.0, jax.random.fold_in(key, i)

        y, key = jax.lax.fori_loop(0, n, step, (x, key))
        return y / 1e30, jax.random.bits(key)

    ones, counts = jnp.ones(3, jnp.float32), jnp.array([31, 41, 45])
    keys = jax.random.split(jax.random.key(0), 3)
    got, bits = tj.jit(jax.vmap(grown))(ones, keys, counts)
    np.testing.assert_allclose(got, [1e1, 1e11, 1e15], rtol=1e-5)
    assert (bits == jax.vmap(grown)(ones, keys, counts)[1]).all()
