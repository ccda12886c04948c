"""The hand-written pages stay short enough to be read.

A line is hand-written unless a script writes it. These are not: pages and parts of pages that a
command generates, tables of benchmarks, and the lists of names that mkdocstrings reads.
"""

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]
GENERATED = ("algebra", "bad_input", "conformance", "hard_formulas", "support_table")
GENERATED += ("torch_operations",)
# It may only get smaller, except for a page on something new.
LINES = 7500


def hand_written(name):
    """Return the number of hand-written lines of a page."""
    path = ROOT / name
    if path.stem in GENERATED:
        return 0
    text = re.sub(r"^::: .*\n\n?", "", path.read_text(), flags=re.MULTILINE)
    text = re.sub(r"<!-- ([\w ]+) -->\n\n.*?\n<!-- end of \1 -->", "", text, flags=re.DOTALL)
    if path.stem.startswith("benchmarks"):
        text = re.sub(r"^\|.*\n", "", re.split("[Ww]ritten by", text)[0], flags=re.MULTILINE)
    return text.count("\n")


def test_hand_written_pages_are_short():
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = {name: hand_written(name) for name in names.split("\0") if (ROOT / name).is_file()}
    longest = sorted(lines, key=lines.get)[-5:]
    shown = ", ".join(f"{name} {lines[name]}" for name in reversed(longest))
    assert len(lines) > 40
    assert sum(lines.values()) <= LINES, f"{sum(lines.values())} lines; the longest: {shown}"
