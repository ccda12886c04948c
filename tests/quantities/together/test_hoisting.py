"""Constructors that are given quantities: the unit is that of the array, as its type says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import wave
from quantities import assert_plain, assert_quantity

m, km, s, kg = (tj.unit(name) for name in ("m", "km", "s", "kg"))
v, a = jnp.asarray([0.3, 0.7, 1.2]), wave(jnp.zeros((3, 3))) + 2 * jnp.eye(3)
left, right = a[:, :1], a[:, 1:2]


@pytest.mark.parametrize(
    ("make", "unit", "plain"),
    [
        (lambda: tj.Diagonal(v * km), "km", tj.Diagonal(v)),
        (lambda: tj.Diagonal(diag=v * km), "km", tj.Diagonal(v)),
        (lambda: tj.Symmetric(a * km, "L"), "km", tj.Symmetric(a, "L")),
        (lambda: tj.Hermitian(a * km), "km", tj.Hermitian(a)),
        (lambda: tj.Triangular(a * km, lower=False), "km", tj.Triangular(a, lower=False)),
        (lambda: tj.Fill(0.4 * km, (2, 3)), "km", tj.Fill(0.4, (2, 3))),
        (lambda: tj.Scaled(a * km, 0.5 * s), "km s", tj.Scaled(a, 0.5)),
        (lambda: tj.Scaled(a * km, 0.5), "km", tj.Scaled(a, 0.5)),
        (lambda: tj.Outer(v * km, v * s), "km s", tj.Outer(v, v)),
        (lambda: tj.LowRank(left * km, right / s), "km/s", tj.LowRank(left, right)),
        (
            lambda: tj.Kronecker(tj.Diagonal(v * km), a * s),
            "km s",
            tj.Kronecker(tj.Diagonal(v), a),
        ),
        (
            lambda: tj.BlockDiagonal(a * km, tj.Diagonal(v * m)),
            "km",
            tj.BlockDiagonal(a, tj.Diagonal(v / 1000)),
        ),
        (lambda: tj.tangents.Masked(a * km, "lower"), "km", tj.tangents.Masked(a, "lower")),
        (
            lambda: tj.tangents.Sum(a * m, tj.Diagonal(v * km)),
            "m",
            tj.tangents.Sum(a, tj.Diagonal(v * 1000)),
        ),
        (
            lambda: tj.LowRankUpdate(tj.Diagonal(v * m**2), left * km, None),
            "m^2",
            tj.LowRankUpdate(tj.Diagonal(v), left * 1000, None),
        ),
        (
            lambda: tj.LowRankUpdate(a * kg, left * m, v[:1] * kg / m / s, right * s),
            "kg",
            tj.LowRankUpdate(a, left, v[:1], right),
        ),
    ],
)
def test_unit_of_fields_moves_outside(make, unit, plain):
    """`Diagonal(x * metre)` is a quantity whose value is a plain `Diagonal`."""
    q = make()
    assert_quantity(q, unit, plain)
    assert type(q.value) is type(plain)
    is_quantity = lambda x: type(x) is tj.Quantity
    assert not any(map(is_quantity, jax.tree.leaves(q.value, is_leaf=is_quantity)))
    assert_quantity(jax.jit(lambda q: q.to_dense())(q), unit, tj.destructure(plain))
    assert jax.tree.structure(jax.jit(make)()) == jax.tree.structure(q)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tj.tangents.Sum(a * m, tj.Diagonal(v * s)), r"(?s)Sum.*m \(length\).*s \(time\)"),
        (lambda: tj.tangents.Sum(a * m, tj.Diagonal(v)), r"(?s)Sum.*m \(length\).*plain"),
        (lambda: tj.BlockDiagonal(a * m, a * s), r"(?s)BlockDiagonal.*length.*time"),
        (
            lambda: tj.LowRankUpdate(tj.Diagonal(v * m), left * m, None),
            r"(?s)LowRankUpdate.*base: unit m\b.*update: unit m2\b",
        ),
    ],
)
def test_fields_whose_units_do_not_fit(make, words):
    with pytest.raises(tj.UnitError, match=words):
        make()


def test_a_type_that_does_not_say_what_it_does_to_units():
    """A third-party type without `units` refuses quantities, and says what to write."""

    @tj.register_array_type
    class Powers(tj.AbstractArray):
        points: jax.Array

        def to_dense(self):
            return self.points[:, None] ** jnp.arange(2.0)

    with pytest.raises(tj.UnitError, match=r"(?s)Powers.*units = "):
        Powers(v * m)

    @tj.register_array_type(linear=True)
    class Column(tj.AbstractArray):
        entries: jax.Array
        units = "entries: u -> u"

        def to_dense(self):
            return self.entries[:, None]

    assert_quantity(Column(v * m), "m", Column(v))


@tj.register_array_type
class Damped(tj.AbstractArray):
    """Entries with a unit, and a pure number that they are multiplied by."""

    units = "entries: u, damping: 1 -> u"

    entries: jax.Array = tj.rules.array_field(ndim=1)
    damping: jax.Array = tj.rules.array_field(ndim=0)

    def to_dense(self):
        return self.entries * self.damping


@tj.register_array_type
class Counted(tj.AbstractArray):
    """Pure numbers alone: there is no unit to have."""

    units = "share: 1 -> 1"

    share: jax.Array = tj.rules.array_field(ndim=1)

    def to_dense(self):
        return self.share


@pytest.mark.parametrize("damping", [jnp.asarray(0.5), 50.0 * tj.unit("%"), 0.5 * m / m])
def test_a_field_without_a_unit_takes_a_quantity_without_a_dimension(damping):
    made = Damped(jnp.arange(3.0) * km, damping)
    assert (made.unit, type(made.value)) == (km, Damped)
    np.testing.assert_allclose(made.value.to_dense(), [0.0, 0.5, 1.0])
    bare = Damped(jnp.arange(3.0), damping)
    np.testing.assert_allclose(tj.destructure(bare), [0.0, 0.5, 1.0])


def test_a_field_without_a_unit_refuses_one():
    with pytest.raises(tj.UnitError, match="Damped"):
        Damped(jnp.arange(3.0) * km, 0.5 * m)
    with pytest.raises(tj.UnitError, match="Counted"):
        Counted(jnp.arange(3.0) * m)


def test_an_array_of_pure_numbers_is_made_of_their_values():
    made = Counted(jnp.asarray([10.0, 20.0]) * tj.unit("%"))
    np.testing.assert_allclose(tj.destructure(made), [0.1, 0.2])


def test_a_zero_of_any_unit_is_free():
    assert_plain(tj.Zero((2, 2)).to_dense(), np.zeros((2, 2)))
    assert_quantity(tj.tangents.Sum(0.0 * jnp.eye(3) * m, tj.Diagonal(v * m)), "m", np.diag(v))
