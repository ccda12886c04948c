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


def written(name):
    """Return where a name is documented: captured transforms have the docstrings of the plain."""
    base = name.split(".")[-1]
    if base == "capture":  # the folder and its function have the same name
        return "capture.capture"
    is_wrapped = base in capture and base in transforms
    return f"transforms.{base}" if is_wrapped else name


capture, transforms = (
    face(PACKAGE / "capture/__init__.py"),
    face(PACKAGE / "transforms/__init__.py"),
)
SPACES = ("errors", "linalg", "programs", "refs", "rules", "tangents")
MODULES = {n for n in tanjax.__all__ if inspect.ismodule(getattr(tanjax, n))}
TOP = set(tanjax.__all__) - MODULES
INSIDE = {s: set(getattr(tanjax, s).__all__) - TOP - {"passes"} for s in SPACES}
TESTING = face(PACKAGE / "testing" / "__init__.py")
NAMES = TOP.union(*({f"{s}.{n}" for n in names} for s, names in INSIDE.items()))
NAMES |= {f"testing.{n}" for n in TESTING}
# `passes` has its own face; two modules have an introduction.
BESIDES = {"rules", "units"} | {f"capture.passes.{n}" for n in ("cost", "CostTable", "CostRow")}
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
        ("api", "tanjax", {written(n) for n in NAMES} | BESIDES),
        ("api_bridges", "tanjax", BRIDGES),
        ("api_torch", "tanjax_torch", FILES),
    ],
)
def test_page_lists_every_public_name(page, package, names):
    text = (PAGES / f"{page}.md").read_text()
    listed = re.findall(rf"^::: {re.escape(package)}\.(\S+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(names)


def test_the_table_of_themes_has_every_name_once():
    table = re.findall(r"^\| \[.*", (PAGES / "api.md").read_text(), re.MULTILINE)
    top, inside = zip(*(line.split("|")[2:4] for line in table), strict=True)
    assert sorted(re.findall(r"`(\w+)`", "".join(top))) == sorted(TOP)
    for cell in filter(str.strip, inside):
        space, names = re.fullmatch(r" `tj\.(\w+)`: (.*) ", cell).groups()
        assert set(re.findall(r"`(\w+)`", names)) - {"passes"} == INSIDE[space]


@pytest.mark.parametrize("name", sorted(NAMES | BRIDGES))
def test_every_public_name_has_a_docstring(name):
    value = operator.attrgetter(name)(tanjax)
    if not isinstance(value, tuple):  # a comment explains a constant
        assert (inspect.getdoc(value) or "").strip()


@pytest.mark.parametrize("name", FILES)
def test_docstring_of_the_bridge_to_torch(name):
    file, inner = FILES[name]
    assert ast.get_docstring(defined(TORCH / file)[inner])
