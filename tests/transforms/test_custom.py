"""`tj.custom_vjp`: user rules whose backward pass speaks true units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from quantities import assert_plain, assert_quantity

pytestmark = pytest.mark.core

m, km, s, kg = (tj.unit(name) for name in ("m", "km", "s", "kg"))
V = np.asarray([1.0, 2.0, 4.0])
x = jnp.asarray(V) * km


def area(bwd=None, seen=None):
    """`x²` with a rule; `seen` collects the cotangents that the rule is given."""

    @tj.custom_vjp
    def area(x):
        return x * x

    def area_bwd(x, y_bar):
        if seen is not None:
            seen.append(y_bar)
        return (2.0 * x * y_bar,)

    area.defvjp(lambda x: (area(x), x), bwd or area_bwd)
    return area


def test_the_rule_is_given_and_returns_true_units():
    """The case that no peer can express: a cotangent in `1/m2`, a gradient in `1/m`."""
    seen = []
    f = area(seen=seen)
    assert_quantity(f(x), "km^2", V**2)
    bar = tj.grad(lambda x: tnp.sum(f(x)))(x)
    assert_quantity(bar, "km", 2 * V)
    assert seen[0].unit == (km**2).inverse


def test_plain_arguments_as_in_jax():
    f = area()
    assert_plain(tj.grad(lambda v: jnp.sum(f(v)))(jnp.asarray(V)), 2 * V)
    assert_plain(jax.grad(lambda v: jnp.sum(f(v)))(jnp.asarray(V)), 2 * V)


def test_jax_s_transformations_see_the_structural_cotangent():
    f = area()
    assert_quantity(jax.grad(lambda q: jnp.sum(f(q).value))(x), "km", 2 * V)
    out, pull = jax.vjp(f, x)
    assert_quantity(out, "km^2", V**2)
    assert_quantity(pull(jnp.ones(3) * km**2)[0], "km", 2 * V)


@pytest.mark.filterwarnings("ignore:.*it is not planned")
@pytest.mark.parametrize(
    "wrap", [jax.jit, tj.jit, tj.checkpoint, lambda f: f], ids=["jit", "tj.jit", "checkpoint", "-"]
)
def test_under_transformations(wrap):
    f = area()
    assert_quantity(wrap(tj.grad(lambda x: tnp.sum(f(x)) * (2.0 * kg)))(x), "kg km", 4 * V)
    assert_quantity(tj.grad(wrap(lambda x: tnp.sum(f(x))))(x), "km", 2 * V)
    assert_quantity(jax.vmap(tj.grad(wrap(f)))(x), "km", 2 * V)
    assert_quantity(tj.jacrev(wrap(f))(x), "km", np.diag(2 * V))


def test_prefixes_in_the_rule_convert():
    f = area(bwd=lambda x, y_bar: ((2.0 * x * y_bar).to("1/m"),))
    assert_quantity(tj.grad(lambda x: tnp.sum(f(x)))(x), "km", 2 * V)


@pytest.mark.parametrize(
    ("bwd", "got"),
    [
        (lambda x, y_bar: (2.0 * y_bar,), "1 / km2"),
        (lambda x, y_bar: (x * x * y_bar,), "1"),
        (lambda x, y_bar: (2.0 * (x * y_bar).value,), "1"),
        (lambda x, y_bar: (2.0 * x * y_bar / (1.0 * s),), "s"),
    ],
)
def test_a_rule_with_a_wrong_dimension(bwd, got):
    """The error names rule and argument, what it should be and what it is."""
    bwd.__name__ = "my_backward"
    with pytest.raises(tj.UnitError, match=rf"(?s)my_backward.*argument 0.*1 / km.*got: .*{got}"):
        tj.grad(lambda x: tnp.sum(area(bwd=bwd)(x)))(x)
    with pytest.raises(tj.UnitError, match="my_backward"):
        jax.grad(lambda q: jnp.sum(area(bwd=bwd)(q).value))(x)


@pytest.mark.parametrize(
    "bwd",
    [
        lambda x, y_bar: (),
        lambda x, y_bar: (2.0 * x[:2] * y_bar[:2],),
        lambda x, y_bar: (2.0 * x * y_bar, None),
    ],
)
def test_a_rule_of_a_wrong_shape_or_count(bwd):
    with pytest.raises(tj.errors.CotangentError):
        tj.grad(lambda x: tnp.sum(area(bwd=bwd)(x)))(x)


def test_several_arguments_trees_and_fixed_arguments():
    def work(n, p, x):
        return n * p["force"] * x, p["count"]

    f = tj.custom_vjp(work, nondiff_argnums=(0,))

    def bwd(n, residuals, bars):
        p, x = residuals
        y_bar, _ = bars
        return {"force": n * y_bar * x, "count": None}, n * y_bar * p["force"]

    f.defvjp(lambda n, p, x: (work(n, p, x), (p, x)), bwd)
    p = {"force": 2.0 * tj.unit("N"), "count": jnp.asarray(3)}
    p_bar, x_bar = tj.grad(lambda p, x: f(5.0, p, x)[0], (0, 1))(p, 3.0 * m)
    assert_quantity(p_bar["force"], "m", 15.0)
    assert p_bar["count"] is None
    assert_quantity(x_bar, "N", 10.0)


def test_none_for_no_dependence():
    f = tj.custom_vjp(lambda x, t: x * x)
    f.defvjp(lambda x, t: (x * x, x), lambda x, y_bar: (2.0 * x * y_bar, None))
    x_bar, t_bar = tj.grad(lambda x, t: f(x, t), (0, 1))(3.0 * km, 2.0 * s)
    assert_quantity(x_bar, "km", 6.0)
    assert_quantity(t_bar, "km^2/s", 0.0)


def test_structured_arguments():
    """A factored cotangent with a unit is pulled back to the stored fields."""
    f = tj.custom_vjp(lambda a, b: a @ b)
    f.defvjp(
        lambda a, b: (a @ b, (a, b)), lambda r, y_bar: (tj.Outer(y_bar, r[1]), r[0].mT @ y_bar)
    )
    a, b = tj.Diagonal(jnp.asarray([2.0, 3.0]) * kg), jnp.asarray([5.0, 7.0]) * m
    a_bar, b_bar = tj.grad(lambda a, b: tnp.sum(f(a, b) ** 2), (0, 1))(a, b)
    assert isinstance(a_bar.value, tj.Diagonal)
    assert_quantity(a_bar, "kg m^2", np.diag([2 * 2 * 25.0, 2 * 3 * 49.0]))
    assert_quantity(b_bar, "kg^2 m", [2 * 4 * 5.0, 2 * 9 * 7.0])


def test_no_rule_given():
    with pytest.raises(tj.errors.RegistrationError, match="defvjp"):
        tj.custom_vjp(lambda x: x)(x)


def test_jax_s_custom_rules_on_quantities():
    """`jax.custom_jvp` works as it is; `jax.custom_vjp` with structural labels."""
    f = jax.custom_jvp(lambda x: x * x)
    f.defjvp(lambda primals, tangents: (f(primals[0]), 2.0 * primals[0] * tangents[0]))
    assert_quantity(tj.jvp(f, (x,), (x / s,))[1], "km^2/s", 2 * V**2)
    assert_quantity(tj.grad(lambda x: tnp.sum(f(x)))(x), "km", 2 * V)
