"""A bridge is imported when it is asked for; without its library it says what to install."""

import subprocess
import sys

import pytest

CODE = """
import sys
import tanjax
libraries = ["diffrax", "lineax", "matplotlib", "optax", "optimistix", "torch"]
assert not {"beartype", "tanjax.bridges", *libraries} & set(sys.modules)
tanjax.typing.Quantity["m"]
assert not {"beartype", *libraries} & set(sys.modules)
import tanjax.bridges, tanjax.testing
assert "torch" not in sys.modules
sys.modules.update(dict.fromkeys(libraries))  # as where they are not installed
for name in libraries:
    try:
        getattr(tanjax.bridges, name)
    except ImportError as error:
        print(error)
    assert f"tanjax.bridges.{name}" not in sys.modules
"""


@pytest.mark.processes
def test_importing_tanjax_imports_no_library_and_a_bridge_names_what_it_needs():
    command = [sys.executable, "-W", "error", "-c", CODE]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    names = ["diffrax", "lineax", "matplotlib", "optax", "optimistix", "torch"]
    assert lines[::2] == [f"tanjax.bridges.{n} needs {n}, which is not installed." for n in names]
    assert all("pip install tanjax[ecosystem]" in hint for hint in lines[1:-1:2])
    assert lines[-1] == "Hint: `pip install torch`, or `pip install tanjax[torch]`."
