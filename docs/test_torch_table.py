"""The page of torch's operations equals the generator's output for its data."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

table = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "generate_torch_table.py")))

pytestmark = [
    pytest.mark.docs,
    pytest.mark.skipif(
        not table.DATA.exists(), reason="no data: python tests/support/torch_opinfo.py --json ..."
    ),
]


def test_page_is_current():
    assert table.page(table.json.loads(table.DATA.read_text())) == table.PAGE.read_text()


def test_nothing_is_silently_wrong():
    """The goal: 98 % right, no wrong numbers, no cut gradients."""
    sums = table.total(table.json.loads(table.DATA.read_text())["ops"])
    assert sums["right"] >= 0.98 * sum(sums.values())
    assert not {"wrong value", "wrong type", "wrong gradient", "cut gradient"} & set(sums)
