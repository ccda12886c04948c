"""`tj.jit` takes every call that `jax.jit` takes, whether its program is planned or not.

`square_over` leaves the range of float32 on the way wherever its argument is large, so each feature
of a call is shown on a program that is the user's own (near 1) and on one that is replayed (LARGE).
"""

import contextlib
import functools
import gc
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import NamedSharding, PartitionSpec as P

import tanjax as tj
import tanjax.numpy as tnp
from tanjax.transforms import _arguments, _making, _planning, _watch
from tanjax.transforms._making import said_of_powers
from tanjax.transforms._planning import PlannedFunction

pytestmark = pytest.mark.core

LARGE = 1e25
BOTH = pytest.mark.parametrize("size", [1.5, LARGE])


def square_over(x, y=None):
    """`x` by a detour: in plain float32 it is inf for all numbers above 2e19."""
    return x * x / (x if y is None else y)


def array(size, shape=(8,), dtype=jnp.float32):
    return jnp.full(shape, size, dtype)


def assert_same(got, want, ulps=4):
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    tolerance = ulps * float(jnp.finfo(got.dtype).eps)
    np.testing.assert_allclose(
        got.astype(np.complex128), want.astype(np.complex128), rtol=tolerance
    )


def plans(f):
    """The plans that a compiled function has made so far."""
    return f._compiled.plans


# -- arguments ------------------------------------------------------------------------------------


@BOTH
def test_donated_arguments_are_deleted(size):
    f = tj.jit(square_over, donate_argnums=0)
    for scale in (1.0, 2.0, 1e-20, 1.0):  # in the window, outside of it, and back
        x = array(size * scale)
        want = x + 0
        assert_same(f(x), want)
        assert x.is_deleted()
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        f(x)


def test_donated_arguments_are_there_for_the_look_that_a_flag_asks_for():
    f = tj.jit(lambda x: jnp.exp(-x) * 1e30, donate_argnums=0)
    for size in (60.0, 95.0, 62.0, 96.0):
        x, want = array(size), array(np.exp(-size) * 1e30)
        assert_same(f(x), want, 64)
        assert x.is_deleted()


def test_donation_by_name_and_of_one_of_several():
    f = tj.jit(lambda a, b: (a * b / a, a + 0), donate_argnames="b")
    a, b = array(LARGE), array(LARGE)
    assert_same(f(a, b)[0], array(LARGE))
    assert b.is_deleted()
    assert not a.is_deleted()


@BOTH
@pytest.mark.parametrize("options", [{"static_argnums": 1}, {"static_argnames": "n"}])
def test_static_arguments(options, size):
    f = tj.jit(lambda x, n: x**n / x ** (n - 1), **options)
    x = array(size)
    for n in (2, 3, 2, 5):
        assert_same(f(x, n), x, 16)
    if "static_argnames" in options:
        assert_same(f(x, n=3), x, 16)
    assert len(plans(f)) == 3 + ("static_argnames" in options)


def test_static_argument_in_front_negative_and_unhashable():
    f = tj.jit(lambda kind, x: square_over(x) if kind == "a" else x, static_argnums=-2)
    assert_same(f("a", array(LARGE)), array(LARGE))
    assert (f("b", array(LARGE)) == array(LARGE)).all()
    with pytest.raises((TypeError, ValueError), match="hash"):
        f([1], array(LARGE))


def test_static_arguments_that_are_equal_but_not_the_same():
    """To JAX 2 is another argument than 2.0, and so it is to the plans."""
    body = lambda x, n: (square_over(x) * n, x.astype(int) * n)
    f, plain = tj.jit(body, static_argnums=1), jax.jit(body, static_argnums=1)
    for size in (1.5, LARGE):
        for n in (2, 2.0, 2 + 0j):
            with jax.numpy_dtype_promotion("standard"):
                got, want = f(array(size), n), plain(array(size), n)
            assert [x.dtype for x in got] == [x.dtype for x in want]


@BOTH
def test_keywords_trees_and_none(size):
    @tj.jit
    def f(x, *rest, y=None, **more):
        return {"a": [square_over(x, y["q"])], "none": None, "count": 3, "more": more, "rest": rest}

    out = f(array(size), None, (1, 2.0), y={"q": array(size), "z": None}, k=array(2.0))
    assert_same(out["a"][0], array(size))
    assert out["none"] is None
    assert int(out["count"]) == 3
    assert out["rest"][0] is None
    assert int(out["rest"][1][0]) == 1
    assert (out["more"]["k"] == 2).all()


def test_numpy_and_python_numbers():
    f = tj.jit(square_over)
    assert_same(f(np.full(3, LARGE, np.float32)), array(LARGE, (3,)))
    assert_same(f(np.float32(LARGE)), jnp.float32(LARGE))
    want = jax.jit(square_over)
    for x in (2.5, 3, True, 1 + 2j, np.arange(3) + 1, np.float64(3.5)):
        with jax.numpy_dtype_promotion("standard"):
            got, plain = f(x), want(x)
        assert got.dtype == plain.dtype
        assert got.weak_type == plain.weak_type
        np.testing.assert_array_equal(got, plain)


@pytest.mark.usefixtures("float32")
def test_python_number_that_is_too_large():
    """A weak type stays weak, and the plan is that of float32."""
    out = tj.jit(square_over)(LARGE)
    assert out.weak_type
    assert_same(out, np.float32(LARGE))


def test_one_function_in_both_precisions():
    f = tj.jit(lambda x: square_over(x) * 2)
    assert_same(f(LARGE), jnp.asarray(2 * LARGE))
    with jax.enable_x64(False):
        assert_same(f(LARGE), jnp.float32(2 * LARGE))
    assert_same(f(LARGE), jnp.asarray(2 * LARGE))


def test_a_mutated_numpy_array_is_looked_at_again():
    f, x = tj.jit(square_over), np.full(3, 1.5, np.float32)
    assert (f(x) == x).all()
    x[:] = LARGE
    assert_same(f(x), x)


def test_arrays_without_entries_and_of_other_kinds():
    f = tj.jit(lambda x, y: (x * x / y, jnp.sum(x) * y * y / y))
    out = f(array(1.0, (0, 3)), jnp.float32(LARGE))
    assert out[0].shape == (0, 3)
    assert float(out[1]) == 0
    f = tj.jit(lambda i, b, x: (i + 1, ~b, square_over(x), x[i]))
    out = f(jnp.int32(1), jnp.array([True, False]), array(LARGE))
    assert int(out[0]) == 2
    assert out[1].tolist() == [False, True]
    assert_same(out[2], array(LARGE))
    assert_same(out[3], jnp.float32(LARGE))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_dtypes_side_by_side(dtype):
    """Each value has the range of its own dtype; the result has the dtype that it had."""
    dtype = jnp.dtype(dtype)
    size = float(jnp.finfo(dtype).max) / 2**10
    f = tj.jit(lambda x, y: (square_over(x), square_over(y).astype(jnp.float64), x.astype(y.dtype)))
    x, y = array(size, (3,), dtype), array(LARGE, (3,))
    if dtype == jnp.complex64:
        f = tj.jit(
            lambda x, y: (x * jnp.conj(x) / jnp.conj(x), square_over(y).astype(float), abs(x))
        )
    a, b, _ = f(x, y)
    assert_same(a, x, 8)
    assert_same(b, y.astype(jnp.float64), 2.0**30)  # computed in float32


def test_random_keys():
    f = tj.jit(lambda key, x: jax.random.normal(key, (3,), x.dtype) * x * x / x)
    key, x = jax.random.key(0), jnp.float32(LARGE)
    want = jax.random.normal(key, (3,), jnp.float32) * x
    assert_same(f(key, x), want, 16)
    assert_same(f(jax.random.PRNGKey(0), x), want, 16)
    split = tj.jit(lambda key, x: (jax.random.split(key), square_over(x)))(key, x)[0]
    assert (jax.random.key_data(split) == jax.random.key_data(jax.random.split(key))).all()


# -- devices --------------------------------------------------------------------------------------


def mesh(kind=jax.sharding.AxisType.Auto):
    return jax.make_mesh((4,), ("i",), axis_types=(kind,))


@BOTH
def test_sharded_arguments(size):
    rows = NamedSharding(mesh(), P("i"))
    x = jax.device_put(array(size), rows)
    f = tj.jit(lambda x: (square_over(x), jnp.sqrt(jnp.sum(x * x))))
    a, b = f(x)
    assert a.sharding.is_equivalent_to(rows, 1)
    assert_same(a, array(size))
    assert_same(b, jnp.float32(size * 8**0.5))
    g = tj.jit(square_over, in_shardings=rows, out_shardings=NamedSharding(mesh(), P()))
    assert g(x).sharding.is_fully_replicated
    assert_same(g(x), array(size))


@BOTH
def test_explicit_sharding_and_shard_map(size):
    with jax.set_mesh(mesh(jax.sharding.AxisType.Explicit)) as m:
        x = jax.device_put(array(size), NamedSharding(m or jax.sharding.get_mesh(), P("i")))
        out = tj.jit(square_over)(x)
        assert out.sharding.spec == P("i")
        assert_same(out, array(size))
    mapped = jax.shard_map(
        lambda x: (square_over(x), jax.lax.psum(jnp.sum(x * x), "i")),
        mesh=mesh(),
        in_specs=P("i"),
        out_specs=(P("i"), P()),
    )
    a, b = tj.jit(lambda x: (lambda s: (s[0], jnp.sqrt(s[1])))(mapped(x)))(array(size))
    assert_same(a, array(size))
    assert_same(b, jnp.float32(size * 8**0.5))


@BOTH
def test_result_is_on_the_device_of_the_argument(size):
    for device in jax.devices()[1:3]:
        x = jax.device_put(array(size), device)
        assert tj.jit(square_over)(x).devices() == {device}


# -- ahead of time --------------------------------------------------------------------------------


def test_ahead_of_time():
    """With numbers it is the planned program that is compiled; with shapes JAX's own."""
    f, x = tj.jit(square_over), array(LARGE)
    assert_same(f.lower(x).compile()(x), x)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    assert np.isinf(f.lower(shape).compile()(x)).all()
    assert f.eval_shape(x) == shape
    assert f.trace(x).jaxpr.out_avals[0].shape == x.shape


def hlo(f, *args):
    return f.lower(*args).as_text()


def test_a_plan_that_does_nothing_leaves_the_program_as_it_is():
    """The text that goes to XLA is that of `jax.jit`, so the bits are."""

    def f(x, y):
        carry, rows = jax.lax.scan(lambda c, r: (c * r + 1, jnp.exp(-c)), x, jnp.stack([y, y]))
        return jax.nn.softmax(carry) @ rows.T, jax.checkpoint(jnp.tanh)(x), jnp.where(x > y, x, 3.0)

    x, y = array(1.5), array(0.25)
    assert hlo(tj.jit(f), x, y) == hlo(jax.jit(f), x, y)
    compiled = tj.jit(f)
    compiled(x, y)
    assert plans(compiled)[0].identity
    wanted = jax.jit(f)
    assert all(map(np.array_equal, compiled(x, y), wanted(x, y)))


def test_without_scale_nothing_is_planned():
    f = tj.jit(square_over, scale=False)
    assert np.isinf(f(array(LARGE))).all()
    assert hlo(f, array(LARGE)) == hlo(jax.jit(square_over), array(LARGE))


# -- later calls ----------------------------------------------------------------------------------


def counted(f):
    """A function, and how often Python has run it."""
    count = [0]

    @functools.wraps(f)
    def run(*args, **kwargs):
        count[0] += 1
        return f(*args, **kwargs)

    return run, count


def test_one_trace_per_signature():
    run, traces = counted(square_over)
    f = tj.jit(run)
    for size in (1.0, 1e10, 1e25, 1e-25, 1e30, 1.0, 1e25):
        assert_same(f(array(size)), array(size))
    assert traces == [1]
    assert len(plans(f)) > 2
    f(array(LARGE, (3,)))
    f(array(LARGE, (3,)) * 2)
    assert traces == [2]


def test_exponents_decide_about_compilation():
    """A number out of the window is planned again, and compiled if the exponents are other ones."""
    f = tj.jit(lambda x: x * x * jnp.float32(1e-30))
    for size in (1e25, 2e25, 1e3, 2e3, 1e25, 1e3):
        assert_same(f(array(size)), array(size**2 * 1e-30), 8)
    f(array(1e-20))
    assert len(plans(f)) == 2
    assert len({plan.exponents for plan in plans(f)}) == 2


def test_the_arrays_of_the_last_call_are_not_looked_at(monkeypatch):
    looked, inside = [], _watch.inside
    monkeypatch.setattr(_watch, "inside", lambda *a: looked.append(a) or inside(*a))
    for size in (1.5, LARGE):
        for shape in ((8,), (200, 200)):  # kept alive, and remembered weakly
            f, x, y = tj.jit(square_over), array(size, shape), array(size, shape)
            f(x)
            looked.clear()
            f(x)
            assert not looked
            f(y)
            assert looked


@BOTH
@pytest.mark.filterwarnings("ignore:.*random_bits.*could not be looked at:tanjax.ScaleWarning")
def test_settings_of_jax_decide_about_the_program_as_in_a_fresh_function(size):
    def body(x):
        return square_over(x), jnp.linspace(0.0, 1.0, 3), x * jax.random.uniform(key, (3,), x.dtype)

    key, x = jax.random.key(1), array(size, ())
    f = tj.jit(body)
    partitionable = jax.config.jax_threefry_partitionable
    with jax.enable_x64(False):
        f(x)
        for settings in (
            jax.enable_x64(True),
            jax.enable_x64(False),
            jax.threefry_partitionable(not partitionable),
            jax.threefry_partitionable(partitionable),
        ):
            with settings:
                want = tj.jit(lambda x: body(x))(x)
                for y in (x, x + 0):
                    jax.tree.map(assert_same, f(y), want)


def test_settings_of_jax_are_those_of_the_call_when_lowered_and_when_dtypes_are_promoted():
    f = tj.jit(lambda a, b: a @ b * 1e30 / 1e30)
    a = array(1e15, (4, 4))
    f(a, a)
    assert "HIGHEST" not in f.lower(a, a).as_text()
    with jax.default_matmul_precision("highest"):
        assert "HIGHEST" in f.lower(a, a).as_text()
    g, x, half = tj.jit(lambda a, b: square_over(a) + b), array(LARGE), jnp.float16(1.0)
    with jax.numpy_dtype_promotion("standard"):
        assert_same(g(x, half), x)
    with jax.numpy_dtype_promotion("strict"), pytest.raises(ValueError, match="promotion"):
        g(x, half)


def test_an_array_that_is_gone_is_not_mistaken_for_its_successor():
    f = tj.jit(square_over)
    for k in range(6):
        size = LARGE if k % 2 else 1.5
        x = array(size, (200, 200))
        assert_same(f(x), array(size, (200, 200)))
        del x


def test_a_large_array_with_the_id_of_one_that_is_gone_is_looked_at():
    f = tj.jit(square_over)
    before = [array(1.5, (200, 200)) for _ in range(30)]
    for x in before:
        f(x)
    known = set(map(id, before))
    del before, x
    after = [array(LARGE, (200, 200)) for _ in range(60)]
    again = [x for x in after if id(x) in known]
    assert again
    for x in again:
        assert_same(f(x), x)


def test_a_large_array_outside_of_a_window_is_not_remembered_as_inside():
    f, large, small = tj.jit(square_over), array(1e25, (200, 200)), array(1e-25, (200, 200))
    for x in (large, small) * 3:
        assert_same(f(x), x)


# -- inside other transformations -----------------------------------------------------------------


def test_under_a_trace_the_program_is_jax_own():
    f = tj.jit(square_over)
    x = array(1.5)
    with pytest.warns(tj.errors.ScaleWarning, match="it is not planned"):
        assert (jax.jit(f)(x) == x).all()
    assert_same(jax.grad(lambda x: f(x).sum())(x), jnp.ones_like(x))
    assert_same(jax.vmap(f)(x), x)
    assert_same(jax.lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0], x)
    assert_same(jax.jvp(f, (x,), (x,))[1], x)
    assert f._compiled.plans == []
    assert_same(f(array(LARGE)), array(LARGE))


def test_compiled_in_compiled():
    """The inner function is part of the outer program, and planned with it."""
    inner = tj.jit(square_over)
    outer = tj.jit(lambda x: inner(x) + inner(2 * x))
    assert_same(outer(array(LARGE)), 3 * array(LARGE))
    gradient = tj.jit(jax.grad(lambda x: jnp.sum(inner(x))))
    assert_same(gradient(array(LARGE)), jnp.ones(8, jnp.float32), 16)
    mapped = tj.jit(jax.vmap(inner))
    assert_same(mapped(array(LARGE)), array(LARGE))


class Force:
    """A callable with a compiled method, a closure over an array, and a partial."""

    def __init__(self, scale):
        self.scale = scale

    @tj.jit
    def of(self, x):
        return square_over(x) * self.scale


jax.tree_util.register_pytree_node(Force, lambda f: ((f.scale,), None), lambda _, c: Force(*c))


def test_methods_partials_and_closures():
    x = array(LARGE)
    assert_same(Force(jnp.float32(2.0)).of(x), 2 * x)
    assert_same(tj.jit(functools.partial(square_over, y=x))(x), x)
    large = jnp.full((300, 300), LARGE, jnp.float32)
    f = tj.jit(lambda x: jnp.sum(large * x) / large[0, 0])
    assert_same(f(x[0]), jnp.float32(90000 * LARGE), 64)
    assert f.__name__ == "<lambda>"


# -- what a call does besides ---------------------------------------------------------------------


@BOTH
def test_printing_happens_once_per_call(size, capfd):
    def f(x):
        jax.debug.print("here {}", x[0] / x[0])
        return square_over(x)

    compiled = tj.jit(f)
    compiled.lower(array(size))
    jax.effects_barrier()
    assert capfd.readouterr().out == ""
    for _ in range(3):
        assert_same(compiled(array(size)), array(size))
    jax.effects_barrier()
    assert capfd.readouterr().out.count("here 1.0") == 3


@pytest.mark.filterwarnings("ignore:.*could not be looked at")
@BOTH
def test_callbacks_run_once_per_call(size):
    seen = []

    def note(x):
        seen.append(np.array(x))
        return np.asarray(x)

    def f(x):
        y = io_callback(note, jax.typeof(x), x, ordered=True)
        return square_over(x), y

    compiled = tj.jit(f)
    for k in range(1, 4):
        a, b = jax.block_until_ready(compiled(array(size)))
        jax.effects_barrier()
        assert_same(a, array(size))
        assert (b == array(size)).all()
        assert len(seen) == k
    assert all((s == array(size)).all() for s in seen)


@pytest.mark.filterwarnings("ignore:.*could not be looked at")
@BOTH
def test_a_pure_callback_gets_the_numbers_themselves(size):
    log = lambda x: np.log10(np.asarray(x))

    def f(x):
        return jax.pure_callback(log, jax.typeof(x), x * x / x) + square_over(x) * 0

    assert_same(tj.jit(f)(array(size)), jnp.log10(array(size)), 16)


def test_exceptions_of_the_function_come_through():
    class Own(Exception):
        pass

    def f(x):
        raise Own("mine")

    for x in (array(1.0), array(LARGE), 3):
        with pytest.raises(Own, match="mine"):
            tj.jit(f)(x)
    with pytest.raises(jax.errors.TracerBoolConversionError):
        tj.jit(lambda x: 1 if x else 2)(jnp.float32(LARGE))
    with pytest.raises(TypeError, match="argument"):
        tj.jit(square_over)(1, 2, 3)


@BOTH
def test_results_keep_the_weak_types_of_plain_jax(size):
    """A float16 times a result is a float16 with `jax.jit` if the result is weakly typed."""
    f = lambda x, n: (square_over(x), 3.0, n, n * 2.0, jnp.where(x > 0, n, 2.0), square_over(n))
    for n in (3, 3.0, size):
        got, want = tj.jit(f)(array(size), n), jax.jit(f)(array(size), n)
        assert [x.weak_type for x in got] == [x.weak_type for x in want]
        assert [x.dtype for x in got] == [x.dtype for x in want]


def test_a_failure_is_forgotten_at_the_next_call():
    f = tj.jit(square_over)
    gone = array(LARGE)
    gone.delete()
    for _ in range(4):
        with pytest.raises(RuntimeError, match="deleted"):
            f(gone)
    assert_same(f(array(LARGE)), array(LARGE))


def test_a_failure_of_the_planner_is_warned_of_and_tried_again():
    traces = []

    @tj.jit
    def g(x):
        traces.append(x)
        if len(traces) == 1:
            raise MemoryError("at the first trace")
        return square_over(x)

    with pytest.warns(tj.errors.ScaleWarning, match="could not be planned"):
        assert jnp.isinf(g(array(LARGE))).all()
    assert_same(g(array(LARGE)), array(LARGE))


def test_results_that_are_arguments_or_constants():
    x = array(LARGE)
    a, b, c, d, e = tj.jit(lambda x: (x, None, 3, square_over(x), jnp.zeros(2)))(x)
    assert (a == x).all()
    assert b is None
    assert int(c) == 3
    assert_same(d, x)
    assert (e == 0).all()
    assert tj.jit(lambda: 3.0)() == 3.0
    assert tj.jit(lambda x: ())(x) == ()
    assert_same(tj.jit(lambda x: jnp.float32(1e20) * jnp.float32(1e15) + 0 * x)(x), array(1e35))


def test_a_plain_result_never_has_a_scale():
    """What does not fit is infinite, also beside a result for which there are exponents."""
    square, over = tj.jit(lambda x: (x * x, x * x / x))(array(LARGE))
    assert np.isinf(square).all()
    assert_same(over, array(LARGE))


def test_no_warning_and_nothing_left_over():
    """A planned call warns about nothing, and forgets everything when it is told to."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f = tj.jit(square_over, donate_argnums=0)
        f(array(LARGE))
    f.clear_cache()
    assert plans(f) == []
    assert_same(f(array(LARGE)), array(LARGE))


# -- quantities -----------------------------------------------------------------------------------


def number(q, unit=None):
    """What a quantity is worth in its own unit or another, with the range of float64."""
    stored = np.asarray(q.stored, np.float64) * 2.0**q.scale
    return stored if unit is None else stored * float(tj.Quantity(1.0, q.unit).to_value(unit))


MASS, SPEED = tj.Quantity(jnp.float32(2e30), "kg"), tj.Quantity(jnp.float32(3e8), "m/s")


def test_quantities_leave_with_a_scale():
    """A result that its dtype cannot hold has a power of two beside its unit, others have none."""
    f = tj.jit(lambda m, v: (m * v * v, m * v * v / v, v + v))
    energy, momentum, speed = f(MASS, SPEED)
    assert energy.unit == tj.unit("kg m^2 / s^2")
    np.testing.assert_allclose(number(energy), 1.8e47, rtol=1e-6)
    np.testing.assert_allclose(number(momentum), 6e38, rtol=1e-6)
    assert energy.scale
    assert speed.scale == 0
    assert float(speed.stored) == 6e8


def test_many_quantities_in_a_dict_and_back():
    """Their values go to a function of plain arrays, which is planned as well."""
    given = {name: MASS * float(k + 1) for k, name in enumerate("abcdef")}
    f = tj.jit(lambda p: {name: q * q / MASS for name, q in p.items()})
    for _ in range(2):
        out = f(given)
        for k, name in enumerate("abcdef"):
            assert out[name].unit == tj.unit("kg")
            np.testing.assert_allclose(number(out[name]), 2e30 * (k + 1) ** 2, rtol=1e-6)


def test_gradients_of_quantities():
    energy = lambda m, v: 0.5 * m * v * v
    got = tj.jit(tj.grad(energy, (0, 1)))(MASS, SPEED)
    np.testing.assert_allclose(number(got[0], "m^2 / s^2"), 4.5e16, rtol=1e-6)
    np.testing.assert_allclose(number(got[1], "kg m / s"), 6e38, rtol=1e-6)


def test_prefixes_and_scales_are_one_program():
    run, traces = counted(lambda x: x * x / x)
    f = tj.jit(run)
    for unit, size in (("m", 1e25), ("km", 1e22), ("mm", 1e28)):
        out = f(tj.Quantity(jnp.float32(size), unit))
        np.testing.assert_allclose(number(out, "m"), 1e25, rtol=1e-6)
    assert traces == [1]


def test_structured_arrays_and_quantities_of_them():
    d = tj.Diagonal(array(LARGE, (3,)))
    solve = tj.jit(lambda d, x: tj.destructure(d) @ x * x[0] / x[0] / x[0])
    assert_same(solve(d, array(2 * LARGE, (3,))), array(LARGE, (3,)))
    q = tj.Quantity(d, "kg")
    out = tj.jit(lambda q, v: q * v * v / v)(q, SPEED)
    np.testing.assert_allclose(np.asarray(out.stored.diag, float) * 2.0**out.scale, 3e33, rtol=1e-6)


def test_numbers_of_which_only_an_upper_bound_is_known():
    """They got exponents near 333,000, at which every result is zero."""
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    f = jax.shard_map(  # a `shard_map` is bounded, not run
        lambda x, y: jnp.sin(x) * y * y / 1e30,
        mesh=mesh,
        in_specs=(P("i"), P("i")),
        out_specs=P("i"),
    )
    x, y = array(3.0), array(LARGE)
    assert_same(
        tj.jit(f)(x, y), np.float32(np.sin(np.float64(3)) * np.float64(y) ** 2 / 1e30), ulps=8
    )


@pytest.mark.filterwarnings("ignore::tanjax.ScaleWarning")
def test_threads_run_the_plans_for_their_own_numbers():
    """Another thread's plan came to the front between the choice of one and its use.

    Its program was run, and its zeros were taken for XLA's doing: all numbers were hidden then,
    from a handful of plans. Threads that begin together each made a plan of their own.
    """
    f = tj.jit(lambda x, y: x * x * y / 1e30)
    found = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(60):
            x, y = np.float32(10 ** rng.uniform(-18, 25)), np.float32(10 ** rng.uniform(-10, 10))
            found.append((float(f(x, y)), np.float64(x) ** 2 * y / 1e30))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    got, want = np.array([pair for pair in found if 1e-37 < pair[1] < 1e38]).T
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert sum(plan.method == "guarded" for plan in f.plans) <= 1
    assert len(f.plans) <= 8


def test_a_call_is_judged_by_its_own_plan_whatever_other_threads_find_meanwhile(monkeypatch):
    """An entry is shared: what was expected of another call's numbers seemed to be missing."""
    f = tj.jit(lambda x, y: x * x * y / 1e30)
    rng, run, waiting = np.random.default_rng(0), PlannedFunction._first, []

    def numbers():
        return np.float32(10 ** rng.uniform(-18, 25)), np.float32(10 ** rng.uniform(-10, 10))

    def after_another(self, *args):
        if waiting:
            f(*waiting.pop())
        return run(self, *args)

    monkeypatch.setattr(PlannedFunction, "_first", after_another)
    for _ in range(60):
        waiting[:] = [numbers()]
        f(*numbers())
    assert {plan.method for plan in f.plans} == {"identity", "presolve"}


def test_a_plan_of_which_something_was_missing_is_not_asked_again():
    """It hides everything already, so its zeros were not XLA's doing; other exponents hold them."""

    def difference(x, y):
        v = 6.626e-34 * x / y
        return ((v - y) / (v + y)) ** -1

    slope = jax.vmap(jax.grad(lambda *xs: jnp.sum(difference(*xs)), (0, 1)))
    make = lambda *rows: [jnp.array(row, jnp.bfloat16) for row in rows]
    calls = (
        make([2.27e32, 9.239e-07, 8.0094e-07, 9.6858e-07], [4816896, 1.848e-5, 7.403e32, 1.955e-5]),
        make([2.27e32, 0, 8.0094e-07, 9.6858e-07], [4816896, 0, 7.403e32, 1.955e-5]),
    )
    f = tj.jit(slope)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        later = [f(*xs) for xs in calls]
        fresh = tj.jit(slope)(*calls[1])
    np.testing.assert_array_equal(np.float64(later[1][1]), np.float64(fresh[1]))
    np.testing.assert_allclose(np.float64(fresh[1][3]), 1.7e-25, rtol=0.1)


def test_a_thread_that_comes_between_leaves_no_program_for_the_arguments_of_another(monkeypatch):
    """One thread remembers its call while another makes and remembers a whole call."""
    f, large, small = tj.jit(lambda x: x * x / x), array(LARGE, ()), array(1.0, ())
    for x in (large, small) * 3:
        f(x)
    is_immutable, arrived, go = _planning.is_immutable, threading.Event(), threading.Event()

    def pausing(x):
        if threading.current_thread().name == "first":
            arrived.set()
            go.wait(20)
        return is_immutable(x)

    monkeypatch.setattr(_planning, "is_immutable", pausing)
    first = threading.Thread(name="first", target=f, args=(large,))
    first.start()
    arrived.wait(20)
    f(small)
    go.set()
    first.join()
    for x in (large, large, small, large):
        assert_same(f(x), x)


def test_a_captured_call_does_not_depend_on_calls_before():
    f, x, y = tj.jit(lambda x: x * 2 + 1), array(1.0), array(2.0)
    outer = lambda y: f(x) + y
    before = str(tj.capture(outer)(y))
    f(x)
    assert str(tj.capture(outer)(y)) == before


def test_cases_and_plans_are_bounded(monkeypatch):
    monkeypatch.setattr(_making, "_CASES", 4)
    f = tj.jit(square_over)
    for n in [*range(1, 8), 1]:
        assert_same(f(array(LARGE, (n,))), array(LARGE, (n,)))
    assert len(plans(f)) == len(f._compiled._making.cases) == 4


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: x + 1, jnp.ones(3, jnp.float32)),
        (lambda x: x * x * 1e-30, jnp.full(3, 1e25, jnp.float32)),
        (lambda x: jnp.exp(-x) * 1e30 / (x - 3.0), jnp.full(3, 60.0, jnp.float32)),
        (lambda d: d["a"] * d["b"], {k: jnp.ones(2, jnp.float32) * tj.unit("km") for k in "abcd"}),
        (lambda d: d["a"]["b"] + 1, {"a": {k: jnp.ones(2, jnp.float32) for k in "bcde"}}),
    ],
    ids=["plain", "planned", "flagged", "quantities", "nested"],
)
def test_programs_go_with_their_function(f, x):
    """Without a collection, as those of `jax.jit`: a process has room for so many programs."""
    gc.disable()
    try:
        compiled = tj.jit(f)
        compiled(x)
        gone = weakref.ref(compiled), weakref.ref(compiled._compiled)
        del compiled
        assert [known() for known in gone] == [None, None]
    finally:
        gc.enable()


def test_donated_arguments_are_copied_at_the_first_call_alone(monkeypatch):
    """No proof covers an FFT, so that each call looks at its numbers."""
    copied, kind = [], _arguments.Arguments
    kept = kind.kept
    monkeypatch.setattr(kind, "kept", lambda self, *args: copied.append(args) or kept(self, *args))
    f = tj.jit(lambda x: jnp.fft.ifft(jnp.fft.fft(x * 0.5)).real * x / x, donate_argnums=0)
    for i in range(4):
        x = array(1 + i / 8)
        want = f(x)
        assert x.is_deleted()
        assert jnp.isfinite(want).all()
        if not i:
            copied.clear()
    assert not copied


def test_threads_that_call_at_once_wait_for_one_plan():
    """The second would trace and plan the same program beside the first."""
    together, traces = threading.Barrier(2), []

    def f(x):
        traces.append(x)
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(0.5)
        return x * x / x

    planned, x = tj.jit(f), jnp.float32(1e30)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: planned(x), range(2)))
    assert len(planned.plans) == 1
    assert len(traces) == 1


def test_arrays_whose_results_are_wrong_warn_on_every_call():
    planned = tj.jit(lambda m, r: 6.674e-11 * m * m / r**2)
    masses, distances = np.float32([2e30, 1e-25]), np.float32([1e11, 1e-15])
    masses, distances = jnp.asarray(masses), jnp.asarray(distances)
    for _ in range(3):
        with pytest.warns(tj.errors.ScaleWarning, match="1 entries of the results are wrong"):
            planned(masses, distances)


def test_programs_with_effects_say_that_looks_are_slow():
    def f(x):
        jax.debug.callback(lambda _: None, x)
        return 1 / (x - 1)

    planned = tj.jit(f)
    for i in range(15):
        planned(jnp.float32(2 + i))
    with pytest.warns(tj.errors.ScaleWarning, match="slow"):
        planned(jnp.float32(17))


@pytest.mark.parametrize("size", [1e40, 1e-50])
def test_results_that_fit_leave_without_a_power_whatever_came_in(size):
    """A label with a power is for numbers that do not fit, and for these only."""
    x = tj.Quantity(size, "m").astype(jnp.float32)
    assert x.scale
    rest = tj.Quantity(3e7 / size, "s").astype(jnp.float32)
    kept, back, closed = tj.jit(lambda y, rest: (y + y, (y / size) * 3e7, x * rest))(x, rest)
    assert (back.scale, closed.scale) == (0, 0)
    for found in (back, closed):
        np.testing.assert_allclose(found.stored, 3e7, rtol=1e-6)
    np.testing.assert_allclose(number(kept), 2 * size, rtol=1e-6)
    assert kept.scale


def test_state_far_from_one_keeps_its_structure():
    """Round exponents: a state that grows by 2^50 in five steps leaves in one structure."""
    step = tj.jit(lambda x: x * 1e3)
    x, structures = tj.Quantity(jnp.float32(1e37), "m"), set()
    for _ in range(5):
        x = step(x)
        structures.add(jax.tree.structure(x))
    np.testing.assert_allclose(number(x), 1e52, rtol=1e-5)
    assert len(structures) == 1


def test_trees_of_one_unit_fit_together_inside_whatever_their_labels():
    """`jax.tree.map`, `jax.lax.scan` compare structures: inside of `tj.jit` none has a power."""
    area, start = tj.Quantity(1e60, "m2").astype(jnp.float32), jnp.float32(0.0) * tj.unit("m2")

    def total(start, area):
        both = jax.tree.map(jnp.add, start, area)
        return jax.lax.scan(lambda c, _: (jax.tree.map(jnp.add, c, area), None), both, length=2)[0]

    np.testing.assert_allclose(number(tj.jit(total)(start, area)), 3e60, rtol=1e-6)
    many = {name: start for name in "abcdef"} | {"g": area}  # a function of their values
    out = tj.jit(lambda p: jax.tree.map(lambda x, y: x + y, p["a"], p["g"]))(many)
    np.testing.assert_allclose(number(out), 1e60, rtol=1e-6)


@pytest.mark.parametrize("size", [1e30, 1e45, 1e-45])
@pytest.mark.parametrize(
    "make",
    [
        tj.Diagonal,  # one field, in which it is linear: it leaves at an exponent
        lambda x: tj.Toeplitz(x, (1, 2)).T,
        lambda x: tj.Sparse(x, [[0, 0], [0, 1]], (2, 2)),
        lambda x: tj.SymTridiagonal(x, x[1:]),  # others keep the powers of their labels
        lambda x: tj.Scaled(tj.Diagonal(jnp.ones(2, jnp.float32)), x[0]),
        lambda x: tj.Kronecker(x[:, None], jnp.ones((2, 2), jnp.float32)),
    ],
)
def test_structured_quantities_far_from_one_leave_whole(make, size):
    x = tj.Quantity(size * np.array([1.0, 2.0]), "kg").astype(jnp.float32)
    out = tj.jit(lambda x: (make(x) * 2.0, {"as it came": x}))(x)[0]
    right = 2 * np.asarray(make(jnp.float32([1.0, 2.0])).to_dense(), np.float64) * size
    for got in (tj.Quantity(out.stored.to_dense(), out.label), tj.jit(lambda a: a.to_dense())(out)):
        np.testing.assert_allclose(number(got), right, rtol=1e-6)


@pytest.mark.parametrize("size", [1e30, 1e-30])
@pytest.mark.parametrize(
    "make",
    [lambda x: tj.SymTridiagonal(x, x[1:]), lambda x: tj.LowRank(x[:, None], x[:, None] / x[0])],
)
def test_structured_quantities_that_cannot_have_a_power_say_when_they_do_not_fit(make, size):
    square = tj.jit(lambda x: make(x * x))
    x = lambda size: jnp.full(2, size, jnp.float32) * tj.unit("kg")
    for call in range(4):
        fits = square(x(2.0))
        np.testing.assert_allclose(fits.stored.to_dense(), make(x(2.0) ** 2).stored.to_dense())
        with pytest.warns(tj.errors.ScaleWarning, match="cannot carry a power"):
            square(x(size * (call + 1)))
    square(x(1e-15))
    with pytest.warns(tj.errors.ScaleWarning, match="cannot carry a power"):
        square(x(1e-20))  # not far from the last


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_structured_quantities_of_one_field_leave_at_an_exponent(size):
    x = jnp.full(2, size, jnp.float32) * tj.unit("kg")
    out = tj.jit(lambda x: tj.Diagonal(x * x))(x)
    np.testing.assert_allclose(number(out.diagonal()), size**2, rtol=1e-6)
    both = tj.jit(lambda d, x: d * x[0])(out, x)
    np.testing.assert_allclose(number(both.diagonal()), size**3, rtol=1e-6)
    with pytest.warns(tj.errors.ScaleWarning, match="cannot carry a power"):
        ones = tj.jit(lambda x: tj.Triangular(x * x[:, None], unit_diagonal=True))(x)
    assert not ones.scale  # its diagonal does not grow with the field


def test_labels_keep_their_powers_where_nobody_plans():
    x = tj.Quantity(1e60, "m2").astype(jnp.float32)
    half = tj.jit(lambda x: 0.5 * x)
    number(half(x))  # planned first: another program
    with pytest.warns(tj.errors.ScaleWarning, match="trace"):
        out = jax.jit(half)(x)
    np.testing.assert_allclose(number(out), 5e59, rtol=1e-6)
    np.testing.assert_allclose(number(tj.jit(lambda x: 0.5 * x, scale=False)(x)), 5e59, rtol=1e-6)


def test_labels_keep_their_powers_where_no_exponents_hold_the_numbers():
    """A comparison ties an argument to a product with zero: plain JAX is right, by the label."""
    planned = tj.jit(lambda x: tnp.where(x > 0 * x, x, 3 * x))
    for size in (1.0, 1.5, 1.6):
        x = tj.Quantity(jnp.float16(size) * jnp.float16([0.5, 0.7]), "m", scale=-65)
        np.testing.assert_allclose(number(planned(x)), number(x), rtol=1e-3)
    assert [p.looks for p in planned.plans] == [1, 1]  # one with exponents, one with powers


def test_trees_of_one_unit_fit_together_also_where_numbers_are_lost():
    """A label that kept its power would be another structure, and JAX would raise."""
    planned = tj.jit(lambda x, y: jax.tree.map(jnp.add, x, y))
    x = jnp.float32([1e-30, 1.0]) * tj.unit("m")
    with pytest.warns(tj.errors.ScaleWarning, match="entries of the results are wrong"):
        planned(x, tj.Quantity([0.0, 1e60], "m").astype(jnp.float32))
    out = planned(x, tj.Quantity([1e50, 1e60], "m").astype(jnp.float32))
    np.testing.assert_allclose(number(out), [1e50, 1e60], rtol=1e-6)


def test_labels_keep_their_powers_where_a_loop_cannot_be_looked_at(monkeypatch):
    """A spring of 1e-9 m in steps of 1e-17 s, in float16: labels hold what no plan is sure of."""
    monkeypatch.setattr(_making, "_MEASURED", 0)

    def energy(x, v, dt, omega):
        def step(state, _):
            x, v = state
            v = v - omega * omega * x * dt
            return (x + v * dt, v), x[0]

        steps = tj.checkpoint(lambda state, _: tj.scan(step, state, None, length=20))
        return tnp.sum(tj.scan(steps, (x, v), None, length=20)[1] ** 2)

    def given(dtype):
        places = np.linspace(1e-9, 2e-9, 2)
        numbers = (places, "m"), (0 * places, "m/s"), (1e-17, "s"), (2e15, "1/s")
        return [tj.Quantity(x, unit).astype(dtype) for x, unit in numbers]

    slope = tj.value_and_grad(energy, argnums=3)
    planned, right = tj.jit(slope), jax.jit(slope)(*given(jnp.float64))
    for _ in range(2):
        out = planned(*given(jnp.float16))
        (program,) = planned._known.values()
        assert next(iter(program._making.cases.values())).state.keeps_powers
        for got, true in zip(out, right, strict=True):
            np.testing.assert_allclose(number(got), number(true), rtol=0.03)


def test_first_label_with_a_power_is_said_once():
    said_of_powers.clear()
    square = lambda x: {"area": x * x, "length": x}
    with pytest.warns(
        tj.errors.ScaleWarning, match=r"(?s)said once.*results\['area'\]: float32 · 2\^"
    ):
        tj.jit(square)(jnp.float32(1e30) * tj.unit("m"))
    tj.jit(square)(jnp.float32(1e30) * tj.unit("kg"))
