"""Judgement of exponents by the results of a program, with notes and alarms.

Only the results decide about exponents. The program is run on its numbers in the range of its
dtypes, and compared with a run in a wide range. The judgement counts wrong entries, and, with
priority, wrong entries that plain JAX has right.

    plain = Judged.of(graph, reference, free)
    Judged.of(graph, reference, free, exponents, plain).is_right  # no entry is lost

Sharp edge: without a complete reference the results are unknown. Then any exponents count as good
if they hold the numbers that the tests of loops read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tanjax._dtype_range import limits
from tanjax._typing import DType
from tanjax.jaxprs import Kind

from .graph._graph import Exponents, Magnitudes, Node, ScaleGraph, Use
from .laws import _range
from .laws._law import LAWS
from .magnitudes._evaluate import simulate
from .magnitudes._evaluation import ENDLESS, NO_RULE, OVER_BUDGET, PARTS, UNDEFINED, Evaluation
from .magnitudes._losses import Mask, lost_errors, together
from .magnitudes._nested import tested_by
from .numbers._wide import Numbers, Wide, as_float, scaled

# A subnormal intermediate number costs plain JAX some digits. An entry below the first relative
# error is nearly right; a plan makes it worse if its error is so many times as large.
_NEARLY, _FARTHER = 0.125, 4.0
_FAR = 1024.0  # plain JAX is nearly right if the plan's error is so many times as large

Array: TypeAlias = jax.Array | np.ndarray
Arrays: TypeAlias = Sequence[Array]  # results of a program, as they are stored
Errors: TypeAlias = list[Numbers | None]  # per output the errors of its entries, None if unknown


class Judged(NamedTuple):
    """The judgement of a program's results, at exponents or in plain JAX.

    **Fields:** `lost`: the number of wrong entries of the results; `worse`: the number of entries
    that are nearly right in plain JAX and farther off here; `errors`: per output, the relative
    errors of lost entries; `excused`: the same, without entries that no exponent of the dtype
    holds; `undefined`: the equations with a nan of 0 · inf because of the range; `parts`: products
    of many numbers with parts out of range; `endless`: a loop does not end, which counts most.
    """

    lost: int
    worse: int
    errors: Errors
    excused: Errors
    undefined: frozenset[int] = frozenset()
    parts: frozenset[int] = frozenset()
    endless: bool = False

    @property
    def badness(self) -> tuple[bool, int, int]:
        return self.endless, self.worse, self.lost

    @property
    def is_right(self) -> bool:
        """True if no entry is lost, and every loop ends."""
        return not any(self.badness)

    @classmethod
    def of(
        cls,
        graph: ScaleGraph,
        reference: Evaluation,
        free: Sequence[bool],
        exponents: Exponents | None = None,
        plain: Judged | None = None,
    ) -> Judged:
        """Run the program at exponents, and compare it with `plain`, the run in plain JAX."""
        none: Errors = [None] * len(graph.outputs)
        if not reference.complete:
            endless = exponents is not None and _may_not_end(graph, reference.magnitudes, exponents)
            return cls(int(plain is None), 0, none, none, endless=endless)
        simulated = simulate(graph, reference, exponents)
        runs = [simulated]
        if exponents is not None and _leans(simulated):
            runs.append(simulate(graph, reference, exponents, wider=True))
        errors = _worst([lost_errors(graph, reference, run, strict=True) for run in runs])
        excused = _worst([lost_errors(graph, reference, run, free=free) for run in runs])
        worse = 0
        if plain is not None:
            before, after = (plain.errors, plain.excused), (errors, excused)
            worse = sum(map(_count_worse, zip(*before, strict=True), zip(*after, strict=True)))
        lost = sum(int(np.count_nonzero(e)) for e in excused if e is not None)
        at, parts = (_nodes(simulated, kind) for kind in (UNDEFINED, PARTS))
        endless = any(_nodes(run, ENDLESS) for run in runs)
        return cls(lost, worse, errors, excused, at, parts, endless)


def _nodes(simulated: Evaluation, kind: str) -> frozenset[int]:
    return frozenset(e.node.index for e in simulated.events if e.kind == kind and e.node)


def _may_not_end(graph: ScaleGraph, m: Magnitudes, exponents: Exponents) -> bool:
    """True if a number that the test of a loop reads may leave the range at its exponent."""
    loops = [node for node in graph.walk() if node.kind is Kind.WHILE]
    read = [node.carried[i][1] for node in loops for i in tested_by(node)]
    read = [v for v in read if v.is_floating]
    ends = [(exponents.of(v), _range.exponents(v, m), _range.holds_together(v, m)) for v in read]
    return any(at and not (holds and low <= at <= high) for at, (low, high), holds in ends)


def _count_worse(was: Sequence[Numbers | None], now: Sequence[Numbers | None]) -> int:
    """Count the entries that are nearly right in plain JAX, and farther off now.

    The true number is right, and so is its cast to the dtype. For example, the 0 of plain JAX for
    1e-69 must not become nan.
    """
    pairs = [(a, b) for a, b in zip(was, now, strict=True) if a is not None and b is not None]
    farther = [(a < _NEARLY) & (b > _FARTHER * a) for a, b in pairs]
    return int(np.count_nonzero(np.any(farther, axis=0))) if farther else 0


class Doubt(NamedTuple):
    """The true numbers of one result, and the relative errors of entries that a plan loses.

    **Fields:** `excused`: the same as `error`, without entries that no exponent holds; `is_free`:
    the result may be scaled.
    """

    true: Numbers
    error: Numbers
    excused: Numbers
    is_free: bool


def doubts_of(
    reference: Evaluation, judged: Judged, free: Sequence[bool]
) -> tuple[Doubt | None, ...]:
    """Return entries that plain JAX may have right: XLA may rewrite `sqrt(x * x)` to `abs(x)`."""
    found: Iterable[Any] = zip(reference.outputs, judged.errors, judged.excused, free, strict=True)
    return tuple(
        None if x is None or e is None else Doubt(as_float(x), e, *y) for x, e, *y in found
    )


def right_in(
    results: Arrays, doubts: Sequence[Doubt | None], planned: Callable[[], Arrays]
) -> tuple[int, int]:
    """Count the entries of results that are right though a plan loses them, and the wrong ones.

    **Arguments:** `planned`: returns the results of the plan. XLA may have rewritten that program,
    too: an entry that it should lose may be right, and another may be nan.
    """
    saved = wrong = 0
    for i, (x, doubt) in enumerate(zip(results, doubts, strict=True)):
        if doubt is None or doubt.true.dtype.kind not in "fc":
            continue
        found, broken = _right(x, doubt), ~np.isfinite(np.asarray(planned()[i], doubt.true.dtype))
        is_lost = found.nearly & ((doubt.error > 0) | broken)
        is_lost |= found.held & ((doubt.excused > 0) | broken)
        is_lost |= found.noise & broken
        if np.any(is_lost) and not doubt.is_free:
            there = _right(planned()[i], doubt)
            is_lost &= ~(there.nearly | there.held)
        saved += int(np.count_nonzero(is_lost))
        wrong += int(np.count_nonzero(~(found.true | found.held | found.nan)))
    return saved, wrong


class _Right(NamedTuple):
    """Masks of the entries of a result that are right in different senses.

    **Fields:** `true`: equal to the true number up to rounding; `nearly`: true, or much nearer to
    it than the plan's entry; `held`: equal to the cast of the true number, in a result that cannot
    be scaled; `nan`: nan, and so is the cast; `noise`: a finite number instead of a true 0, which
    is nearer than infinity and nan.
    """

    true: Mask
    nearly: Mask
    held: Mask
    nan: Mask
    noise: Mask


def _right(x: Array, doubt: Doubt) -> _Right:
    """Return the masks of right entries of a result.

    A difference that should be 0 may be rounding in the wide range: then a near number is right.
    """
    true, dtype = doubt.true, x.dtype
    with np.errstate(all="ignore"):
        got, held = np.asarray(x).astype(true.dtype), true.astype(dtype).astype(true.dtype)
        off = np.abs(got - true)
        near = (off <= 4 * float(jnp.finfo(dtype).eps) * np.abs(got)) & np.isfinite(got)
        nearer = _FAR * off < np.abs(true) * doubt.error
        nearer |= off <= limits(dtype).step  # subnormal numbers have few digits
        is_true = (got == true) | near
        # A result that overflows by itself is no loss.
        return _Right(
            is_true,
            is_true | nearer,
            (got == held) & (not doubt.is_free),
            np.isnan(got) & np.isnan(held),
            (true == 0) & np.isfinite(got),
        )


def _leans(simulated: Evaluation) -> bool:
    """True if a number overflows float16, and may not overflow in XLA.

    XLA may compute with it in float32, where `x` is finite and `1 / x` is not 0.
    """
    places = [e.place for e in simulated.events if e.kind == "overflow"]
    values = [x.value if isinstance(x, Use) else x for x in places]
    return any(limits(v.aval.dtype).step for v in values)


def _worst(errors: Sequence[Errors]) -> Errors:
    """Return, by output, the larger of the errors of several runs."""
    one = lambda found: None if found[0] is None else functools.reduce(np.maximum, found)
    return [one(found) for found in zip(*errors, strict=True)]


def left_of(exact: Wide, coarse: Wide) -> tuple[Mask, Mask]:
    """Return flat masks of rounded entries: neither 0 nor mostly rounding; and not nan.

    The second mask is False for all complex entries.
    """
    if coarse.array.dtype.kind == "c":
        return np.ravel(coarse.array != 0), np.zeros(coarse.array.size, bool)
    a, b = together(exact, coarse)
    with np.errstate(all="ignore"):
        is_rounding = np.abs(a - b) > np.maximum(np.abs(a), np.abs(b)) / 2
    return (b != 0) & np.isfinite(b) & ~is_rounding, b == b


def fitting(x: Wide, dtype: DType, exponent: int) -> tuple[Mask, Mask]:
    """Return flat masks of the entries that a dtype stores as finite, and as finite and nonzero.

    Entries at the ends of the range are in neither: rounding decides about them.
    """
    room = limits(dtype)
    sizes = np.abs(scaled(x.array, x.exponent - exponent)).ravel()
    finite = sizes <= room.largest / 2
    return finite, finite & (sizes >= 2 * room.bottom)


def lacks(result: Array, exact: Wide, coarse: Wide, exponent: int) -> bool:
    """True if an entry is nan, infinite or zero, and the dtype holds its true number.

    A true number that is mostly rounding may be zero.
    """
    got = np.ravel(np.asarray(result))
    finite, nonzero = fitting(exact, got.dtype, exponent)
    is_left, is_number = left_of(exact, coarse)
    lost = (finite & ~np.isfinite(got)) | (nonzero & is_left & (got == 0))
    return bool(np.any(lost | (is_number & np.isnan(got))))


_BEYOND = (
    "numbers beyond 2^(2^50) were met and are taken for inf or 0: results that depend on them are "
    "infinite or nan."
)


_NOT_TAKEN = (
    "a branch{at} was not taken in the measured steps of a loop: its numbers may leave their range."
)


def _not_taken(nodes: Sequence[Node], m: Magnitudes, in_loop: bool = False) -> list[Node]:
    """Return conditionals with a branch that computes something and never ran in a loop."""
    found = []
    for node in nodes:
        if in_loop and node.kind is Kind.BRANCH:
            results = [
                [v for n in g.nodes for v in n.outputs if v.is_floating] for g in node.graphs
            ]
            if any(vs and all(m[v.index] is None for v in vs) for vs in results):
                found.append(node)
        inner = in_loop or node.is_loop
        found += [late for g in node.graphs for late in _not_taken(g.nodes, m, inner)]
    return found


def _all_finite(reference: Evaluation) -> bool:
    return all(x is None or bool(np.isfinite(x.array).all()) for x in reference.outputs)


def _is_bounded(node: Node, m: Magnitudes) -> bool:
    """True if the law of a primitive gives bounds instead of numbers, as for random draws."""
    return all(v.is_floating and m[v.index] is not None for v in node.outputs)


def _fits(graph: ScaleGraph, m: Magnitudes, exponents: Exponents) -> bool:
    """True if the exponent of each value holds all of its numbers."""
    floating = [v for v in graph.values if v.is_floating and m[v.index] is not None]
    rooms = [(exponents.of(v), *_range.exponents(v, m)) for v in floating]
    return all(low <= at <= high for at, low, high in rooms)


def unseen(
    graph: ScaleGraph, reference: Evaluation, exponents: Exponents | None = None
) -> list[str]:
    """Return messages about equations that could not be run, if bounds do not suffice for them.

    The laws of `rng_uniform` and `shard_map` give only bounds. They suffice if the exponents of a
    plan hold all numbers. Otherwise numbers are lost, and no run shows their places.

    **Arguments:** `exponents`: of the plan; None if plain floating point loses nothing.
    """
    m, is_lost = reference.magnitudes, reference.beyond and not _all_finite(reference)
    fits = exponents is None or _fits(graph, m, exponents)
    late = _not_taken(graph.nodes, m) if reference.estimated else []
    said = [_NOT_TAKEN.format(at=_at(node.source)) for node in late[:1]]
    return (
        [_BEYOND] * is_lost
        + said
        + [
            f"the numbers of `{node.primitive}`{_at(source)} could not be looked at ({reason})."
            for node, reason, source in reference.skipped
            if reason != OVER_BUDGET and not (fits and reason == NO_RULE and _is_bounded(node, m))
        ][:3]
    )


def _at(source: str) -> str:
    return f" at {source}" if source else ""


def unknown_primitives(graph: ScaleGraph) -> list[str]:
    names = sorted({n.primitive for n in graph.walk() if n.primitive not in LAWS})
    return [
        f"`{name}` has no law: it works on the numbers themselves (`tj.scale.register_law`)."
        for name in names
    ]


def unholdable(graph: ScaleGraph, m: Magnitudes) -> list[str]:
    """Return notes on values that were run on numbers and that no exponent can hold."""
    said = []
    for value in graph.values:
        found = m[value.index]
        if found and found.exact and not _range.holds_together(value, m):
            where = (value.node.source or value.node.primitive) if value.node else value.kind
            said.append(f"no exponent of {value.aval.dtype} holds every number of {where}.")
    return said[:5]
