"""The support table is what the registrations say today."""

import os
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent


# What the page must say takes long to find out: once for the page as it is, and as it might be.
CHECKS = """
import sys
from pathlib import Path
sys.path.insert(0, {docs!r})
import generate_support_table as generator
from tanjax.testing import _commands
found = generator.page()
generator.page = _commands.support_markdown = lambda: found
generator.main(["--check"])
print("current")
assert _commands.main(["rules", "--markdown"]) == 0
generator.PAGE = Path("support_table.md")
generator.main(["--check"])
"""


def test_page_is_current_and_a_stale_one_fails(tmp_path):
    """A page that says something else is reported, and what to do about it."""
    page = (DOCS / "pages" / "support_table.md").read_text()
    (tmp_path / "support_table.md").write_text(page.replace("rule", "AD", 1))
    done = subprocess.run(
        [sys.executable, "-c", CHECKS.format(docs=str(DOCS))],
        cwd=tmp_path,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("current\n" + page), done.stdout
    assert done.returncode
    assert "stale: run `python docs/generate_support_table.py`" in done.stdout
