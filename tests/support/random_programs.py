"""Random programs over arrays, and what they compute in a range where nothing overflows.

A program is a list of steps, each an operation and the places of the earlier results it reads. It
runs in any dtype. `wide` runs its jaxpr equation by equation in float64 and keeps every number, so
that it can be said where a smaller dtype would have left its range; once more with every result
shaken by a rounding error, so that it can be said how exact that dtype can be.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from tanjax._compat import Loop

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


def wide(closed, arguments, shaken=None, digits=23):
    """Run a jaxpr equation by equation.

    **Arguments:** `shaken`: a random generator by which every result is moved by up to one unit in
    the last of so many binary `digits`.
    """
    seen = {}

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
        outputs = run(closed, closed.consts, list(map(moved, arguments)))
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
        tested, fixed, state, _ = Loop.of(p).cut(args)
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
    _, fixed, carry, xs = Loop.of(p).cut(args)
    m, rows = len(carry), []
    order = range(p["length"])
    for i in reversed(order) if p["reverse"] else order:
        out = run(p["jaxpr"], p["jaxpr"].consts, [*fixed, *carry, *[x[i] for x in xs]])
        carry = out[:m]
        rows.append(out[m:])
    rows = rows[::-1] if p["reverse"] else rows
    return [*carry, *(np.stack(column) for column in zip(*rows, strict=True))]
