"""Data goes one way through the layers, rules use public names, tests assert.

Each check takes a source tree and returns what breaks the rule, as `file:line: message`. The checks
run on this project; then a fault of every kind is planted in a small tree and must be reported.
"""

import ast
import functools
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tanjax.jaxprs import KINDS
from tanjax.scale.laws import LAWS

pytestmark = pytest.mark.core

LAYERS = (
    "units",
    "jaxprs",
    "scale",
    "kernels",
    "arrays",
    "quantities",
    "registry",
    "operations",
    "frontends",
    "transforms",
    "mutation",
    "capture",
    "bridges",
    "testing",
)
# Imported by all, importing no layer; then what users import.
SHARED = (
    "_errors",
    "_typing",
    "_jaxpr_types",
    "_compat",
    "_jaxprs",
    "_marks",
    "_dtype_range",
    "_version",
)
FACE = (
    *("__init__", "__main__", "errors", "lax", "linalg", "numpy", "programs", "random", "refs"),
    *("rules", "scipy", "tangents", "typing"),
)
JAX_INTERNALS = ("jax.interpreters", "jax.extend", "jax.version", "jax.__version")
DYNAMIC_IMPORTS = ("import_module", "__import__")
# Layers whose private modules others still import; it may only get shorter.
OPEN_LAYERS = ()
# Files that still import one another; it may only get shorter.
OPEN_CIRCLES = ()
# What a room collects from its own modules as they are imported, or what a layer tells a lower one
# that the lower one documents for any author: no call goes up that the author did not ask for.
COLLECTED = ("LAWS", "law", "spread_form", "unit_handler", "map_methods", "for_keyword")
LATE_BINDINGS = 5  # rows of the table in docs/pages/design/index.md
# Where every call of an operation passes, so that a function that asks is one call too many.
QUESTION = r"type\([^()]*\) is (not )?Quantity|isinstance\(.*\bQuantity\b"
ASK_BY_THEMSELVES = (
    "frontends/_operators",
    "frontends/_quantity_operators",
    "frontends/namespaces/_namespace",
    "quantities/_call",
    "quantities/_constructors",
    "quantities/_headroom",
    "quantities/_operands",
    "quantities/_quantity",
    "registry/_batched",
    "transforms/_arguments",
    "transforms/_jit",
    "transforms/_packing",
)
# Strings in the scale graph that are names of primitives by chance; `name` is a parameter of calls.
HOMONYMS = {
    "graph/_casts": "call",  # an option of NumPy's
    "graph/_events": "call",  # an event of Python's profiler
    "graph/_written": "zeros_like",  # a function of the user's
    "show/_draw": "pad",  # an option of Matplotlib's
}
# Parameters in which JAX stores the programs of an equation and the order of their operands.
LAYOUT = {
    *("jaxpr", "call_jaxpr", "fun_jaxpr", "jaxprs", "branches", "cond_jaxpr", "body_jaxpr"),
    *("cond_nconsts", "body_nconsts", "num_consts", "num_carry", "ft_in", "const_lengths"),
    *("length", "unroll"),
}
NAMEDTUPLE_METHODS = ("_replace", "_asdict", "_fields", "_make")

ROOT = Path(__file__).parents[2]


def modules(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


def parsed(path: Path) -> ast.Module:
    """The tree of a module, which several checks read and none changes."""
    return parsed_text(path.read_text())


parsed_text = functools.cache(ast.parse)


@pytest.fixture(scope="module", autouse=True)
def forget():
    """Trees are large, and other tests pass them at every collection of garbage."""
    yield
    parsed_text.cache_clear()


def name_of(node: ast.expr) -> str:
    """The last part of a dotted name."""
    return getattr(node, "attr", "") or getattr(node, "id", "")


def imported_names(tree: ast.Module) -> Iterator[tuple[int, int, str]]:
    """Yield line, relative level and dotted name of every import, wherever it hides."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, 0, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, node.level, f"{node.module or ''}.{alias.name}".strip(".")
        elif isinstance(node, ast.Call) and name_of(node.func) in DYNAMIC_IMPORTS:
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
        for line, level, name in imported_names(parsed(path)):
            if level >= len(inside) and here in LAYERS:
                faults.append(f"{path}:{line}: relative import leaves the layer `{here}`")
            parts = name.split(".")
            target = parts[0] if level else "".join(parts[1:2])
            if parts[0] == "tanjax_torch" and inside != ("bridges", "torch"):
                faults.append(f"{path}:{line}: `{here}` imports `tanjax_torch`")
            of_tanjax = parts[0] == "tanjax" if level == 0 else level == len(inside) == 1
            if of_tanjax and target not in allowed:
                faults.append(f"{path}:{line}: `{here}` imports `{target or 'tanjax'}`")
    return faults


def absolute(inside: tuple[str, ...], level: int, name: str) -> tuple[str, ...]:
    """The parts of an imported name below `tanjax`; none of what is not of `tanjax`."""
    parts = tuple(name.split("."))
    if level:
        return (*inside[: len(inside) - level], *parts)
    return parts[1:] if parts[0] == "tanjax" else ()


def import_graph(package: Path) -> dict[str, dict[str, int]]:
    """Return which modules of its layer each module imports, and in which line.

    Imports inside of functions, and those that only type checkers read, count too.
    Whoever imports from a folder runs its `__init__`, unless it lies in that folder itself.
    """
    known = {}
    for path in modules(package):
        parts = path.relative_to(package).with_suffix("").parts
        known[parts[:-1] if parts[-1] == "__init__" else parts] = (path, parts)
    graph: dict[str, dict[str, int]] = {}
    for module, (path, inside) in known.items():
        edges = graph[".".join(module)] = {}
        for line, level, name in imported_names(parsed(path)):
            target = absolute(inside, level, name)
            while target and target not in known:
                target = target[:-1]
            folders = [target[:n] for n in range(2, len(target))]
            for found in (target, *(f for f in folders if f != inside[: len(f)])):
                if found[:1] == module[:1] and found != module:
                    edges.setdefault(".".join(found), line)
    return graph


def circle_through(graph: dict[str, dict[str, int]], start: str) -> list[str]:
    """The shortest circle of imports from a module back to it; empty if there is none."""
    paths = [[start]]
    seen = set()
    for path in paths:  # grows while it is read: breadth first
        for target in graph.get(path[-1], {}):
            if target == start:
                return [*path, start]
            if target not in seen:
                seen.add(target)
                paths.append([*path, target])
    return []


def circles(package: Path) -> list[str]:
    """Report files of one layer that import one another, by however many steps."""
    graph, faults, reported = import_graph(package), [], set()
    for start in sorted(graph):
        circle = circle_through(graph, start)
        if circle and not reported & set(circle):
            reported |= set(circle)
            steps = list(pairwise(circle))
            # Whoever imports from a folder that it lies in; of others, any.
            source, target = next((p for p in steps if p[0].startswith(f"{p[1]}.")), steps[0])
            path = package.joinpath(*source.split("."))
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            faults.append(f"{path}:{graph[source][target]}: a circle: {' -> '.join(circle)}")
    return faults


def late_bindings(package: Path) -> dict[str, Path]:
    """Return what modules hand, while they are imported, to modules that they import: its name."""
    found = {}
    for path in modules(package):
        tree = parsed(path)
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            and (node.level or (node.module or "").startswith(package.name))
            for alias in node.names
        }
        for statement in tree.body:
            given: list[ast.expr] = []
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                given = [statement.value.func]
            elif isinstance(statement, ast.Assign):
                given = [
                    x for x in statement.targets if isinstance(x, ast.Subscript | ast.Attribute)
                ]
            for target in given:
                parts = re.split(r"[.(\[]", ast.unparse(target).split("(")[0].split("[")[0])
                name = next((p for p in parts if p.isupper()), parts[-1])
                if parts[0] in imported and not {name, parts[0]} & set(COLLECTED):
                    found[name] = path
    return found


def listed_bindings() -> list[list[list[str]]]:
    """Return the rows of the table of late bindings: names, lower files, higher files."""
    text = (ROOT / "docs/pages/design/index.md").read_text().split("## Late bindings")[1]
    rows = text.split("\n## ")[0].split("| --- |")[-1].splitlines()[1:]
    cells = [row.split("|")[1:4] for row in rows if row.startswith("|")]
    return [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in cells]


def private_across(package: Path) -> list[str]:
    """Report what a layer takes from another layer's private modules, or by a private name."""
    faults = []
    for path in modules(package):
        inside = path.relative_to(package).with_suffix("").parts
        if inside[0] in FACE:
            continue
        tree = parsed(path)
        layers = {}
        for line, level, name in imported_names(tree):
            target = absolute(inside, level, name)
            of_other = target[:1] != inside[:1] and target[:1] and target[0] in LAYERS
            if of_other and any(p.startswith("_") for p in target):
                faults.append(f"{path}:{line}: imports private `{'.'.join(target)}`")
            if of_other and len(target) == 1:
                layers[target[0]] = target
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                root = ast.unparse(node.value).split(".")[0]
                if root in layers and not node.attr.endswith("__"):
                    faults.append(f"{path}:{node.lineno}: uses private `{ast.unparse(node)}`")
    return faults


def private_uses(rules: Path) -> list[str]:
    """Report what a rule pack takes from `tanjax` that is not public."""
    faults = []
    for path in modules(rules):
        tree = parsed(path)
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
        tree = parsed(path)
        uses = [(line, name) for line, level, name in imported_names(tree) if level == 0]
        uses += [(n.lineno, ast.unparse(n)) for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
        faults += [
            f"{path}:{line}: `{name}` belongs in _compat.py"
            for line, name in uses
            if name.startswith(JAX_INTERNALS)
        ]
    return faults


def questions(package: Path) -> list[str]:
    """Report who asks for quantities by another question than `is_quantity`."""
    faults = []
    for path in modules(package):
        if path.relative_to(package).with_suffix("").as_posix() in ASK_BY_THEMSELVES:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(QUESTION, line):
                faults.append(f"{path}:{number}: ask by `is_quantity`, `stored_of`, `label_of`")
    return faults


def named_primitives(package: Path) -> list[str]:
    """Report names of primitives in the scale graph outside of its laws.

    Those of calls and of control flow stand in `jaxprs`.
    """
    faults, scale = [], package / "scale"
    for path in modules(scale):
        inside = path.relative_to(scale).with_suffix("")
        names = (LAWS.keys() | KINDS.keys()) - {"name", HOMONYMS.get(inside.as_posix())}
        for node in ast.walk(parsed(path)) if inside.parts[0] != "laws" else ():
            if isinstance(node, ast.Constant) and node.value in names:
                faults.append(f"{path}:{node.lineno}: `{node.value}` belongs in a law")
    return faults


def laid_out(package: Path) -> list[str]:
    """Report who reads the layout of loops, branches and calls, or asks for them by name.

    `jaxprs` knows both; `_compat` knows how they differ between versions of JAX.
    """
    faults = []
    for path in modules(package):
        inside = path.relative_to(package).with_suffix("")
        if inside.parts[0] in ("jaxprs", "_compat"):
            continue
        for node in ast.walk(parsed(path)):
            for constant in _keys(node):
                if constant.value in LAYOUT:
                    faults.append(f"{path}:{node.lineno}: `{constant.value}` is read by `jaxprs`")
            if isinstance(node, ast.Compare) and ".primitive" in ast.unparse(node):
                named = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)}
                for name in named & KINDS.keys():
                    faults.append(f"{path}:{node.lineno}: ask for `{name}` by `kind_of`")
    return faults


def _keys(node: ast.AST) -> Iterator[ast.Constant]:
    """The constants by which an expression takes a value from a mapping."""
    found = [node.slice] if isinstance(node, ast.Subscript) else []
    if isinstance(node, ast.Call) and name_of(node.func) == "get":
        found = node.args[:1]
    yield from (x for x in found if isinstance(x, ast.Constant))


def borrowing_packs(package: Path) -> list[str]:
    """Report packs of rules that import from one another: they would bring its rules as their own.

    `package` is the folder of the packs; what several need is a module beside them.
    """
    packs = {path.name for path in package.iterdir() if (path / "__init__.py").exists()}
    faults = []
    for path in modules(package):
        inside = path.relative_to(package).parts
        for line, level, name in imported_names(parsed(path)):
            target = name.split(".")[0] if level == len(inside) else ""
            if name.startswith(f"{package.name}."):
                target = name.split(".")[1]
            if target in packs - {inside[0]}:
                faults.append(f"{path}:{line}: imports from the pack `{target}`")
    return faults


def unplaced(tests: Path) -> list[str]:
    """Report files of tests that nobody would look for where they lie.

    A file is named after the module or the folder that it tests and lies where that lies. What
    several modules do is tested in `together`, beside their tests; what the library does as a
    whole in `library`; whole programs of strangers in `programs`.
    """
    src, rules = tests.parent / "src", tests.parent / "rules"
    faults = []
    for path in sorted(tests.rglob("test_*.py")):
        folder = path.relative_to(tests).parent
        sources = (src / "tanjax", rules / "tanjax_rules")
        if folder.parts[:1] == ("torch",):
            sources, folder = (src / "tanjax_torch",), folder.relative_to("torch")
        if folder.name == "together":
            homes = [root / folder.parent for root in sources]
        elif folder.as_posix() in ("library", "programs"):
            continue
        else:
            names = [f"{private}{path.stem[5:]}" for private in ("", "_")]
            homes = [root / folder / name for root in sources for name in names]
        if not any(home.is_dir() or home.with_suffix(".py").is_file() for home in homes):
            faults.append(f"{path}:1: no module and no folder is tested here: see `together`")
    return faults


def silent_tests(folder: Path) -> list[str]:
    """Report tests in which no assertion is seen: a helper that makes some says so by its name."""
    faults = []
    for path in modules(folder):
        for node in ast.walk(parsed(path)):
            is_test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            if is_test and not any(map(_asserts, ast.walk(node))):
                faults.append(f"{path}:{node.lineno}: `{node.name}` shows no assertion")
    return faults


def _asserts(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    is_said = name.startswith("assert") or name in ("raises", "warns", "fail")
    return isinstance(node, ast.Assert) or is_said


@pytest.mark.parametrize(
    ("check", "folder"),
    [
        (upward_imports, "src/tanjax"),
        (questions, "src/tanjax"),
        (named_primitives, "src/tanjax"),
        (laid_out, "src/tanjax"),
        (borrowing_packs, "rules/tanjax_rules"),
        (private_uses, "rules"),
        (jax_internals, "src"),
        (jax_internals, "rules"),
        (silent_tests, "tests"),
        (silent_tests, "property_tests"),
        (silent_tests, "docs"),
        (unplaced, "tests"),
    ],
)
def test_project_keeps_its_layering(check, folder):
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
    "from tanjax import _compat\nfrom tanjax.units import metre\n"
    "def f():\n    from .kinds._one import y",
    "tanjax/arrays/__init__.py": "from ._thing import thing\nfrom .kinds import one",
    "tanjax/arrays/kinds/__init__.py": "from ._one import one",
    "tanjax/arrays/kinds/_one.py": "from typing import TYPE_CHECKING\nfrom ._two import y\n"
    "if TYPE_CHECKING:\n    from .._base import x",
    "tanjax/arrays/kinds/_two.py": "import numpy as _np\n_np._x",
    "tanjax/registry/_op.py": "from tanjax import arrays\nfrom tanjax.arrays import x as _x\n"
    "from tanjax.arrays.kinds import one\nfrom tanjax._errors import ShapeError\n"
    "arrays.__name__\none._field\nfrom ._own import _mine",
    "tanjax/quantities/_quantity.py": "def f(x): return type(x) is Quantity",
    "tanjax/scale/laws/_sums.py": "law('add', 'x: u -> u')",
    "tanjax/jaxprs/_nested.py": "def f(e): return e.primitive.name == 'scan', e.params['jaxpr']",
    "tanjax/scale/show/_draw.py": "f(node.params['name'], pad=3)\nplot('pad')",
    "packs/test_tools.py": "def test_a(): assert f\ndef test_b(): g(assert_same)\n"
    "def test_c():\n    with pytest.raises(E): f()",
    "packs/tools.py": "import tanjax",
    "src/tanjax/arrays/_base.py": "import jax",
    "rules/tanjax_rules/linalg/solve.py": "import tanjax",
    "tests/test_arrays.py": "",
    "tests/arrays/test_base.py": "",
    "tests/arrays/together/test_sums.py": "",
    "tests/linalg/test_solve.py": "",
    "tests/library/test_layering.py": "",
    "tests/programs/test_weather.py": "",
    "packs/one/__init__.py": "from . import rules",
    "packs/one/rules.py": "from ..tools import x\nfrom .other import y",
    "packs/one/other.py": "import tanjax",
    "packs/two/__init__.py": "import tanjax",
    "pack/solve.py": "import tanjax as tj\nfrom tanjax.arrays import thing\n"
    "from ._shared import x\ntj.__version__\npoint._replace(x=1)",
}


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_lists_of_open_faults_hold_only_faults_that_are_left():
    """The lists of what is not yet so hold exactly what is not yet so."""
    found = [fault.split("a circle: ")[1] for fault in circles(ROOT / "src/tanjax")]
    assert sorted(found) == sorted(OPEN_CIRCLES)
    others = [f for root in ("src", "rules") for f in circles(ROOT / root) if "/tanjax/" not in f]
    assert others == []
    private = {fault.split("`")[1].split(".")[0] for fault in private_across(ROOT / "src/tanjax")}
    assert sorted(private) == sorted(OPEN_LAYERS)
    asking = [(ROOT / "src/tanjax" / f"{name}.py").read_text() for name in ASK_BY_THEMSELVES]
    assert all(re.search(QUESTION + "|kind is Quantity", text) for text in asking)
    scale = ROOT / "src/tanjax/scale"
    assert all(f'"{word}"' in (scale / f"{name}.py").read_text() for name, word in HOMONYMS.items())


def test_late_bindings_are_those_of_the_table():
    """No lower file calls a higher one but in the few places that the design page lists."""
    rows = listed_bindings()
    assert len(rows) <= LATE_BINDINGS
    for names, lower, higher in rows:
        files = [
            ROOT / "src" / f if f.startswith("tanjax_") else ROOT / "src/tanjax" / f
            for f in (*lower, *higher)
        ]
        assert all(file.is_file() for file in files)
        higher_texts = [file.read_text() for file in files[len(lower) :]]
        for name in names:
            assert any(name.split(".")[-1] in text for text in higher_texts), name
    own = {n.split(".")[-1] for names, _, higher in rows for n in names if "torch" not in higher[0]}
    assert late_bindings(ROOT / "src/tanjax").keys() == own


def test_a_late_binding_is_found(tmp_path):
    """Whatever a module hands to an imported module while it is imported is found."""
    texts = (
        "from tanjax.units import set_hook\nset_hook(f)",
        "from tanjax import units\nunits.set_hook(f)",
        "from ._base import KINDS\nKINDS[Own] = f",
        "from . import _base\n_base.KINDS.append(f)",
    )
    for text in texts:
        plant(tmp_path, {"tanjax/arrays/_bad.py": text})
        assert late_bindings(tmp_path / "tanjax").keys() & {"set_hook", "KINDS"}, text
    plant(tmp_path, {"tanjax/arrays/_bad.py": "from ._base import f\nx = f(1)\nY = 1\nY += 1"})
    assert late_bindings(tmp_path / "tanjax") == {}


def test_clean_tree_passes(tmp_path):
    """What the rules allow is not reported."""
    plant(tmp_path, GOOD)
    package = tmp_path / "tanjax"
    found = upward_imports(package) + circles(package) + private_across(package)
    found += private_uses(tmp_path / "pack") + questions(package) + named_primitives(package)
    found += laid_out(package)
    found += borrowing_packs(tmp_path / "packs") + silent_tests(tmp_path)
    found += unplaced(tmp_path / "tests")
    assert found + jax_internals(tmp_path) == []


@pytest.mark.parametrize(
    ("check", "name", "text"),
    [
        (upward_imports, "tanjax/arrays/_bad.py", "from tanjax.registry import operation"),
        (upward_imports, "tanjax/arrays/_bad.py", "import tanjax.frontends._operators"),
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
        (circles, "tanjax/arrays/_base.py", "from ._thing import x"),
        (circles, "tanjax/arrays/_base.py", "from . import _thing"),
        (circles, "tanjax/arrays/_base.py", "if TYPE_CHECKING:\n    from ._thing import x"),
        (circles, "tanjax/arrays/_base.py", "import tanjax.arrays._thing"),
        (circles, "tanjax/arrays/_base.py", "def f():\n    from tanjax.arrays._thing import x"),
        (circles, "tanjax/arrays/_base.py", "class A:\n    def f():\n        from . import thing"),
        (circles, "tanjax/arrays/_base.py", "from .kinds._two import y"),  # runs kinds/__init__
        (circles, "tanjax/arrays/_base.py", "import_module('tanjax.arrays.kinds')"),
        (circles, "tanjax/arrays/_base.py", "from .kinds import one"),
        (private_across, "tanjax/registry/_bad.py", "from tanjax.arrays._base import x"),
        (private_across, "tanjax/registry/_bad.py", "from tanjax.arrays.kinds._one import one"),
        (private_across, "tanjax/registry/_bad.py", "from tanjax.arrays import _base"),
        (private_across, "tanjax/registry/_bad.py", "import tanjax.arrays._base"),
        (private_across, "tanjax/registry/_bad.py", "def f():\n    from tanjax.arrays import _x"),
        (private_across, "tanjax/registry/_bad.py", "from tanjax import arrays\narrays._base.x"),
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
        (questions, "tanjax/arrays/_bad.py", "def f(x): return type(x) is Quantity"),
        (questions, "tanjax/arrays/_bad.py", "def f(x): return type(x.y) is not Quantity"),
        (questions, "tanjax/arrays/_bad.py", "def f(x): return isinstance(x, (Quantity, int))"),
        (named_primitives, "tanjax/scale/assign/_bad.py", "if node.primitive == 'add': pass"),
        (named_primitives, "tanjax/scale/_bad.py", "def f(node): return KINDS['while']"),
        (named_primitives, "tanjax/scale/show/_rows.py", "TITLES = {'pad': 3}"),
        (laid_out, "tanjax/capture/_bad.py", "def f(eqn): return eqn.params['branches']"),
        (laid_out, "tanjax/scale/_bad.py", "def f(node): return node.params.get('length', 1)"),
        (laid_out, "tanjax/capture/_bad.py", "def f(e): return e.primitive.name == 'while'"),
        (laid_out, "tanjax/_jaxprs.py", "def f(e): return e.primitive.name in ('jit', 'pjit')"),
        (borrowing_packs, "packs/two/bad.py", "from ..one import rules"),
        (borrowing_packs, "packs/two/bad.py", "from ..one.rules import x"),
        (borrowing_packs, "packs/two/bad.py", "def f():\n    from packs.one.rules import x"),
        (borrowing_packs, "packs/tools.py", "from .one import rules"),
        (silent_tests, "packs/test_bad.py", "def test_a(): close(f(), 1)"),
        (unplaced, "tests/arrays/test_bad.py", ""),
        (unplaced, "tests/test_base.py", ""),
        (unplaced, "tests/test_weather.py", ""),
        (unplaced, "tests/nowhere/together/test_sums.py", ""),
        (unplaced, "tests/programs/deep/test_weather.py", ""),
    ],
)
def test_planted_fault_is_reported(tmp_path, check, name, text):
    """A check that cannot fail guards nothing: each kind of fault is found, in its file."""
    plant(tmp_path, GOOD | {name: text})
    folder = name.split("/")[0]
    faults = check(tmp_path / folder)
    assert faults
    assert all(fault.startswith(f"{tmp_path / name}:") for fault in faults)
