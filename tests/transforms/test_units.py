"""Derivatives of functions of quantities: values against plain JAX in SI, units by hand."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec as P

import tanjax as tj
import tanjax.numpy as tnp
from comparisons import wave
from quantities import (
    assert_like_si,
    assert_plain,
    assert_quantity,
    assert_same,
    si,
)

pytestmark = pytest.mark.core

m, km, s, ms, kg, g = (tj.unit(name) for name in ("m", "km", "s", "ms", "kg", "g"))
V = np.asarray([1.5, -2.25, 4.0])
x = jnp.asarray(V) * km
t = jnp.asarray(2.5) * s


# The same lines run on quantities (`np_` is tanjax.numpy) and on SI numbers (`np_` is jax.numpy).


def energy(np_, x, t):
    """In m4 / s2 / 1000: mixed prefixes, a root, a sum over axes."""
    speed = (x[1:] - x[:-1]) / t
    return np_.sum(speed**2 * np_.sqrt(x[0] ** 4 + x[1] ** 4)) + x[2] ** 4 / t**2


def path(np_, x, t):
    """A vector in m2 / s."""
    return x * np_.sum(x) / t + np_.max(x) * x[0] / t


on_quantities = lambda f: lambda *args: f(tnp, *args)
on_numbers = lambda f: lambda *args: f(jnp, *args)

POINTS = {
    "SI": (jnp.asarray(V) * 1e3 * m, t),
    "prefixes": (x, t.to("ms")),
    "NumPy and Python": (V * km, 2.5 * s),
}


@pytest.fixture(params=POINTS)
def args(request):
    return POINTS[request.param]


@pytest.fixture
def numbers(args):
    """The arguments in SI."""
    return jax.tree.map(jnp.asarray, si(args))


# -- each transformation, against plain JAX in SI --------------------------------------------------


def test_value_and_grad(args, numbers):
    f = on_quantities(energy)
    value, bars = tj.value_and_grad(f, (0, 1))(*args)
    want, plain = jax.value_and_grad(on_numbers(energy), (0, 1))(*numbers)
    assert_like_si(value, want, ["m^4 / s^2"])
    assert_like_si(bars, plain, ["m^3 / s^2", "m^4 / s^3"])
    assert_same(tj.grad(f, (0, 1))(*args), bars)
    assert_same(tj.grad(f)(*args), bars[0])
    assert_same(tj.grad(f, 1)(*args), bars[1])
    assert_same(jax.jit(tj.grad(f, (0, 1)))(*args), bars)


@pytest.mark.parametrize("mode", [tj.jacfwd, tj.jacrev, tj.jacobian])
def test_jacobians_have_numbers_of_jax_and_units_of_quotients(args, numbers, mode):
    rows = mode(on_quantities(path), (0, 1))(*args)
    want = jax.jacrev(on_numbers(path), (0, 1))(*numbers)
    assert_like_si(rows, want, ["m / s", "m^2 / s^2"])
    assert_same(mode(on_quantities(path))(*args), rows[0])


@pytest.mark.slow
def test_hessian_has_numbers_of_jax_and_units_of_quotients(args, numbers):
    f = on_quantities(energy)
    blocks = tj.hessian(f, (0, 1))(*args)
    want = jax.hessian(on_numbers(energy), (0, 1))(*numbers)
    assert_like_si(blocks, want, ["m^2 / s^2", "m^3 / s^3", "m^3 / s^3", "m^4 / s^4"])
    for second in (tj.hessian(f), tj.jacrev(tj.grad(f)), tj.jacfwd(tj.jacrev(f))):
        assert_same(second(*args), blocks[0][0])


def test_vjp_takes_cotangents_with_and_without_units(args, numbers):
    out, pullback = tj.vjp(on_quantities(path), *args)
    y_bar = jnp.asarray([0.3, -1.0, 0.5])
    want, plain = jax.vjp(on_numbers(path), *numbers)
    assert_like_si(out, want, ["m^2 / s"])
    # an objective in J = kg m2 / s2: a cotangent in kg / s, given in g / ms
    assert_like_si(pullback(y_bar * g / ms), plain(y_bar), ["kg m / s^2", "kg m^2 / s^3"])
    # a plain cotangent: an objective in the unit of the output
    assert_like_si(pullback(y_bar), plain(y_bar), ["m / s", "m^2 / s^2"])


def test_jvp_and_linearize(args, numbers):
    x_dot, t_dot = jnp.asarray([0.3, -1.0, 0.5]), jnp.asarray(0.7)
    want, moved = jax.jvp(on_numbers(path), numbers, (x_dot, t_dot))
    # both at a rate of 1 / s, one of them in other prefixes
    tangents = (x_dot * 1e-3 * km / s, t_dot * ms / ms)
    out, push = tj.linearize(on_quantities(path), *args)
    for got in (tj.jvp(on_quantities(path), args, tangents), (out, push(*tangents))):
        assert_like_si(got, (want, moved), ["m^2 / s", "m^2 / s^2"])
    # no rate: tangents in the units of the primals, for instance of a step
    assert_like_si(push(x_dot * m, t_dot * s), moved, ["m^2 / s"])
    only_x = tj.jvp(on_quantities(path), args, (x_dot * m, 0.0))[1]
    assert_like_si(only_x, jax.jvp(on_numbers(path), numbers, (x_dot, 0.0 * t_dot))[1], ["m^2 / s"])


def test_the_example_that_everybody_gets_wrong():
    """The gradient of `x³` at 2 m is 12 m², and JAX's own stays structural: labelled like `x`."""
    assert_quantity(tj.grad(lambda x: x**3)(2.0 * m), "m^2", 12.0)
    assert_quantity(tj.grad(lambda x: x**3)(0.002 * km), "km^2", 12e-6)
    structural = jax.grad(lambda x: (x**3).value)(2.0 * m)
    assert_quantity(structural, "m", 12.0)
    assert_quantity(tj.tangents.natural(2.0 * m, structural), "1/m", 12.0)
    _, pullback = tj.vjp(lambda x: x**3, 2.0 * m)
    assert_quantity(pullback(1.0 * m**3)[0], "m^5", 12.0)
    assert_quantity(tj.hessian(lambda x: x**3)(2.0 * m), "m", 12.0)
    assert_quantity(tj.grad(lambda x: x * x)(2.0 * m), "m", 4.0)  # right even by accident


def test_jax_s_own_transformations_stay_structural():
    """They work, on the pytree; the label is that of the primal, the numbers are right."""
    f = lambda q: jnp.sum(q.value**3)
    for mode in (jax.grad, jax.jacfwd, jax.jacrev, jax.hessian):
        leaf = mode(f)(x)
        while type(leaf) is tj.Quantity:
            assert leaf.unit is km
            leaf = leaf.value
        np.testing.assert_allclose(leaf, mode(lambda v: jnp.sum(v**3))(x.value))
    cube = lambda q: q**3
    out, pull = jax.vjp(cube, x)
    assert_quantity(out, "km^3", V**3)
    assert_quantity(pull(jnp.ones(3) * km**3)[0], "km", 3 * V**2)
    with pytest.raises(ValueError, match="tree"):
        pull(jnp.ones(3) * km)
    for moved in (jax.jvp(cube, (x,), (x,))[1], jax.linearize(cube, x)[1](x)):
        assert_quantity(moved, "km^3", 3 * V**3)


# -- trees -----------------------------------------------------------------------------------------


class Pair(NamedTuple):
    place: object
    speed: object


class Body(eqx.Module):
    mass: object
    place: object
    count: jax.Array
    nothing: None = None
    name: str = eqx.field(static=True, default="body")


@pytest.mark.parametrize("unit", ["1", "J"])
def test_gradients_of_trees_are_in_the_unit_of_the_loss_by_that_of_the_leaf(unit):
    """The tree is that of the argument; integers and `None` have no gradient."""
    square = wave(jnp.zeros((2, 2)))
    tree = {
        "pair": Pair(x, x[0] / t),
        "tuple": (x, (t, None)),
        "list": [Body(2.0 * kg, x, jnp.asarray(3)), jnp.asarray(0.5), 3],
        "structured": [tj.Symmetric(square) * (1.0 * kg), tj.Diagonal(x), tj.Triangular(square)],
    }
    is_quantity = lambda x: type(x) is tj.Quantity
    moves = lambda x: jnp.issubdtype(getattr(x, "dtype", type(x)), jnp.inexact)
    plain = lambda x: x.value if is_quantity(x) else x

    def total(tree):
        """A plain number of everything that moves."""
        leaves = filter(moves, map(plain, jax.tree.leaves(tree, is_leaf=tj.rules.is_structured)))
        return sum(jnp.sum(jnp.sin(wave(d) * d)) ** 2 for d in map(tj.destructure, leaves))

    loss = total if unit == "1" else lambda tree: total(tree) * tj.unit(unit)
    value, bars = jax.jit(tj.value_and_grad(loss))(tree)
    assert is_quantity(value) == (unit != "1")
    leaves, treedef = jax.tree.flatten(tree, is_leaf=tj.rules.is_structured)
    numbers = list(map(plain, leaves))
    for i, (leaf, bar) in enumerate(zip(leaves, treedef.flatten_up_to(bars), strict=True)):
        if not moves(numbers[i]):
            assert bar is None
            continue
        of_one = lambda dense, i=i: total([*numbers[:i], dense, *numbers[i + 1 :]])
        want = tj.tangents.project(numbers[i], jax.grad(of_one)(tj.destructure(numbers[i])))
        if unit == "1" and not is_quantity(leaf):
            assert_plain(bar, want)
        else:
            own = leaf.unit if is_quantity(leaf) else tj.units.one
            assert_quantity(bar, str(tj.unit(unit) / own), want)
        assert type(plain(bar)) is type(want)


def test_a_module_gives_a_module():
    body = Body(2.0 * kg, x, jnp.asarray(3))
    bars = tj.grad(lambda b: b.mass * tnp.sum(b.place**2))(body)
    assert (type(bars), bars.count, bars.name) == (Body, None, "body")
    rows = tj.jacobian(lambda b: {"p": b.mass * b.place, "n": 2.0 * b.mass / kg})(body)
    assert_quantity(rows["p"].mass, "km", V)
    assert_quantity(rows["p"].place, "kg", 2 * np.eye(3))
    assert_quantity(rows["n"].mass, "1/kg", 2.0)
    assert_quantity(rows["n"].place, "1/km", np.zeros(3))


def test_hessian_of_a_tree():
    """A block for every pair, in `[loss] / [a] / [b]`."""
    p = {"v": 3.0 * m / s, "k": (2.0 * kg,)}
    blocks = tj.hessian(lambda p: 0.5 * p["k"][0] * p["v"] ** 2)(p)
    assert_quantity(blocks["v"]["v"], "kg", 2.0)
    assert_quantity(blocks["v"]["k"][0], "m/s", 3.0)
    assert_quantity(blocks["k"][0]["v"], "m/s", 3.0)
    assert_quantity(blocks["k"][0]["k"][0], "m^2 / s^2 / kg", 0.0)


def test_trees_of_outputs_and_integer_outputs():
    f = lambda x: {"a": x**2, "n": jnp.sum(x > 0.0 * m), "plain": jnp.sum((x / km).value)}
    _, pullback = tj.vjp(f, x)
    bars = pullback({"a": jnp.ones(3) / km**2, "n": None, "plain": None})
    assert_quantity(bars[0], "1/km", 2 * V)
    bars = pullback({"a": jnp.ones(3) * kg, "n": None, "plain": 2.0 * kg * km**2})
    assert_quantity(bars[0], "kg km", 2 * V + 2)
    with pytest.raises(tj.UnitError, match=r"(?s)vjp.*cotangents disagree.*km2"):
        pullback({"a": jnp.ones(3) * kg, "n": None, "plain": 2.0})
    with pytest.raises(tj.errors.CotangentError, match="vjp"):
        pullback({"a": jnp.ones(3) / km**2})


def test_tangents_that_disagree_about_the_rate():
    f = lambda x, t: x / t
    with pytest.raises(tj.UnitError, match=r"(?s)jvp.*tangents disagree.*rate"):
        tj.jvp(f, (x, t), (x / s, t))
    with pytest.raises(tj.UnitError, match="linearize"):
        tj.linearize(f, x, t)[1](x / s, t)


def test_aux_values_are_handed_on():
    f = lambda x, t: (tnp.sum(x**2) / t, {"x": x, "n": 3})
    (value, aux), bar = tj.value_and_grad(f, has_aux=True)(x, t)
    assert_quantity(value, "km^2/s", np.sum(V**2) / 2.5)
    assert_quantity(aux["x"], "km", V)
    assert aux["n"] == 3
    assert_quantity(bar, "km/s", 2 * V / 2.5)
    bar, aux = tj.grad(f, 1, has_aux=True)(x, t)
    assert_quantity(bar, "km^2/s^2", -np.sum(V**2) / 2.5**2)
    assert_quantity(aux["x"], "km", V)
    _, pullback, aux = tj.vjp(f, x, t, has_aux=True)
    assert_quantity(pullback(1.0)[0], "km/s", 2 * V / 2.5)
    assert_quantity(aux["x"], "km", V)
    square = lambda x: (x**2, 3.0 * x)
    for mode in (tj.jacfwd, tj.jacrev):
        rows, aux = mode(square, has_aux=True)(x)
        assert_quantity(rows, "km", np.diag(2 * V))
        assert_quantity(aux, "km", 3.0 * V)
    blocks, aux = tj.hessian(square, has_aux=True)(x)
    assert blocks.shape == (3, 3, 3)
    assert_quantity(aux, "km", 3.0 * V)
    blocks, aux = tj.hessian(square, has_aux=True)(3.0 * m)
    assert_quantity(blocks, "1", 2.0)
    assert_quantity(aux, "m", 9.0)
    out, tangent, aux = tj.jvp(square, (3.0 * m,), (1.0 * m / s,), has_aux=True)
    assert_quantity(out, "m^2", 9.0)
    assert_quantity(tangent, "m^2 / s", 6.0)
    assert_quantity(aux, "m", 9.0)
    out, push, aux = tj.linearize(square, 3.0 * m, has_aux=True)
    assert_quantity(push(1.0 * m / s), "m^2 / s", 6.0)
    assert_quantity(aux, "m", 9.0)


def test_keyword_arguments_and_plain_arguments():
    f = lambda w, *, x: tnp.sum(w * x)
    assert_quantity(tj.grad(f)(jnp.ones(3), x=x), "km", V)
    assert_quantity(tj.jacobian(lambda w, x: w * x)(jnp.ones(3), x), "km", np.diag(V))
    assert_plain(tj.grad(lambda w: tnp.sum(w * x / km).value)(jnp.ones(3)), V)


def test_loss_without_dimension_in_a_prefix():
    """A loss in `m / km` is one thousandth: its gradient says so, or carries the unit."""
    bar = tj.grad(lambda q: tnp.sum(q) / (1.0 * km))(jnp.asarray(V) * m)
    assert_like_si(bar, np.full(3, 1e-3), ["1 / m"])


def test_a_function_without_a_gradient_is_refused():
    for n in (jnp.arange(3) * m, 3):
        with pytest.raises(TypeError, match="nothing to differentiate"):
            tj.grad(lambda n: n * 1.0)(n)
    for f in (lambda x: x, lambda x: (x[0], x[1])):
        with pytest.raises(TypeError, match="scalar-output"):
            tj.grad(f)(x)


def test_complex_quantities():
    z = jnp.asarray([1.0 + 2.0j, 0.5 - 1.0j])
    f = lambda q: tnp.sum(tnp.real(q * tnp.conj(q)))
    assert_quantity(
        tj.grad(f)(z * km), "km", jax.grad(lambda z: jnp.sum(jnp.real(z * z.conj())))(z)
    )
    holomorphic = tj.grad(lambda q: tnp.sum(q**3), holomorphic=True)(z * km)
    assert_quantity(holomorphic, "km^2", 3 * z**2)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64"])
def test_dtypes_of_derivatives(dtype):
    q = jnp.asarray([1, 2], dtype) * km
    f = lambda q: tnp.sum(tnp.real(q * q))
    assert tj.grad(f)(q).dtype == jnp.dtype(dtype)
    assert tj.jvp(lambda q: q * q, (q,), (q,))[1].dtype == jnp.dtype(dtype)


# -- structured quantities -------------------------------------------------------------------------


def test_gradients_of_structured_quantities_are_those_of_plain_arrays_with_a_unit():
    """The numbers and classes of the plain array's gradient, in `[loss] / [A]`."""
    v = jnp.asarray([2.0, 3.0, 4.5])
    for a in (
        tj.Symmetric(v[:, None] * v + jnp.diag(v)),
        tj.LowRankUpdate(tj.Diagonal(v), wave(jnp.zeros((3, 1)))),
    ):
        loss = lambda a, b: tnp.sum(tj.solve(a, b) ** 2)
        b = jnp.asarray(V)
        with tj.densify("allow"):
            value, (a_bar, b_bar) = tj.value_and_grad(loss, (0, 1))(tj.Quantity(a, "kg"), b * km)
            want, (a_plain, b_plain) = tj.value_and_grad(loss, (0, 1))(a, b)
        assert_quantity(value, "km^2 / kg^2", want)
        assert_quantity(a_bar, "km^2 / kg^3", a_plain, 1e-9)
        assert type(a_bar.value) is type(a_plain)
        assert_quantity(b_bar, "km / kg^2", b_plain, 1e-9)


def test_jvp_and_jacobian_of_a_structured_quantity():
    a = tj.Diagonal(jnp.asarray([2.0, 3.0, 4.5]) * kg)
    f = lambda a: tj.solve(a, jnp.asarray(V) * km)
    d, a_dot = np.asarray([2.0, 3.0, 4.5]), np.asarray([0.5, -1.0, 0.25])
    moved = tj.jvp(f, (a,), (tj.Diagonal(jnp.asarray(a_dot) * kg / s),))[1]
    assert_quantity(moved, "km / kg / s", -V * a_dot / d**2)
    rows = tj.jacrev(f)(a)
    assert rows.unit == km / kg**2
    np.testing.assert_allclose(rows.value.diag, np.diag(-V / d**2))


def test_structured_outputs():
    """Cotangents of a structured output in its inverse unit; Jacobians of all its entries."""
    a, d = tj.Diagonal(jnp.asarray([2.0, 4.0]) * km), np.asarray([2.0, 4.0])
    out, pullback = tj.vjp(tj.inv, a)
    assert_quantity(out, "1/km", np.diag(1 / d))
    for bar in (
        tj.Diagonal(jnp.ones(2) * m),
        jnp.ones((2, 2)) * m,
        tj.Outer(jnp.ones(2) * m, jnp.ones(2)),
    ):
        assert_like_si(pullback(bar)[0], tj.Diagonal(jnp.asarray(-1e-6 / d**2)), ["1/m"])
    for mode in (tj.jacrev, tj.jacfwd):
        rows = mode(tj.inv)(a)
        assert rows.unit == (km**2).inverse
        want = np.zeros((2, 2, 2))
        want[[0, 1], [0, 1], [0, 1]] = -1 / d**2
        np.testing.assert_allclose(rows.value.diag, want)
        made = mode(lambda v: tj.Diagonal(v) * (2.0 * s))(jnp.asarray(d) * km)
        assert_quantity(made, "s", -2 * want * np.asarray([4.0, 16.0]))


def test_an_operation_with_a_wrong_dimension_inside_grad():
    """Errors name the operation, not the transformation."""
    with pytest.raises(tj.UnitError, match="add"):
        tj.grad(lambda x: tnp.sum(x + t))(x)
    with pytest.raises(tj.UnitError, match="add"):
        tj.jacfwd(lambda x: x + t)(x)


# -- under and around other transformations --------------------------------------------------------

gradient = tj.grad(on_quantities(energy), (0, 1))


@pytest.mark.filterwarnings("ignore:.*it is not planned")
def test_compositions_agree_with_the_gradient():
    want = gradient(x, t)
    f = on_quantities(energy)
    for wrap in (jax.jit, tj.jit, tj.checkpoint):
        assert_same(wrap(gradient)(x, t), want)
        assert_same(tj.grad(wrap(f), (0, 1))(x, t), want)


def test_vmap_of_and_under_grad():
    many = jnp.stack([jnp.asarray(V), 2 * jnp.asarray(V)]) * km
    x_bar, t_bar = tj.vmap(gradient, in_axes=(0, None))(many, t)
    for i in range(2):
        assert_same((x_bar[i], t_bar[i]), gradient(many[i], t))
    total = tj.grad(lambda q: tnp.sum(jax.vmap(on_quantities(energy), (0, None))(q, t)))(many)
    assert_same(total, x_bar)


def test_grad_inside_and_through_scan():
    """Gradient descent inside of a loop, and the gradient of a loop."""
    loss = lambda x: tnp.sum((x - 1.0 * km) ** 2)
    step = lambda c, _: (c - 0.25 * tj.grad(loss)(c), loss(c))
    last, losses = tj.scan(step, x, length=3)
    assert_quantity(last, "km", 1 + (V - 1) * 0.5**3)
    assert losses.unit == km**2
    through = tj.grad(lambda x: tj.scan(lambda c, v: (c + v, c * v), 0.0 * m, x)[1].sum())(x)
    lower = np.tril(np.ones((3, 3)), -1)
    assert_like_si(through, 1e3 * (lower + lower.T) @ V, ["m"])


def test_shard_map_of_a_gradient():
    mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))
    q = jnp.arange(1.0, 9.0) * km
    local = tj.grad(lambda v: tnp.sum(v**3) / t)
    got = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(q)
    assert_quantity(got, "km^2/s", 3 * np.arange(1.0, 9.0) ** 2 / 2.5)
    cube = jax.shard_map(lambda v: v**3, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    outside = tj.grad(lambda q: tnp.sum(cube(q)))(q)
    assert_quantity(outside, "km^2", 3 * np.arange(1.0, 9.0) ** 2)


def test_nested_gradients():
    f = lambda x: x**4
    d = [f]
    for _ in range(4):
        d.append(tj.grad(d[-1]))
    for k, value in enumerate([16.0, 32.0, 48.0, 48.0, 24.0]):
        assert_quantity(d[k](2.0 * km), f"km^{4 - k}" if k < 4 else "1", value)
    mixed = tj.grad(lambda t: tj.grad(lambda x, t: x**2 / t)(3.0 * km, t))(2.0 * s)
    assert_quantity(mixed, "km / s^2", -1.5)


def test_units_cost_nothing_in_the_compiled_gradient():
    """The same number of equations as in plain JAX: units add no operation."""
    f, q = lambda v: (v**3).sum(), jnp.asarray(V)
    with_units = jax.make_jaxpr(tj.grad(f))(q * km)
    plain = jax.make_jaxpr(jax.grad(f))(q)
    assert [e.primitive.name for e in with_units.eqns] == [e.primitive.name for e in plain.eqns]


def test_hessian_of_any_result():
    """As `jax.hessian`: for every place of the result a tree of blocks."""
    f = lambda q: {"a": q**3, "b": (jnp.sum(q.to_value(m)),)}
    blocks = tj.hessian(f)(x)
    want = jax.hessian(lambda v: v**3)(V)
    assert_quantity(blocks["a"], "km", want)
    assert_quantity(blocks["b"][0], km**-2, jnp.zeros((3, 3)))
    assert_quantity(
        tj.hessian(lambda q: {"a": jnp.sum(q.value) * q[0] * q[1]})(x)["a"].T,
        "1",
        tj.hessian(lambda v: jnp.sum(v) * v[0] * v[1])(V),
    )
    np.testing.assert_allclose(tj.jit(tj.hessian(f))(x)["a"].value, want)


def test_hessian_of_several_structured_arguments():
    f = lambda d, v: (d @ v) * v
    d, v = tj.Diagonal(jnp.array([1.0, 2.0])), jnp.array([3.0, 4.0])
    dense = jax.hessian(lambda w, v: (w * v) * v, (0, 1))(d.diag, v)
    blocks = tj.hessian(f, (0, 1))(d, v)
    np.testing.assert_allclose(blocks[1][1], dense[1][1])


def test_integers_may_be_allowed():
    assert tj.grad(lambda n: 2.0 * n, allow_int=True)(3) is None
    value, gradients = tj.value_and_grad(lambda n, q: n * q, (0, 1), allow_int=True)(3, 2.0 * m)
    assert_quantity(value, "m", 6.0)
    assert gradients[0] is None
    assert_quantity(gradients[1], "1", 3.0)


def test_holomorphic_derivatives_of_vectors():
    z = jnp.array([1.0 + 2.0j, 0.5 - 1.0j])
    f = lambda z: z**3
    for ours, jaxs in ((tj.jacfwd, jax.jacfwd), (tj.jacrev, jax.jacrev), (tj.hessian, jax.hessian)):
        got, want = ours(f, holomorphic=True)(z), jaxs(f, holomorphic=True)(z)
        np.testing.assert_allclose(got, want)
    g = lambda z: jnp.sum(z**3)
    got, want = (h(g, holomorphic=True)(z) for h in (tj.hessian, jax.hessian))
    np.testing.assert_allclose(got, want)


def test_a_loss_in_degrees_celsius_has_a_gradient_in_differences_of_degrees():
    bar = tj.grad(lambda t: (2.0 * t).to("degC"))(300.0 * tj.units.K)
    assert_quantity(bar, "1", 2.0)
