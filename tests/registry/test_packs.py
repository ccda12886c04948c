"""Rule packs: found through entry points, loaded in order, rolled back when broken."""

import os
import subprocess
import sys
import textwrap
import warnings

import pytest

import tanjax as tj
from tanjax.registry import Pack, load_pack, operations

pytestmark = pytest.mark.core

PACKS = {
    "good": ("zeta", "1.0", "good = good_pack", """
        import tanjax as tj
        @tj.trace.natural_rule(tj.Fill)
        def good_trace(a):
            return tj.trace.primal(a), lambda y_bar: y_bar * tj.Identity(a.shape[0], a.dtype)
        """),
    "broken": ("alpha", "2.5", "broken = broken_pack", """
        import tanjax as tj
        tj.trace.natural_rule(tj.Fill)(lambda a: "half registered")
        tj.trace.implementation(tj.Identity)(lambda a: "half registered")
        raise RuntimeError("half way")
        """),
    "borrowing": ("alpha", "1.0", "borrowing = borrowing_pack", """
        import good_pack
        raise RuntimeError("after another pack")
        """),
    "twice": ("beta", "0.1", "twice = twice_pack", """
        import tanjax as tj
        tj.matmul.natural_rule(tj.AbstractArray)(lambda a, b: "a second one")
        """),
    "replaced": ("gamma", "0.2", "replaced = replaced_pack", """
        import tanjax as tj
        @tj.trace.implementation(tj.AbstractArray, override=True)
        def replaced_trace(a):
            return 42.0
        """),
}  # fmt: skip

PROGRAM = """
import warnings
import jax
import tanjax as tj
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    packs = tj.rules.packs()
print([p.origin for p in packs])
print([p.error for p in packs if p.error])
for w in caught:
    print(w.category.__name__, str(w.message).replace(chr(10), " | "))
fill = tj.Fill(2.0, (3, 3))
print("trace", float(tj.trace(fill)), float(tj.trace(tj.Identity(2))))
print("gradient", float(jax.grad(tj.trace)(fill).value))
print("rule", tj.trace.rules.find((tj.Fill,)).origin)
print("matmul", float(tj.matmul(tj.Diagonal([2.0]), tj.Diagonal([3.0])).diag[0]))
"""


def run(folder, names, **environment):
    """What a program sees of packs, each installed in a folder of its own, found in this order."""
    for name in names:
        distribution, version, entry, source = PACKS[name]
        info = folder / name / f"{distribution}-{version}.dist-info"
        info.mkdir(parents=True)
        (info.parent / f"{entry.split(' = ')[1]}.py").write_text(textwrap.dedent(source))
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(f"[tanjax.rules]\n{entry}\n")
    path = os.pathsep.join([*(str(folder / name) for name in names), *filter(None, sys.path)])
    env = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", **environment}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    return lines, [line for line in lines if line.startswith("RulePackWarning")]


@pytest.mark.processes
def test_broken_and_duplicate_packs_are_undone_with_a_warning(tmp_path):
    """Packs load by name, those of tanjax first, whatever order they are found in."""
    lines, warned = run(tmp_path, ["good", "twice", "broken"])
    places = [lines[0].index(p) for p in ("tanjax:linalg", "alpha:broken", "beta:tw", "zeta:good")]
    assert places == sorted(places)
    assert "RuntimeError: half way" in lines[1]
    broken, twice = warned
    said = "alpha:broken (version 2.5, module broken_pack) is skipped: RuntimeError: half way"
    for words in (said, "TANJAX_DISABLE_PACKS=alpha:broken"):
        assert words in broken
    origins = "tanjax:linalg: tanjax_rules.linalg.matmul.matmul_rule", "beta:twice: twice_pack"
    for words in ("RegistrationError", *origins):
        assert words in twice
    assert "trace 6.0 2.0" in lines  # the half of the broken pack that ran is undone
    assert "gradient 3.0" in lines
    assert "rule zeta:good: good_pack.good_trace" in lines
    assert "matmul 6.0" in lines


@pytest.mark.processes
def test_a_broken_pack_takes_no_rule_of_another_with_it(tmp_path):
    lines, _ = run(tmp_path, ["borrowing", "good"])
    assert "RuntimeError: after another pack" in lines[1]
    assert "gradient 3.0" in lines
    assert "rule zeta:good: good_pack.good_trace" in lines


@pytest.mark.processes
def test_a_pack_may_override_on_purpose_and_packs_can_be_disabled(tmp_path):
    disabled = "alpha:broken, zeta:good"
    lines, warned = run(tmp_path, ["good", "broken", "replaced"], TANJAX_DISABLE_PACKS=disabled)
    assert "broken" not in lines[0]
    assert "zeta:good" not in lines[0]
    assert not warned
    assert "trace 42.0 42.0" in lines
    assert any(line.startswith("rule tanjax:linalg: ") for line in lines)


@pytest.mark.processes
def test_a_name_that_disables_nothing_is_said(tmp_path):
    lines, (warned,) = run(tmp_path, ["good"], TANJAX_DISABLE_PACKS="zeta:god")
    assert "zeta:god, which is no installed rule pack" in warned
    assert "tanjax:linalg, tanjax:matrix_functions, zeta:good" in warned
    assert "zeta:good" in lines[0]


def test_a_shipped_pack_that_does_not_load_is_an_error():
    with pytest.raises(
        tj.errors.RulePackError, match="shipped rule pack no_such_module does not load"
    ):
        load_pack(Pack("tanjax", "", "gone", "no_such_module"))


def test_every_shipped_registration_says_where_it_comes_from():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(not p.error for p in tj.rules.packs() if p.distribution == "tanjax")
    tables = [table for op in operations() for table in (op.rules, op.implementations)]
    origins = [r.origin for table in tables for r in table.rows.values()]
    shipped = [origin for origin in origins if "tanjax_rules." in origin]
    assert len(shipped) > 500
    for origin in shipped:  # a pack that imports a module of another would bring its rules
        pack, place = origin.split(": ")
        assert place.startswith(f"tanjax_rules.{pack.removeprefix('tanjax:')}."), origin
