"""Ceilings: code lines of each room, sizes of modules and functions, helpers used once, names.

All ceilings stand in this file. `code_lines` in `tests/support/weights.py` counts lines without
blanks, comments and docstrings. The commit that makes a room smaller lowers its ceiling. A commit
that adds a capability may raise the ceiling of its own room, and says what for. Nothing else rises.
"""

import ast
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

import tanjax as tj
from weights import FUNCTIONS, code_lines, used_once

ROOT = Path(__file__).parents[2]

# Code lines of each room. A pattern with `*` is the modules of a folder without its sub-folders.
ROOMS = {
    "src/tanjax/*.py": 1230,
    "src/tanjax/units": 1760,
    "src/tanjax/jaxprs": 210,
    "src/tanjax/scale": 10610,
    "src/tanjax/kernels": 1610,
    "src/tanjax/arrays": 4650,
    "src/tanjax/quantities": 2000,
    "src/tanjax/registry": 1400,
    "src/tanjax/operations": 1170,
    "src/tanjax/frontends": 3900,
    "src/tanjax/transforms": 2700,
    "src/tanjax/mutation": 2140,
    "src/tanjax/capture": 3610,
    "src/tanjax/bridges": 1560,
    "src/tanjax/testing": 3450,
    "rules/tanjax_rules/*.py": 100,
    "rules/tanjax_rules/factorizations": 2020,
    "rules/tanjax_rules/inplace": 380,
    "rules/tanjax_rules/linalg": 2910,
    "rules/tanjax_rules/matrix_functions": 560,
    "src/tanjax_torch": 9810,
    "property_tests/soak": 1980,
}
# Code lines of several rooms together.
SUMS = {
    "tanjax and rules without scale": 37290,
}
MODULE_LINES = 600
FUNCTION_LINES = 80
# Private functions that their module names once, outside of `scale` and `tanjax_torch`.
USED_ONCE = 482
FACE_NAMES = 80  # in `dir(tanjax)`


def room_of(path: Path, root: Path) -> str:
    """Return the room of a module: the folder below its package, or the package's own modules."""
    inside = path.relative_to(root).parts
    if inside[1] == "tanjax_torch" or inside[0] == "property_tests":
        return "/".join(inside[:2])
    return "/".join(inside[:3]) if len(inside) > 3 else "/".join((*inside[:2], "*.py"))


def weights(root: Path) -> dict[str, int]:
    """Return the number of code lines of each room."""
    found: dict[str, int] = {}
    folders = ("src", "rules", "property_tests/soak")
    for path in (path for folder in folders for path in sorted((root / folder).rglob("*.py"))):
        room, text = room_of(path, root), path.read_text()
        found[room] = found.get(room, 0) + code_lines(text, ast.parse(text))
    return found


def too_heavy(found: dict[str, int]) -> list[str]:
    """Report rooms above their ceiling, and rooms that have none."""
    counted = [room for room in found if room.split("/")[1] not in ("tanjax_torch", "soak")]
    light = [room for room in counted if room != "src/tanjax/scale"]
    sums = {"tanjax and rules without scale": sum(found[room] for room in light)}
    rows = {room: (found[room], ROOMS.get(room, 0)) for room in sorted(found)}
    rows |= {name: (sums[name], SUMS[name]) for name in SUMS}
    return [
        f"{name}: {n} code lines, at most {most}" for name, (n, most) in rows.items() if n > most
    ]


def oversized(root: Path) -> list[str]:
    """Report modules and functions that are longer than a reader can hold."""
    faults = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text()
        length = len(text.splitlines())
        if length > MODULE_LINES:
            faults.append(f"{path}:1: module has {length} lines, at most {MODULE_LINES}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, FUNCTIONS):
                length = node.end_lineno - node.lineno + 1
                if length > FUNCTION_LINES:
                    where = f"{path}:{node.lineno}: `{node.name}`"
                    faults.append(f"{where} has {length} lines, at most {FUNCTION_LINES}")
    return faults


def helpers_used_once(root: Path) -> list[str]:
    """Return where `src` and `rules` define a private function for one use."""
    return [
        f"{path}:{node.lineno}: {node.name}"
        for folder in ("src", "rules")
        for path in sorted((root / folder).rglob("*.py"))
        if not {"scale", "tanjax_torch"} & set(path.relative_to(root).parts)
        for node in used_once(ast.parse(path.read_text()))
    ]


def test_rooms_stay_below_their_ceilings():
    found = weights(ROOT)
    assert found["src/tanjax/arrays"] > 1000, "the modules were not found"
    faults = too_heavy(found)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("folder", ["src", "rules"])
def test_modules_and_functions_stay_below_their_ceilings(folder):
    assert list((ROOT / folder).rglob("*.py")), "nothing was checked"
    faults = oversized(ROOT / folder)
    assert not faults, "\n" + "\n".join(faults)


def test_helpers_used_once_stay_below_their_ceiling():
    """A helper with one use is inlined, unless its name is a term of the field."""
    assert 0 < len(helpers_used_once(ROOT)) <= USED_ONCE


def test_names_at_top_level_stay_below_their_ceiling():
    assert 0 < len([n for n in dir(tj) if n.isidentifier() and n[0] != "_"]) <= FACE_NAMES


def test_mypy_demands_types_of_public_modules():
    """A private module may have functions without annotations, and no other module."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    (typed,) = [row["module"] for row in options if row.get("disallow_untyped_defs")]
    packages = [pattern.removesuffix(".*") for pattern in typed]  # `a.*` is also `a`
    for path in (path for folder in ("src", "rules") for path in (ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts[1:]
        defines = any(isinstance(node, FUNCTIONS) for node in ast.parse(path.read_text()).body)
        if defines and not any(part.startswith("_") for part in parts if part != "__init__"):
            name = ".".join(part for part in parts if part != "__init__")
            assert any(fnmatch(name, pattern) for pattern in (*typed, *packages)), name


SOURCE = '''"""A module.

With two paragraphs.
"""

X = """a
b"""  # two lines, and no docstring


def _once(a):
    """Return a."""
    # A comment.
    return a


def _twice(): ...


_once(_twice(), _twice())
'''


def test_code_lines_are_neither_blank_nor_comments_nor_docstrings():
    assert code_lines(SOURCE, ast.parse(SOURCE)) == 6


@pytest.mark.parametrize(
    "text", ["x = 1\n" * (MODULE_LINES + 1), "def f():\n" + "    x = 1\n" * FUNCTION_LINES]
)
def test_an_oversized_module_or_function_is_reported(tmp_path, text):
    (tmp_path / "good.py").write_text("def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1))
    assert not oversized(tmp_path)
    (tmp_path / "bad.py").write_text(text)
    assert [fault.split(":")[0] for fault in oversized(tmp_path)] == [str(tmp_path / "bad.py")]


def test_a_room_above_its_ceiling_or_without_one_is_reported():
    at_most = {**ROOMS, **dict.fromkeys(("src/tanjax/scale", "src/tanjax_torch"), 0)}
    small = dict.fromkeys(at_most, 1)
    assert not too_heavy(small)
    for room in ("src/tanjax/units", "src/tanjax_torch", "src/tanjax/attic"):
        (fault,) = too_heavy({**small, room: ROOMS.get(room, 0) + 1})
        assert fault.startswith(f"{room}: ")
    assert too_heavy({"src/tanjax/arrays": 4650, "src/tanjax/capture": SUMS[next(iter(SUMS))]})


def test_rooms_and_helpers_of_a_tree_are_found(tmp_path):
    names = ("src/tanjax/_a", "src/tanjax/units/deep/_b", "src/tanjax_torch/ops/_c")
    names += ("rules/tanjax_rules/linalg/d", "property_tests/soak/e")
    for name in names:
        path = (tmp_path / name).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCE)
    rooms = ("src/tanjax/*.py", "src/tanjax/units", "src/tanjax_torch")
    rooms += ("rules/tanjax_rules/linalg", "property_tests/soak")
    assert weights(tmp_path) == dict.fromkeys(rooms, 6)
    helpers = helpers_used_once(tmp_path)
    assert len(helpers) == 3, "those of tanjax_torch do not count"
    assert all(line.endswith(":10: _once") for line in helpers)
