"""Quantities as values: construction, copies, printing, conversion, and the four maps."""

import copy
import pickle
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
from comparisons import wave
from quantities import assert_quantity
from tanjax.testing import Samples

m, km, s, kg = (tj.unit(name) for name in ("m", "km", "s", "kg"))


# -- construction ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "value", "kind"),
    [
        (lambda: 3.0 * km, 3.0, float),
        (lambda: km * 3.0, 3.0, float),
        (lambda: 3 * km, 3.0, float),
        (lambda: np.float32(3) * km, 3.0, np.floating),
        (lambda: km * np.arange(3.0), [0, 1, 2], np.ndarray),
        (lambda: np.arange(3.0) * km, [0, 1, 2], np.ndarray),
        (lambda: jnp.arange(3.0) * km, [0, 1, 2], jax.Array),
        (lambda: [1.0, 2.0] * km, [1, 2], jax.Array),
        (lambda: tj.Quantity([1.0, 2.0], km), [1, 2], jax.Array),
        (lambda: tj.Quantity(2.0, "km"), 2.0, float),
        (lambda: 1j * km, 1j, complex),
    ],
)
def test_a_value_times_a_unit_is_a_quantity(make, value, kind):
    """Nothing is converted or copied, except that integers in the source become floats."""
    q = make()
    assert_quantity(q, "km", value, 0.0)
    assert isinstance(q.value, kind)
    assert q.unit is km


def test_division_by_a_unit_and_products_of_quantities_and_units():
    assert_quantity(6.0 / s, "1/s", 6.0)
    assert_quantity(np.arange(2.0) / s, "1/s", [0, 1])
    assert_quantity(jnp.arange(2.0) / s, "1/s", [0, 1])
    assert_quantity((6.0 * m) / s, "m/s", 6.0)
    assert_quantity((6.0 * m) * s, "m s", 6.0)
    assert_quantity(s * (6.0 * m), "m s", 6.0)
    assert_quantity(s / (2.0 * m), "s/m", 0.5)
    assert_quantity(m / 4, "m", 0.25)
    assert_quantity(m / np.array([1.0, 4.0]), "m", [1.0, 0.25])
    assert_quantity(20.0 * tj.unit("degC"), "degC", 20.0)
    traced = jax.jit(lambda x: (x * m, m * x, x / m, m / x))(jnp.full(3, 2.0))
    for q, (unit, value) in zip(traced, [("m", 2), ("m", 2), ("1/m", 2), ("m", 0.5)], strict=True):
        assert_quantity(q, unit, np.full(3, value))


@pytest.mark.parametrize("dtype", ["int32", "float16", "bfloat16", "float32", "complex64"])
def test_dtypes_are_kept(dtype):
    value = jnp.asarray([1, 2], dtype)
    q = value * m
    assert q.value is value
    assert (q.dtype, q.shape, q.ndim, q.size) == (jnp.dtype(dtype), (2,), 1, 2)


@pytest.mark.parametrize("x", ["text", {"a": 1.0}, None, object()])
def test_value_that_is_no_number_cannot_have_a_unit(x):
    with pytest.raises(tj.UnitError):
        x * m


def test_an_unknown_unit():
    with pytest.raises(tj.UnitError, match="furlongz"):
        tj.Quantity(1.0, "furlongz")


# -- a pytree --------------------------------------------------------------------------------------


def test_one_leaf_and_a_static_unit():
    q = jnp.arange(3.0) * km
    leaves, tree = jax.tree.flatten(q)
    assert leaves[0] is q.value
    assert len(leaves) == 1
    assert tree == jax.tree.structure(1.0 * km)
    assert tree != jax.tree.structure(1.0 * m)
    assert hash(tree) == hash(jax.tree.structure(1.0 * km))
    assert jax.tree_util.keystr(jax.tree_util.tree_flatten_with_path({"x": q})[0][0][0]) == (
        "['x'].stored"
    )


@pytest.mark.parametrize("place", [None, 0, object(), jax.ShapeDtypeStruct((2,), "float32")])
def test_placeholders_pass_through(place):
    """JAX unflattens with whatever it likes."""
    again = jax.tree.unflatten(jax.tree.structure(1.0 * km), [place])
    assert type(again) is tj.Quantity
    assert again.value is place
    assert again.unit is km


def test_maps_over_trees_keep_the_unit():
    q = {"a": jnp.arange(3.0) * km, "b": (1.0 * s, None)}
    twice = jax.tree.map(lambda v: 2 * v, q)
    assert_quantity(twice["a"], "km", [0, 2, 4])
    assert_quantity(twice["b"][0], "s", 2.0)
    assert_quantity(jax.tree.map(jnp.add, q, q)["a"], "km", [0, 2, 4])
    with pytest.raises(ValueError, match="node"):
        jax.tree.map(jnp.add, 1.0 * m, 1.0 * s)


def test_vmap_maps_the_value():
    x, t = jnp.arange(3.0) * km, jnp.arange(1.0, 3.0) * s
    table = jax.vmap(jax.vmap(lambda a, b: a / b, (None, 0)), (0, None))(x, t)
    assert_quantity(table, "km/s", np.arange(3.0)[:, None] / np.arange(1.0, 3.0))
    assert_quantity(jax.vmap(lambda q: q[0] * q, out_axes=1)(x[:, None] + 1.0 * km), "km^2",
                    [[1, 4, 9]])  # fmt: skip
    tree_axes = jax.vmap(lambda d: d["a"] * d["b"], ({"a": 0, "b": None},))
    assert_quantity(tree_axes({"a": x, "b": 2.0 * s}), "km s", [0, 2, 4])
    assert_quantity(tj.vmap(lambda a, b: a * b, (0, None))(x, 2.0 * s), "km s", [0, 2, 4])


# -- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "copied",
    [
        lambda q: pickle.loads(pickle.dumps(q)),
        copy.copy,
        copy.deepcopy,
        lambda q: jax.tree.map(lambda x: x, q),
        lambda q: jax.jit(lambda q: q)(q),
        jax.device_get,
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda: 2.5 * km / s**2,
        lambda: jnp.arange(3.0) * tj.unit("kg") ** Fraction(1, 3),
        lambda: np.arange(3, dtype="int32") * m,
        lambda: tj.Quantity(jnp.asarray([20.0, 30.0]), "degC"),
        lambda: tj.Quantity(jnp.asarray([1.5, 3.0], jnp.float32), m, 150),
        lambda: tj.Symmetric(jnp.eye(2)) * (1.0 * m),
    ],
)
def test_copies_have_the_same_label_value_and_dtype(make, copied):
    q = make()
    new = copied(q)
    assert (new.unit is q.unit, new.label is q.label) == (True, True)  # both are interned
    assert jax.tree.structure(new) == jax.tree.structure(q)
    assert new.dtype == q.dtype
    jax.tree.map(np.testing.assert_array_equal, new, q)


# -- text ------------------------------------------------------------------------------------------


def test_text_of_scalars_and_arrays():
    q, x = 3.14159 * km, jnp.arange(3.0) * m / s**2
    assert repr(q) == 'Quantity(3.14159, "km")'
    assert str(q) == "3.14159 km"
    assert f"{q:.2f}" == "3.14 km"
    assert f"{q:10.3e}" == " 3.142e+00 km"
    assert f"{x:.1f}" == "[0.0, 1.0, 2.0] m / s2"
    assert "²" in f"{x:.1f P}"
    assert f"{q:P}" == "3.14159 km"
    assert eval(repr(q), {"Quantity": tj.Quantity}).unit is km


def test_text_of_dimensionless_and_large_quantities():
    assert f"{1.5 * m / (1.0 * m):.1f}".startswith("1.5")
    assert repr(jnp.zeros((5, 7)) * m) == 'Quantity(float64[5,7], "m")'
    assert "m" in str(jnp.zeros(2000) * m)


def test_text_of_structured_and_complex_quantities():
    assert str(tj.Diagonal(jnp.asarray([1.0, 2.0]) * m)) == "Diagonal(diag=[1., 2.]) m"
    assert f"{(1 + 2j) * m:.1f}" == "1.0+2.0j m"


def test_text_of_tracers():
    """Printing inside of `jit` shows dtype, shape and unit, and never fails."""
    seen = []

    @jax.jit
    def f(x):
        seen.extend([repr(x), str(x), f"{x}", f"{x:.2f}"])
        return x

    f(jnp.zeros((2, 3)) * km)
    assert all("float64[2,3]" in text and "km" in text for text in seen), seen


# -- numbers out of quantities ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "read"),
    [("bool", bool), ("float", float), ("int", int), ("complex", complex),
     ("asarray", np.asarray), ("asarray", lambda q: np.array(q, dtype="float32"))],
)  # fmt: skip
def test_a_dimension_is_no_number(name, read):
    """Both for scalars and where a truth value would be read by mistake."""
    with pytest.raises(tj.UnitError, match=rf"(?s){name}.*m.*Hint"):
        read(2.0 * m)
    with pytest.raises(tj.UnitError, match=name):
        read(0.0 * m)


def test_pure_numbers_come_out_with_their_factor():
    ratio = (3.0 * m) / (2.0 * km)
    assert float(ratio) == 0.0015
    assert int((5.0 * km) / (1.0 * m)) == 5000
    assert complex(ratio) == 0.0015 + 0j
    assert bool(ratio)
    assert not bool(0.0 * m / m)
    np.testing.assert_array_equal(np.asarray(jnp.arange(3.0) * km / (1.0 * m)), [0, 1000, 2000])
    assert np.asarray(jnp.arange(3.0) * m / m, dtype="float32").dtype == np.float32
    with pytest.raises(tj.UnitError, match="float"):
        float(tj.Quantity(20.0, "degC"))


def test_if_on_a_quantity_raises_and_on_a_comparison_works():
    with pytest.raises(tj.UnitError, match="bool"):
        assert 2.0 * m
    assert 2.0 * m < 1.0 * km


# -- conversion ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "start", "end", "expected"),
    [
        (7.0, "m", "km", 0.007),
        (0.1, "km", "m", 0.1 * 1000),
        (36.0, "km/h", "m/s", 10.0),
        (4.0, "km^(1/2)", "m^(1/2)", 4 * 1000**0.5),
        (180.0, "deg", "rad", np.pi),
        (1.0, "1/mm", "1/km", 1e6),
    ],
)
def test_conversions_are_exact(value, start, end, expected):
    """One rounding, that of the product: the nearest float to the true result."""
    got = (value * tj.unit(start)).to(end)
    assert got.unit == tj.unit(end)
    assert float(got.value) == expected
    assert (value * tj.unit(start)).to_value(end) == expected
    assert (jnp.full(2, value) * tj.unit(start)).to_value(end).tolist() == [expected] * 2


def test_conversion_there_and_back_is_close_and_the_same_unit_is_free():
    x = jnp.linspace(0.1, 7.3, 50) * tj.unit("km/h")
    assert_quantity(x.to("m/s").to("km/h"), "km/h", x.value, 3e-16)
    assert x.to("km/h").value is x.value
    assert x.to(tj.unit("km / h")).value is x.value


def test_integers_become_floats_only_if_they_must():
    assert (jnp.arange(3) * m).to("m").dtype == jnp.int64
    assert_quantity((jnp.arange(3, dtype="int32") * km).to("m"), "m", [0, 1000, 2000])
    assert_quantity((jnp.arange(3) * m).to("km"), "km", [0, 0.001, 0.002])


def test_a_structured_quantity_converts_its_fields():
    q = tj.Diagonal(jnp.asarray([1.0, 2.0]) * km).to("m")
    assert isinstance(q.value, tj.Diagonal)
    assert_quantity(q, "m", np.diag([1000.0, 2000.0]))


@pytest.mark.parametrize(
    ("dtype", "start", "end", "fits"),
    [
        ("float16", "km", "m", True),
        ("float16", "km", "mm", False),
        ("float16", "mm", "km", False),
        ("bfloat16", "km", "µm", True),
        ("float32", "m", "km", True),
        ("float32", "solMass^2", "kg^2", False),
        ("float32", "kg^2", "solMass^2", False),
        ("float64", "solMass^2", "kg^2", True),
    ],
)
def test_a_factor_that_does_not_fit_takes_a_power_of_two(dtype, start, end, fits):
    """Not infinity and not zero: also where only the unit is known, but not the number."""
    q = jnp.ones(2, dtype) * tj.unit(start)
    if fits:
        assert np.all(np.isfinite(np.asarray(q.to(end).value, "float64")))
        assert q.to(end).dtype == q.dtype
        assert np.all(np.asarray(q.to(end).value, "float64") > 0)
        return
    exact = tj.units.conversion(q.unit, tj.unit(end))
    log = np.log2(exact[0] / exact[1])
    total = jnp.ones(2, dtype) * tj.unit(end) + q
    for r in (q.to(end), jax.jit(lambda q: q.to(end))(q), total if log > 0 else q.to(end)):
        assert r.unit is tj.unit(end)
        assert r.dtype == q.dtype
        stored = np.asarray(r.stored, "float64")
        np.testing.assert_allclose(np.log2(stored) + r.scale, log, atol=4e-3)
    with pytest.raises(tj.UnitError, match=rf"(?s)factor.*{dtype}.*Hint"):
        jax.jit(lambda q: jnp.ones(2, dtype) * tj.unit(end) + q)(q)


def test_wrong_conversions():
    with pytest.raises(tj.UnitError, match=r"(?s)m \(length\).*s \(time\)"):
        (1.0 * m).to("s")
    with pytest.raises(tj.UnitError):
        (1.0 * m).to("no such unit")


def test_temperatures_are_converted_with_their_zero_points():
    assert_quantity(tj.Quantity(20.0, "degC").to("K"), "K", 293.15)
    assert tj.Quantity(jnp.asarray([0.0, 100.0]), "degC").to_value("degF") == pytest.approx(
        [32.0, 212.0]
    )


# -- the four maps ---------------------------------------------------------------------------------


def values(seed=4):
    """One array of numbers of each kind."""
    x = Samples(seed)
    return [
        x.complex(2, 3),
        tj.Diagonal(x.normal(3)),
        tj.Symmetric(x.complex(2, 2)),
        tj.LowRank(x.normal(3, 1), x.normal(2, 1)),
        tj.Kronecker(x.complex(1, 2), x.complex(2, 1)),
    ]


every_value = pytest.mark.parametrize("value", values(), ids=lambda x: type(x).__name__)


@pytest.mark.slow
@every_value
def test_the_testing_kit_passes_quantities(value):
    """`check_array_type` holds a quantity to the same definition as every other type."""
    result = tj.testing.check_array_type(tj.Quantity(value, "km / s"))
    assert result.skipped == ()
    none = {"copies"} if type(value) is tj.Diagonal else {"copies", "memory"}  # small, or stored
    none |= set() if tj.rules.is_structured(value) else {"queries"}
    assert set(result.stages) >= set(tj.testing.ARRAY_MODES) - none
    assert result.scalars > 40


@every_value
def test_natural_cotangents_and_tangents_convert_their_prefix(value):
    q = tj.Quantity(value, km)
    y = wave(jnp.zeros(value.shape, value.dtype), 0.7)
    lift = tj.tangents.pushforward_of_restructure(q)
    for got, want in (
        (tj.tangents.structural(q, 1e-3 * y / m), tj.tangents.structural(q, y / km)),
        (lift(1e3 * y * m), lift(y * km)),
    ):
        assert jax.tree.structure(got) == jax.tree.structure(q)
        close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-7)
        jax.tree.map(close, got, want)


def test_natural_tangent_of_a_temperature_is_a_difference():
    q, step = (tj.Quantity(jnp.array(v), "degC") for v in ([20.0, 30.0], [2.0, 3.0]))
    assert_quantity(tj.tangents.pushforward_of_destructure(q)(step), "delta_degC", [2.0, 3.0])


@every_value
@pytest.mark.parametrize("wrong", [m, s, 1.0])
def test_a_cotangent_of_another_dimension_is_refused(value, wrong):
    q = tj.Quantity(value, km)
    y = jnp.ones(q.shape) * wrong
    with pytest.raises(tj.UnitError, match=r"(?s)cotangent.*km.*1 / km"):
        tj.tangents.structural(q, y)
    if wrong is not m:
        with pytest.raises(tj.UnitError, match=r"(?s)tangent.*km"):
            tj.tangents.pushforward_of_restructure(q)(y)


@pytest.mark.parametrize("name", ["pullback_of_restructure", "pushforward_of_destructure"])
def test_the_testing_kit_catches_a_wrong_unit(monkeypatch, name):
    """A map whose numbers are right and whose label is not."""
    right = getattr(tj.Quantity, name)
    wrong = lambda self, given: tj.Quantity(right(self, given).value, self.unit * self.unit)
    monkeypatch.setattr(tj.Quantity, name, wrong)
    with pytest.raises(
        tj.errors.CheckFailure, match=rf"(?s)maps: .*{name} has the wrong unit.*km2"
    ):
        tj.testing.check_array_type(tj.Quantity(Samples(4).normal(2, 3), "km"))


def test_a_quantity_does_not_change_with_the_array_that_it_was_made_of():
    buffer, history = np.zeros(2, np.float16), []
    for i in range(3):
        buffer[:] = i
        history += [buffer * m, tj.quantity(buffer, "m"), tj.Quantity(buffer, "m"), buffer / m**-1]
    assert [q.value.tolist()[0] for q in history] == [float(i) for i in range(3) for _ in range(4)]
    q = buffer * m
    assert (q * q).scale == 0  # its magnitude is looked at and kept
    buffer[0] = 6e4
    assert (q * q).value.tolist() == [4.0, 4.0]
    assert (buffer * m * (buffer * m)).scale != 0


def test_notebooks_and_equinox_show_number_and_unit():
    import equinox as eqx

    v = jnp.array([1.0, 2.0], jnp.float32) * tj.unit("m / s2")
    assert v._repr_html_() == "<span>[1., 2.] m/s²</span>"
    assert (3.5 * km)._repr_latex_() == r"$3.5\;\mathrm{km}$"
    assert (1e60 * km)._repr_latex_() == r"$1 \times 10^{60}\;\mathrm{km}$"
    assert tj.quantity(2.0, "1")._repr_latex_() == "$2.0$"
    assert tj.unit("m / s2")._repr_latex_() == r"$\mathrm{m}/\mathrm{s}^{2}$"
    assert eqx.tree_pformat(v) == 'Quantity(stored=f32[2], label=Unit("m / s2"))'


def test_lists_sizes_and_indices():
    v = jnp.arange(4, dtype=jnp.float32).reshape(2, 2) * km
    assert [[type(q) for q in row] for row in v.tolist()] == [[tj.Quantity] * 2] * 2
    assert v.tolist()[1][0] == 2.0 * km
    assert (3.0 * km).tolist() == 3.0 * km
    assert v.nbytes == 16
    assert (tj.Diagonal(jnp.ones(2, jnp.float32)) * km).nbytes == 8
    assert [1, 2, 3][tj.Quantity(jnp.asarray(1), "1")] == 2
    with pytest.raises(tj.UnitError, match="index: a quantity in km"):
        [1, 2, 3][2.0 * km]
    with pytest.raises(TypeError):
        [1, 2, 3][tj.quantity(1.0, "1")]


def test_a_shape_with_a_power_of_two_is_printed():
    shape = jax.ShapeDtypeStruct((2,), jnp.float32)
    assert str(tj.Quantity(shape, "kg", scale=3)) == f"2^3 {shape} kg"


def test_a_pure_number_is_printed_without_a_label():
    ratio = (1.0 * m) / (2.0 * m)
    assert (str(ratio), f"{ratio:.2f}", repr(ratio)) == ("0.5", "0.50", 'Quantity(0.5, "1")')
    assert str((1.0 * m) / (2.0 * km)) == "0.5 m / km"
    assert str(5.0 * tj.unit("percent")) == "5.0 %"
