"""Torch is imported with its bridge and not before; without it the bridge says what it needs."""

import subprocess
import sys

CODE = """
import sys
import tanjax, tanjax.bridges, tanjax.testing
assert "torch" not in sys.modules, "import tanjax imports torch"
sys.modules["torch"] = None  # as where it is not installed
try:
    from tanjax.bridges import torch
except ImportError as error:
    print(error)
assert "tanjax.bridges.torch" not in sys.modules
"""


def test_import_and_missing_library():
    command = [sys.executable, "-W", "error", "-c", CODE]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == [
        "tanjax.bridges.torch needs torch, which is not installed.",
        "Hint: `pip install torch`, or `pip install tanjax[torch]`.",
    ]
