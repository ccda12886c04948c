"""The graph of a program does not change: whatever is found out about it stands beside it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tanjax.scale import _plan
from tanjax.scale._choice import assigned
from tanjax.scale.graph._build import build
from tanjax.scale.laws._identities_powers import number_of
from tanjax.scale.magnitudes._evaluate import evaluate, simulate
from tanjax.scale.magnitudes._intervals import bound
from tanjax.scale.replay._replay import replay
from tanjax.scale.windows import find

pytestmark = pytest.mark.core


def program(x):
    def body(c, y):
        return c * y, jnp.tanh(c / y)

    carry, ys = jax.lax.scan(body, x[0], x)
    return jax.lax.cond(carry > 1, jnp.sqrt, jnp.square, carry * carry), ys


def state(graph):
    """Every field of every value, use and node, and the identity of what they hold."""
    parts = [*graph.values, *graph.uses, *graph.walk()]
    fields = lambda part: [getattr(part, f.name) for f in dataclasses.fields(part)]
    return [
        [tuple(map(id, x)) if isinstance(x, list | tuple) else id(x) for x in fields(part)]
        for part in parts
    ]


def test_no_step_changes_the_graph():
    x = jnp.array([1e12, 3e10, 2.0], jnp.float32)
    graph = build(jax.make_jaxpr(program)(x))
    before = state(graph)
    reference = evaluate(graph, [x])
    simulate(graph, reference)
    bound(graph, [x], reference.magnitudes)
    solved = assigned(graph, reference, [False, False], [], [])
    find(graph, solved.exponents, reference.magnitudes[:1], reference.magnitudes)
    results = jax.jit(replay(graph, solved.exponents))([x])
    assert any(solved.exponents.values)
    assert state(graph) == before
    want = jax.tree.leaves(program(np.asarray(x, np.float64)))
    np.testing.assert_allclose(results[0], want[0], rtol=1e-5)


@pytest.mark.parametrize("name", ["magnitude", "exponent", "guarded"])
def test_nothing_can_be_noted_in_it(name):
    graph = build(jax.make_jaxpr(lambda x: x * x)(jnp.float32(1)))
    for thing in (graph.values[0], graph.uses[0], graph.nodes[0]):
        with pytest.raises(AttributeError):
            setattr(thing, name, 1)


def test_two_plans_of_one_program_are_the_same():
    closed = jax.make_jaxpr(program)(jnp.ones(3, jnp.float32))
    x = jnp.array([1e12, 3e10, 2.0], jnp.float32)
    first, second = (_plan.plan(closed, [x], [False, False]) for _ in range(2))
    assert first.exponents == second.exponents
    assert first.magnitudes == second.magnitudes


def test_only_finite_constants_count_as_one_number():
    graph = build(jax.make_jaxpr(lambda x: (x * 3.0, jnp.minimum(x, jnp.inf)))(jnp.ones(2)))
    constants = [
        use.value for node in graph.nodes for use in node.uses if use.value.constant is not None
    ]
    assert [number_of(value) for value in constants] == [3.0, None]
