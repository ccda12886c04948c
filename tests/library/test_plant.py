"""The list of planted bugs fits the tree, and planting finds the test that catches a bug."""

import collections
import shutil
from pathlib import Path

import pytest

import plant

ROOT = Path(__file__).parents[2]
LEAST = 150
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


def test_planted_bugs_are_many_and_of_every_kind():
    listed = plant.bugs()
    assert len(listed) >= LEAST
    assert len({(bug.function, bug.text, bug.planted) for bug in listed}) == len(listed)
    assert {bug.kind for bug in listed} == KINDS


def test_planted_bugs_are_spread_as_the_lines_are():
    """A package has at least half of the bugs that its share of all lines asks for."""
    lines, count = collections.Counter(), collections.Counter()
    for root in ("src/tanjax", "rules/tanjax_rules"):
        for path in (ROOT / root).rglob("*.py"):
            package = path.relative_to(ROOT).parts[:3]
            lines[package[:2] if package[-1].endswith(".py") else package] += len(
                path.read_text().splitlines()
            )
    for bug in plant.bugs():
        package = bug.path.parts[:3]
        count[package[:2] if package[-1].endswith(".py") else package] += 1
    asked = {p: LEAST * n // lines.total() // 2 for p, n in lines.items()}
    assert {p: n for p, n in count.items() if n < asked[p]} == {}
    assert {p for p, n in asked.items() if n and p not in count} == set()


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
def tree(tmp_path):
    """A tree of one module and three tests, with what plants bugs in it."""
    for name in ("rules/tanjax_rules", "tests/support"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "rules/tanjax_rules/__init__.py").write_text(MODULE)
    (tmp_path / "tests/test_rules.py").write_text(TESTS)
    shutil.copy2(plant.__file__, tmp_path / "tests/support")
    return tmp_path


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "planted", "caught"),
    [
        ("a * b", "a + b", "tests/test_rules.py::test_area_of_a_strip"),  # 2 + 2 is 4, too
        ("a * b", "b * a", ""),
        ("a * b", "a * c", "tests/test_rules.py::test_area_of_a_square"),
        ("return", "retrun", "tests/test_rules.py"),  # no test can be read
    ],
)
def test_first_catch_is_the_first_test_that_fails(tree, text, planted, caught):
    names = ("test_area_of_a_square", "test_area_of_a_strip", "test_edge")
    tests = [f"tests/test_rules.py::{name}" for name in names]
    bug = plant.Bug("tanjax_rules:area", "factor", text, planted)
    assert plant.first_catch(bug, tree, tests, dict.fromkeys(tests, 0.1)) == caught
    assert (tree / "rules/tanjax_rules/__init__.py").read_text() == MODULE


@pytest.mark.parametrize(
    ("function", "text"),
    [("tanjax:area", "2 *"), ("tanjax:length", "a"), ("tanjax:edge", "a +  b"), ("tanjax:", "(a")],
)
def test_bug_without_one_place_is_refused(function, text):
    with pytest.raises(LookupError, match=r"occurs [03] times"):
        plant.place(plant.Bug(function, "sign", text, "-a"), MODULE)
