"""The place of a fault in an author's code: the function or method, its file and line."""

from __future__ import annotations

import inspect
import re
import traceback

from tanjax import _compat
from tanjax._typing import Function
from tanjax.arrays import ArrayType


def place(function: Function) -> str:
    """Return the place of a function without its decorators: `name (file:line)`."""
    written = inspect.unwrap(function)
    code = getattr(written, "__code__", None)
    name = getattr(written, "__qualname__", repr(written)).replace("<locals>.", "")
    return f"{name} ({f'{code.co_filename}:{code.co_firstlineno}' if code else written.__module__})"


def method(kind: ArrayType, text: str) -> str:
    """Return the place of the first method that a text names, otherwise of the definition."""
    for name in (*re.findall(r"\w+", text), "to_dense", "destructure"):
        found = vars(kind.cls).get(name) if kind.is_own else getattr(kind, name, None)
        found = getattr(found, "fget", None) or getattr(found, "__func__", found)
        if inspect.isfunction(found):
            role = "the definition" if name in ("to_dense", "destructure") else "written in"
            return f"{role}: {place(found)}"
    return f"array type: {kind.cls.__qualname__} ({kind.cls.__module__})"


def raised(error: Exception) -> str:
    """Return an error as text, with the author's line that raised it if there is one."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(_compat.NOT_THE_USERS)]
    where = f", from {own[-1].filename}:{own[-1].lineno} ({own[-1].name})" if own else ""
    return f"{type(error).__name__}: {error}{where}"
