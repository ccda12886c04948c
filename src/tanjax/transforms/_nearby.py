"""Windows around numbers for which JAX's own program was seen to be right, where no proof holds.

They are as wide as bounds see no more values leave their range than for the very numbers that were
looked at: what leaves it there does no harm, as the look has shown.

    near(plan, [Magnitude(-9.0, -3.0)], looks=1)  # [Window(-25.0, 9.0)], say

Sharp edge: this is no proof. What leaves its range may do harm for other numbers; so the windows
are narrow at first, and grow with every look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set

from tanjax.scale import Magnitude, Plan, proof
from tanjax.scale.numbers import ANYWHERE, Spread, Window, inside

from ._arguments import Leaf, Leaves

# Bits upwards, and those downwards of single numbers, which cross zero. A state that begins with
# zeros, as the moments of Adam, grows a thousand times.
_REACHES = ((12.0, 16.0), (6.0, 16.0), (3.0, 16.0), (3.0, 3.0), (1.5, 1.5))
_BLIND = 3.0  # bits upwards on every look, where some bounds mean nothing
# Where bounds do not help, or see an overflow that was not there: one more bit of a number is eight
# of its eighth power.
_LEAST = 1.0, 1.0
# Bits downwards in arrays, whose smallest entry is another one on every call: on every look as many
# more, up to so many times.
_DOWN, _OFTEN = 16.0, 4
_ZERO = 2.0**19  # bits down to where a zero stands for bounds
_NONZERO = ANYWHERE._replace(nonzero=True)
_FEW = 16  # numbers of which zeros are asked for on every call
_NEAR = 4.0  # bits between largest numbers that belong together

Look = list[Magnitude | None]  # per argument; None where it has no magnitude
Peaks = list[float | None]  # per array, the least of what was its largest number


def joined(a: Look, b: Look) -> Look:
    def both(m: Magnitude | None, n: Magnitude | None) -> Magnitude | None:
        if m is None or n is None:
            return None
        return Magnitude(min(m.low, n.low), max(m.high, n.high))

    return [both(m, n) for m, n in zip(a, b, strict=True)]


def are_near(hull: Look, seen: Look) -> bool:
    """Whether the largest numbers are so near that two looks belong together."""
    pairs = [(h, m) for h, m in zip(hull, seen, strict=True) if h is not None and m is not None]
    return all(
        h.is_zero == m.is_zero and (h.is_zero or abs(h.high - m.high) <= _NEAR) for h, m in pairs
    )


def peaks_of(seen: Look, known: Peaks | None = None) -> Peaks:
    """Of each array the largest number, or the least of those that were seen before.

    None where all numbers are of one size: of these the window's lower end says as much.
    """
    found = [None if m is None or m.low >= m.high else m.high for m in seen]
    if known is None:
        return found
    return [p if q is None or p is None else min(p, q) for p, q in zip(found, known, strict=True)]


def near(plan: Plan, seen: Look, looks: int) -> list[Window | None]:
    """Windows around what was seen on so many looks.

    **Cost:** 10 µs per equation and try, of which there are two to eight.
    """
    beyond = lambda windows: proof.beyond(plan.graph, plan.exponents, windows)
    around = lambda reach, down: _windows(seen, reach, down)
    down = _DOWN * min(looks, _OFTEN)
    known = beyond(_windows(seen))
    if known is None:  # bounds say nothing
        return around(_LEAST, down)
    most = _BLIND * looks if known.unknown else math.inf
    tries = [r for r in _REACHES if r[0] <= most] if known.large <= known.unknown else []
    reach = next((r for r in tries if known.holds(beyond(around(r, 0.0)))), _LEAST)
    if reach is _LEAST:
        known = beyond(around(reach, 0.0)) or known
    downs = (d for d in (down / 2**k for k in range(4)) if known.bears(beyond(around(reach, d))))
    return around(reach, next(downs, 0.0))


def is_tame(plan: Plan, seen: Look) -> bool:
    """Whether bounds keep everything in range that matters, around the very numbers seen.

    Of `x / max(x)` they do not: the largest number may be as small as the smallest one.
    """
    found = proof.beyond(plan.graph, plan.exponents, _windows(seen))
    return found is not None and not found.fatal and found.large <= found.unknown


def with_zeros(leaves: Leaves, windows: Sequence[Window | None]) -> frozenset[int]:
    """The places of large arrays that have zeros."""
    pairs = enumerate(zip(leaves, windows, strict=True))
    return frozenset(i for i, (x, w) in pairs if w and is_many(x) and not inside(x, _NONZERO))


def is_many(x: Leaf) -> bool:
    """Whether windows ask for zeros; of arrays on several hosts only these do."""
    return type(x) is Spread or bool(getattr(x, "size", 1) > _FEW)


def refusing_zeros(
    plan: Plan, windows: Sequence[Window | None], leaves: Leaves, zeros: Set[int]
) -> list[Window | None]:
    """The windows, without zeros in large arrays that had none, where these may do harm.

    They do where bounds see more values leave their range beside numbers next to nothing, as
    whatever is divided by them. Of small arrays `others` asks (`_entries.py`).
    """

    def beyond(places: Set[int]) -> proof.Beyond | None:
        found = [w and w._replace(low=w.low - _ZERO * (i in places)) for i, w in pairs]
        return proof.beyond(plan.graph, plan.exponents, found)

    pairs = list(enumerate(windows))
    asked = {i for i, w in pairs if w and is_many(leaves[i])} - zeros
    known = beyond(zeros) if asked else None
    if not asked or (known is not None and known.bears(beyond(zeros | asked))):
        return list(windows)
    return [w and w._replace(nonzero=i in asked) for i, w in pairs]


def asking_peaks(
    plan: Plan, windows: Sequence[Window | None], peaks: Peaks, looks: int
) -> list[Window | None]:
    """The windows, with a least largest number of arrays where smaller ones may do harm.

    They do where bounds see a divisor vanish, unless there are large numbers only: `x / max(x)`
    raised to a power. How much smaller the largest may be is asked of bounds, too.
    """

    def beyond(down: float) -> proof.Beyond | None:
        found = [w and (w if p is None else w._replace(low=p - down)) for w, p in pairs]
        return proof.beyond(plan.graph, plan.exponents, found)

    pairs = list(zip(windows, peaks, strict=True))
    known = proof.beyond(plan.graph, plan.exponents, windows)
    if known is None or not known.fatal:
        return list(windows)
    large = beyond(0.0)
    if large is None or known.fatal <= large.fatal:
        return list(windows)
    reaches = [_DOWN * min(looks, _OFTEN) / 2**k for k in range(7)]
    down = next((d for d in reaches if large.bears(beyond(d))), 0.0)
    return [w if w is None or p is None else w._replace(peak=p - down) for w, p in pairs]


def _windows(
    seen: Look, reach: tuple[float, float] = (0.0, 0.0), down: float = 0.0
) -> list[Window | None]:
    return [m and _around(m, reach, down) for m in seen]


def _around(m: Magnitude, reach: tuple[float, float], down: float) -> Window:
    if m.is_zero:  # zeros, and nothing else
        return Window(math.inf, -math.inf)
    up, single = reach
    return Window(m.low - (single if m.low == m.high else down), m.high + up)
