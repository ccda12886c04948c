"""The diffs that CONTRIBUTING shows to newcomers apply to this tree, and work."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.docs, pytest.mark.processes]

ROOT = Path(__file__).parents[1]
DIFFS = ROOT / "docs" / "walk"
SHOWN_BY = {
    "array_type": "tanjax check tanjax -k Hankel",
    "rule": "tanjax check tanjax_rules.linalg.reductions -k bilinear",
    "law": "pytest tests/scale/laws/test_shapes.py",
    "unit": "pytest tests/units/test_names.py -k own_names",
    "torch_operator": "pytest tests/torch/ops/test_pointwise.py -k spherical",
}
LINES = 60
TORCH = [
    pytest.mark.torch,
    pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="no PyTorch"),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Return a copy of the tree with all diffs applied."""
    root = tmp_path_factory.mktemp("tree")
    for folder in ("src", "rules", "tests"):
        shutil.copytree(ROOT / folder, root / folder)  # with its compiled modules
    shutil.copy(ROOT / "pyproject.toml", root)
    for name in SHOWN_BY:
        # `-C1`: neighbours of the changed lines may change.
        command = ["git", "apply", "-C1", str(DIFFS / f"{name}.diff")]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        assert not done.returncode, f"{name}.diff is stale: {done.stderr}"
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=TORCH if n.startswith("torch") else []) for n in SHOWN_BY]
)
def test_diff_of_contributing_works(name, tree):
    folders = (tree / "src", tree / "rules", tree / "tests" / "support")
    done = subprocess.run(
        [sys.executable, "-m", *SHOWN_BY[name].split()],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stdout


def test_contributing_shows_each_diff_and_its_check():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert {path.stem for path in DIFFS.glob("*.diff")} == SHOWN_BY.keys()
    for name, command in SHOWN_BY.items():
        assert f"(docs/walk/{name}.diff)" in page
        assert f"`python -m {command}`" in page
        assert len((DIFFS / f"{name}.diff").read_text().splitlines()) < LINES
