"""Views of structured arrays: read-only arrays that follow their base.

`k.t()` of a `Diagonal`, or `k.diagonal()`, has no memory in common with `k`, which does not store
its matrix. In torch it is a view, and a view shows the numbers of its base. So it is computed again
once `k` has changed. A write could not reach `k`, so it raises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from tanjax._errors import AliasError, message
from tanjax_torch._typing import Args, Change, Function, Kwargs, Outcome, Payload
from tanjax_torch.tensor._tensor import StructuredTensor, Tensor

from ._views import Place, View

_SHAPES = {"broadcast_to", "contiguous", "expand", "expand_as", "flatten", "ravel", "reshape"}
_SHAPES |= {"reshape_as", "squeeze", "unflatten", "unsqueeze", "view", "view_as"}
_AXES = {"T", "H", "mT", "mH", "adjoint", "matrix_H", "moveaxis", "movedim", "permute", "swapaxes"}
_AXES |= {"swapdims", "t", "transpose"}
_CUTS = {"chunk", "diagonal", "dsplit", "hsplit", "narrow", "select", "split", "split_with_sizes"}
_CUTS |= {"tensor_split", "unbind", "unfold", "vsplit"}
_VIEWS = _SHAPES | _AXES | _CUTS | {"as_strided", "imag", "real"}
_CASTS = {"bfloat16", "cpu", "double", "float", "half", "to", "type", "type_as"}
_PARTS = (int, slice, type(None), type(...))


def image(base: Place, get: Change, value: Payload, name: str) -> View:
    """The place of a view that shares no memory with its base.

    **Raises:** `AliasError` where it is written.
    """
    return View(base, get, functools.partial(_refuse, name), value=value)


def linked(
    func: Function, args: Args, kwargs: Kwargs, out: Outcome, again: Callable[[Payload], Outcome]
) -> Outcome:
    """The result of a function, as an image of its first argument where torch takes a view.

    **Arguments:** `again`: the function of the first argument alone.
    """
    base, name = args[0] if args else None, _name(func)
    if not isinstance(base, StructuredTensor):
        return out
    if name in _CASTS and out.dtype is base.dtype and not _is_copy(args, kwargs):
        return base  # as in torch
    if not is_view(func, args):
        return out
    several = isinstance(out, (list, tuple))
    for i, t in enumerate(out if several else [out]):
        if isinstance(t, Tensor) and t is not base:
            get = functools.partial(_part, again, i if several else None)
            t._place = image(base._place, get, t._place.read(), name)
    return out


def is_view(func: Function, args: Args) -> bool:
    """True if torch takes a view of the first argument where it can."""
    name = _name(func)
    return name in _VIEWS or (name == "__getitem__" and _is_part(args[1]))


def _name(func: Any) -> str:
    name = getattr(func, "__name__", "")
    return getattr(func.__self__, "__name__", "") if name == "__get__" else name


def _is_copy(args: Args, kwargs: Kwargs) -> bool:
    flags = [a for a in args[1:] if isinstance(a, bool)]  # non_blocking, copy
    return bool(kwargs.get("copy")) or flags[1:] == [True]


def _is_part(index: object) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return all(isinstance(p, _PARTS) and not isinstance(p, bool) for p in parts)


def _part(again: Callable[[Payload], Outcome], i: int | None, payload: Payload) -> Payload:
    with torch.no_grad():
        out = again(payload)
    return (out if i is None else out[i])._place.read()


def _refuse(name: str, base: object, part: object) -> NoReturn:
    raise AliasError(
        message(
            f"cannot write in place: {name} of an array without a memory to share.",
            hint="clone first; or write into the array itself.",
        )
    )
