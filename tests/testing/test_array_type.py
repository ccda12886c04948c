"""`check_array_type` passes what is right and catches every planted fault."""

import dataclasses
from unittest import mock

import jax
import jax.numpy as jnp
import pytest
from jax import Array

import tanjax as tj
from tanjax.testing import Samples, check_array_type, examples_of


def form(e):
    return jnp.stack([jnp.stack([e[0], e[1]]), jnp.stack([e[1], e[2]])])


def extract(natural):
    y = tj.destructure(natural)
    return jnp.stack([y[0, 0], y[0, 1] + y[1, 0], y[1, 1]])


WEIGHTS = (1.0, 2.0, 1.0)


def weights(e):
    return jnp.asarray(WEIGHTS, e.dtype)


PACKED = {
    "to_dense": lambda self: form(self.entries),
    "pushforward_of_destructure": lambda self, t: form(t.entries),
    "pullback_of_destructure": lambda self, y: self.replace(entries=extract(y)),
    "pushforward_of_restructure": lambda self, y: self.replace(
        entries=extract(y) / weights(self.entries)
    ),
    "pullback_of_restructure": lambda self, c: c.replace(entries=c.entries / weights(c.entries)),
}


def packed(facts=None, complex=False, **overrides):
    """A symmetric matrix in packed storage, with some of its maps replaced."""
    cls = type("Packed", (tj.AbstractArray,), {"__annotations__": {"entries": Array},
               **PACKED, **overrides})  # fmt: skip
    options = {"linear": True, "injective": True} | (facts or {})
    s = Samples(3)
    return tj.register_array_type(cls, **options)(s.complex(3) if complex else s.normal(3))


def pulls(change):
    """The packed type with a change to what `pullback_of_destructure` extracts."""
    return packed(pullback_of_destructure=lambda self, y: self.replace(entries=change(y)))


def scaled_entries(*factors):
    return lambda y: extract(y) * jnp.asarray(factors, tj.destructure(y).dtype)


def wrong_for_outer(y):
    return extract(y) * (2 if isinstance(y, tj.Outer) else 1)


def forms(*factors):
    """Both maps of destructure wrong, by the same factors: adjoint to each other."""
    scale = lambda e: e * jnp.asarray(factors, e.dtype)
    return packed(
        pushforward_of_destructure=lambda self, t: form(scale(t.entries)),
        pullback_of_destructure=lambda self, y: self.replace(entries=scale(extract(y))),
    )


def curved(facts=None, **overrides):
    """A curved type with one field: `D(t)` = [[t, t²], [t², 1]]."""
    one = lambda t: jnp.stack([jnp.stack([t, t * t]), jnp.stack([t * t, jnp.ones_like(t)])])
    namespace = {"__annotations__": {"t": Array}, "to_dense": lambda self: one(self.t)}
    cls = type("Curved", (tj.AbstractArray,), {**namespace, **overrides})
    return tj.register_array_type(cls, **(facts or {}))(Samples(4).normal())


def slope(self, y, t):
    y = tj.destructure(y)
    return self.replace(t=y[0, 0] + 2 * t * (y[0, 1] + y[1, 0]))


def fill(pull_back):
    cls = type("Constant", (tj.AbstractArray,), {
        "__annotations__": {"value": Array},
        "to_dense": lambda self: jnp.broadcast_to(self.value, (2, 3)),
        "pullback_of_restructure": pull_back,
    })  # fmt: skip
    return tj.register_array_type(cls, linear=True, injective=True)(Samples(5).normal())


def shown(self, c):
    """The right natural cotangent of `Curved`, dense."""
    j = jnp.stack([jnp.stack([1 + 0 * c.t, 2 * self.t]), jnp.stack([2 * self.t, 0 * c.t])])
    return j * c.t / jnp.sum(j * j)


def worn(self, c):
    """The right natural cotangent of `Product`, dressed as a `Product`."""
    right = tj.natural(tj.Scaled(self.v, self.factor), tj.Scaled(c.v, c.factor))
    return self.replace(v=right, factor=jnp.ones_like(c.factor))


def over_parametrised(facts, **overrides):
    cls = type("Product", (tj.AbstractArray,), {
        "__annotations__": {"v": Array, "factor": Array},
        "to_dense": lambda self: self.factor * self.v,
        **overrides,
    })  # fmt: skip
    return tj.register_array_type(cls, **facts)(Samples(6).normal(2, 2), Samples(7).normal())


def unit_lower(leak):
    """A unit triangular matrix of one number; with `leak`, the tangent shows the ones."""
    show = lambda x, diag: jnp.stack([jnp.stack([diag, 0 * x]), jnp.stack([x, diag])])
    cls = type("UnitLower", (tj.AbstractArray,), {
        "__annotations__": {"x": Array},
        "to_dense": lambda self: show(self.x, jnp.ones_like(self.x)),
        "pushforward_of_destructure": lambda self, t: show(t.x, leak * jnp.ones_like(self.x)),
    })  # fmt: skip
    return tj.register_array_type(cls, injective=True, isometric=True)(Samples(8).normal())


ORIGINALS = {
    "packed": packed,
    "packed complex": lambda: packed(complex=True),
    "curved": curved,
    "curved, closed form": lambda: curved(
        pullback_of_destructure=lambda self, y: slope(self, y, self.t)
    ),
    "fill": lambda: fill(lambda self, c: c.replace(value=c.value / 6)),
    "over-parametrised": lambda: over_parametrised({}),
    "unit lower": lambda: unit_lower(0.0),
}

MUTANTS = {
    "zero map": lambda: pulls(lambda y: 0 * extract(y)),
    "negated": lambda: pulls(lambda y: -extract(y)),
    "scaled by 1.001": lambda: pulls(lambda y: 1.001 * extract(y)),
    "doubled diagonal": lambda: pulls(scaled_entries(2.0, 1.0, 2.0)),
    "off-diagonal without factor 2": lambda: pulls(scaled_entries(1.0, 0.5, 1.0)),
    "entries reversed": lambda: pulls(lambda y: extract(y)[::-1]),
    "wrong for Outer only": lambda: pulls(wrong_for_outer),
    "conjugated": lambda: packed(
        complex=True,
        pullback_of_destructure=lambda self, y: self.replace(entries=jnp.conj(extract(y))),
    ),
    "both maps of destructure wrong consistently": lambda: forms(1.0, 2.0, 1.0),
    "pullback of restructure zero": lambda: packed(
        pullback_of_restructure=lambda self, c: c.replace(entries=0 * c.entries)
    ),
    "pullback of restructure without multiplicity": lambda: packed(
        pullback_of_restructure=lambda self, c: c
    ),
    "pullback of restructure in one triangle": lambda: packed(
        pullback_of_restructure=lambda self, c: jnp.triu(form(c.entries))
    ),
    "pushforward of restructure without multiplicity": lambda: packed(
        pushforward_of_restructure=lambda self, y: self.replace(entries=extract(y))
    ),
    "fill without 1/N": lambda: fill(lambda self, c: c),
    "unit diagonal leaks into the tangent": lambda: unit_lower(1.0),
    "declared isometric": lambda: packed({"isometric": True}),
    "declared linear": lambda: curved({"linear": True}, pullback_of_restructure=shown),
    "declared injective": lambda: over_parametrised({"injective": True}),
    "declared Hermitian": lambda: over_parametrised({}, is_hermitian=True),
    "natural wears the class": lambda: over_parametrised({}, pullback_of_restructure=worn),
    "second order through stop_gradient": lambda: curved(
        pullback_of_destructure=lambda self, y: slope(self, y, jax.lax.stop_gradient(self.t))
    ),
    "wrong shape": lambda: packed(shape=property(lambda self: (3, 3))),
    "wrong dtype": lambda: packed(dtype=property(lambda self: jnp.dtype("float32"))),
    "widens single precision": lambda: packed(
        to_dense=lambda self: form(self.entries).astype("float64")
    ),
    "not finite": lambda: pulls(lambda y: extract(y) * jnp.nan),
}
STAGES = {  # which stage must catch a mutant; the others are caught by "maps"
    "wrong for Outer only": "lattice",
    "declared isometric": "facts",
    "declared linear": "facts",
    "declared injective": "facts",
    "declared Hermitian": "facts",
    "natural wears the class": "natural",
    "second order through stop_gradient": "second order",
    "wrong shape": "shape",
    "wrong dtype": "shape",
    "widens single precision": "dtype",
}


@pytest.mark.parametrize("name", ORIGINALS)
def test_original_passes(name):
    result = check_array_type(ORIGINALS[name]())
    assert result.scalars > 50
    assert result.worst_error < 1e-7


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name):
    """By the stage that is there for it, with all stages running."""
    with pytest.raises(tj.CheckFailure, match=f": {STAGES.get(name, 'maps')}: "):
        check_array_type(MUTANTS[name]())


def test_copies():
    """A class that pickle cannot find is said to be local, and checked all the same."""
    assert "local class" in check_array_type(packed()).notes[0]


def test_copies_that_fail():
    """A class that pickle finds, and that does not survive it."""
    x = tj.Diagonal(Samples(0).normal(2))
    broken = mock.patch.object(tj.Diagonal, "__reduce_ex__", side_effect=ValueError)
    with broken, pytest.raises(tj.CheckFailure, match="copies: pickle failed"):
        check_array_type(x)


@pytest.mark.parametrize("kind", [tj.Diagonal, tj.Triangular, tj.Fill, tj.Zero, tj.BlockDiagonal])
def test_built_in(kind):
    """The shipped types say only what is true (all of them: `python -m tanjax check tanjax`)."""
    for x in examples_of(kind)[:1]:
        assert check_array_type(x).scalars > 0


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (lambda: tj.Diagonal(jnp.full(3, 0.7)), "all values are equal"),
        (lambda: tj.Diagonal(jnp.array([1.0, 2.0])), "whole numbers"),
        (lambda: tj.Scaled(jnp.array([[0.1, 0.2], [0.2, 0.3]]), jnp.array(0.4)), "is symmetric"),
        (lambda: tj.Diagonal(jnp.array([0.1, jnp.inf])), "finite"),
    ],
)
def test_special_inputs_are_refused(x, reason):
    """A wrong derivative could pass where inputs are special."""
    with pytest.raises(tj.CheckFailure, match=reason):
        check_array_type(x())


def test_degenerate_on_purpose():
    """Rank-deficient points are checked when they are declared."""
    x = tj.Scaled(Samples(1).normal(2, 2), jnp.zeros(()))
    assert check_array_type(x, generic=False).scalars > 0


def test_stage_left_out():
    """A check that quietly does less is a failure, unless the stage is skipped by name."""
    x = tj.Diagonal(Samples(0).normal(2))
    with pytest.raises(tj.CheckFailure, match="left out"):
        check_array_type(x, modes=("pytree",))
    with pytest.raises(ValueError, match="unknown stage"):
        check_array_type(x, skip=("speed",))
    rest = tuple(m for m in tj.testing.ARRAY_MODES if m != "pytree")
    result = check_array_type(x, skip=rest)
    assert list(result.stages) == ["pytree"]
    assert result.skipped == rest


def test_single_precision_is_refused():
    with pytest.raises(ValueError, match="float64"):
        check_array_type(tj.Diagonal(jnp.ones(2, "float32")))


def test_foreign_class():
    """A class that somebody else owns is checked by the same call."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Ramp:
        start: Array
        step: Array

    levels = lambda r: r.start + r.step * jnp.arange(4.0).astype(r.step.dtype)
    tj.register_array_type(Ramp, destructure=levels, linear=True, injective=True)
    s = Samples(9)
    assert check_array_type(Ramp(s.normal(), s.normal())).scalars > 50
