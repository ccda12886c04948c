"""In-place functions: what they do to Refs, their transitions, and rules of these in every mode."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tanjax as tj
from mutation_modes import assert_same_in_every_mode, results
from tanjax._errors import RegistrationError

X = jnp.array([0.7, -0.4, 1.3])
T = jnp.array([0.3, 1.0, -0.6])


# -- the functions of the document ---------------------------------------------------------------


@tj.inplace(mutates="x")
def set_1(x, y):
    """Write the first entry; return the argument."""
    x[0] = y
    return x


@tj.inplace(mutates="x")
def square(x):
    x[...] = x[...] ** 2
    return jnp.sum(x[...])


def square_pullback(x):
    return lambda x_bar, out_bar: 2 * x * (x_bar + out_bar)


@tj.inplace(mutates=("z", "s"))
def document(x, y, z, s):
    """The document's `f(x, y, z, s)`: two mutated arguments, an output, new memory."""
    z[...] = z[...] * y + x
    s[0] = jnp.sum(z[...])
    new = jax.new_ref(z[...] * 2.0)
    return x * y, new, (z, new)


def make_square(name, rule):
    """A copy of `square` with a rule."""

    @tj.inplace(mutates="x")
    def f(x):
        x[...] = x[...] ** 2
        return jnp.sum(x[...])

    f.__name__ = name
    rule(f)
    return f


def natural(f, factor=2.0):
    @f.natural_rule
    def rule(x):
        return f.primal(x), lambda x_bar, out_bar: factor * x * (x_bar + out_bar)


def mooncake(f, factor=2.0):
    @f.inplace_rule
    def rule(x):
        def pullback(x_bar, out_bar):
            x_bar[...] = factor * x * (x_bar[...] + out_bar)

        return f.primal(x), pullback


SQUARES = {
    "derived": square,
    "natural": make_square("natural", natural),
    "mooncake": make_square("mooncake", mooncake),
    "def_pullback": make_square(
        "def_pullback",
        lambda f: f.def_pullback(tj.Dense)(lambda x: (f.primal(x), square_pullback(x))),
    ),
}


def on_transition(f, x):
    after = f.transition(x * 2.0)
    return jnp.sum(jnp.cos(after.state[0])) * after.out


def on_refs(f, x):
    def body(x):
        r = jax.new_ref(x * 2.0)
        out = f(r)
        return jnp.sum(jnp.cos(r[...])) * out

    return tj.discharge(body)(x)


def squared(x):
    y = (2.0 * x) ** 2
    return jnp.sum(jnp.cos(y)) * jnp.sum(y)


@functools.cache
def expected_of_square():
    return jax.jit(lambda: results(squared, X, T))()


@pytest.mark.parametrize("call", [on_transition, on_refs])
@pytest.mark.parametrize("name", SQUARES)
def test_square_in_every_mode(name, call):
    f = SQUARES[name]
    got = jax.jit(lambda: results(functools.partial(call, f), X, T))()
    for mode, value in expected_of_square().items():
        np.testing.assert_allclose(got[mode], value, rtol=1e-10, err_msg=mode)


@pytest.mark.parametrize("form", [natural, mooncake])
def test_a_wrong_rule_shows_in_every_mode(form):
    f = make_square("wrong", functools.partial(form, factor=3.0))
    got = jax.jit(lambda: results(functools.partial(on_refs, f), X, T))()
    for mode, value in expected_of_square().items():
        same = np.allclose(got[mode], value, rtol=1e-3)
        assert same is (mode == "value"), mode


def test_pullback_of_the_document():
    """phi(x) = (x * x, sum(x * x)) has the adjoint 2 x y1 + 2 x y2."""
    after, pullback = jax.vjp(square.transition, X)
    np.testing.assert_allclose(after.state[0], X**2, rtol=1e-15)
    (x_bar,) = pullback(tj.Transition((T,), jnp.asarray(0.5)))
    np.testing.assert_allclose(x_bar, 2 * X * T + X, rtol=1e-14)


# -- calls on Refs ---------------------------------------------------------------------------------


def test_the_caller_sees_the_mutation_and_gets_its_own_ref_back():
    r = jax.new_ref(X)
    assert set_1(r, 5.0) is r
    np.testing.assert_array_equal(r[...], [5.0, -0.4, 1.3])

    def g(x, y):  # returns the memory twice: one object
        return x, set_1(x, y)

    a, b = g(r, 6.0)
    assert a is b
    assert float(a[0]) == 6.0


def test_states_outputs_and_new_memory():
    z, s = jax.new_ref(X), jax.new_ref(jnp.zeros(1))
    product, new, (same, again) = document(2.0, 3.0, z, s)
    np.testing.assert_allclose(z[...], 3 * X + 2)
    np.testing.assert_allclose(s[...], [jnp.sum(3 * X + 2)])
    np.testing.assert_allclose(new[...], 2 * (3 * X + 2))
    assert (float(product), same is z, again is new) == (6.0, True, True)
    after = document.transition(2.0, 3.0, X, jnp.zeros(1))
    np.testing.assert_allclose(after.state[0], 3 * X + 2)
    np.testing.assert_allclose(after.state[1], [jnp.sum(3 * X + 2)])


def test_read_arguments_may_be_refs_and_stay():
    r, y = jax.new_ref(X), jax.new_ref(jnp.asarray(9.0))
    set_1(r, y)
    assert (float(r[0]), float(y[...])) == (9.0, 9.0)


def test_final_state_is_visible_after_a_gradient():
    """A Ref of the caller holds the state after the forward pass, as primals need no undoing."""
    r = jax.new_ref(X)

    @jax.jit
    def step(r, y):
        def loss(y):
            set_1.transition(r[...], y)
            return y**2

        slope = jax.grad(loss)(y)
        set_1(r, y)
        return slope

    assert float(step(r, 3.0)) == 6.0
    assert float(r[0]) == 3.0


def test_trees_and_dicts():
    @tj.inplace(mutates=("params",))
    def step(params, grads, rate=0.1):
        jax.tree.map(lambda p, g: p.__setitem__(..., p[...] - rate * g), params, grads)
        return params["w"]

    params = {"w": jax.new_ref(X), "b": [jax.new_ref(jnp.ones(2))]}
    assert step(params, {"w": T, "b": [jnp.ones(2)]}, 0.5) is params["w"]
    np.testing.assert_allclose(params["w"][...], X - 0.5 * T)
    np.testing.assert_allclose(params["b"][0][...], [0.5, 0.5])
    step(params, {"w": T, "b": [jnp.ones(2)]})
    np.testing.assert_allclose(params["w"][...], X - 0.6 * T)


def test_structured_state_and_gradient():
    """Refs in a structured array; the gradient of its transition is structured."""

    @tj.inplace(mutates="d")
    def scale(d, factor):
        d.diag[...] = d.diag[...] * factor

    d = tj.Diagonal(X)
    refs = jax.tree.map(jax.new_ref, d)
    scale(refs, 2.0)
    np.testing.assert_allclose(refs.diag[...], 2 * X)
    total = lambda d: jnp.sum((scale.transition(d, 2.0).state[0] @ jnp.ones(3)) ** 2)
    slope = jax.jit(jax.grad(total))(d)
    assert type(slope) is tj.Diagonal
    np.testing.assert_allclose(slope.diag, 8 * X)
    np.testing.assert_allclose(tj.grad(total)(d).diag, 8 * X)


def test_rules_and_bodies_for_types():
    """Dispatch by the class of the arguments before: body and rule."""
    seen = []

    @tj.inplace(mutates="a")
    def double(a):
        jax.tree.map(lambda r: r.__setitem__(..., 2.0 * r[...]), a)

    @double.implementation(tj.Diagonal)
    def double_diagonal(a):
        seen.append("body")
        a.diag[...] = a.diag[...] + a.diag[...]

    @double.natural_rule(tj.Diagonal)
    def double_rule(a):
        seen.append("rule")
        return double.primal(a), lambda a_bar, out_bar: 2.0 * a_bar

    refs = jax.tree.map(jax.new_ref, tj.Diagonal(X))
    double(refs)
    np.testing.assert_allclose(refs.diag[...], 2 * X)
    assert set(seen) == {"body"}  # before JAX 0.12 it is traced twice
    slope = jax.grad(lambda d: jnp.sum(double.transition(d).state[0].diag ** 2))(tj.Diagonal(X))
    np.testing.assert_allclose(slope.diag, 8 * X)
    assert "rule" in seen
    seen.clear()
    r = jax.new_ref(X)
    double(r)
    assert not seen


def test_static_arguments_anywhere():
    @tj.inplace(mutates="x", static=("times", "function"))
    def repeat(x, times, y, function=jnp.sin, *, start=0):
        for i in range(start, times):
            x[i] = function(x[i]) * y
        return times

    r = jax.new_ref(X)
    assert int(repeat(r, 2, 3.0)) == 2
    np.testing.assert_allclose(r[...], [3 * np.sin(0.7), 3 * np.sin(-0.4), 1.3])
    repeat(r, times=3, y=1.0, function=jnp.cos, start=2)
    np.testing.assert_allclose(r[2], np.cos(1.3))
    after = repeat.transition(X, 1, 2.0, function=jnp.cos)
    np.testing.assert_allclose(after.state[0][0], 2 * np.cos(0.7))
    slope = jax.grad(lambda y: repeat.transition(X, 2, y).state[0][0])(3.0)
    np.testing.assert_allclose(slope, np.sin(0.7))
    flag = tj.inplace(lambda x, up: x.__setitem__(0, 1.0 if up else -1.0), mutates="x")
    flag(r, True)
    assert float(r[0]) == 1.0


def test_integer_and_key_state():
    """A ring buffer's head and a random key are state without a gradient."""

    @tj.inplace(mutates=("buffer", "head", "key"))
    def push(buffer, head, key, x):
        key[...], drawn = jax.random.split(key[...])
        buffer[head[...]] = x * jax.random.normal(drawn, dtype=x.dtype)
        head[...] = (head[...] + 1) % 3

    def total(x, key):
        refs = jax.new_ref(jnp.zeros(3)), jax.new_ref(jnp.array(1)), jax.new_ref(key)
        for i in range(4):
            push(*refs, x[i % 3] ** 2)
        return jnp.sum(refs[0][...] ** 2)

    def functional(x, key):
        buffer, head = [jnp.zeros(())] * 3, 1
        for i in range(4):
            key, drawn = jax.random.split(key)
            buffer[head] = x[i % 3] ** 2 * jax.random.normal(drawn, dtype=x.dtype)
            head = (head + 1) % 3
        return sum(b**2 for b in buffer)

    key = jax.random.key(1)
    got = jax.jit(jax.value_and_grad(tj.discharge(total)))(X, key)
    expected = jax.jit(jax.value_and_grad(functional))(X, key)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-12), got, expected)
    refs = jax.new_ref(jnp.zeros(3)), jax.new_ref(jnp.array(1)), jax.new_ref(key)
    push(*refs, X[0])
    assert int(refs[1][...]) == 2


def test_two_states_in_the_order_of_mutates():
    """`mutates` in another order than the arguments; cotangents follow it in both forms."""

    def body(x, y, z):
        x[...], z[...] = x[...] * y * z[...], z[...] + x[...]
        return jnp.sum(x[...])

    def pullback_of(x, y, z):
        def pull(z_bar, x_bar, out_bar):
            x_bar = x_bar + out_bar
            return x_bar * y * z + z_bar, jnp.sum(x_bar * x * z), x_bar * x * y + z_bar

        return pull

    plain = tj.inplace(body, mutates=("z", "x"))
    ruled, moved = tj.inplace(body, mutates=("z", "x")), tj.inplace(body, mutates=("z", "x"))

    @ruled.natural_rule
    def rule(x, y, z):
        return ruled.primal(x, y, z), pullback_of(x, y, z)

    @moved.inplace_rule
    def moved_rule(x, y, z):
        def pull(z_bar, x_bar, out_bar):
            x_new, y_bar, z_new = pullback_of(x, y, z)(z_bar[...], x_bar[...], out_bar)
            x_bar[...], z_bar[...] = x_new, z_new
            return y_bar

        return moved.primal(x, y, z), pull

    def total(f, x):
        after = f.transition(jnp.sin(x), x[0], x**2)
        return jnp.sum(after.state[0] ** 2) + jnp.sum(jnp.cos(after.state[1])) * after.out

    found = [
        jax.jit(jax.value_and_grad(functools.partial(total, f)))(X) for f in (plain, ruled, moved)
    ]
    for other in found[1:]:
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-12), found[0], other)


def test_in_place_functions_call_in_place_functions():
    @tj.inplace(mutates="x")
    def twice(x):
        return square(x) + square(x)

    def plain(x):
        y = x**2
        return jnp.sum(y) + jnp.sum(y**2) + jnp.sum(jnp.cos(y**2))

    def total(x):
        after = twice.transition(x)
        return after.out + jnp.sum(jnp.cos(after.state[0]))

    assert_same_in_every_mode(total, plain, X, T, ["value", "hessian"])
    r = jax.new_ref(X)
    twice(r)
    np.testing.assert_allclose(r[...], X**4)


# -- under transformations -------------------------------------------------------------------------


def test_refs_of_the_caller_under_transformations():
    """A Ref as an argument of `jit`, of `vmap`, closed over by a scan."""
    r = jax.new_ref(X)

    @jax.jit
    def call(r, y):
        return set_1(r, y)[...]

    np.testing.assert_array_equal(call(r, 2.0), [2.0, -0.4, 1.3])
    rows = jax.new_ref(jnp.stack([X, X]))
    jax.vmap(lambda r, y: set_1(r, y)[...])(rows, jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(rows[:, 0], [1.0, 2.0])

    @jax.jit
    def loop(ys):
        def body(c, y):
            square(r)
            set_1(r, y)
            return c, r[0] * r[1]

        return lax.scan(body, None, ys)[1]

    np.testing.assert_allclose(loop(jnp.array([3.0, 4.0])), [3 * 0.4**2, 4 * 0.4**4])
    np.testing.assert_allclose(r[...], [4.0, 0.4**4, 1.3**4])


def test_transition_under_shard_map():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    x = jnp.arange(4.0) + 1

    def total(x):
        f = lambda x: square.transition(x).state[0]
        return jnp.sum(jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)(x) ** 2)

    np.testing.assert_allclose(jax.grad(total)(x), 4 * x**3)


def test_a_call_is_one_program_without_copies():
    """Buffers of the Refs are those of the program: all aliased, nothing copied."""
    n = 1000
    r = jax.new_ref(jnp.ones(n))
    lowered = jax.jit(lambda r, y: len([set_1(r, y)])).lower(r, 2.0).compile()
    memory = lowered.memory_analysis()
    assert memory.alias_size_in_bytes >= 8 * n
    assert memory.temp_size_in_bytes == 0
    assert f"f64[{n}]{{0}} copy(" not in lowered.as_text()


def test_calls_are_traced_once():
    traces = []

    @tj.inplace(mutates="x")
    def count(x, y):
        traces.append(1)
        x[0] = y

    r = jax.new_ref(X)
    for y in (1.0, 2.0, 3.0):
        count(r, y)
    assert len(traces) == 1


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("mutates", ["y", ("x", "y"), (), "flag"])
def test_mutates_must_name_arguments(mutates):
    with pytest.raises(RegistrationError, match="`mutates` must name"):
        tj.inplace(lambda x, *, flag=True: None, mutates=mutates)


def test_writing_an_argument_that_is_not_named():
    @tj.inplace(mutates="x")
    def wrong(x, y):
        y[0] = x[0]

    with pytest.raises(TypeError, match="item assignment") as caught:
        wrong(jax.new_ref(X), jax.new_ref(X))
    assert "wrong writes to an array" in caught.value.__notes__[0]
    assert "mutates=('x'...)" in caught.value.__notes__[0]


def test_closing_over_a_ref():
    r = jax.new_ref(X)

    @tj.inplace(mutates="x")
    def closes(x):
        x[0] = r[1]

    with pytest.raises(tj.MutationError, match=r"closes: (.|\n)*closes over a Ref"):
        closes(jax.new_ref(X))


def test_changes_of_shape_and_dtype():
    @tj.inplace(mutates="x")
    def grow(x):
        x[...] = jnp.ones(5)

    @tj.inplace(mutates="x")
    def narrow(x):
        x[...] = x[...].astype(jnp.float32)

    with pytest.raises(tj.ShapeError, match="grow: a write does not have the shape") as caught:
        grow(jax.new_ref(X))
    assert "JAX says: Invalid shape" in str(caught.value)  # explained once, by the innermost
    with pytest.raises(tj.MutationError, match="narrow: a write does not have the dtype"):
        narrow.transition(X)


def test_returning_a_view():
    view = tj.inplace(lambda x: x.at[0:2], mutates="x")
    with pytest.raises(tj.MutationError, match="returns a view"):
        view(jax.new_ref(X))


def test_nothing_is_written_if_the_body_raises():
    @tj.inplace(mutates="x")
    def fails(x):
        x[0] = 100.0
        raise RuntimeError("on purpose")

    r = jax.new_ref(X)
    with pytest.raises(RuntimeError, match="on purpose"):
        fails(r)
    np.testing.assert_array_equal(r[...], X)


def test_wrong_rules_are_named():
    wrong = make_square(
        "wrong", lambda f: f.natural_rule(lambda x: (f.primal(x), lambda a, b: None))
    )
    short = make_square(
        "short", lambda f: f.inplace_rule(lambda x: (f.primal(x), lambda a, b: (a, b)))
    )
    assert (
        float(jnp.sum(jax.grad(functools.partial(on_transition, wrong))(X))) == 0.0
    )  # `None`: no dependence
    with pytest.raises(tj.CotangentError, match="not mutated"):
        jax.grad(functools.partial(on_transition, short))(X)


def test_wrong_calls_name_the_function():
    with pytest.raises(TypeError, match=r"set_1\(x, y\)"):
        set_1(jax.new_ref(X))
    assert "mutates ('x',)" in repr(set_1)
    assert set_1.__doc__.startswith("Write the first entry")


# -- structured arrays and quantities --------------------------------------------------------------


@tj.inplace(mutates="a")
def shrink(a, factor):
    a[...] = a[...] * factor
    return a


@pytest.mark.parametrize(
    "array",
    [
        tj.Symmetric(jnp.array([[2.0, 0.5], [0.5, 1.0]])),
        tj.Kronecker(jnp.eye(2) * X[0], jnp.ones((2, 2))),
        tj.quantity(X, "m"),
        tj.quantity(tj.Diagonal(X), "m"),
        {"d": tj.Diagonal(X), "x": X},
    ],
    ids=["Symmetric", "Kronecker", "quantity", "quantity of Diagonal", "dict"],
)
def test_structured_refs(array):
    """Memory of any array: the body reads and writes arrays, the caller's object comes back."""
    f, half = shrink, lambda a: a * 0.5
    if isinstance(array, dict):
        f = tj.inplace(lambda a, factor: [shrink(v, factor) for v in a.values()], mutates="a")
        half = lambda a: {k: v * 0.5 for k, v in a.items()}
    ref = tj.new_ref(array)
    out = f(ref, 0.5)
    assert out is ref or out[0] is ref["d"]
    after = f.transition(array, 0.5).state[0]
    for found in (tj.freeze(ref), after):
        assert jax.tree.structure(found) == jax.tree.structure(array)
        jax.tree.map(np.testing.assert_allclose, found, half(array))

    def on_refs(a):
        mine = tj.new_ref(a)
        f(mine, 0.5)
        return tj.freeze(mine)

    forms = half, lambda a: f.transition(a, 0.5).state[0], tj.discharge(on_refs)
    total = lambda form, a: sum(jnp.sum(x**2) for x in jax.tree.leaves(form(a)))
    expected, *slopes = [jax.grad(functools.partial(total, form))(array) for form in forms]
    for slope in slopes:
        jax.tree.map(np.testing.assert_allclose, slope, expected)


def stretch_by_natural_rule(stretch, seen):
    @stretch.natural_rule
    def rule(x, by):
        def pullback(x_bar, out_bar):
            seen.append(x_bar.unit)
            return x_bar * by, jnp.sum((x_bar * x).to_value(""))

        return stretch.primal(x, by), pullback


def stretch_by_inplace_rule(stretch, seen):
    @stretch.inplace_rule
    def rule(x, by):
        def pullback(x_bar, out_bar):
            seen.append(x_bar.unit)
            by_bar = jnp.sum((x_bar[...] * x).to_value(""))
            x_bar[...] = x_bar[...] * by
            return by_bar

        return stretch.primal(x, by), pullback


@pytest.mark.parametrize("register", [stretch_by_natural_rule, stretch_by_inplace_rule])
def test_a_rule_speaks_natural_cotangents_with_units(register):
    """A quantity in metres in the state: its cotangent in 1/m, in both forms of a rule."""
    seen = []

    @tj.inplace(mutates="x")
    def stretch(x, by):
        x[...] = x[...] * by

    register(stretch, seen)

    def total(x, by):
        return jnp.sum((stretch.transition(x, by).state[0].to_value("km")) ** 2)

    x = tj.quantity(1000 * X, "m")
    x_bar, by_bar = tj.grad(total, argnums=(0, 1))(x, 3.0)
    np.testing.assert_allclose(x_bar.to_value("1/km"), 18 * X, rtol=1e-12)
    np.testing.assert_allclose(by_bar, 6 * jnp.sum(X**2), rtol=1e-12)
    assert seen
    assert all(u.dimension == tj.unit("1/m").dimension for u in seen)


def test_batches_go_to_the_body_whole():
    """Also inside of trees; differentiated as what the body does with them."""

    @tj.inplace(mutates="params")
    def descend(params, rates):
        for name, rate in rates.items():
            params[name][...] = params[name][...] - 0.5 * rate
        return tj.trace(params["d"][...])

    params = {
        "d": tj.Diagonal(jnp.arange(6.0).reshape(2, 3)),
        "s": tj.Symmetric(jnp.stack([jnp.eye(2), 2 * jnp.eye(2)])),
    }
    refs = tj.new_ref(params)
    np.testing.assert_allclose(descend(refs, params), [1.5, 6.0])
    after = tj.freeze(refs)
    assert type(after["s"]) is tj.Symmetric
    np.testing.assert_allclose(after["s"].to_dense(), params["s"].to_dense() / 2)
    gradient = tj.grad(lambda p: jnp.sum(descend.transition(p, p).out))(params)
    np.testing.assert_allclose(gradient["d"].diag, jnp.full((2, 3), 0.5))


def test_a_map_into_one_ref_says_what_to_map():
    @tj.inplace(mutates="x")
    def add(x, y):
        x[...] = x[...] + y

    r = jax.new_ref(jnp.zeros(3))
    with pytest.raises(Exception, match="unbatched array reference") as caught:
        jax.vmap(lambda y: add(r, y))(jnp.ones((4, 3)))
    assert any("add would write one value for each" in note for note in caught.value.__notes__)
