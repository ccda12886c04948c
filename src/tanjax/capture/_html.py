"""A captured program as HTML with coloured types, as a notebook shows it.

The text is that of the print. The type of a variable is coloured where the variable is bound: blue
for array types, green for quantities, purple for instances of `tj.programs.CaptureMeta` classes,
grey for plain arrays, and orange for densified types. All text from the program is escaped.
"""

from __future__ import annotations

import html
import re

from tanjax.quantities import Quantity

from ._equations import Body, Operand, Variable
from ._print import Names, program_text
from ._types import CapturedClass

# Marks around a type while the text is made: `repr` escapes them, so no value contains them.
_OPEN, _CLOSE = "\ue000", "\ue001"
_KINDS = {"plain": "\ue010", "structured": "\ue011", "quantity": "\ue012", "class": "\ue013"}
_STYLE = """
.tanjax-program { font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace; overflow-x: auto; }
.tanjax-program .plain { color: #808080; }
.tanjax-program .structured { color: #0072B2; }
.tanjax-program .quantity { color: #009E73; }
.tanjax-program .class { color: #AA4499; }
.tanjax-program .lost { background: #E69F00; color: #000; }
"""


class _Marked(Names):
    """Letters for variables, with their types between marks."""

    def typed(self, x: Operand | None) -> str:
        if x is None:
            return "_"
        return f"{self(x)}:{_OPEN}{_KINDS[_kind(x)]}{x.type}{_CLOSE}"


def _kind(x: Operand) -> str:
    kind = x.kind if isinstance(x, Variable) else None
    if kind is None:
        return "plain"
    if kind is Quantity:
        return "quantity"
    return "class" if isinstance(kind, CapturedClass) else "structured"


def to_html(program: Body) -> str:
    """Return the program as a fragment of HTML that brings its style."""
    text = html.escape(program_text(program, _Marked()))
    for kind, mark in _KINDS.items():
        text = text.replace(f"{_OPEN}{mark}", f'<span class="{kind}">')
    text = text.replace(_CLOSE, "</span>")
    text = re.sub(r"densify\[[^\]<>&]*\]", r'<span class="lost">\g<0></span>', text)
    return f'<style>{_STYLE}</style><pre class="tanjax-program">{text}</pre>'
