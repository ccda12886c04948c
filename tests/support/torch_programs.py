"""Random programs of views, writes, reads and backward passes, run on plain torch and on ours.

A program is a list of steps on a pool of tensors. The same steps run on both pools; after each one
the two must agree: whether it raised, and in values, sizes, strides of views, versions, gradients.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

SIZES = ((3, 4), (4, 3), (12,), (4,))
VIEWS: tuple[Callable[[Any, int], Any], ...] = (
    lambda x, i: x.t() if x.dim() == 2 else x.view(x.shape),
    lambda x, i: x.view(-1),
    lambda x, i: x[i % x.shape[0]],
    lambda x, i: x[..., -1],
    lambda x, i: x[1:3],
    lambda x, i: x[::2],
    lambda x, i: x[..., i:],
    lambda x, i: x.diagonal() if x.dim() == 2 else x.unsqueeze(0),
    lambda x, i: x.unsqueeze(i % 2),
    lambda x, i: x.unbind(0)[i % x.shape[0]],
    lambda x, i: x.split(2)[-1],
    lambda x, i: x.squeeze(),
    lambda x, i: x.expand(2, *x.shape),
    lambda x, i: x.as_strided((2, 2), (1, 2), x.storage_offset()),
    lambda x, i: x.detach(),
    lambda x, i: x.data,
    lambda x, i: x.unfold(0, 2, 2),
    lambda x, i: x.view_as(x),
    lambda x, i: x.movedim(0, -1),
    lambda x, i: x.conj(),
    lambda x, i: x.imag if x.is_complex() else x.select(0, i),
    lambda x, i: torch.view_as_real(x) if x.is_complex() else x.view(torch.complex64),
    lambda x, i: torch.view_as_complex(x),
    lambda x, i: x.diagonal(i - 1) if x.dim() == 2 else x.narrow(0, 0, 2),
)
VALUES: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, y: x * y,
    lambda x, y: x.sin(),
    lambda x, y: x * 2 - 1,
    lambda x, y: x.clone(),
    lambda x, y: x.tanh(),
    lambda x, y: torch.where(x > 0, x, y),
)
WRITES: tuple[Callable[[Any, Any, int], Any], ...] = (
    lambda x, y, i: x.mul_(2),
    lambda x, y, i: x.add_(y),
    lambda x, y, i: x.copy_(y),
    lambda x, y, i: x.mul_(y),
    lambda x, y, i: x.zero_(),
    lambda x, y, i: x.fill_(0.5),
    lambda x, y, i: x.sin_(),
    lambda x, y, i: x.tanh_(),
    lambda x, y, i: x.mul_(1) if x.is_leaf else x.detach_(),
    lambda x, y, i: x.requires_grad_(),
    lambda x, y, i: x.__setitem__(i % x.shape[0], 1.5),
    lambda x, y, i: x.__setitem__(i % x.shape[0], y[0]),
    lambda x, y, i: x.__setitem__((..., -1), y.sum()),
    lambda x, y, i: x.__setitem__(slice(0, 2), y[:1]),
    lambda x, y, i: x.__setitem__(x > 0, 0.25),
    lambda x, y, i: x.__setitem__([0, 1], y[0]),
    lambda x, y, i: x.__setitem__(None, y),
    lambda x, y, i: x.data.mul_(3),
    lambda x, y, i: torch.mul(y, 2, out=x),
    lambda x, y, i: x[0].add_(1),
    lambda x, y, i: x.__setitem__(0, x[0] + 1),
    lambda x, y, i: x.t_(),
    lambda x, y, i: x.unsqueeze_(i % 2),
    lambda x, y, i: x.squeeze_(),
    lambda x, y, i: x.index_add_(0, torch.tensor([0]), y[:1]) if type(x) is type(y) else None,
    lambda x, y, i: x.view(-1)[i:].mul_(x.detach().clone().reshape(-1)[i]),
    lambda x, y, i: x.conj().mul_(1 + 1j),
)
OVERLAP = (
    "single memory location"  # torch refuses some writes that read what they write; ours read first
)


def program(seed: int, length: int = 12) -> list[tuple[str, int, int, int, int]]:
    """The steps: kind, which operation, two places in the pool, a number."""
    rng = random.Random(seed)
    kinds = ["view"] * 5 + ["write"] * 5 + ["value"] * 4 + ["quiet", "backward", "backward"]
    steps = [(rng.choice(kinds), *(rng.randrange(1000) for _ in range(4))) for _ in range(length)]
    return [*steps, ("backward", 0, rng.randrange(1000), 0, 0)]


def pool(make: Callable[[np.ndarray[Any, Any]], torch.Tensor], seed: int) -> list[torch.Tensor]:
    """The tensors at the beginning: two leaves, two tensors without gradient."""
    rng = np.random.default_rng(seed)
    made = [make(rng.normal(size=s).astype(np.float32)) for s in SIZES]
    if seed % 4 == 3:
        made = [
            make((rng.normal(size=s) + 1j * rng.normal(size=s)).astype(np.complex64)) for s in SIZES
        ]
    return [t.requires_grad_(n % 2 == 0) for n, t in enumerate(made)]


def partner(tensors: list[torch.Tensor], first: int, second: int) -> int | None:
    """Which plain tensor is the other operand: of the sizes of the first, in another memory."""
    x = tensors[first % len(tensors)]
    address = x.untyped_storage().data_ptr()
    fit = [
        n
        for n, t in enumerate(tensors)
        if t.shape == x.shape and t.dtype == x.dtype and t.untyped_storage().data_ptr() != address
    ]
    return fit[second % len(fit)] if fit else None


def step(tensors: list[Any], kind: str, which: int, x: Any, y: Any, number: int) -> None:
    """One step on a pool. **Raises:** what torch raises."""
    if y is None:
        y = x.detach().clone(memory_format=torch.contiguous_format)
    if kind == "view":
        tensors.append(VIEWS[which % len(VIEWS)](x, number % 4))
    elif kind == "value":
        tensors.append(VALUES[which % len(VALUES)](x.contiguous(), y.contiguous()).contiguous())
    elif kind == "write":
        WRITES[which % len(WRITES)](x, y, number % 4)
    elif kind == "quiet":
        with torch.no_grad():
            WRITES[which % len(WRITES)](x, y, number % 4)
    else:
        ((x * y).sum() + x.sin().sum()).abs().backward(retain_graph=bool(which % 2))


def differences(seed: int, make: Callable[[np.ndarray[Any, Any]], Any], length: int = 12) -> str:
    """What differs first between plain torch and tensors that `make` makes; empty, if nothing."""
    theirs, ours = pool(torch.from_numpy, seed), pool(make, seed)
    done = []
    for kind, which, first, second, number in program(seed, length):
        other = partner(theirs, first, second)
        operands = [
            (p[first % len(p)], None if other is None else p[other]) for p in (theirs, ours)
        ]
        expanded = 0 in operands[0][0].stride()
        raised = []
        for tensors, (x, y) in zip((theirs, ours), operands, strict=True):
            try:
                step(tensors, kind, which, x, y, number)
                raised.append("")
            except (RuntimeError, ValueError, IndexError, ZeroDivisionError) as error:
                raised.append(f"{type(error).__name__}: {str(error)[:300]}")
        del operands, x, y
        done.append(
            f"{kind} {which} of {first % len(theirs)} with {other}, {number % 4}: {raised[0][:80]}"
        )
        if OVERLAP in raised[0] or "IndexError" in raised[0]:  # a half of it may be written
            return ""
        if "AliasError" in raised[1] and (expanded or "changes numbers" in raised[1]):  # refused
            return ""
        if "unresolved conj" in raised[0]:  # ours are never unresolved
            return ""
        found = f"{raised}" if bool(raised[0]) != bool(raised[1]) else _unequal(theirs, ours)
        if found:
            return "\n".join([f"seed {seed}", *done, found])
    return ""


def _unequal(theirs: list[Any], ours: list[Any]) -> str:
    for n, (t, o) in enumerate(zip(theirs, ours, strict=True)):
        unknown = False
        for what in ("_version", "shape", "is_leaf", "requires_grad"):
            one, other = _asked(t, what), _asked(o, what)
            if "raised" in other and "raised" not in one:  # the base was detached or turned
                return ""
            if one != other:
                return f"{n}: {what} is {other}, not {one}"
            unknown |= "raised" in one
        if unknown:
            continue
        if t._is_view() and (_steps(t) != _steps(o) or t.storage_offset() != o.storage_offset()):
            return f"{n}: strides are {o.stride()}, not {t.stride()}"
        pairs = [(t.detach().resolve_conj(), o.detach())]
        if t.is_leaf and (t.grad is None) != (o.grad is None):
            return f"{n}: gradient is {o.grad}, not {t.grad}"
        if t.is_leaf and t.grad is not None:
            pairs.append((t.grad.resolve_conj(), o.grad))
        for a, b in pairs:
            if not np.allclose(a.resolve_neg().numpy(), b.numpy(), 1e-4, 1e-4, equal_nan=True):
                return f"{n}: numbers are {b}, not {a}"
    return ""


def _asked(t: Any, what: str) -> str:
    try:
        return str(getattr(t, what))
    except (RuntimeError, IndexError) as error:  # a view of several that was written
        return f"raised {str(error)[:40]}"


def _steps(t: Any) -> list[int]:
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n != 1]
