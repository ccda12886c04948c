"""The names that `tanjax` and `tanjax.rules` offer."""

import pytest

import tanjax as tj


@pytest.mark.parametrize("name", ["rrule", "frule", "as_custom_vjp"])
def test_a_rule_in_hand_is_in_both(name):
    assert getattr(tj, name) is getattr(tj.rules, name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'gradd'"):
        tj.gradd  # noqa: B018
