"""The API pages list every public name, and every public name has a docstring.

The test of PyTorch's bridge does not import torch, like the build of the documentation.
"""

import ast
import importlib
import inspect
import operator
import re
from pathlib import Path

import pytest

import tanjax
import tanjax.bridges

pytestmark = pytest.mark.docs

PAGES = Path(__file__).parent / "pages"
PACKAGE = Path(tanjax.__file__).parent
TORCH = PACKAGE.with_name("tanjax_torch")


def face(file):
    """Return the names that a module re-exports, with their origin (`from ._x import a as a`)."""
    tree = ast.parse(file.read_text())
    inside = {n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n not in inside]
    names = {a.asname: n.module for n in imports for a in n.names if a.asname}
    return {name: module for name, module in names.items() if name[0] != "_"}


def defined(path):
    """Return the functions and classes of a file."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {n.name: n for n in ast.parse(path.read_text()).body if isinstance(n, kinds)}


def defined_by(bridge):
    """Return the functions and classes that a bridge itself defines, without underscore."""
    module = importlib.import_module(f"tanjax.bridges.{bridge}")
    mine = (n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__)
    return {f"bridges.{bridge}.{name}" for name in mine if name[0] != "_"}


FACE, RULES = face(PACKAGE / "__init__.py").keys(), face(PACKAGE / "rules.py").keys()
TESTING = face(PACKAGE / "testing" / "__init__.py")
NAMES = FACE | {f"rules.{n}" for n in RULES - FACE} | {f"testing.{n}" for n in TESTING}
# Names outside of the faces: a program returns equations, and `passes` has its own face.
BESIDES = {"capture.Equation", *(f"capture.passes.{n}" for n in ("cost", "CostTable", "CostRow"))}
BRIDGES = {"typing.Quantity", "typing.checked"}.union(
    *(defined_by(bridge) for bridge in dir(tanjax.bridges) if bridge != "torch")
)
OFFERED = face(TORCH / "__init__.py")
FILES = {
    name: (f"{module.replace('.', '/')}.py", name) for name, module in OFFERED.items() if module
}
FILES |= {f"nn.{name}": ("nn.py", name) for name in defined(TORCH / "nn.py") if name[0] != "_"}


@pytest.mark.parametrize(
    ("page", "package", "names"),
    [
        # The folder `capture` and its function have the same name.
        ("api", "tanjax", NAMES - {"capture"} | {"capture.capture"} | BESIDES),
        ("api_bridges", "tanjax", BRIDGES),
        ("api_torch", "tanjax_torch", FILES),
    ],
)
def test_page_lists_every_public_name(page, package, names):
    text = (PAGES / f"{page}.md").read_text()
    listed = re.findall(rf"^::: {re.escape(package)}\.(\S+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(names)


@pytest.mark.parametrize("name", sorted(NAMES | BRIDGES))
def test_every_public_name_has_a_docstring(name):
    value = operator.attrgetter(name)(tanjax)
    if not isinstance(value, tuple):  # a comment explains a constant
        assert (inspect.getdoc(value) or "").strip()


@pytest.mark.parametrize("name", FILES)
def test_docstring_of_the_bridge_to_torch(name):
    file, inner = FILES[name]
    assert ast.get_docstring(defined(TORCH / file)[inner])
