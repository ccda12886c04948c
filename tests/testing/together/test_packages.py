"""Packages of cases: the command line, the pytest plugin, the strategies, the lazy import."""

import io
import os
import subprocess
import sys
import types
from importlib import metadata
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from rich.console import Console

import tanjax as tj
from tanjax.__main__ import main
from tanjax.testing import Case, Samples, cases_of, check_coverage, checks_of, strategies


def package(name, **contents):
    """A module in memory, importable by its name."""
    module = types.ModuleType(name)
    for key, value in contents.items():
        if callable(value):
            value.__module__ = name
        setattr(module, key, value)
    sys.modules[name] = module
    return module


def good_cases():
    yield Case(tj.trace, tj.Diagonal(Samples(0).normal(2)))


def bad_cases():
    yield Case(tj.trace, tj.Diagonal(jnp.full(2, 0.5)))


def run(*arguments):
    """The exit status and the text of a command."""
    out = io.StringIO()
    return main(arguments, Console(file=out, width=200)), out.getvalue()


def test_good_package_passes():
    package("pack_good", cases=good_cases)
    status, text = run("check", "pack_good")
    assert status == 0
    assert "trace(Diagonal[2x2])" in text
    assert "0 failed" in text


def test_failures_are_told_and_counted():
    """A failing case, a package without cases and a pattern without match exit non-zero."""
    package("pack_bad", cases=bad_cases)
    package("pack_empty")
    status, text = run("check", "pack_bad", "pack_empty")
    assert status == 1
    assert "all values are equal" in text
    assert "pack_empty has no cases" in text
    assert run("check", "pack_bad", "-k", "nothing like this")[0] == 1
    assert run("check", "pack_that_is_not_there")[0] == 1


def test_coverage_names_what_no_case_runs():
    with pytest.raises(tj.errors.CheckFailure) as failure:
        check_coverage("tanjax_rules", list(good_cases()))
    for name in ("eigh_diagonal", "matmul_rule", "eigh_push"):  # one in each table
        assert name in str(failure.value)


def test_shipped_rules_and_types_are_all_covered():
    """Every implementation and rule of the shipped pack is run by some case."""
    cases = cases_of("tanjax_rules")
    assert len(cases) > 60
    with jax.numpy_dtype_promotion("standard"):  # as in `Check.run`
        result = check_coverage("tanjax_rules", cases)
    assert int(result.notes[0].split()[0]) > 100
    assert result.scalars == 0  # nothing was compared
    assert result.warnings == []  # real, symmetric and small are not all there is
    types = {c.name.split("[")[0] for c in checks_of("tanjax")}
    assert {"Diagonal", "Kronecker", "LowRankUpdate", "BlockDiagonal", "Hermitian"} <= types


def test_property_that_all_cases_share_is_a_warning():
    """Nothing of it is a fault, so it is a warning."""
    package("pack_good", cases=good_cases)
    told = " ".join(check_coverage("pack_good", cases_of("pack_good")).warnings)
    assert "all cases are real" in told
    assert "all matrices of all cases are symmetric" in told
    assert "no case has three rows" in told


def test_rule_of_a_symmetric_type():
    """Its cases cannot but be symmetric: nobody is told to add a general matrix."""

    @tj.operation
    def halves(a):
        return tj.linalg.diagonal(a) / 2

    @halves.natural_rule(tj.Diagonal)
    def halves_rule(a):
        return halves.primal(a), lambda bar: tj.Diagonal(bar / 2)

    cases = [Case(halves, tj.Diagonal(Samples(0).normal(3)))]
    told = check_coverage("pack_good", cases).warnings
    assert [text.split(";")[0] for text in told] == ["halves_rule: all cases are real"]


@tj.register_array_type(linear=True, injective=True)
class Repeated(tj.AbstractArray):
    """One row, three times: a type in one place, with its examples."""

    row: jnp.ndarray
    core_ndim = 2

    @classmethod
    def examples(cls, samples):
        return [cls(samples.normal(4))]

    def to_dense(self):
        return jnp.tile(self.row, (3, 1))


def test_examples_of_a_type_are_found():
    """By `check`, by the question of coverage, by the strategies."""
    package("pack_of_a_type", cases=good_cases)
    with mock.patch.object(Repeated, "__module__", "pack_of_a_type"):
        names = {c.name for c in checks_of("pack_of_a_type")}
        assert "Repeated[3x4] (array type)" in names
        (types,) = (c for c in checks_of("pack_of_a_type") if c.name == "coverage of types")
        types.run()

    @settings(max_examples=5, deadline=None, database=None)
    @given(strategies.arrays_of(Repeated))
    def check(x):
        assert type(x) is Repeated
        assert x.shape == (3, 4)

    check()


@pytest.mark.slow
def test_checks_in_processes():
    """The same checks, found again by package and place."""
    status, text = run("check", "tanjax", "-k", "identity[3", "--jobs", "2")
    assert status == 0, text
    assert "1 checks, 0 failed" in text


def test_list_of_rules():
    status, text = run("rules")
    assert status == 0
    for part in ("matmul", "natural rule", "implementation, AD", "tanjax:linalg", "loaded"):
        assert part in text
    status, text = run("rules", "tanjax_rules")
    assert status == 0
    assert "matmul" in text
    assert run("rules", "json")[0] == 1


@pytest.mark.processes
def test_kit_is_imported_on_request():
    """Programs that only run need neither hypothesis nor rich; the kit is one attribute away."""
    code = (
        "import sys, tanjax; heavy = {'hypothesis', 'rich', 'pytest', 'tanjax.testing'};"
        "assert not heavy & set(sys.modules); tanjax.testing.Case;"
        "assert 'hypothesis' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.processes
def test_plugin_collects_cases(tmp_path):
    """`--tanjax-check` makes one item of every case, and an empty package an error."""
    (tmp_path / "pack_items.py").write_text(
        "import tanjax as tj\nfrom tanjax.testing import Case, Samples\n"
        "def cases():\n"
        "    yield Case(tj.trace, tj.Diagonal(Samples(0).normal(2)))\n"
        "    yield Case(tj.trace, tj.Diagonal(Samples(0).normal(2) * 0 + 0.5))\n"
    )
    (tmp_path / "pack_nothing.py").write_text("")
    installed = any(e.name == "tanjax" for e in metadata.entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "tanjax.testing.pytest_plugin"]

    def pytest_of(name):
        command = [sys.executable, "-m", "pytest", *plugin, "-q", f"--tanjax-check={name}"]
        paths = [str(Path(tj.__file__).parents[1]), *sys.path, str(tmp_path)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths))}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    done = pytest_of("pack_items")
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert pytest_of("pack_nothing").returncode != 0
    missing = pytest_of("pack_that_is_not_there")
    assert "INTERNALERROR" not in missing.stdout + missing.stderr
    assert "No module named" in missing.stdout + missing.stderr


@pytest.mark.parametrize("kind", [tj.Hermitian, tj.Triangular, tj.Kronecker, tj.LowRankUpdate])
def test_strategies_draw_arrays_that_keep_their_invariant(kind):
    """Drawn arrays keep the storage invariant and have the shape that was asked for."""

    @settings(max_examples=5, deadline=None, database=None)
    @given(strategies.arrays_of(kind, n=4), strategies.arrays_of(kind, n=4, degenerate=True))
    def check(a, b):
        for x in (a, b):
            assert type(x) is kind
            assert x.shape == (4, 4)
            assert jnp.all(jnp.isfinite(x.to_dense()))
            assert jnp.array_equal(x.canonical().to_dense(), x.to_dense())

    check()
    with pytest.raises(TypeError, match="not a built-in"):
        strategies.arrays_of(int)
