"""The API page of PyTorch lists what its bridge offers, and all of it is explained.

Read without importing torch, as the documentation is built.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BRIDGE = ROOT / "src" / "tanjax" / "bridges" / "torch"
LISTED = re.findall(
    r"^::: tanjax\.bridges\.torch\.(\S+)$",
    (ROOT / "docs" / "pages" / "api_torch.md").read_text(),
    re.MULTILINE,
)


def offered(path):
    """The names of a module's face, each with the file that defines it."""
    face = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.ImportFrom)]
    return {
        name.asname: path.parent / f"{node.module}.py"
        for node in face
        for name in node.names
        if node.level and node.module and name.asname and not name.asname.startswith("_")
    }


def defined(path):
    """The public functions and classes of a file."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {n.name: n for n in ast.parse(path.read_text()).body if isinstance(n, kinds)}


NAMES = offered(BRIDGE / "__init__.py") | {
    f"nn.{name}": BRIDGE / "nn.py" for name in defined(BRIDGE / "nn.py") if name[0] != "_"
}


def test_page_lists_every_public_name():
    assert sorted(LISTED) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_docstring(name):
    node = defined(NAMES[name]).get(name.removeprefix("nn."))
    assert node is not None, f"{name} is not defined where it is imported from"
    assert ast.get_docstring(node)
