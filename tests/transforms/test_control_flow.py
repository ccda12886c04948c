"""Loops and branches on quantities: prefixes convert, dimensions are refused with their place."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tanjax as tj
import tanjax.numpy as tnp
from quantities import assert_like_si, assert_plain, assert_quantity, assert_same

pytestmark = pytest.mark.core

m, km, s, kg = (tj.unit(name) for name in ("m", "km", "s", "kg"))
V = np.asarray([1.0, 2.0, 4.0])
x = jnp.asarray(V) * m


# -- carries of mixed prefix -----------------------------------------------------------------------

LOOPS = {
    "scan": lambda init: tj.scan(lambda c, v: (v + c, c), init, x)[0],
    "fori_loop": lambda init: tj.fori_loop(0, 3, lambda i, c: x[i] + c, init),
    "while_loop": lambda init: tj.while_loop(
        lambda c: c[1] < 3, lambda c: (x[c[1]] + c[0], c[1] + 1), (init, 0)
    )[0],
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_carry_keeps_the_unit_it_started_with(loop):
    """The body gives metres back to a carry in kilometres: the case that every peer refuses."""
    for run in (LOOPS[loop], jax.jit(LOOPS[loop])):
        assert_quantity(run(1.0 * km), "km", 1.007)
        assert_quantity(run(1.0 * m), "m", 8.0)
    assert_quantity(tj.jvp(run, (1.0 * km,), (1.0 * km,))[1], "km", 1.0)
    if loop != "while_loop":  # JAX has no reverse mode for it
        gradient = tj.grad(lambda init: run(init) ** 2)
        assert_quantity(gradient(1.0 * km), "km", 2 * 1.007)
        assert_quantity(jax.jit(gradient)(1000.0 * m), "m", 2014.0)


class State(NamedTuple):
    place: object
    speed: object
    count: object


def test_trees_as_carries():
    def step(c, dt):
        place = c["state"].place + (c["state"].speed * dt).to("m")
        new = State(place, c["state"].speed.to("km/s"), c["state"].count + 1)
        return {"state": new, "none": None}, (place, 2 * c["state"].count)

    init = {"state": State(0.0 * km, 5.0 * m / s, 0), "none": None}
    last, (places, counts) = tj.scan(step, init, jnp.ones(4) * 2.0 * s)
    assert_quantity(last["state"].place, "km", 0.04)
    assert_quantity(last["state"].speed, "m/s", 5.0)
    assert_plain(last["state"].count, 4)
    assert_quantity(places, "km", np.arange(0.01, 0.05, 0.01), 1e-12)
    assert_plain(counts, [0, 2, 4, 6])


def test_options_of_scan():
    f = lambda c, v: (c + v, c)
    last, before = tj.scan(f, 0.0 * m, x, reverse=True)
    assert_quantity(last, "m", 7.0)
    assert_quantity(before, "m", [6.0, 4.0, 0.0])
    assert_quantity(tj.scan(f, 0.0 * m, x, unroll=2)[1], "m", [0.0, 1.0, 3.0])
    doubled = tj.scan(lambda c, _: (c + c, None), 1.0 * m, None, length=5)
    assert_quantity(doubled[0], "m", 32.0)
    assert doubled[1] is None


def test_pure_numbers_and_ratios_in_a_carry():
    """A carry of plain numbers takes a ratio of quantities, converted; and the other way round."""
    last, _ = tj.scan(lambda c, v: (c * (v / (1.0 * km)), None), 1.0, x)
    assert_plain(last, 8e-9)
    last, _ = tj.scan(lambda c, v: (2.0, None), (1.0 * m) / (1.0 * km), x)
    assert_quantity(last, "m/km", 2000.0)


def test_structured_carries():
    d = tj.Diagonal(jnp.asarray(V) * km)
    last, _ = tj.scan(lambda c, _: (c.to("m"), None), d, length=2)
    assert isinstance(last.value, tj.Diagonal)
    assert_quantity(last, "km", np.diag(V))


# -- carries that change dimension -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "loop"),
    [
        ("scan", lambda: tj.scan(lambda c, v: (c * v, c), 1.0 * m, x)),
        ("fori_loop", lambda: tj.fori_loop(0, 2, lambda i, c: c * x[0], 1.0 * m)),
        ("while_loop", lambda: tj.while_loop(lambda c: c < 9.0 * m, lambda c: c * x[0], 1.0 * m)),
        ("associative_scan", lambda: tj.programs.associative_scan(lambda a, b: a * b, x)),
    ],
)
def test_a_carry_that_changes_dimension_is_refused(name, loop):
    """Both units and the loop, not pytrees."""
    for run in (loop, jax.jit(loop)):
        with pytest.raises(tj.UnitError, match=rf"(?s){name}.*m \(length\).*m2 \(length2\)"):
            run()


def test_the_place_in_the_carry_is_named():
    init = {"a": (1.0 * m, 2.0 * s), "b": jnp.zeros(())}
    wrong = lambda c, _: ({"a": (c["a"][0], c["a"][0]), "b": c["b"]}, None)
    with pytest.raises(
        tj.UnitError, match=r"(?s)scan: carry\['a'\]\[1\].*s \(time\).*m \(length\)"
    ):
        tj.scan(wrong, init, length=2)
    lost = lambda c, _: ({"a": (c["a"][0], c["a"][1].value), "b": c["b"]}, None)
    with pytest.raises(tj.UnitError, match=r"(?s)\['a'\]\[1\].*s \(time\).*plain"):
        tj.scan(lost, init, length=2)
    gained = lambda c, _: ({"a": c["a"], "b": 1.0 * m}, None)
    with pytest.raises(tj.UnitError, match=r"(?s)\['b'\].*plain.*m \(length\)"):
        tj.scan(gained, init, length=2)


def test_another_tree_is_jax_s_error():
    with pytest.raises(TypeError, match="carry"):
        tj.scan(lambda c, _: ((c, c), None), 1.0 * m, length=2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tj.cond(1.0 * m, lambda: 1.0, lambda: 2.0), "predicate.*m"),
        (lambda: tj.programs.switch(1.0 * m, [lambda: 1.0, lambda: 2.0]), "predicate.*m"),
        (lambda: tj.while_loop(lambda c: c, lambda c: c, 1.0 * m), "predicate.*m"),
        (lambda: tj.fori_loop(0.0 * m, 3, lambda i, x: x, 1.0), "fori_loop: bound.*m"),
        (lambda: tj.fori_loop(0, 3.0 * m, lambda i, x: x, 1.0), "fori_loop: bound.*m"),
    ],
)
def test_a_predicate_or_bound_with_a_dimension_is_refused(call, words):
    with pytest.raises(tj.UnitError, match=words):
        call()


# -- branches --------------------------------------------------------------------------------------

BRANCHES = {
    "cond": lambda p, *fs: tj.cond(p == 0, fs[0], fs[1], x),
    "switch": lambda p, *fs: tj.programs.switch(p, list(fs), x),
}


@pytest.mark.parametrize("kind", BRANCHES)
def test_branches_take_the_unit_of_the_first(kind):
    run = BRANCHES[kind]
    fs = (lambda v: v.sum(), lambda v: v.max().to("km"))
    for p in (0, 1):
        want = [7.0, 4.0][p]
        assert_quantity(run(p, *fs), "m", want)
        assert_quantity(jax.jit(lambda p: run(p, *fs))(p), "m", want)
        assert_quantity(jax.jit(lambda p: run(p, *fs[::-1]))(p), "km", [0.004, 0.007][p])
        got = jax.jit(lambda p: tj.grad(lambda v: tj.cond(p == 0, *fs, v))(x))(p)
        assert_quantity(got, "1", [[1, 1, 1], [0, 0, 1]][p])
    assert_quantity(jax.vmap(lambda p: run(p, *fs))(jnp.arange(2)), "m", [7.0, 4.0])


@pytest.mark.parametrize("kind", BRANCHES)
def test_branches_of_trees_and_of_two_dimensions(kind):
    run = BRANCHES[kind]
    first = lambda v: {"a": v[0], "b": (2.0 * kg, 1.0)}
    second = lambda v: {"a": v[1].to("km"), "b": ((3000.0 * tj.unit("g")), 2.0 * km / (1.0 * m))}
    got = jax.jit(lambda p: run(p, first, second))(1)
    assert_like_si(got, {"a": 2.0, "b": (3.0, 2000.0)}, ["m", "kg", None])
    with pytest.raises(tj.UnitError, match=rf"(?s){kind}: result of branch 1.*length.*length2"):
        jax.jit(lambda p: run(p, lambda v: v, lambda v: v * v))(1)
    with pytest.raises(tj.UnitError, match=r"\['b'\]"):
        run(1, first, lambda v: {"a": v[0], "b": (2.0 * s, 1.0)})


def test_branches_without_operands_and_a_pure_predicate():
    assert_quantity(tj.cond(x[0] < 1.0 * km, lambda: 1.0 * m, lambda: 1.0 * km), "m", 1.0)
    index = jnp.asarray(1)
    assert_quantity(tj.programs.switch(index, [lambda: 1.0 * m, lambda: 1.0 * km]), "m", 1000.0)


# -- maps ------------------------------------------------------------------------------------------


def test_map_and_associative_scan():
    assert_quantity(tj.programs.map(lambda v: v * v / (1.0 * s), x), "m^2/s", V**2)
    assert_quantity(tj.programs.map(lambda v: v * v, x, batch_size=2), "m^2", V**2)
    assert_quantity(tj.programs.associative_scan(lambda a, b: a + b, x), "m", np.cumsum(V))
    mixed = tj.programs.associative_scan(lambda a, b: (a + b).to("km"), x)
    assert_quantity(mixed, "m", np.cumsum(V))
    largest = tj.programs.associative_scan(tnp.maximum, x, reverse=True)
    assert_quantity(largest, "m", [4.0] * 3)
    rows = jnp.asarray(V)[:, None] * V * km
    assert_quantity(tj.programs.associative_scan(lambda a, b: a + b, rows, axis=1), "km",
                    np.cumsum(np.outer(V, V), 1))  # fmt: skip


def test_vmap_options():
    rows = jnp.asarray(V)[:, None] * V * km
    assert_quantity(tj.vmap(lambda v: v.sum(), in_axes=1)(rows), "km", 7 * V)
    total = tj.vmap(lambda v: jax.lax.psum(v.value, "i") * km, axis_name="i")(x)
    assert_quantity(total, "km", [7.0] * 3)


def test_checkpoint_recomputes_and_keeps_units():
    f = lambda v: tnp.sum(tnp.sqrt(v) * v)
    want = tj.grad(f)(x)
    assert_same(tj.grad(tj.checkpoint(f))(x), want)
    decorated = tj.checkpoint(policy=jax.checkpoint_policies.nothing_saveable)(f)
    assert_same(jax.jit(tj.grad(decorated))(x), want)
    name = jax.make_jaxpr(decorated)(x).eqns[0].primitive.name
    assert "remat" in name or "checkpoint" in name


def test_jax_s_own_loops_work_where_units_agree():
    last, _ = jax.lax.scan(lambda c, v: (c + v, None), 0.0 * m, x)
    assert_quantity(last, "m", 7.0)
    with pytest.raises(TypeError):
        jax.lax.scan(lambda c, v: (v + c, None), 0.0 * km, x)


def test_a_branch_may_be_the_literal_zero():
    """As in sums and `where`, the literal zero has every unit."""
    f = lambda keep, x: tj.cond(keep, lambda x: x, lambda x: 0.0, x)
    x = 2.0 * tj.unit("m")
    assert float(f(True, x) / x) == 1.0
    assert f(False, x).to_value("m") == 0.0
    with pytest.raises(tj.UnitError, match="branch"):
        tj.cond(True, lambda x: x, lambda x: 1.0, x)
