"""The support table is what the registrations say today."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent


def run(script, *arguments, cwd):
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_page_is_current(tmp_path):
    done = run(DOCS / "generate_support_table.py", "--check", cwd=tmp_path)
    if done.returncode:
        pytest.fail(done.stdout, pytrace=False)


def test_stale_page_fails(tmp_path):
    """A page that says something else is reported, and what to do about it."""
    (tmp_path / "pages").mkdir()
    script = tmp_path / "generate_support_table.py"
    script.write_text((DOCS / "generate_support_table.py").read_text())
    page = (DOCS / "pages" / "support_table.md").read_text()
    (tmp_path / "pages" / "support_table.md").write_text(page.replace("rule", "AD", 1))
    done = run(script, "--check", cwd=tmp_path)
    assert done.returncode
    assert "stale: run `python docs/generate_support_table.py`" in done.stdout
