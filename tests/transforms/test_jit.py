"""`tj.jit`: one trace for every prefix, and everything else that `jax.jit` can do."""

import copy
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import tanjax as tj
import tanjax.numpy as tnp
from comparisons import Counter
from quantities import assert_like_si, assert_plain, assert_quantity, assert_same
from tanjax.transforms._planning import PlannedFunction

pytestmark = pytest.mark.core

m, km, s, kg = (tj.unit(name) for name in ("m", "km", "s", "kg"))
PREFIXES = ("m", "km", "cm", "mm", "µm")


def counted(f, **options):
    """A compiled function and the counter of its traces."""
    count = Counter()

    def run(*args, **kwargs):
        count()
        return f(*args, **kwargs)

    return tj.jit(run, **options), count


@pytest.mark.parametrize("order", [PREFIXES, PREFIXES[::-1]])
def test_one_trace_for_five_prefixes(order):
    f, count = counted(lambda x, t: (x / t + 1.0 * km / s, x.sum() < 1.0 * km))
    for name in order:
        x, t = jnp.asarray([1.0, 2.0]) * tj.unit(name), 2.0 * s
        got = f(x, t)
        assert_like_si(got[0], (x.to("m").value / 2.0) + 1000.0, ["m/s"], 1e-12)
        assert bool(got[1]) == (name != "km")
    assert count.count == 1
    f(jnp.ones(3) * m, 2.0 * s)
    assert count.count == 2  # another shape


def test_results_are_in_the_units_of_the_first_call():
    f, _ = counted(lambda x: 2.0 * x)
    assert_quantity(f(1.0 * km), "km", 2.0)
    assert_quantity(f(1.0 * m), "km", 0.002)
    assert_quantity(f(1.0 * km), "km", 2.0)


def test_nested_trees_and_keywords():
    """Quantities anywhere among the arguments, next to plain leaves and `None`."""
    f, count = counted(lambda p, *, scale: {"x": p["x"] * scale, "n": p["n"] + 1, "none": None})
    for name in PREFIXES:
        p = {"x": jnp.ones(2) * tj.unit(name), "n": jnp.asarray(3), "none": (None,)}
        got = f(p, scale=2.0 * tj.unit(name))
        assert_like_si(got["x"], np.full(2, 2 * (1.0 * tj.unit(name)).to_value("m") ** 2), ["m^2"])
        assert_plain(got["n"], 4)
    assert count.count == 1


def test_structured_quantities():
    f, count = counted(lambda a, b: tj.solve(a, b))
    for name in PREFIXES:
        a = tj.Diagonal(jnp.asarray([2.0, 4.0])) * (1.0 * tj.unit(name))
        got = f(a, jnp.ones(2) * m)
        assert_like_si(got, np.asarray([0.5, 0.25]) / (1.0 * tj.unit(name)).to_value("m"), ["1"])
    assert count.count == 1


def test_plain_and_quantity_calls_of_one_function():
    f, count = counted(lambda x: x * x)
    assert_quantity(f(jnp.asarray(2.0) * m), "m^2", 4.0)
    assert_plain(f(jnp.asarray(2.0)), 4.0)
    assert_quantity(f(jnp.asarray(2.0) * s), "s^2", 4.0)
    assert_quantity(f(jnp.asarray(0.002) * km), "m^2", 4.0)
    assert_plain(f(jnp.asarray(3.0)), 9.0)
    assert count.count == 3


def test_equal_units_of_different_names():
    f, count = counted(lambda q: 2.0 * q)
    assert_quantity(f(1.0 * tj.unit("N")), "N", 2.0)
    assert_quantity(f(1.0 * tj.unit("kg m / s2")), "N", 2.0)
    assert count.count == 1


def test_affine_scales_are_not_mixed_up():
    """20 degC is not 20 K: another program, or a true conversion."""
    f = tj.jit(lambda t: t.to("K"))
    assert_quantity(f(tj.Quantity(20.0, "degC")), "K", 293.15)
    assert_quantity(f(tj.Quantity(20.0, "K")), "K", 20.0)
    assert_quantity(f(tj.Quantity(20.0, "degC")), "K", 293.15)
    assert_quantity(f(tj.Quantity(32.0, "degF")), "K", 273.15)


@pytest.mark.parametrize("first", ["m", "mm", "km"])
def test_low_precision_compiles_for_the_units_given(first):
    """In float16 neither factors nor values may fit: other programs, never infinity."""
    f, count = counted(lambda x: x + x)
    f(jnp.ones(2, "float16") * tj.unit(first))
    for name in PREFIXES:
        x = jnp.asarray([1.0, 3.0], "float16") * tj.unit(name)
        got = f(x)
        assert got.dtype == jnp.float16
        wide = (2 * jnp.asarray([1.0, 3.0])) * tj.unit(name)
        assert np.all(np.isfinite(np.asarray(got.value)))
        assert_same(got.astype("float64"), wide, 2e-3)
    assert count.count == len(PREFIXES)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "complex64"])
def test_one_trace_where_the_range_is_wide(dtype):
    f, count = counted(lambda x: x + x)
    for name in PREFIXES:
        got = f(jnp.asarray([1, 3], dtype) * tj.unit(name))
        assert got.dtype == jnp.dtype(dtype)
        wide = jnp.asarray([2, 6], "complex128") * tj.unit(name)
        assert_same(got.astype("complex128"), wide, 1e-2)
    assert count.count == 1


def test_a_factor_beyond_float32_compiles_again():
    f, count = counted(lambda x: x + x)
    f(jnp.ones(2, "float32") * tj.unit("solMass^2"))
    got = f(jnp.ones(2, "float32") * tj.unit("kg^2"))
    assert_quantity(got, "kg^2", [2.0, 2.0])
    assert count.count == 2


def test_float16_values_do_not_overflow_at_the_boundary():
    """100 km are 1e5 m, which float16 cannot hold, though it can hold the factor."""
    f = tj.jit(lambda x: x + x)
    f(jnp.ones((), "float16") * m)
    got = f(jnp.asarray(100, "float16") * km)
    assert_same(got.astype("float64"), 200.0 * km, 2e-3)


# -- options of jax.jit ----------------------------------------------------------------------------


def test_static_arguments():
    f, count = counted(lambda x, n, how: x**n if how == "power" else x * n,
                       static_argnums=1, static_argnames="how")  # fmt: skip
    x = jnp.asarray([1.0, 2.0]) * m
    assert_quantity(f(x, 3, how="power"), "m^3", [1, 8])
    assert_quantity(f(x.to("km"), 3, how="power"), "m^3", [1, 8])
    assert count.count == 1
    assert_quantity(f(x, 2, how="times"), "m", [2, 4])
    assert count.count == 2


def test_a_unit_as_a_static_argument():
    f, count = counted(lambda x, unit: x.to(unit), static_argnums=1)
    assert_quantity(f(jnp.ones(2) * km, m), "m", [1000] * 2)
    assert_quantity(f(jnp.ones(2) * km, "cm"), "cm", [1e5] * 2)
    assert count.count == 2


@pytest.mark.parametrize("compiler", [jax.jit, tj.jit])
def test_a_quantity_is_no_static_argument(compiler):
    """It is an array: mutable in NumPy, unknown in JAX. JAX's own message says so."""
    with pytest.raises(ValueError, match="hash"):
        compiler(lambda q: q, static_argnums=0)(1.0 * m)


def test_donated_quantities_are_deleted_and_others_kept():
    f = tj.jit(lambda x, y: x + y, donate_argnums=0)
    x, y = jnp.ones(8) * m, jnp.ones(8) * m
    assert_quantity(f(x, y), "m", np.full(8, 2.0))
    assert x.value.is_deleted()
    assert not y.value.is_deleted()


def mesh():
    return jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))


def test_sharded_quantities_keep_unit_and_sharding():
    """`device_put`, `in_shardings`, `out_shardings`, `shard_map`: the unit goes along."""
    over, whole = NamedSharding(mesh(), P("i")), NamedSharding(mesh(), P())
    x = jax.device_put(jnp.arange(8.0) * km, over)
    assert x.unit is km
    assert x.value.sharding == over
    f = tj.jit(lambda v: v * v.sum(), in_shardings=over, out_shardings=over)
    assert_quantity(f(x), "km^2", 28 * np.arange(8.0))
    assert f(x).value.sharding == over
    assert tj.jit(lambda v: v, out_shardings=whole)(x).value.sharding.is_fully_replicated
    local = jax.shard_map(lambda v: v * tnp.sum(v), mesh=mesh(), in_specs=P("i"), out_specs=P("i"))
    got = tj.jit(local)(x)
    assert_quantity(got, "km^2", [0, 1, 10, 15, 36, 45, 78, 91])
    constrained = tj.jit(lambda v: jax.lax.with_sharding_constraint(v, whole))
    assert_quantity(constrained(x), "km", np.arange(8.0))


def test_ahead_of_time():
    f = tj.jit(lambda x, t: {"v": x / t})
    x, t = jnp.arange(3.0) * km, 2.0 * s
    lowered = f.lower(x, t)
    assert "stablehlo" in lowered.as_text()
    assert_quantity(lowered.compile()(x, t)["v"], "km/s", np.arange(3.0) / 2)
    shape = tj.Quantity(jax.ShapeDtypeStruct((3,), "float64"), km)
    assert_quantity(f.lower(shape, t).compile()(x, t)["v"], "km/s", np.arange(3.0) / 2)
    assert f.eval_shape(x, t)["v"].unit == km / s
    assert f.trace(x, t).jaxpr is not None
    with pytest.raises(TypeError):
        lowered.compile()(x.to("m"), t)  # for exactly these units


def test_compiled_programs_have_no_trace_of_units():
    """Identical optimised HLO: units cost nothing at run time."""
    formula = lambda x, t: ((x / t) ** 2).sum() * t
    x, t = jnp.arange(3.0), jnp.asarray(2.0)
    text = lambda f, *args: jax.jit(f).lower(*args).compile().as_text().splitlines()
    operations = lambda lines: sorted(
        line.split("=")[1].split("(")[0].split()[-1] for line in lines if " = " in line
    )
    assert operations(text(formula, x * km, t * s)) == operations(text(formula, x, t))


@pytest.mark.parametrize("compiler", [jax.jit, tj.jit])
def test_export_round_trip(compiler):
    """Serialised, read again, called: units travel with the program."""
    f = lambda p: {"v": p["x"] / p["t"], "n": p["n"]}
    p = {"x": jnp.arange(3.0) * km, "t": jnp.asarray(2.0) * s, "n": jnp.asarray(3)}
    exported = export.export(compiler(f))(p)
    again = export.deserialize(exported.serialize())
    got = again.call(p)
    assert_quantity(got["v"], "km/s", np.arange(3.0) / 2)
    assert got["v"].unit is f(p)["v"].unit
    assert_plain(got["n"], 3)
    with pytest.raises((ValueError, TypeError)):
        again.call({**p, "x": jnp.arange(3.0) * m})


def test_export_of_structured_quantities_and_their_gradient():
    loss = lambda a, b: tnp.sum(tj.solve(a, b) ** 2)
    a, b = tj.Diagonal(jnp.asarray([2.0, 4.0]) * kg), jnp.ones(2) * m
    want = tj.grad(loss)(a, b)
    exported = export.export(jax.jit(tj.grad(loss)))(a, b)
    got = export.deserialize(exported.serialize()).call(a, b)
    assert type(got.value) is type(want.value)
    assert_quantity(got, str(want.unit), want.value)


# -- around and inside of other transformations ----------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*it is not planned")
def test_under_grad_vmap_and_itself():
    f, count = counted(lambda x, t: tnp.sum(x**2) / t)
    for name in PREFIXES:
        x = jnp.asarray([1.0, 2.0]) * tj.unit(name)
        assert_same(tj.grad(f)(x, 2.0 * s), x / (1.0 * s))
    assert count.count <= 2  # JAX may keep the program of tracers apart
    rows = jnp.ones((3, 2)) * m
    assert_quantity(jax.vmap(f, (0, None))(rows, 2.0 * s), "m^2/s", np.ones(3))
    outer = tj.jit(lambda x: f(x, 1.0 * s) + f(x.to("km"), 1.0 * s))
    assert_quantity(outer(jnp.ones(2) * m), "m^2/s", 4.0)
    assert_quantity(tj.grad(outer)(jnp.ones(2) * m), "m/s", np.full(2, 4.0))


class Model:
    def __init__(self, rate):
        self.rate = rate

    @functools.partial(tj.jit, static_argnums=0)
    def run(self, x):
        """Doc."""
        return x * self.rate


def test_methods_and_decorators():
    model = Model(2.0 / s)
    assert_quantity(model.run(3.0 * m), "m/s", 6.0)
    assert Model.run.__doc__ == "Doc."

    @tj.jit(static_argnames="n")
    def power(x, n):
        return x**n

    assert_quantity(power(2.0 * m, n=3), "m^3", 8.0)
    assert power.__name__ == "power"
    assert "power" in repr(power)


def test_closures_over_quantities():
    q = jnp.arange(3.0) * km
    f = tj.jit(lambda x: x + q)
    assert_quantity(f(jnp.ones(3) * m), "m", 1 + 1000 * np.arange(3.0))


def test_errors_inside_name_the_operation():
    f = tj.jit(lambda x: x + 1.0 * s)
    with pytest.raises(tj.UnitError, match=r"(?s)add.*length.*time"):
        f(1.0 * m)
    with pytest.raises(tj.UnitError, match="add"):
        f(2.0 * m)  # an error is not cached as a result


def test_clear_cache():
    f, count = counted(lambda x: 2.0 * x)
    f(1.0 * m)
    f.clear_cache()
    assert_quantity(f(1.0 * km), "km", 2.0)
    assert count.count == 2


def test_copies_are_the_function_itself():
    """Of a model that has one in a field a deep copy is made after it was called, too."""
    f = tj.jit(jnp.square)
    f(2.0)
    assert copy.deepcopy({"step": f})["step"] is f
    assert copy.copy(f) is f


def test_jax_jit_traces_once_per_unit():
    """The contrast: to JAX the unit is static."""
    count = Counter()

    @jax.jit
    def f(x):
        count()
        return 2.0 * x

    for name in PREFIXES:
        assert_quantity(f(1.0 * tj.unit(name)), name, 2.0)
    assert count.count == 5


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: tj.jit(lambda x: f(x))])
def test_rounding_is_compiled_per_unit(wrap):
    """Half a kilometre and 500 m round differently: such a program serves one unit only."""
    f = wrap(tj.jit(tnp.floor))
    assert float(f(1.5 * km) / (1.0 * km)) == 1.0
    assert float(f(1500.7 * m) / (1.0 * m)) == 1500.0
    assert f(2.5 * km).unit == km


def test_rounding_of_many_arguments_is_compiled_per_unit():
    zero = 0.0 * m
    of_dict = tj.jit(lambda t: tnp.round(t["a"]) + t["b"] + t["c"] + t["d"])
    flat = tj.jit(lambda a, b, c, d: tnp.round(a) + b + c + d)
    for q, expected in ((1.4 * km, 1000.0), (1400.4 * m, 1400.0)):
        assert flat(q, zero, zero, zero).to_value("m") == expected
        assert of_dict({"a": q, "b": zero, "c": zero, "d": zero}).to_value("m") == expected


def test_a_compiled_function_that_rounds_tells_the_one_that_calls_it():
    inner = tj.jit(tnp.floor)
    inner(1.5 * km)  # traced before, so that nothing is traced inside `outer`
    outer = tj.jit(lambda x: inner(x))
    assert outer(1.5 * km).to_value("km") == 1.0
    assert outer(1500.7 * m).to_value("m") == 1500.0


@pytest.mark.parametrize("name", ["key", "fun", "self"])
def test_arguments_may_have_any_name(name):
    f = lambda x, **named: x * named[name]
    assert_quantity(tj.jit(f)(2.0 * m, **{name: 3.0 * s}), "m s", 6.0)
    assert_quantity(tj.grad(f)(2.0 * m, **{name: 3.0 * s}), "s", 3.0)


def test_a_compiled_square_of_a_far_unit_does_not_overflow():
    """1 Gpc is 3e25 m, whose square float32 does not hold."""
    square = tj.jit(lambda x: x**2)
    one = jnp.float32(1.0)
    assert square(one * tj.unit("m")).unit == tj.unit("m2")
    far = square(one * tj.unit("Gpc"))
    assert (float(far.value), far.unit) == (1.0, tj.unit("Gpc2"))
    assert square(one * tj.unit("km")).unit == tj.unit("m2")


@pytest.mark.parametrize("given", [([3e37], "km"), ([3e-37, 3e-30], "mm"), ([0.0], "km")])
@pytest.mark.parametrize("first", [1, 4])
def test_numbers_that_do_not_fit_in_the_units_of_a_first_call_keep_theirs(given, first):
    double = tj.jit(lambda *xs: xs[0] * 2.0)
    double(*[jnp.ones(len(given[0])) * m] * first)
    x = jnp.float32(given[0]) * tj.unit(given[1])
    assert_quantity(double(*[x] * first), given[1] if any(given[0]) else "m", 2 * x.stored)


def test_a_power_of_two_in_a_label_does_not_overflow_in_the_units_of_a_first_call():
    part = tj.jit(lambda mass: mass / (1e30 * tj.units.kg))
    part(jnp.float32(1) * tj.units.kg)
    found = part(tj.Quantity(jnp.float32(1e35), "kg", scale=20))
    np.testing.assert_allclose(found.to_value("1"), 1e5 * 2**20, rtol=1e-6)


def test_the_quantities_of_the_last_call_are_recognised_and_others_are_not(monkeypatch):
    calls = []
    call = PlannedFunction.__call__
    monkeypatch.setattr(
        PlannedFunction, "__call__", lambda *a, **k: calls.append(1) or call(*a, **k)
    )
    f = tj.jit(lambda *qs: sum(qs[1:], qs[0]))
    draw = lambda *xs, unit="m": [jnp.float32(x) * tj.unit(unit) for x in xs]
    a, b, c = draw(1, 2, 3, 4), draw(1, 2, 3, 4, unit="s"), draw(5, 6, 7, 8)
    for _ in range(2):
        assert f(*a).to_value("m") == 10
        assert f(*b).to_value("s") == 10
        assert f(*c).to_value("m") == 26
    f(*a), calls.clear()
    assert f(*a).to_value("m") == 10
    assert not calls
    for i in range(4):
        others = [*a[:i], c[i], *a[i + 1 :]]
        assert f(*others).to_value("m") == 14
        assert f(*a).to_value("m") == 10
    assert f(*a[:3], draw(4, unit="km")[0]).to_value("m") == 4006
    assert f(*a, a[0]).to_value("m") == 11
    for i in range(20):  # strangers, of which few are kept
        assert f(*draw(i, 0, 0, 0)).to_value("m") == i
    d = draw(9, 9, 9, 9)
    assert f(*b).to_value("s") == 10
    assert [f(*d).to_value("m"), f(*d).to_value("m")] == [36, 36]
    f(*a), f.clear_cache(), calls.clear()
    assert f(*a).to_value("m") == 10
    assert calls


def test_the_arguments_of_the_last_call_are_recognised_and_others_are_not():
    f = tj.jit(lambda *xs, **more: sum(xs) + sum(more.values()))
    x, y, z = (jnp.float32(i) for i in (1.0, 2.0, 4.0))
    for _ in range(3):
        assert f() == 0
        assert [f(x), f(x), f(y), f(y)] == [1, 1, 2, 2]
        assert [f(x, y), f(x, y), f(x, z), f(x), f(x, y, z), f(x, y)] == [3, 3, 5, 1, 7, 3]
        assert [f(x), f(x, k=y), f(x), f(k=x), f(x)] == [1, 3, 1, 1, 1]
