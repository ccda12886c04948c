"""All code of the documentation runs, and prints the output that the pages show.

Each page and example runs in a process of its own, in JAX's default configuration. So results do
not depend on registrations of other pages, or on the settings of the tests. On Linux these
processes are forks of one that has imported JAX and tanjax (`run_forked.py`).
"""

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.docs, pytest.mark.processes]

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SEVERAL = "four_devices.py"  # has a test of its own, which runs it in one process as well
SMALLER = {"million_points.py": ("--size", "61", "--order", "10")}  # in seconds


def shown(*paths):
    """Return parameters for pages and examples: all except the README are slow, some need torch."""
    parameters = []
    for path in sorted(paths):
        marks = [] if path.name == "README.md" else [pytest.mark.slow]
        if path.name in ("torch.md", "torch_digits.py"):
            is_there = importlib.util.find_spec("torch") and importlib.util.find_spec("sklearn")
            reason = f"{path.name} was NOT run: PyTorch and scikit-learn are not installed"
            marks += [pytest.mark.torch, pytest.mark.skipif(not is_there, reason=reason)]
        parameters.append(pytest.param(path, marks=marks, id=str(path.relative_to(ROOT))))
    return parameters


def environment():
    """Return a reader's variables, without the flags that make tests compile fast."""
    return {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"MPLBACKEND": "Agg"}


def run_python(*arguments, cwd):
    """Run Python and return its output; fail with that output if it fails."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(done.stdout, pytrace=False)
    return done.stdout


@pytest.fixture(scope="module")
def run_script():
    """Yield a function that runs a script with arguments; warnings raise.

    It forks if a fork is safe.
    """
    if sys.platform != "linux" or "COVERAGE_PROCESS_START" in os.environ:
        yield lambda *arguments, cwd: run_python("-W", "error", *arguments, cwd=cwd)
        return
    command = [sys.executable, "-W", "error", str(DOCS / "run_forked.py")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(), **pipes) as server:

        def run(*arguments, cwd):
            out = cwd / "output"
            request = {"arguments": [*map(str, arguments)], "cwd": str(cwd), "out": str(out)}
            print(json.dumps(request), file=server.stdin, flush=True)
            status = server.stdout.readline()
            output = out.read_text()
            if status != "0\n":
                pytest.fail(output, pytrace=False)
            return output

        yield run
        server.stdin.close()


@pytest.mark.parametrize("page", shown(ROOT / "README.md", *(DOCS / "pages").rglob("*.md")))
def test_page_runs_and_prints_the_output_it_shows(page, tmp_path, run_script):
    output = run_script(DOCS / "run_page.py", page, cwd=tmp_path)
    assert page.name != "README.md" or ": 0 blocks" not in output, "the README shows no code"


@pytest.mark.parametrize(
    "example", shown(*(e for e in (DOCS / "examples").glob("*.py") if e.name != SEVERAL))
)
def test_example_runs_without_a_warning(example, tmp_path, run_script):
    assert run_script(example, *SMALLER.get(example.name, ()), cwd=tmp_path) is not None


@pytest.mark.slow
def test_four_devices_of_two_processes(tmp_path):
    """Two processes print the same loss as one process, to all digits."""
    example = DOCS / "examples" / SEVERAL
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{s.getsockname()[1]}"
    started = [
        subprocess.Popen(
            [sys.executable, example, coordinator, "2", str(i)],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(2)
    ]
    try:
        outputs = [p.communicate(timeout=240)[0] for p in started]
    finally:
        for p in started:
            p.kill()
    alone = run_python("-W", "error", example, cwd=tmp_path)
    (loss,) = re.findall(r"loss per week: .*", alone)
    for p, output in zip(started, outputs, strict=True):
        assert p.returncode == 0, output
        assert "4 devices of 2 processes, sent by: ['all-reduce']" in output, output
        assert loss in output, output


@pytest.mark.slow
@pytest.mark.parametrize(
    "packages",
    [
        pytest.param(("tanjax", "tanjax_rules"), id="tanjax"),
        pytest.param(
            ("tanjax_torch",),
            marks=[
                pytest.mark.torch,
                pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="no PyTorch"),
            ],
            id="torch",
        ),
    ],
)
def test_examples_in_docstrings_are_true(tmp_path, packages):
    """Docstrings have examples, and these are true."""
    output = run_python(DOCS / "run_docstrings.py", *packages, cwd=tmp_path)
    assert not output.startswith("0 examples")


def test_wrong_docstring_fails(tmp_path, monkeypatch):
    """A wrong result in a docstring of a submodule fails."""
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    (tmp_path / "pack" / "part.py").write_text('"""\n>>> 1 + 1\n3\n"""')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match="1 examples, 1 failed"):
        run_python(DOCS / "run_docstrings.py", "pack", cwd=tmp_path)


FENCE = "`" * 3


@pytest.mark.parametrize(
    ("language", "block"),
    [
        ("python", "1 / 0"),
        ("python", "import warnings\nwarnings.warn('careful')"),
        ("python", ">>> n + 1\n3"),
        ("output", "2"),
    ],
)
def test_wrong_page_fails(tmp_path, run_script, language, block):
    """A block that raises, warns or shows the wrong output fails with its line."""
    page = tmp_path / "page.md"
    page.write_text(
        f"{FENCE}python\nn = 1\nprint(n)\n{FENCE}\n\n{FENCE}{language}\n{block}\n{FENCE}\n"
    )
    with pytest.raises(pytest.fail.Exception, match=r"page\.md.*line [6-8]"):
        run_script(DOCS / "run_page.py", page, cwd=tmp_path)


def test_right_page_passes(tmp_path, run_script):
    """Blocks share names, and right outputs pass."""
    page = tmp_path / "page.md"
    blocks = [
        ("python", "n = 1\nprint(n)"),
        ("output", "1"),
        ("python", ">>> n + 1\n2"),
        ("", "no"),
    ]
    page.write_text("\n".join(f"{FENCE}{name}\n{text}\n{FENCE}\n" for name, text in blocks))
    assert run_script(DOCS / "run_page.py", page, cwd=tmp_path).endswith("page.md: 3 blocks\n")
