"""Every public name of JAX's namespaces is in a table, and every name in a table is JAX's."""

import importlib
import inspect
import pkgutil
import re

import jax.scipy
import pytest

from calls import SINGLE_VERSION
from tanjax.frontends.namespaces import function
from tanjax.frontends.signatures import TABLES
from tanjax.units.signatures import Signature

pytestmark = pytest.mark.core

MODULES = {"numpy": "jax.numpy", "linalg": "jax.numpy.linalg", "fft": "jax.numpy.fft"}


def module_of(table):
    return importlib.import_module(MODULES.get(table, f"jax.{table}"))


def scipy_modules(package=jax.scipy):
    """The public modules of `jax.scipy`, of any depth."""
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not info.name.rpartition(".")[2].startswith("_"):
            inner = importlib.import_module(info.name)
            yield info.name.removeprefix("jax.")
            if info.ispkg:
                yield from scipy_modules(inner)


def test_every_namespace_has_a_table():
    assert set(scipy_modules()) | {"numpy", "linalg", "fft", "lax", "lax.linalg"} <= set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_the_names_that_jax_has(table):
    """Functions and classes, of one of four kinds; primitives (`add_p`) are neither."""
    module, entries = module_of(table), TABLES[table]
    public = {n for n in dir(module) if not n.startswith("_") and not n.endswith("_p")}
    values = {n: getattr(module, n) for n in public}
    functions = {n for n, f in values.items() if callable(f) and not inspect.ismodule(f)}
    assert functions - set(entries) == set()
    assert {f"{table}.{n}" for n in set(entries) - set(dir(module))} <= SINGLE_VERSION
    kinds = re.compile(r"plain|special|refuse: .+|.+ -> .+")
    assert [n for n, entry in entries.items() if not kinds.fullmatch(entry)] == []


@pytest.mark.parametrize("table", TABLES)
def test_signatures_name_parameters_of_the_functions(table):
    """A misspelt parameter would refuse quantities without a reason."""
    module = module_of(table)
    for name, entry in TABLES[table].items():
        if name not in dir(module):
            continue
        function(table, name)  # raises where a special function is not written
        if "->" in entry:
            roles = Signature.parse(entry.replace("!", "")).roles
            parameters = inspect.signature(getattr(module, name)).parameters
            if not any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):  # of no ufunc
                assert [n for n, _ in roles if n not in parameters] == [], name
