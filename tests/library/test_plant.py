"""The list of planted bugs fits the tree, and planting finds the test that catches a bug."""

import collections
import json
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import plant

ROOT = Path(__file__).parents[2]
# A package has one bug for so many of its lines: enough for each family of code, few enough that a
# run of the whole list ends within two hours.
LINES = 550
KINDS = {"sign", "factor", "swap", "bound", "term", "dtype"} | {
    "warning",
    "key",
    "lock",
    "condition",
    "units",
    "structure",
}


def test_planted_bugs_have_their_places():
    """Code that moves takes its bugs along: edit `tests/support/planted.toml` with it."""
    faults = []
    for bug in plant.bugs():
        try:
            source = (ROOT / bug.path).read_text()
            assert plant.planted(bug, source) != source
        except (OSError, LookupError) as error:
            faults.append(f"{bug}: {error}")
    assert not faults, "\n" + "\n".join(faults)


def test_planted_bugs_are_of_every_kind_and_none_twice():
    listed = plant.bugs()
    assert len({(bug.function, bug.text, bug.planted) for bug in listed}) == len(listed)
    assert {bug.kind for bug in listed} == KINDS


def test_planted_bugs_are_spread_as_the_lines_are():
    """Equivalent bugs do not count."""
    package = lambda path: path.parts[:2] if path.parts[2].endswith(".py") else path.parts[:3]
    lines = collections.Counter()
    for root in ("src/tanjax", "src/tanjax_torch", "rules/tanjax_rules", "property_tests/soak"):
        for path in (ROOT / root).rglob("*.py"):
            lines[package(path.relative_to(ROOT))] += len(path.read_text().splitlines())
    count = collections.Counter(package(bug.path) for bug in plant.bugs() if not bug.equivalent)
    missing = {p: n // LINES - count[p] for p, n in lines.items() if count[p] < n // LINES}
    assert not missing, "\n".join(
        f"{'/'.join(p)} needs {more} more bugs: it has {count[p]} in {lines[p]} lines"
        for p, more in missing.items()
    )


ENTRY = '[[bug]]\nfunction = "tanjax.a:f"\nkind = "sign"\ntext = "a"\nplanted = "b"\n'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("planted", "plants", "no field `planted`; has the unknown field `plants`"),
        (
            "tanjax.a",
            "tanjay.a",
            "must begin with a package of tanjax, .*; got 'tanjay'",
        ),
        ('"sign"', "3", "`kind` must be a text"),
        ('function = "tanjax.a:f"\n', "", r"\(without a function\): has no field `function`"),
    ],
)
def test_entry_that_is_no_bug_is_named_with_its_file(tmp_path, monkeypatch, old, new, said):
    listed = tmp_path / "planted.toml"
    listed.write_text(ENTRY + ENTRY.replace(old, new))
    monkeypatch.setattr(plant, "LIST", listed)
    with pytest.raises(ValueError, match=rf"planted.toml, entry 2 .*{said}"):
        plant.bugs()
    listed.write_text(ENTRY)
    assert [bug.function for bug in plant.bugs()] == ["tanjax.a:f"]


MODULE = "def area(a, b):\n    return a * b\n\n\ndef edge(a, b):\n    return 2 * (a + b)\n"
TESTS = """
from tanjax_rules import area, edge

def test_area_of_a_square():
    assert area(2, 2) == 4

def test_area_of_a_strip():
    assert area(1, 3) == 3

def test_edge():
    assert edge(1, 3) == 8
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree of one module and three tests, in which `plant` works."""
    for name in ("rules/tanjax_rules", "tests/support", ".planted"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "rules/tanjax_rules/__init__.py").write_text(MODULE)
    (tmp_path / "tests/test_rules.py").write_text(TESTS)
    shutil.copy2(plant.__file__, tmp_path / "tests/support")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.setattr(plant, "ROOT", tmp_path)
    monkeypatch.setattr(plant, "FOLDER", tmp_path / ".planted")
    return tmp_path


SQUARE, STRIP, EDGE = (
    f"tests/test_rules.py::test_{name}" for name in ("area_of_a_square", "area_of_a_strip", "edge")
)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "planted", "caught"),
    [
        ("a * b", "a + b", STRIP),  # 2 + 2 is 4, too
        ("a * b", "b * a", ""),
        ("a * b", "a * c", SQUARE),
        ("return", "retrun", "tests/test_rules.py"),  # no test can be read
    ],
)
def test_first_catch_is_the_first_test_that_fails(tree, text, planted, caught):
    tests = [SQUARE, STRIP, EDGE]
    bug = plant.Bug("tanjax_rules:area", "factor", text, planted)
    assert plant.first_catch(bug, tree, tests, dict.fromkeys(tests, 0.1))[0] == caught
    assert (tree / "rules/tanjax_rules/__init__.py").read_text() == MODULE


SUM = plant.Bug("tanjax_rules:area", "sign", "a * b", "a + b")
CRASH = "import os, tanjax_rules\ndef test_bad():\n    tanjax_rules.area(1, 2)\n    os._exit(3)\n"
BAD = {
    "fails": "def test_bad():\n    assert 0\n",
    "cannot be read": "raise OSError\n",
    "crashes": CRASH,
    "is gone": None,
}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_failure_without_a_bug_is_no_catch(tree, text):
    if text:
        (tree / "tests/test_bad.py").write_text(text)
    tests = ["tests/test_bad.py::test_bad", STRIP]
    tests_of = types.SimpleNamespace(tests=lambda _: tests, seconds=dict.fromkeys(tests, 0.1))
    caught = plant.run([SUM], tests_of, 1, {}, lambda *_: None)
    assert caught == {str(SUM): STRIP}


@pytest.mark.processes
def test_map_names_the_tests_of_a_line_that_are_still_there(tree):
    pytest.importorskip("coverage")
    gone = tree / "tests/test_gone.py"
    gone.write_text(TESTS)
    plant.make_map(1, ())
    gone.unlink()
    assert set(plant.Map(plant.collected(tree, ())).tests(SUM)) == {SQUARE, STRIP}


@pytest.mark.slow
@pytest.mark.processes
def test_tests_that_may_be_renamed_ones_are_tried_with_an_old_map(tree):
    """Of a file with tests that are gone, and of another file with the name of one."""
    pytest.importorskip("coverage")
    other = tree / "tests/test_other.py"
    other.write_text("def test_one():\n    assert 1\n")
    plant.make_map(1, ())
    file = tree / "tests/test_rules.py"
    file.write_text(TESTS.replace("area_of_a_strip", "area_of_a_stripe"))
    other.write_text(other.read_text() + "def test_two():\n    assert 2\n")
    renamed = f"{STRIP}e"
    assert set(plant.Map(plant.collected(tree, ())).tests(SUM)) == {SQUARE, renamed}
    file.rename(tree / "tests/test_area.py")
    moved = SQUARE.replace("test_rules", "test_area")
    assert moved in plant.Map(plant.collected(tree, ())).tests(SUM)


@pytest.mark.slow
@pytest.mark.processes
def test_new_tests_of_the_mirror_are_tried_with_an_old_map(tree):
    pytest.importorskip("coverage")
    (tree / "rules/tanjax_rules/solve.py").write_text(MODULE)
    plant.make_map(1, ())
    for name in ("test_solve.py", "test_others.py"):
        (tree / "tests" / name).write_text("def test_new():\n    assert 1\n")
    bug = plant.Bug("tanjax_rules.solve:area", "sign", "a * b", "a + b")
    assert plant.Map(plant.collected(tree, ())).tests(bug) == ["tests/test_solve.py::test_new"]


def test_catches_of_a_part_leave_those_of_the_others(tree):
    first, second, gone = (plant.Bug(f"tanjax_rules:{f}", "sign", "a", "b") for f in "fgh")
    caught = lambda: json.loads((tree / ".planted/caught.json").read_text())
    plant.keep({str(first): STRIP, str(second): EDGE, str(gone): EDGE}, [first, second, gone])
    plant.keep({str(second): SQUARE}, [first, second])
    assert caught() == {str(first): STRIP, str(second): SQUARE}


def test_part_without_a_bug_is_refused(tree, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["plant.py", "--only", "no such bug"])
    with pytest.raises(SystemExit, match="no such bug"):
        plant.main()


@pytest.mark.processes
def test_map_is_not_made_of_tests_that_crash(tree):
    pytest.importorskip("coverage")
    (tree / "tests/test_bad.py").write_text(CRASH)
    with pytest.raises(SystemExit, match="test_bad"):
        plant.make_map(1, ())
    assert not (tree / ".planted/seconds.json").exists()


def test_names_of_the_cases_of_the_kit_have_no_number():
    """A new case shifts the numbers of those after it; the names in old maps still fit."""
    assert plant.stable("::tanjax_rules::22:norm(Dense[2x2])") == "::tanjax_rules::norm(Dense[2x2])"
    assert plant.stable("tests/test_a.py::test_b[::c::2:d]") == "tests/test_a.py::test_b[::c::2:d]"


def test_mirror_of_a_module_is_the_place_of_its_tests():
    mirror = lambda name: plant.mirror(Path(name))
    of_rules = ["tests/linalg/test_solve", "tests/linalg/", "::tanjax_rules::"]
    assert mirror("rules/tanjax_rules/linalg/solve.py") == of_rules
    assert mirror("src/tanjax/units/_unit.py") == ["tests/units/test_unit", "tests/units/"]


@pytest.mark.parametrize(
    ("function", "text"),
    [("tanjax:area", "2 *"), ("tanjax:length", "a"), ("tanjax:edge", "a +  b"), ("tanjax:", "(a")],
)
def test_bug_without_one_place_is_refused(function, text):
    with pytest.raises(LookupError, match=r"occurs [03] times"):
        plant.place(plant.Bug(function, "sign", text, "-a"), MODULE)
