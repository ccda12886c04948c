"""Generated pages agree with the library."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent
sys.path.append(str(DOCS))
from generated_parts import renewed, write_or_check  # noqa: E402

pytestmark = pytest.mark.docs


def run_python(*arguments, cwd):
    """Run Python with warnings as errors, and return its output; fail if Python fails."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(done.stdout[-3000:], pytrace=False)
    return done.stdout


@pytest.mark.slow
@pytest.mark.processes
def test_page_of_bad_input_agrees_with_the_operations(tmp_path):
    """Every call raises tanjax's error with the operation's name, or returns the page's result."""
    assert "stale" not in run_python(DOCS / "generate_bad_input.py", "--check", cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.processes
def test_support_table_agrees_with_the_command(tmp_path):
    printed = run_python("-m", "tanjax", "rules", "--markdown", cwd=tmp_path)
    is_current = printed == (DOCS / "pages" / "support_table.md").read_text()
    assert is_current, "the page is stale: run `python docs/generate_support_table.py`."


def test_a_stale_page_is_reported(tmp_path):
    page = tmp_path / "times.md"
    page.write_text("# Times\n\n<!-- times -->\n\n3 s\n\n<!-- end of times -->\n")
    write_or_check(page, renewed(page, {"times": "3 s\n"}), ["--check"])
    text = renewed(page, {"times": "4 s\n"})
    with pytest.raises(SystemExit, match=r"stale: run `python docs/generate_times\.py`"):
        write_or_check(page, text, ["--check"])
    write_or_check(page, text, [])
    assert page.read_text() == text != renewed(page, {"times": "3 s\n"})
