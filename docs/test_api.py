"""The API page lists every public name, and every public name says what it is for."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import tanjax
import tanjax.rules
import tanjax.testing

PAGE = Path(__file__).parent / "pages" / "api.md"


def public(module):
    """The names that a package's face re-exports: `from ._x import name as name`."""
    face = ast.parse(inspect.getsource(module))
    inside = {n for f in ast.walk(face) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    imports = [n for n in ast.walk(face) if isinstance(n, ast.ImportFrom) and n not in inside]
    return {name.asname for node in imports for name in node.names} - {None, "__version__"}


NAMES = sorted(
    public(tanjax)
    | {f"testing.{name}" for name in public(tanjax.testing)}
    | {f"rules.{name}" for name in public(tanjax.rules) - public(tanjax)}
)
# The folder `capture` and its function have one name; of an equation a program tells.
ON_THE_PAGE = {"capture": "capture.capture"}
NOT_IN_THE_FACE = {"capture.Equation"} | {
    f"capture.passes.{name}" for name in ("cost", "CostTable", "CostRow")
}


def test_page_lists_every_public_name():
    listed = re.findall(r"^::: tanjax\.(\S+)$", PAGE.read_text(), re.MULTILINE)
    names = {ON_THE_PAGE.get(name, name) for name in NAMES}
    assert sorted(listed) == sorted(names | NOT_IN_THE_FACE)


@pytest.mark.parametrize("name", NAMES)
def test_docstring(name):
    value = tanjax
    for part in name.split("."):
        value = getattr(value, part)
    if not isinstance(value, tuple):  # a constant is explained by a comment
        assert (inspect.getdoc(value) or "").strip()
