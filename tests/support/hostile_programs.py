"""Straight-line programs that wander out of range at random, the worst case for an assignment.

Each equation is a product, quotient, sum, maximum or root of arrays of four, of any earlier ones.
An equation is kept if its numbers stay within 2^±240. No pattern repeats, no scale stays right for
long, and sums combine numbers that no single exponent can hold.
"""

import random

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tanjax.scale import _plan
from tanjax.scale.assign import _problem
from tanjax.scale.graph._build import build

REACH = 240
SIZE = 4
OPERATIONS = {
    "mul": (lax.mul, np.add),
    "div": (lax.div, np.subtract),
    "add": (lax.add, np.logaddexp2),
    "max": (lax.max, np.maximum),
    "sqrt": (lambda a, b: lax.sqrt(a), lambda a, b: a / 2),
}


def hostile(count, seed=0, near=None, back=30):
    """Return a program of `count` equations and its arguments, in float32.

    `near`: sums and maxima only of numbers within this many powers of two; `back`: the largest
    distance of operands in equations.
    """
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    logs = [rng.uniform(-100, 100) + rng.uniform(-1, 1, SIZE) for _ in range(SIZE)]
    arguments = [jnp.asarray(2.0**x, jnp.float32) for x in logs]
    steps = []
    while len(steps) < count:
        name = draw.choice(list(OPERATIONS))
        a, b = (draw.randrange(max(0, len(logs) - back), len(logs)) for _ in range(2))
        out = OPERATIONS[name][1](logs[a], logs[b])
        is_far = near is not None and np.abs(logs[a] - logs[b]).max() > near
        if np.abs(out).max() <= REACH and not (is_far and name in ("add", "max")):
            steps.append((name, a, b))
            logs.append(out)

    def program(*xs):
        known = list(xs)
        for name, a, b in steps:
            known.append(OPERATIONS[name][0](known[a], known[b]))
        read = {place for _, *places in steps for place in places}
        return [x for i, x in enumerate(known) if i not in read]

    return program, arguments


def problem_of(program, arguments, free=True):
    """Return the integer program of a program."""
    graph = build(jax.make_jaxpr(program)(*arguments))
    magnitudes = _plan._magnitudes(graph, arguments, arguments, False).magnitudes
    outputs = [free] * len(graph.outputs)
    return _problem.problem_of(graph, magnitudes, outputs, _problem.DEMANDS[0])
