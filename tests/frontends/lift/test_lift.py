"""`tj.lift`: unmodified JAX code on quantities and structured arrays."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jex

import tanjax as tj
import tanjax.numpy as tnp
from quantities import (
    assert_like_si,
    assert_plain,
    assert_quantity,
    assert_same,
    si,
)

pytestmark = pytest.mark.core

m, km, cm, s, kg = (tj.unit(name) for name in ("m", "km", "cm", "s", "kg"))
V = np.asarray([1.5, 2.25, 4.0])
x, y, t = jnp.asarray(V) * m, jnp.asarray(V[::-1].copy()) * km, jnp.asarray(2.5) * s

# -- functions: the code on quantities is the code on SI numbers, with a unit ----------------------


def nested(x, t):
    inner = jax.jit(lambda v: v * jnp.sum(v))
    return jax.jit(lambda v, w: inner(v) / w)(x, t)


def scanned(x, t):
    return lax.scan(lambda c, v: (c + v, v * v / t), jnp.zeros(()), x)


def looped(x, t):
    body = lambda c: (c[0] + 1, c[1] + x[0] / t)
    return lax.while_loop(lambda c: c[0] < 3, body, (0, jnp.zeros(())))[1]


def fori(x, t):
    return lax.fori_loop(0, 3, lambda i, c: c + x[i] * t, 0.0)


def branched(x, t):
    return lax.cond(x[0] < x[1], lambda v: v / t, lambda v: 2.0 * v / t, x)


def switched(x, t):
    return lax.switch(1, [lambda v: v, lambda v: 2 * v, lambda v: v[::-1]], x) * t


def mapped(x, t):
    return lax.map(lambda v: v * v, x) + jax.vmap(lambda v: v * x[0])(x), lax.cumsum(x) / t


def remat(x, t):
    return jax.checkpoint(lambda v: jnp.sqrt(v) * v)(x)


CODE = {
    "arithmetic": (lambda x, t: (-x + 2 * x) * x / t**2 - x**2 / (t * t), ["m^2 / s^2"]),
    "root": (lambda x, t: jnp.sqrt(2 * x * x[0]) + jnp.cbrt(x**3), ["m"]),
    "powers": (
        lambda x, t: (x**-1.5, x**0.5, jnp.square(x), 1 / x),
        ["m^(-3/2)", "m^(1/2)", "m^2", "1/m"],
    ),
    "pure functions": (lambda x, t: jnp.exp(-x / jnp.max(x)) * jnp.sin(x / x[0]), ["1"]),
    "indices": (lambda x, t: (x[1:], x[jnp.asarray([2, 0])], jnp.argmax(x)), ["m", "m", None]),
    "updates": (lambda x, t: x.at[1].set(x[0]).at[0].add(2 * x[1]).at[2].max(x[0]), ["m"]),
    "tests": (lambda x, t: (x < x[1], jnp.isfinite(x), jnp.sign(x)), [None] * 3),
    "where": (lambda x, t: jnp.where(x > x[0], x, 0.0), ["m"]),
    "zeros": (lambda x, t: x + np.zeros(3), ["m"]),
    "norm": (lambda x, t: jnp.linalg.norm(x), ["m"]),
    "nested jit": (nested, ["m^2/s"]),
    "scan": (scanned, ["m", "m^2/s"]),
    "while": (looped, ["m/s"]),
    "fori": (fori, ["m s"]),
    "cond": (branched, ["m/s"]),
    "switch": (switched, ["m s"]),
    "map and vmap": (mapped, ["m^2", "m/s"]),
    "checkpoint": (remat, ["m^(3/2)"]),
    "relu": (lambda x, t: (jax.nn.relu(x), jax.nn.leaky_relu(-x)), ["m", "m"]),
    "activations": (
        lambda x, t: [f(x / x[0]) for f in (jax.nn.softmax, jax.nn.silu, jax.nn.gelu,
                                            jax.nn.softplus, jax.nn.logsumexp)],
        ["1"] * 5,
    ),
    "trees": (lambda x, t: {"a": x, "b": (t, None, x / t)}, ["m", "s", "m/s"]),
    "plain result": (lambda x, t: jnp.arange(3.0), [None]),
    "grad inside": (lambda x, t: jax.grad(lambda v: jnp.sum(v**3))(x) / t, ["m^2/s"]),
    "random": (lambda x, t: x * jax.random.uniform(jax.random.key(0), (3,)), ["m"]),
    "nan handling": (lambda x, t: (jnp.nan_to_num(x), jnp.where(x > x[0], x, jnp.nan)), ["m", "m"]),
    "polynomial": (lambda x, t: jnp.polyval(jnp.asarray([1.0, 2.0, 3.0]), x / x[0]), ["1"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CODE)
def test_code_on_quantities_is_code_on_si_numbers(name):
    """Values of plain JAX in SI, units by dimensional analysis; metres, then mixed prefixes."""
    f, units = CODE[name]
    lifted = tj.lift(f)
    for args in ((x, t), (x.to("km"), t.to("ms"))):
        want = f(*si(args))
        if name == "arithmetic":
            want = np.asarray(want)
        assert_like_si(lifted(*args), want, units)


@pytest.mark.parametrize("name", ["root", "scan", "cond", "nested jit", "indices", "activations"])
def test_lift_under_jit_and_vmap(name):
    f, units = CODE[name]
    lifted = tj.lift(f)
    assert_same(jax.jit(lifted)(x, t), lifted(x, t))
    rows = jnp.stack([jnp.asarray(V), 2.0 * jnp.asarray(V)])
    got = jax.vmap(lifted, (0, None))(rows * m, t)
    assert_like_si(got, jax.vmap(f, (0, None))(rows, jnp.asarray(2.5)), units)


@pytest.mark.parametrize(
    "name", ["root", "scan", "cond", "nested jit", "checkpoint", "norm", "fori"]
)
def test_gradients_through_lift(name):
    """True units, values of plain JAX; the argument in kilometres."""
    f, units = CODE[name]
    last = lambda out: jax.tree.leaves(out, is_leaf=tj.rules.is_structured)[-1]
    loss = lambda x, t: jnp.sum(last(f(x, t)))
    bars = tj.grad(tj.lift(loss), (0, 1))(x.to("km"), t)
    want = jax.grad(loss, (0, 1))(jnp.asarray(V), jnp.asarray(2.5))
    out = tj.unit(units[-1])
    assert_like_si(bars, want, [str(out / m), str(out / s)])


def test_prefixes_in_one_call_are_brought_together():
    """Where two operands differ by a prefix the code runs in SI; alone it runs as given."""
    f = tj.lift(lambda a, b: (a + b, a * b, jnp.maximum(a, b), jnp.concatenate([a, b])))
    far = 1e3 * V[::-1]
    want = (V + far, V * far, np.maximum(V, far), np.concatenate([V, far]))
    assert_like_si(f(x, y), want, ["m", "m^2", "m", "m"])
    assert tj.lift(lambda a: a + a)(y).unit is km
    assert tj.lift(lambda a, b: a * b)(x, y).unit == m * km
    assert_quantity(tj.lift(jnp.sin)(90.0 * tj.unit("deg")), "1", 1.0)
    assert_quantity(tj.lift(jnp.exp)(1.0 * m / (1.0 * km)), "1", np.exp(1e-3))


# -- custom rules, closures, structured arguments --------------------------------------------------


def test_custom_rules_are_kept():
    """The derivative of the code is its own rule, not that of its formula."""
    f = jax.custom_jvp(lambda v: v * v)
    f.defjvp(lambda p, tt: (f(p[0]), 20.0 * p[0] * tt[0]))
    assert_quantity(tj.lift(f)(x), "m^2", V**2)
    assert_quantity(tj.grad(tj.lift(lambda v: jnp.sum(f(v))))(x), "m", 20 * V)
    g = jax.custom_vjp(lambda v: v * v)
    g.defvjp(lambda v: (v * v, v), lambda v, bar: (30.0 * v * bar,))
    assert_quantity(tj.lift(g)(x), "m^2", V**2)
    assert_quantity(tj.grad(tj.lift(lambda v: jnp.sum(g(v))))(x), "m", 30 * V)
    assert_quantity(jax.jit(tj.grad(tj.lift(lambda v: jnp.sum(g(v)))))(y), "km", 30 * V[::-1])


def test_closures_over_quantities():
    q = 3.0 * km
    f = tj.lift(lambda v: v + q)
    assert_quantity(f(x), "m", V + 3000)
    assert_like_si(f(y), V[::-1] * 1e3 + 3000, ["m"])
    assert_quantity(tj.lift(lambda v: v * q)(x), "m km", 3 * V)
    assert_like_si(tj.lift(lambda v: jnp.sqrt(v) * q)(x), 3000 * np.sqrt(V), ["m^(3/2)"])
    assert_like_si(tj.lift(lambda v: q - v)(x), 3000 - V, ["m"])
    assert_same(jax.jit(f)(x), f(x))
    assert_quantity(tj.grad(tj.lift(lambda v: jnp.sum(v * v) / q))(x), "m/km", 2 * V / 3)
    with pytest.raises(tj.UnitError, match=r"(?s)time.*length"):
        tj.lift(lambda v: v + q)(t)


def test_structured_arguments():
    d = tj.Diagonal(jnp.asarray(V) * kg)
    assert_quantity(tj.lift(lambda a, v: a @ v)(d, x), "kg m", V * V)
    kept = tj.lift(lambda a: 2.0 * a)(d)
    assert isinstance(kept.value, tj.Diagonal)
    assert_quantity(kept, "kg", np.diag(2 * V))
    with tj.densify("allow"):
        assert_quantity(tj.lift(lambda a: jnp.sum(a**2))(d), "kg^2", np.sum(V**2))
        assert_quantity(tj.lift(jnp.trace)(d), "kg", np.sum(V))
    assert_plain(tj.lift(lambda a, v: a @ v)(d.value, x.value), V * V)


# -- what is refused, and how ----------------------------------------------------------------------


def user_code(x, t):
    z = x * 2.0
    return z + t


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (user_code, r"add.*(m|length).*(s|time)"),
        (lambda x, t: x + 1.0, r"add.*plain number"),
        (lambda x, t: jnp.exp(x), r"exp.*dimensionless"),
        (lambda x, t: jnp.concatenate([x, t[None]]), r"concatenate.*length.*time"),
        (lambda x, t: x < t, r"lt.*length.*time"),
        (
            lambda x, t: lax.cond(x[0] < x[1], lambda: x[0], lambda: t),
            r"cond.*(length|time).*(length|time)",
        ),
        (lambda x, t: lax.scan(lambda c, v: (c * v, None), x[0], x)[0], r"scan.*carry 0.*length"),
        (lambda x, t: jnp.where(x > x[0], x, 1.0), r"select_n.*plain number"),
        (lambda x, t: x ** jnp.asarray(V), r"pow.*exponent"),
        (lambda x, t: jnp.cumprod(x), r"cumprod.*dimensionless"),
        (lambda x, t: jnp.linalg.slogdet(jnp.outer(x, x)), r"log.*dimensionless"),
        (lambda x, t: lax.while_loop(lambda c: c < x[0], lambda c: c * c, x[1]), r"while.*length"),
    ],
)
def test_errors_name_primitive_units_and_line(f, words):
    """The line of the user's code, though the error was found in a jaxpr."""
    with pytest.raises(tj.UnitError, match=f"(?s){words}") as caught:
        tj.lift(f)(x, t)
    assert "test_lift.py:" in str(caught.value)
    line = user_code.__code__.co_firstlineno + 2
    assert f"test_lift.py:{line}" in str(caught.value) or f is not user_code
    with pytest.raises(tj.UnitError, match=f"(?s){words}"):
        jax.jit(tj.lift(f))(x, t)


def test_functions_of_jax_with_plain_safeguards():
    """`hypot` divides by one where it would divide by zero; its meaning is in the tables."""
    assert_like_si(tj.lift(jnp.hypot)(3.0 * m, 0.004 * km), 5.0, ["m"])
    assert_like_si(tj.grad(tj.lift(jnp.hypot))(3.0 * m, 4.0 * m), 0.6, ["1"])
    with pytest.raises(tj.UnitError, match=r"(?s)hypot.*length.*time"):
        tj.lift(jnp.hypot)(3.0 * m, 4.0 * s)
    with pytest.raises(tj.UnitError, match=r"(?s)interp.*time.*length"):
        tj.lift(jnp.interp)(t, x, x)


def test_primitives_of_others_need_a_signature():
    """Refused on quantities with the line to write; free on plain values."""
    p = jex.Primitive("their_product")
    p.def_impl(lambda a, b: a * b)
    p.def_abstract_eval(lambda a, b: a)
    f = tj.lift(lambda a, b: p.bind(a, b))
    with pytest.raises(tj.UnitError, match=r'(?s)their_product.*lift.register\("their_product"'):
        f(x, y)
    assert_plain(f(x.value, x.value), V * V)
    tj.lift.register("their_product", "a: u, b: v -> u*v")
    assert_quantity(tj.lift(lambda a, b: p.bind(a, b))(x, y), "m km", V * V[::-1])
    with pytest.raises(tj.errors.RegistrationError):
        tj.lift.register("their_product", "nonsense")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_zero_infinity_and_nan_have_every_unit_in_every_dtype(dtype):
    f = tj.lift(lambda v: (jnp.maximum(v, 0.0), jnp.where(v > 0, v, jnp.inf), v - 0.0))
    assert_like_si(f(x), (V, V, V), ["m"] * 3)
    assert_plain(tj.lift(lambda v: v > 0)(x), [True] * 3)
    q = jnp.asarray([-1, 2], dtype) * km
    got = tj.lift(lambda v: jnp.where(v == 0, v, v + 0))(q)
    assert got.dtype == jnp.dtype(dtype)
    assert_quantity(got.astype("complex64"), "km", [-1, 2])
    if dtype != "complex64":
        assert_quantity(tj.lift(jax.nn.relu)(q).astype("float32"), "km", [0, 2])
    assert_plain(tj.lift(lambda x: jnp.zeros(2))(q), np.zeros(2))  # which code makes are plain
    assert_plain(tj.lift(jnp.sign)(0 * q), np.zeros(2))


# -- calls -----------------------------------------------------------------------------------------


def test_keywords_static_arguments_and_plain_values():
    @tj.lift
    def speed(x, *, t):
        """Doc."""
        return x / t

    assert (speed.__name__, speed.__doc__) == ("speed", "Doc.")
    assert_quantity(speed(x, t=t), "m/s", V / 2.5)
    assert_quantity(functools.partial(speed, t=t)(x), "m/s", V / 2.5)
    f = tj.lift(lambda v, how, n: v * n if how == "times" else v)
    assert_quantity(f(x, "times", 3.0), "m", 3 * V)
    assert_quantity(f(x, "id", 3.0), "m", V)
    assert_quantity(tj.lift(lambda v: v / 2)(3.0 * km), "km", 1.5)
    assert_quantity(tj.lift(lambda v: v + v)(V * km), "km", 2 * V)
    assert_plain(tj.lift(lambda v: v + 1.0)(jnp.asarray(V)), V + 1)
    double = tj.lift(lambda v: v.astype(v.dtype) * 2)  # a Python number is an array to the code
    assert double(2.0 * tj.unit("m")).to_value("m") == 4.0


def test_points_of_a_scale_pass_where_they_have_a_meaning():
    temperature = tj.Quantity(jnp.asarray([20.0, 30.0]), "degC")
    assert_quantity(tj.lift(jnp.max)(temperature), "degC", 30.0)
    with pytest.raises(tj.UnitError):
        tj.lift(lambda v: v * 2.0)(temperature)


def test_lift_of_code_that_turns_degrees_into_radians():
    angle = jnp.array([90.0, 180.0]) * tj.unit("deg")
    assert_quantity(tj.lift(jnp.deg2rad)(angle), "rad", [np.pi / 2, np.pi])
    assert_quantity(tj.lift(lambda a: jnp.sin(jnp.deg2rad(a)))(angle), "1", [1.0, 0.0])
    of_ratio = tj.lift(lambda a, b: jnp.rad2deg(jnp.arctan2(a, b)))
    assert_quantity(of_ratio(1.0 * m, 0.001 * km), "deg", 45.0)
    for wrong in (
        lambda: tj.lift(jnp.deg2rad)(angle.to("rad")),
        lambda: tj.lift(jnp.rad2deg)(angle),
    ):
        with pytest.raises(tj.UnitError):
            wrong()
    with pytest.raises(tj.UnitError):  # a prefix differs, so degrees go in as radians
        tj.lift(lambda a, b, c: (b + c) * jnp.deg2rad(a))(angle, 1.0 * m, 1.0 * km)


@pytest.mark.parametrize("f", [jnp.real, jnp.imag, jnp.conj, jnp.angle, jnp.zeros_like])
@pytest.mark.parametrize("number", [-1.5, 1.5 - 0.5j])
def test_parts_of_numbers_are_what_the_namespace_says(f, number):
    """Also the imaginary part of real numbers, which is a zero that forgot where it comes from."""
    q = jnp.full(2, number) * km
    got, want = tj.lift(f)(q), getattr(tnp, f.__name__)(q)
    assert_quantity(got, want.unit, want.value)


def test_an_index_in_percent_is_a_pure_number():
    pick = tj.lift(lambda x, i: x[i.astype(int)])
    for f in (pick, jax.jit(pick)):
        assert_quantity(f(jnp.arange(10.0) * m, tj.Quantity(jnp.asarray(300.0), "percent")), "m", 3)
