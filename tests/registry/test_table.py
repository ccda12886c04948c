"""Which registration serves a call."""

import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from tanjax.registry._table import Journal, Table, dispatch_class, distance

pytestmark = pytest.mark.core


class Animal: ...


class Dog(Animal): ...


class Puppy(Dog): ...


@pytest.fixture
def table():
    return Table("speak: an implementation")


def test_the_most_specific_first_argument_wins_over_any_second(table):
    table.add((Dog, object), "left", "a")
    table.add((Animal, Puppy), "right", "b")
    assert table.find((Dog, Puppy)).entry == "left"
    assert table.find((Animal, Puppy)).entry == "right"
    assert table.find((Animal, Dog)) is None


def test_inheritance_is_followed_to_the_nearest_class(table):
    table.add((Animal,), "animal", "a")
    assert table.find((Puppy,)).entry == "animal"
    table.add((Dog,), "dog", "b")
    assert table.find((Puppy,)).entry == "dog"
    assert table.find((Animal,)).entry == "animal"


def test_missing_classes_match_anything_and_are_the_least_specific(table):
    table.add((), "anything", "a")
    assert table.find((int, str)).entry == "anything"
    table.add((Animal,), "animal", "b")
    table.add((Animal, object), "animal and object", "c")
    assert table.find((Dog, str)).entry == "animal and object"
    assert table.find((Dog,)).entry == "animal"
    assert distance((Dog, Dog), (Dog,)) is None


def test_a_registration_after_a_lookup_is_seen(table):
    assert table.find((Dog,)) is None
    table.add((Dog,), "dog", "a")
    assert table.find((Dog,)).entry == "dog"


def test_a_duplicate_is_refused_naming_both_origins_unless_it_overrides(table):
    table.add((Dog,), "first", "pack_a: bark")
    with pytest.raises(
        tj.errors.RegistrationError, match=r"(?s)\(Dog\).*pack_a: bark.*pack_b: woof.*override"
    ):
        table.add((Dog,), "second", "pack_b: woof")
    assert table.find((Dog,)).entry == "first"
    table.add((Dog,), "second", "pack_b: woof", override=True)
    assert (table.find((Dog,)).entry, table.find((Dog,)).origin) == ("second", "pack_b: woof")


def test_a_journal_undoes_everything_and_restores_what_was_overridden(table):
    table.add((Dog,), "old", "a")

    def fail():
        with Journal("pack"):
            table.add((Dog,), "new", "b", override=True)
            table.add((Animal,), "other", "b")
            assert table.find((Puppy,)).entry == "new"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert table.find((Puppy,)).entry == "old"
    assert table.find((Animal,)) is None
    assert not Journal.open_


def test_the_nearest_registrations_come_first_with_mismatches_marked(table):
    table.add((str, str), "far", "far away")
    table.add((Dog, str), "near", "close by")
    near, far = table.nearest((Dog, int))
    assert near == "(Dog, !str)  from close by"
    assert far == "(!str, !str)  from far away"


@pytest.mark.parametrize(
    "value", [1, 2.0, 1j, np.bool_(True), np.float32(1), np.ones(2), jnp.ones(2)]
)
def test_plain_arrays_and_scalars_are_dense(value):
    assert dispatch_class(value) is tj.Dense


def test_other_values_stand_for_themselves():
    assert dispatch_class(tj.Identity(2)) is tj.Identity
    assert dispatch_class(None) is type(None)
    assert dispatch_class(True) is bool  # a flag, on which Python may branch
    assert dispatch_class({}) is dict
