"""The same call on arguments that the author did not list.

Cases are written where a rule works. Faults are close to them: a real matrix times a complex
vector, two right-hand sides instead of one, a flag away from its default, an omitted optional
argument. The value and the pullback of each variant are compared with the definition. If the
definition refuses a variant, there is no comparison. If only the operation refuses it, a note says
so: an error is no wrong result.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from tanjax import arrays

from ._coordinates import canonical, complex_of, moves, random
from ._modes import compiled
from ._places import raised
from ._problem import Problem, definition_of
from ._record import Recorder

STAGE = "variants"


def check_variants(recorder: Recorder, p: Problem, tolerance: float) -> None:
    """Compare value and pullback of every variant with those of the definition."""
    with jax.numpy_dtype_promotion("standard"):  # products of real and complex are meant
        for variant in variants(p):
            problem = _problem(recorder, p, variant)
            if problem is not None:
                _compare(recorder, variant, problem, tolerance)


@dataclasses.dataclass(frozen=True)
class Variant:
    """Another call: its arguments, and the structured argument that became complex, if any."""

    name: str
    args: list[PyTree]
    static: dict[str, PyTree]
    continued: int | None = None


def _problem(recorder: Recorder, p: Problem, variant: Variant) -> Problem | None:
    """Return the variant, unless the definition or the operation refuses it."""
    name, args, static = variant.name, variant.args, variant.static
    spread = lambda f: lambda *some: f(*_put(args, p.moving, some))
    moving = [args[i] for i in p.moving]
    definition = definition_of(p.op, p.reference, static)
    try:
        formed = lambda x: arrays.destructure(x) if arrays.is_structured(x) else x
        jax.eval_shape(spread(lambda *a: definition(*map(formed, a))), *moving)
    except Exception:  # any error of any definition
        return None
    try:
        return Problem(p.op, args, static, p.reference)
    except Warning as error:
        raise recorder.fail(STAGE, f"{name}: it warns.", raised(error)) from error
    except Exception as error:
        recorder.result.notes.append(f"{name}: refused, {type(error).__name__}")
        return None


def _put(args: Sequence[PyTree], places: list[int], values: PyTree) -> list[PyTree]:
    full = list(args)
    for i, value in zip(places, values, strict=True):
        full[i] = value
    return full


def _compare(recorder: Recorder, variant: Variant, p: Problem, tolerance: float) -> None:
    def both(point: PyTree) -> PyTree:
        answers = []
        for f in (p.array, p.defined):
            y, pull = jax.vjp(f, point)
            answers.append((y, pull(p.probe)[0]))
        return answers, _analytic_gap(p, point, variant.continued)

    name = variant.name
    try:
        (got, want), gap = compiled(both)(p.point)
    except Exception as error:
        raise recorder.fail(
            STAGE, f"{name}: it raised.", raised(error),
            hint="the definition takes this call: refuse it by `check=` or `core_ndims=`, or skip "
            "the stage: `skip=('variants',)`.",
        ) from error  # fmt: skip
    if not gap <= tolerance:
        return
    recorder.compare(STAGE, f"{name}: the value", got[0], want[0], tolerance)
    for _, leaf, where in p.blocks():
        what = f"{name}: pulled with respect to {leaf}"
        recorder.compare(STAGE, what, got[1][where], want[1][where], tolerance)


def _analytic_gap(p: Problem, point: PyTree, i: int | None) -> PyTree:
    """Return the distance of the definition from `f'(x) i v = i f'(x) v` in a structured argument.

    Made complex, a symmetric matrix is not Hermitian, and a function defined only for Hermitian
    matrices (a Cholesky factor) has no meaning there. Analytic functions keep their formula.
    """
    if i is None:
        return 0.0
    c, direction = p.inputs[i], jnp.zeros(p.size)
    v = random(c.size, 73)
    turned = c.vector(_times_i(c.tangent(v)))
    push = lambda t: jax.jvp(p.defined, (point,), (direction.at[p.part(i)].set(t),))[1]
    along, across = push(v), push(turned)
    if not all(b.is_complex for b in p.out_dense.blocks if b is not None):
        return jnp.inf
    want = p.out_dense.vector(_times_i(p.out_dense.tangent(along)))
    return jnp.max(jnp.abs(want - across)) / jnp.max(jnp.abs(along))


def _times_i(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda t: t * jnp.asarray(1j, t.dtype) if moves(t) else t, tree)


# -- the variants ----------------------------------------------------------------------------------


def variants(p: Problem) -> Iterator[Variant]:
    """Yield complex arguments, vectors for matrices and back, changed flags, omitted options."""
    for i in p.moving:
        ndims = p.op.core_ndims
        core_ndim = None if ndims is None else ndims[min(i, len(ndims) - 1)]
        for name, new in _changes(p.args[i], core_ndim):
            continued = i if arrays.is_structured(new) else None
            yield Variant(f"{p.names[i]} {name}", _put(p.args, [i], [new]), p.static, continued)
    parameters = inspect.signature(p.op).parameters
    for name, value in p.static.items():
        if isinstance(value, bool):
            yield Variant(f"{name}={not value}", list(p.args), {**p.static, name: not value})
    for i, name in enumerate(p.names):
        if not p.op.variadic and parameters[name].default is None and p.args[i] is not None:
            yield Variant(f"{name} left out", _put(p.args, [i], [None]), p.static)


def _changes(x: PyTree, core_ndim: int | None) -> Iterator[tuple[str, PyTree]]:
    """Yield changed arguments; `core_ndim` is the rank without a batch, if declared."""
    real = not any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(x))
    parts = jax.tree.leaves(x, is_leaf=lambda v: hasattr(v, "definite"))
    if real and not any(getattr(v, "definite", False) for v in parts):
        yield "complex", canonical(jax.tree.map(_complex, x))
    if arrays.is_structured(x) or not jax.tree_util.all_leaves([x]):
        return
    if np.ndim(x) == 1 and np.size(x) and core_ndim != 1:
        other = random(np.size(x), 71).astype(x.dtype)
        two = np.stack([x, np.asarray(x) * other], axis=1)
        yield "a matrix of two columns", jax.device_put(two)
    elif np.ndim(x) == 2 and x.shape[1]:
        yield "a vector", jax.device_put(np.asarray(x)[:, 0])


def _complex(leaf: PyTree) -> PyTree:
    if not moves(leaf):
        return leaf
    leaf = np.asarray(leaf)
    turn = random(leaf.size, 72).reshape(leaf.shape).astype(leaf.dtype)
    return complex_of(leaf, leaf * turn)
