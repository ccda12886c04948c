"""Rule packs: found through entry points, loaded in order, rolled back when broken."""

import os
import subprocess
import sys
import textwrap
import warnings
from importlib import metadata

import pytest

import tanjax as tj
from tanjax.registry import _packs
from tanjax.registry._operation import operations

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


def install(folder, name):
    """A distribution as an installer leaves it: a module and its `.dist-info`."""
    distribution, version, entry, source = PACKS[name]
    module = entry.split(" = ")[1]
    (folder / f"{module}.py").write_text(textwrap.dedent(source))
    info = folder / f"{distribution}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
    )
    (info / "entry_points.txt").write_text(f"[tanjax.rules]\n{entry}\n")


def run(folder, names, **environment):
    for name in names:
        install(folder, name)
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    env = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", **environment}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_good_broken_and_duplicate_packs(tmp_path):
    lines = run(tmp_path, ["good", "broken", "twice"])
    found = lines[0]
    assert found.index("tanjax:linalg") < found.index("alpha:broken") < found.index("beta:twice")
    assert found.index("beta:twice") < found.index("zeta:good")
    assert "RuntimeError: half way" in lines[1]
    warned = [line for line in lines if line.startswith("RulePackWarning")]
    assert len(warned) == 2
    assert (
        "alpha:broken (version 2.5, module broken_pack) is skipped: RuntimeError: half way"
        in warned[0]
    )
    assert "TANJAX_DISABLE_PACKS=alpha:broken" in warned[0]
    assert "beta:twice" in warned[1]
    assert "RegistrationError" in warned[1]
    assert "tanjax:linalg: tanjax_rules.linalg.matmul.matmul_rule" in warned[1]
    assert "beta:twice: twice_pack" in warned[1]
    assert "trace 6.0 2.0" in lines  # the half of the broken pack that ran is undone
    assert "gradient 3.0" in lines
    assert "rule zeta:good: good_pack.good_trace" in lines
    assert "matmul 6.0" in lines


def test_a_broken_pack_takes_no_rule_of_another_with_it(tmp_path):
    lines = run(tmp_path, ["borrowing", "good"])
    assert "RuntimeError: after another pack" in lines[1]
    assert "gradient 3.0" in lines
    assert "rule zeta:good: good_pack.good_trace" in lines


def test_a_pack_may_override_on_purpose_and_packs_can_be_disabled(tmp_path):
    lines = run(
        tmp_path, ["good", "broken", "replaced"], TANJAX_DISABLE_PACKS="alpha:broken, zeta:good"
    )
    assert "broken" not in lines[0]
    assert "zeta:good" not in lines[0]
    assert not [line for line in lines if line.startswith("RulePackWarning")]
    assert "trace 42.0 42.0" in lines
    assert any(line.startswith("rule tanjax:linalg: ") for line in lines)


def test_a_name_that_disables_nothing_is_said(tmp_path):
    lines = run(tmp_path, ["good"], TANJAX_DISABLE_PACKS="zeta:god")
    warned = [line for line in lines if line.startswith("RulePackWarning")]
    assert len(warned) == 1
    assert "zeta:god, which is no installed rule pack" in warned[0]
    assert "tanjax:linalg, tanjax:matrix_functions, zeta:good" in "".join(lines)
    assert "zeta:good" in lines[0]


class Entry:
    """What `importlib.metadata` gives, for a distribution that is not installed."""

    def __init__(self, name, value, distribution):
        self.name, self.value = name, value
        self.dist = type("Distribution", (), {"name": distribution, "version": "1"})()


def test_the_order_does_not_depend_on_the_installation(monkeypatch):
    entries = [Entry("b", "m", "zed"), Entry("linalg", "tanjax_rules.linalg", "tanjax")]
    entries += [Entry("a", "m", "zed"), Entry("c", "m", "ant")]
    for order in (entries, entries[::-1]):
        monkeypatch.setattr(metadata, "entry_points", lambda group, order=order: order)
        origins = [p.origin for p in _packs.find_packs()]
        shipped = [o for o in origins if o.startswith("tanjax:")]
        assert "tanjax:linalg" in shipped
        assert origins == [*shipped, "ant:c", "zed:a", "zed:b"]


def test_a_shipped_pack_that_does_not_load_is_an_error():
    with pytest.raises(tj.RulePackError, match="shipped rule pack no_such_module does not load"):
        _packs.load_pack(_packs.Pack("tanjax", "", "gone", "no_such_module"))


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
