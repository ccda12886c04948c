"""The API page of the bridges lists what each of them defines, and all of it is explained."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import tanjax
import tanjax.bridges

PAGE = Path(__file__).parent / "pages" / "api_bridges.md"
LISTED = re.findall(r"^::: tanjax\.(\S+)$", PAGE.read_text(), re.MULTILINE)


def public(bridge):
    """The functions and classes that a bridge itself defines, without underscore."""
    module = importlib.import_module(f"tanjax.bridges.{bridge}")
    mine = (n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__)
    return {f"bridges.{bridge}.{name}" for name in mine if not name.startswith("_")}


def test_page_lists_every_public_name():
    bridges = [bridge for bridge in dir(tanjax.bridges) if bridge != "torch"]  # has its own page
    expected = {"typing.Quantity", "typing.checked"}.union(*map(public, bridges))
    assert sorted(LISTED) == sorted(expected)


@pytest.mark.parametrize("name", LISTED)
def test_docstring(name):
    value = tanjax
    for part in name.split("."):
        value = getattr(value, part)
    assert (inspect.getdoc(value) or "").strip()
