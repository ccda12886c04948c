"""Every public name of JAX's namespaces is in a table, and every name in a table is JAX's."""

import functools
import importlib
import inspect
import pkgutil
import re

import jax.scipy
import pytest

from calls import SINGLE_VERSION
from tanjax.dispatch.namespaces._handler import HANDLERS
from tanjax.dispatch.namespaces.signatures import TABLES
from tanjax.units.signatures import Signature

MODULES = {"numpy": "jax.numpy", "linalg": "jax.numpy.linalg", "fft": "jax.numpy.fft"}

SIGNATURES = sorted(
    (f"{table}.{name}", entry)
    for table, entries in TABLES.items()
    for name, entry in entries.items()
    if "->" in entry
)


@functools.cache
def module(table):
    return importlib.import_module(MODULES.get(table, f"jax.{table}"))


def scipy_modules(package=jax.scipy):
    """The public modules of `jax.scipy`, of any depth."""
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not info.name.rpartition(".")[2].startswith("_"):
            inner = importlib.import_module(info.name)
            yield info.name.removeprefix("jax.")
            if info.ispkg:
                yield from scipy_modules(inner)


def public_names(table):
    """The public functions and classes of a namespace; primitives (`add_p`) are neither."""
    for name in dir(module(table)):
        value = getattr(module(table), name)
        hidden = name.startswith("_") or name.endswith("_p") or inspect.ismodule(value)
        if callable(value) and not hidden:
            yield name


def missing(table, entries):
    return sorted(set(public_names(table)) - set(entries))


def unknown(table, entries):
    return sorted(f"{table}.{name}" for name in entries if name not in dir(module(table)))


def test_every_namespace_has_a_table():
    assert set(scipy_modules()) | {"numpy", "linalg", "fft", "lax", "lax.linalg"} <= set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_every_public_name_is_in_its_table(table):
    assert missing(table, TABLES[table]) == []


@pytest.mark.parametrize("table", TABLES)
def test_no_table_has_a_name_that_jax_does_not_have(table):
    assert set(unknown(table, TABLES[table])) <= SINGLE_VERSION


def test_faults_are_found():
    entries = {k: v for k, v in TABLES["fft"].items() if k != "ifft"} | {"ffft": "a: u -> u"}
    assert missing("fft", entries) == ["ifft"]
    assert unknown("fft", entries) == ["fft.ffft"]


@pytest.mark.parametrize("table", TABLES)
def test_entries_are_of_the_four_kinds(table):
    kinds = re.compile(r"plain|special|refuse: .+|.+ -> .+")
    assert [name for name, entry in TABLES[table].items() if not kinds.fullmatch(entry)] == []


@pytest.mark.parametrize(("name", "entry"), SIGNATURES, ids=[n for n, _ in SIGNATURES])
def test_signature_names_parameters_of_the_function(name, entry):
    """A misspelt parameter would refuse quantities without a reason."""
    table, _, function = name.rpartition(".")
    parsed = Signature.parse(entry.replace("!", ""))
    if function not in dir(module(table)):
        assert name in SINGLE_VERSION
        return
    parameters = inspect.signature(getattr(module(table), function)).parameters
    if any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        return  # ufuncs: their operands have no names
    assert [n for n, _ in parsed.roles if n not in parameters] == []


def test_every_special_is_written_and_in_a_table():
    specials = {
        f"{table}.{name}"
        for table, entries in TABLES.items()
        for name, entry in entries.items()
        if entry == "special" or "!" in entry
    }
    named = {f"{table}.{name}" for table, entries in TABLES.items() for name in entries}
    assert specials <= set(HANDLERS) <= named  # some mend what JAX does, under a signature
