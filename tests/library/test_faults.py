"""The tests of faults that strangers found are there, under the names that `faults.py` runs."""

import re
from pathlib import Path

import pytest

import faults

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("area", faults.FAULTS)
def test_every_fault_has_a_test(area):
    assert faults.FAULTS[area]
    for fault, test in faults.FAULTS[area].items():
        path, _, name = test.partition("::")
        text = (TESTS / path).read_text()
        assert re.search(rf"^def {name or 'test_'}", text, re.MULTILINE), fault
