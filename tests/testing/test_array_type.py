"""`check_array_type` passes what is right and catches every planted fault."""

import dataclasses
from unittest import mock

import jax
import jax.numpy as jnp
import pytest
from jax import Array

import tanjax as tj
from tanjax.testing import Samples, check_array_type


def form(e):
    return jnp.stack([jnp.stack([e[0], e[1]]), jnp.stack([e[1], e[2]])])


def extract(natural):
    y = tj.destructure(natural)
    return jnp.stack([y[0, 0], y[0, 1] + y[1, 0], y[1, 1]])


def by_multiplicity(e):
    """An entry beside the diagonal stands in two places."""
    return e / jnp.asarray((1.0, 2.0, 1.0), e.dtype)


def make(name, fields, values, body, **facts):
    """An array of a new type."""
    cls = type(name, (tj.AbstractArray,), {"__annotations__": dict.fromkeys(fields, Array), **body})
    return tj.register_array_type(cls, **facts)(*values)


PACKED = {
    "to_dense": lambda self: form(self.entries),
    "pushforward_of_destructure": lambda self, t: form(t.entries),
    "pullback_of_destructure": lambda self, y: self.replace(entries=extract(y)),
    "pushforward_of_restructure": lambda self, y: self.replace(entries=by_multiplicity(extract(y))),
    "pullback_of_restructure": lambda self, c: c.replace(entries=by_multiplicity(c.entries)),
}


def packed(facts=(), complex=False, **overrides):
    """A symmetric matrix in packed storage, with some of its maps replaced."""
    facts = {"linear": True, "injective": True} | dict(facts)
    values = Samples(3).complex(3) if complex else Samples(3).normal(3)
    return lambda: make("Packed", ["entries"], [values], PACKED | overrides, **facts)


def pulls(change, **options):
    """The packed type with a change to what `pullback_of_destructure` extracts."""
    return packed(
        pullback_of_destructure=lambda self, y: self.replace(entries=change(y)), **options
    )


def scaled(*factors):
    return lambda y: extract(y) * jnp.asarray(factors, tj.destructure(y).dtype)


def restores(pull_back):
    """The packed type with another pullback of restructure."""
    return packed(pullback_of_restructure=lambda self, c: pull_back(c))


def forms(*factors):
    """Both maps of destructure wrong, by the same factors: adjoint to each other."""
    scale = lambda e: e * jnp.asarray(factors, e.dtype)
    return packed(
        pushforward_of_destructure=lambda self, t: form(scale(t.entries)),
        pullback_of_destructure=lambda self, y: self.replace(entries=scale(extract(y))),
    )


def curved(facts=(), **overrides):
    """A curved type with one field: `D(t)` = [[t, t²], [t², 1]]."""
    one = lambda t: jnp.stack([jnp.stack([t, t * t]), jnp.stack([t * t, jnp.ones_like(t)])])
    body = {"to_dense": lambda self: one(self.t), **overrides}
    return lambda: make("Curved", ["t"], [Samples(4).normal()], body, **dict(facts))


def slope(self, y, t):
    y = tj.destructure(y)
    return self.replace(t=y[0, 0] + 2 * t * (y[0, 1] + y[1, 0]))


def fill(pull_back):
    body = {
        "to_dense": lambda self: jnp.broadcast_to(self.value, (2, 3)),
        "pullback_of_restructure": pull_back,
    }
    values = [Samples(5).normal()]
    return lambda: make("Constant", ["value"], values, body, linear=True, injective=True)


def shown(self, c):
    """The right natural cotangent of `Curved`, dense."""
    j = jnp.stack([jnp.stack([1 + 0 * c.t, 2 * self.t]), jnp.stack([2 * self.t, 0 * c.t])])
    return j * c.t / jnp.sum(j * j)


def worn(self, c):
    """The right natural cotangent of `Product`, dressed as a `Product`."""
    right = tj.tangents.natural(tj.Scaled(self.v, self.factor), tj.Scaled(c.v, c.factor))
    return self.replace(v=right, factor=jnp.ones_like(c.factor))


def over_parametrised(facts=(), **overrides):
    body = {"to_dense": lambda self: self.factor * self.v, **overrides}
    values = [Samples(6).normal(2, 2), Samples(7).normal()]
    return lambda: make("Product", ["v", "factor"], values, body, **dict(facts))


def unit_lower(leak):
    """A unit triangular matrix of one number; with `leak`, the tangent shows the ones."""
    show = lambda x, diag: jnp.stack([jnp.stack([diag, 0 * x]), jnp.stack([x, diag])])
    body = {
        "to_dense": lambda self: show(self.x, jnp.ones_like(self.x)),
        "pushforward_of_destructure": lambda self, t: show(t.x, leak * jnp.ones_like(self.x)),
    }
    values = [Samples(8).normal()]
    return lambda: make("UnitLower", ["x"], values, body, injective=True, isometric=True)


ORIGINALS = {
    "packed": packed(),
    "packed complex": packed(complex=True),
    "curved": curved(),
    "curved, closed form": curved(pullback_of_destructure=lambda self, y: slope(self, y, self.t)),
    "fill": fill(lambda self, c: c.replace(value=c.value / 6)),
    "over-parametrised": over_parametrised(),
    "unit lower": unit_lower(0.0),
}

MUTANTS = {
    "zero map": ("maps", pulls(lambda y: 0 * extract(y))),
    "negated": ("maps", pulls(lambda y: -extract(y))),
    "scaled by 1.001": ("maps", pulls(lambda y: 1.001 * extract(y))),
    "doubled diagonal": ("maps", pulls(scaled(2.0, 1.0, 2.0))),
    "off-diagonal without factor 2": ("maps", pulls(scaled(1.0, 0.5, 1.0))),
    "entries reversed": ("maps", pulls(lambda y: extract(y)[::-1])),
    "conjugated": ("maps", pulls(lambda y: jnp.conj(extract(y)), complex=True)),
    "not finite": ("maps", pulls(lambda y: extract(y) * jnp.nan)),
    "wrong for Outer only": (
        "lattice",
        pulls(lambda y: extract(y) * (2 if isinstance(y, tj.Outer) else 1)),
    ),
    "both maps of destructure wrong": ("maps", forms(1.0, 2.0, 1.0)),
    "pullback of restructure zero": ("maps", restores(lambda c: c.replace(entries=0 * c.entries))),
    "pullback of restructure without multiplicity": ("maps", restores(lambda c: c)),
    "pullback of restructure in one triangle": (
        "maps",
        restores(lambda c: jnp.triu(form(c.entries))),
    ),
    "pushforward of restructure without multiplicity": (
        "maps",
        packed(pushforward_of_restructure=lambda self, y: self.replace(entries=extract(y))),
    ),
    "fill without 1/N": ("maps", fill(lambda self, c: c)),
    "unit diagonal leaks into the tangent": ("maps", unit_lower(1.0)),
    "declared isometric": ("facts", packed({"isometric": True})),
    "declared linear": ("facts", curved({"linear": True}, pullback_of_restructure=shown)),
    "declared linear, and odd": (
        "facts",
        lambda: make(
            "Cube",
            ["t"],
            [Samples(4).normal(3)],
            {"to_dense": lambda self: self.t**3},
            linear=True,
        ),
    ),
    "declared injective": ("facts", over_parametrised({"injective": True})),
    "declared Hermitian": ("facts", over_parametrised(is_hermitian=True)),
    "natural wears the class": ("natural", over_parametrised(pullback_of_restructure=worn)),
    "cut off": (
        "second order",
        curved(
            pullback_of_destructure=lambda self, y: slope(self, y, jax.lax.stop_gradient(self.t))
        ),
    ),
    "wrong shape": ("shape", packed(shape=property(lambda self: (3, 3)))),
    "wrong dtype": ("shape", packed(dtype=property(lambda self: jnp.dtype("float32")))),
    "widens single precision": (
        "dtype",
        packed(to_dense=lambda self: form(self.entries).astype("float64")),
    ),
    "widens single precision, complex": (
        "dtype",
        packed(complex=True, to_dense=lambda self: form(self.entries).astype("complex128")),
    ),
    "widens a tangent": (
        "dtype",
        packed(
            pushforward_of_destructure=lambda self, t: form(t.entries).astype("float64"),
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ORIGINALS)
def test_array_type_without_a_fault_passes(name):
    result = check_array_type(ORIGINALS[name]())
    assert result.scalars > 50
    assert result.worst_error < 1e-7


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name):
    """By the stage that is there for it, with all stages running."""
    stage, make = MUTANTS[name]
    with pytest.raises(tj.errors.CheckFailure, match=f": {stage}: "):
        check_array_type(make())


def test_class_that_pickle_cannot_find_is_noted_and_one_that_it_breaks_fails():
    assert "local class" in check_array_type(packed()()).notes[0]
    x = tj.Diagonal(Samples(0).normal(2))
    broken = mock.patch.object(tj.Diagonal, "__reduce_ex__", side_effect=ValueError)
    with broken, pytest.raises(tj.errors.CheckFailure, match="copies: pickle failed"):
        check_array_type(x)


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
    with pytest.raises(tj.errors.CheckFailure, match=reason):
        check_array_type(x())


@pytest.mark.slow
def test_degenerate_on_purpose():
    """Rank-deficient points are checked when they are declared."""
    x = tj.Scaled(Samples(1).normal(2, 2), jnp.zeros(()))
    assert check_array_type(x, generic=False).scalars > 0


def test_stage_left_out():
    """A check that quietly does less is a failure, unless the stage is skipped by name."""
    x = tj.Diagonal(Samples(0).normal(2))
    with pytest.raises(tj.errors.CheckFailure, match="left out"):
        check_array_type(x, modes=("pytree",))
    with pytest.raises(tj.errors.CheckFailure, match="left out"):
        check_array_type(x, skip=tj.testing.ARRAY_MODES)
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


@pytest.mark.parametrize("seed", range(4))
def test_a_right_type_is_not_refused_for_its_last_bits(seed):
    """Canonical storage, once more, rounds once more; a batch of inverses is another program."""
    third = lambda e: jnp.broadcast_to(jnp.sum(e / 3, 0, keepdims=True), e.shape)
    body = {
        "canonical": lambda self: self.replace(e=third(self.e)),
        "to_dense": lambda self: jnp.linalg.inv(jnp.mean(self.e, 0)),
    }
    x = make("Mean", ["e"], [jnp.stack([Samples(seed).normal(5, 5)] * 3)], body)
    left_out = tuple(m for m in tj.testing.ARRAY_MODES if m not in ("copies", "shape"))
    assert bool(jnp.any(x.canonical().e != x.e))
    assert check_array_type(x, skip=left_out).stages["shape"].scalars


@pytest.mark.parametrize(
    "mutant",
    [
        {"pullback_of_destructure": lambda self, y: self.replace(entries=0 * extract(y))},
        {"total": lambda self: jnp.sum(self.entries)},
        {"diagonal": lambda self: self.entries[:2]},
        {"is_hermitian": property(lambda self: {}["lost"])},
    ],
)
def test_failures_name_the_method_of_the_author(mutant):
    """By file and line, for a wrong number and for what raises."""
    (wrong,) = (getattr(f, "fget", f) for f in mutant.values())
    with pytest.raises(tj.errors.CheckFailure) as failure:
        check_array_type(packed(**mutant)())
    assert f"{__file__}:{wrong.__code__.co_firstlineno}" in str(failure.value)
