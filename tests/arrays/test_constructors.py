"""Constructors for one array also take batches, and keep their signatures."""

import dataclasses
import inspect
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj


@tj.register_array_type
class Named(tj.AbstractArray):
    """Fields named as variables of the module that maps constructors."""

    construct: jax.Array = tj.rules.array_field(ndim=1)
    of_batch: jax.Array = tj.rules.array_field(ndim=1)
    self_: float = tj.rules.static_field(default=2.0)

    def to_dense(self):
        return jnp.outer(self.construct, self.of_batch) * self.self_


@tj.register_array_type
class Made(tj.AbstractArray):
    """A field with a default that is made."""

    row: jax.Array = tj.rules.array_field(ndim=1)
    names: tuple = dataclasses.field(default_factory=tuple, metadata={"static": True})

    def to_dense(self):
        return self.row


def test_fields_are_the_arguments_given_by_place_or_by_name():
    v, w = jnp.arange(2.0), jnp.arange(3.0)
    for x in (
        Named(v, w, 3.0),
        Named(v, of_batch=w, self_=3.0),
        Named(self_=3.0, of_batch=w, construct=v),
    ):
        assert (x.construct is v, x.of_batch is w, x.self_) == (True, True, 3.0)
    assert Named(v, w).self_ == 2.0
    assert Named(None, w).construct is None  # JAX's placeholders are no arrays


def test_defaults_that_are_made_are_made():
    assert Made(jnp.ones(2)).names == ()
    assert Made(jnp.ones(2), ("a",)).names == ("a",)


@pytest.mark.parametrize("rows", [np.ones((4, 2)), [[1.0, 1.0]] * 4, jnp.ones((4, 2))])
def test_further_axes_are_a_batch(rows):
    x = Named(jnp.asarray(rows), jnp.arange(3.0))
    assert (x.shape, x.batch_shape, x.of_batch.shape) == ((4, 2, 3), (4,), (4, 3))
    assert tj.Diagonal(rows).shape == (4, 2, 2)
    assert tj.Kronecker(np.ones((4, 2, 2)), jnp.eye(3)).shape == (4, 6, 6)
    assert tj.LowRankUpdate(tj.Diagonal(rows), jnp.ones((2, 1))).batch_shape == (4,)


@pytest.mark.parametrize("kind", [Named, Made, tj.Diagonal, tj.LowRankUpdate, tj.Fill])
def test_signatures_are_those_that_were_written(kind):
    signature = inspect.signature(kind.__init__)
    assert (
        list(signature.parameters)[1:]
        == list(inspect.signature(kind.__init__.__wrapped__).parameters)[1:]
    )
    with pytest.raises(TypeError, match=rf"{kind.__name__}.__init__\(\) missing 1 required"):
        kind(
            *[jnp.ones(2)]
            * (len([p for p in signature.parameters.values() if p.default is p.empty]) - 2)
        )
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        kind(jnp.ones(2), nonsense=1)


def test_constructor_error_hides_the_error_that_it_caught():
    """Errors do not come with another that was caught on the way."""
    for bad in ([[1.0], ["x y"]], "x y", 3.0):
        with pytest.raises((TypeError, tj.ShapeError)) as caught:
            tj.Diagonal(bad)
        assert caught.value.__context__ is None or caught.value.__suppress_context__
    with pytest.raises((TypeError, tj.ShapeError)) as caught:
        tj.Kronecker(3.0, jnp.eye(2))
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_one_array_does_not_pay_for_batches():
    """Only a constructor that gets a batch maps over it."""
    v, m = jnp.ones(4), jnp.eye(4)
    calls = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name))
    try:
        tj.Diagonal(v), tj.LowRank(m, m), tj.Kronecker(m, m), Named(v, of_batch=v)
        singles, calls = calls, []
        sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name))
        tj.Diagonal(m)
    finally:
        sys.setprofile(None)
    assert "over_batches" in calls, "the map was not seen"
    assert "__post_init__" in singles
    assert "over_batches" not in singles


@pytest.mark.parametrize(
    "x",
    [x for kind in tj.rules.registered_array_types() for x in kind.examples(tj.testing.Samples(2))],
    ids=lambda x: type(x).__name__,
)
def test_dataclasses_replace_is_replace(x):
    """Also of types whose constructors take something else than their fields."""
    fields = {f.name: getattr(x, f.name) for f in dataclasses.fields(x) if f.init}
    for name, value in fields.items():
        new = jax.tree.map(lambda leaf: leaf, value)
        got, expected = dataclasses.replace(x, **{name: new}), x.replace(**{name: new})
        assert jax.tree.structure(got) == jax.tree.structure(expected) == jax.tree.structure(x)
        for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(TypeError, match="nonsense"):
        dataclasses.replace(x, nonsense=1.0)
