"""Notes on errors in the capture or the walk of a program: the place, and advice."""

from __future__ import annotations

import sys

from tanjax._errors import outside

_BRANCHES = (
    "all branches return the same tree, shapes, dtypes and units: convert what one of them returns"
)
_CARRY = "a carry keeps its type: start with a value of the type that the body returns"
_HINTS = {
    "cond": _BRANCHES,
    "switch": _BRANCHES,
    "scan": _CARRY,
    "while": _CARRY,
    "while_loop": _CARRY,
    "fori_loop": _CARRY,
    "for_loop": _CARRY,
}
_OF_TYPES = ("carry", "branch", "true_fun", "false_fun", "body_fun", "structure")


def explain(error: Exception, name: str, which: str, line: str) -> None:
    """Add the equation and the line to an error, once: in the innermost equation."""
    if any(n.startswith("In the equation") for n in getattr(error, "__notes__", ())):
        return
    error.add_note(f"In the equation `{name}` of {which}{', ' if line else ''}{line}.")
    if name in _HINTS and isinstance(error, TypeError) and any(w in str(error) for w in _OF_TYPES):
        error.add_note(f"Hint: {_HINTS[name]}.")


def called_from() -> str:
    """The line of the user's program that is running, as `file:line (function)`."""
    try:
        frame = sys._getframe(outside() - 1)
    except ValueError:
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
