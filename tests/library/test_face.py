"""What `tanjax` and `tanjax.rules` offer, and what is said of a name that has moved."""

import pytest

import tanjax as tj

MOVED = ["TangentType", "lowering", "operations", "packs", "registered_array_types"]


@pytest.mark.parametrize("name", MOVED)
def test_a_moved_name_says_where_it_went(name):
    with pytest.raises(AttributeError, match=rf"is `tanjax\.rules\.{name}` now"):
        getattr(tj, name)
    assert callable(getattr(tj.rules, name))
    assert not hasattr(tj, name)


@pytest.mark.parametrize("name", ["rrule", "frule", "as_custom_vjp"])
def test_a_rule_in_hand_is_in_both(name):
    assert getattr(tj, name) is getattr(tj.rules, name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'gradd'"):
        tj.gradd  # noqa: B018


@pytest.mark.parametrize(("old", "new"), [("block", "submatrix"), ("pair", "inner_product")])
def test_a_query_that_was_renamed_says_its_name(old, new):
    array = tj.Diagonal([1.0, 2.0])
    with pytest.raises(AttributeError, match=rf"`Diagonal\.{old}` is `Diagonal\.{new}` now"):
        getattr(array, old)
    assert callable(getattr(array, new))
    assert not hasattr(array, old)
