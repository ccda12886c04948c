"""What is shipped is complete and nothing else, and the tree holds only what it should."""

import configparser
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOP_LEVEL = {
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "benchmarks",
    "docs",
    "property_tests",
    "pyproject.toml",
    "rules",
    "src",
    "tests",
}
# Spelled so that this file does not match itself.
MACHINE_PATH = re.compile(r"(?<![\w.$})~])/(?:home|root|work|tmp|Users)/")
PACKAGE_HOST = re.compile(r"pypi[.]org|pythonhosted[.]org|anaconda[.]org|jsdelivr[.]net|npmjs[.]")


def tree_files() -> list[Path]:
    """Return the files that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in names.splitlines() if (ROOT / name).is_file()]


in_checkout = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")


@pytest.mark.processes
@in_checkout
def test_top_level():
    """A newcomer sees the same few entries forever."""
    found = {path.parts[0] for path in tree_files()}
    assert {name for name in found if not name.startswith(".")} <= TOP_LEVEL


def leaks(text: str) -> list[str]:
    """Return the lines that only make sense on one machine or behind one network."""
    lines = enumerate(text.splitlines(), 1)
    return [f"{n}: {s}" for n, s in lines if MACHINE_PATH.search(s) or PACKAGE_HOST.search(s)]


@pytest.mark.processes
@in_checkout
def test_no_machine_paths():
    texts = {path: (ROOT / path).read_text(errors="replace") for path in tree_files()}
    found = [f"{path}:{leak}" for path, text in texts.items() for leak in leaks(text)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("text", ["cd /{}/me", 'open("/{}/x")', "file:///{}/x"])
@pytest.mark.parametrize("folder", ["home", "root", "work", "tmp"])
def test_machine_path_is_seen(text, folder):
    assert leaks(text.format(folder))


def test_package_host_is_seen_and_a_relative_path_is_none():
    for text in ("https://pypi.{}/simple", "files.pythonhosted.{}"):
        assert leaks(text.format("org"))
    for text in ("tests/tmp/x", "a / b", "$HOME/work/x", "../work/", "tmp_path / x"):
        assert not leaks(text)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the source archive, and the wheel from that archive: so both are complete."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.processes
def test_wheel_contents(wheel):
    """The wheel holds every module of the three packages, READMEs, type marks, nothing else."""
    names = set(zipfile.ZipFile(wheel).namelist())
    dist_info = wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"
    assert {name.split("/")[0] for name in names} == {
        "tanjax",
        "tanjax_rules",
        "tanjax_torch",
        dist_info,
    }
    tops = (ROOT / "src", ROOT / "rules")
    sources = [path for top in tops for kind in ("*.py", "README.md") for path in top.rglob(kind)]
    expected = {"/".join(path.relative_to(ROOT).parts[1:]) for path in sources}
    expected |= {f"{name}/py.typed" for name in ("tanjax", "tanjax_rules", "tanjax_torch")}
    assert {name for name in names if not name.startswith(dist_info)} == expected
    assert f"{dist_info}/licenses/LICENSE" in names


@pytest.mark.processes
def test_wheel_entry_points(wheel):
    """Rule packs and the pytest plugin are found without being imported first."""
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
    entries = configparser.ConfigParser()
    entries.read_string(archive.read(name).decode())
    packs = ("factorizations", "inplace", "linalg", "matrix_functions")
    assert dict(entries["tanjax.rules"]) == {name: f"tanjax_rules.{name}" for name in packs}
    assert dict(entries["pytest11"]) == {"tanjax": "tanjax.testing.pytest_plugin"}


@pytest.mark.processes
def test_wheel_imports(wheel):
    """What is in the wheel is enough: every entry point loads from it, without a warning.

    And `import tanjax` waits for nothing that only some programs need.
    """
    code = (
        "import sys, tanjax\n"
        "early = {'tanjax.scale', 'tanjax_rules', 'equinox', 'scipy', 'pint'} & set(sys.modules)\n"
        "assert not early, early\n"
        "import tanjax_rules.linalg, tanjax.testing.pytest_plugin\n"
        "print(tanjax.__version__, tanjax.__file__)"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    # A wheel is a zip archive, which Python imports from as it is; ahead of the installed package.
    environment = os.environ | {"PYTHONPATH": str(wheel)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    version, file = done.stdout.split()
    assert wheel.name.startswith(f"tanjax-{version}-")
    assert Path(file).is_relative_to(wheel)
