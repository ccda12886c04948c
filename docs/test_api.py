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
    imports = [
        n for n in ast.parse(inspect.getsource(module)).body if isinstance(n, ast.ImportFrom)
    ]
    return {name.asname for node in imports for name in node.names} - {None, "__version__"}


NAMES = sorted(
    public(tanjax)
    | {f"testing.{name}" for name in public(tanjax.testing)}
    | {f"rules.{name}" for name in public(tanjax.rules) - public(tanjax)}
)


def test_page_lists_every_public_name():
    listed = re.findall(r"^::: tanjax\.(\S+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_docstring(name):
    value = tanjax
    for part in name.split("."):
        value = getattr(value, part)
    if not isinstance(value, tuple):  # a constant is explained by a comment
        assert (inspect.getdoc(value) or "").strip()
