"""What every operation does with bad input is what its page says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "generate_bad_input.py"


def test_page_is_current(tmp_path):
    """Every call raises an error of ours by the name of the operation, or gives what is said."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(done.stdout[-3000:], pytrace=False)
