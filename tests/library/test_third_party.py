"""A stranger's package: a type, its rules, its entry point, seen and checked like our own."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import tanjax as tj

PACK = '''
"""Circulant matrices, by the fast Fourier transform."""

import jax
import jax.numpy as jnp

import tanjax as tj
from tanjax.testing import Case, Samples


@tj.register_array_type(linear=True, injective=True)
class Circulant(tj.AbstractArray):
    column: jax.Array

    def to_dense(self):
        i = jnp.arange(self.column.shape[-1])
        return self.column[..., (i[:, None] - i) % i.size]

    def transposed(self):
        return self.replace(column=jnp.roll(jnp.flip(self.column), 1))

    def pullback_of_destructure(self, natural):
        if isinstance(natural, Circulant):
            return self.replace(column=natural.column * self.column.size)
        i = jnp.arange(self.column.size)
        rows = (i[:, None] + i) % i.size
        return self.replace(column=jnp.sum(tj.destructure(natural)[rows, i], axis=1))

    def pullback_of_restructure(self, structural):
        return self.replace(column=structural.column / self.column.size)


@tj.inv.implementation(Circulant, differentiate=True)  # the general rule would form a matrix
def inv_circulant(a):
    return Circulant(jnp.real(jnp.fft.ifft(1 / jnp.fft.fft(a.column))))


@tj.logdet.implementation(Circulant)
def logdet_circulant(a):
    return jnp.sum(jnp.log(jnp.abs(jnp.fft.fft(a.column))))


@tj.logdet.natural_rule(Circulant)
def logdet_circulant_rule(a):
    def logdet_circulant_pullback(y_bar):
        return Circulant(y_bar * inv_circulant(a).transposed().column)

    return logdet_circulant(a), logdet_circulant_pullback


def arrays():
    yield Circulant(Samples(1).normal(3))


def cases():
    a = Circulant(jnp.array([4.0, 0.5, 1.0]))
    yield Case(tj.logdet, a)
    yield Case(tj.inv, a)
'''


@pytest.fixture
def site(tmp_path):
    """A folder as an installer leaves it: the package and its `.dist-info`."""
    info = tmp_path / "circulant_pack-0.3.0.dist-info"
    info.mkdir()
    metadata = "Metadata-Version: 2.1\nName: circulant-pack\nVersion: 0.3.0\n"
    (info / "METADATA").write_text(metadata)
    (info / "entry_points.txt").write_text("[tanjax.rules]\ncirculant = circulant_pack\n")
    (tmp_path / "circulant_pack.py").write_text(PACK)
    return tmp_path


def tanjax(site, *arguments):
    """Run `python -m tanjax` with the package on the path; return its status and output."""
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tanjax", *arguments],
        cwd=site,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def cells(output):
    """The rows of the printed tables, as lists of their cells."""
    return [[c.strip() for c in line.split("│")[1:-1]] for line in output.splitlines()]


@pytest.mark.processes
def test_rules_are_listed_with_their_origin(site):
    status, output = tanjax(site, "rules")
    rows = cells(output)
    origin = "circulant-pack:circulant: circulant_pack."
    assert status == 0, output
    assert ["logdet", "Circulant", "natural rule", f"{origin}logdet_circulant_rule"] in rows
    assert ["inv", "Circulant", "implementation, AD", f"{origin}inv_circulant"] in rows
    assert ["circulant-pack:circulant", "0.3.0", "circulant_pack", "loaded"] in rows


@pytest.mark.slow
@pytest.mark.processes
def test_checks_pass(site):
    """The rule, an operation that uses a shipped rule, the type, and their coverage."""
    status, output = tanjax(site, "check", "circulant_pack")
    results = {row[0]: row[-1].partition(" (")[0] for row in cells(output) if row}
    assert results == {
        "logdet(Circulant[3x3])": "ok",
        "inv(Circulant[3x3])": "ok",
        "Circulant[3x3] (array type)": "ok",
        "coverage of rules": "ok",
        "coverage of types": "ok",
    }, output
    assert status == 0


UNTESTED = "inv(Circulant): circulant-pack:circulant: circulant_pack.inv_circulant"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("right", "wrong", "check", "found"),
    [
        ("Circulant(y_bar *", "Circulant(2 * y_bar *", "logdet", "respect to a.column is wrong"),
        ("[rows, i]", "[i, rows]", "array type", "pullback_of_destructure"),
        ("    yield Case(tj.inv, a)", "", "coverage of rules", UNTESTED),
    ],
    ids=["doubled pullback", "transposed map", "untested implementation"],
)
def test_faults_are_found(site, right, wrong, check, found):
    """Each fault fails the check that it should, with a message that says where."""
    assert PACK.count(right) == 1
    (site / "circulant_pack.py").write_text(PACK.replace(right, wrong))
    status, output = tanjax(site, "check", "circulant_pack", "-k", check)
    assert status == 1, output
    assert "FAILED" in output
    assert found in output


class Undecorated(tj.AbstractArray):
    def to_dense(self):
        return np.eye(2)


class Underived:
    def to_dense(self):
        return np.eye(2)


@pytest.mark.parametrize(
    ("mistake", "what"),
    [
        (lambda: Undecorated() @ np.ones(2), "Undecorated .* not registered.*\n.*register_array"),
        (lambda: tj.register_array_type(Underived), "Underived .* `destructure` is missing"),
        (lambda: tj.solve.implementation(tj.Fill, jax.Array)(print), "no call .*\n.*tj.Dense"),
        (lambda: tj.solve.natural_rule(tj.Fill, np.ndarray)(print), "no call .*\n.*tj.Dense"),
    ],
    ids=["undecorated type", "underived type", "jax.Array", "np.ndarray"],
)
def test_mistakes_of_newcomers(mistake, what):
    """What is easily forgotten is refused where it is forgotten, with what to write instead."""
    with pytest.raises(tj.errors.RegistrationError, match=what):
        mistake()
