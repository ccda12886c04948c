"""Data goes one way through the layers, rules use only public names, and modules stay small.

Each check takes a source tree and returns what breaks the rule, as `file:line: message`. The checks
run on this project; then a fault of every kind is planted in a small tree and must be reported.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

LAYERS = (
    "units",
    "scale",
    "arrays",
    "registry",
    "dispatch",
    "transforms",
    "mutation",
    "capture",
    "bridges",
    "testing",
)
# Imported by all, importing no layer; then what users import.
SHARED = ("_errors", "_typing", "_compat", "_dtype_range", "_version")
FACE = ("__init__", "__main__", "numpy", "lax", "random", "rules", "scipy", "typing")
JAX_INTERNALS = ("jax.interpreters", "jax.extend", "jax.version", "jax.__version")
DYNAMIC_IMPORTS = ("import_module", "__import__")
NAMEDTUPLE_METHODS = ("_replace", "_asdict", "_fields", "_make")
MODULE_LINES = 400
FUNCTION_LINES = 50

ROOT = Path(__file__).parents[1]


def modules(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


def imported_names(tree: ast.Module) -> Iterator[tuple[int, int, str]]:
    """Yield line, relative level and dotted name of every import, wherever it hides."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, 0, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, node.level, f"{node.module or ''}.{alias.name}".strip(".")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(DYNAMIC_IMPORTS):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant):
                    yield node.lineno, 0, str(argument.value)


def upward_imports(package: Path) -> list[str]:
    """Report imports that do not go down: `package` is the folder of `tanjax`."""
    faults = []
    for path in modules(package):
        inside = path.relative_to(package).with_suffix("").parts
        here = inside[0]
        if here in FACE:
            continue
        if here not in (LAYERS if len(inside) > 1 else SHARED):
            faults.append(f"{path}:1: `{here}` is neither a layer nor a shared module")
            continue
        allowed = (*SHARED, *LAYERS[: LAYERS.index(here) + 1]) if here in LAYERS else SHARED
        for line, level, name in imported_names(ast.parse(path.read_text())):
            if level >= len(inside) and here in LAYERS:
                faults.append(f"{path}:{line}: relative import leaves the layer `{here}`")
            parts = name.split(".")
            target = parts[0] if level else "".join(parts[1:2])
            of_tanjax = parts[0] == "tanjax" if level == 0 else level == len(inside) == 1
            if of_tanjax and target not in allowed:
                faults.append(f"{path}:{line}: `{here}` imports `{target or 'tanjax'}`")
    return faults


def private_uses(rules: Path) -> list[str]:
    """Report what a rule pack takes from `tanjax` that is not public."""
    faults = []
    for path in modules(rules):
        tree = ast.parse(path.read_text())
        for line, level, name in imported_names(tree):
            parts = name.split(".")
            if level == 0 and parts[0] == "tanjax" and any(p.startswith("_") for p in parts):
                faults.append(f"{path}:{line}: imports private `{name}`")
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_"):
                continue
            of_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not (of_itself or node.attr.endswith("__") or node.attr in NAMEDTUPLE_METHODS):
                faults.append(f"{path}:{node.lineno}: uses private `{ast.unparse(node)}`")
    return faults


def jax_internals(root: Path) -> list[str]:
    """Report uses of JAX that its next version may break, outside the one file made for them."""
    faults = []
    for path in modules(root):
        in_compat = path.name == "_compat.py"
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if "jax._src" in line:
                faults.append(f"{path}:{number}: mentions a private module of JAX")
            if not in_compat and re.search(r"""version\(["']jax""", line):
                faults.append(f"{path}:{number}: a switch on the version belongs in _compat.py")
        if in_compat:
            continue
        tree = ast.parse(path.read_text())
        uses = [(line, name) for line, level, name in imported_names(tree) if level == 0]
        uses += [(n.lineno, ast.unparse(n)) for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
        faults += [
            f"{path}:{line}: `{name}` belongs in _compat.py"
            for line, name in uses
            if name.startswith(JAX_INTERNALS)
        ]
    return faults


def oversized(root: Path) -> list[str]:
    """Report modules and functions that are longer than a reader can hold."""
    faults = []
    for path in modules(root):
        text = path.read_text()
        length = len(text.splitlines())
        if length > MODULE_LINES:
            faults.append(f"{path}:1: module has {length} lines, at most {MODULE_LINES}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = node.end_lineno - node.lineno + 1
                if length > FUNCTION_LINES:
                    where = f"{path}:{node.lineno}: `{node.name}`"
                    faults.append(f"{where} has {length} lines, at most {FUNCTION_LINES}")
    return faults


@pytest.mark.parametrize(
    ("check", "folder"),
    [
        (upward_imports, "src/tanjax"),
        (private_uses, "rules"),
        (jax_internals, "src"),
        (jax_internals, "rules"),
        (oversized, "src"),
        (oversized, "rules"),
    ],
)
def test_project(check, folder):
    """The layering of this project holds."""
    assert modules(ROOT / folder), "nothing was checked"
    faults = check(ROOT / folder)
    assert not faults, "\n" + "\n".join(faults)


GOOD = {
    "tanjax/__init__.py": "from .arrays import thing as thing",
    "tanjax/__main__.py": "from tanjax.testing import run",
    "tanjax/_errors.py": "class ShapeError(ValueError): ...",
    "tanjax/_compat.py": "import jax.extend\nfrom ._errors import ShapeError",
    "tanjax/arrays/_base.py": "import jax\nfrom tanjax._errors import ShapeError",
    "tanjax/arrays/_thing.py": "from . import _base\nfrom ._base import x\n"
    "from tanjax import _compat\nfrom tanjax.units import metre",
    "tanjax/arrays/kinds/_one.py": "from .._base import x",
    "pack/solve.py": "import tanjax as tj\nfrom tanjax.arrays import thing\n"
    "from ._shared import x\ntj.__version__\npoint._replace(x=1)",
}


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_clean_tree_passes(tmp_path):
    """What the rules allow is not reported."""
    plant(tmp_path, GOOD)
    found = upward_imports(tmp_path / "tanjax") + private_uses(tmp_path / "pack")
    assert found + jax_internals(tmp_path) + oversized(tmp_path) == []


@pytest.mark.parametrize(
    ("check", "name", "text"),
    [
        (upward_imports, "tanjax/arrays/_bad.py", "from tanjax.registry import operation"),
        (upward_imports, "tanjax/arrays/_bad.py", "import tanjax.dispatch._operators"),
        (upward_imports, "tanjax/arrays/_bad.py", "from tanjax import transforms"),
        (upward_imports, "tanjax/arrays/_bad.py", "import tanjax as tj"),
        (upward_imports, "tanjax/arrays/_bad.py", "from tanjax import Diagonal"),
        (upward_imports, "tanjax/arrays/_bad.py", "from ..units import metre"),
        (upward_imports, "tanjax/arrays/_bad.py", "from .. import _errors"),
        (upward_imports, "tanjax/arrays/kinds/_bad.py", "from ...units import metre"),
        (upward_imports, "tanjax/arrays/_bad.py", "def f():\n    from tanjax.testing import x"),
        (upward_imports, "tanjax/arrays/_bad.py", "import_module('tanjax.testing')"),
        (upward_imports, "tanjax/units/_bad.py", "from tanjax.scale import graph"),
        (upward_imports, "tanjax/_errors.py", "from tanjax.units import metre"),
        (upward_imports, "tanjax/_errors.py", "from .units import metre"),
        (upward_imports, "tanjax/_errors.py", "from . import units"),
        (upward_imports, "tanjax/helpers/_bad.py", "import numpy"),
        (upward_imports, "tanjax/_helpers.py", "import numpy"),
        (private_uses, "pack/bad.py", "from tanjax._errors import ShapeError"),
        (private_uses, "pack/bad.py", "from tanjax.arrays._diagonal import Diagonal"),
        (private_uses, "pack/bad.py", "from tanjax import _compat"),
        (private_uses, "pack/bad.py", "import tanjax as tj\ntj.arrays._diagonal.Diagonal"),
        (private_uses, "pack/bad.py", "def f(a):\n    return a._storage"),
        (jax_internals, "pack/bad.py", "from jax._src import core"),
        (jax_internals, "tanjax/_compat.py", "import jax._src.core"),
        (jax_internals, "pack/bad.py", "from jax.interpreters import ad"),
        (jax_internals, "pack/bad.py", "from jax import extend"),
        (jax_internals, "pack/bad.py", "import jax\njax.extend.core.Primitive"),
        (jax_internals, "pack/bad.py", "import jax\nif jax.__version_info__ > (1,): pass"),
        (jax_internals, "pack/bad.py", "from importlib import metadata\nmetadata.version('jax')"),
        (oversized, "pack/bad.py", "x = 1\n" * (MODULE_LINES + 1)),
        (oversized, "pack/bad.py", "def f():\n" + "    x = 1\n" * FUNCTION_LINES),
    ],
)
def test_planted_fault_is_reported(tmp_path, check, name, text):
    """A check that cannot fail guards nothing: each kind of fault is found, in its file."""
    plant(tmp_path, GOOD | {name: text})
    folder = name.split("/")[0]
    faults = check(tmp_path / folder)
    assert faults
    assert all(fault.startswith(f"{tmp_path / name}:") for fault in faults)
