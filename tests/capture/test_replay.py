"""Replay of captured programs: the bits, trees and compiled operations of the function itself."""

import collections
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import tanjax as tj

pytestmark = pytest.mark.core

METRE, KM = tj.unit("m"), tj.unit("km")
D, X, M = jnp.array([1.0, 2.0, 3.0]), jnp.array([3.0, 1.0, 2.0]), 3 * jnp.eye(3) + 0.5
CLOSED = tj.Diagonal(jnp.array([0.7, 0.3, 0.1]))


def algebra(m, x):
    """Operations, a factor that two share, a field of a result."""
    a = tj.Symmetric(m, definite=True)
    y = tj.solve(a, x) + CLOSED @ x
    factor = tj.linalg.cholesky(a)
    return y * tj.logdet(a) + jnp.sum(jnp.sin(factor.data)), tj.Diagonal(y) @ factor


def lengths(m, x):
    """Quantities, conversions, a structured quantity, a decision."""
    q = (x * METRE).to("km") + x * KM
    area = tj.Diagonal(q) @ (m @ x)
    longest = tj.numpy.where(q > 2 * KM, q, 2 * q)
    return (area * q).sum().to_value("m2") * x, longest


def loops(m, x):
    """Loops and branches of ours and of JAX's, with closures, and a derivative in between."""

    def step(carry, row):
        new = tj.cond(jnp.sum(carry) > 1, lambda c: tj.solve(tj.Symmetric(m), c), jnp.sin, carry)
        return new + row, tj.Diagonal(new)

    last, rows = tj.scan(step, x, m)
    slope = tj.grad(lambda v: tj.logdet(tj.Symmetric(m) + tj.Diagonal(v * v)))(last)
    power = jax.lax.fori_loop(0, 2, lambda i, v: CLOSED @ v + 0.1 * i, slope)
    each = jax.vmap(lambda v: tj.Diagonal(v) @ x)(m)
    return power, rows, each


PROGRAMS = {f.__name__: f for f in (algebra, lengths, loops)}


def numbers(f):
    """The sum of all that a function returns, for derivatives."""

    def total(*args):
        leaves = jax.tree.leaves(f(*args))
        return sum(jnp.sum(jnp.cos(x)) for x in leaves if jnp.issubdtype(x.dtype, jnp.inexact))

    return total


ROWS = jnp.stack([X, 2 * X])
TRANSFORMATIONS = {
    "value": lambda f: f,
    "grad": lambda f: jax.grad(numbers(f), argnums=(0, 1)),
    "tj.grad": lambda f: tj.grad(numbers(f), argnums=(0, 1)),
    "vmap": lambda f: lambda m, x: jax.vmap(f, in_axes=(None, 0))(m, ROWS),
    "jvp": lambda f: lambda m, x: jax.jvp(f, (m, x), (jnp.cos(m), jnp.sin(x))),
    "linearize": lambda f: lambda m, x: jax.linearize(f, m, x)[1](jnp.cos(m), jnp.sin(x)),
    "tj.jacobian": lambda f: tj.jacobian(lambda m, x: jax.tree.leaves(f(m, x))[0], argnums=1),
    "hessian": lambda f: jax.hessian(numbers(f), argnums=1),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(numbers(f)), argnums=1),
    "scan": lambda f: lambda m, x: jax.lax.scan(lambda c, r: (c, f(m, r)), 0.0, ROWS)[1],
    "vmap of grad": lambda f: (
        lambda m, x: jax.vmap(jax.grad(numbers(f), argnums=1), in_axes=(None, 0))(m, ROWS)
    ),
}


@functools.cache
def captured(name):
    return tj.capture(PROGRAMS[name])(M, X)


def mesh():
    devices = jax.devices()[:2]
    return jax.make_mesh((len(devices),), ("i",), axis_types=(AxisType.Auto,), devices=devices)


def assert_equal(got, want):
    """Trees and bits."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        g, w = np.asarray(g), np.asarray(w)
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_array_equal(g, w)


MOVES = ("bitcast", "constant", "copy", "get-tuple-element", "parameter", "tuple")


def operations(compiled):
    """How often each operation that computes something stands in a compiled program."""
    found = re.findall(r"=\s+[^=]*?\s([a-z][\w-]*)\(", compiled.as_text())
    return collections.Counter(name for name in found if name not in MOVES)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("how", TRANSFORMATIONS)
def test_the_same_bits_and_the_same_compiled_operations(name, how):
    transform = TRANSFORMATIONS[how]
    ours = jax.jit(transform(captured(name))).lower(M, X).compile()
    plain = jax.jit(transform(PROGRAMS[name])).lower(M, X).compile()
    assert operations(ours) == operations(plain)
    assert_equal(ours(M, X), plain(M, X))


def test_cotangents_are_added_in_the_order_of_the_function():
    """Of an argument with several uses: a mirror is one use, what a query computes is several."""

    def f(m, x):
        s = tj.Symmetric(m)
        both = jnp.sum(jnp.sin(s.data) * s.to_dense()) + tj.logdet(s)
        loop = tj.fori_loop(0, 2, lambda i, v: m @ v + jnp.tanh(m @ v), x)
        return both + jnp.sum(jnp.sin(m) * m) + jnp.sum(loop) + jnp.sum(x * x / jnp.sum(x))

    many = jnp.cos(jnp.arange(36.0)).reshape(6, 6) + 3 * jnp.eye(6)
    x = jnp.sin(jnp.arange(6.0) + 1) + 2
    program = tj.capture(f)(many, x)
    gradient = lambda g: jax.jit(jax.grad(g, argnums=(0, 1)))(many, x)
    assert_equal(gradient(program), gradient(f))


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_that_of_the_identity_rewrite_and_of_its_own_capture(name):
    f, program = PROGRAMS[name], captured(name)
    for args in ((M, X), (M / 3, 2 * X)):  # outside of `jit`
        assert_equal(program(*args), f(*args))
    again, twice = tj.programs.Interpreter().rewrite(program), tj.capture(program)(M, X)
    assert str(again) == str(twice) == str(program)
    assert_equal(twice(M, X), program(M, X))
    for g in (again, tj.programs.Interpreter()(f)):
        assert_equal(jax.jit(g)(M, X), jax.jit(program)(M, X))


def on_devices(f):
    block = lambda m, x: jax.tree.map(lambda v: v[None], f(m, x[0]))
    return jax.shard_map(block, mesh=mesh(), in_specs=(P(), P("i")), out_specs=P("i"))


def mapped(m, x):
    """A map of ours, a loop of JAX's, constants made inside of it, a helper of `jax.numpy`."""
    rows = tj.vmap(lambda v: tj.Diagonal(v) @ x)(m)
    last = jax.lax.fori_loop(0, 2, lambda i, v: CLOSED @ v + jnp.arange(3.0) * i, x)
    return jnp.where(last > 1, last, jnp.linspace(0.0, 1.0, 3)) @ rows


@pytest.mark.parametrize("f", [algebra, lengths, mapped])
def test_replay_inside_of_shard_map(f):
    """The derivative by a replicated argument is the sum over the devices."""
    program = tj.capture(f)(M, X)
    both = lambda g: jax.jit(
        lambda m: (on_devices(g)(m, ROWS), jax.grad(lambda m: numbers(on_devices(g))(m, ROWS))(m))
    )
    assert_equal(both(program)(M), both(f)(M))
    inside = tj.capture(on_devices(f))(M, ROWS)
    assert_equal(jax.jit(inside)(M, ROWS), jax.jit(on_devices(f))(M, ROWS))


def test_custom_jvp_inside_of_shard_map_is_refused():
    """JAX's `vmap` took the operation apart: its rule is that of values equal on all devices."""
    with pytest.raises(tj.errors.CaptureError, match=r"(?s)custom_jvp_call.*capture inside"):
        jax.eval_shape(on_devices(captured("loops")), M, ROWS)


def test_captured_function_is_exported_and_serialised():
    exported = jax.export.export(jax.jit(captured("algebra")))(M, X)
    again = jax.export.deserialize(exported.serialize())
    assert_equal(jax.tree.leaves(again.call(M, X)), jax.tree.leaves(jax.jit(algebra)(M, X)))


def test_a_program_under_tj_jit_and_tj_transformations():
    f, program = numbers(lengths), captured("lengths")
    assert_equal(tj.jit(numbers(program))(M, X), tj.jit(f)(M, X))
    mapped = lambda f: jax.jit(tj.vmap(f, in_axes=(None, 0)))(M, M)
    assert_equal(mapped(program), mapped(lengths))


# -- what a program is not for ---------------------------------------------------------------------


def given(q, pair, n, flag=None):
    return q * pair["x"] + n * q, flag


Q = D * METRE
ARGS = (Q, {"x": X}, 2.0)
BAD = {
    "shape": ((Q[:2], {"x": X}, 2.0), {}, r"argument 0.*f64\[3\].*f64\[2\]"),
    "dtype": ((Q, {"x": X.astype(jnp.float32)}, 2.0), {}, r"argument 1\['x'\].*f64.*f32"),
    "tree": ((Q, {"y": X}, 2.0), {}, r"captured:.*'x'.*given:.*'y'"),
    "unit": ((D * KM, {"x": X}, 2.0), {}, r"captured:.* m.*given:.* km"),
    "no quantity": ((D, {"x": X}, 2.0), {}, r"captured:"),
    "static": ((Q, {"x": X}, 2.0), {"flag": "on"}, r"keyword flag.*'off'.*'on'"),
    "static for an array": ((Q, {"x": X}, 2.0), {"flag": X}, r"keyword flag.*static 'off'.*array"),
    "too few": ((Q, {"x": X}), {"flag": "off"}, r"captured:"),
}


@pytest.mark.parametrize("what", BAD)
def test_other_arguments_are_refused(what):
    args, kwargs, pattern = BAD[what]
    program = tj.capture(given)(*ARGS, flag="off")
    for call in (program, jax.jit(program, static_argnames="flag")):
        if call is not program and what == "static for an array":
            continue
        with pytest.raises(tj.errors.CaptureError, match="(?s)" + pattern):
            call(*args, **{"flag": "off", **kwargs})
    assert_equal(program(*ARGS, flag="off"), given(*ARGS, flag="off"))


def test_weak_types_and_python_numbers_are_replayed_as_they_were():
    f = lambda x, n: (x * n, n + 1)
    x = jnp.ones(2, jnp.float32)
    program = tj.capture(f)(x, 2.0)
    assert_equal(jax.jit(program)(x, 3.0), jax.jit(f)(x, 3.0))
    assert program(x, 3.0)[0].dtype == jnp.float32


def test_donated_arguments():
    program = captured("algebra")
    given = jnp.array(X)
    out = jax.jit(program, donate_argnums=1)(M, given)
    assert_equal(out, jax.jit(algebra)(M, X))
    assert given.is_deleted()


def test_sharded_arguments_keep_their_sharding():
    f = lambda d, x: (tj.Diagonal(d) @ x, tj.Diagonal(d * 2))
    rows = NamedSharding(mesh(), P("i"))
    d, x = (jax.device_put(jnp.arange(1.0, 5.0), rows) for _ in range(2))
    program = tj.capture(f)(d, x)
    for ours, plain in ((program(d, x), f(d, x)), (jax.jit(program)(d, x), jax.jit(f)(d, x))):
        assert_equal(ours, plain)
        for g, w in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
            assert g.sharding.is_equivalent_to(w.sharding, g.ndim)


def test_a_program_of_shapes_alone():
    program = tj.capture(algebra)(*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (M, X)))
    assert str(program) == str(captured("algebra"))
    assert_equal(jax.jit(program)(M, X), jax.jit(algebra)(M, X))


def test_replay_traces_the_function_never_again():
    count = []

    def f(x):
        count.append(1)
        return tj.Diagonal(x) @ x

    program = tj.capture(f)(X)
    for call in (program, jax.jit(program), jax.grad(lambda x: program(x).sum()), jax.jit(program)):
        call(D)
    assert len(count) == 1
