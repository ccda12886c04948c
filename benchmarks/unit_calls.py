"""The eager calls of `bench_units.py`: every operator, and functions of every family.

Each is a function of `Operands`, compared with the same function on plain numbers. For mixed
prefixes plain JAX computes with the unconverted numbers: the conversion is part of our cost.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from unit_libraries import Operands

Call = Callable[[Operands], Any]

OPERATORS: dict[str, Call] = {
    "x + y": lambda o: o.x + o.y,
    "x + y, m and km": lambda o: o.x + o.km,
    "x - y": lambda o: o.x - o.y,
    "x - y, m and km": lambda o: o.x - o.km,
    "x * y": lambda o: o.x * o.y,
    "x * number": lambda o: o.x * 2.0,
    "number * x": lambda o: 2.0 * o.x,
    "x * array": lambda o: o.x * o.numbers,
    "array * x": lambda o: o.numbers * o.x,
    "x / y": lambda o: o.x / o.y,
    "x / s": lambda o: o.x / o.s,
    "x / number": lambda o: o.x / 2.0,
    "1 / x": lambda o: 1.0 / o.x,
    "x // y": lambda o: o.x // o.y,
    "x % y": lambda o: o.x % o.y,
    "x % y, m and km": lambda o: o.x % o.km,
    "divmod(x, y)": lambda o: divmod(o.x, o.y),
    "x ** 2": lambda o: o.x**2,
    "x ** 0.5": lambda o: o.x**0.5,
    "x ** 3": lambda o: o.x**3,
    "a @ a": lambda o: o.a @ o.a,
    "a @ x": lambda o: o.a @ o.x,
    "-x": lambda o: -o.x,
    "+x": lambda o: +o.x,
    "abs(x)": lambda o: abs(o.x),
    "round(x)": lambda o: round(o.x),
    "x < y": lambda o: o.x < o.y,
    "x < y, m and km": lambda o: o.x < o.km,
    "x <= y": lambda o: o.x <= o.y,
    "x > y": lambda o: o.x > o.y,
    "x >= y": lambda o: o.x >= o.y,
    "x == y": lambda o: o.x == o.y,
    "x != y": lambda o: o.x != o.y,
    "x[0]": lambda o: o.x[0],
    "x[1:]": lambda o: o.x[1:],
    "x[index]": lambda o: o.x[o.index],
    "x.at[0].set": lambda o: o.x.at[0].set(o.low),
    "x.at[0].add": lambda o: o.x.at[0].add(o.low),
    "x.sum()": lambda o: o.x.sum(),
    "x.mean()": lambda o: o.x.mean(),
    "x.max()": lambda o: o.x.max(),
    "a.T": lambda o: o.a.T,
    "x.reshape": lambda o: o.x.reshape(3, 1),
    "list(x)": lambda o: list(o.x),
    "len(x), x.shape, x.dtype": lambda o: (len(o.x), o.x.shape, o.x.dtype),
    "to another prefix": lambda o: o.to(o.km, "m"),
    "wrap an array": lambda o: o.wrap(o.numbers, "m"),
}

# Functions of only these operands.
_ARGUMENTS = {
    "x": """negative abs square sqrt cbrt sign conj real imag isfinite isnan floor ceil sum mean
        max min argmax argsort sort std var median cumsum prod ptp ravel flip diff atleast_2d
        zeros_like ones_like nan_to_num count_nonzero copy""",
    "pure": "exp log log1p expm1 sin cos tan arctan tanh sinh arcsin",
    "x y": """add subtract multiply divide true_divide maximum minimum hypot arctan2 fmod remainder
        equal not_equal less greater less_equal greater_equal isclose allclose dot vdot inner outer
        cross convolve correlate searchsorted digitize copysign array_equal""",
    "x km": "add subtract maximum minimum hypot arctan2 less equal remainder",
    "x s": "multiply divide outer dot trapezoid",
    "a": "transpose trace diagonal triu tril diag",
    "a b": "matmul tensordot kron",
}


def _named(name: str, operands: str) -> Call:
    get = operator.attrgetter(*operands.split())
    if " " in operands:
        return lambda o: getattr(o.xp, name)(*get(o))
    return lambda o: getattr(o.xp, name)(get(o))


def _functions() -> dict[str, Call]:
    calls = {}
    for operands, names in _ARGUMENTS.items():
        for name in names.split():
            mixed = ", m and km" if operands == "x km" else ""
            calls[f"{name}({', '.join(operands.split())}){mixed}"] = _named(name, operands)
    return calls


FUNCTIONS: dict[str, Call] = {
    **_functions(),
    "sum(a, axis)": lambda o: o.xp.sum(o.a, axis=0),
    "mean(a, axis)": lambda o: o.xp.mean(o.a, axis=0),
    "max(a, axis)": lambda o: o.xp.max(o.a, axis=0),
    "power(x, 2)": lambda o: o.xp.power(o.x, 2),
    "power(x, 0.5)": lambda o: o.xp.power(o.x, 0.5),
    "clip(x, low, high)": lambda o: o.xp.clip(o.x, o.low, o.high),
    "where(mask, x, y)": lambda o: o.xp.where(o.mask, o.x, o.y),
    "where(mask, x, y), m and km": lambda o: o.xp.where(o.mask, o.x, o.km),
    "concatenate": lambda o: o.xp.concatenate([o.x, o.y]),
    "concatenate, m and km": lambda o: o.xp.concatenate([o.x, o.km]),
    "stack": lambda o: o.xp.stack([o.x, o.y]),
    "stack, m and km": lambda o: o.xp.stack([o.x, o.km]),
    "vstack": lambda o: o.xp.vstack([o.x, o.y]),
    "hstack": lambda o: o.xp.hstack([o.x, o.y]),
    "reshape": lambda o: o.xp.reshape(o.x, (3, 1)),
    "broadcast_to": lambda o: o.xp.broadcast_to(o.x, (2, 3)),
    "expand_dims": lambda o: o.xp.expand_dims(o.x, 0),
    "squeeze": lambda o: o.xp.squeeze(o.x),
    "swapaxes": lambda o: o.xp.swapaxes(o.a, 0, 1),
    "moveaxis": lambda o: o.xp.moveaxis(o.a, 0, 1),
    "tile": lambda o: o.xp.tile(o.x, 2),
    "repeat": lambda o: o.xp.repeat(o.x, 2),
    "roll": lambda o: o.xp.roll(o.x, 1),
    "take": lambda o: o.xp.take(o.x, o.index),
    "pad": lambda o: o.xp.pad(o.x, 1),
    "split": lambda o: o.xp.split(o.x, 3),
    "full_like": lambda o: o.xp.full_like(o.x, o.low),
    "linspace": lambda o: o.xp.linspace(o.low, o.high, 5),
    "interp": lambda o: o.xp.interp(o.x, o.y, o.s),
    "trapezoid(x, dx)": lambda o: o.xp.trapezoid(o.x),
    "einsum": lambda o: o.xp.einsum("ij,j->i", o.a, o.s),
    "percentile": lambda o: o.xp.percentile(o.x, 50.0),
    "linalg.norm": lambda o: o.linalg.norm(o.x),
    "linalg.solve": lambda o: o.linalg.solve(o.a, o.f),
    "linalg.inv": lambda o: o.linalg.inv(o.a),
    "linalg.det": lambda o: o.linalg.det(o.a),
    "linalg.cholesky": lambda o: o.linalg.cholesky(o.a),
    "linalg.eigh": lambda o: o.linalg.eigh(o.a),
    "linalg.qr": lambda o: o.linalg.qr(o.a),
    "linalg.svd": lambda o: o.linalg.svd(o.a),
    "fft.fft": lambda o: o.fft.fft(o.x),
    "fft.ifft": lambda o: o.fft.ifft(o.x),
    "fft.rfft": lambda o: o.fft.rfft(o.x),
}

LARGE: dict[str, Call] = {
    "1000 × 1000: a + b": lambda o: o.large + o.large2,
    "1000 × 1000: a * b": lambda o: o.large * o.large2,
    "1000 × 1000: a @ b": lambda o: o.large @ o.large2,
}

GROUPS = {
    "Eager: operators, indexing, methods": OPERATORS,
    "Eager: functions": FUNCTIONS,
    "Eager: large matrices": LARGE,
}
